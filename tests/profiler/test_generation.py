"""Phases of a generation as cases: which there are, what they count, and how they are shown."""

# what a wide terminal shows is wider than code

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from examples.generating.make_decoder import DecoderShape, make_decoder
from pytest_modelperf.errors import BindingError, UsageError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import Generation, GenerationPhase, Phase
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.records import PROFILE, CaseProfile, Profile
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    batch_sizes_of,
    phases_of,
    profile_both,
    profile_model,
)
from pytest_modelperf.profiler.shown.document import dump_profile, read_profile
from pytest_modelperf.profiler.shown.tables.cases import generation_table
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.tables import transpose_table
from tests.support.known import known
from tests.support.profiles import make_measurement, make_round, measured_classifier
from tests.support.small_models import parse

# Takes 4 frames at a time.
STREAMING = """
    g (float[1,4,8] x, float[1,8] state) => (float[1,4,8] y, float[1,8] new_state) {
        y = Add(x, state)
        new_state = ReduceMean<keepdims = 0>(y, axes)
    }
"""


def streaming() -> onnx.ModelProto:
    return parse(STREAMING, weights={"axes": np.array([1], np.int64)})


def generation(
    prompt: int = 8,
    generate: int = 4,
    **more: Any,  # noqa: ANN401  # fields of a request
) -> ProfileRequest:
    return ProfileRequest(generations=(Generation(prompt, generate),), **more)


def ids(profile: Profile) -> list[str]:
    return [case.case.id for case in profile.cases]


def test_each_phase_is_a_case_of_every_other_size() -> None:
    request = generation(batch_sizes=(1, 2), cores=(1, 2))
    assert ids(profile_model(make_decoder(), request)) == [
        f"b{batch}-c{cores}-{phase}"
        for batch in (1, 2)
        for phase in ("prompt8-prefill", "prompt8-generate4-step")
        for cores in (1, 2)
    ]


def test_a_prompt_has_one_prefill_however_many_generations_follow_it() -> None:
    generations = tuple(Generation(prompt, count) for prompt in (4, 8) for count in (2, 3))
    assert ids(profile_model(make_decoder(), ProfileRequest(generations=generations))) == [
        "b1-c1-prompt4-generate2-step", "b1-c1-prompt4-prefill", "b1-c1-prompt4-generate3-step",
        "b1-c1-prompt8-generate2-step", "b1-c1-prompt8-prefill", "b1-c1-prompt8-generate3-step",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "generate", "phases"),
    [(8, 0, ["prompt8-prefill"]), (0, 4, ["prompt0-generate4-step"])],
)
def test_no_prompt_has_no_prefill_and_nothing_generated_no_steps(
    prompt: int, generate: int, phases: list[str]
) -> None:
    profile = profile_model(make_decoder(), generation(prompt, generate))
    assert ids(profile) == [f"b1-c1-{phase}" for phase in phases]


def test_macs_of_steps_grow_linearly_from_the_first_to_the_last() -> None:
    shape = DecoderShape(layers=3)
    request = generation(10, 9, batch_sizes=(2,))
    prefill, step = profile_model(make_decoder(shape), request).cases
    counts = known(step.static.generation)
    assert counts.first_macs is not None
    assert counts.last_macs is not None
    # The middle one of 9 steps.
    assert 2 * step.static.macs == counts.first_macs + counts.last_macs
    # Each token more is one key and one value more for every head, in every layer and item.
    grown = 2 * 3 * shape.heads * shape.head_size * 2
    assert counts.last_macs - counts.first_macs == 8 * grown
    assert prefill.static.macs > step.static.macs


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_cache_of_a_token_is_counted_for_one_item_of_the_batch(batch_size: int) -> None:
    request = generation(batch_sizes=(batch_size,))
    shape = DecoderShape(layers=3)
    for case in profile_model(make_decoder(shape), request).cases:
        # Keys and values of every layer, in float32.
        wanted = 2 * 3 * shape.kv_heads * shape.head_size * 4
        assert known(case.static.generation).cache_bytes == wanted


def test_a_cache_of_a_fixed_size_does_not_grow() -> None:
    profile = profile_model(make_decoder(DecoderShape(capacity=12)), generation(8, 4))
    for case in profile.cases:
        assert known(case.static.generation).cache_bytes == 0


def test_a_model_without_a_prefill_has_steps_alone_and_says_so() -> None:
    (case,) = profile_model(streaming(), generation(8, 4)).cases
    assert case.case.phase == GenerationPhase(Phase.STEP, 8, 4)
    assert any("takes 4 new tokens at a time, so it has no prefill" in n for n in case.static.notes)


def test_a_given_size_of_the_tokens_is_the_window_of_each_step() -> None:
    def macs_of_steps(dims: dict[str, tuple[int, ...]]) -> tuple[int, int]:
        request = generation(8, 3, dims=dims, phases=(Phase.STEP,))
        (case,) = profile_model(make_decoder(), request).cases
        counts = case.static.generation
        assert case.case.phase == GenerationPhase(Phase.STEP, 8, 3)
        assert counts is not None
        return known(counts.first_macs), known(counts.last_macs)

    window, token = macs_of_steps({"sequence_length": (4,)}), macs_of_steps({})
    assert window[0] > 4 * token[0]
    # Each of 4 tokens sees the tokens of the windows before, which are 4 times their number.
    assert window[1] - window[0] == 4 * 4 * (token[1] - token[0])


def test_a_window_has_no_prefill() -> None:
    (case,) = profile_model(make_decoder(), generation(8, 3, dims={"sequence_length": (4,)})).cases
    assert any("takes a window of 4, so it has no prefill" in n for n in case.static.notes)


def test_the_size_of_a_prompt_alone_may_be_given_too() -> None:
    (case,) = profile_model(make_decoder(), generation(8, 0, dims={"sequence_length": (8,)})).cases
    assert case.case.phase == GenerationPhase(Phase.PREFILL, 8, 0)
    with pytest.raises(BindingError, match=r"has to be 8 .* Leave its size out"):
        profile_model(make_decoder(), generation(8, 0, dims={"sequence_length": (4,)}))


def test_the_phases_of_a_model_follow_from_its_inputs(tmp_path: Path) -> None:
    onnx.save(streaming(), tmp_path / "streaming.onnx")
    file = open_model(tmp_path / "streaming.onnx")
    assert phases_of(file, Generation(8, 4)) == (GenerationPhase(Phase.STEP, 8, 4),)
    with pytest.raises(UsageError, match="takes 4 new tokens at a time, so it has no prefill"):
        phases_of(file, Generation(8, 0))


def test_a_phase_that_a_model_lacks_is_an_error_if_it_is_the_only_one_wanted() -> None:
    with pytest.raises(UsageError, match="has no prefill"):
        profile_model(streaming(), generation(phases=(Phase.PREFILL,)))


def test_models_with_different_phases_are_not_compared() -> None:
    with pytest.raises(UsageError, match=r"has the phase prefill and step.* has the phase step"):
        profile_both(make_decoder(), streaming(), generation(), Operators())


def test_a_state_that_only_one_of_two_models_has_is_named_for_that_one() -> None:
    request = ProfileRequest(generations=(Generation(8, 4, {"state": "new_state"}),))
    request = replace(request, phases=(Phase.STEP,))
    old, new = profile_both(streaming(), make_decoder(), request, Operators())
    assert ids(old) == ids(new) == ["b1-c1-prompt8-generate4-step"]


def test_an_input_that_follows_from_the_lengths_is_not_given() -> None:
    request = generation(inputs=(InputSpec("input_ids", "int64", (1, 8)),))
    with pytest.raises(BindingError, match=r"'input_ids' .*lengths"):
        profile_model(make_decoder(), request)


def test_the_batch_of_each_phase_is_known_from_the_inputs() -> None:
    assert batch_sizes_of(make_decoder(), generation(batch_sizes=(3,))) == (3, 3)
    assert batch_sizes_of(make_decoder(), generation(dims={"batch_size": (2,)})) == (2, 2)


# -- what is shown


def measured(prompt: int = 8, generate: int = 4) -> Profile:
    """A generation whose steps take 2 ms, and 10 µs more with each, as if it had run."""
    profile = profile_model(make_decoder(), generation(prompt, generate))
    return replace(profile, cases=tuple(map(with_measurement, profile.cases)))


def with_measurement(case: CaseProfile) -> CaseProfile:
    phase = known(case.case.phase)
    if phase.phase is Phase.PREFILL:
        return replace(case, measured=make_measurement(9.0))
    rounds = []
    for first in (0, 2, 1, 3):
        steps = [(first + at) % phase.steps for at in range(40)]
        made = make_round([2_000_000 + 10_000 * step for step in steps])
        rounds.append(replace(made, block=replace(made.block, first_step=first)))
    return replace(case, measured=make_measurement(rounds=rounds))


def shown(profile: Profile, width: int = 160) -> str:
    page = TextStyle(width=width).page()
    table = known(generation_table(profile.cases))
    page.table(table, transpose_table(table), table)
    return page.text()


def test_a_generation_is_a_row_with_both_of_its_phases() -> None:
    assert shown(measured()) == snapshot("""\

generation
case                     first token ms  token ms    p95    growth ns  tokens/s  cache/token
────────────────────────────────────────────────────────────────────────────────────────────
b1-c1-prompt8-generate4           9.000     2.015  2.030  +10,000 ± 0     496.3        256 B
first token: the median of the prefill; token: the median of the steps
growth: how much longer each step takes than the one before it, ± its 99 % interval
""")


def test_a_row_that_is_too_wide_becomes_a_column() -> None:
    assert shown(measured(), width=60) == snapshot("""\

generation
case            b1-c1-prompt8-generate4
───────────────────────────────────────
first token ms                    9.000
token ms                          2.015
p95                               2.030
growth ns                   +10,000 ± 0
tokens/s                          496.3
cache/token                       256 B
first token: the median of the prefill; token: the median of
the steps
growth: how much longer each step takes than the one before
it, ± its 99 % interval
""")


def test_a_percentile_with_too_few_samples_is_explained_below_the_table() -> None:
    prefill, step = measured().cases
    rounds = [make_round([2_000_000] * 20)] * 4
    short = replace(step, measured=make_measurement(rounds=rounds))
    assert "(n): it takes n samples" not in shown(Profile(measured().model, (prefill, step)))
    text = shown(Profile(measured().model, (prefill, short)))
    assert "(130)" in text
    assert "(n): it takes n samples" in text


def test_without_a_run_a_generation_shows_what_it_counts() -> None:
    assert shown(profile_model(make_decoder(), generation())) == snapshot("""\

generation
case                     MACs of the first step  of the last step  cache/token
──────────────────────────────────────────────────────────────────────────────
b1-c1-prompt8-generate4                 27.78 k           28.16 k        256 B
""")


def test_a_phase_that_is_not_there_has_no_figures() -> None:
    prefill, step = measured().cases
    for case in (prefill, step):
        assert " - " in shown(Profile(measured().model, (case,)))


def test_models_without_state_have_no_such_table() -> None:
    assert generation_table(measured_classifier().cases) is None


def test_the_growth_is_that_of_the_steps_that_were_timed() -> None:
    _, step = measured().cases
    figures = known(step.generation)
    assert known(figures.growth).ns_per_step == pytest.approx(10_000.0)
    # Without the step at which a block began, no time belongs to a length.
    assert step.measured is not None
    rounds = tuple(
        replace(r, block=replace(r.block, first_step=None)) for r in step.measured.rounds
    )
    unknown = known(replace(step, measured=replace(step.measured, rounds=rounds)).generation)
    assert unknown.growth is None


def test_a_document_has_the_figures_of_each_phase() -> None:
    document = msgspec.json.decode(dump_profile(measured()), type=PROFILE.json_type)
    prefill, step = document.cases
    assert (prefill.phase, prefill.prompt, prefill.generate) == (Phase.PREFILL, 8, 4)
    assert prefill.generation is not None
    assert prefill.generation.ttft_ms == prefill.latency.p50_ms
    assert prefill.generation.token_ms is None
    assert step.generation is not None
    assert known(step.generation.token_ms).p50 == step.latency.p50_ms
    assert step.generation.tokens_per_second == step.latency.items_per_second
    assert step.generation.growth_ns_per_token is not None
    assert step.raw is not None
    assert [each.first_step for each in step.raw] == [0, 2, 1, 3]


def test_a_document_is_read_back_with_its_phases() -> None:
    profile = measured()
    document = msgspec.json.decode(dump_profile(profile), type=PROFILE.json_type)
    back = read_profile(document)
    assert ids(back) == ids(profile)
    assert [case.case.phase for case in back.cases] == [case.case.phase for case in profile.cases]
    assert shown(back) == shown(profile)
