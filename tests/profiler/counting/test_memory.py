"""The peak of activations against a slow simulation, and the cases that it is easy to get wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.structure import Graph, Node, Tensor
from pytest_modelperf.profiler.counting.count import profile_graph
from tests.support.small_models import ones, static_of

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
    """Before each node, what it makes is allocated; after it, all that nobody takes any more."""
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
def test_the_peak_lies_between_the_largest_output_and_the_sum_of_all(graph: Graph) -> None:
    profile = profile_graph(graph)
    assert profile.peak_activation_bytes is not None
    assert profile.peak_activation_bytes <= profile.activation_bytes
    # Only a view takes no storage of its own.
    made = [n for n in graph.nodes if n.op_type not in VIEWS]
    used = {t for n in graph.nodes for t in n.inputs} | set(graph.outputs)
    largest = max((t.size for n in made for t in n.outputs if t and t in used), default=0)
    assert profile.peak_activation_bytes >= largest


def test_a_chain_holds_two_tensors_at_a_time() -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }"
    )
    assert profile.peak_activation_bytes == 2 * KiB
    assert profile.activation_bytes == 4 * KiB


def test_a_residual_is_kept_until_it_is_added() -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y) { r = Relu(x) b = Relu(r) c = Relu(b) y = Add(c, r) }"
    )
    assert profile.peak_activation_bytes == 3 * KiB


def test_an_output_of_the_model_is_kept_to_the_end() -> None:
    text = (
        "g (float[256] x) => (float[256] {}) {{ a = Relu(x) b = Relu(a) c = Relu(b) d = Relu(c) }}"
    )
    assert static_of(text.format("d")).peak_activation_bytes == 2 * KiB
    assert static_of(text.format("a, float[256] d")).peak_activation_bytes == 3 * KiB


def test_views_share_the_storage_of_their_data() -> None:
    profile = static_of(
        """g (float[16,16] x) => (float[16,16] y) {
            s = Constant<value_ints=[256]>()
            axes = Constant<value_ints=[0]>()
            a = Relu(x)
            b = Reshape(a, s)
            c = Unsqueeze(b, axes)
            d = Squeeze(c, axes)
            e = Identity(d)
            f = Flatten<axis=0>(a)
            g = Reshape(e, s)
            h = Add(g, f)
            t = Constant<value_ints=[16,16]>()
            y = Reshape(h, t)
        }"""
    )
    assert profile.peak_activation_bytes == 2 * KiB


def test_storage_lives_as_long_as_any_view_of_it() -> None:
    profile = static_of(
        """g (float[256] x) => (float[256] y) {
            a = Relu(x)
            v = Identity(a)
            w = Identity(v)
            b = Relu(x)
            c = Relu(b)
            y = Add(c, w)
        }"""
    )
    assert profile.peak_activation_bytes == 3 * KiB


def test_storage_of_an_output_that_is_a_view_is_kept_to_the_end() -> None:
    profile = static_of(
        """g (float[256] x) => (float[256] v, float[256] d) {
            a = Relu(x)
            v = Identity(a)
            b = Relu(x)
            c = Relu(b)
            d = Relu(c)
        }"""
    )
    assert profile.peak_activation_bytes == 3 * KiB


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


def test_an_output_that_nobody_takes_is_not_stored() -> None:
    profile = static_of(
        "g (float[256] x) => (float[128] a) { s = Constant<value_ints=[128,128]>()"
        "a, b = Split(x, s) }"
    )
    assert profile.peak_activation_bytes == profile.activation_bytes == 512


def test_one_size_that_is_unknown_makes_the_peak_unknown() -> None:
    profile = static_of("g (float[2,3] x) => (i) { a = Relu(x) i = NonZero(a) }")
    assert profile.peak_activation_bytes is None


def test_one_size_that_is_unknown_and_not_used_does_not() -> None:
    profile = static_of("g (float[256] x) => (a) { a = Relu(x) i = NonZero(x) }")
    assert profile.peak_activation_bytes == KiB


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
    # What the Loop gives out, and two tensors at a time inside.
    assert profile.peak_activation_bytes == KiB + 2 * KiB


def test_what_a_body_takes_from_outside_is_kept_for_it() -> None:
    profile = static_of(
        """g (float[256] x, bool c) => (float[256] z) {
            a = Relu(x)
            b = Relu(x)
            y = If<then_branch = t () => (float[256] p) { p = Relu(a) },
                   else_branch = e () => (float[256] q) { q = Exp(a) }>(c)
            z = Add(y, b)
        }"""
    )
    # a, b, y, and one inside.
    assert profile.peak_activation_bytes == 4 * KiB


def test_what_a_body_only_hands_out_is_kept_for_it_too() -> None:
    profile = static_of(
        """g (float[256] x, bool go) => (float[256] y) {
            a = Relu(x)
            b = Relu(x)
            c = Relu(b)
            y = If<then_branch = t () => (float[256] a) { },
                   else_branch = e () => (float[256] q) { q = Relu(c) }>(go)
        }"""
    )
    # a, c, y, and q inside.
    assert profile.peak_activation_bytes == 4 * KiB


def test_only_the_first_output_of_a_view_is_one() -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y, bool[256] m) { a = Relu(x) y, m = Dropout(a) }"
    )
    assert profile.peak_activation_bytes == KiB + 256


@pytest.mark.parametrize("trains", [0, 1])
def test_a_dropout_that_trains_has_storage_of_its_own(trains: int) -> None:
    profile = static_of(
        "g (float[256] x) => (float[256] y) { a = Relu(x) y = Dropout(a, ratio, trains) }",
        ratio=np.asarray(0.5, np.float32),
        trains=np.asarray(trains, np.bool_),
    )
    assert profile.peak_activation_bytes == (1 + trains) * KiB
    assert profile.layers[1].writes == ({"y": KiB} if trains else {})
