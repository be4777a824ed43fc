"""The Python interface returns records, which a notebook shows as reports."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from examples.generating.make_decoder import make_decoder
from pytest_modelperf import api
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import (
    BindingError,
    MeasureError,
    MisfitError,
    ModelError,
    Remedy,
    UsageError,
)
from pytest_modelperf.report.notebook import Shown, views_of
from pytest_modelperf.spec.case_words import CaseWords
from tests.support.small_models import ones, parse

TEXT = "g (float[n,8] x) => (float[n,8] y) { [dense] h = MatMul(x, w) [act] y = Relu(h) }"
WEIGHTS = {"w": ones(8, 8)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    path.write_bytes(parse(TEXT, weights=WEIGHTS).SerializeToString())
    return path


def test_a_profile_has_a_case_for_each_combination_of_values(model: Path) -> None:
    found = api.profile(model, static=True, dims={"n": [1, 4]}, cores=[1, 2])
    assert [case.case.id for case in found.cases] == [
        "b1-c1-n1",
        "b1-c2-n1",
        "b4-c1-n4",
        "b4-c2-n4",
    ]
    assert found.cases[2].static.macs == 4 * 64


def test_a_model_is_measured_with_the_words_of_a_test(model: Path) -> None:
    seen: list[str] = []
    found = api.profile(
        str(model), batch_size=2, max_seconds=0.2, watch=lambda progress: seen.append(progress.step)
    )
    (case,) = found.cases
    assert case.case.batch_size == 2
    assert case.latency.p50_ms is not None
    assert {row.static.name for row in case.layers if row.static} == {"dense", "act"}
    assert seen


def test_a_profile_has_the_figures_of_each_phase_of_a_generation(model: Path) -> None:
    found = api.profile(make_decoder(), static=True, prompt=8, generate=4)
    prefill, step = (case.generation for case in found.cases)
    assert prefill is not None
    assert step is not None
    assert prefill.cache_bytes == step.cache_bytes == 256
    assert (step.first_macs, step.last_macs) == (27_776, 28_160)
    assert api.profile(model, static=True, batch_size=1).cases[0].generation is None


def test_two_models_are_compared_by_their_counts_or_in_turn(model: Path) -> None:
    wider = parse(
        "g (float[n,8] x) => (float[n,16] y) { [dense] h = MatMul(x, w) [act] y = Relu(h) }",
        weights={"w": ones(8, 16)},
    )
    counted = api.compare(model, wider, static=True, batch_size=1)
    assert counted.verdict is Verdict.REGRESSED
    assert {m.name for m in counted.cases[0].metrics if m.verdict is Verdict.REGRESSED} >= {"macs"}
    same = api.compare(model, model, batch_size=1, max_seconds=0.2, tolerance={"p50": 0.05})
    assert same.verdict is Verdict.UNCHANGED


def test_a_tuning_tries_the_values_that_were_named(model: Path) -> None:
    found = api.tune(model, values={"enable_mem_pattern": ["0"]}, memory_mb=1.5, max_seconds=0.2)
    (case,) = found.cases
    assert [each.name for each in case.tried] == ["enable_mem_pattern=0"]
    assert case.tried[0].rounds >= 1
    assert found.limits.memory_bytes == 1_500_000
    assert "enable_mem_pattern=0" in (found._repr_html_() or "")


@pytest.mark.slow
def test_a_sweep_and_a_what_if_have_what_was_asked_for(model: Path) -> None:
    swept = api.sweep(model, batch_size=[1, 2], streams=[1], max_seconds=0.2)
    assert [point.configuration.case.batch_size for point in swept.sides[0].points] == [1, 2]
    asked = api.whatif(model, prune=0.5, batch_size=1, max_seconds=0.2)
    assert len(asked.cases[0].levels) == 2
    for shown in (swept, asked):
        assert "<svg" in (shown._repr_html_() or "")
        assert len(shown.frame("layers"))
        assert shown.figure() is not None


def test_a_python_function_is_profiled_and_nothing_else() -> None:
    found = api.profile(lambda x: x, inputs="x:f32:4", max_seconds=0.2)
    assert found.cases[0].latency.samples > 0
    with pytest.raises(UsageError, match="sweep takes only ONNX models"):
        api.sweep(lambda x: x)  # type: ignore[arg-type]  # that is what is tested


def test_only_a_test_takes_a_model_by_its_address_or_of_the_runtime(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"an address is for tests\. Download the model"):
        api.profile("https://host/model.onnx", static=True)
    (tmp_path / "model.ort").write_bytes(b"\x00\x00\x00\x00ORTM")
    with pytest.raises(ModelError, match="ONNX Runtime's own format"):
        api.profile(tmp_path / "model.ort", static=True)


def test_errors_name_the_words_of_the_call(model: Path) -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'batch_size'\?"):
        api.profile(model, batchsize=1)  # type: ignore[call-arg]  # that is what is tested
    with pytest.raises(UsageError, match=r"Did you mean 'static'\?") as raised:
        api.profile(model, statik=True)  # type: ignore[call-arg]  # that is what is tested
    assert "There are: model, static, sparsity, extensions, watch, batch_size," in str(raised.value)
    assert not {"baseline", "tolerance"} & set(re.findall(r"\w+", str(raised.value)))
    with pytest.raises(UsageError, match=r"profile\(\): baseline has no effect here"):
        api.profile(model, baseline="other.onnx")
    with pytest.raises(ModelError, match=r"there is no file"):
        api.profile("missing.onnx")
    unbound = parse("g (float[n,m] x) => (float[n,m] y) { y = Relu(x) }")
    with pytest.raises(Exception, match=r"dims=\{'m': SIZE\}"):
        api.profile(unbound, static=True)


def test_values_in_errors_are_written_as_arguments() -> None:
    scalar = parse("g (float x) => (float y) { y = Relu(x) }")
    with pytest.raises(BindingError, match=r"Leave batch_size out, or give inputs='name:dtype:sh"):
        api.profile(scalar, static=True, batch_size=2)
    private = parse("g (float[2] x) => (float[2] y) { y = com.acme.Own(x) }")
    private.opset_import.add(domain="com.acme", version=1)
    (case,) = api.profile(private, max_seconds=0.2).cases
    assert "with engine_options={'custom_ops': 'PATH'}" in case.reason


def test_arguments_without_effect_are_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="engine_before has no effect with static=True"):
        api.compare(model, model, static=True, engine_before="openvino")
    with pytest.raises(UsageError, match="gateway_before has no effect with static=True"):
        api.compare(model, model, static=True, gateway_before="popen//python=python3")
    with pytest.raises(UsageError, match=r"profile\(\): a function has no weights"):
        api.profile(lambda x: x, inputs="x:f32:4", sparsity=True)
    with pytest.raises(UsageError, match=r"whatif\(\): state has no effect here"):
        api.whatif(model, state={"x": "y"}, prune=0.5)


def test_a_worker_that_falls_silent_is_given_more_time_by_the_command_alone(model: Path) -> None:
    class Silent:
        def __fspath__(self) -> str:
            raise MeasureError("no answer.", Remedy("Allow more with {timeout}."))

    with pytest.raises(MeasureError, match=r"Allow more with modelperf profile --timeout\."):
        api.profile(Silent())
    with pytest.raises(UsageError, match="no argument 'timeout'"):
        api.profile(model, timeout=600)  # type: ignore[call-arg]  # there is none


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"min_seconds": 5, "max_seconds": 1}, "min_seconds is 5, which is longer than max_sec"),
        ({"gateway": "board"}, "gateway takes a gateway, .* not 'board'"),
        ({"engine": "tensorflow"}, "no engine 'tensorflow'"),
    ],
)
def test_the_arguments_of_a_measurement_are_checked(
    model: Path, words: CaseWords, message: str
) -> None:
    for call in (api.profile, api.sweep):
        with pytest.raises(UsageError, match=message):
            call(model, **words)
    with pytest.raises(UsageError, match=message):
        api.compare(model, model, **words)


def test_a_sweep_has_the_time_of_the_command_unless_the_call_says(model: Path) -> None:
    with pytest.raises(UsageError, match="longer than max_seconds, 5: make"):
        api.sweep(model, min_seconds=7)
    with pytest.raises(UsageError, match="longer than max_seconds, 6: make"):
        api.sweep(model, min_seconds=7, max_seconds=6)


def test_an_input_file_may_be_a_path(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, x=np.ones((3, 8), np.float32))
    found = api.profile(model, static=True, input_file=file)
    assert found.cases[0].case.batch_size == 3


def test_lengths_of_0_leave_the_other_phases() -> None:
    def ids(**lengths: Any) -> list[str]:  # noqa: ANN401  # the words of a call
        return [case.case.id for case in api.profile(make_decoder(), static=True, **lengths).cases]

    assert ids(prompt=[0, 4]) == ["b1-c1-prompt4-prefill"]
    assert ids(prompt=[0, 4], generate=[0, 3]) == [
        "b1-c1-prompt0-generate3-step", "b1-c1-prompt4-prefill", "b1-c1-prompt4-generate3-step"
    ]  # fmt: skip
    for nothing in ({"prompt": 0}, {"generate": 0}, {"prompt": 0, "generate": 0}):
        with pytest.raises(UsageError, match="has nothing to run: prompt or generate takes 1 or"):
            ids(**nothing)


@pytest.mark.parametrize("words", [{"phase": "step"}, {"state": {"a": "b"}}])
def test_words_about_a_generation_need_its_lengths(words: CaseWords) -> None:
    for call in (api.profile, api.sweep, api.tune):
        with pytest.raises(UsageError, match="is about a generation: give prompt and generate too"):
            call(make_decoder(), **words)


def test_a_phase_that_the_lengths_do_not_have_is_named() -> None:
    message = "phase chooses prefill, and the given model has step alone with these lengths"
    for call in (api.profile, api.sweep, api.tune):
        with pytest.raises(UsageError, match=message):
            call(make_decoder(), generate=4, phase="prefill")


@pytest.mark.parametrize("word", ["prompt", "generate", "phase", "state", "tolerance"])
def test_a_what_if_refuses_words_that_its_command_does_not_take(word: str) -> None:
    words: Any = {word: 4}
    with pytest.raises(UsageError, match=rf"whatif\(\): {word} has no effect here: leave it out"):
        api.whatif(make_decoder(), prune=0.5, **words)


def test_a_wrong_model_is_named_by_its_argument(model: Path) -> None:
    wrong: Any
    for wrong, message in (
        (3, "takes a path, .* not int"),
        (None, "takes"),
        ("", "is an empty text"),
    ):
        with pytest.raises(UsageError, match=rf"^compare\(\): before {message}"):
            api.compare(wrong, model, static=True)
        with pytest.raises(UsageError, match=rf"^compare\(\): after {message}"):
            api.compare(model, wrong, static=True)
    with pytest.raises(UsageError, match=r"^sweep\(\): against is an empty text"):
        api.sweep(model, against="")


def test_an_error_of_shapes_comes_back_from_another_process() -> None:
    """An error that cannot be unpickled breaks a pool of processes."""
    text = "g (float[2,3] x, float[4,5] z) => (float[n,m] y) { y = MatMul(x, z) }"
    with pytest.raises(MisfitError, match=r"do not fit together in MatMul") as caught:
        api.profile(parse(text), static=True)
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # the bytes are our own
    assert (type(copied), str(copied)) == (MisfitError, str(caught.value))
    assert copied.where == caught.value.where


def test_a_model_without_content_is_not_text() -> None:
    for empty in (b"", onnx.ModelProto()):
        with pytest.raises(ModelError, match="the given model is empty"):
            api.profile(empty, static=True)


def test_an_argument_that_is_not_a_model_is_not_printed_whole(model: Path) -> None:
    wrong: Any = bytearray(model.read_bytes())
    with pytest.raises(UsageError, match=r"not bytearray\.$"):
        api.profile(wrong, static=True)


@pytest.mark.parametrize("call", [api.profile, api.sweep, api.tune, api.whatif])
def test_a_watch_that_cannot_be_called_is_refused(call: Callable[..., object], model: Path) -> None:
    with pytest.raises(UsageError, match=r"watch takes a function .* not NoneType"):
        call(model, watch=None, max_seconds=0.2)


def test_a_python_prompt_shows_why_a_case_failed_and_no_times_of_layers(model: Path) -> None:
    (failed,) = api.profile(lambda missing: missing, max_seconds=0.2).cases
    assert repr(failed).startswith("<profile b1-c1: failed, ")
    assert "missing" in repr(failed)
    (case,) = api.whatif(model, prune=0.5, batch_size=1, max_seconds=0.2).cases
    assert [re.sub(r"[\d.e-]+ ms", "T ms", repr(level)) for level in case.levels] == [
        "<level Baseline: T ms>",
        "<level Pruned 0.5: T ms>",
    ]


@pytest.mark.parametrize("streams", [0, [], [1, 1]])
def test_streams_are_numbers_as_on_the_command_line(model: Path, streams: int | list[int]) -> None:
    with pytest.raises(UsageError, match=r"sweep\(\): streams "):
        api.sweep(model, streams=streams)


def test_a_quantization_that_is_none_is_not_taken_for_another(model: Path) -> None:
    takes = "quantize takes int8 or int8-dynamic or int8-static"
    for given in ("int4", ["int8-static", "int4"]):
        with pytest.raises(UsageError, match=f"{takes}, not 'int4'"):
            api.whatif(model, quantize=given)


def test_a_what_if_takes_the_names_of_quantizations_that_its_command_takes(model: Path) -> None:
    asked = api.whatif(model, quantize=["int8", "int8-static"], batch_size=1, max_seconds=0.2)
    titles = [level.title for level in asked.cases[0].levels]
    assert titles == ["Baseline", "INT8 dynamic", "INT8 static"]


def test_a_variant_is_named_once_and_by_a_known_name(model: Path) -> None:
    with pytest.raises(UsageError, match="precision takes bf16 or f16 or f32, not 'f64'"):
        api.whatif(model, precision="f64")
    with pytest.raises(UsageError, match=r"prune takes shares .* not '0\.5'"):
        api.whatif(model, prune="0.5")  # type: ignore[arg-type]  # that is what is tested
    asked = api.whatif(model, prune=[0.5, 0.5], batch_size=1, max_seconds=0.2)
    assert [level.title for level in asked.cases[0].levels] == ["Baseline", "Pruned 0.5"]


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf, "20", True])
def test_a_limit_is_above_0_as_on_the_command_line(model: Path, limit: float) -> None:
    with pytest.raises(UsageError, match=r"threshold_ms takes milliseconds above 0"):
        api.sweep(model, threshold_ms=limit)
    with pytest.raises(UsageError, match=r"latency_ms takes milliseconds above 0"):
        api.tune(model, latency_ms=limit)
    with pytest.raises(UsageError, match=r"memory_mb takes megabytes above 0"):
        api.tune(model, memory_mb=limit)


@pytest.mark.parametrize("share", [-1, math.nan, math.inf, True])
def test_outputs_differ_by_a_share(model: Path, share: float) -> None:
    """No number exceeds NaN, so that every difference would be allowed."""
    with pytest.raises(UsageError, match=r"tune\(\): outputs takes a share"):
        api.tune(model, outputs=share)


def test_a_text_or_a_number_is_the_only_value_to_try(model: Path) -> None:
    for value in ("12", 12, ["12"], np.int64(12)):
        values: Any = {"session.intra_op_num_threads": value}
        with pytest.raises(UsageError, match="only what the baseline already has"):
            api.tune(model, values=values, engine_options={"session.intra_op_num_threads": "12"})
    bad: Any
    for bad in ("ab", {1: ["1"]}, {"a": None}, {"a": []}):
        with pytest.raises(UsageError, match=r"tune\(\): values"):
            api.tune(model, values=bad)


def test_numbers_of_numpy_are_taken(model: Path) -> None:
    sizes: Any = np.arange(1, 3)
    dims: Any = {"n": np.int64(3)}
    found = api.profile(model, static=True, batch_size=sizes)
    assert [case.case.id for case in found.cases] == ["b1-c1", "b2-c1"]
    assert api.profile(model, static=True, dims=dims).cases[0].case.batch_size == 3
    with pytest.raises(UsageError, match=r"batch_size takes whole numbers of 1 or more, not 1\.5"):
        api.profile(model, static=True, batch_size=np.float32(1.5))  # type: ignore[arg-type]  # that is what is tested


def test_one_extension_is_named_without_a_list(model: Path) -> None:
    with pytest.raises(UsageError, match="the plugin 'no_such_plugin' cannot be imported"):
        api.profile(model, static=True, extensions="no_such_plugin")


def test_the_side_before_may_run_elsewhere_by_no_name_of_a_machine(model: Path) -> None:
    with pytest.raises(UsageError, match="gateway_before takes a gateway"):
        api.compare(model, model, gateway_before="board")
    with pytest.raises(UsageError, match="no engine 'tensorflow'"):
        api.compare(model, model, engine_before="tensorflow", engine_options={"a": "b"})


def test_a_notebook_shows_the_report_with_names_escaped() -> None:
    evil = parse("g (float[2,8] x) => (float[2,8] y) { [evil] y = Relu(x) }")
    evil.graph.node[0].name = "<script>alert(1)</script>"
    html = api.profile(evil, static=True)._repr_html_()
    assert html is not None
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<table>") == html.count("</table>") == 3
    # The chart is first, and what a terminal shows is folded below it.
    assert html.startswith("<div><svg")
    assert html.index("</svg><details>") < html.index("<table>")


def test_a_record_is_a_frame_a_figure_and_a_page(model: Path) -> None:
    found = api.profile(model, static=True, batch_size=[1, 2])
    layers = found.frame("layers")
    assert layers["name"].tolist() == ["dense", "act"] * 2
    assert layers["macs"].tolist() == [64, 0, 128, 0]
    assert found.frame().equals(layers)
    assert found.frame("cases")["macs"].tolist() == [64, 128]
    assert list(found.figure("layers").data[0]["x"]) == [64, 0]
    assert found.html().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="Did you mean 'layers'"):
        found.frame("layer")
    with pytest.raises(UsageError, match="There are: layer types, layers, cases"):
        found.figure("metrics")


def test_a_comparison_has_its_metrics_and_both_sides_of_its_layers(model: Path) -> None:
    wider = parse(
        "g (float[n,8] x) => (float[n,16] y) { [dense] h = MatMul(x, w) [act] y = Relu(h) }",
        weights={"w": ones(8, 16)},
    )
    found = api.compare(model, wider, static=True, batch_size=1)
    metrics = found.frame().set_index("metric")
    assert metrics.loc["macs", ["before", "after", "verdict"]].tolist() == [64, 128, "regressed"]
    types = found.frame("layer types").set_index("op_type")
    assert types.loc["MatMul", ["before_macs", "now_macs"]].tolist() == [64, 128]
    assert list(found.frame("layers").columns)[:3] == ["case", "id_before", "id_now"]
    before, now = found.figure("layer types").data
    assert (before["name"], now["name"]) == ("before", "now")
    assert "macs" in (found._repr_html_() or "").lower()


def test_a_notebook_names_no_option_of_the_command() -> None:
    nodes = "".join(f"t{i + 1} = Relu(t{i}) " for i in range(25))
    long = parse(f"g (float[2,8] t0) => (float[2,8] t25) {{ {nodes} }}")
    html = api.profile(long, static=True)._repr_html_()
    assert html is not None
    assert "5 more layers: `layers` of the case has all" in html
    assert "--top" not in html


def test_other_objects_have_no_report() -> None:
    assert views_of(object()) is None
    assert Shown()._repr_html_() is None
    with pytest.raises(UsageError, match=r"import pytest_modelperf\.api first"):
        Shown().frame()
