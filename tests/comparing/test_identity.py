"""Which cases are the very same as recorded: model, inputs, engine and options."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.document import store_case
from pytest_modelperf.baselines.recording import record_counts
from pytest_modelperf.baselines.records import ModelBaseline, StoredCase
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedCase
from pytest_modelperf.comparing.limits import read_tolerances
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.comparing.settled import settle
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import BaselineError
from pytest_modelperf.graph.binding import parse_input_spec
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.facts import make_provenance
from tests.support.known import known
from tests.support.small_models import ones, parse, save_beside, zero

TOP = """g (float[1,H,W] x, int64[1] k) => (float[1,H,C] y, int64[1,H,C] i) {
    y, i = TopK(x, k)
}"""
OPTIONS = {"graph_optimization_level": "basic"}
PLACE = CasePlace(Case(1, 1), 1, 1, lambda _: None)
DAY = dt.date(2026, 1, 31)


class Way(Struct, frozen=True, kw_only=True):
    """How the model is run: what is given of its inputs, and the options of its engine."""

    inputs: tuple[str, ...] = ("x:f32:1x8x8", "k:i64:1:5")
    arrays: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def bind(self, path: Path) -> Model:
        given = read_given(self.arrays) if self.arrays else None
        specs = tuple(map(parse_input_spec, self.inputs))
        return Model.load(str(path), ProfileRequest(inputs=specs, given=given), Extensions())


def run_case(model: Model, way: Way) -> StoredCase:
    """Return the case that is stored after a run."""
    facts = model_facts(model.file, reads_all=True)
    packages = {"onnxruntime": importlib.metadata.version("onnxruntime")}
    return replace(
        store_case(
            CaseProfile(PLACE.case, model.static),
            facts,
            make_provenance(date=DAY, packages=packages),
            digest_structure(model.file),
        ),
        engine="onnxruntime",
        options=dict(way.options),
        inputs=model.given_inputs,
    )


def settled(
    stored: StoredCase, model: Model, way: Way, gate: Gate | None = None
) -> JudgedCase | None:
    setup = Setup(options=way.options)
    baseline = ModelBaseline(model=model_facts(model.file), cases=(stored,))
    return settle(Side(str(model.file.path), setup, baseline), model, setup, gate or Gate(), PLACE)


def verdict(before: Way, now: Way, path: Path, **older: Any) -> Verdict | None:  # noqa: ANN401  # any field
    """The verdict without a run; None if the twin has to be run."""
    stored = replace(run_case(before.bind(path), before), **older)
    found = settled(stored, now.bind(path), now)
    return None if found is None else found.comparison.verdict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "top.onnx"
    path.write_bytes(parse(TOP).SerializeToString())
    return path


LARGE = np.ones((1, 8, 8), np.float32)
USUAL = Way()
GIVEN = Way(inputs=("k:i64:1:5",), arrays={"x": LARGE})
WAYS: Mapping[str, tuple[Way, Way, Verdict | None]] = {
    "the same": (USUAL, Way(), Verdict.UNCHANGED),
    "the same options": (Way(options=OPTIONS), Way(options=dict(OPTIONS)), Verdict.UNCHANGED),
    "an option added": (USUAL, Way(options=OPTIONS), None),
    "an option removed": (Way(options=OPTIONS), USUAL, None),
    "another value": (Way(options=OPTIONS), Way(options=dict.fromkeys(OPTIONS, "all")), None),
    "the same arrays": (GIVEN, replace(GIVEN, arrays={"x": LARGE.copy()}), Verdict.UNCHANGED),
    "an array of other values": (GIVEN, replace(GIVEN, arrays={"x": 2 * LARGE}), None),
    "an array of another shape": (
        GIVEN,
        replace(GIVEN, arrays={"x": np.ones((1, 64, 64), np.float32)}),
        Verdict.NEW,
    ),
    "another shape": (USUAL, Way(inputs=("x:f32:1x64x64", "k:i64:1:5")), Verdict.NEW),
    "another k": (USUAL, Way(inputs=("x:f32:1x8x8", "k:i64:1:7")), Verdict.NEW),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "expected"), WAYS.values(), ids=WAYS)
def test_only_what_runs_in_every_way_as_before_is_unchanged(
    before: Way, now: Way, expected: Verdict | None, path: Path
) -> None:
    assert verdict(before, now, path) is expected


def test_a_recording_on_other_inputs_names_them(path: Path) -> None:
    now = Way(inputs=("x:f32:1x8x8", "k:i64:1:7"))
    found = known(settled(run_case(USUAL.bind(path), USUAL), now.bind(path), now))
    (reason,) = found.comparison.reasons
    assert reason == (
        "the baseline of b1-c1 was recorded on other inputs: k:int64:1:5, x:float32:1x8x8. "
        "Now: k:int64:1:7, x:float32:1x8x8. Give the same or record it again"
    )


def test_an_unchanged_case_is_allowed_what_its_tolerances_say(path: Path) -> None:
    gate = Gate(tolerances=read_tolerances("macs=0.02,params=0.05,size=0.1", "here"))
    found = known(settled(run_case(USUAL.bind(path), USUAL), USUAL.bind(path), USUAL, gate))
    assert found.comparison.verdict is Verdict.UNCHANGED
    allowed = {metric.name: metric.allowed for metric in found.comparison.metrics if metric.gated}
    assert allowed == {"macs": 0.02, "params": 0.05, "size_bytes": 0.1}


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"macs": 7}, "has 0 MACs (model.json says 7). Restore"),
        ({"params": 7}, "has 0 params (model.json says 7). Restore"),
        ({"elementwise_ops": 7}, "elementwise operations (model.json says 7). Restore"),
        ({"layer_types": {}}, "has 1 layer of TopK (model.json says 0). Restore"),
        ({"macs": 7, "params": 8}, "has 0 MACs (model.json says 7), 0 params (8). Restore"),
    ],
)
def test_the_digest_of_a_model_with_other_counts_is_a_broken_baseline(
    figures: dict[str, Any], message: str, path: Path
) -> None:
    stored = run_case(USUAL.bind(path), USUAL)
    edited = replace(stored, static=replace(known(stored.static), **figures))
    with pytest.raises(BaselineError, match=re.escape(message)) as raised:
        settled(edited, USUAL.bind(path), USUAL)
    assert str(raised.value).startswith("model.json of the baseline of top.onnx ")
    assert "--modelperf-update-baseline" in str(raised.value)


def test_all_counts_that_differ_are_listed_by_layer_type_too(path: Path) -> None:
    stored = run_case(USUAL.bind(path), USUAL)
    assert stored.static is not None
    top = stored.static.layer_types["TopK"]
    kinds = {
        **stored.static.layer_types,
        "Sin": replace(top, op_type="Sin", count=9),
        "TopK": replace(top, params=1234, macs=None),
    }
    edited = replace(stored, static=replace(stored.static, macs=7, layer_types=kinds))
    with pytest.raises(BaselineError) as raised:
        settled(edited, USUAL.bind(path), USUAL)
    assert (
        "now, which has 0 MACs (model.json says 7), 0 layers of Sin (9), "
        "0 MACs in TopK (unknown), 0 params in TopK (1,234). Restore"
    ) in str(raised.value)


def test_the_digest_of_a_model_with_another_structure_is_a_broken_baseline(path: Path) -> None:
    """The engine that recorded it does not matter."""
    stored = replace(run_case(USUAL.bind(path), USUAL), structure="0" * 32)
    for edited in (stored, replace(stored, engine="openvino")):
        with pytest.raises(BaselineError, match="than its structure says") as raised:
            settled(edited, USUAL.bind(path), USUAL)
        assert str(raised.value).startswith("model.json of the baseline of top.onnx ")
        assert "--modelperf-update-baseline" in str(raised.value)


def test_a_model_of_another_digest_may_have_another_structure(path: Path) -> None:
    assert verdict(USUAL, USUAL, path, structure="0" * 32, model_sha256="0" * 64) is None


def test_a_case_that_was_only_counted_has_to_run(path: Path) -> None:
    assert verdict(USUAL, USUAL, path, options=None) is None


def test_another_version_of_the_engine_has_to_run(path: Path) -> None:
    older = make_provenance(date=DAY, packages={"onnxruntime": "1.0.0"})
    assert verdict(USUAL, USUAL, path, provenance=older) is None


def test_another_build_of_the_recorded_version_is_the_same_engine(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two builds are installed, either of them may be the one that is imported."""
    stored = run_case(USUAL.bind(path), USUAL)
    usual = importlib.metadata.version("onnxruntime")
    builds = {"onnxruntime-gpu": usual}

    def version(name: str) -> str:
        if name not in builds:
            raise importlib.metadata.PackageNotFoundError(name)
        return builds[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert known(settled(stored, USUAL.bind(path), USUAL)).comparison.verdict is Verdict.UNCHANGED
    builds["onnxruntime-openvino"] = usual
    assert settled(stored, USUAL.bind(path), USUAL) is None


def test_a_model_with_other_external_weights_has_to_run(tmp_path: Path) -> None:
    text = "g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }"
    way, path = Way(inputs=()), tmp_path / "m.onnx"
    weights = save_beside(parse(text, weights={"w": ones(64, 64)}), path)
    graph, stored = path.read_bytes(), run_case(way.bind(path), way)
    assert known(settled(stored, way.bind(path), way)).comparison.verdict is Verdict.UNCHANGED
    zero(weights)
    assert path.read_bytes() == graph
    assert settled(stored, way.bind(path), way) is None


def counted_over(stored: StoredCase, model: Model) -> StoredCase:
    """Return the case that is stored after a run that only counts has followed a measured one."""
    counted = record_counts("top", model, DAY, PLACE)
    (now,) = counted.cases
    before = plan_update(None, replace(counted, cases=(stored,))).after
    now = replace(now, provenance=make_provenance(date=DAY, packages={"onnxruntime": "9.9.9"}))
    (found,) = known(plan_update(before, replace(counted, cases=(now,))).after).model.cases
    return found


def test_a_run_that_only_counts_does_not_make_a_new_engine_that_of_the_recording(
    path: Path,
) -> None:
    model = USUAL.bind(path)
    stored = run_case(model, USUAL)
    assert stored.static is not None
    # As if another version of ours had counted it.
    found = counted_over(replace(stored, static=replace(stored.static, elementwise_ops=1)), model)
    assert found.static == stored.static
    assert (found.engine, found.options, found.inputs) == ("onnxruntime", {}, stored.inputs)
    assert found.provenance == stored.provenance


def test_counts_on_other_inputs_take_over_nothing_from_a_run(path: Path) -> None:
    other = Way(inputs=("x:f32:1x8x8", "k:i64:1:7"))
    found = counted_over(run_case(USUAL.bind(path), USUAL), other.bind(path))
    assert (found.engine, found.options) == (None, None)
