"""The reasons for a difference: which layers match, what each takes more, and why, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.comparing import layer_pairs
from pytest_modelperf.comparing.attribution import Explanation, Graphs, explain
from pytest_modelperf.comparing.by_counts import provider_metrics, uncounted_providers
from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange, TimeChange
from pytest_modelperf.comparing.differences import Differences, Doubt, summing_to
from pytest_modelperf.comparing.figures import describe_change
from pytest_modelperf.comparing.layer_pairs import AlignmentLimits, match_layers
from pytest_modelperf.comparing.merged_kernels import KnownPlans
from pytest_modelperf.comparing.reasons.plans import MeasuredParts, part_reasons
from pytest_modelperf.comparing.reasons.reason import Reason
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.verdict_lines import describe_metric
from pytest_modelperf.graph.structure import PlanGraph, PlanNode, Shape
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile, Uncounted
from pytest_modelperf.profiler.measured_cases import measure_model
from pytest_modelperf.profiler.measurements import LAYER_CONFIDENCE, EngineFacts, LayerTime, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.robust import CalmTime
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.profiles import make_measurement
from tests.support.small_models import parse

NS_PER_MS = 1e6
SLOWER = (1.05, 1.2)
ENGINE = make_engine("onnxruntime", "1.31.1")


def layer(  # noqa: PLR0913  # each distinguishes layers
    name: str,
    op: str = "Conv",
    shape: Shape = (1, 8),
    *,
    weight: str | None = None,
    domain: str = "",
    precision: str | None = "float32",
) -> StaticLayer:
    return StaticLayer(
        id=f"{name}_output_{name}", name=name, op_type=op, domain=domain, weight=weight,
        precision=precision, macs=10, elementwise_ops=0, backward_macs=0, params=0, weight_bytes=0,
        output_bytes=4, input_shape=shape, output_shape=shape,
    )  # fmt: skip


def layers(text: str) -> list[StaticLayer]:
    """`Conv_0 Relu_1` are two layers, each of the operator that its name begins with."""
    return [layer(name, name.partition("_")[0]) for name in text.split()]


def names(old: Sequence[StaticLayer], new: Sequence[StaticLayer]) -> set[tuple[str, str]]:
    return {(old[i].name, new[j].name) for i, j in match_layers(old, new).items()}


def test_an_inserted_node_does_not_shift_the_matches() -> None:
    """Numbered names agree for half of the layers, and every one of them is wrong."""
    old = layers("Conv_0 Relu_1 Conv_2 Relu_3 Conv_4 Relu_5")
    new = layers("Pad_0 Cast_1 Conv_2 Relu_3 Conv_4 Relu_5 Conv_6 Relu_7")
    assert names(old, new) == {
        ("Conv_0", "Conv_2"), ("Relu_1", "Relu_3"), ("Conv_2", "Conv_4"),
        ("Relu_3", "Relu_5"), ("Conv_4", "Conv_6"), ("Relu_5", "Relu_7"),
    }  # fmt: skip


@pytest.mark.parametrize("length", [2, 40, 300])
def test_two_nodes_before_a_long_chain_are_the_only_new_ones(length: int) -> None:
    old = layers(" ".join(f"Conv_{2 * i} Relu_{2 * i + 1}" for i in range(length)))
    shifted = " ".join(f"Conv_{2 * i + 2} Relu_{2 * i + 3}" for i in range(length))
    pairs = match_layers(old, layers(f"Pad_0 Cast_1 {shifted}"))
    assert pairs == {index: index + 2 for index in range(2 * length)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (layer("c", weight="conv1.w"), layer("x", "ConvInteger", weight="conv1.w_quantized")),
        (layer("Conv_12"), layer("Conv_12_quant", "ConvInteger")),
        (layer("MatMul_5", "Gemm"), layer("MatMul_5_quant", "MatMulInteger")),
    ],
)
def test_a_layer_is_paired_with_its_quantized_form(old: StaticLayer, new: StaticLayer) -> None:
    others = [layer("Conv_1"), layer("MatMul_1", "MatMul")]
    added = layer("q", "DynamicQuantizeLinear")
    assert match_layers([*others, old], [*others, added, new])[2] == 3
    assert match_layers([*others, added, new], [*others, old])[3] == 2


def test_an_ambiguous_prefix_does_not_match_a_quantized_layer() -> None:
    old = [layer("a", weight="w")]
    quantized = (layer(f"x{k}", "ConvInteger", weight=f"w_{k}") for k in range(2))
    assert match_layers(old, [replace(each, macs=7) for each in quantized]) == {}


def test_products_that_a_quantizer_put_in_another_order_keep_their_numbered_names() -> None:
    query, key = (
        [_product(f"MatMul_{k}", macs=100), layer(name, "Add")]
        for k, name in ((0, "query"), (1, "key"))
    )
    quantized = [replace(each, params=9) for each in (*key, *query)]
    assert names([*query, *key], quantized) == {(x.name, x.name) for x in (*query, *key)}


def test_a_product_and_its_sum_are_paired_with_the_one_operator_that_became_of_them() -> None:
    old = [
        _product("MatMul_1", macs=100), layer("Add_2", "Add"),
        _product("MatMul_3", macs=900), layer("Add_4", "Add"),
    ]  # fmt: skip
    new = [_product("Gemm_1", "Gemm", macs=100), _product("Gemm_2", "Gemm", macs=900)]
    assert names(old, new) == {("MatMul_1", "Gemm_1"), ("MatMul_3", "Gemm_2")}


def _product(name: str, op: str = "MatMul", *, macs: int) -> StaticLayer:
    return replace(layer(name, op, (2, 1 + macs)), macs=macs)


def test_numbers_decide_which_of_several_equal_blocks_was_added() -> None:
    old = layers("Conv_0 Conv_1 Conv_2")
    assert names(old, layers("Conv_0 Conv_1 Conv_2 Conv_3")) == {(x.name, x.name) for x in old}


def test_a_chosen_name_is_trusted_at_any_position() -> None:
    old = [layer("stem", shape=(1, 8)), layer("head", shape=(1, 4))]
    new = [layer("head", shape=(1, 8)), layer("stem", shape=(1, 4))]
    assert names(old, new) == {("stem", "stem"), ("head", "head")}


def test_one_name_of_two_operators_is_two_layers() -> None:
    assert match_layers([layer("act", "Relu")], [layer("act", "HardSwish")]) == {}
    foreign = layer("act", "Relu", domain="my.ops")
    assert match_layers([layer("act", "Relu")], [foreign]) == {}


def test_a_layer_whose_name_was_counted_up_is_matched_by_its_weight() -> None:
    old = [layer("Conv_3", weight="a.weight"), layer("Conv_4", weight="b.weight")]
    new = [layer("Conv_3", weight="b.weight"), layer("Conv_4", weight="a.weight")]
    assert match_layers(old, new) == {0: 1, 1: 0}


def test_layers_of_another_width_are_the_same_layers_in_order() -> None:
    old = [layer("Conv_0", shape=(1, 8)), layer("Relu_1", "Relu", (1, 8)), layer("Conv_2")]
    new = [replace(x, input_shape=(1, 16), output_shape=(1, 16)) for x in old]
    assert match_layers(old, new) == {0: 0, 1: 1, 2: 2}


def test_a_layer_of_the_same_shape_is_taken_before_one_of_another() -> None:
    new = [layer("Conv_0", shape=(1, 16)), layer("Conv_1", shape=(1, 8))]
    assert match_layers([layer("Conv_0", shape=(1, 8))], new) == {0: 1}


def test_layers_that_moved_are_matched_by_their_operators() -> None:
    old, new = layers("Exp_0 Conv_1 Relu_2"), layers("Conv_0 Relu_1 Exp_2")
    assert names(old, new) == {("Exp_0", "Exp_2"), ("Conv_1", "Conv_0"), ("Relu_2", "Relu_1")}


def test_graphs_too_large_to_align_are_matched_by_order() -> None:
    old, new = layers("Conv_0 Relu_1 Conv_2"), layers("Pad_0 Conv_1 Relu_2 Conv_3")
    assert match_layers(old, new, AlignmentLimits(pairs=3)) == {0: 1, 1: 2, 2: 3}


ANY_LAYERS = st.lists(
    st.builds(
        layer,
        st.sampled_from(["stem", "head", "Conv_1", "Conv_2", "7", "b.conv", ""]),
        st.sampled_from(["Conv", "Relu"]),
        st.sampled_from([(1, 8), (1, 16)]),
        weight=st.sampled_from([None, "w", "a.weight"]),
    ),
    max_size=8,
)


@given(ANY_LAYERS, ANY_LAYERS)
def test_a_layer_is_in_one_pair_and_pairs_have_one_operator(
    old: list[StaticLayer], new: list[StaticLayer]
) -> None:
    pairs = match_layers(old, new)
    assert len(set(pairs.values())) == len(pairs)
    assert all(old[i].qualified_op == new[j].qualified_op for i, j in pairs.items())


@given(ANY_LAYERS)
def test_every_layer_is_found_in_a_copy_of_its_graph(graph: list[StaticLayer]) -> None:
    pairs = match_layers(graph, graph)
    assert pairs.keys() == set(range(len(graph)))
    assert all(layer_pairs.is_alike(graph[i], graph[j]) for i, j in pairs.items())


GAINS = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.integers(0, 4), min_size=columns, max_size=columns), min_size=1, max_size=5
    )
)


def _slow_best(gains: Sequence[Sequence[int]], row: int = 0, column: int = 0) -> int:
    if row == len(gains) or column == len(gains[0]):
        return 0
    return max(
        _slow_best(gains, row + 1, column),
        _slow_best(gains, row, column + 1),
        gains[row][column] + _slow_best(gains, row + 1, column + 1),
    )


@given(GAINS)
def test_the_path_rises_and_none_gains_more(gains: list[list[int]]) -> None:
    path = layer_pairs._best_path(np.array(gains, np.float64))
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(path))
    assert sum(gains[row][column] for row, column in path) == _slow_best(gains)


@dataclass(frozen=True)
class Ran:
    """A layer and its time; one that ran in the kernel of another names it."""

    name: str
    op: str = "Conv"
    ms: float | None = 1.0
    inside: str | None = None
    shape: Shape = (1, 8)
    precision: str = "float32"
    provider: str = "CPUExecutionProvider"


STEADY = tuple(0.01 * (index % 5 - 2) for index in range(20))


def profile(
    *rows: Ran,
    others: Sequence[tuple[RowKind, str, float]] = (),
    engine: EngineFacts = ENGINE,
    runs: Sequence[float] = STEADY,
    uncounted: tuple[Uncounted, ...] = (),
) -> CaseProfile:
    """A case that ran. Its runs took by so much more than the rows say."""

    def doubts(ms: float) -> tuple[float, ...]:
        """How sure the mean of the runs is."""
        sessions = tuple((ms + ms * more) * NS_PER_MS for more in runs)
        return CalmTime(ms * NS_PER_MS, sessions).doubts(LAYER_CONFIDENCE)

    graph = tuple(layer(x.name, x.op, x.shape, precision=x.precision) for x in rows)
    places = {x.name: index for index, x in enumerate(rows)}
    times = [
        LayerTime(
            kind=RowKind.LAYER,
            kernel=x.name,
            ns=x.ms * NS_PER_MS,
            layer=index,
            fused=tuple(places[y.name] for y in rows if y.inside == x.name),
            provider=x.provider,
            precision=x.precision,
            doubts_ns=doubts(x.ms),
        )
        for index, x in enumerate(rows)
        if x.ms is not None and x.inside is None
    ]
    times += [
        LayerTime(kind=kind, kernel=kernel, ns=ms * NS_PER_MS, doubts_ns=doubts(ms))
        for kind, kernel, ms in others
    ]
    total_ms = sum(time.ns for time in times) / NS_PER_MS
    made = make_measurement(max(total_ms, 0.001), half_width=None)
    measured = replace(made, layer_times=tuple(times), engine=engine)
    return CaseProfile(Case(1, 1), StaticProfile(graph, 0, 0, 0, uncounted), measured)


# Plans of which nothing is known but that there are some.
NO_PLANS = (PlanGraph(()), PlanGraph(()))


def explained(
    before: CaseProfile,
    after: CaseProfile,
    ratio: tuple[float, float] = SLOWER,
    plans: tuple[PlanGraph, PlanGraph] | None = None,
) -> Explanation:
    old_plan, new_plan = plans or (None, None)
    return explain(before, after, Graphs(plans=(old_plan, new_plan)), ratio)


def type_of(found: Explanation, op: str) -> LayerTypeChange:
    return next(change for change in found.layer_types if change.op == op)


def layer_of(found: Explanation, name: str) -> LayerChange:
    def is_named(change: LayerChange) -> bool:
        rows = (change.before, change.after)
        return any(r is not None and r.static is not None and r.static.name == name for r in rows)

    return next(change for change in found.layers if is_named(change))


def test_shares_have_a_sign_and_what_is_slower_explains_all() -> None:
    before = profile(Ran("a", ms=2.0), Ran("b", "Relu", 1.0), others=[(RowKind.LAYOUT, "R", 0.5)])
    after = profile(Ran("a", ms=4.0), Ran("b", "Relu", 0.5), others=[(RowKind.LAYOUT, "R", 1.0)])
    found = explained(before, after)
    assert [change.op for change in found.layer_types] == ["Conv", "layout", "Relu"]
    shares = {c.op: c.time.share for c in found.layer_types if c.time is not None}
    assert shares == pytest.approx({"Conv": 0.8, "layout": 0.2, "Relu": -0.2})


TIMES = st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=4)


@given(TIMES, TIMES)
def test_types_and_layers_each_explain_the_whole_difference(
    old: list[float], new: list[float]
) -> None:
    ops = ("Conv", "Relu", "Add")
    sides = [
        profile(*(Ran(f"x{i}", ops[i % 3], ms) for i, ms in enumerate(times)))
        for times in (old, new)
    ]
    found = explained(sides[0], sides[1])
    total = (sum(new) - sum(old)) * NS_PER_MS
    for changes in (found.layer_types, found.layers):
        times = [change.time for change in changes if change.time is not None]
        assert sum(time.ns for time in times) == pytest.approx(total)
        if total:
            shares = [time.share or 0.0 for time in times]
            assert all(abs(share) <= 1.0 for share in shares)
            # Layers that became slower explain all of it. Their types can have faster ones, too.
            slower = sum(s for s, time in zip(shares, times, strict=True) if time.ns * total > 0)
            assert slower >= 1.0 - 1e-9 if changes is found.layers else slower <= 1.0 + 1e-9
        else:
            assert {time.share for time in times} <= {None}


def test_the_difference_to_explain_is_the_one_that_a_duet_judged() -> None:
    """Others disturbed the side before more, so that its own times are the longer ones."""
    before = profile(Ran("a", ms=4.0))
    after = profile(Ran("a", ms=3.0), Ran("b", "Relu", 0.6))
    found = explained(summing_to(before, 4.0 * NS_PER_MS), summing_to(after, 4.8 * NS_PER_MS))
    times = {change.op: change.time for change in found.layer_types}
    assert times["Conv"] is not None
    assert times["Conv"].ns == pytest.approx(0.0)
    assert times["Relu"] is not None
    assert times["Relu"].ns == pytest.approx(0.8 * NS_PER_MS)
    assert times["Relu"].share == pytest.approx(1.0)
    assert times["Relu"].low_ns == pytest.approx(0.8 * NS_PER_MS, rel=0.05)
    assert found.reasons[0].startswith("1 Relu added")


def test_layers_without_times_have_none_at_any_sum() -> None:
    timed = profile(Ran("a", ms=4.0))
    untimed = replace(timed, measured=replace(known(timed.measured), layer_times=None))
    assert summing_to(untimed, 1e6) is untimed


@pytest.mark.parametrize(("ratio", "is_real"), [((0.99, 1.2), False), ((1.01, 1.2), True)])
def test_within_the_noise_no_row_has_a_share(ratio: tuple[float, float], is_real: bool) -> None:  # noqa: FBT001  # a parameter
    found = explained(profile(Ran("a")), profile(Ran("a", ms=1.1)), ratio)
    time = known(type_of(found, "Conv").time)
    assert time.ns == pytest.approx(0.1 * NS_PER_MS)
    assert (time.share is not None) == is_real
    assert bool(found.reasons) == is_real


@pytest.mark.parametrize(("half_width", "is_real"), [(0.01, True), (0.2, False)])
def test_without_a_duet_the_intervals_of_both_latencies_decide(
    half_width: float,
    is_real: bool,  # noqa: FBT001  # a parameter
) -> None:
    sides = []
    for ms in (1.0, 1.1):
        case = profile(Ran("a", ms=ms))
        latency = make_measurement(ms, half_width=half_width).latency
        sides.append(replace(case, measured=replace(known(case.measured), latency=latency)))
    time = known(type_of(explain(sides[0], sides[1]), "Conv").time)
    assert (time.share is not None) == is_real


def test_intervals_are_those_of_runs_in_turn_if_drift_cancels() -> None:
    """Both sides become slower by half in the last runs; their difference hardly does."""
    drift = tuple(0.5 * (index > 9) for index in range(20))
    found = explained(profile(Ran("a"), runs=drift), profile(Ran("a", ms=1.1), runs=drift))
    time = known(type_of(found, "Conv").time)
    differences = [0.1 * (1 + more) for more in drift]
    low, high = scipy.stats.t.interval(
        LAYER_CONFIDENCE, 19, loc=0.1, scale=scipy.stats.sem(differences)
    )
    assert (time.low_ns, time.high_ns) == pytest.approx((low * NS_PER_MS, high * NS_PER_MS))
    assert 0.08 < low < high < 0.12


def test_times_that_do_not_say_how_sure_they_are_give_no_interval() -> None:
    sure, unsure = profile(Ran("a")), profile(Ran("a", ms=2))
    assert unsure.measured is not None
    times = tuple(replace(t, doubts_ns=()) for t in unsure.measured.layer_times or ())
    unsure = replace(unsure, measured=replace(unsure.measured, layer_times=times))
    time = known(type_of(explained(sure, unsure), "Conv").time)
    assert time.low_ns is time.high_ns is None


def test_a_layer_of_one_side_has_a_row_of_one_side() -> None:
    found = explained(
        profile(Ran("a"), Ran("b", "Exp", 0.2)), profile(Ran("a"), Ran("c", "Sin", 0.7))
    )
    new, gone = layer_of(found, "c"), layer_of(found, "b")
    assert new.before is None
    assert gone.after is None
    assert (known(new.time).share, known(gone.time).share) == pytest.approx((1.0, -0.2 / 0.7))
    assert found.layers[0] is new
    # Unchanged layers come last.
    assert found.layers[1] is gone


def test_equal_fused_sets_are_one_kernel_wherever_its_time_is_shown() -> None:
    before = profile(Ran("mul", "MatMul", None, inside="add"), Ran("add", "Add", 1.0))
    after = profile(Ran("mul", "MatMul", 1.5), Ran("add", "Add", None, inside="mul"))
    (change,) = explained(before, after).layers
    assert known(change.time).ns == pytest.approx(0.5 * NS_PER_MS)
    assert change.after is not None
    assert (known(change.before).qualified_op, change.after.qualified_op) == ("Add", "MatMul")


def test_without_layer_times_only_the_graphs_are_compared() -> None:
    after = profile(Ran("a"), Ran("b", "Exp"))
    found = explained(replace(profile(Ran("a")), measured=None), after)
    assert found.layers == ()
    assert found.reasons == ("1 Exp added (first: b): +10 MACs",)
    assert {change.time for change in found.layer_types} == {None}


def test_a_function_without_a_graph_has_only_its_runtime() -> None:
    sides = [
        replace(profile(others=[(RowKind.OVERHEAD, "", ms)]), counted=None) for ms in (1.0, 1.5)
    ]
    (change,) = explained(sides[0], sides[1]).layer_types
    assert change.op == "runtime overhead"
    assert known(change.time).share == 1.0


def test_each_figure_that_is_worse_has_a_reason_of_its_own() -> None:
    before = profile(Ran("a"), Ran("b"), Ran("c", "Relu", 0.1))
    after = profile(Ran("a", ms=3.0, shape=(1, 16)), Ran("b"), Ran("c", "Relu", 0.1))
    names = ("latency_p50", "latency_p95", "load_ms", "params")
    metrics = tuple(Metric(name, 1.0, 2.0, Verdict.REGRESSED) for name in names)
    limit = Metric("latency_p50", None, 2.0, Verdict.OVER_BUDGET, limit=1.0)
    case = CaseComparison(before.case, (*metrics, limit), ())

    found = explained(before, after).of(case)
    why = "1 of 2 Conv of another shape"
    assert [metric.reason for metric in found.metrics] == [why, None, None, None, None]


def test_a_speedup_is_not_given_as_the_reason_of_a_regression() -> None:
    before, after = profile(Ran("a", ms=3.0)), profile(Ran("a", ms=1.0, shape=(1, 16)))
    metrics = (
        Metric("latency_p50", 3.0, 1.0, Verdict.IMPROVED),
        Metric("load_ms", 1.0, 3.6, Verdict.REGRESSED),
    )
    found = explained(before, after, (0.3, 0.35)).of(CaseComparison(before.case, metrics, ()))
    assert found.reasons[0].startswith("1 of 1 Conv of another shape")
    assert [metric.reason for metric in found.metrics] == [None, None]


def test_a_difference_of_the_whole_run_is_a_reason_if_no_layer_is() -> None:
    before = profile(Ran("a"), Ran("b", "Relu"), Ran("c", "Gemm"))
    after = profile(Ran("a", ms=1.2), Ran("b", "Relu", 1.2), Ran("c", "Gemm", 1.2))
    metric = Metric("latency_p50", 3.0, 3.6, Verdict.REGRESSED)
    (found,) = explained(before, after).of(CaseComparison(before.case, (metric,), ())).metrics
    assert (found.reason or "").startswith("every layer type is slower by about the same factor")


def test_a_time_within_the_noise_explains_nothing() -> None:
    """The layer takes 0.2 ms more, and its runs are half a millisecond above or below that."""
    before = profile(Ran("a"), Ran("b", "Relu", 1.0), runs=[0.0] * 20)
    after = profile(Ran("a"), Ran("b", "Relu", 1.2, shape=(1, 9)), runs=[-0.5, 0.5] * 10)
    (reason,) = explained(before, after).reasons
    assert reason == (
        "1 of 1 Relu of another shape (first: b, output 1x8 -> 1x9): +0.200 ms, within the noise"
    )


def test_fusions_that_were_lost_are_counted_by_pattern_with_what_they_cost() -> None:
    def net(*, is_fused: bool) -> CaseProfile:
        rows = []
        for index in range(3):
            rows.append(Ran(f"layer{index}.conv", "Conv", 1.0))
            inside = f"layer{index}.conv" if is_fused or index == 0 else None
            rows.append(Ran(f"layer{index}.relu", "Relu", None if inside else 0.2, inside))
        return profile(*rows, Ran("fc", "Gemm", 1.0 if is_fused else 1.1))

    lost = explained(net(is_fused=True), net(is_fused=False))
    assert lost.reasons == (
        ("2 Conv+Relu fusions lost (first: layer1.conv): +0.400 ms, 80 %"),
        "Gemm: the same layer takes 1.10x as long: +0.100 ms, 20 %",
    )
    won = explained(net(is_fused=False), net(is_fused=True), (0.8, 0.9))
    assert won.reasons[0] == ("2 Conv+Relu fusions won (first: layer1.conv): -0.400 ms, 80 %")


def test_a_larger_fusion_that_lost_a_part_is_one_fusion_lost() -> None:
    before = profile(
        Ran("c"), Ran("a", "Add", None, inside="c"), Ran("r", "Relu", None, inside="c")
    )
    after = profile(Ran("c"), Ran("a", "Add", None, inside="c"), Ran("r", "Relu", 0.5))
    (reason,) = explained(before, after).reasons
    assert reason.startswith("1 Conv+Add+Relu fusion lost (first: c)")


def test_a_fusion_of_many_operators_is_named_by_the_first() -> None:
    names = "c a b d e f"
    before = profile(Ran("c", "Opc"), *(Ran(n, f"Op{n}", None, "c") for n in names.split()[1:]))
    after = profile(*(Ran(n, f"Op{n}", 1.0) for n in names.split()))
    (reason,) = explained(before, after, plans=NO_PLANS).reasons
    assert reason.startswith("1 Opc+Opa+Opb+3 more fusion lost (first: c): +5.00 ms, 100 %")


def test_shapes_that_were_computed_once_before_do_not_count_as_a_fusion() -> None:
    """An engine folds what follows from sizes that are not open."""
    shapes = [("s", "Shape"), ("g", "Gather"), ("u", "Unsqueeze")]
    whole = "int64"
    folded = [Ran(n, op, None, "r", precision=whole) for n, op in shapes]
    run = [Ran(n, op, 0.1, precision=whole) for n, op in shapes]
    once, always = profile(*folded, Ran("r", "Reshape")), profile(*run, Ran("r", "Reshape"))
    (lost,) = explained(once, always, plans=NO_PLANS).reasons
    assert lost.startswith("3 layers of shapes, computed once before, run each time now (first: s)")
    (won,) = explained(always, once, (0.7, 0.8), NO_PLANS).reasons
    assert won.startswith("3 layers of shapes, run each time before, computed once now (first: s)")


def test_a_node_that_an_engine_left_out_does_not_count_as_a_lost_fusion() -> None:
    before = profile(Ran("c"), Ran("i", "Identity", None, inside="c"))
    after = profile(Ran("c", ms=1.5), Ran("i", "Identity", None))
    plans = (PlanGraph(()), PlanGraph(()))
    (reason,) = explained(before, after, plans=plans).reasons
    assert reason.startswith("Conv: the same layer takes 1.50x as long")


def test_a_layer_that_computes_in_another_form_is_one_reason() -> None:
    before = profile(Ran("Conv_1", ms=2.0), Ran("Conv_2", ms=2.0))
    after = profile(
        Ran("Conv_1_quant", "ConvInteger", 3.0), Ran("Conv_2_quant", "ConvInteger", 3.0)
    )
    assert explained(before, after).reasons == (
        "2 Conv became ConvInteger (first: Conv_1_quant): +2.00 ms, 100 %",
    )


def test_operators_that_were_added_are_named_with_what_they_take() -> None:
    before = profile(Ran("a", ms=4.0), Ran("gone", "Sin", 0.5))
    after = profile(Ran("a", ms=4.0), Ran("t1", "Transpose", 1.0), Ran("t2", "Transpose", 0.5))
    assert explained(before, after).reasons == (
        "2 Transpose added (first: t1): +1.50 ms, 100 %",
        "1 Sin removed, none left (first: gone): -0.500 ms",
    )


def test_a_reason_of_a_model_of_microseconds_has_a_time() -> None:
    """A quarter of a difference of 2 us was `+0.000 ms`."""
    time = TimeChange(ns=460.0, low_ns=-41.0, high_ns=480.0, share=0.25)
    assert Reason("1 Elu added", replace(time, low_ns=410.0)).in_words() == (
        "1 Elu added: +0.00046 ms, 25 %"
    )
    assert describe_change(time) == "+0.00046 ms (-0.00004 … +0.00048 ms)"
    assert describe_change(replace(time, low_ns=None)) == "+0.00046 ms"


def test_a_part_is_named_once_if_a_fact_already_names_its_layer() -> None:
    """`1 Abs added; 1 Abs added (first: n)` was said of a part."""
    doubts = (Doubt(1.0, 1.0), Doubt(1.0, 1.0))
    before, after = profile(Ran("a")), profile(Ran("a"), Ran("n", "Abs"))
    found = Differences.between(before, after, SLOWER, doubts)
    fact = Reason("1 Abs added (first: n)", parts=frozenset({0, 1}))
    texts = ("1 Abs added", "1 Neg became 1 Abs")
    nothing = (frozenset[str](), frozenset[str]())
    parts = MeasuredParts(texts, nothing, (900.0, 100.0), doubts, KnownPlans())
    (reason,) = part_reasons(found, (fact,), parts)
    assert reason.text == "1 Neg became 1 Abs; 1 Abs added (first: n)"


def test_an_edit_replaces_the_parts_whose_plans_show_the_same() -> None:
    doubts = (Doubt(1.0, 1.0),) * 2
    found = Differences.between(profile(Ran("a")), profile(Ran("a")), SLOWER, doubts)
    text = "1 Relu became 2 kernels (Abs, Add)"
    fact = Reason("2 Relu became Abs and Add (first: n)", parts=frozenset({0, 1}), of_plans=text)
    nothing = (frozenset[str](), frozenset[str]())
    parts = MeasuredParts((text, text), nothing, (900.0, 100.0), doubts, KnownPlans())
    (reason,) = part_reasons(found, (fact,), parts)
    assert reason.text == fact.text
    (other,) = part_reasons(found, (replace(fact, of_plans=None),), parts)
    assert other.text == f"2 x {text}; {fact.text}"


def test_quantized_weights_are_named_with_their_bytes_and_whether_each_run_dequantizes_them() -> (
    None
):
    """It said "all 2 MatMul with other params", for scales and zero points are params, too."""
    plain = storing(404, profile(*(Ran(name, "MatMul") for name in "ab")))
    quantized = storing(108, profile(*(Ran(name, "MatMul", 1.5) for name in "ab")))
    assert explained(plain, quantized).reasons == (
        ("all 2 MatMul with quantized weights (first: a, 404 B -> 108 B): +1.00 ms, 100 %"),
    )
    steps = [step(f"{name}_dq", "DequantizeLinear", f"{name}.weight", name) for name in "ab"]
    plan = PlanGraph((*steps, step("more", "DequantizeLinear", "", "c")), frozenset({"a.weight"}))
    found = explained(plain, quantized, plans=(PlanGraph(()), plan)).reasons
    assert [reason.partition(" (")[0] for reason in found] == [
        "1 of 2 MatMul with quantized weights, dequantized in each run",
        "1 of 2 MatMul with quantized weights",
    ]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (108, 404, "1 of 1 Conv with weights no longer quantized (first: a, 108 B -> 404 B)"),
        (400, 200, "1 of 1 Conv with weights of another type (first: a, 400 B -> 200 B)"),
        (58, 108, "1 of 1 Conv with weights of another type (first: a, 58 B -> 108 B)"),
    ],
)
def test_other_ways_to_store_a_weight_are_recognized_by_their_bytes(
    before: int, after: int, text: str
) -> None:
    sides = storing(before, profile(Ran("a"))), storing(after, profile(Ran("a", ms=2.0)))
    (reason,) = explained(*sides).reasons
    assert reason.startswith(text)


def storing(nbytes: int, case: CaseProfile) -> CaseProfile:
    """The case with weights of 100 params that take this many bytes, in each product."""
    assert case.counted is not None
    layers = tuple(
        replace(each, weight=f"{each.name}.weight", params=100, weight_bytes=nbytes)
        if each.op_type in {"Conv", "MatMul"}
        else each
        for each in case.counted.layers
    )
    return replace(case, counted=replace(case.counted, layers=layers))


def test_a_fusion_that_was_won_explains_no_layer_that_takes_longer() -> None:
    before = profile(Ran("m", "MatMul", 1.0), Ran("a", "Add", 0.2))
    after = profile(Ran("m", "MatMul", 2.2), Ran("a", "Add", None, inside="m"))
    assert explained(before, after, plans=NO_PLANS).reasons == (
        "MatMul: the same layer takes 2.20x as long: +1.20 ms, 100 %",
        "1 MatMul+Add fusion won (first: m)",
    )
    named, _ = explained(storing(404, before), storing(108, after), plans=NO_PLANS).reasons
    assert named.startswith("1 of 1 MatMul with quantized weights")


def test_a_fusion_that_was_lost_explains_no_layer_that_takes_less_time() -> None:
    before = profile(Ran("m", "MatMul", 2.2), Ran("a", "Add", None, inside="m"))
    after = profile(Ran("m", "MatMul", 1.0), Ran("a", "Add", 0.2))
    reasons = explained(before, after, (0.5, 0.6), plans=NO_PLANS).reasons
    assert reasons[0].startswith("MatMul: the same layer takes 0.45x as long: -1.20 ms, 100 %")
    assert reasons[-1] == "1 MatMul+Add fusion lost (first: m)"


def test_fewer_kernels_of_the_engine_explain_no_time_that_these_take_more() -> None:
    sides = [profile(Ran("a"), others=[(RowKind.LAYOUT, "Reorder", ms)]) for ms in (0.5, 1.0)]
    moves = [step(f"r{n}", "Reorder", f"t{n}", f"t{n + 1}") for n in range(2)]
    plans = PlanGraph(tuple(moves)), PlanGraph(tuple(moves[:1]))
    assert explained(sides[0], sides[1], plans=plans).reasons == (
        "Reorder kernels put in by the engine: 2 before, 1 now",
    )


def test_a_gain_is_listed_separately_from_the_cause_of_a_slower_part() -> None:
    doubts = (Doubt(1.0, 1.0),)
    found = Differences.between(profile(Ran("a")), profile(Ran("a", ms=2.0)), SLOWER, doubts)
    gain = Reason("1 MatMul+Add fusion won (first: a)", parts=frozenset({0}), is_gain=True)
    parts = MeasuredParts(
        ("1 Gemm became 2 kernels",), (frozenset(),), (9.0,), doubts, KnownPlans()
    )
    cause, other = part_reasons(found, (gain,), parts)
    assert (cause.text, other) == ("1 Gemm became 2 kernels", Reason(gain.text))
    (faster,) = part_reasons(found, (gain,), replace(parts, shifts_ns=(-9.0,)))
    assert faster.text == "1 Gemm became 2 kernels; 1 MatMul+Add fusion won (first: a)"


def test_layers_of_another_size_are_described_by_what_changed() -> None:
    before = profile(Ran("a"), Ran("b"), Ran("c", "Relu", 0.1))
    after = profile(Ran("a", ms=3.0, shape=(1, 16)), Ran("b"), Ran("c", "Relu", 0.1))
    (reason,) = explained(before, after).reasons
    assert reason == (
        "1 of 2 Conv of another shape (first: a, output 1x8 -> 1x16): +2.00 ms, 100 %"
    )


def test_another_precision_and_another_provider_are_reported() -> None:
    before = profile(
        Ran("a", precision="float16"), Ran("b", provider="XnnpackExecutionProvider"),
        Ran("c", "Relu"),
    )  # fmt: skip
    after = profile(Ran("a", ms=2.0), Ran("b", ms=1.5), Ran("c", "Relu"))
    assert explained(before, after).reasons == (
        ("Conv: 1 layer in float32, before in float16 (first: a): +1.00 ms, 67 %"),
        ("Conv: 1 layer on CPU, before on Xnnpack (first: b): +0.500 ms, 33 %"),
    )


TWO_PROVIDERS = replace(ENGINE, providers=("XnnpackExecutionProvider", "CPUExecutionProvider"))


def test_two_names_of_one_provider_do_not_count_as_a_move() -> None:
    before = profile(Ran("a", provider="CPUExecutionProvider"))
    after = profile(Ran("a", ms=2.0, provider="CPU"))
    assert not any("before on" in reason for reason in explained(before, after).reasons)


def test_types_of_which_each_varies_widely_are_not_slower_by_one_factor() -> None:
    noise = tuple(0.6 * (-1) ** index for index in range(20))
    before = profile(Ran("a"), Ran("b", "Relu"), runs=noise)
    after = profile(Ran("a", ms=0.8), Ran("b", "Relu", 1.6), runs=noise)
    assert not any("same factor" in reason for reason in explained(before, after).reasons)


def test_a_layer_that_falls_back_to_the_last_provider_is_a_regression() -> None:
    xnnpack = "XnnpackExecutionProvider"
    rows = [Ran("a", provider=xnnpack), Ran("b", inside="a"), Ran("c", provider=xnnpack)]
    before = profile(*rows, engine=TWO_PROVIDERS)
    after = profile(*rows[:2], Ran("c"), engine=TWO_PROVIDERS)
    on_cpu, on_xnnpack = provider_metrics(before, after)
    assert (on_cpu.before, on_cpu.after, on_cpu.verdict) == (0, 1, Verdict.REGRESSED)
    assert describe_metric(on_cpu, None) == "layers on CPU 0 before, 1 now"
    # A layer in the kernel of another runs in the same place.
    assert (on_xnnpack.before, on_xnnpack.after, on_xnnpack.gated) == (3, 2, False)
    assert [m.verdict for m in provider_metrics(after, before)] == [
        Verdict.IMPROVED,
        Verdict.PASSED,
    ]
    assert {m.verdict for m in provider_metrics(after, after)} == {Verdict.PASSED}
    assert uncounted_providers(before, after) == ()


def test_layers_of_an_engine_with_one_provider_are_not_counted_by_it() -> None:
    assert provider_metrics(profile(Ran("a")), profile(Ran("a"), Ran("b"))) == ()
    assert uncounted_providers(profile(Ran("a")), profile(Ran("a"))) == ()


def test_an_engine_that_does_not_say_what_ran_where_is_noted() -> None:
    silent = profile(Ran("a", ms=None), engine=TWO_PROVIDERS)
    assert provider_metrics(silent, silent) == ()
    (note,) = uncounted_providers(silent, silent)
    assert note.startswith("layers on each provider are not judged")


def step(name: str, op: str, inputs: str, outputs: str) -> PlanNode:
    return PlanNode(name, op, "", tuple(inputs.split()), tuple(outputs.split()))


def test_kernels_that_the_engine_puts_in_are_counted_in_its_plan() -> None:
    rows = (Ran("a"), Ran("b"))
    before = profile(*rows)
    after = profile(*rows, others=[(RowKind.LAYOUT, "ReorderInput", 0.5)])
    conv, last = step("a", "Conv", "x", "t"), step("b_nchwc", "Conv", "r2", "y")
    moves = (step("r1", "ReorderInput", "t", "r"), step("r2", "ReorderInput", "r", "r2"))
    plans = PlanGraph((conv, last)), PlanGraph((conv, *moves, last))
    assert explained(before, after, plans=plans).reasons == (
        (
            "2 ReorderInput kernels put in by the engine, none before (first: before b):"
            " +0.500 ms, 100 %"
        ),
    )
    back = explained(after, before, (0.7, 0.9), plans[::-1]).reasons
    assert back == (
        ("no ReorderInput kernels put in by the engine any more, 2 before: -0.500 ms, 100 %"),
    )
    assert (
        explained(before, after)
        .reasons[0]
        .startswith("ReorderInput kernels put in by the engine, none before:")
    )


def test_one_factor_of_all_layers_names_the_machine_or_the_runtime() -> None:
    def net(factor: float, last: float = 1.0) -> CaseProfile:
        return profile(
            Ran("a", ms=4.0 * factor),
            Ran("b", "Gemm", 2.0 * factor),
            Ran("c", "Exp", last * factor),
        )

    (reason,) = explained(net(1.0), net(1.2)).reasons
    assert reason == (
        "every layer type is slower by about the same factor (1.20x to 1.20x):"
        " look at the runtime or the machine"
    )
    assert "every layer type is faster" in explained(net(1.2), net(1.0), (0.8, 0.9)).reasons[0]
    uneven = explained(net(1.0), net(1.2, last=1.6)).reasons
    assert not any("the same factor" in reason for reason in uneven)


def test_equally_slower_layers_of_one_type_are_named() -> None:
    sides = [profile(*(Ran(f"x{i}", ms=factor) for i in range(3))) for factor in (1.0, 1.1)]
    assert (
        explained(sides[0], sides[1])
        .reasons[0]
        .startswith("every layer is slower by about the same factor")
    )


def test_one_common_factor_is_not_a_reason_if_the_graph_changed() -> None:
    sides = [
        profile(Ran("a", ms=4 * n, shape=(1, 8 * n)), Ran("b", "Exp", 2.0 * n, shape=(1, 8 * n)))
        for n in (1, 2)
    ]
    reasons = explained(sides[0], sides[1]).reasons
    assert len(reasons) == 2
    assert not any("the same factor" in reason for reason in reasons)


def test_another_engine_and_its_options_are_listed_last() -> None:
    old = make_engine("onnxruntime", "1.20.1", options={"level": "all"})
    new = make_engine("onnxruntime", "1.31.1", options={})
    found = explained(profile(Ran("a"), engine=old), profile(Ran("a", ms=2.0), engine=new))
    assert found.reasons[1:] == (
        "another engine: onnxruntime 1.20.1 before, onnxruntime 1.31.1 now",
        "option level: all before, not set now",
    )


def test_an_unclear_count_is_still_shown() -> None:
    missing = (Uncounted("Blend", "my.ops", 1, "no rule"),)
    found = explained(profile(Ran("a"), uncounted=missing), profile(Ran("a", ms=2.0)))
    assert found.reasons[-1] == "MACs are lower bounds: my.ops::Blend could not be counted"


def test_reasons_show_names_escaped() -> None:
    found = explained(profile(Ran("a")), profile(Ran("a"), Ran("b\x1b[31m", "Evil\n", 1.0)))
    assert found.reasons[0].startswith(r"1 Evil\n added (first: b\x1b[31m)")


def test_the_middle_of_a_name_of_megabytes_is_left_out_of_a_reason() -> None:
    name = "a" + "n" * 10_000_000 + "z"
    reason = explained(profile(Ran("c")), profile(Ran("c"), Ran(name, "Abs"))).reasons[0]
    assert len(reason) < 400
    assert "(first: ann" in reason
    assert "nnz)" in reason


def test_changes_in_the_plan_of_an_engine_name_their_layers() -> None:
    """The second of three blocks has an operator between its convolution and its activation."""
    weights = {f"w{index}": np.ones((4, 4, 3, 3), np.float32) for index in range(3)}
    blocks = [
        f"[block{i}_conv] c{i} = Conv<pads=[1,1,1,1]>(x{i}, w{i}) "
        f"[block{i}_relu] x{i + 1} = Relu(c{i})"
        for i in range(3)
    ]
    parted = blocks[1].replace("[block1_relu]", "[block1_abs] a1 = Abs(c1) [block1_relu]")
    parted = parted.replace("Relu(c1)", "Relu(a1)")
    setup = Setup(policy=SamplingPolicy(max_seconds=0.2))
    cases = [
        measure_model(
            parse(f"g (float[1,4,8,8] x0) => (x3) {{ {' '.join(text)} }}", weights=weights),
            ProfileRequest(),
            setup,
        ).cases[0]
        for text in (blocks, [blocks[0], parted, blocks[2]])
    ]
    # Which share is whose depends on the machine; what happened does not.
    found = explain(cases[0], cases[1])
    facts = [reason.partition(")")[0] for reason in found.reasons]
    assert "1 Abs added (first: block1_abs" in facts
    assert "1 Conv+Relu fusion lost (first: block1_conv" in facts
    total = sum(change.time.ns for change in found.layers if change.time is not None)
    latencies = [case.latency.median_ns for case in cases]
    assert total == pytest.approx(latencies[1] - latencies[0])
