"""What-ifs of models whose times are known, and the command that asks for them."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.errors import MeasureError, ModelError, UsageError
from pytest_modelperf.profiler.hookspecs import Extensions, load_extensions
from pytest_modelperf.profiler.inputs.given import GivenInputs, read_given
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.duet import judge_sequence, plan_schedule
from pytest_modelperf.whatif import variants as core
from pytest_modelperf.whatif.records import Variant, VariantKind, WhatIf
from pytest_modelperf.whatif.report import WHATIF_COLUMNS
from pytest_modelperf.whatif.request import WhatIfRequest
from tests.support.checkout import ROOT
from tests.support.command import Result, run
from tests.support.graph_models import save_model
from tests.support.known import known
from tests.support.small_models import parse
from tests.support.whatifs import make_case, make_whatif

DOCS = ROOT / "docs"
MODEL = "g (float[N,16] x, float[N,seq] z) => (float[N,8] y) { [product] y = MatMul(x, w) }"
GENERATED = """
    g (float[N,16] x, float[N,seq] z) => (float[N,8] y)
    <int64[2] shape = {16, 8}> { w = ConstantOfShape(shape) [product] y = MatMul(x, w) }
"""
POLICY = SamplingPolicy(max_seconds=30.0)
LIMIT_S = 120.0
HALF, MOST = Variant(VariantKind.PRUNED, 0.5), Variant(VariantKind.PRUNED, 0.9)
NARROW = Variant(VariantKind.NARROWED, 0.5)
DYNAMIC, STATIC = (Variant(VariantKind.QUANTIZED, form=form) for form in ("dynamic", "static"))
BF16 = Variant(VariantKind.PRECISION, form="bf16")


@pytest.fixture(scope="module")
def extensions() -> Extensions:
    return load_extensions(["tests.support.faulty_plugin"])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which variants are written; it must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.glob("modelperf-whatif-*"))


@dataclass
class FakeQuantizer:
    """Writes the unchanged model, under the name of its target, and keeps what it was given."""

    feeds: Sequence[Mapping[str, Feed]] = ()
    error: Exception | None = None
    notes: tuple[str, ...] = ()

    def __call__(
        self,
        source: Path,
        target: Path,
        form: str,
        feeds: Iterable[Mapping[str, Feed]],
        limit_s: float,
    ) -> tuple[str, ...]:
        assert form in {"dynamic", "static"}
        assert limit_s == LIMIT_S
        if self.error is not None:
            raise self.error
        self.feeds = list(feeds)
        target.write_bytes(source.read_bytes())
        return self.notes


@pytest.fixture
def quantizer() -> FakeQuantizer:
    return FakeQuantizer()


def taking(times_us: Mapping[Variant, int]) -> dict[str, str]:
    """The option by which the engine of the tests takes so long for each variant."""
    return {"times": " ".join(f"{variant.id}={us}" for variant, us in times_us.items())}


@pytest.fixture
def model(tmp_path: Path) -> str:
    weights = {"w": np.linspace(1, 2, 128, dtype=np.float32).reshape(16, 8)}
    return str(save_model(tmp_path, parse(MODEL, weights=weights), "model_400us.onnx"))


@pytest.fixture
def ask(
    model: str, extensions: Extensions, temporary: Path, quantizer: FakeQuantizer
) -> Callable[..., WhatIf]:
    def ask_it(  # noqa: PLR0913  # what is asked of what
        *variants: Variant,
        estimates: Sequence[float] = (),
        engine: str = "timed",
        source: str = model,
        cores: tuple[int, ...] = (1,),
        dims: Mapping[str, tuple[int, ...]] | None = None,
        watch: Watch = lambda _: None,
        options: Mapping[str, str] | None = None,
        given: GivenInputs | None = None,
    ) -> WhatIf:
        setup = Setup(
            engine=extensions.engines.find(engine),
            policy=POLICY,
            options=options or {},
            limit_s=LIMIT_S,
        )
        request = ProfileRequest(cores=cores, dims=dims or {"seq": (4,)}, given=given)
        asked = WhatIfRequest(ModelRun(source, setup), request, variants, tuple(estimates))
        return asked.run(extensions, watch, quantizer)

    assert temporary.is_dir()
    return ask_it


# -- what is found


def test_levels_are_on_the_scale_of_the_unchanged_model(ask: Callable[..., WhatIf]) -> None:
    options = taking({HALF: 200, MOST: 100, DYNAMIC: 1200})
    found = ask(HALF, MOST, DYNAMIC, estimates=(0.7,), options=options)
    (case,) = found.cases
    first, half, estimate, most, dynamic = case.levels
    assert [level.title for level in case.levels] == [
        "Baseline", "Pruned 0.5", "Pruned 0.7 (estimate)", "Pruned 0.9", "INT8 dynamic"
    ]  # fmt: skip
    assert first.ms is not None
    assert first.ms == pytest.approx(0.4, rel=0.01)
    assert most.speedup is not None
    assert known(half.speedup).value == pytest.approx(400 / 200, rel=0.01)
    assert most.speedup.value == pytest.approx(400 / 100, rel=0.01)
    assert known(dynamic.speedup).value == pytest.approx(400 / 1200, rel=0.01)
    assert most.ms == pytest.approx(first.ms / most.speedup.value)
    assert estimate.ms == pytest.approx(((half.ms or 0) + (most.ms or 0)) / 2)
    assert most.rounds
    assert most.zeros == pytest.approx(0.9, abs=0.01)
    assert first.zeros == 0.0
    assert first.macs == most.macs == 16 * 8
    assert first.size_bytes == Path(found.model.path or "").stat().st_size
    assert known(found.engine).name == "timed"
    assert found.machine is not None
    # All three variants share 1 % at either side of an interval, and so do the answers of each.
    assert found.confidence == pytest.approx(1 - 0.01 / 3)


@pytest.mark.parametrize("spread", [0.005, 0.02])
def test_a_variant_like_the_model_is_seldom_called_faster(spread: float) -> None:
    """Even if its duet ends without a difference: that interval is shown as well."""
    rule = core.variants_gate(3, max_seconds=10.0).rule(50.0)
    assert rule.level + rule.pass_level <= 0.01 / 3
    duets = np.random.RandomState(1).normal(0.0, spread, (5_000, rule.looks[-1]))
    ended = judge_sequence(duets, plan_schedule(rule), rule.margin)
    assert np.mean(ended.bounds.high < 0.0) <= 0.01 / 3
    assert np.mean(ended.answer != 0) > 0.99


def test_a_note_says_that_zeros_gained_nothing(ask: Callable[..., WhatIf]) -> None:
    (case,) = ask(MOST, options=taking({MOST: 400})).cases
    (note,) = case.notes
    assert "timed 1" in note
    assert "no gain" in note


def test_every_combination_is_a_case_and_is_seen(ask: Callable[..., WhatIf]) -> None:
    seen: list[Progress] = []
    options = taking({MOST: 200})
    found = ask(MOST, dims={"seq": (4, 8)}, watch=seen.append, options=options)
    assert [case.id for case in found.cases] == ["b1-c1-seq4", "b1-c1-seq8"]
    assert all(len(case.levels) == 2 and not case.has_failed for case in found.cases)
    assert {progress.cases for progress in seen} == {2}
    assert [*dict.fromkeys(progress.case_number for progress in seen)] == [1, 2]
    assert {progress.case_id for progress in seen} == {
        name for case in found.cases for name in
        (case.id, f"Pruned 0.9, {case.id}")
    }  # fmt: skip
    assert {"storing its weights", "making it", "load"} <= {progress.step for progress in seen}


def test_weights_that_nodes_make_are_stored_on_both_sides(
    ask: Callable[..., WhatIf], tmp_path: Path
) -> None:
    source = save_model(tmp_path, parse(GENERATED), "made.onnx")
    (case,) = ask(MOST, DYNAMIC, source=str(source)).cases
    assert case.notes[0].startswith("1 weight is made by a node: random numbers are stored")
    first, most, dynamic = case.levels
    assert [layer.op_type for layer in case.baseline.static.layers] == ["MatMul"]
    assert first.zeros == 0.0
    assert most.zeros == pytest.approx(0.9, abs=0.01)
    assert dynamic.failure is None
    assert known(first.size_bytes) > source.stat().st_size


def test_a_quantizer_is_calibrated_with_several_inputs(
    ask: Callable[..., WhatIf], quantizer: FakeQuantizer
) -> None:
    quantizer.notes = ("a MatMul stays in floats",)
    (case,) = ask(STATIC).cases
    assert case.levels[1].notes == quantizer.notes
    assert len(quantizer.feeds) > 1
    assert {name: feed.array.shape for name, feed in quantizer.feeds[0].items()} == {
        "x": (1, 16), "z": (1, 4)
    }  # fmt: skip
    assert len({feed["x"].array.tobytes() for feed in quantizer.feeds}) == len(quantizer.feeds)


def test_variants_run_on_the_inputs_of_the_user(
    ask: Callable[..., WhatIf], quantizer: FakeQuantizer
) -> None:
    x = np.full((3, 16), 0.25, np.float32)
    (case,) = ask(HALF, STATIC, given=read_given({"x": x})).cases
    assert case.id == "b3-c1"
    assert not case.has_failed
    assert all(np.array_equal(feed["x"].array, x) for feed in quantizer.feeds)


# -- what fails


@pytest.mark.parametrize(
    "error", [ModelError("it cannot"), MeasureError("it cannot"), UsageError("it cannot")]
)
def test_a_variant_that_cannot_be_made_has_a_reason(
    ask: Callable[..., WhatIf], quantizer: FakeQuantizer, error: Exception
) -> None:
    quantizer.error = error
    (case,) = ask(DYNAMIC).cases
    assert (case.levels[1].ms, case.levels[1].failure) == (None, "it cannot")
    assert case.has_failed


def test_a_full_disk_is_not_reported_as_a_crash(
    ask: Callable[..., WhatIf], quantizer: FakeQuantizer
) -> None:
    quantizer.error = OSError(28, "full")
    (case,) = ask(DYNAMIC).cases
    assert case.levels[1].failure == (
        "the disk is full or cannot be written as the variant was written: [Errno 28] full. Free "
        "some space, or set TMPDIR to another folder."
    )


def test_a_variant_that_does_not_run_has_a_reason_and_the_others_go_on(
    ask: Callable[..., WhatIf],
) -> None:
    (case,) = ask(HALF, MOST, options={"crash": HALF.id}).cases
    _, half, most = case.levels
    assert "it does not load" in known(half.failure)
    assert most.failure is None


def test_too_many_cores_fail_alone(ask: Callable[..., WhatIf]) -> None:
    good, lost = ask(HALF, cores=(1, 100_000), options=taking({HALF: 400})).cases
    assert not good.has_failed
    assert "100000 cores are wanted" in (lost.levels[1].failure or "")
    assert lost.baseline.measured is None


def test_an_engine_that_knows_no_other_precision_says_so(ask: Callable[..., WhatIf]) -> None:
    (case,) = ask(BF16).cases
    assert re.search("^timed .* --engine, such as openvino", case.levels[1].failure or "")


def test_an_interrupt_leaves_no_files(ask: Callable[..., WhatIf]) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step == "measure":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(MOST, watch=interrupt)


def test_a_contradictory_request_is_refused_before_the_model_is_opened(
    ask: Callable[..., WhatIf],
) -> None:
    with pytest.raises(UsageError, match="there is no variant to try"):
        ask(source="no_such.onnx")


# -- the command


@dataclass
class FakeAsking:
    """Measures nothing, and keeps what it was asked for."""

    result: WhatIf = field(default_factory=lambda: make_whatif(_good_case()))
    seen: list[WhatIfRequest] = field(default_factory=list)

    def __call__(self, request: WhatIfRequest, extensions: Extensions, watch: Watch) -> WhatIf:
        assert request.model.source == "model.onnx"
        assert isinstance(extensions, Extensions)
        assert callable(watch)
        self.seen.append(request)
        return self.result

    @property
    def request(self) -> WhatIfRequest:
        (request,) = self.seen
        return request

    def run(self, *arguments: str) -> Result:
        """The command, which asks this."""
        return run(*arguments, core=self)


def _good_case() -> Any:  # noqa: ANN401  # a case
    case = make_case()
    return replace(case, levels=case.levels[:-1])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeAsking:
    fake = FakeAsking()
    monkeypatch.chdir(tmp_path)
    return fake


def test_every_option_is_handed_on(asked: FakeAsking) -> None:
    done = asked.run(
        "whatif", "model.onnx", "--prune", "0.9,0.5", "--prune-channels", "0.25", "--quantize",
        "int8", "--precision", "bf16", "--estimate", "0.7", "--batch", "1,8", "--cores", "2",
        "--dim", "seq=64", "--input", "ids:i64:1x64", "--engine-option", "mode=parallel",
        "--gateway", "ssh=there", "--max-seconds", "2.5", "--timeout", "9",
    )  # fmt: skip
    assert (done.exit_code, done.err) == (0, "")
    assert [variant.id for variant in asked.request.variants] == [
        "pruned-0.5", "pruned-0.9", "channels-0.25", "int8-dynamic", "int8-static", "bf16"
    ]  # fmt: skip
    assert asked.request.estimates == (0.7,)
    cases, setup = asked.request.request, asked.request.model.setup
    assert (cases.batch_sizes, cases.cores) == ((1, 8), (2,))
    assert cases.dims == {"seq": (64,)}
    assert setup.options == {"mode": "parallel"}
    assert (setup.spec, setup.policy.max_seconds) == ("ssh=there", 2.5)


def test_without_variants_the_default_ones_are_tried_with_a_note(asked: FakeAsking) -> None:
    done = asked.run("whatif", "model.onnx")
    assert done.err == "trying --prune 0.5,0.9 --quantize int8, as no variant is named\n"
    assert asked.request.variants == (HALF, MOST, DYNAMIC, STATIC)


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("int8-static", ["static"]),
        ("INT8-dynamic", ["dynamic"]),
        ("int8-static,int8", ["static", "dynamic"]),
    ],
)
def test_forms_of_int8_can_be_chosen(asked: FakeAsking, text: str, forms: list[str]) -> None:
    assert asked.run("whatif", "model.onnx", "--quantize", text).exit_code == 0
    assert [variant.form for variant in asked.request.variants] == forms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prune", "1"), "--prune takes shares from 0 to below 1, such as 0.5,0.9; not '1'."),
        (("--prune", "0.5,"), "--prune takes shares"),
        (("--prune", "-0.5"), "--prune takes shares"),
        (("--prune", "nan"), "--prune takes shares"),
        (("--prune-channels", "50 %"), "--prune-channels takes shares"),
        (("--prune-channels", "0"), "Channels 0: a share is above 0"),
        (("--quantize", "int4"), "--quantize takes int8, int8-dynamic, int8-static; not 'int4'."),
        (("--precision", "f64"), "--precision takes bf16, f16, f32; not 'f64'."),
        (("--prune", "0.5", "--estimate", "0.7"), "measured from 0 to 0.5"),
        (("--quantize", "int8", "--estimate", "0.7"), "give some to prune"),
        (("--prune", "0.5", "--json", "-", "--csv", "-"), "only one of --json and --csv"),
        (("--prune", "0.5", "--engine", "callable"), "a what-if takes only ONNX models"),
        (("--prune", "0.5", "--json", "no/folder/f.json"), "cannot write no/folder/f.json"),
    ],
)
def test_a_contradictory_command_ends_before_anything_is_measured(
    asked: FakeAsking, arguments: tuple[str, ...], message: str
) -> None:
    done = asked.run("whatif", "model.onnx", *arguments)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.err
    assert asked.seen == []


def test_json_and_csv_go_to_files_in_addition_to_the_text(asked: FakeAsking) -> None:
    done = asked.run("whatif", "model.onnx", "--prune", "0.5", "--json", "w.json", "--csv", "w.csv")
    assert (done.exit_code, done.err) == (0, "")
    assert "Pruned 0.9" in done.out
    document = json.loads(Path("w.json").read_text(encoding="utf-8"))
    assert document["cases"][0]["levels"][0]["id"] == "baseline"
    rows = list(csv.DictReader(StringIO(Path("w.csv").read_text(encoding="utf-8"))))
    assert rows[0]["level"] == "Baseline"


def test_a_document_is_alone_on_standard_output(asked: FakeAsking) -> None:
    assert json.loads(asked.run("whatif", "model.onnx", "--json", "-").out)["schema"] == 1
    assert asked.run("whatif", "model.onnx", "--markdown", "-").out.startswith("### encoder.onnx")
    assert asked.run("whatif", "model.onnx", "--csv", "-").out.startswith("case,batch_size,")


def test_the_page_is_written_where_it_was_asked_for(asked: FakeAsking) -> None:
    assert asked.run("whatif", "model.onnx", "--html", "w.html").exit_code == 0
    text = Path("w.html").read_text(encoding="utf-8")
    assert "encoder.onnx" in text
    assert text.rstrip().endswith("</html>")


def test_the_view_and_the_number_of_layers_can_be_chosen(asked: FakeAsking) -> None:
    assert "by layer, what gains most first, in ms" in asked.run("whatif", "model.onnx").out
    options = ("--view", "percent", "--top", "1")
    text = asked.run("whatif", "model.onnx", "--prune", "0.5", *options).out
    assert "in percent" in text
    assert "--top 0" in text


def test_a_level_that_failed_is_shown_by_the_exit_code(asked: FakeAsking) -> None:
    asked.result = make_whatif()
    done = asked.run("whatif", "model.onnx", "--prune", "0.5")
    assert (done.exit_code, done.err) == (3, "")
    assert "INT8 static: INT8 static needs an operator" in done.out
    silent = asked.run("whatif", "model.onnx", "--prune", "0.5", "--json", "-")
    assert silent.exit_code == 3
    assert silent.err.startswith("b1-c1: INT8 static: INT8 static needs an operator")


def test_other_outputs_are_shown_by_the_exit_code(asked: FakeAsking) -> None:
    case = asked.result.cases[0]
    near = OutputChange(name="y", max_absolute=0.5, largest=10.0)
    levels = [replace(level, outputs=(near,)) for level in case.levels]
    asked.result = make_whatif(replace(case, levels=tuple(levels)))
    command = ("whatif", "model.onnx", "--quantize", "int8-dynamic")
    assert asked.run(*command, "--tolerance", "outputs=0.05").exit_code == 0
    done = asked.run(*command, "--tolerance", "outputs=0.04")
    assert (done.exit_code, done.err) == (1, "")
    assert "outputs differ by 5 % of their largest value, allowed 4 %" in done.out
    silent = asked.run(*command, "--tolerance", "outputs=0.04", "--json", "-")
    assert silent.exit_code == 1
    assert silent.err.startswith("b1-c1: INT8 dynamic: outputs differ by 5 %")
    # Even with a level that failed, whose exit status comes first.
    failed = make_case().levels[-1]
    asked.result = make_whatif(replace(case, levels=(*levels, failed)))
    both = asked.run(*command, "--tolerance", "outputs=0.04", "--json", "-")
    assert both.exit_code == 3
    assert "b1-c1: INT8 static: INT8 static needs an operator" in both.err
    assert "b1-c1: INT8 dynamic: outputs differ by 5 %" in both.err
    refused = asked.run("whatif", "model.onnx", "--prune", "0.5", "--tolerance", "outputs=0.04")
    assert refused.exit_code == 2
    assert "--tolerance has no effect" in refused.err


# -- the page


def page() -> str:
    return " ".join((DOCS / "whatif.md").read_text(encoding="utf-8").split())


def test_the_page_has_the_figures_titles_and_columns_of_the_code(asked: FakeAsking) -> None:
    assert f"within {100 * core._NO_DIFFERENCE:g} %, or for `--max-seconds` (10)" in page()
    asked.run("whatif", "model.onnx")
    assert asked.request.model.setup.policy.max_seconds == 10
    assert "Without these, `--prune 0.5,0.9 --quantize int8` is tried" in page()
    titles = (variant.title for variant in (MOST, NARROW, DYNAMIC, STATIC, BF16))
    assert [name for name in (*WHATIF_COLUMNS, *titles) if f"`{name}`" not in page()] == []
