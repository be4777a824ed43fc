"""A twin is refused before it is rebuilt, unless it counts what was recorded of its model."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.document import store_case
from pytest_modelperf.baselines.recorded import has_claimed_work, has_lost_its_twin
from pytest_modelperf.baselines.recording import TwinKeeper, lack_twin, rebuilt_twin
from pytest_modelperf.baselines.records import Baseline, BaselineRecording, StoredCase
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.errors import BaselineError
from pytest_modelperf.graph.binding import parse_input_spec
from pytest_modelperf.graph.model_file import ModelFile, open_model
from pytest_modelperf.graph.structure_digest import digest_structure
from pytest_modelperf.graph.twin import left_out_bytes, make_twin, twin_bytes
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import read_given
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support.facts import make_fidelity, make_provenance
from tests.support.known import known
from tests.support.project import write_dense
from tests.support.small_models import ones, parse

DENSE = "g (float[N,64] x) => (float[N,{width}] y) {{ y = MatMul(x, w) }}"
REQUEST = ProfileRequest(batch_sizes=(1, 2))
TRUSTED = make_fidelity(1.0, 0.999, 1.001)


def dense(width: int = 32, unused: int = 0) -> onnx.ModelProto:
    """A model of 64 rows of weights, and of more that no node takes."""
    weights = {"w": ones(64, width)} | ({"unused": ones(unused)} if unused else {})
    return parse(DENSE.format(width=width), weights=weights)


LONGER = parse(
    "g (float[N,64] x) => (float[N,32] y) { p = MatMul(x, w) q = Erf(p) y = Erf(q) }",
    weights={"w": ones(64, 32)},
)


ACTIVATED = "g (float[N,64] x) => (float[N,32] y) {{ p = MatMul(x, w) y = {op}(p) }}"


def activated(op: str) -> onnx.ModelProto:
    return parse(ACTIVATED.format(op=op), weights={"w": ones(64, 32)})


def recorded(model: onnx.ModelProto) -> Baseline:
    profile = profile_model(model, REQUEST)
    facts = replace(profile.model, sha256="a" * 64)
    origin = make_provenance(date=dt.date(2026, 1, 31))
    structure = digest_structure(open_model(model))
    cases = tuple(store_case(case, facts, origin, structure, TRUSTED) for case in profile.cases)
    twin = make_twin(open_model(model))
    recording = BaselineRecording(
        name="dense",
        model=facts,
        cases=cases,
        twin=twin_bytes(twin),
        left_out_bytes=left_out_bytes(twin),
    )
    return known(plan_update(None, recording).after)


def rebuilt(stored: Baseline, model: onnx.ModelProto | None = None) -> Path:
    """The folder that the twin was rebuilt in, which is gone by now."""
    now = Side(model or dense(), Setup())
    with baseline_side(stored, "a-machine", now, REQUEST, Extensions()) as side:
        assert isinstance(side.source, Path)
        assert side.source.exists()
        return side.source.parent


def with_twin_of(stored: Baseline, other: onnx.ModelProto, **mended: Any) -> Baseline:  # noqa: ANN401  # any field
    """The baseline with the twin of another model, and everything that was changed to fit."""
    twin = replace(known(stored.model.twin), **mended)
    made = twin_bytes(make_twin(open_model(other)))
    return replace(stored, twin=made, model=replace(stored.model, twin=twin))


def test_the_twin_that_was_recorded_is_rebuilt() -> None:
    assert not rebuilt(recorded(dense())).exists()


OTHERS: Mapping[str, tuple[onnx.ModelProto, dict[str, int | None], str]] = {
    "wider": (
        dense(48),
        {"left_out_bytes": 48 * 64 * 4},
        (
            r"at b1-c1 it has 3\.072 k MACs \(model\.json says 2\.048 k\), 3\.072 k params "
            r"\(2\.048 k\), 12\.00 KiB of weights \(8\.000 KiB\), .*3,072 MACs in MatMul \(2,048\)"
        ),
    ),
    "longer": (LONGER, {}, r"elementwise operations \(model\.json says 0\)"),
    "a weight that nothing takes": (dense(unused=9999), {}, r"leaves out 47\.06 KiB of weights"),
}


@pytest.mark.parametrize(("other", "mended", "message"), OTHERS.values(), ids=OTHERS)
def test_another_twin_is_refused(
    other: onnx.ModelProto, mended: dict[str, int | None], message: str
) -> None:
    stored = with_twin_of(recorded(dense()), other, **mended)
    with pytest.raises(BaselineError, match=message) as raised:
        rebuilt(stored)
    assert "--modelperf-update-baseline" in str(raised.value)


def test_a_twin_with_another_operator_of_the_same_cost_is_refused() -> None:
    stored = with_twin_of(recorded(activated("Relu")), activated("Sign"))
    with pytest.raises(BaselineError, match=r"0 layers of Relu \(model.+ 1\), 1 layer of Sign"):
        rebuilt(stored)


DILATED = """g (float[N,8,32,32] x) => (float[N,8,32,32] y) {{
    y = Conv <dilations = [{by},{by}], pads = [{by},{by},{by},{by}]> (x, w)
}}"""


def dilated(by: int) -> onnx.ModelProto:
    """A convolution of 3x3 whose pads make up for its dilations, so that its counts are one."""
    return parse(DILATED.format(by=by), weights={"w": ones(8, 8, 3, 3)})


def swapped(first: str, second: str) -> onnx.ModelProto:
    """Two activations, either of which may be the first."""
    text = "g (float[N,64] x) => (float[N,32] y) { p = MatMul(x, w) q = %s(p) y = %s(q) }"
    return parse(text % (first, second), weights={"w": ones(64, 32)})


STRUCTURES: Mapping[str, tuple[onnx.ModelProto, onnx.ModelProto]] = {
    "dilations and pads": (dilated(1), dilated(4)),
    "the order of operators": (swapped("Relu", "Erf"), swapped("Erf", "Relu")),
}


@pytest.mark.parametrize(("model", "other"), STRUCTURES.values(), ids=STRUCTURES)
def test_a_twin_of_the_same_counts_and_another_structure_is_refused(
    model: onnx.ModelProto, other: onnx.ModelProto
) -> None:
    stored = recorded(model)
    assert not rebuilt(stored, model).exists()
    with pytest.raises(BaselineError, match="its operators, attributes or connections") as raised:
        rebuilt(with_twin_of(stored, other), model)
    assert str(raised.value).startswith("twin.onnx of the baseline dense is not the twin of ")
    assert "Restore the folder from version control" in str(raised.value)


def test_a_twin_is_not_compared_with_cases_that_it_does_not_represent() -> None:
    """A model of which only some batch sizes were recorded again."""
    stored = recorded(dense())
    first, *others = stored.model.cases
    assert first.static is not None
    cases = (replace(first, model_sha256="b" * 64, static=replace(first.static, macs=1)), *others)
    rebuilt(replace(stored, model=replace(stored.model, cases=cases)))


def test_a_twin_runs_on_the_inputs_that_were_given_to_its_model() -> None:
    given = read_given({"x": np.ones((3, 64), np.float32)})
    model = Model.load(dense(), ProfileRequest(given=given), Extensions())
    with rebuilt_twin(model.file) as made:
        twin = made.bind(model)
    assert twin is not None
    assert twin.bound.inputs.batch_size == 3
    assert twin.given_inputs == model.given_inputs


def bound(model: onnx.ModelProto, *specs: str) -> Model:
    request = ProfileRequest(batch_sizes=(2,), inputs=tuple(map(parse_input_spec, specs)))
    return Model.load(model, request, Extensions())


def opened(stored: Baseline) -> ModelFile:
    return open_model(known(stored.twin))


def has_work(stored: Baseline, case: StoredCase, now: Model) -> bool:
    return has_claimed_work(stored.model, opened(stored), case, now)


RETRAINED: Mapping[str, Model] = {
    "the same": bound(dense()),
    "other weights": bound(parse(DENSE.format(width=32), weights={"w": 2 * ones(64, 32)})),
    "an input of another name": bound(
        parse(
            "g (float[N,64] z) => (float[N,32] y) { y = MatMul(z, w) }", weights={"w": ones(64, 32)}
        ),
        "z:f32:2x64",
    ),
}


@pytest.mark.parametrize("now", RETRAINED.values(), ids=RETRAINED)
def test_a_twin_has_the_work_of_its_case_with_any_names_and_weights(now: Model) -> None:
    stored = recorded(dense())
    assert has_work(stored, stored.model.cases[1], now)


CLAIMS: Mapping[str, Callable[[StoredCase], StoredCase]] = {
    "another structure": lambda case: replace(case, structure="0" * 32),
    "other counts": lambda case: replace(
        case, static=replace(case.static, elementwise_ops=case.static.elementwise_ops + 1)
    ),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_twin_that_contradicts_its_case_is_an_error_if_it_is_named_as_that_of_its_model(
    claim: Callable[[StoredCase], StoredCase],
) -> None:
    stored, now = recorded(dense()), bound(dense())
    case = claim(stored.model.cases[1])
    with pytest.raises(BaselineError, match=r"^twin.onnx of the baseline .+ is not the twin of "):
        has_work(stored, case, now)
    other = replace(case, model_sha256="b" * 64)
    model = replace(stored.model, cases=(stored.model.cases[0], other))
    assert not has_work(replace(stored, model=model), other, now)


def test_without_a_twin_no_work_is_known() -> None:
    stored = recorded(dense())
    assert not has_claimed_work(stored.model, None, stored.model.cases[1], bound(dense()))


def test_a_case_without_a_twin_has_lost_none_if_none_could_be_made() -> None:
    stored = recorded(dense())
    case = stored.model.cases[1]
    assert not has_lost_its_twin(stored.model, opened(stored), case)
    assert has_lost_its_twin(stored.model, None, case)
    assert not has_lost_its_twin(stored.model, None, replace(case, fidelity=lack_twin("too large")))


def test_the_twin_of_a_model_is_made_once_and_goes_with_the_next_model(tmp_path: Path) -> None:
    files = []
    for seed in (1, 2):
        path = tmp_path / f"m{seed}.onnx"
        write_dense(path, seed)
        files.append(open_model(path))
    keeper = TwinKeeper()
    first = keeper.twin_of(files[0])
    assert keeper.twin_of(files[0]) is first
    second = keeper.twin_of(files[1])
    assert second is not first
    assert not known(known(first.file).path).exists()
    keeper.close()
    assert not known(known(second.file).path).exists()
