"""Graphs after binding: shapes, control flow, functions, constants and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper, numpy_helper

from pytest_modelperf.errors import BindingError, ExtensionError, ModelError
from pytest_modelperf.graph.binding import Binding, parse_input_spec
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.shape_rules import OutputType, shape_of
from pytest_modelperf.graph.structure import Node, Shape
from tests.support.graph_models import load, node_of, op_types, parse, random_floats, shapes, zeros
from tests.support.known import known
from tests.support.light_models import LIGHT_MODELS, light_model
from tests.support.onnx_text import INSTALLED, parse_model

Array = npt.NDArray[np.generic]

# -- shapes


def test_a_symbolic_model_has_every_shape_at_every_binding() -> None:
    text = """g (float[N, seq, 8] x) => (y) {
        s = Relu (x)
        t = Transpose <perm = [1, 0, 2]> (s)
        y = ReduceMean <axes = [2], keepdims = 0> (t)
    }"""
    for batch, seq in ((1, 5), (4, 2)):
        bound = load(text, Binding(batch, {"seq": seq}), opset=13)
        assert shapes(bound, "s", "t", "y") == [(batch, seq, 8), (seq, batch, 8), (seq, batch)]
        assert bound.rewritten == ()


def test_defaults_that_onnx_shape_inference_misreads_are_stated() -> None:
    """A spectrogram as exporters of speech models write it, in the graph and in a body."""
    bound = load(
        """g (bool c, float[N, samples, 1] x, float[2, 3, 4, 5] image) => (y, normal) {
            step = Constant <value_int = 160> ()
            power = If (c) <
                then_branch = t () => (a) {
                    window = HannWindow (step)
                    a = STFT (x, step, window)
                },
                else_branch = e () => (b) { b = STFT <onesided = 0> (x, step, , step) }
            >
            length = Constant <value_int = 400> ()
            spectrum = STFT (x, step, , length)
            half = ReduceSumSquare <axes = [-1], keepdims = 0> (spectrum)
            sizes = Constant <value_ints = [201, 2]> ()
            mel = ConstantOfShape (sizes)
            y = MatMul (half, mel)
            normal = MeanVarianceNormalization (image)
        }""",
        Binding(1, {"samples": 8000}),
        opset=17,
    )

    assert shapes(bound, "spectrum", "y") == [(1, 48, 201, 2), (1, 48, 2)]
    assert shapes(bound, "normal") == [(2, 3, 4, 5)]
    (branches,) = (node for node in bound.graph.nodes if node.op_type == "If")
    inner = [body.outputs[0].shape for body in branches.bodies.values()]
    assert inner == [(1, 50, 81, 2), (1, 50, 160, 2)]


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("a = STFT (x, step, , length)", (1, 48, 201, 2)),
        ("a = MaxPool <kernel_shape = [1], strides = [3], ceil_mode = 1> (image)", (1, 3, 2)),
    ],
)
def test_operators_that_onnx_misreads_are_found_inside_a_body(
    node: str, shape: tuple[int, ...]
) -> None:
    bound = load(
        f"""g (float[1, 8000, 1] x, float[1, 3, 5] image, bool more) => (y) {{
            step = Constant <value_int = 160> ()
            length = Constant <value_int = 400> ()
            trips = Constant <value_int = 1> ()
            y = Loop (trips, more) <
                body = b (int64 trip, bool on) => (next, a) {{
                    next = Identity (on)
                    {node}
                }}
            >
        }}""",
        opset=17,
    )
    assert shapes(bound, "y") == [(None, *shape)]


@pytest.mark.parametrize("opset", [18, 22])
@pytest.mark.skipif(INSTALLED < (1, 17), reason="older releases do not know opset 22")
def test_a_pooling_that_rounds_up_has_no_window_in_the_end_padding(opset: int) -> None:
    """Until opset 22, the inference of onnx counts a window that ONNX Runtime leaves out."""
    bound = load(
        """g (bool c, float[1, 3, 5] x) => (y, z) {
            p = MaxPool <kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1> (x)
            y = Relu (p)
            z = If (c) <
                then_branch = t () => (a) {
                    a = AveragePool <kernel_shape = [1], strides = [3], ceil_mode = 1> (x)
                },
                else_branch = e () => (b) { b = MaxPool <kernel_shape = [4]> (x) }
            >
        }""",
        opset=opset,
    )
    assert shapes(bound, "y", "z") == [(1, 3, 3), (1, 3, 2)]


@pytest.mark.parametrize(
    "scales",
    [
        "scales = Constant <value = float[3] {1, 1, 1.857142857}> ()",
        "scales = Constant <value_floats = [1.0, 1.0, 1.857142857]> ()",
        """sizes = Shape (x)
        floats = Cast <to = 1> (sizes)
        wanted = Constant <value = float[3] {2, 3, 13}> ()
        scales = Div (wanted, floats)""",
    ],
    ids=["stored", "list", "computed"],
)
def test_an_image_is_scaled_in_the_arithmetic_of_a_float32(scales: str) -> None:
    """13 / 7 as float32 is a little less; times 7 it is 13 for ONNX Runtime, and 12 for onnx."""
    bound = load(
        f"""g (float[2, 3, 7] x) => (y) {{
            {scales}
            image = Resize <mode = "nearest"> (x, , scales)
            y = Relu (image)
        }}"""
    )
    assert shapes(bound, "y") == [(2, 3, 13)]


def test_sizes_that_an_exporter_left_open_are_each_of_their_own() -> None:
    model = parse("g (float[N, 3, h, w] x) => (float[N, 3, h, w] y) { y = Relu (x) }")
    for info in (*model.graph.input, *model.graph.output):
        batch, _, height, width = info.type.tensor_type.shape.dim
        batch.dim_value = -1
        height.dim_param = width.dim_param = "?"
    bound = load_model(open_model(model), Binding(dims={"x.2": 4, "x.3": 6}))
    assert shapes(bound, "x", "y") == [(1, 3, 4, 6), (1, 3, 4, 6)]
    assert bound.rewritten == ()
    whole = Binding(inputs=(parse_input_spec("x:f32:2x3x4x6"),))
    assert shapes(load_model(open_model(model), whole), "y") == [(2, 3, 4, 6)]


def test_a_size_that_a_reshape_does_not_follow_is_noted() -> None:
    model = parse("""
        g (float[N,seq] x) => (float[N,a,b] y)
        <int64[3] target = {0, 8, 4}> { [heads] y = Reshape (x, target) }
    """)
    assert load_model(open_model(model), Binding(dims={"seq": 32})).notes == ()
    (note,) = load_model(open_model(model), Binding(batch_size=2, dims={"seq": 16})).notes
    assert note == ("no engine runs the model at these sizes: Reshape 'heads' makes 2x8x4 of 2x16")


@pytest.mark.parametrize(
    ("attributes", "size", "note"),
    [
        ("strides = [2]", 4, None),
        # Inference rounds -1 / 2 up to 0, and counts one window more.
        ("strides = [2]", 3, "the window of Conv 'y' is 4, and its padded input 3"),
        ("pads = [1, 1]", 1, "the window of Conv 'y' is 4, and its padded input 3"),
        ("dilations = [2]", 6, "the window of Conv 'y' is 7, and its padded input 6"),
        ('auto_pad = "SAME_UPPER"', 1, None),
    ],
)
def test_a_window_that_is_larger_than_its_input_is_noted(
    attributes: str, size: int, note: str | None
) -> None:
    model = parse(
        f"""g (float[1,1,n] x) => (y) <float[1,1,4] w = {{1,1,1,1}}> {{
            y = Conv <{attributes}> (x, w)
        }}"""
    )
    notes = load_model(open_model(model), Binding(dims={"n": size})).notes
    assert notes == (() if note is None else (f"no engine runs the model at these sizes: {note}",))


@pytest.mark.parametrize("condition", ["b", "yes"])
def test_a_window_in_a_branch_is_noted_only_if_the_branch_runs(condition: str) -> None:
    bound = load(
        f"""g (float[1,1,3] x, bool b) => (y) <bool yes = {{1}}, float[1,1,4] w = {{1,1,1,1}}> {{
        y = If ({condition}) <
            then_branch = t () => (float[1,1,k] p) {{ p = Conv (x, w) }},
            else_branch = e () => (float[1,1,m] q) {{ q = Identity (x) }}
        >
        }}"""
    )
    assert bool(bound.notes) is (condition == "yes")


Shapes = Mapping[str, Shape | None]

# Models, bindings and the shapes that follow. Every model is of opset 18 unless its name says more.
COMPUTED: dict[str, tuple[str, Binding | None, Shapes]] = {
    # The heads of a transformer as torch exports them.
    "a Reshape to Shape, Gather, Div and Concat": (
        """g (float[N, seq, 64] x) => (y) <int64 eight = {8}, int64[1] minus = {-1}> {
            shape = Shape (x)
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            two = Constant <value_int = 2> ()
            batch = Gather (shape, zero)
            length = Gather (shape, one)
            width = Gather (shape, two)
            head = Div (width, eight)
            axes = Constant <value_ints = [0]> ()
            b = Unsqueeze (batch, axes)
            l = Unsqueeze (length, axes)
            e = Unsqueeze (eight, axes)
            h = Unsqueeze (head, axes)
            target = Concat <axis = 0> (b, l, e, h)
            heads = Reshape (x, target)
            moved = Transpose <perm = [0, 2, 1, 3]> (heads)
            flat = Concat <axis = 0> (b, minus, e)
            y = Reshape (moved, flat)
        }""",
        Binding(2, {"seq": 10}), {"heads": (2, 10, 8, 8), "moved": (2, 8, 10, 8), "y": (2, 80, 8)},
    ),
    # Torch's `expand`.
    "a mask expanded to Where(Equal(target, -1), ones, target)": (
        """g (float[N, 1, seq] m) => (y) {
            shape = Shape (m)
            i0 = Constant <value_ints = [0]> ()
            i2 = Constant <value_ints = [2]> ()
            n = Gather (shape, i0)
            s = Gather (shape, i2)
            keep = Constant <value_ints = [-1]> ()
            target = Concat <axis = 0> (n, s, keep)
            three = Constant <value_ints = [3]> ()
            ones = ConstantOfShape <value = int64[1] {1}> (three)
            minus = Constant <value_int = -1> ()
            same = Equal (target, minus)
            real = Where (same, ones, target)
            y = Expand (m, real)
        }""",
        Binding(2, {"seq": 7}), {"y": (2, 7, 7)},
    ),
    "a causal mask of Range and comparison": (
        """g (int64[N, seq] ids) => (y) {
            shape = Shape (ids)
            one = Constant <value_int = 1> ()
            length = Gather (shape, one)
            zero = Constant <value_int = 0> ()
            rows = Range (zero, length, one)
            axes = Constant <value_ints = [1]> ()
            columns = Unsqueeze (rows, axes)
            y = Less (columns, rows)
        }""",
        Binding(1, {"seq": 9}), {"rows": (9,), "y": (9, 9)},
    ),
    "a Slice and a Pad by computed amounts": (
        """g (float[N, 3, h] x) => (y) {
            shape = Shape <start = 2> (x)
            two = Constant <value_ints = [2]> ()
            half = Div (shape, two)
            axes = Constant <value_ints = [2]> ()
            zero = Constant <value_ints = [0]> ()
            cut = Slice (x, zero, half, axes)
            none = Constant <value_ints = [0, 0, 0, 0, 0]> ()
            pads = Concat <axis = 0> (none, half)
            y = Pad (cut, pads)
        }""",
        Binding(1, {"h": 9}), {"cut": (1, 3, 4), "y": (1, 3, 8)},
    ),
    "a Reshape by a value given for an input": (
        "g (float[2, 6] x, int64[n] target) => (y) { y = Reshape (x, target) }",
        Binding(inputs=(parse_input_spec("target:i64:3:2,3,2"),)), {"y": (2, 3, 2)},
    ),
    "a given value beyond the range of its float": (
        "g (float16[1] x) => (y) { y = Relu (x) }",
        Binding(inputs=(parse_input_spec("x:float16:1:1e30"),)), {"y": (1,)},
    ),
    "data decides one dimension, which alone is unknown": (
        "g (float[2, 6] x) => (y) { i = NonZero (x)  y = Transpose (i) }", None,
        {"i": (2, None), "y": (None, 2)},
    ),
    "operators of ONNX Runtime": (
        """g (float[2, 5, 8] x) => (y) <float[8] b = {0,0,0,0,0,0,0,0}> {
            h = com.microsoft.Gelu (x)
            a = com.microsoft.BiasGelu (h, b)
            y = Transpose <perm = [2, 0, 1]> (a)
        }""",
        None, {"h": (2, 5, 8), "a": (2, 5, 8), "y": (8, 2, 5)},
    ),
    "what the model declares, since no rule knows the operator": (
        """g (float[N, 4] x) => (z) <float[N, 7] y> {
            y = custom.Magic (x)
            z = Transpose (y)
        }""",
        Binding(3), {"y": (3, 7), "z": (7, 3)},
    ),
    "a sequence, which is not a tensor": (
        """g (float[2, 3] x) => (y) {
            s = SequenceConstruct (x, x)
            zero = Constant <value_int = 0> ()
            a = SequenceAt (s, zero)
            y = Relu (a)
        }""",
        None, {"s": None, "y": (2, 3)},
    ),
    "branches that agree give the If their shape": (
        """g (bool c, float[2, 3] x) => (y) {
            y = If (c) <
                then_branch = t () => (a) { a = Relu (x) },
                else_branch = e () => (b) { b = Exp (x) }
            >
        }""",
        None, {"y": (2, 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "binding", "known"), COMPUTED.values(), ids=COMPUTED)
def test_a_shape_follows_from(text: str, binding: Binding | None, known: Shapes) -> None:
    bound = load(text, binding)
    assert {name: bound.tensors[name].shape for name in known} == known


def test_a_layer_normalization_that_a_fusion_added_to_an_older_opset_has_a_shape() -> None:
    """The optimizers of ONNX Runtime write it so; onnx itself has the operator since opset 17."""
    text = """g (float[2, 3, 4] x, float[4] scale) => (y) {
        n = LayerNormalization <axis = -1> (x, scale)
        y = Relu (n)
    }"""
    assert shapes(load(text, opset=11), "n", "y") == [(2, 3, 4), (2, 3, 4)]


@pytest.mark.parametrize("opset", [7, 11])
def test_a_shape_that_older_forms_of_operators_compute_is_known(opset: int) -> None:
    """Their axes and sizes are attributes, which became inputs in opset 13 and later."""
    text = """g (float[2, 10, 64] x) => (y) {
        shape = Shape (x)
        batch, others = Split <axis = 0, split = [1, 2]> (shape)
        scalar = Squeeze <axes = [0]> (batch)
        first = Unsqueeze <axes = [0]> (scalar)
        second = ReduceProd <axes = [0]> (others)
        target = Concat <axis = 0> (first, second)
        y = Reshape (x, target)
    }"""
    assert shapes(load(text, opset=opset), "y") == [(2, 640)]


@pytest.mark.parametrize("value", ["1.5", "nan", "inf", "1e30", "2,-0.5,1"])
def test_a_value_given_for_an_input_is_refused_if_its_type_lacks_it(value: str) -> None:
    """A count of shapes alone makes no inputs, which would find it."""
    given = Binding(inputs=(parse_input_spec(f"s:int64:3:{value}"),))
    message = r"the value \S+ of the input 's' of .* is not a valid int64"
    with pytest.raises(BindingError, match=message):
        load("g (float[1] x, int64[k] s) => (y) { y = Expand (x, s) }", given)


def test_wrong_declarations_of_the_model_are_not_believed() -> None:
    model = parse("g (float[2, 3] x) => (float[3, 2] y) { y = Transpose (x) }")
    dims = model.graph.output[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[1].dim_value = 77, 78
    assert shapes(load(model), "y") == [(3, 2)]


def test_a_shape_rule_of_a_plugin_goes_before_ours_and_its_failure_is_reported() -> None:
    model = open_model(parse("g (float[2, 3] x) => (y) { a = custom.Magic (x) y = Transpose (a) }"))

    def double(node: Node) -> tuple[OutputType, ...]:
        first = shape_of(node, 0)
        return (OutputType("float32", (*known(first), 2)),)

    def broken(node: Node) -> tuple[OutputType, ...]:
        raise KeyError(node.op_type)

    bound = load_model(model, shape_rules={"custom::Magic": double})
    assert shapes(bound, "a", "y") == [(2, 3, 2), (2, 3, 2)[::-1]]
    with pytest.raises(ExtensionError, match=r"custom::Magic failed on 'a': KeyError"):
        load_model(model, shape_rules={"custom::Magic": broken})


def test_types_are_known_if_shapes_are() -> None:
    bound = load("""g (float[2] x) => (y) {
        a = Cast <to = 10> (x)
        s = Shape (a)
        y = Greater (x, x)
    }""")
    assert [bound.tensors[n].dtype for n in ("a", "s", "y")] == ["float16", "int64", "bool"]


@pytest.mark.parametrize(
    ("shape", "target"), [((2, 12), (2, 3, 4)), ((2, 12), (0, -1, 2)), ((24,), (-1,))]
)
def test_every_known_value_of_a_folded_shape_is_what_onnx_computes(
    shape: tuple[int, ...], target: tuple[int, ...]
) -> None:
    """The shape that is found is the shape that the reference evaluator makes."""
    from onnx.reference import ReferenceEvaluator

    model = parse(
        f"g (float[{','.join(map(str, shape))}] x) => (y) "
        f"<int64[{len(target)}] t = {{{','.join(map(str, target))}}}> {{ y = Reshape (x, t) }}"
    )
    (made,) = ReferenceEvaluator(model).run(["y"], {"x": np.zeros(shape, np.float32)})
    assert shapes(load(model), "y") == [np.shape(made)]


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")


@given(
    st.lists(
        st.tuples(st.sampled_from(_ARITHMETIC), st.integers(1, 9), st.booleans()),
        min_size=1, max_size=5,
    )
)  # fmt: skip
@settings(max_examples=40)
def test_shape_arithmetic_gives_what_the_reference_evaluator_gives(
    steps: list[tuple[str, int, bool]],
) -> None:
    """An unknown shape does no harm here: everything follows from the shape of x."""
    from onnx.reference import ReferenceEvaluator

    lines = ["s0 = Shape (x)"]
    for index, (op, number, swapped) in enumerate(steps):
        lines.append(f"c{index} = Constant <value_ints = [{number}, {number}]> ()")
        operands = f"c{index}, s{index}" if swapped else f"s{index}, c{index}"
        if swapped and op in ("Div", "Mod"):
            lines.append(f"one{index} = Max (s{index}, c{index})")
            operands = f"c{index}, one{index}"
        lines.append(f"s{index + 1} = {op} ({operands})")
    text = f"""g (float[4, 6] x) => (y, target) {{
        {chr(10).join(lines)}
        size = Abs (s{len(steps)})
        top = Constant <value_ints = [50, 50]> ()
        target = Min (size, top)
        y = ConstantOfShape (target)
    }}"""
    model = parse(text)
    _, target = ReferenceEvaluator(model).run(["y", "target"], {"x": zeros(4, 6)})

    assert shapes(load(model), "y") == [tuple(target)]


# -- If


_IF = """g (float[2, 3] x{more}) => (y) {{
    {condition}
    y = If (c) <
        then_branch = t () => (a) {{ a = Relu (x) }},
        else_branch = e () => (b) {{ b0 = Exp (x)  b = Transpose (b0) }}
    >
}}"""


@pytest.mark.parametrize(("value", "branch"), [(1, "then_branch"), (0, "else_branch")])
def test_an_if_with_a_constant_condition_keeps_only_the_branch_that_runs(
    value: int, branch: str
) -> None:
    condition = f"c = Constant <value = bool {{{value}}}> ()"
    bound = load(_IF.format(more="", condition=condition))
    (node,) = bound.graph.nodes

    assert list(node.bodies) == [branch]
    assert shapes(bound, "y") == [(2, 3) if value else (3, 2)]


def test_a_condition_that_follows_from_shapes_is_constant() -> None:
    bound = load(
        _IF.format(
            more="",
            condition="""s = Size (x)
            six = Constant <value_int = 6> ()
            c = Equal (s, six)""",
        )
    )
    assert list(bound.graph.nodes[-1].bodies) == ["then_branch"]


def test_an_if_with_an_unknown_condition_keeps_both_branches() -> None:
    bound = load(_IF.format(more=", bool c", condition=""))
    assert list(node_of(bound, "If").bodies) == ["then_branch", "else_branch"]
    assert shapes(bound, "y") == [(None, None)]


# -- Loop


def _loop(trips: str, condition: str, body: str, carried: str = "x", before: str = "") -> str:
    return f"""g (float[2, 3] x, bool start, int64 many) => (y, ys) {{
        {before}
        y, ys = Loop ({trips}, {condition}, {carried}) <
            body = b (int64 i, bool c, v) => (c_out, v_out, scanned) {{ {body} }}
        >
    }}"""


_STEP = "c_out = Identity (c)  v_out = Relu (v)  scanned = ReduceSum <keepdims = 0> (v)"
_SEVEN = "seven = Constant <value_int = 7> ()  true = Constant <value = bool {1}> ()"


_TRUE = "true = Constant <value = bool {1}> ()"
_UNENDED = "c_out = Constant <value = bool {1}> ()  v_out = Relu (v)  scanned = Identity (v)"


@pytest.mark.parametrize(
    ("trips", "condition", "body", "before", "stacked"),
    [
        ("seven", "true", _STEP, _SEVEN, (7,)),
        ("seven", "", _UNENDED, _SEVEN, (7, 2, 3)),
        # TorchScript writes a `for` like this.
        ("seven", "true", _STEP.replace("(c)", "(true)"), _SEVEN, (7,)),
        ("n", "true", _STEP, f"n = Size (x)  {_TRUE}", (6,)),
        ("n", "true", _STEP, f"n = Constant <value_int = -3> ()  {_TRUE}", (0,)),
        ("seven", "false", _STEP, f"{_SEVEN} false = Constant <value = bool {{0}}> ()", (0,)),
    ],
    ids=[
        "a constant count", "no condition", "the condition is repeated from outside",
        "the count follows from shapes", "a negative count", "the condition is false at the start",
    ],
)  # fmt: skip
def test_a_loop_knows_its_trips_and_what_they_stack(
    trips: str, condition: str, body: str, before: str, stacked: tuple[int, ...]
) -> None:
    bound = load(_loop(trips, condition, body, before=before))
    assert node_of(bound, "Loop").trips == stacked[0]
    assert shapes(bound, "y", "ys") == [(2, 3), stacked]
    assert node_of(bound, "Relu").output().shape == (2, 3)


@pytest.mark.parametrize(
    ("trips", "condition", "body"),
    [
        ("many", "true", _STEP),
        ("seven", "start", _STEP),
        ("", "true", _STEP),
        ("seven", "true", _STEP.replace("Identity (c)", "Not (c)")),
        ("seven", "true", _STEP.replace("Identity (c)", "Constant <value = bool {0}> ()")),
        ("seven", "true", _STEP.replace("(c)", "(start)")),
        ("seven", "true", _STEP.replace("(c)", "(v)")),
    ],
    ids=["count given", "start given", "no count", "computed", "false", "outside", "carried"],
)
def test_a_loop_that_data_may_end_has_no_known_trips(trips: str, condition: str, body: str) -> None:
    if not trips and INSTALLED < (1, 18):
        pytest.skip("the parser of this onnx takes no call without its first input")
    bound = load(_loop(trips, condition, body, before=_SEVEN))
    assert node_of(bound, "Loop").trips is None
    assert shapes(bound, "y", "ys") == [(2, 3), (None,)]


def test_a_loop_that_does_not_run_returns_what_it_took() -> None:
    body = """c_out = Identity (c)
        v_out = Constant <value_floats = [1.0, 2.0]> ()
        scanned = ReduceMax <keepdims = 0> (v)"""
    before = "none = Constant <value_int = 0> ()  true = Constant <value = bool {1}> ()"
    bound = load(_loop("none", "true", body, before=before))
    assert shapes(bound, "y", "ys") == [(2, 3), (0,)]


def test_a_value_that_grows_with_each_trip_is_unknown_in_that_dimension_alone() -> None:
    body = """c_out = Identity (c)
        v_out = Concat <axis = 0> (v, v)
        scanned = ReduceMax <keepdims = 0> (v)"""
    bound = load(_loop("seven", "true", body, before=_SEVEN))
    assert shapes(bound, "y") == [(None, 3)]
    assert node_of(bound, "Concat").output().shape == (None, 3)


def test_a_value_that_follows_one_that_grows_is_unknown_in_that_dimension_too() -> None:
    """It has the size of the first trip in the second one, and grows in the third."""
    bound = load("""g (float[2, 3] x) => (last, all) {
        n = Constant <value_int = 7> ()
        true = Constant <value = bool {1}> ()
        last, all = Loop (n, true, x, x) <
            body = b (int64 i, bool c, before, now) => (c_out, kept, grown) {
                c_out = Identity (c)
                kept = Identity (now)
                grown = Concat <axis = 0> (now, now)
            }
        >
    }""")
    (body,) = node_of(bound, "Loop").bodies.values()
    assert [tensor.shape for tensor in body.inputs[2:]] == [(None, 3), (None, 3)]


@pytest.mark.parametrize(("dims", "shape"), [("", (3,)), ("[1]", (1, 3))])
def test_the_iteration_of_a_loop_has_the_rank_that_its_body_declares(
    dims: str, shape: tuple[int, ...]
) -> None:
    """ONNX Runtime gives the body what it declares."""
    bound = load(f"""g (int64[5, 3] x, bool go) => (y, ys) {{
        n = Constant <value_int = 5> ()
        y, ys = Loop (n, , x) <
            body = b (int64{dims} i, bool c, v) => (c_out, v_out, row) {{
                c_out = Identity (c)
                v_out = Identity (v)
                row = Gather <axis = 0> (v, i)
            }}
        >
    }}""")
    assert node_of(bound, "Gather").output().shape == shape


def test_a_value_that_changes_its_rank_has_no_shape() -> None:
    body = """c_out = Identity (c)
        axes = Constant <value_ints = [0]> ()
        v_out = Unsqueeze (v, axes)
        scanned = Identity (i)"""
    assert shapes(load(_loop("seven", "true", body, before=_SEVEN)), "y") == [None]


def test_a_constant_that_starts_a_carried_value_is_not_constant_in_the_body() -> None:
    """The next trip has another value: folding the first one in would give wrong shapes."""
    bound = load("""g (float[4, 6] x) => (y) {
        n = Constant <value_int = 3> ()
        true = Constant <value = bool {1}> ()
        one = Constant <value_ints = [1]> ()
        y, ys = Loop (n, true, one) <
            body = b (int64 i, bool c, int64[1] v) => (c_out, v_out, made) {
                c_out = Identity (c)
                v_out = Add (v, v)
                made = ConstantOfShape (v)
            }
        >
    }""")
    made = node_of(bound, "ConstantOfShape")

    assert made.output().shape == (None,)
    assert op_types(node_of(bound, "Loop").bodies["body"].nodes).count("Add") == 1


def test_bodies_within_bodies_see_every_scope() -> None:
    bound = load("""g (float[2, 3] x, bool c0) => (y) {
        n = Constant <value_int = 4> ()
        true = Constant <value = bool {1}> ()
        outer = Transpose (x)
        y = Loop (n, true, x) <
            body = b (int64 i, bool c, v) => (c_out, v_out) {
                c_out = Identity (c)
                v_out = If (c0) <
                    then_branch = t () => (p) { p = MatMul (x, outer)  },
                    else_branch = e () => (q) { q = MatMul (v, outer) }
                >
            }
        >
    }""")
    products = [n.output().shape for n in bound.graph.walk() if n.op_type == "MatMul"]

    assert products[0] == (2, 2)
    assert len(products) == 2


# -- Scan


_SCAN = """g (float[2] start, float[5, 3, 2] xs) => (final, ys) <int64[1] axes = {0}> {
    final, ys = Scan <num_scan_inputs = 1%s,
        body = b (float[2] state, x) => (next, out) {
            row = ReduceSum <keepdims = 0> (x, axes)
            next = Add (state, row)
            out = Transpose (x)
        }
    > (start, xs)
}"""


def test_a_scan_runs_once_for_each_slice_along_its_axes() -> None:
    bound = load(_SCAN % "")
    assert node_of(bound, "Scan").trips == 5
    assert shapes(bound, "final", "ys") == [(2,), (5, 2, 3)]
    along = load(
        _SCAN % ", scan_input_axes = [1], scan_output_axes = [-1]",
        Binding(inputs=(parse_input_spec("xs:f32:5x3x2"),)),
    )
    assert node_of(along, "Scan").trips == 3
    assert shapes(along, "ys") == [(2, 5, 3)]


def test_a_scan_of_opset_8_runs_once_for_each_slice_of_each_sequence() -> None:
    """Its first input has the lengths of the sequences, and every other one begins with a batch."""
    model = parse(
        """g (float[2, 3] start, float[2, 5, 3] xs) => (final, ys) {
            final, ys = Scan <num_scan_inputs = 1,
                body = b (float[3] state, float[3] x) => (float[3] next, float[3] out) {
                    next = Add (state, x)
                    out = Relu (next)
                }
            > (start, xs)
        }""",
        opset=8,
    )
    model.graph.node[0].input.insert(0, "")
    bound = load(model)

    assert node_of(bound, "Scan").trips == 2 * 5
    assert node_of(bound, "Add").output().shape == (3,)
    assert shapes(bound, "final", "ys") == [(2, 3), (2, 5, 3)]


# -- functions


def _with_function() -> onnx.ModelProto:
    model = parse(
        "g (float[2, 8] x) => (y) { h = custom.block (x, w)  y = custom.block (h, w) }",
        {"w": random_floats(8, 8)},
    )
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["m"]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(zeros(8), "c")),
        helper.make_node("Add", ["m", "c"], ["r"]),
    ]
    model.functions.append(
        helper.make_function("custom", "block", ["a", "b"], ["r"], nodes, model.opset_import)
    )
    return model


def test_local_functions_are_unfolded_into_layers_of_different_ids() -> None:
    bound = load(_with_function())
    assert op_types(bound.graph.nodes) == ["MatMul", "Add", "MatMul", "Add"]
    assert len({node.id for node in bound.graph.nodes}) == 4
    assert shapes(bound, "y") == [(2, 8)]
    assert bound.graph.weights["w"].params == 64


@pytest.mark.parametrize("imports", ['"": 18', '"": 22', '"": 21, "custom": 2', '"ai.onnx": 18'])
def test_functions_that_import_other_opsets_are_unfolded(imports: str) -> None:
    model = parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "custom": 1]>
        g (float[2, 8] x) => (float[2, 8] y) {{ h = custom.outer (x)  y = custom.outer (h) }}
        <domain: "custom", opset_import: [{imports}]>
        outer (a) => (c) {{ b = custom.inner (a)  c = custom.inner (b) }}
        <domain: "custom", opset_import: [{imports}]>
        inner (a) => (c) {{ b = Shape (a)  c = Reshape (a, b) }}"""
    )
    bound = load(model)
    assert op_types(bound.graph.nodes) == ["Shape", "Reshape"] * 4
    assert shapes(bound, "y") == [(2, 8)]


def test_a_call_of_a_function_has_the_defaults_of_its_attributes() -> None:
    model = parse("g (float[2, 8] x) => (y) { h = custom.f (x)  y = custom.f <axis = 1> (h) }")
    node = helper.make_node("Softmax", ["a"], ["b"])
    node.attribute.add(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
    default = helper.make_attribute("axis", 0)
    model.functions.append(
        helper.make_function(
            "custom", "f", ["a"], ["b"], [node], model.opset_import, attribute_protos=[default]
        )
    )

    assert [node.attributes for node in load(model).graph.nodes] == [{"axis": 0}, {"axis": 1}]


# -- constants and parameters


def _params(model: str | onnx.ModelProto, **options: int) -> dict[str, int]:
    return {w.name: w.params for w in load(model, **options).graph.weights.values() if w.params}  # type: ignore[arg-type]  # only opset


def test_tensors_made_of_constants_are_folded_and_still_weights() -> None:
    model = parse(
        """g (float[2, 8] x) => (y) {
        half = Cast <to = 10> (w)
        turned = Transpose (half)
        full = Cast <to = 1> (turned)
        same = Identity (full)
        y = MatMul (x, same)
    }""",
        {"w": random_floats(5, 8)},
    )
    bound = load(model)

    assert op_types(bound.graph.nodes) == ["MatMul"]
    assert bound.graph.nodes[0].input(1).weights == ("w",)
    assert shapes(bound, "y") == [(2, 5)]
    assert _params(model) == {"w": 40}


def test_an_operator_of_another_domain_is_not_folded() -> None:
    """ONNX Runtime does not know that it returns the same each time, and runs it."""
    model = parse(
        "g (float[3, 3] x) => (y) { i = com.microsoft.Inverse (w)  y = Add (x, i) }",
        {"w": random_floats(3, 3)},
    )
    assert op_types(load(model).graph.nodes) == ["Inverse", "Add"]


_SCALE = np.asarray(0.5, np.float32)
# MatMulNBits with K=64, N=16, 4 bits in blocks of 32: two weights in a byte.
_PACKED, _SCALES = np.zeros((16, 2, 16), np.uint8), zeros(16, 2)

# Bodies that compute y of x, their weights, and the parameters of each.
PARAMETERS: dict[str, tuple[str, Mapping[str, Array], Mapping[str, int]]] = {
    "ConstantOfShape makes weights": (
        """s = Constant <value_ints = [8, 5]> ()
        w = ConstantOfShape <value = float[1] {0.5}> (s)
        y = MatMul (x, w)""",
        {}, {"w": 40},
    ),
    "a generated weight that is reshaped counts once": (
        """s = Constant <value_ints = [40]> ()
        flat = ConstantOfShape <value = float[1] {0.5}> (s)
        t = Constant <value_ints = [8, 5]> ()
        w = Reshape (flat, t)
        y = MatMul (x, w)""",
        {}, {"flat": 40},
    ),
    "a weight that several nodes take counts once": (
        "a = MatMul (x, w)  y = MatMul (a, w)", {"w": random_floats(8, 8)}, {"w": 64}
    ),
    "a weight that no node takes does not count": (
        "y = MatMul (x, w)", {"w": random_floats(8, 8), "unused": random_floats(9, 9)}, {"w": 64},
    ),
    "a weight that only an unused constant takes does not count": (
        "c = Transpose (unused)  y = MatMul (x, w)",
        {"w": random_floats(8, 8), "unused": random_floats(9, 9)}, {"w": 64},
    ),
    "a scalar is a parameter, and a shape, an index and a bound are not": (
        """t = Constant <value_ints = [4, 4]> ()
        r = Reshape (x, t)
        e = Gather (r, index)
        c = Clip (e, low, high)
        y = Mul (c, scale)""",
        {
            "scale": np.asarray(2.0, np.float32),
            "index": np.asarray([0, 1]),
            "low": np.asarray(0.0, np.float32),
            "high": np.asarray(6.0, np.float32),
        },
        {"scale": 1},
    ),
    "an embedding": ("y = Gather (table, ids)", {"table": zeros(9, 4)}, {"table": 36}),
    "a quantized bias of 32 bits": (
        "b = DequantizeLinear (q, scale)  y = Add (x, b)",
        {"q": np.zeros(8, np.int32), "scale": _SCALE}, {"q": 8, "scale": 1},
    ),
    "packed weights count what they stand for": (
        """y = com.microsoft.MatMulNBits <
            K: int = 64, N: int = 16, bits: int = 4, block_size: int = 32
        > (wide, w, s)""",
        {"w": _PACKED, "s": zeros(32)}, {"w": 64 * 16, "s": 32},
    ),
    "a projection that is left out has none": (
        """y = com.microsoft.MatMulNBits <
            K: int = 64, N: int = 16, bits: int = 4, block_size: int = 32
        > (wide, w, s)""",
        {"w": np.zeros((0, 2, 16), np.uint8), "s": zeros(0)}, {},
    ),
    "fused packed weights of a gate and its values": (
        """y = com.microsoft.MatMulNBitsMlp <
            K: int = 64, N: int = 16, bits: int = 4, block_size: int = 32, activation = "silu"
        > (wide, , , gate, gate_scales, , up, up_scales)""",
        {"gate": _PACKED, "gate_scales": _SCALES, "up": _PACKED, "up_scales": _SCALES},
        {"gate": 64 * 16, "gate_scales": 32, "up": 64 * 16, "up_scales": 32},
    ),
    "fused packed weights of queries, keys and values": (
        """y, b, c = com.microsoft.MatMulNBitsQkv <
            K: int = 64, Nq: int = 16, Nkv: int = 16, bits: int = 4, block_size: int = 32
        > (wide, , n, q, qs, , k, ks, , v, vs)""",
        {
            "n": zeros(64), **dict.fromkeys("qkv", _PACKED),
            **dict.fromkeys(("qs", "ks", "vs"), _SCALES),
        },
        {"n": 64, **dict.fromkeys("qkv", 64 * 16), **dict.fromkeys(("qs", "ks", "vs"), 32)},
    ),
    "each layer of an expert with bits of its own": (
        """y = com.microsoft.QMoE <
            expert_weight_bits: int = 4, fc2_expert_weight_bits: int = 8
        > (tokens, r, a, sa, , b, sb)""",
        {
            "a": np.zeros((3, 64, 16), np.uint8), "sa": zeros(3, 64),
            "b": np.zeros((3, 32, 64), np.uint8), "sb": zeros(3, 32),
        },
        {"a": 3 * 64 * 32, "sa": 3 * 64, "b": 3 * 32 * 64, "sb": 3 * 32},
    ),
    # Two 4-bit numbers are in a byte, in the table and its zero points.
    "a packed table counts what it stands for": (
        """y = com.microsoft.GatherBlockQuantized <
            bits: int = 4, block_size: int = 32, quantize_axis: int = 1
        > (table, ids, scales, zeros)""",
        {
            "table": np.zeros((9, 32), np.uint8),
            "scales": zeros(9, 2),
            "zeros": np.zeros((9, 1), np.uint8),
        },
        {"table": 9 * 64, "scales": 18, "zeros": 18},
    ),
    # In format 2, a block of 32 weights takes 18 bytes.
    "a packed format shows how many weights its bytes hold": (
        """y = com.microsoft.MatMulPacked <packed_type: int = 2, K: int = 64, N: int = 5> (wide, w)
        z = com.microsoft.GatherPacked <packed_type: int = 2, K: int = 64> (table, ids)""",
        {"w": np.zeros((5, 36), np.uint8), "table": np.zeros((9, 36), np.uint8)},
        {"w": 5 * 64, "table": 9 * 64},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "weights", "expected"), PARAMETERS.values(), ids=PARAMETERS)
def test_parameters(body: str, weights: Mapping[str, Array], expected: Mapping[str, int]) -> None:
    inputs = "float[2, 8] x, float[2, 64] wide, float[2, 32] tokens, float[2, 3] r"
    outputs = "y, z" if "z = " in body else "y"
    model = parse(f"g ({inputs}, int64[2, 5] ids) => ({outputs}) {{ {body} }}", weights)
    assert _params(model) == expected
    assert "unused" not in load(model).graph.weights


def test_a_random_weight_is_not_a_constant() -> None:
    bound = load("""g (float[2, 8] x) => (y) {
        w = RandomNormal <shape = [8, 5]> ()
        y = MatMul (x, w)
    }""")
    assert op_types(bound.graph.nodes) == ["RandomNormal", "MatMul"]
    assert not any(w.params for w in bound.graph.weights.values())


def test_quantized_weights_are_parameters_with_their_zero_point() -> None:
    model = parse(
        """g (float[2, 8] x) => (y) {
        w = DequantizeLinear (q, scale, zero)
        y = MatMul (x, w)
    }""",
        {
            "q": np.zeros((8, 5), np.int8),
            "scale": np.asarray(0.5, np.float32),
            "zero": np.asarray(3, np.int8),
        },
    )
    weights = load(model).graph.weights

    assert weights["q"].params == 40
    zero_point = weights["q"].zero_point
    assert known(zero_point).weight == "zero"


@pytest.mark.parametrize(("bits", "per_byte"), [("", 1), (", lora_bits: int = 4", 2)])
def test_an_adapter_has_bits_of_its_own(bits: str, per_byte: int) -> None:
    model = parse(
        f"""g (float[2, 64] x) => (y) {{
        y = com.microsoft.MatMulNBitsQLoRA <K: int = 64, N: int = 5{bits}> (x, w, s, a, t, b, u)
    }}""",
        {
            "w": np.zeros((5, 2, 16), np.uint8), "s": zeros(5, 2),
            "a": np.zeros((32, 2, 32), np.uint8), "t": zeros(32, 2),
            "b": np.zeros((5, 1, 32), np.uint8), "u": zeros(5, 1),
        },
    )  # fmt: skip
    found = _params(model)
    assert found["w"] == 5 * 64
    assert (found["a"], found["b"]) == (32 * 64 * per_byte, 5 * 32 * per_byte)


def test_a_sparse_weight_is_a_weight_of_its_dense_shape() -> None:
    model = parse("g (float[2, 8] x) => (y) { y = MatMul (x, w) }")
    values = numpy_helper.from_array(np.asarray([1.0, 2.0, 3.0], np.float32), "w")
    indices = numpy_helper.from_array(np.asarray([0, 9, 17]), "")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [8, 5]))
    bound = load(model)

    assert shapes(bound, "y") == [(2, 5)]
    assert bound.graph.weights["w"].origin == "sparse"
    assert bound.graph.weights["w"].params == 40
    assert bound.graph.weights["w"].nbytes == 3 * 4 + 3 * 8


def test_a_weight_of_a_body_is_a_weight_of_the_model_under_a_name_of_its_own() -> None:
    bound = load("""g (bool c, float[2] x) => (y) {
        [pick] y = If (c) <
            then_branch = t () => (a) <float[2] w = {1, 2}> { a = Mul (x, w) },
            else_branch = e () => (b) <float[2] w = {3, 4}> { b = Add (x, w) }
        >
    }""")
    weights = bound.graph.weights

    assert sorted(weights) == ["pick/else_branch/w", "pick/then_branch/w"]
    assert [w.params for w in weights.values()] == [2, 2]
    values = [bound.read_weight(name) for name in sorted(weights)]
    assert [v.tolist() for v in values if v is not None] == [[3, 4], [1, 2]]


def test_a_weight_that_is_an_output_is_used() -> None:
    model = parse("g (float[2] x) => (y, w) { y = Relu (x) }", {"w": zeros(3)})
    assert "w" in load(model).graph.weights


def test_a_shape_that_is_stored_in_another_file_is_read_if_the_file_is_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.onnx"
    target, scales = np.asarray([1, 1, 2, 6]), np.asarray([1, 1, 2, 0.5], np.float32)
    model = parse(
        """g (float[3, 4] x) => (y) {
            image = Reshape (x, target)
            y = Resize (image, , scales)
        }""",
        {"target": target, "scales": scales},
    )
    onnx.save(model, str(path), save_as_external_data=True, location="w", size_threshold=0)

    assert shapes(load_model(open_model(path)), "y") == [(1, 1, 4, 3)]
    (tmp_path / "w").unlink()
    assert shapes(load_model(open_model(path)), "x", "y") == [(3, 4), (None, None, None, None)]


def test_a_large_weight_is_known_by_shape_and_reads_as_the_values_it_has() -> None:
    values = random_floats(400, 3)
    bound = load(parse("g (float[2, 400] x) => (y) { y = MatMul (x, w) }", {"w": values}))
    tensor = bound.tensors["w"]
    assert (tensor.shape, tensor.value, tensor.is_constant) == ((400, 3), None, True)
    np.testing.assert_array_equal(known(bound.read_weight("w")), values)
    assert bound.read_weight("nothing") is None


@pytest.mark.parametrize(
    ("attribute", "shape", "dtype"),
    [
        ("value = float[2] {1, 2}", (2,), "float32"),
        ("value_int = 3", (), "int64"),
        ("value_ints = [3, 4]", (2,), "int64"),
        ("value_float = 3.5", (), "float32"),
        ("value_floats = [3.5]", (1,), "float32"),
        ('value_string = "a"', (), "string"),
        ('value_strings = ["a", "b"]', (2,), "string"),
    ],
)
def test_each_kind_of_constant_is_a_constant(
    attribute: str, shape: tuple[int, ...], dtype: str
) -> None:
    bound = load(f"g () => (c) {{ c = Constant <{attribute}> () }}")
    tensor = bound.tensors["c"]
    assert (tensor.shape, tensor.dtype, tensor.is_constant) == (shape, dtype, True)
    assert bound.graph.nodes == ()


def test_a_constant_without_a_value_is_refused() -> None:
    model = parse("g (float[2] x) => (y) { c = Constant () y = Relu (x) }")
    with pytest.raises(ModelError, match="Constant"):
        load(model)


def test_a_tensor_without_a_fixed_size_has_no_bytes_and_half_a_byte_is_rounded_up() -> None:
    model = parse("g (float[2] x) => (y) { y = Relu (x) }")
    weight = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.INT4, dims=[3])
    weight.int32_data.extend([1, 2])
    model.graph.output.add(name="w")
    bound = load(model, opset=21)

    assert bound.graph.weights["w"].nbytes == 2
    assert bound.tensors["w"].nbytes == 2


def test_a_model_without_inputs_is_read() -> None:
    bound = load("g () => (y) { y = RandomNormal <shape = [2, 3]> () }")
    assert shapes(bound, "y") == [(2, 3)]
    assert bound.inputs.batch_size == 1


def test_an_input_of_unknown_rank_is_unknown_and_can_be_given() -> None:
    text = "g (float x) => (y) { y = Relu (x) }"
    model = parse(text)
    model.graph.input[0].type.tensor_type.ClearField("shape")

    assert shapes(load(model), "y") == [None]
    given_whole = Binding(inputs=(parse_input_spec("x:f32:2x3"),))
    assert shapes(load(model, given_whole), "x", "y") == [(2, 3), (2, 3)]


def test_a_binding_error_names_the_model() -> None:
    with pytest.raises(BindingError, match="the given model has a dimension without a size: 'seq'"):
        load("g (float[N, seq] x) => (y) { y = Relu (x) }")


# -- the models that onnx ships


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_a_light_model_has_every_shape_and_its_published_parameters(name: str) -> None:
    bound = load_model(open_model(light_model(name)))
    # The mask of a Dropout, which nothing takes, has no shape in old operator sets.
    assert all(None not in node.output().dims for node in bound.graph.nodes)
    assert sum(w.params for w in bound.graph.weights.values()) == LIGHT_MODELS[name].params
