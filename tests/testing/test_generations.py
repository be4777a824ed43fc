"""Phases of generations as cases of tests: how they are declared, selected, stored and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.generating.make_decoder import DecoderShape, make_decoder
from tests.support.project import STATIC, assert_ended, between, collected, read_json, write_table
from tests.support.small_models import parse

# A cache that is as long as the whole generation, and names that no exporter gives.
OPEN_CACHE = """g (float[1,S,4] tokens, float[1,1,max_length,4] cache_in)
    => (float[1,1,S,max_length] scores, float[1,1,max_length,4] cache_out) {
    across = Transpose<perm=[0,1,3,2]>(cache_in)
    scores = MatMul(tokens, across)
    cache_out = Identity(cache_in)
}"""
UPDATE = "--modelperf-update-baseline"
TABLE = '[tool.modelperf.models."decoder.onnx"]\nprompt = 16\ngenerate = 8\n'


def write_decoder(path: Path, shape: DecoderShape | None = None) -> Path:
    path.write_bytes(make_decoder(shape).SerializeToString())
    return path


@pytest.fixture
def decoder(run: pytest.Pytester) -> pytest.Pytester:
    """A project with a decoder whose cache grows."""
    write_decoder(run.path / "decoder.onnx")
    return run


def generation(phase: str) -> dict[str, object]:
    """A phase of the generation of `TABLE`, as a baseline stores it."""
    return {"phase": phase, "prompt": 16, "generate": 8, "state": {}}


def refusal(run: pytest.Pytester) -> str:
    """Return the message of a run that cannot collect a table or a test, on one line."""
    result = assert_ended(run.runpytest_inprocess(*STATIC), errors=1)
    return " ".join(between(result.outlines, "ERROR collecting", "short test summary").split())


def test_each_phase_of_a_generation_is_a_test(decoder: pytest.Pytester) -> None:
    write_table(decoder, TABLE)
    assert collected(decoder) == [
        "decoder.onnx::b1-c1-prompt16-prefill",
        "decoder.onnx::b1-c1-prompt16-generate8-step",
    ]
    assert collected(decoder, "-k", "step") == ["decoder.onnx::b1-c1-prompt16-generate8-step"]


def test_a_prompt_has_one_prefill_however_much_is_generated(decoder: pytest.Pytester) -> None:
    source = """
        [tool.modelperf.models."decoder.onnx"]
        batch_size = [1, 2]
        prompt = [16, 32]
        generate = [4, 8]
    """
    write_table(decoder, source)
    names = [line.partition("::b1-c1-")[2] for line in collected(decoder, "-k", "b1")]
    assert sorted(names) == [
        "prompt16-generate4-step",
        "prompt16-generate8-step",
        "prompt16-prefill",
        "prompt32-generate4-step",
        "prompt32-generate8-step",
        "prompt32-prefill",
    ]
    assert len(collected(decoder)) == 2 * len(names)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ("prompt = 16", ["prompt16-prefill"]),
        ("prompt = 16\ngenerate = 0", ["prompt16-prefill"]),
        ("prompt = 16\ngenerate = 8\nphase = 'step'", ["prompt16-generate8-step"]),
        ("prompt = 16\ngenerate = 8\nphase = 'prefill'", ["prompt16-prefill"]),
        ("generate = 8", ["prompt0-generate8-step"]),
    ],
)
def test_a_phase_without_length_does_not_make_a_case(
    decoder: pytest.Pytester, lengths: str, expected: list[str]
) -> None:
    write_table(decoder, f'[tool.modelperf.models."decoder.onnx"]\n{lengths}\n')
    assert collected(decoder) == [f"decoder.onnx::b1-c1-{each}" for each in expected]


def test_markers_and_calls_take_the_same_words(decoder: pytest.Pytester) -> None:
    decoder.makepyfile("""
        import pytest

        @pytest.mark.perf_case("decoder.onnx", prompt=16, generate=[4, 8])
        @pytest.mark.perf_budget(cache_bytes_per_token=512)
        def test_marked(modelperf):
            generation = modelperf.profile.static.generation
            assert generation.cache_bytes == 256

        def test_called(modelperf):
            step = modelperf("decoder.onnx", prompt=16, generate=8, phase="step")
            prefill = modelperf("decoder.onnx", prompt=16)
            assert step.case.phase.generate == 8
            assert step.static.generation.first_macs < step.static.generation.last_macs
            assert step.static.macs < prefill.static.macs

        def test_called_for_both(modelperf):
            modelperf("decoder.onnx", prompt=16, generate=8)
        """)
    result = assert_ended(decoder.runpytest_inprocess(*STATIC, "-v"), passed=4, failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_marked?b1-c1-prompt16-prefill? NEW*",
            "*test_marked?b1-c1-prompt16-generate4-step? NEW*",
            "*test_marked?b1-c1-prompt16-generate8-step? NEW*",
            "*makes 2 cases, and a call takes one: give one size of each, and phase='prefill'*",
        ]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("state = {a = 'b'}", "state is about a generation: give prompt and generate too."),
        (
            "prompt = 16\nbudget = {token_ms = 5}",
            "token_ms is about the step of a generation, and no case of this model is one",
        ),
        (
            "budget = {ttft_ms = 5}",
            "no case of this model is one: give prompt, or leave out ttft_ms.",
        ),
        (
            "generate = 8\ntolerance = {ttft = 0.1}",
            "ttft is about the prefill of a generation, and no case of this model is one",
        ),
        (
            "prompt = 16\nphase = 'step'",
            "phase chooses step, and decoder.onnx has prefill alone with these lengths",
        ),
        ("prompt = 16\ngenerate = 8\ndims = {past_sequence_length = 3}", "Leave"),
    ],
)
def test_settings_that_no_case_of_a_model_can_use_are_refused(
    decoder: pytest.Pytester, words: str, message: str
) -> None:
    write_table(decoder, f'[tool.modelperf.models."decoder.onnx"]\n{words}\n')
    assert message in refusal(decoder)


def test_a_model_without_state_says_what_it_has_instead(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."dense.onnx"]\nprompt = 16\ngenerate = 8\n')
    message = refusal(run)
    assert "dense.onnx" in message
    assert 'state={"' in message or "state = {" in message


def test_a_python_function_generates_nothing(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import pytest

        @pytest.mark.perf_case(lambda: None, prompt=16)
        def test_function(): ...
        """)
    assert "the model is a Python function: leave them out" in refusal(run)


def test_a_tolerance_of_the_whole_run_may_name_phases(run: pytest.Pytester) -> None:
    """Other models of the run may have them."""
    write_table(
        run, '[tool.modelperf]\ntolerance = {ttft = 0.1}\n[tool.modelperf.models."dense.onnx"]'
    )
    run.runpytest_inprocess(*STATIC).assert_outcomes(passed=1)


def test_a_baseline_knows_the_phases_and_their_counts(decoder: pytest.Pytester) -> None:
    write_table(decoder, TABLE)
    decoder.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=2)
    cases = read_json(decoder.path / "baselines/decoder/model.json")["cases"]
    stored = {name: case["generation"] for name, case in cases.items()}
    assert stored == {
        "b1-c1-prompt16-generate8-step": generation("step"),
        "b1-c1-prompt16-prefill": generation("prefill"),
    }
    result = decoder.runpytest_inprocess(*STATIC, "--modelperf-strict", "--modelperf-json=run.json")
    result.assert_outcomes(passed=2)
    found = read_json(decoder.path / "run.json")["cases"]
    assert [(each["phase"], each["prompt"], each["generate"]) for each in found] == [
        ("prefill", 16, 8),
        ("step", 16, 8),
    ]


def test_a_decoder_with_one_more_layer_fails_in_both_phases(decoder: pytest.Pytester) -> None:
    write_table(decoder, TABLE)
    decoder.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=2)
    write_decoder(decoder.path / "decoder.onnx", DecoderShape(layers=3))
    decoder.runpytest_inprocess(*STATIC).assert_outcomes(failed=2)


def test_work_on_every_token_but_the_last_fails_the_prefill_alone(decoder: pytest.Pytester) -> None:
    write_table(decoder, TABLE + "tolerance = {params = 0.5}\n")
    decoder.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=2)
    write_decoder(decoder.path / "decoder.onnx", DecoderShape(other_tokens_work=64))
    result = decoder.runpytest_inprocess(*STATIC, "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*prompt16-prefill REGRESSED*", "*generate8-step *PASSED*"])


def test_a_prefill_into_another_static_cache_is_new(run: pytest.Pytester) -> None:
    """Its id is the same, but its cache is as long as prompt and generated tokens together."""
    (run.path / "decoder.onnx").write_bytes(parse(OPEN_CACHE).SerializeToString())
    table = TABLE + "state = {cache_in = 'cache_out'}\nphase = 'prefill'\n"
    write_table(run, table)
    run.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=1)
    run.runpytest_inprocess(*STATIC, "--modelperf-strict").assert_outcomes(passed=1)
    write_table(run, table.replace("generate = 8", "generate = 16"))
    assert_ended(
        run.runpytest_inprocess(*STATIC, "--modelperf-strict"),
        "new: the baseline of b1-c1-prompt16-prefill was recorded with a cache for 8",
        "  generated tokens. Now: 16. *",
        failed=1,
    )


def test_an_unused_phase_is_pruned(decoder: pytest.Pytester) -> None:
    write_table(decoder, TABLE)
    decoder.runpytest_inprocess(*STATIC, UPDATE).assert_outcomes(passed=2)
    write_table(decoder, TABLE + "phase = 'prefill'\n")
    decoder.runpytest_inprocess(*STATIC, "--modelperf-prune").assert_outcomes(passed=1)
    cases = read_json(decoder.path / "baselines/decoder/model.json")["cases"]
    assert list(cases) == ["b1-c1-prompt16-prefill"]


@pytest.mark.slow
def test_a_decoder_is_recorded_and_judged_in_each_phase(decoder: pytest.Pytester) -> None:
    """The limits are so wide that no machine is too slow for them, or no machine quick enough."""
    wide = ", ".join(f"{word} = '900 %'" for word in ("ttft", "token", "load", "first", "memory"))
    table = (
        f"[tool.modelperf]\nmax_seconds = 1\n{TABLE}tolerance = {{{wide}}}\n"
        "budget = {ttft_ms = 1e6, token_ms = 1e6, tokens_per_second = 1e-6}\n"
    )
    write_table(decoder, table)
    decoder.runpytest_inprocess("--modelperf", UPDATE).assert_outcomes(passed=2)
    stored = read_json(decoder.path / "baselines/decoder/model.json")["cases"]
    assert all(case["fidelity"]["has_same_plan"] for case in stored.values())
    # Another file with the same graph runs in turn with the twin.
    model = make_decoder()
    model.producer_name = "exported again"
    (decoder.path / "decoder.onnx").write_bytes(model.SerializeToString())
    write_table(decoder, table.replace("ttft_ms = 1e6", "ttft_ms = 1e-6"))
    # The rounds that an answer takes, however few of them fit into a second.
    enough = "--modelperf-max-seconds=60"
    result = decoder.runpytest_inprocess("--modelperf", "--modelperf-json=run.json", enough)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["over budget: first token *", "generation", "case *prompt16*"])
    prefill, step = read_json(decoder.path / "run.json")["cases"]
    assert (prefill["verdict"], step["verdict"]) == ("over budget", "passed")
    for case, phase in ((prefill, "ttft"), (step, "token")):
        judged = {each["name"]: each for each in case["metrics"]}
        assert judged["latency_p50"]["allowed"] == 9.0
        assert f"{phase}_ms" in judged
    assert prefill["generation"]["token_ms"] is None
    assert prefill["generation"]["ttft_ms"] > 0
    assert step["generation"]["token_ms"]["p50"] > 0
    assert step["generation"]["cache_bytes_per_token"] == 256
    assert step["generation"]["macs"]["first"] < step["generation"]["macs"]["last"]


@pytest.mark.slow
def test_the_fixture_has_the_figures_of_a_phase(decoder: pytest.Pytester) -> None:
    decoder.makepyfile("""
        def test_step(modelperf):
            step = modelperf("decoder.onnx", prompt=16, generate=8, phase="step", max_seconds=3)
            assert step.generation.tokens_per_second > 0
            assert step.generation.ttft is None

        def test_plain(modelperf):
            sizes = {"sequence_length": 1, "past_sequence_length": 3}
            modelperf("decoder.onnx", dims=sizes, max_seconds=0.5).generation
        """)
    result = decoder.runpytest_inprocess("--modelperf")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*b1-c1 is not a phase of a generation: give prompt, generate and*"]
    )
