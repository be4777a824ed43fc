"""The inputs of a workload: its order, what a worker gets, and that each step is one member."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.inputs.given import GivenInputs
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.inputs.mixture import (
    Mixture,
    WorkloadMember,
    describe_mixture,
    draw_pass,
    mix_steps,
)
from pytest_modelperf.profiler.worker.sessions import ModelLocation, StepArrays
from pytest_modelperf.stats.records import Members
from tests.support.small_models import parse

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine

SUM = """
g (float[seq,2] x, float[1] scale) => (float[2] y) {
    s = ReduceSum<keepdims=0>(x, axis)
    y = Mul(s, scale)
}
"""


def member(size: int, weight: int = 1) -> WorkloadMember:
    return WorkloadMember(name=f"seq={size}", weight=weight, dims={"seq": size})


def feed(size: int) -> dict[str, Feed]:
    values = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
    return {"x": Feed("float32", values), "scale": Feed("float32", np.ones(1, np.float32))}


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8))
def test_a_pass_has_each_member_as_often_as_its_weight(weights: list[int]) -> None:
    names = tuple(map(str, range(len(weights))))
    mix = draw_pass(Members(names, tuple(weights)))

    assert Counter(mix.turns) == dict(enumerate(weights))
    assert draw_pass(mix.members) == mix


def test_any_run_as_long_as_a_pass_has_each_member_just_as_often() -> None:
    mix = draw_pass(Members(("a", "b", "c"), (5, 2, 1)))

    for first in range(20):
        assert Counter(mix.turned(first, 8).turns) == {0: 5, 1: 2, 2: 1}


def test_weights_are_shares_of_the_inferences() -> None:
    mixture = Mixture.of([member(16, 10), member(128, 4)])

    assert mixture.facts == Members(("seq=16", "seq=128"), (5, 2))
    assert mixture.largest.name == "seq=128"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member(16)], "has two members or more"),
        ([member(16), member(16, 3)], "has the member seq=16 twice"),
        ([member(16, 300), member(8)], "one pass of the workload has 301 inferences"),
    ],
)
def test_members_that_do_not_make_a_workload_are_refused(
    members: list[WorkloadMember], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        Mixture.of(members)


def test_inputs_that_are_equal_are_sent_once() -> None:
    steps = mix_steps([feed(3), feed(5)], Mixture.of([member(3), member(5)]))

    assert list(steps.changing) == ["x"]
    assert steps.feeds["scale"].array.shape == (1,)
    assert steps.mix is not None
    assert steps.count == 2


def test_the_inputs_of_each_member_begin_where_memory_is_aligned() -> None:
    steps = mix_steps([feed(3), feed(5), feed(70)], Mixture.of([member(3), member(5), member(70)]))

    assert [start % 64 for start, _ in steps.changing["x"]] == [0, 0, 0]


def test_texts_are_handed_on_as_they_are() -> None:
    def texts(*values: str) -> dict[str, Feed]:
        return {"x": Feed("string", np.array(values, dtype=object))}

    steps = mix_steps([texts("a"), texts("b", "c")], Mixture.of([member(1), member(2)]))

    assert steps.feeds["x"].array.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_each_step_computes_what_an_inference_on_its_member_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sum.onnx"
    onnx.save(parse(SUM, weights={"axis": np.array([0], np.int64)}), path)
    sizes = (3, 1, 7)
    steps = mix_steps([feed(n) for n in sizes], Mixture.of([member(3, 2), member(1), member(7)]))
    arrays = {name: each.array for name, each in steps.feeds.items()}
    engine = cast("Engine", importlib.import_module(f"pytest_modelperf.profiler.engines.{name}"))
    plan = StepArrays(arrays, **cast("dict[str, Any]", steps.to_wire()))
    session = engine.load(ModelLocation(str(path), None), 1, {})
    run = session.prepare_steps(plan, {name: each.dtype for name, each in steps.feeds.items()})
    assert steps.mix is not None

    for place in (*steps.mix.turns, *steps.mix.turns):
        found = run()
        value = found[0].numpy() if hasattr(found[0], "numpy") else np.asarray(found[0])
        np.testing.assert_allclose(value, feed(sizes[place])["x"].array.sum(axis=0))


def test_the_stored_form_has_members_and_weights_and_covers_the_values() -> None:
    def described(weight: int, value: float) -> tuple[dict[str, str], str | None]:
        given = GivenInputs("a.npz", {"x": np.full((2, 2), value, np.float32)})
        mixture = Mixture.of([WorkloadMember(name="a", given=given), member(16, weight)])
        feeds = [{"x": Feed("float32", given.arrays["x"])}, {}]
        found = describe_mixture(mixture, [(), ()], feeds, 0)
        return dict(found.specs), found.sha256

    specs, digest = described(5, 1.0)

    assert specs == {"a": "weight 1", "seq=16": "weight 5"}
    assert described(5, 1.0) == (specs, digest)
    assert described(5, 2.0)[1] != digest
    assert described(4, 1.0)[0] != specs
