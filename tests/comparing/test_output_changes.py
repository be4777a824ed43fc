"""How far outputs differ, and where they begin to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.baselines.output_sketch import sketch_tensors
from pytest_modelperf.comparing.changes import FirstDifference, OutputChange
from pytest_modelperf.comparing.figures import describe_outputs
from pytest_modelperf.comparing.output_changes import (
    Sight,
    compare_outputs,
    compare_with_sketch,
    find_first_difference,
    judge_outputs,
    pair_tensors,
)
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.verdict_lines import (
    describe_first_difference,
    describe_metric,
    output_lines,
)
from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.profiler.model_in_worker import Sent
from pytest_modelperf.profiler.records import Case


def sent(values: Any, dtype: npt.DTypeLike = np.float32) -> Sent:  # noqa: ANN401  # anything numpy takes
    array = np.asarray(values, dtype)
    return array.dtype.str, array.shape, array.tobytes()


def test_equal_outputs_do_not_differ() -> None:
    (change,) = compare_outputs({"y": sent([1, -2])}, {"y": sent([1, -2])})
    assert (change.max_absolute, change.max_relative) == (0.0, 0.0)
    assert change.cosine == pytest.approx(1.0)
    assert change.difference is None


def test_the_largest_difference_is_given_absolutely_and_relatively() -> None:
    (change,) = compare_outputs({"y": sent([100, 1, 0])}, {"y": sent([102, 0.5, 0])})
    assert change.max_absolute == 2.0
    assert change.max_relative == 0.5
    assert change.cosine == pytest.approx(1.0, abs=1e-4)


def test_outputs_of_other_precision_are_compared_by_value() -> None:
    (change,) = compare_outputs({"y": sent([0.5, 2])}, {"y": sent([0.5, 2], np.float16)})
    assert change.max_absolute == 0.0


def test_whole_numbers_do_not_wrap_around() -> None:
    (change,) = compare_outputs({"y": sent([0], np.uint8)}, {"y": sent([255], np.uint8)})
    assert change.max_absolute == 255.0


def test_integers_that_are_equal_as_floats_differ() -> None:
    before, after = (sent([2**53, number], np.int64) for number in (2**53, 2**53 + 1))
    (change,) = compare_outputs({"y": before}, {"y": after})
    assert change.max_absolute == 1.0


def test_the_same_infinity_is_equal_and_another_one_is_reported() -> None:
    before = sent([np.inf, np.nan, 1])
    (same,) = compare_outputs({"y": before}, {"y": before})
    assert same.max_absolute == 0.0
    (other,) = compare_outputs({"y": before}, {"y": sent([np.inf, 0, 1])})
    assert other.difference == "1 of 3 are finite on one side only"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (sent([[1, 2]]), sent([1, 2]), "other shapes: 1x2 before, 2 now"),
        (sent([1]), sent([1], np.int64), "other types: float32 before, int64 now"),
        (("<f4", (9,), None), sent([1] * 9), "not compared: no numbers, or more than 64.00 MiB"),
    ],
)
def test_outputs_that_cannot_be_compared_have_a_reason(
    before: Sent, after: Sent, said: str
) -> None:
    (change,) = compare_outputs({"y": before}, {"y": after})
    assert (change.difference, change.max_absolute) == (said, None)


def held_against_sketch(before: Sent, after: Sent | None) -> OutputChange:
    sketch = sketch_tensors({"y": before}, {"y"})
    (change,) = compare_with_sketch(sketch, {} if after is None else {"y": after})
    return change


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sent([[1, 2]]), sent([1, 2])),
        (sent([1]), sent([1], np.int64)),
        (sent([1]), None),
        (sent([0, 1]), sent([np.inf, 1])),
    ],
)
def test_outputs_that_differ_from_a_sketch_in_more_than_values_have_no_figure(
    before: Sent, after: Sent | None
) -> None:
    change = held_against_sketch(before, after)
    assert (change.is_other, change.max_absolute) == (True, None)


def test_a_value_that_became_a_number_is_reported() -> None:
    change = held_against_sketch(sent([np.nan, 1]), sent([0, 1]))
    assert (change.difference, change.share) == ("other counts of NaN and infinity", None)
    assert judge_outputs([change], 0.01).verdict is Verdict.REGRESSED


def test_an_output_too_large_to_be_read_is_not_held_against_a_sketch() -> None:
    change = held_against_sketch(sent([1]), ("<f4", (1,), None))
    assert judge_outputs([change], 0.01).verdict is Verdict.INCONCLUSIVE


def test_an_output_of_one_side_only_is_reported() -> None:
    gone, kept, added = compare_outputs(
        {"old": sent([1]), "y": sent([1])}, {"y": sent([1]), "new": sent([1])}
    )
    assert (gone.name, gone.difference) == ("old", "only before")
    assert (kept.name, kept.difference) == ("y", None)
    assert (added.name, added.difference) == ("new", "only now")


def test_outputs_that_were_all_renamed_are_compared_by_place() -> None:
    (change,) = compare_outputs({"a": sent([1])}, {"b": sent([3])})
    assert (change.name, change.max_absolute) == ("a / b", 2.0)


def test_an_output_of_zeros_has_no_direction() -> None:
    (change,) = compare_outputs({"y": sent([0, 0])}, {"y": sent([0, 0])})
    assert change.cosine is None


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ([100.9, 0.0], Verdict.PASSED),
        ([101.1, 0.0], Verdict.REGRESSED),
        # Compared with the largest value, a value near 0 may be anything small.
        ([100.0, 0.9], Verdict.PASSED),
        ([100.0, 1.1], Verdict.REGRESSED),
        ([np.nan, 0.0], Verdict.REGRESSED),
        ([100.0], Verdict.REGRESSED),
    ],
)
def test_outputs_may_differ_by_a_share_of_their_largest_value(
    now: list[float], verdict: Verdict
) -> None:
    changes = compare_outputs({"y": sent([100.0, 0.0])}, {"y": sent(now)})
    assert judge_outputs(changes, 0.01).verdict is verdict


def test_outputs_that_were_not_compared_leave_it_open_and_lost_ones_do_not() -> None:
    equal = compare_outputs({"y": sent([1.0])}, {"y": sent([1.0])})
    too_large = OutputChange(name="z", difference="not compared: more than 64 MiB")
    assert judge_outputs((*equal, too_large), 0.01).verdict is Verdict.INCONCLUSIVE
    assert judge_outputs((), 0.01).verdict is Verdict.INCONCLUSIVE
    lost = compare_outputs({"y": sent([1.0]), "z": sent([1.0])}, {"y": sent([1.0])})
    assert judge_outputs(lost, 0.01).verdict is Verdict.REGRESSED


def test_the_difference_of_outputs_is_shown_as_a_share() -> None:
    found = judge_outputs(compare_outputs({"y": sent([8.0])}, {"y": sent([10.0])}), 0.01)
    assert describe_metric(found, None) == "outputs differ by 25 %, allowed +1 %"


def test_a_difference_without_a_relative_size_is_described_without_one() -> None:
    same, zero = {"y": sent([1.0])}, {"y": sent([0.0])}
    for found in (compare_outputs(same, {}), compare_outputs(zero, same)):
        assert describe_metric(judge_outputs(found, 0.01), None) == "outputs differ, allowed +1 %"
    assert describe_metric(judge_outputs((), 0.01), None) == "outputs unknown, allowed +1 %"


def test_outputs_that_were_nothing_but_zeros_differ_by_no_share() -> None:
    outputs = compare_outputs({"y": sent([0.0])}, {"y": sent([3.0])})
    (line,) = output_lines(CaseComparison(Case(1, 1), (), (), outputs=outputs))
    assert line == "they differ: one was 0 everywhere before"
    metric = judge_outputs(outputs, 0.01)
    assert describe_outputs(metric) == "outputs differ where all of them were 0, allowed 1 %"


ALLOWED = 0.01
MANY_BYTES = 1 << 30


def make_graph(reads: Sequence[Sequence[int]], sizes: Mapping[int, int] | None = None) -> Graph:
    """A graph whose node n makes the tensor `tn` of those of the nodes that it reads."""
    source = Tensor("x", "float32", (1,))
    tensors = [Tensor(f"t{n}", "float32", ((sizes or {}).get(n, 1),)) for n in range(len(reads))]
    nodes = [
        Node(f"n{n}", "Op", inputs=tuple(tensors[i] for i in own) or (source,), outputs=(made,))
        for n, (own, made) in enumerate(zip(reads, tensors, strict=True))
    ]
    return Graph("g", (source,), (tensors[-1],), tuple(nodes), {})


class Runs:
    """Two sides whose node `culprit` differs, and with it all that is computed from it.

    The difference of a `fused` culprit ends where one of these tensors is watched.
    """

    def __init__(self, graph: Graph, culprit: int, fused: frozenset[str] = frozenset()) -> None:
        self.graph, self.culprit, self.fused = graph, f"n{culprit}", fused
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, names: Sequence[str]) -> Mapping[str, OutputChange]:
        self.asked.append(tuple(names))
        is_broken = bool(self.fused.intersection(names))
        other: set[str] = set()
        for node in self.graph.nodes:
            is_culprit = node.name == self.culprit and not is_broken
            if is_culprit or any(t is not None and t.name in other for t in node.inputs):
                other |= {t.name for t in node.outputs if t is not None}
        return {
            name: OutputChange(
                name=name, max_absolute=0.5 if name in other else 0.0001, largest=1.0
            )
            for name in names
        }


def search(runs: Runs, *, blind: frozenset[str] = frozenset(), most: int = MANY_BYTES) -> object:
    graph = runs.graph
    tensors = [
        t for node in graph.nodes for t in node.outputs if t is not None and t.name not in blind
    ]
    return find_first_difference(graph, graph.outputs[0].name, ALLOWED, Sight(runs, tensors, most))


def found_by(runs: Runs) -> FirstDifference:
    found = search(runs)
    assert isinstance(found, FirstDifference)
    return found


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs in which every node is on the way to the output."""
    count = draw(st.integers(2, 40))
    reads: list[set[int]] = [set()]
    reads += [
        set(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3))) for n in range(1, count)
    ]
    unread = set(range(count - 1)) - set().union(*reads)
    return make_graph([sorted(own) for own in [*reads[:-1], reads[-1] | unread]])


@given(graphs(), st.data())
def test_the_node_that_differs_is_found_in_any_graph(graph: Graph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, len(graph.nodes) - 1))
    runs = Runs(graph, culprit)
    found = found_by(runs)
    assert found.tensor.name == f"t{culprit}"
    assert found.tensor.values.share == 0.5
    read = {t.name for t in graph.nodes[culprit].inputs if t is not None and t.name != "x"}
    assert {each.name for each in found.inputs} == read
    assert all(each.values.share == 0.0001 for each in found.inputs)
    assert not found.others
    assert found.runs == len(runs.asked)


@given(st.integers(2, 300), st.data())
def test_a_chain_takes_a_run_for_each_halving(count: int, data: st.DataObject) -> None:
    graph = make_graph([[n - 1] if n else [] for n in range(count)])
    culprit = data.draw(st.integers(0, count - 1))
    runs = Runs(graph, culprit)
    assert found_by(runs).tensor.name == f"t{culprit}"
    # The middle half is as good as the middle: a cut leaves three quarters at most.
    assert len(runs.asked) <= math.log(count, 4 / 3) + 3
    assert all(len(names) <= 2 for names in runs.asked)


@pytest.mark.parametrize("place", [3, 9, 15])
def test_a_difference_that_ends_where_a_tensor_is_watched_comes_from_a_fusion(place: int) -> None:
    graph = make_graph([[n - 1] if n else [] for n in range(17)])
    inside = f"t{place - 1}"
    found = found_by(Runs(graph, place, frozenset({inside})))
    assert found.is_fused
    assert found.tensor.name == inside
    assert found.readers == (f"n{place} (Op)",)


def test_the_watched_tensor_that_breaks_the_fusion_is_named() -> None:
    # Four branches, which a cut crosses together, and a node that joins them.
    graph = make_graph([[], [0], [0], [0], [0], [1, 2, 3, 4], [5]])
    found = found_by(Runs(graph, 5, frozenset({"t3"})))
    assert found.is_fused
    assert found.tensor.name == "t3"


def test_layers_that_cannot_be_watched_are_named_with_the_first_that_differs() -> None:
    graph = make_graph([[n - 1] if n else [] for n in range(6)])
    found = search(Runs(graph, 2), blind=frozenset({"t2", "t3"}))
    assert isinstance(found, FirstDifference)
    assert found.tensor.name == "t4"
    assert found.others == ("n2", "n3")


def test_no_run_reads_more_than_may_be_sent() -> None:
    sizes = {n: 1000 if n % 2 else 10 for n in range(12)}
    graph = make_graph([[n - 1] if n else [] for n in range(12)], sizes)
    runs = Runs(graph, 7)
    found = search(runs, most=1000)
    assert isinstance(found, FirstDifference)
    assert {found.tensor.name, *found.others} >= {"n7"}
    for names in runs.asked:
        watched = [name for name in names if name != names[-1]]
        assert sum(4 * sizes[int(name[1:])] for name in watched) <= 1000


def test_an_output_that_is_an_input_has_no_first_difference() -> None:
    source = Tensor("x", "float32", (1,))
    graph = Graph("g", (source,), (source,), (), {})
    assert find_first_difference(graph, "x", ALLOWED, Sight(lambda _: {}, (), 10)) is None


def test_a_difference_that_is_not_seen_again_is_not_reported() -> None:
    runs = Runs(make_graph([[], [0], [1]]), culprit=99)
    assert search(runs) is None
    assert runs.asked == [("t2",)]


def test_graphs_of_the_same_operators_are_paired_by_place_and_others_by_name() -> None:
    def graph_of(*nodes: tuple[str, str]) -> Graph:
        made = [Node(name, op, outputs=(Tensor(name, "float32", (1,)),)) for name, op in nodes]
        return Graph("g", (), (), tuple(made), {})

    old = graph_of(("1", "Conv"), ("2", "Relu"))
    assert pair_tensors(old, graph_of(("7", "Conv"), ("8", "Relu"))) == {"7": "1", "8": "2"}
    assert pair_tensors(old, graph_of(("1", "Conv"), ("3", "Mul"), ("2", "Add"))) == {"1": "1"}


def test_the_first_difference_is_described_with_the_layer_before_it() -> None:
    found = found_by(Runs(make_graph([[], [0], [1], [2]]), 2))
    assert describe_first_difference(found) == (
        "t3 differs first at n2 (Op): its 't2' differs by 50 %, and 't1' before it by 0.01 %"
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "'t1' before it is equal"), (2, "'t1' and 1 other input before it are equal")],
)
def test_equal_outputs_are_described_as_equal(count: int, expected: str) -> None:
    found = found_by(Runs(make_graph([[], [0], [1], [2]]), 2))
    (before,) = found.inputs
    equal = replace(before, values=replace(before.values, max_absolute=0.0))
    assert describe_first_difference(replace(found, inputs=(equal,) * count)).endswith(expected)


def test_a_tensor_that_was_nothing_but_zeros_differs_by_no_share() -> None:
    found = found_by(Runs(make_graph([[], [0]]), 0))
    zero = replace(found.tensor, values=replace(found.tensor.values, largest=0.0))
    assert "its 't0' differs (it was 0 everywhere before), and" in (
        describe_first_difference(replace(found, tensor=zero))
    )


def test_a_difference_of_the_first_layer_has_nothing_before_it() -> None:
    found = found_by(Runs(make_graph([[], [0]]), 0))
    assert describe_first_difference(found) == (
        "t1 differs first at n0 (Op): its 't0' differs by 50 %, and nothing before it"
    )


def test_a_fusion_is_named_by_the_tensor_that_ends_it() -> None:
    found = found_by(Runs(make_graph([[], [0], [1], [2]]), 2, frozenset({"t1"})))
    assert describe_first_difference(found) == (
        "t3 no longer differs if 't1' of n1 (Op) is an output, too: the difference comes from "
        "how the engine fuses that layer with n2 (Op)"
    )
