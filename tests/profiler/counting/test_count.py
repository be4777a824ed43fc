"""Graphs that are counted, and their memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pytest_modelperf.errors import ExtensionError
from pytest_modelperf.graph.operators.cost import Contraction, Cost
from pytest_modelperf.graph.shape_rules import OutputType
from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import StaticProfile, Uncounted
from pytest_modelperf.profiler.hookspecs import Operators
from tests.support.small_models import layer_of, ones, parse, sparse_of, static_of

AT_RUN_TIME = "its shapes are known only at run time"
TRIPS_AT_RUN_TIME = "its trip count is known only at run time: its body is counted once"


def backward(profile: StaticProfile) -> list[int | None]:
    return [layer.backward_macs for layer in profile.layers if layer.macs]


# -- what is not counted


def test_operators_without_a_rule_are_listed_with_their_number() -> None:
    profile = static_of(
        "g (float[2,4] x) => (y) {"
        "a = Relu(x) b = my.ops.Blend(a) c = my.ops.Blend(b) d = my.ops.Mix(x) y = Relu(x) }"
    )
    assert set(profile.uncounted) == {
        Uncounted("Blend", "my.ops", 2, "no rule for this operator"),
        Uncounted("Mix", "my.ops", 1, "no rule for this operator"),
    }
    assert profile.coverage == 1 - 3 / 5
    assert profile.elementwise_ops == 2 * 8
    assert layer_of(profile, "my.ops::Mix").macs is None


def test_layers_behind_an_unknown_output_are_listed_too() -> None:
    profile = static_of(
        "g (float[2,4] x) => (float[a,b] y) { h = my.ops.Blend(x) y = MatMul(h, w) }", w=ones(4, 4)
    )
    assert profile.uncounted == (
        Uncounted("Blend", "my.ops", 1, "no rule for this operator"),
        Uncounted("MatMul", "", 1, AT_RUN_TIME),
    )
    assert profile.coverage == 0.0
    assert profile.params == 16


def test_a_size_that_depends_on_data_leaves_the_layers_behind_it_uncounted() -> None:
    profile = static_of(
        "g (float[2,3] x) => (z) { i = NonZero(x) f = Cast<to=1>(i) z = MatMul(f, w) }",
        w=ones(6, 5),
    )
    assert {(u.op_type, u.reason) for u in profile.uncounted} == {
        ("Cast", AT_RUN_TIME),
        ("MatMul", AT_RUN_TIME),
    }
    assert profile.coverage == pytest.approx(1 / 3)


def test_an_operator_is_missing_once_however_many_reasons_there_are() -> None:
    profile = static_of(
        "g (float[2,3] x) => (y) {"
        "y = my.ops.Repeat<body = b (float[2,3] r) => (float[2,3] o) { o = Relu(r) }>(x) }"
    )
    assert sum(u.count for u in profile.uncounted) == 1
    assert profile.coverage == 0.5


def test_a_mixture_of_experts_without_experts_is_listed() -> None:
    profile = static_of(
        "m (float[4,16] x, float[4,3] s) => (float[4,16] y) { y = com.microsoft.MoE(x, s, w) }",
        w=np.array(1, np.float32),
    )
    assert [entry.reason for entry in profile.uncounted] == ["its inputs do not fit the operator"]


def test_an_operator_with_a_negative_size_is_listed() -> None:
    profile = static_of("m (float[1,4,5,5] x) => (float[1,4,5,5] y) { y = LRN<size = -300>(x) }")
    assert [entry.reason for entry in profile.uncounted] == ["its inputs do not fit the operator"]
    assert profile.elementwise_ops == 0


def test_the_standard_domain_may_be_spelled_out() -> None:
    spelled = static_of("g (float[2,3] x) => (float[2,3] y) { y = ai.onnx.Relu(x) }")
    plain = static_of("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    assert spelled == plain


# -- bodies


# A body that a count of trips runs.
LOOP = """
    y = Loop<body = b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t) {
        on = Identity(go)
        t = MatMul(s, w)
    }>(n, , x)
"""
THREE_TRIPS = f"g (float[2,4] x) => (y) {{ n = Constant<value_int=3>() {LOOP} }}"


def test_a_body_counts_once_a_trip() -> None:
    profile = static_of(THREE_TRIPS, w=ones(4, 4))
    product = layer_of(profile, "MatMul")
    assert product.macs == profile.macs == 3 * 2 * 4 * 4
    assert product.repeats == 3
    assert product.output_bytes == 3 * 2 * 4 * 4
    assert (product.params, profile.params) == (16, 16)
    assert profile.coverage == 1.0


def test_trips_of_nested_loops_multiply() -> None:
    profile = static_of(
        """g (float[2,4] x) => (y) {
            n = Constant<value_int=3>()
            y = Loop<body = b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t) {
                on = Identity(go)
                m = Constant<value_int=5>()
                t = Loop<body = c (int64 j, bool g, float[2,4] u) => (bool o, float[2,4] v) {
                    o = Identity(g)
                    v = MatMul(u, w)
                }>(m, , s)
            }>(n, , x)
        }""",
        w=ones(4, 4),
    )
    assert layer_of(profile, "MatMul").repeats == 3 * 5
    assert profile.macs == 3 * 5 * 2 * 4 * 4


def test_the_steps_of_a_scan_are_the_length_of_what_it_scans() -> None:
    profile = static_of(
        "g (float[7,3] x) => (y) { y = Scan<num_scan_inputs=1,"
        "body = b (float[3] r) => (float[3] o) { o = Relu(r) }>(x) }"
    )
    assert profile.elementwise_ops == 7 * 3
    assert layer_of(profile, "Relu").repeats == 7


def test_a_scan_of_a_batch_steps_through_each_of_its_items() -> None:
    model = parse(
        """g (float[2,1,4] start, float[2,7,1,4] xs) => (float[2,1,4] last, float[2,7,1,5] ys) {
            last, ys = Scan<num_scan_inputs = 1,
                body = b (float[1,4] s, float[1,4] x) => (float[1,4] t, float[1,5] y) {
                    t = Add(s, x)
                    y = MatMul(t, w)
                }>("", start, xs)
        }""",
        opset=8,
        weights={"w": ones(4, 5)},
    )
    product = layer_of(static_of(model), "MatMul")
    assert (product.repeats, product.output_shape) == (2 * 7, (1, 5))
    assert product.macs == 2 * 7 * 4 * 5


def test_loops_of_unknown_length_are_listed_and_counted_once() -> None:
    profile = static_of(f"g (float[2,4] x, int64 n) => (y) {{ {LOOP} }}", w=ones(4, 4))
    assert profile.uncounted == (Uncounted("Loop", "", 1, TRIPS_AT_RUN_TIME),)
    assert profile.coverage == pytest.approx(2 / 3)
    assert profile.macs == 2 * 4 * 4


@pytest.mark.parametrize(
    ("left", "right", "macs", "elementwise_ops"),
    [
        # MACs decide, and elementwise operations if there are no MACs.
        ("r = MatMul(x, w)", "h = Exp(x) r = Exp(h)", 2 * 4 * 4, 0),
        ("h = Exp(x) r = Exp(h)", "r = MatMul(x, w)", 2 * 4 * 4, 0),
        ("r = Relu(x)", "r = Exp(x)", 0, 32 * 8),
    ],
)
def test_the_costlier_branch_of_an_if_counts_and_a_note_says_so(
    left: str, right: str, macs: int, elementwise_ops: int
) -> None:
    branches = [
        f"{name} = {name} () => (float[2,4] r) {{ {body} }}"
        for name, body in (("then_branch", left), ("else_branch", right))
    ]
    profile = static_of(
        f"g (float[2,4] x, bool c) => (y) {{ [choice] y = If<{', '.join(branches)}>(c) }}",
        w=ones(4, 4),
    )
    assert (profile.macs, profile.elementwise_ops) == (macs, elementwise_ops)
    assert profile.coverage == 1.0
    assert profile.notes == snapshot(
        ("If 'choice': which branch runs is not known before a run; the costlier one is counted",)
    )


def test_a_chain_of_choices_is_weighed_once() -> None:
    depth = 10
    text = "q0 = my.ops.Leaf(x)"
    for n in range(1, depth + 1):
        text = f"""q{n} = If(c) <
            then_branch = t () => (float[4] p{n}) {{ p{n} = Neg(x) }},
            else_branch = e () => (float[4] q{n - 1}) {{ {text} }}
        >"""
    calls: list[Node] = []

    def count(node: Node) -> Cost:
        calls.append(node)
        return Cost(elementwise_ops=100)

    operators = Operators()
    operators.register("my.ops::Leaf", count=count)
    profile = static_of(f"g (float[4] x, bool c) => (float[4] q{depth}) {{ {text} }}", operators)
    assert profile.elementwise_ops == 100
    assert profile.undecided == depth
    # Weighing each choice again would be 2 to the power of the depth.
    assert len(calls) <= 2 * depth


def test_only_the_taken_branch_of_a_constant_if_is_there() -> None:
    profile = static_of(
        """g (float[2,4] x) => (y) {
            c = Constant<value = bool {0}>()
            y = If<then_branch = t () => (float[2,4] a) { a = MatMul(x, w) },
                   else_branch = e () => (float[2,4] b) { b = Relu(x) }>(c)
        }""",
        w=ones(4, 4),
    )
    assert [layer.op_type for layer in profile.layers] == ["If", "Relu"]
    assert profile.notes == ()
    assert profile.params == 0


# -- gradients


def test_a_first_layer_needs_no_gradient_of_its_input() -> None:
    profile = static_of(
        "g (float[2,3] x) => (y) { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }",
        v=ones(3, 4),
        w=ones(4, 5),
    )
    first, second = 2 * 3 * 4, 2 * 4 * 5
    assert backward(profile) == [first, 2 * second]


def test_a_product_of_two_activations_needs_both_gradients() -> None:
    profile = static_of(
        "g (float[1,4,4] x) => (y) { q = MatMul(x, v) k = MatMul(x, w) y = MatMul(q, k) }",
        v=ones(4, 4),
        w=ones(4, 4),
    )
    assert backward(profile) == [64, 64, 2 * 64]


def test_a_product_of_two_inputs_needs_no_gradient() -> None:
    profile = static_of("g (float[2,3] a, float[3,4] b) => (y) { y = MatMul(a, b) }")
    assert backward(profile) == [0]


@pytest.mark.parametrize(
    "blocked",
    [
        "i = ArgMax<axis=1>(h) f = Cast<to=1>(i)",
        "i = Cast<to=6>(h) f = Cast<to=1>(i)",
        "i = Shape(h) f = Cast<to=1>(i)",
    ],
)
def test_no_gradient_flows_through_integers(blocked: str) -> None:
    profile = static_of(
        f"g (float[2,3] x) => (y) {{ h = MatMul(x, v) {blocked} r = ReduceSum(f) y = Mul(r, x)"
        "z = MatMul(y, w) }",
        v=ones(3, 4),
        w=ones(3, 4),
    )
    assert backward(profile) == [24, 24]


def test_integer_weights_are_frozen() -> None:
    profile = static_of(
        "g (uint8[2,3] x) => (y) { h = MatMulInteger(x, v) f = Cast<to=1>(h) y = MatMul(f, w) }",
        v=np.ones((3, 4), np.uint8),
        w=ones(4, 5),
    )
    assert backward(profile) == [0, 2 * 4 * 5]


def test_packed_weights_are_frozen_and_let_the_gradient_through() -> None:
    profile = static_of(
        "g (float[2,32] x) => (y) { h = MatMul(x, w)"
        "y = com.microsoft.MatMulNBits<K=32, N=4, bits=4, block_size=32>(h, b, s) }",
        w=ones(32, 32),
        b=np.zeros((4, 1, 16), np.uint8),
        s=ones(4),
    )
    assert backward(profile) == [2 * 32 * 32, 2 * 32 * 4]


def test_the_gradient_reaches_what_a_loop_carries() -> None:
    """From the second trip on, the carried value depends on the weight."""
    assert backward(static_of(THREE_TRIPS, w=ones(4, 4))) == [2 * 3 * 2 * 4 * 4]


# -- counters of plugins


def registered(op: str, count: object) -> Operators:
    operators = Operators()
    operators.register(op, count=count)  # type: ignore[arg-type]  # some are wrong on purpose
    return operators


BLEND = "g (float[2,3] x) => (float[2,3] y) { [blend_1] y = my.ops.Blend(x, w) }"


def test_a_counter_of_a_plugin_counts_its_operator() -> None:
    def count(node: Node) -> Cost:
        size = node.input(0).size
        return Cost((Contraction(7 * size, (0, 1)),), elementwise_ops=2 * size)

    profile = static_of(BLEND, registered("my.ops::Blend", count), w=ones(3))
    assert (profile.macs, profile.elementwise_ops) == (7 * 6, 2 * 6)
    # The weight needs a gradient, the model's input does not.
    assert profile.backward_macs == 7 * 6
    assert profile.coverage == 1.0


@pytest.mark.parametrize("name", ["Relu", "ai.onnx::Relu"])
def test_a_counter_of_a_plugin_goes_before_the_built_in_one(name: str) -> None:
    profile = static_of(
        "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }",
        registered(name, lambda _: Cost(elementwise_ops=1000)),
    )
    assert profile.elementwise_ops == 1000


def test_a_counter_that_needs_an_unknown_shape_leaves_its_node_uncounted() -> None:
    def count(node: Node) -> Cost:
        return Cost(elementwise_ops=node.output().size)

    profile = static_of(
        "g (float[2,3] x) => (y) { y = my.ops.Blend(x) }", registered("my.ops::Blend", count)
    )
    assert profile.uncounted == (Uncounted("Blend", "my.ops", 1, AT_RUN_TIME),)


def test_a_counter_that_fails_is_named_with_its_node() -> None:
    def count(_: Node) -> Cost:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ExtensionError) as caught:
        static_of(BLEND, registered("my.ops::Blend", count), w=ones(3))
    assert str(caught.value) == snapshot(
        "the counter registered for my.ops::Blend failed on 'blend_1': "
        "ZeroDivisionError: division by zero"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_error_of_a_counter_with_a_wrong_result_says_what_to_return() -> None:
    with pytest.raises(ExtensionError) as caught:
        static_of(BLEND, registered("my.ops::Blend", lambda _: 42), w=ones(3))
    assert str(caught.value) == snapshot(
        "the counter registered for my.ops::Blend returned int for 'blend_1'; "
        "it must return a Cost."
    )


UNTYPED = "g (float[2,3] x) => (y) { [blend_1] y = my.ops.Blend(x, w) }"


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (("float32", (2, 3)), "('float32', (2, 3))"),
        (OutputType("float32", (-1, 3)), "OutputType(dtype='float32', shape=(-1, 3))"),
        (
            OutputType("float32", ("n", 3)),  # type: ignore[arg-type]  # wrong on purpose
            "OutputType(dtype='float32', shape=('n', 3))",
        ),
        (
            OutputType("float32", 3),  # type: ignore[arg-type]  # wrong on purpose
            "OutputType(dtype='float32', shape=3)",
        ),
    ],
)
def test_the_error_of_a_shape_rule_with_a_wrong_result_says_what_to_return(
    returned: OutputType, shown: str
) -> None:
    operators = Operators()
    operators.register("my.ops::Blend", shapes=lambda _: (returned,))
    with pytest.raises(ExtensionError) as caught:
        static_of(UNTYPED, operators, w=ones(3))
    assert str(caught.value) == (
        f"the shape rule registered for my.ops::Blend returned {shown} for 'blend_1'; it must "
        "return one OutputType per output: a name such as 'float32', and a tuple of whole "
        "numbers, with None for what is unknown."
    )


@pytest.mark.parametrize("shape", [tuple(np.array([2, 3])), [2, np.int64(3)]])
def test_a_shape_rule_may_take_sizes_from_numpy(shape: tuple[int, ...]) -> None:
    operators = Operators()
    operators.register("my.ops::Blend", shapes=lambda _: (OutputType("float32", shape),))
    layer = layer_of(static_of(UNTYPED, operators, w=ones(3)), "my.ops::Blend")
    assert layer.output_shape == (2, 3)
    assert type(layer.output_bytes) is int


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("my.ops::Blend", {}, "the operator 'my.ops::Blend' needs count, shapes or both."),
        ("", {"count": len}, "the operator '' must be named as domain::Op."),
        ("my.ops::", {"count": len}, "the operator 'my.ops::' must be named as domain::Op."),
        ("::Blend", {"shapes": len}, "the operator '::Blend' must be named as domain::Op."),
        (
            "my.ops::Blend",
            {"count": 42},
            "count of the operator 'my.ops::Blend' must be a function.",
        ),
        (
            "my.ops::Blend",
            {"shapes": "like"},
            "shapes of the operator 'my.ops::Blend' must be a function.",
        ),
    ],
)  # fmt: skip
def test_an_unusable_registration_is_refused(
    op: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ExtensionError) as caught:
        Operators().register(op, **arguments)  # type: ignore[arg-type]  # wrong on purpose
    assert str(caught.value) == message


# -- sparsity


def test_macs_that_meet_a_zero_weight_are_not_effective() -> None:
    half = ones(4, 6)
    half[:, ::2] = 0
    profile = sparse_of(
        parse(
            "g (float[2,4] x, float[5,2] z) => (y) {"
            "a = MatMul(x, v) b = MatMul(a, w) y = MatMul(b, z) }",
            weights={"v": half, "w": ones(6, 5)},
        )
    )
    first, second, third = profile.layers
    assert (first.macs, first.effective_macs) == (48, 24)
    assert (second.macs, second.effective_macs) == (60, 60)
    # A product of two activations has no weight that could be zero.
    assert (third.macs, third.effective_macs) == (20, None)
    assert profile.effective_macs == 24 + 60 + 20


def test_zeros_of_a_weight_spare_only_the_macs_that_multiply_it() -> None:
    half = ones(4, 12)
    half[:, ::2] = 0
    text = "g (float[1,5,4] x) => (y) { y = com.microsoft.Attention<num_heads = 2>(x, w, b) }"
    (attention,) = sparse_of(parse(text, weights={"w": half, "b": ones(12)})).layers
    projection, scores = 5 * 4 * 12, 2 * 2 * 5 * 5 * 2
    assert attention.macs == projection + scores
    assert attention.effective_macs == projection // 2 + scores


def test_zeros_for_the_input_of_a_recurrent_layer_spare_nothing_of_its_state() -> None:
    half = ones(1, 16, 6)
    half[:, ::2] = 0
    text = "g (float[5,2,6] x) => (y) { y = LSTM<hidden_size = 4>(x, w, r) }"
    (layer,) = sparse_of(parse(text, weights={"w": half, "r": ones(1, 16, 4)})).layers
    assert layer.macs == 10 * (16 * 6 + 16 * 4)
    assert layer.effective_macs == 10 * (16 * 3 + 16 * 4)


def test_effective_macs_are_unknown_until_the_weights_are_read() -> None:
    model = parse("g (float[2,4] x) => (y) { y = MatMul(x, w) }", weights={"w": ones(4, 4)})
    assert static_of(model).effective_macs is None
    assert sparse_of(model).effective_macs == 2 * 4 * 4


VIEWS = ("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
KiB = 1024


def graph_of(inputs: Sequence[Tensor], nodes: Sequence[Node], outputs: Sequence[Tensor]) -> Graph:
    return Graph("g", tuple(inputs), tuple(outputs), tuple(nodes), {})


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs of views and other operators, whose tensors take from 0 to 9 bytes."""
    inputs = [Tensor("x", "uint8", (draw(st.integers(0, 9)),))]
    made: list[Tensor] = []
    nodes: list[Node] = []
    for index in range(draw(st.integers(4, 12))):
        known = [*inputs, *made]
        taken = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        is_view = draw(st.booleans())
        sizes = (
            [taken[0].size]
            if is_view
            else draw(st.lists(st.integers(0, 9), min_size=1, max_size=2))
        )
        outputs = [Tensor(f"t{index}.{i}", "uint8", (size,)) for i, size in enumerate(sizes)]
        op = draw(st.sampled_from(VIEWS)) if is_view else "Sum"
        nodes.append(Node(f"n{index}", op, inputs=tuple(taken), outputs=tuple(outputs)))
        made += outputs
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return graph_of(inputs, nodes, outputs)


def simulated_peak(graph: Graph) -> int:
    """A node allocates its outputs before it runs, and frees its last inputs afterwards."""
    storage = {tensor: tensor for tensor in graph.inputs}
    held: set[Tensor] = set()
    peak = 0
    for index, node in enumerate(graph.nodes):
        wanted = {t for later in graph.nodes for t in later.inputs} | set(graph.outputs)
        for tensor in node.outputs:
            assert tensor is not None
            source = node.inputs[0]
            assert source is not None
            storage[tensor] = storage[source] if node.op_type in VIEWS else tensor
            if tensor in wanted and storage[tensor] not in graph.inputs:
                held.add(storage[tensor])
        peak = max(peak, sum(tensor.size for tensor in held))
        later = {t for after in graph.nodes[index + 1 :] for t in after.inputs}
        still_needed = {
            storage[t] for t in (*later, *graph.outputs) if t is not None and t in storage
        }
        held &= still_needed
    return peak


@given(graphs())
def test_the_peak_is_that_of_a_simulation(graph: Graph) -> None:
    assert profile_graph(graph).peak_activation_bytes == simulated_peak(graph)


@given(graphs())
def test_the_peak_is_between_the_largest_output_and_the_sum_of_all(graph: Graph) -> None:
    profile = profile_graph(graph)
    assert profile.peak_activation_bytes is not None
    assert profile.peak_activation_bytes <= profile.activation_bytes
    # Only a view takes no storage of its own.
    made = [n for n in graph.nodes if n.op_type not in VIEWS]
    used = {t for n in graph.nodes for t in n.inputs} | set(graph.outputs)
    largest = max((t.size for n in made for t in n.outputs if t and t in used), default=0)
    assert profile.peak_activation_bytes >= largest


# Graphs of a float[256] x, and the bytes that they hold at their peak.
PEAKS: dict[str, tuple[str, int | None]] = {
    "a residual is kept until it is added": (
        "(float[256] y) { r = Relu(x) b = Relu(r) c = Relu(b) y = Add(c, r) }", 3 * KiB
    ),
    "views share the storage of their data": (
        """(float[1,16,16] y) {
            s = Constant<value_ints=[256]>()
            axes = Constant<value_ints=[0]>()
            t = Constant<value_ints=[1,16,16]>()
            a = Relu(x)
            b = Reshape(a, t)
            c = Unsqueeze(b, axes)
            d = Squeeze(c, axes)
            e = Identity(d)
            f = Flatten<axis=0>(a)
            g = Reshape(e, s)
            h = Add(g, f)
            y = Reshape(h, t)
        }""",
        2 * KiB,
    ),
    "storage lives as long as any view of it": (
        """(float[256] y) {
            a = Relu(x) v = Identity(a) w = Identity(v) b = Relu(x) c = Relu(b) y = Add(c, w)
        }""",
        3 * KiB,
    ),
    "storage of an output that is a view is kept to the end": (
        """(float[256] v, float[256] d) {
            a = Relu(x) v = Identity(a) b = Relu(x) c = Relu(b) d = Relu(c)
        }""",
        3 * KiB,
    ),
    # a, b, y, and one inside.
    "what a body takes from outside is kept for it": (
        """(float[256] z) {
            a = Relu(x)
            b = Relu(x)
            y = If<then_branch = t () => (float[256] p) { p = Relu(a) },
                   else_branch = e () => (float[256] q) { q = Exp(a) }>(go)
            z = Add(y, b)
        }""",
        4 * KiB,
    ),
    # a, c, y, and q inside.
    "what a body only hands out is kept for it too": (
        """(float[256] y) {
            a = Relu(x)
            b = Relu(x)
            c = Relu(b)
            y = If<then_branch = t () => (float[256] a) { },
                   else_branch = e () => (float[256] q) { q = Relu(c) }>(go)
        }""",
        4 * KiB,
    ),
    "only the first output of a view is one": (
        "(float[256] y, bool[256] m) { a = Relu(x) y, m = Dropout(a) }", KiB + 256
    ),
    "one size that is unknown makes the peak unknown": (
        "(i) { a = Relu(x) i = NonZero(a) }", None
    ),
    "one size that is unknown and not used does not": (
        "(a) { a = Relu(x) i = NonZero(x) }", KiB
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "peak"), PEAKS.values(), ids=PEAKS)
def test_the_peak_of_activations(text: str, peak: int | None) -> None:
    profile = static_of(f"g (float[256] x, bool go) => {text}")
    assert profile.peak_activation_bytes == peak


def test_a_chain_holds_two_tensors_at_a_time() -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }"
    )
    assert profile.peak_activation_bytes == 2 * KiB
    assert profile.activation_bytes == 4 * KiB


def test_an_output_of_the_model_is_kept_to_the_end() -> None:
    text = (
        "g (float[256] x) => (float[256] {}) {{ a = Relu(x) b = Relu(a) c = Relu(b) d = Relu(c) }}"
    )
    assert static_of(text.format("d")).peak_activation_bytes == 2 * KiB
    assert static_of(text.format("a, float[256] d")).peak_activation_bytes == 3 * KiB


def test_inputs_and_weights_and_views_of_them_are_not_activations() -> None:
    profile = static_of(
        """g (float[256] x) => (float[256] y) {
            v = Identity(x)
            b = Add(v, w)
            y = Mul(b, x)
        }""",
        w=ones(256),
    )
    assert profile.peak_activation_bytes == 2 * KiB


def test_an_unused_output_is_not_stored() -> None:
    profile = static_of(
        "g (float[256] x) => (float[128] a) { s = Constant<value_ints=[128,128]>()"
        "a, b = Split(x, s) }"
    )
    assert profile.peak_activation_bytes == profile.activation_bytes == 512


@pytest.mark.parametrize("trips", [1, 9])
def test_a_body_adds_its_own_peak_at_its_node_however_often_it_runs(trips: int) -> None:
    profile = static_of(
        f"""g (float[256] x) => (y) {{
            n = Constant<value_int={trips}>()
            y = Loop<body = b (int64 i, bool go, float[256] s) => (bool go, float[256] w) {{
                t = Relu(s)
                u = Relu(t)
                w = Relu(u)
            }}>(n, , x)
        }}"""
    )
    # The output of the Loop, and two tensors at a time inside.
    assert profile.peak_activation_bytes == KiB + 2 * KiB


@pytest.mark.parametrize("trains", [0, 1])
def test_a_dropout_that_trains_has_storage_of_its_own(trains: int) -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y) { a = Relu(x) y = Dropout(a, ratio, trains) }",
        ratio=np.asarray(0.5, np.float32),
        trains=np.asarray(trains, np.bool_),
    )
    assert profile.peak_activation_bytes == (1 + trains) * KiB
    assert profile.layers[1].writes == ({"y": KiB} if trains else {})
