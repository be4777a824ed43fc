"""Kernel times become layer times: none is lost or counted twice, they sum to the latency."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_modelperf.graph.structure import Graph, PlanGraph, PlanNode
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.layers import Attributed, attribute, layer_indexes
from pytest_modelperf.profiler.measurements import Kernel, KernelRun, LayerTime, RowKind
from tests.support.graph_models import load

_BLOCKED = "com.microsoft.nchwc"


def _kernel(name: str, op_type: str, *self_us: float, calls: int = 1) -> Kernel:
    times = tuple(1000 * value for value in self_us or (10.0,))
    return Kernel(name=name, op_type=op_type, self_ns=times, calls=calls, provider="CPU")


def _run(*kernels: Kernel, plain_us: float = 0.0, profiled_us: float = 0.0) -> KernelRun:
    """Runs that all took as long; profiled ones at least as long as their kernels."""
    runs = max((len(k.self_ns) for k in kernels), default=1)
    spent = sum(k.self_ns[0] for k in kernels)
    plain = 1000 * plain_us or spent
    whole = 1000 * profiled_us or max(plain, spent)
    return KernelRun(kernels=kernels, run_ns=(whole,) * runs, plain_ns=(plain,) * runs)


def _step(name: str, op_type: str, inputs: str, outputs: str, **bodies: PlanGraph) -> PlanNode:
    domain = _BLOCKED if name.endswith("_nchwc") else ""
    return PlanNode(name, op_type, domain, tuple(inputs.split()), tuple(outputs.split()), bodies)


class _Model:
    """A model from its text, with its static layers."""

    def __init__(self, text: str) -> None:
        self.graph: Graph = load(text).graph
        self.layers: tuple[StaticLayer, ...] = profile_graph(self.graph).layers

    def rows(
        self,
        run: KernelRun,
        *steps: PlanNode,
        constants: str = "",
        latency_us: float = 0.0,
        waits: bool = False,
    ) -> tuple[LayerTime, ...]:
        return self.attributed(
            run, *steps, constants=constants, latency_us=latency_us, waits=waits
        ).times

    def attributed(
        self,
        run: KernelRun,
        *steps: PlanNode,
        constants: str = "",
        latency_us: float = 0.0,
        waits: bool = False,
    ) -> Attributed:
        plan = PlanGraph(steps, frozenset(constants.split())) if steps else None
        latency_ns = 1000 * latency_us or run.plain_ns[0]
        names = {node.name or node.id: node for node in self.graph.walk()}
        return attribute(run, plan, self.graph, self.layers, latency_ns, names, waits=waits)

    def shown(self, run: KernelRun, *steps: PlanNode, constants: str = "") -> dict[str, list[str]]:
        """For each layer with a time the layers that are fused into it, by their ids."""
        rows = self.rows(run, *steps, constants=constants)
        return {
            self.layers[row.layer].id: [self.layers[index].id for index in row.fused]
            for row in rows
            if row.layer is not None
        }


_CONV = """g (float[1, 8, 6, 6] x) => (y)
    <float[8, 8, 1, 1] w = {1, 0}, float[8, 8, 1, 1] v = {1, 0}> {
    c = Conv (x, w)
    r = Relu (c)
    d = Conv (r, v)
    s = Add (d, r)
    y = Relu (s)
}""".replace("{1, 0}", "{" + "1, " * 63 + "1}")


# -- what is fused


def test_a_kernel_is_recognized_by_the_original_tensor_that_it_makes() -> None:
    """Conv and Relu in one kernel of another name; its time is shown where the MACs are."""
    steps = (
        _step("fused 1", "FusedConv", "x w", "r"),
        _step("fused 2", "FusedConv", "r v", "d"),
        _step("s", "Add", "d r", "s"),
        _step("y", "Relu", "s", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    assert _Model(_CONV).shown(run, *steps) == {"c": ["r"], "d": [], "s": [], "y": []}


def test_in_a_blocked_layout_the_users_of_a_tensor_show_where_its_kernel_ends() -> None:
    """The second kernel is named after the convolution, and has the Add and the Relu in it."""
    steps = (
        _step("r_nchwc", "Conv", "x reorder_w", "reorder_1"),
        _step("d_nchwc", "Conv", "reorder_1 reorder_v reorder_1", "reorder_2"),
        _step("ReorderOutput", "ReorderOutput", "reorder_2", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    model = _Model(_CONV)

    assert model.shown(run, *steps) == {"c": ["r"], "d": ["s", "y"]}
    assert [row.kernel for row in model.rows(run, *steps) if row.kind is RowKind.LAYOUT] == [
        "ReorderOutput"
    ]


def test_a_blocked_kernel_may_be_named_after_a_copy_in_another_type() -> None:
    """ONNX Runtime has no kernels for half floats, so it casts at both ends, and renames."""
    steps = (
        _step("InsertedPrecisionFreeCast_x", "Cast", "x", "InsertedPrecisionFreeCast_x"),
        _step(
            "InsertedPrecisionFreeCast_r_nchwc",
            "Conv",
            "InsertedPrecisionFreeCast_x w",
            "reorder_1",
        ),
        _step("InsertedPrecisionFreeCast_d_nchwc", "Conv", "reorder_1 v reorder_1", "reorder_2"),
        _step("ReorderOutput", "ReorderOutput", "reorder_2", "InsertedPrecisionFreeCast_y"),
        _step("InsertedPrecisionFreeCast_y", "Cast", "InsertedPrecisionFreeCast_y", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    assert _Model(_CONV).shown(run, *steps) == {"c": ["r"], "d": ["s", "y"]}


@pytest.mark.parametrize("name", ["b_nchwc", "b_bn_nchwc", "b_nchwc_token_12"])
def test_a_blocked_kernel_is_known_by_its_name(name: str) -> None:
    model = _Model(
        "g (float[1, 2, 4, 4] x, float[2] k) => (y) "
        "{ b = BatchNormalization (x, k, k, k, k)  y = Relu (b) }"
    )
    steps = (
        _step("in", "ReorderInput", "x", "t1"),
        _step(name, "Conv", "t1 scale", "t2"),
        _step("out", "ReorderOutput", "t2", "b"),
        _step("y", "Relu", "b", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    assert model.shown(run, *steps, constants="scale") == {"b": [], "y": []}


_DENSE = """g (float[2, 3, 4] x) => (y) <float[4] b = {1, 2, 3, 4}> {
    k = Constant <value = float[4, 4] {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> ()
    m = MatMul (x, k)
    a = Add (m, b)
    y = Sigmoid (a)
}"""


def test_reshapes_put_in_around_a_kernel_belong_to_it() -> None:
    """ONNX Runtime makes a Gemm of MatMul and Add, and reshapes its input and output for it."""
    steps = (
        _step("gemm_input_reshape", "Reshape", "x shape", "t1"),
        _step("m/MatMulAddFusion", "Gemm", "t1 k b", "t2"),
        _step("gemm_output_reshape", "Reshape", "t2 shape2", "a"),
        _step("y", "Sigmoid", "a", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    model = _Model(_DENSE)
    assert model.shown(run, *steps, constants="shape shape2 k b") == {"m": ["a"], "y": []}
    row = model.rows(run, *steps)[0]
    assert row.kernel == "gemm_input_reshape + m/MatMulAddFusion + gemm_output_reshape"
    assert row.ns == pytest.approx(30_000)


def test_a_node_that_runs_as_several_nameless_kernels_has_the_time_of_all() -> None:
    model = _Model("g (float[4] x) => (y) { h = HardSwish (x)  y = HardSwish (h) }")
    steps = (
        _step("", "HardSigmoid", "x", "t1"),
        _step("", "Mul", "x t1", "h"),
        _step("", "HardSigmoid", "h", "t2"),
        _step("", "Mul", "h t2", "y"),
    )
    kernels = [
        _kernel("HardSigmoid_7", "HardSigmoid", 1),
        _kernel("Mul_8", "Mul", 2),
        _kernel("HardSigmoid_9", "HardSigmoid", 4),
        _kernel("Mul_10", "Mul", 8),
    ]
    rows = model.rows(_run(*kernels), *steps)
    assert [round(row.ns) for row in rows[:2]] == [3000, 12000]


def test_a_node_folded_into_a_constant_is_not_fused_into_its_users() -> None:
    model = _Model("""g (float[N, 4] x) => (y) {
        s = Shape (x)
        r = Relu (x)
        y = Reshape (r, s)
    }""")
    steps = (_step("r", "Relu", "x", "r"), _step("y", "Reshape", "r s", "y"))
    run = _run(_kernel("r", "Relu"), _kernel("y", "Reshape"))
    shown = model.shown(run, *steps, constants="s")
    assert shown == {"r": [], "y": []}


def test_each_layer_is_in_one_kernel_only() -> None:
    """Two kernels both start from a node that was eliminated: the first of them has it."""
    model = _Model(
        "g (float[4] x) => (y, z) { r = Relu (x)  i = Identity (r)  y = Sin (i)  z = Cos (i) }"
    )
    steps = (_step("r", "Relu", "x", "r"), _step("y", "Sin", "r", "y"), _step("z", "Cos", "r", "z"))
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    assert model.shown(run, *steps) == {"r": [], "y": ["i"], "z": []}


def test_inserted_transpositions_are_layout_and_casts_are_not() -> None:
    model = _Model("g (float[2, 2] x) => (y) { y = Relu (x) }")
    steps = (
        _step("Transpose_token_1", "Transpose", "x", "t"),
        _step("InsertedCast_y", "Cast", "t", "u"),
        _step("y", "Relu", "u", "v"),
        _step("Transpose_token_2", "Transpose", "v", "y"),
    )
    run = _run(*(_kernel(step.name, step.op_type) for step in steps))
    rows = model.rows(run, *steps)
    assert [(row.kind, row.kernel, round(row.ns)) for row in rows] == [
        (RowKind.LAYER, "y", 10_000),
        (RowKind.LAYOUT, "Transpose", 20_000),
        (RowKind.OTHER, "Cast", 10_000),
        (RowKind.OVERHEAD, "", 0),
    ]


def test_a_transposition_that_the_model_has_is_a_layer() -> None:
    model = _Model("g (float[2, 2] x) => (y) { t = Transpose (x)  y = Relu (t) }")
    steps = (_step("t", "Transpose", "x", "t"), _step("y", "Relu", "t", "y"))
    run = _run(_kernel("t", "Transpose"), _kernel("y", "Relu"))
    assert model.shown(run, *steps) == {"t": [], "y": []}


# -- without a plan


def test_without_a_plan_the_names_of_kernels_are_used() -> None:
    run = _run(_kernel("r_nchwc", "Conv"), _kernel("d", "Conv"), _kernel("who knows", "Magic"))
    model = _Model(_CONV)
    assert model.shown(run) == {"r": [], "d": []}
    assert [row.kernel for row in model.rows(run) if row.kind is RowKind.OTHER] == ["Magic"]


def test_an_engine_can_say_itself_which_nodes_a_kernel_represents() -> None:
    def kernel(name: str, op_type: str, *originals: str) -> Kernel:
        return Kernel(name=name, op_type=op_type, self_ns=(1.0,), originals=originals)

    run = _run(kernel("A", "Convolution", "c", "r"), kernel("B", "Reorder"), kernel("C", "Convert"))
    model = _Model(_CONV)
    assert model.shown(run) == {"c": ["r"]}
    assert [row.kind for row in model.rows(run)] == [
        RowKind.LAYER,
        RowKind.LAYOUT,
        RowKind.OTHER,
        RowKind.OVERHEAD,
    ]


def test_without_macs_the_time_is_where_most_operations_are() -> None:
    model = _Model(
        "g (float[2, 8] x, float[8] s) => (y) "
        "{ a = Add (x, x)  n = LayerNormalization (a, s)  y = Identity (n) }"
    )
    run = _run(_kernel("skip", "SkipLayerNormalization"))
    steps = (_step("skip", "SkipLayerNormalization", "x x s", "y"),)
    assert model.shown(run, *steps) == {"n": ["a", "y"]}


# -- control flow

_LOOP = """g (float[4] x, bool c) => (y) {
    n = Constant <value = int64 {3}> ()
    k = Constant <value = bool {1}> ()
    l = Loop (n, k, x) <body = b (int64 i, bool ci, float[4] a) => (co, o) {
        co = Identity (ci)
        q = Sin (a)
        o = Relu (q)
    }>
    y = If (c) <
        then_branch = t () => (u) { q = Sin (l)  u = Cos (q) },
        else_branch = e () => (v) { v = Neg (l) }
    >
}"""


def test_kernels_in_a_body_are_layers_of_the_body() -> None:
    """`q` is a tensor of two bodies; each has a kernel that makes it, of another name."""
    inner = PlanGraph((_step("fused", "SinRelu", "a", "o"), _step("co", "Identity", "ci", "co")))
    then = PlanGraph((_step("fused in then", "SinCos", "l", "u"),))
    steps = (
        _step("l", "Loop", "n k x", "l", body=inner),
        _step("y", "If", "c", "y", then_branch=then),
    )
    run = _run(
        _kernel("fused", "SinRelu", calls=3),
        _kernel("co", "Identity"),
        _kernel("l", "Loop"),
        _kernel("fused in then", "SinCos"),
        _kernel("y", "If"),
    )
    model = _Model(_LOOP)
    rows = model.rows(run, *steps)
    ids = [layer.id for layer in model.layers]
    fused = {ids[r.layer]: [ids[i] for i in r.fused] for r in rows if r.layer is not None}
    # A sine takes more than a ReLU, and as much as a cosine.
    assert fused == {"l": [], "co": [], "q": ["o"], "y": [], "u": ["q"]}
    assert {r.layer for r in rows if r.kernel == "fused in then"} == {ids.index("u")}


def test_the_layers_of_a_graph_are_its_nodes_in_order() -> None:
    model = _Model(_LOOP)
    indexes = layer_indexes(model.graph, model.layers)
    by_index: dict[int, list[str]] = {}
    for node, index in indexes.items():
        by_index.setdefault(index, []).append(node.id)
    ids = [layer.id for layer in model.layers]
    assert ids == ["l", "co", "q", "o", "y", "q", "u"]
    # The branch that was not counted belongs to the If.
    assert by_index == {
        index: [layer_id, "v"] if layer_id == "y" else [layer_id]
        for index, layer_id in enumerate(ids)
    }


def test_layers_of_another_graph_are_refused() -> None:
    model = _Model(_LOOP)
    with pytest.raises(ValueError, match="not those of this graph"):
        layer_indexes(model.graph, model.layers[:-1])


# -- times


_RELU_SIN = "g (float[4] x) => (y) { r = Relu (x)  y = Sin (r) }"


@pytest.mark.parametrize(
    ("kernels_us", "runs_us", "latency_us", "shown_ns"),
    [
        ((10, 60), (100, 0), 200, [20_000, 120_000, 60_000]),
        ((50, 150), (100, 0), 0, [25_000, 75_000, 0]),
        ((20, 70), (100, 300), 0, [20_000, 70_000, 10_000]),
        # The profiled runs had quiet: all but 5 % of their own time was in their kernels.
        ((25, 70), (180, 100), 200, [50_000, 140_000, 10_000]),
    ],
    ids=[
        *("scaled to the latency", "kernels slower than the inference", "the cost of profiling"),
        "a noisy minute of the plain inferences",
    ],
)
def test_time_outside_kernels_is_overhead_and_all_is_scaled_to_the_latency(
    kernels_us: tuple[int, int], runs_us: tuple[int, int], latency_us: int, shown_ns: list[int]
) -> None:
    (relu, sin), (plain, profiled) = kernels_us, runs_us
    run = _run(
        _kernel("r", "Relu", relu), _kernel("y", "Sin", sin), plain_us=plain, profiled_us=profiled
    )
    rows = _Model(_RELU_SIN).rows(run, latency_us=latency_us)
    assert [row.kind for row in rows] == [RowKind.LAYER, RowKind.LAYER, RowKind.OVERHEAD]
    assert [round(row.ns) for row in rows] == shown_ns


def test_noise_that_hits_one_kernel_a_run_does_not_count_as_overhead() -> None:
    """No kernel is typically slow, and each run is: the rest is that of the same run."""
    model = _Model("g (float[4] x) => (y) { r = Relu (x)  s = Sin (r)  y = Cos (s) }")
    kernels = [
        _kernel(name, op, *(100.0 if run % 3 == place else 10.0 for run in range(9)))
        for place, (name, op) in enumerate([("r", "Relu"), ("s", "Sin"), ("y", "Cos")])
    ]
    *layers, overhead = model.rows(_run(*kernels, plain_us=150), latency_us=150)
    assert overhead.ns == pytest.approx(30_000)
    assert [row.ns for row in layers] == pytest.approx([40_000] * 3)


def test_kernels_without_a_time_for_every_run_are_compared_with_a_typical_one() -> None:
    model = _Model(_RELU_SIN)
    run = _run(_kernel("r", "Relu", 20, 20, 20), _kernel("y", "Sin", 70, 70), plain_us=100)
    rows = model.rows(run)
    assert [round(row.ns) for row in rows] == [20_000, 70_000, 10_000]
    assert rows[-1].half_width_ns is None


def test_a_kernel_that_others_held_up_in_most_runs_takes_what_it_takes_without_them() -> None:
    model = _Model(_RELU_SIN)
    held_up = [100.0, 250.0, 300.0, 101.0, 280.0, 310.0, 290.0, 99.0, 260.0, 270.0]
    run = _run(_kernel("r", "Relu", *held_up), _kernel("y", "Sin", *[50.0] * 10), plain_us=400)
    relu, sin, overhead, waiting = model.rows(run, latency_us=400, waits=True)
    assert (round(relu.ns), round(sin.ns)) == (100_000, 50_000)
    assert waiting.kind is RowKind.WAITING
    assert relu.ns + sin.ns + overhead.ns + waiting.ns == pytest.approx(400_000)


def test_overhead_that_others_held_up_in_most_runs_takes_what_it_takes_without_them() -> None:
    """Each run waited somewhere: in its kernel, or outside of it."""
    model = _Model("g (float[4] x) => (y) { y = Sin (x) }")
    kernel = _kernel("y", "Sin", *[50.0] * 6, *[350.0] * 4)
    whole = (*[1000.0 * 350] * 6, *[1000.0 * 360] * 4)
    run = KernelRun(kernels=(kernel,), run_ns=whole, plain_ns=(1000.0 * 400,) * 10)
    sin, overhead, waiting = model.rows(run, latency_us=400, waits=True)
    assert [round(row.ns, -3) for row in (sin, overhead, waiting)] == [50_000, 10_000, 340_000]


def test_only_what_others_disturbed_waits() -> None:
    model = _Model("g (float[4] x) => (y) { y = Sin (x) }")
    run = _run(_kernel("y", "Sin", *[50.0] * 10))
    assert [row.kind for row in model.rows(run, latency_us=60)] == [RowKind.LAYER, RowKind.OVERHEAD]
    scaled = model.rows(run, latency_us=40, waits=True)
    assert [(row.kind, round(row.ns)) for row in scaled] == [
        (RowKind.LAYER, 40_000),
        (RowKind.OVERHEAD, 0),
    ]


def test_without_any_kernel_all_is_overhead() -> None:
    model = _Model("g (float[4] x) => (y) { y = Relu (x) }")
    rows = model.rows(_run(plain_us=7), latency_us=14)
    assert [(row.kind, row.ns) for row in rows] == [(RowKind.OVERHEAD, 14_000)]


def test_one_slow_run_does_not_move_a_layer() -> None:
    model = _Model("g (float[4] x) => (y) { y = Relu (x) }")
    run = _run(_kernel("y", "Relu", 10, 10, 10, 10, 9000), plain_us=100)
    assert model.rows(run)[0].ns == pytest.approx(10_000, abs=1000)


def test_between_the_ticks_of_a_coarse_clock_the_median_follows_the_shares() -> None:
    """A kernel of 2.2 us on average that is written down as 2 or 3, with half a tick added."""
    model = _Model("g (float[4] x) => (y) { y = Relu (x) }")
    mostly_two = _run(_kernel("y", "Relu", *[2.5] * 14, *[1.5] * 6), plain_us=100)
    mostly_low = _run(_kernel("y", "Relu", *[2.5] * 11, *[1.5] * 9), plain_us=100)
    high, low = (model.rows(run)[0].ns for run in (mostly_two, mostly_low))
    assert 2000 < low < high < 3000


_US = st.floats(0.5, 1e6)


@given(
    st.dictionaries(st.sampled_from(["r", "y", "ReorderInput", "Cast_1", "s"]), _US, min_size=1),
    _US,
    _US,
)
def test_the_rows_sum_to_the_latency(
    times: Mapping[str, float], plain_us: float, latency_us: float
) -> None:
    model = _Model("g (float[4] x) => (y) { r = Relu (x)  s = Sin (r)  y = Cos (s) }")
    run = _run(*(_kernel(n, n.split("_")[0], us) for n, us in times.items()), plain_us=plain_us)
    rows = model.rows(run, latency_us=latency_us)
    assert sum(row.ns for row in rows) == pytest.approx(1000 * latency_us, rel=1e-9)
    assert all(row.ns >= 0 for row in rows)
    shown = [row.layer for row in rows if row.layer is not None]
    assert len(shown) == len(set(shown))


# -- the kernels of the plan


def test_each_kernel_of_a_row_has_its_share_of_the_time() -> None:
    """Two reorders are one row, and two boxes of a picture."""
    steps = (
        _step("in", "ReorderOutput", "x", "t1"),
        _step("r_nchwc", "Conv", "t1 w", "t2"),
        _step("out", "ReorderOutput", "t2", "r"),
        _step("idle", "Shape", "r", "s1"),
    )
    run = _run(
        _kernel("in", "ReorderOutput", 10),
        _kernel("r_nchwc", "Conv", 50),
        _kernel("out", "ReorderOutput", 30),
        plain_us=100,
    )
    found = _Model(_CONV).attributed(run, *steps)
    assert found.kernels is not None
    assert [kernel.inputs for kernel in found.kernels] == [(), (0,), (1,), (2,)]
    assert [kernel.ns for kernel in found.kernels] == [10_000, 50_000, 30_000, None]
    assert [kernel.layer for kernel in found.kernels] == [None, 0, None, None]
    shown = sum(row.ns for row in found.times if not row.kind.is_outside_kernels)
    assert sum(kernel.ns or 0.0 for kernel in found.kernels) == pytest.approx(shown)


def test_without_a_plan_no_kernels_are_known() -> None:
    assert _Model(_CONV).attributed(_run(_kernel("c", "Conv"))).kernels is None
