"""Models made to break their reader, and the child process that reads them.

onnx infers shapes in C++: what it does to a broken model may end the process, which no test could
report. So a child reads the models and says of each, as it goes, what became of it.
"""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto, helper

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.profiler.request import profile_model
from tests.support.graph_models import parse
from tests.support.onnx_text import INSTALLED, parse_model

Build = Callable[[], onnx.ModelProto]


def _text(graph: str, *, opset: int = 18) -> Build:
    return lambda: parse(graph, opset=opset)


def _ml(graph: str) -> Build:
    header = '<ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 4, "custom": 1]>'
    return lambda: parse_model(f"{header} {graph}")


def _weight(dims: list[int], raw: bytes = b"", **fields: object) -> Build:
    def build() -> onnx.ModelProto:
        model = parse("g (float[2] x) => (y) { y = Add (x, w) }")
        model.graph.initializer.append(
            TensorProto(name="w", data_type=1, dims=dims, raw_data=raw, **fields)  # type: ignore[arg-type]  # its fields
        )
        return model

    return build


def _attribute_tensor(dims: list[int]) -> onnx.ModelProto:
    model = parse(
        "g (float[2] x) => (y) { c = Constant <value = float[1] {1}> ()  y = Add (x, c) }"
    )
    model.graph.node[0].attribute[0].t.dims[:] = dims
    return model


def _sparse(dims: list[int]) -> onnx.ModelProto:
    model = parse("g (float[2] x) => (y) { y = Add (x, w) }")
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dims))
    return model


def _functions(levels: int, calls: int) -> onnx.ModelProto:
    """Functions that call each the one below, several times: they unfold to calls ** levels."""
    model = parse(f"g (float[2] x) => (float[2] y) {{ y = custom.f{levels} (x) }}")
    for level in range(levels + 1):
        op, domain = (f"f{level - 1}", "custom") if level else ("Relu", "")
        nodes = [
            helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(calls)
        ]
        model.functions.append(
            helper.make_function(
                "custom", f"f{level}", ["v0"], [f"v{calls}"], nodes, model.opset_import
            )
        )
    return model


def _function(call: str, body: str) -> Build:
    """A model that calls `local.f`, whose attributes the body refers to."""
    header = '<ir_version: 10, opset_import: ["": 18, "local": 1]>'
    function = '<domain: "local", opset_import: ["": 18]>'
    return lambda: parse_model(
        f"{header} g (float[6, 3] x) => (y) {{ y = local.f {call} (x) }} {function} {body}"
    )


def _not_utf8(place: bytes) -> Build:
    def build() -> onnx.ModelProto:
        model = parse("gggg (float[NNNN, 2] xxxx) => (yyyy) { [aaaa] yyyy = Relu (xxxx) }")
        model.producer_name = "pppp"
        return onnx.ModelProto.FromString(
            model.SerializeToString().replace(place, b"\xff\xfe\xfd\xfc"[: len(place)])
        )

    return build


def _renamed(op_type: str) -> onnx.ModelProto:
    model = parse("g (float[2] x) => (y) { y = Relu (x) }")
    model.graph.node[0].op_type = op_type
    return model


def _without_outputs() -> onnx.ModelProto:
    model = parse("g (float[2] x) => (x) { y = Relu (x) }")
    del model.graph.node[0].output[:]
    return model


def _untyped() -> onnx.ModelProto:
    model = parse("g (float[2, 3] x) => (y) { y = Transpose <perm = [1, 0]> (x) }")
    model.graph.node[0].attribute[0].ClearField("type")
    return model


_LOOP = """g (float[2] x) => (y) {
    n = Constant <value_int = %d> ()
    true = Constant <value = bool {1}> ()
    y = Loop (n, true, x) <
        body = b (int64 i, bool c, v) => (c_out, v_out) { c_out = Identity (c)  v_out = %s }
    >
}"""

# The effect of each, in a word or two.
_ALL_CASES: Mapping[str, Build] = {
    # onnx's inference ends the process, or never ends, without a guard.
    "more outputs than the operator has": _text(
        "g (float[2] x) => (y) { y, m, i, extra = LayerNormalization (x, x) }"
    ),
    "an axis beyond 32 bits": _text(
        "g (float[2, 3] x) => (y) { y, m = LayerNormalization <axis = 2147483648> (x, x) }"
    ),
    "fewer parts than outputs": _text(
        "g (float[6] x) => (a, b, c, d) { a, b, c, d = Split <num_outputs = 3> (x) }"
    ),
    "more parts than memory": _text(
        "g (float[6] x) => (a, b) { a, b = Split <num_outputs = 4611686018427387904> (x) }"
    ),
    "negative batch dimensions": _text(
        "g (float[3] x, int64[3] i) => (y) { y = GatherND <batch_dims = -2147483648> (x, i) }"
    ),
    "an equation that never ends": _text('g (float x) => (y) { y = Einsum <equation = ">"> (x) }'),
    "an equation with a tab": _text(
        'g (float[3] x) => (y) { y = Einsum <equation = "i\t->i"> (x) }'
    ),
    "an unknown type for a regular expression": _text(
        'g (float[2] x) => (y) { a = custom.Foo (x)  y = RegexFullMatch <pattern = "a"> (a) }',
        opset=20,
    ),
    "an unknown type for an identity matrix": _text(
        "g (float[2] x) => (y) { a = custom.Foo (x)  y = EyeLike <dtype = 1> (a) }"
    ),
    "an unknown type for a label encoder": _ml(
        "g (float[2] x) => (y) { a = custom.Foo (x)  "
        'y = ai.onnx.ml.LabelEncoder <keys_strings = ["a"], values_floats = [1.0]> (a) }'
    ),
    "a label encoder without labels": _ml(
        'g (string[2] x) => (y) { y = ai.onnx.ml.LabelEncoder <keys_strings = ["a"]> (x) }'
    ),
    "an unknown type for a vocabulary": _ml(
        "g (float[2] x) => (y) { a = custom.Foo (x)  "
        'y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a"]> (a) }'
    ),
    "a node that feeds itself": _text("g (float[2] x) => (y) { y = RegexFullMatch (y) }", opset=20),
    # Claims of sizes that are not there.
    "a weight of 2**40 elements without data": _weight([2**40]),
    "a weight of 2**40 elements with four bytes": _weight([2**40], b"1234"),
    "a weight whose dimensions overflow": _weight([2**62, 2**62, 2**62], b"1234"),
    "a weight of negative dimensions": _weight([-2, -2], b"1234" * 4),
    "a weight of zero and of very many": _weight([0, 2**62]),
    "a constant of 2**31 elements with four bytes": lambda: _attribute_tensor([2**31 - 1]),
    "a sparse weight of 2**40 elements": lambda: _sparse([2**20, 2**20]),
    "a sparse weight of negative dimensions": lambda: _sparse([-1, 2]),
    # Constants that would be enormous if anything made them.
    "a range of 2**40": _text("""g (float[2] x) => (y) {
        a = Constant <value_int = 0> ()  b = Constant <value_int = 1099511627776> ()
        d = Constant <value_int = 1> ()  y = Range (a, b, d) }"""),
    "a range without a step": _text("""g (float[2] x) => (y) {
        a = Constant <value_int = 0> ()  b = Constant <value_int = 5> ()
        r = Range (a, b, a)  y = Reshape (x, r) }"""),
    "zeros of 2**60": _text("""g (float[2] x) => (y) {
        s = Constant <value_ints = [1073741824, 1073741824]> ()  w = ConstantOfShape (s)
        y = Add (x, w) }"""),
    "zeros of a shape that overflows": _text("""g (float[2] x) => (y) {
        s = Constant <value_ints = [4611686018427387904, 4611686018427387904]> ()
        w = ConstantOfShape (s)  y = Add (x, w) }"""),
    "an expansion to 2**60": _text("""g (float[1] x) => (y) {
        s = Constant <value_ints = [1073741824, 1073741824]> ()  y = Expand (x, s) }"""),
    "a constant expanded to 2**60": _text("""g (float[1] x) => (y) {
        s = Constant <value_ints = [1073741824, 1073741824]> ()  o = Constant <value_int = 1> ()
        w = Expand (o, s)  y = Reshape (x, w) }"""),
    "a tile of 2**62": _text("""g (float[2] x) => (y) {
        s = Constant <value_ints = [4611686018427387904]> ()  y = Tile (x, s) }"""),
    "a constant tiled 2**40 times": _text("""g (float[2] x) => (y) {
        s = Constant <value_ints = [1099511627776]> ()  o = Constant <value_ints = [1, 1]> ()
        t = Tile (o, s)  y = Reshape (x, t) }"""),
    "a pad of 2**62": _text("""g (float[2] x) => (y) {
        p = Constant <value_ints = [4611686018427387904, 4611686018427387904]> ()
        y = Pad (x, p) }"""),
    "a resize by 10**30": _text("""g (float[1, 1, 2, 2] x) => (y) {
        s = Constant <value_floats = [1.0, 1.0, 1e30, 1e30]> ()  y = Resize (x, , s) }"""),
    "a long vector taken apart": _text("g (float[1000000000] x) => (y) { y = Add (x, x) }"),
    "a power that never fits": _text("""g (float[2] x) => (y) {
        a = Constant <value_ints = [9223372036854775807]> ()
        b = Pow (a, a)  c = Mul (b, b)  y = Reshape (x, c) }"""),
    "a division by zero in a shape": _text("""g (float[2] x) => (y) {
        s = Shape (x)  z = Constant <value_ints = [0]> ()  d = Div (s, z)  m = Mod (s, z)
        t = Add (d, m)  y = Reshape (x, t) }"""),
    "a convolution of negative sizes": _text("""
    g (float[1, 1, 4, 4] x, float[1, 1, 9, 9] w) => (y) {
        c = Conv <strides = [0, -1]> (x, w)  y = MaxPool <kernel_shape = [99, -3]> (c) }"""),
    "n-grams of negative length": _text("""g (int32[12] x) => (y) {
        y = TfIdfVectorizer <max_gram_length: int = 4611686018427387904,
        max_skip_count: int = 4611686018427387904,
        min_gram_length: int = -4611686018427387904, mode = "TF", ngram_counts: ints = [0, 0],
        ngram_indexes: ints = [0, 1, 2], pool_int64s: ints = [5, 6, 7]> (x) }"""),
    "blocks larger than any picture": _text(
        "g (float[2, 4, 4, 4] x) => (y) { y = DepthToSpace <blocksize = 4611686018427387904> (x) }"
    ),
    "more scanned inputs than there are": _text("""
    g (float[2] x, float[5, 2] s) => (a, b) {
        a, b = Scan <num_scan_inputs = 4611686018427387904, body = q (float[2] t, z) => (n, o) {
            n = Identity (t)  o = Identity (z) }> (x, s) }"""),
    # Bodies and functions that would never end.
    "a loop of 2**62 trips": _text(_LOOP % (2**62, "Relu (v)")),
    "a loop that doubles what it carries": _text(_LOOP % (2**62, "Concat <axis = 0> (v, v)")),
    "functions that unfold to 2**40 nodes": lambda: _functions(40, 2),
    "functions that unfold to 3**7 nodes": lambda: _functions(6, 3),
    "functions forty deep": lambda: _functions(40, 1),
    "an axis beyond 32 bits by reference": _function(
        "<axis = 2147483648>",
        "f <axis> (X) => (Y) { Y, m = LayerNormalization <axis: int = @axis> (X, X) }",
    ),
    "parts by reference": _function(
        "<n = 3>", "f <n> (X) => (Y) { Y, b, c = Split <num_outputs: int = @n> (X) }"
    ),
    "fewer parts than outputs by reference": _function(
        "<n = 2>", "f <n> (X) => (Y) { Y, b, c = Split <num_outputs: int = @n> (X) }"
    ),
    "an equation that never ends by reference": _function(
        '<e = ">">',
        "f <e> (X) => (Y) { r = ReduceSum <keepdims = 0> (X) "
        "Y = Einsum <equation: string = @e> (r) }",
    ),
    "a text for a number by reference": _function(
        '<v = "text">',
        "f <v> (X) => (Y) { c = Constant <value_float: float = @v> ()  Y = Mul (X, c) }",
    ),
    # Names.
    "a node name that is not text": _not_utf8(b"aaaa"),
    "a producer that is not text": _not_utf8(b"pppp"),
    "a tensor name that is not text": _not_utf8(b"xxxx"),
    "an output name that is not text": _not_utf8(b"yyyy"),
    "a graph name that is not text": _not_utf8(b"gggg"),
    "a dimension name that is not text": _not_utf8(b"NNNN"),
    "an operator name that is not text": _not_utf8(b"Relu"),
    # Invalid nodes.
    "a shape of nothing": _text("g (float[2] x) => (y) { s = Shape ()  y = Reshape (x, s) }"),
    "a node without outputs": _without_outputs,
    "an empty operator": lambda: _renamed(""),
    "a name with a terminal escape": lambda: _renamed("\x1b[2J"),
    "attributes without a type": _untyped,
}


# These end the process, or never end, with every onnx before that one.
_SINCE: Mapping[str, tuple[int, int]] = {
    "a constant tiled 2**40 times": (1, 23),
    "a convolution of negative sizes": (1, 22),
    "blocks larger than any picture": (1, 23),
}

CASES: Mapping[str, Build] = {
    name: build for name, build in _ALL_CASES.items() if _SINCE.get(name, (1, 0)) <= INSTALLED
}

# Models whose mutations reach control flow, functions, sequences, optionals and shape arithmetic.
SEEDS: tuple[Build, ...] = (
    _text(_LOOP % (3, "Relu (v)")),
    _text("""g (float[2, 3] x, bool c) => (y) {
        y = If (c) <
            then_branch = t () => (a) { a = MatMul (x, w) },
            else_branch = e () => (b) { b0 = Transpose (x)  b = MatMul (b0, x) }
        >
        w = Transpose (x)
    }"""),
    _text("""g (float[2] s, float[5, 3, 2] xs) => (f, ys) <int64[1] axes = {0}> {
        f, ys = Scan <num_scan_inputs = 1, body = b (float[2] state, x) => (next, out) {
            r = ReduceSum <keepdims = 0> (x, axes)  next = Add (state, r)  out = Transpose (x)
        }> (s, xs)
    }"""),
    _text("""g (float[2, 6] x) => (y, z) {
        s = SequenceConstruct (x, x)  zero = Constant <value_int = 0> ()
        a = SequenceAt (s, zero)  o = Optional (a)  h = OptionalHasElement (o)
        b = OptionalGetElement (o)  p = SplitToSequence (b)  n = SequenceLength (p)
        y = ConcatFromSequence <axis = 0> (p)  z = Cast <to = 1> (n)
    }"""),
    _text("""g (float[2, 6] x) => (y) <int64[1] minus = {-1}> {
        s = Shape (x)  i = Constant <value_int = 0> ()  b = Gather (s, i)
        axes = Constant <value_ints = [0]> ()  u = Unsqueeze (b, axes)
        t = Concat <axis = 0> (u, minus)  r = Reshape (x, t)  q = Size (r)
        one = Constant <value_int = 1> ()  g = Range (i, q, one)  e = Reshape (g, t)
        f = Cast <to = 1> (e)  y = Einsum <equation = "ij,kj->ik"> (r, f)
    }"""),
    _text("""g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (y) {
        c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
        p = MaxPool <kernel_shape = [2, 2]> (c)
        l = LSTM <hidden_size = 4> (k, m, m)  k = Squeeze (p)  m = Relu (k)
        a, b = Split <num_outputs = 2, axis = 1> (p)  y = GlobalAveragePool (a)
    }"""),
    lambda: _functions(3, 2),
)  # fmt: skip

_NUMBERS = (0, 1, -1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**63))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The model with a few things wrong, in its structure or in its bytes."""
    if rng.random() < 0.3:
        return _mutate_bytes(bytearray(data), rng)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        nodes = list(_nodes(model.graph)) + [n for f in model.functions for n in f.node]
        if nodes:
            _mutate_node(rng.choice(nodes), nodes, rng)
        if rng.random() < 0.2:
            _mutate_input(model.graph, rng)
    return model.SerializeToString()


def _mutate_bytes(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 2, 4))):
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 1:
                del data[place : place + rng.choice((1, 4))]
            case 2:
                data[place:place] = rng.randbytes(rng.choice((1, 4)))
            case _:
                data[place] ^= 1 << rng.randrange(8)
        if not data:
            return b""
    return bytes(data)


def _mutate_node(node: onnx.NodeProto, nodes: list[onnx.NodeProto], rng: random.Random) -> None:
    names = [name for other in nodes for name in other.output] + ["", "x", "nothing"]
    match rng.randrange(9):
        case 0 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        case 1 if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input)) :]
        case 3:
            node.input.append(rng.choice(names))
        case 4:
            node.output.append(f"new{rng.randrange(9)}")
        case 5:
            node.op_type = rng.choice(nodes).op_type
        case 6 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 7:
            node.attribute.extend(rng.choice(nodes).attribute[:1])
        case _ if node.attribute:
            _mutate_attribute(rng.choice(node.attribute), rng)
        case _:
            node.output.append("new")


def _mutate_attribute(attribute: AttributeProto, rng: random.Random) -> None:
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(_NUMBERS)
        case AttributeProto.INTS:
            attribute.ints.append(rng.choice(_NUMBERS))
        case AttributeProto.STRING:
            attribute.s = rng.choice((b"", b"\xff", b"VALID", b"ij->", b"...", b">"))
        case AttributeProto.TENSOR:
            attribute.t.dims.append(rng.choice(_NUMBERS))
        case AttributeProto.GRAPH if attribute.g.node:
            rng.choice((attribute.g.node, attribute.g.input, attribute.g.output)).pop()
        case _:
            attribute.type = AttributeProto.INT


def _mutate_input(graph: onnx.GraphProto, rng: random.Random) -> None:
    kind = rng.choice(graph.input).type.tensor_type
    match rng.randrange(3):
        case 0:
            kind.shape.dim.add().dim_value = rng.choice(_NUMBERS)
        case 1:
            kind.elem_type = rng.randrange(26)
        case _:
            kind.ClearField("shape")


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def outcome(data: bytes) -> dict[str, object]:
    """The result of one model: the message that refuses it, if any, and the memory it took."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    refused = None
    try:
        profile_model(data)
    except ModelPerfError as error:
        refused = str(error)
    return {"refused": refused, "peak": tracemalloc.get_traced_memory()[1] - before}


def main(folder: str, first: str) -> None:
    """Read the models of a folder from `first` on, and say of each what became of it."""
    tracemalloc.start()
    for path in sorted(p for p in Path(folder).iterdir() if p.name >= first):
        print(json.dumps({"name": path.name, **outcome(path.read_bytes())}), flush=True)  # noqa: T201  # its answer


if __name__ == "__main__":
    main(*sys.argv[1:])
