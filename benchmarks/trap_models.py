"""Pairs of models that differ in the value of one operand, which makes the second one slower.

`RECIPES` has the graphs as ONNX text. Each reads a float input `x` and the operand `v`, and returns
`y`; numbers among the operands of a node are constants. A recipe has several ways by which the
value reaches the operator (`trap_ways.py`), and each of them makes a trap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from onnx import ModelProto, parser
from trap_ways import Array, complete

# A list or a number is of int64 or float32, as its first number is.
Value: TypeAlias = "Array | Sequence[float] | float"

_OPERANDS = re.compile(r"\(([^()]*)\)(?! =>)")
_LITERAL = re.compile(r"\[?-?[\d.]+(?:, -?[\d.]+)*\]?|true")


@dataclass(frozen=True)
class Recipe:
    """A graph, the values of `v` in both models, and the ways by which they reach the operator.

    `variant` tells recipes of one operator from one another.
    """

    operator: str
    ways: str
    inputs: str
    nodes: str
    before: Value
    after: Value
    variant: str = ""
    output: str = "float[]"
    opset: int = 20


@dataclass(frozen=True)
class Trap:
    """A recipe and one of its ways."""

    recipe: Recipe
    way: str

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.recipe.operator, self.recipe.variant, f"({self.way})")))

    @property
    def is_optimized(self) -> bool:
        return self.way != "unoptimized"

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of its table: without optimization the engine folds no constants."""
        none = '{graph_optimization_level = "none"}'
        return {} if self.is_optimized else {"engine_options": none}

    def model(self, *, slower: bool) -> ModelProto:
        recipe = self.recipe
        model = parser.parse_model(
            f'<ir_version: 10, opset_import: ["": {recipe.opset}, "com.microsoft": 1, '
            f'"ai.onnx.ml": 3]> g ({recipe.inputs}) => ({recipe.output} y) '
            f"{{ {name_constants(recipe.nodes)} }}"
        )
        complete(model.graph, self.way, array_of(recipe.after if slower else recipe.before))
        return model


def traps() -> tuple[Trap, ...]:
    return tuple(Trap(recipe, way) for recipe in RECIPES for way in recipe.ways.split())


def name_constants(nodes: str) -> str:
    """The nodes with a Constant for each number or list among their operands."""
    known: dict[str, str] = {}

    def named(operands: re.Match[str]) -> str:
        names = [
            known.setdefault(each, f"constant{len(known)}") if _LITERAL.fullmatch(each) else each
            for each in re.split(r", ?(?![^\[]*\])", operands[1])
        ]
        return f"({', '.join(names)})"

    own = _OPERANDS.sub(named, nodes)
    return " ".join([*(f"{name} = {_constant(text)}" for text, name in known.items()), own])


def _constant(literal: str) -> str:
    if literal == "true":
        return "Constant <value = bool {1}> ()"
    kind = "float" if "." in literal else "int"
    return f"Constant <value_{kind}{'s' if literal[0] == '[' else ''} = {literal}> ()"


def array_of(value: Value) -> Array:
    array = np.asarray(value)
    is_written_out = not isinstance(value, np.ndarray) and array.dtype.kind == "f"
    return array.astype(np.float32) if is_written_out else array


# -- recipes


def _int32(value: int | list[int]) -> Array:
    return np.array(value, np.int32)


def _shuffled(values: Array) -> Array:
    return np.random.default_rng(0).permutation(values)


def _mask(share: float) -> Array:
    return np.random.default_rng(0).random(100_000) < share


def _regions(width: float, columns: int = 0) -> Array:
    """Regions of an image, behind some columns of zeros."""
    return np.tile(np.array([0] * columns + [0, 0, width, width], np.float32), (16, 1))


def _offsets(width: float) -> Array:
    return ((np.random.default_rng(0).random((1, 2, 128, 128)) - 0.5) * width).astype(np.float32)


_NO, _YES = np.zeros((), bool), np.ones((), bool)
_ORDERED = np.arange(1_000_000)
_SHUFFLED = _shuffled(_ORDERED)
# The grid of an image that takes each place in order.
_LINE = np.linspace(-1, 1, 128, dtype=np.float32)
_GRID = np.stack(np.meshgrid(_LINE, _LINE), axis=-1)[None]
_RAMP = np.arange(512 * 512, dtype=np.float32).reshape(1, 1, 512, 512)
_SHUFFLED_GRID = _shuffled(_GRID.reshape(-1, 2)).reshape(_GRID.shape)
_IMAGE = "float[N,8,64,64] x"
_SQUARE = "float[N,512,512] x"
_ROW = "float[N,100000] x"
_HEAD = "float[N,1000000] x"
_RNN = "float[N,256,32] x, float[1,{0},32] w, float[1,{0},32] r"
_STEPS = "s = Transpose <perm = [1, 0, 2]> (x) n, y = {0} <hidden_size = 32> (s, w, r, , v)"

RECIPES: tuple[Recipe, ...] = (
    # Sizes
    Recipe("Resize", "stored node identity factor size branch loop sparse", _IMAGE,
           'y = Resize <mode = "linear"> (x, , v)', [1.0, 1, 4, 4], [1.0, 1, 5, 5], "linear"),
    Recipe("Resize", "stored size chosen", _IMAGE, 'y = Resize <mode = "cubic"> (x, , v)',
           [1.0, 1, 2, 2], [1.0, 1, 2.5, 2.5], "cubic"),
    Recipe("Resize", "stored factor carried", _IMAGE, 'y = Resize <mode = "nearest"> (x, , v)',
           [1.0, 1, 2, 2], [1.0, 1, 4, 4], "nearest"),
    Recipe("Resize", "stored concat size unoptimized", _IMAGE, "y = Resize (x, , , v)",
           [1, 8, 128, 128], [1, 8, 128, 256], "to sizes"),
    Recipe("Upsample", "stored factor", _IMAGE, 'y = Upsample <mode = "nearest"> (x, v)',
           [1.0, 1, 2, 2], [1.0, 1, 3, 3], opset=9),
    Recipe("Expand", "stored factor loop", "float[N,1000] x", "y = Expand (x, v)", [50, 1000],
           [100, 1000]),
    Recipe("Tile", "stored size branch", _ROW, "y = Tile (x, v)", [1, 2], [1, 4]),
    Recipe("Slice", "stored factor concat", _HEAD, "y = Slice (x, [0, 0], v)", [1, 100_000],
           [1, 500_000]),
    Recipe("Slice", "stored size", _HEAD, "y = Slice (x, [0, 0], [1, 1000000], [0, 1], v)", [1, 8],
           [1, 2], "by steps"),
    Recipe("ConstantOfShape", "factor size carried", "float[N,4] x",
           "z = ConstantOfShape <value = float[1] {1.0}> (v) y = ReduceSum (z)", [100, 1000],
           [200, 1000]),
    Recipe("Range", "factor carried", "float[N,4] x", "y = Range (0.0, v, 1.0)", 100_000.0,
           300_000.0),
    Recipe("Range", "factor", "float[N,4] x", "y = Range (0, v, 1)", 100_000, 300_000,
           "of integers", "int64[]"),
    Recipe("Pad", "stored concat size", _SQUARE, "y = Pad (x, v)", [0, 0, 0, 0, 8, 8],
           [0, 0, 0, 0, 8, 512]),
    Recipe("OneHot", "stored loop", "float[N,1000] x",
           "i = Cast <to = 7> (x) y = OneHot (i, v, [0.0, 1.0])", 100, 200),
    Recipe("Reshape", "stored", _HEAD, "z = Reshape (x, v) y = Softmax (z)", [1, 500, 2000],
           [1, 250_000, 4]),
    Recipe("Squeeze", "chosen", "float[N,1,20000,1] x",
           "z = Squeeze (x, v) y = Softmax <axis = 2> (z)", [3], [1], opset=13),
    Recipe("Unsqueeze", "factor", "float[N,20000,4] x",
           "z = Unsqueeze (x, v) y = Softmax <axis = -1> (z)", [1], [3]),
    Recipe("Split", "stored", _HEAD, "a, b = Split <axis = 1> (x, v) y = Tanh (a)",
           [100_000, 900_000], [900_000, 100_000]),
    Recipe("SplitToSequence", "stored", _ROW,
           "s = SplitToSequence <axis = 1> (x, v) y = ConcatFromSequence <axis = 1> (s)", 50_000,
           50),
    Recipe("Trilu", "stored", _SQUARE, "y = Trilu <upper = 1> (x, v)", -500, 500),
    Recipe("CumSum", "stored", _SQUARE, "y = CumSum (x, v)", 1, 2),
    Recipe("AffineGrid", "stored", "float[N,2,3] x", "y = AffineGrid (x, v)", [1, 1, 128, 128],
           [1, 1, 256, 256]),
    Recipe("BlackmanWindow", "factor", "float[N,4] x", "y = BlackmanWindow (v)", 10_000, 20_000),
    Recipe("HammingWindow", "size", "float[N,4] x", "y = HammingWindow (v)", 10_000, 20_000),
    Recipe("HannWindow", "carried", "float[N,4] x", "y = HannWindow (v)", 10_000, 20_000),
    Recipe("MelWeightMatrix", "factor", "float[N,4] x",
           "y = MelWeightMatrix (v, 4096, 16000, 20.0, 8000.0)", 64, 256),
    Recipe("DFT", "stored", "float[N,4096,1] x", "y = DFT (x, v, 1)", 4096, 4093),
    Recipe("STFT", "stored", "float[N,16384,1] x, float[256] w", "y = STFT (x, v, w)", 256, 64,
           opset=17),
    Recipe("Col2Im", "stored", "float[N,16,3721] x", "y = Col2Im (x, v, [4, 4])", [64, 64],
           [3724, 4]),
    Recipe("Dropout", "factor", _ROW, "y = Dropout <seed = 1> (x, 0.5, v)", _NO, _YES),
    # Places
    Recipe("Compress", "stored branch", _ROW, "y = Compress <axis = 1> (x, v)", _mask(0.02),
           _mask(0.98)),
    Recipe("Gather", "stored loop sparse", _HEAD, "y = Gather <axis = 1> (x, v)",
           _ORDERED[:500_000], _SHUFFLED[:500_000]),
    Recipe("GatherElements", "node", _HEAD, "y = GatherElements <axis = 1> (x, v)",
           _ORDERED[None], _SHUFFLED[None]),
    Recipe("GatherND", "stored identity", "float[1000000] x", "y = GatherND (x, v)",
           _ORDERED[:500_000, None], _SHUFFLED[:500_000, None]),
    Recipe("Scatter", "stored", _HEAD, "y = Scatter <axis = 1> (x, v, x)",
           _ORDERED[None], _SHUFFLED[None],
           opset=9),
    Recipe("ScatterElements", "stored", _HEAD, "y = ScatterElements <axis = 1> (x, v, x)",
           _ORDERED[None], _SHUFFLED[None]),
    Recipe("ScatterND", "stored", "float[1000000] x", "y = ScatterND (x, v, x)",
           _ORDERED[:, None], _SHUFFLED[:, None]),
    Recipe("GridSample", "stored", "float[N,8,512,512] x", "y = GridSample (x, v)", _GRID,
           _SHUFFLED_GRID),
    Recipe("DeformConv", "stored", "float[N,8,128,128] x, float[8,8,1,1] w",
           "y = DeformConv (x, w, v)", _offsets(0), _offsets(99), opset=22),
    Recipe("RoiAlign", "stored chosen", _IMAGE,
           "b = ConstantOfShape <value = int64[1] {0}> ([16]) "
           "y = RoiAlign <output_height = 8, output_width = 8> (x, v, b)",
           _regions(8), _regions(60), opset=16),
    Recipe("MaxRoiPool", "stored", _IMAGE, "y = MaxRoiPool <pooled_shape = [8, 8]> (x, v)",
           _regions(8, 1), _regions(60, 1)),
    Recipe("MaxUnpool", "stored", "float[N,1,128,128] x",
           "p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) y = MaxUnpool "
           "<kernel_shape = [2, 2], strides = [2, 2]> (p, i, v)", [1, 1, 128, 128],
           [1, 1, 512, 512]),
    Recipe("ReverseSequence", "stored", "float[100000,N,4] x",
           "y = ReverseSequence <batch_axis = 1, time_axis = 0> (x, v)", [1], [100_000]),
    Recipe("RotaryEmbedding", "stored", "float[N,8,512,64] x, float[65536,32] c, float[65536,32] s",
           "y = RotaryEmbedding (x, c, s, v)", np.zeros((1, 512), np.int64),
           _shuffled(np.arange(65536))[None, :512], opset=23),
    Recipe("SequenceAt", "factor", _HEAD,
           "c = Slice (x, [1], [9], [1]) s = SequenceConstruct (c, x) z = SequenceAt (s, v) y = "
           "Tanh (z)", 0, 1),
    Recipe("SequenceErase", "factor", _HEAD,
           "c = Slice (x, [1], [9], [1]) s = SequenceConstruct (c, x) z = SequenceErase (s, v) y "
           "= ConcatFromSequence <axis = 1> (z)", 1, 0),
    Recipe("SequenceInsert", "factor", _HEAD,
           "c = Slice (x, [1], [9], [1]) s = SequenceConstruct (x) t = SequenceInsert (s, c, v) z "
           "= SequenceAt (t, 0) y = Tanh (z)", 0, 1),
    # Counts, lengths and conditions
    Recipe("LSTM", "stored factor", _RNN.format(128), _STEPS.format("LSTM"), _int32([16]),
           _int32([240]), output="float[]"),
    Recipe("GRU", "stored factor loop", _RNN.format(96), _STEPS.format("GRU"),
           _int32([16]), _int32([240])),
    Recipe("RNN", "stored", _RNN.format(32), _STEPS.format("RNN"), _int32([16]),
           _int32([240])),
    Recipe("Loop", "stored size chosen", "float[N,20000] x",
           "y = Loop (v, true, x) <body = b (int64 i, bool c, "
           "float[] a) => (bool d, float[] e) { d = Identity (c) e = Tanh (a) }>", 10, 20),
    Recipe("Loop", "stored", "float[N,20000] x",
           "y = Loop (, true, x) <body = b (int64 i, bool c, "
           "float[] a) => (bool d, float[] e) { d = Less (i, v) e = Tanh (a) }>", 10, 20,
           "by its condition"),
    Recipe("If", "factor size", _ROW,
           "y = If (v) <then_branch = a () => (float[] p) { h = Tanh (x) q = Sin (h) p = Sin (q) "
           "}, else_branch = b () => (float[] r) { r = Tanh (x) }>", _NO, _YES),
    Recipe("TopK", "stored branch", _ROW, "y, i = TopK (x, v)", [10], [20_000]),
    Recipe("NonZero", "factor", _ROW, "z = Greater (x, v) y = NonZero (z)", 0.98, 0.02,
           output="int64[]"),
    Recipe("Unique", "stored", _ROW, "m = Mul (x, v) z = Round (m) y = Unique (z)", 3.0, 1e5),
    Recipe("Pow", "stored factor", _ROW, "y = Pow (x, v)", 2.0, 2.5),
    Recipe("NonMaxSuppression", "stored loop", "float[1,1000,4] x, float[1,1,1000] s",
           "y = NonMaxSuppression (x, s, v, [0.99])", [10], [500], output="int64[]"),
    Recipe("NonMaxSuppression", "stored", "float[1,1000,4] x, float[1,1,1000] s",
           "y = NonMaxSuppression (x, s, [200], [0.99], v)", [0.99], [0.01], "by the least score",
           "int64[]"),
    *(
        Recipe(op, ways, "float[N,64,64,64] x", f"y = {op} (x, v)", [3], [1], opset=18)
        for op, ways in (
            ("ReduceL1", "factor"), ("ReduceL2", "stored"), ("ReduceLogSum", "factor"),
            ("ReduceLogSumExp", "stored"), ("ReduceMax", "factor"), ("ReduceMean", "size"),
            ("ReduceMin", "factor"), ("ReduceProd", "stored"), ("ReduceSum", "stored"),
            ("ReduceSumSquare", "factor"),
        )
    ),
    # Operators whose time is said to depend on shapes alone
    *(
        Recipe(op, "stored", "float[N,200000] x", f"z = {how} (x, v) {node}", before,
               after, "of other numbers")
        for op, how, node, before, after in (
            ("Sin", "Mul", "y = Sin (z)", 1.0, 1e6),
            ("Cos", "Mul", "y = Cos (z)", 1.0, 1e6),
            ("Tan", "Mul", "y = Tan (z)", 0.1, 100.0),
            ("Sinh", "Mul", "y = Sinh (z)", 0.1, 1.0),
            ("Cosh", "Mul", "y = Cosh (z)", 3.0, 1.0),
            ("Asinh", "Mul", "y = Asinh (z)", 100.0, 1.0),
            ("Acosh", "Add", "y = Acosh (z)", 100.0, 1.0),
            ("Atanh", "Mul", "y = Atanh (z)", 0.001, 0.9),
            ("PRelu", "Sub", "y = PRelu (z, 0.2)", 2.0, 0.5),
            ("Shrink", "Sub", "y = Shrink <lambd = 0.1> (z)", 2.0, 0.5),
            ("Hardmax", "Mul", "y = Hardmax (z)", 1.0, -1.0),
            ("Mod", "Mul", "y = Mod <fmod = 1> (z, 0.7)", 1.0, 1e30),
            ("Cast", "Mul", "i = Cast <to = 17> (z) y = Cast <to = 1> (i)", 1e-6, 1.0),
            ("Normalizer", "Sub", 'y = ai.onnx.ml.Normalizer <norm = "L2"> (z)', 2.0, 0.5),
            ("Binarizer", "Sub", "y = ai.onnx.ml.Binarizer <threshold = 0.1> (z)", 2.0, 0.5),
        )
    ),
    Recipe("MaxPool", "stored", "float[N,1,512,512] x",
           "z = Add (x, v) y, i = MaxPool <kernel_shape = [5, 5]> (z)",
           -_RAMP, _RAMP, "with indices, of other numbers"),
    # Trained weights decide what control flow runs, or what a body is given
    Recipe("If", "stored", "float[N,64,100,100] x",
           "a = Abs (x) f = Flatten (a) m = MatMul (f, v) s = ReduceMean <keepdims = 0> (m) c = "
           "Greater (s, 0.0) p = Range (0, 100, 1) q = Range (0, 64, 1) y = If (c) <then_branch = "
           "t () => (float[] g) { g = Gather <axis = 3> (x, p) }, else_branch = u () => (float[] "
           "h) { h = Gather <axis = 1> (x, q) }>", np.full((640_000, 1), -0.1, np.float32),
           np.full((640_000, 1), 0.1, np.float32), "by trained weights"),
    Recipe("Loop", "stored", "float[N,300,300] x",
           "a = Abs (x) s = ReduceMean <axes = [0, 1], keepdims = 0> (a) m = Mul (s, v) "
           "l = ReduceMax <keepdims = 0> (m) n = Add (l, l) t = Cast <to = 7> (n) "
           "y = Loop (t, true, x) <body = b (int64 i, bool g, float[] r) => (bool d, float[] e) "
           "{ d = Identity (g) e = Transpose <perm = [0, 2, 1]> (r) }>",
           np.full(300, 10, np.float32), np.full(300, 40, np.float32), "by trained weights",
           opset=13),
    Recipe("Scan", "stored", "float[1,1000,4] x",
           "y = Scan <num_scan_inputs = 2, body = b (float[4] a, float[1] q) => (float r) { t = "
           "Cast <to = 7> (q) u = Tile (a, t) r = ReduceSum <keepdims = 0> (u) }> (, x, v)",
           np.full((1, 1000, 1), 20, np.float32), np.full((1, 1000, 1), 400, np.float32),
           "of batches", opset=8),
    # Operators of ONNX Runtime
    Recipe("CropAndResize", "stored", "float[1,8,64,64] x, float[4,4] r",
           "b = Constant <value = int32[4] {0, 0, 0, 0}> () y = com.microsoft.CropAndResize (x, "
           "r, b, v)", _int32([16, 16]), _int32([64, 64])),
    Recipe("ConvTransposeWithDynamicPads", "factor", "float[1,8,64,64] x, float[8,8,3,3] w",
           "y = com.microsoft.ConvTransposeWithDynamicPads <strides = [2, 2]> (x, w, v)",
           [24, 24, 24, 24], [0, 0, 0, 0]),
    Recipe("com.microsoft Range", "factor", "float[N,4] x", "y = com.microsoft.Range (0.0, v, 1.0)",
           100_000.0, 300_000.0),
    Recipe("com.microsoft Pad", "stored", _SQUARE, "y = com.microsoft.Pad (x, v)",
           [0, 0, 0, 0, 8, 8], [0, 0, 0, 0, 8, 512]),
    Recipe("com.microsoft Trilu", "stored", _SQUARE, "y = com.microsoft.Trilu <upper = 1> (x, v)",
           -500, 500),
    Recipe("com.microsoft Unique", "stored", "float[100000] x",
           "m = Mul (x, v) z = Round (m) y, i, c = com.microsoft.Unique (z)", 3.0, 1e5),
    Recipe("com.microsoft GatherND", "stored", "float[1000000] x",
           "y = com.microsoft.GatherND (x, v)", _ORDERED[:500_000, None],
           _SHUFFLED[:500_000, None]),
    Recipe("com.microsoft GridSample", "stored", "float[1,8,512,512] x",
           "y = com.microsoft.GridSample (x, v)", _GRID, _SHUFFLED_GRID),
    Recipe("com.microsoft RotaryEmbedding", "stored",
           "float[1,8,512,64] x, float[65536,32] c, float[65536,32] s",
           "y = com.microsoft.RotaryEmbedding (x, v, c, s)", np.arange(512)[None],
           _shuffled(np.arange(65536))[None, :512]),
    Recipe("MurmurHash3", "unoptimized", "float[N,4] x",
           "z = Tile (x, v) y = com.microsoft.MurmurHash3 (z)", [1, 1000], [1, 2000],
           output="uint32[]"),
    Recipe("SampleOp", "stored", "float[N,4] x", "z = Tile (x, v) y = com.microsoft.SampleOp (z)",
           [1, 1000], [1, 2000]),
    Recipe("GroupQueryAttention", "factor",
           "float[1,1,512] x, float[1,1,512] k, float[1,1,512] w, float[1,8,2048,64] a, "
           "float[1,8,2048,64] b",
           "t = Constant <value = int32 {2049}> () y, p, q = com.microsoft.GroupQueryAttention "
           "<num_heads = 8, kv_num_heads = 8> (x, k, w, a, b, v, t)", _int32([16]),
           _int32([2047])),
    Recipe("com.microsoft Attention", "stored", "float[1,512,64] x, float[64,192] w, float[192] b",
           "y = com.microsoft.Attention <num_heads = 4> (x, w, b, v)", _int32([16]),
           _int32([512])),
    Recipe("EmbedLayerNormalization", "stored",
           "float[1,64] x, float[30000,256] w, float[8192,256] p, float[256] g, float[256] b",
           "i = Cast <to = 6> (x) y, m = com.microsoft.EmbedLayerNormalization (v, , w, p, , g, b)",
           np.zeros((1, 8192), np.int32),
           _shuffled(np.arange(30000, dtype=np.int32))[None, :8192]),
    Recipe("NGramRepeatBlock", "stored", "float[1,1000] x",
           "y = com.microsoft.NGramRepeatBlock <ngram_size = 3> (v, x)", np.arange(100_000)[None],
           np.zeros((1, 100_000), np.int64)),
    Recipe("ArrayFeatureExtractor", "stored", "float[1,1000000] x",
           "y = ai.onnx.ml.ArrayFeatureExtractor (x, v)", _ORDERED[:500_000],
           _SHUFFLED[:500_000]),
    Recipe("TreeEnsembleRegressor", "stored", "float[100000,1] x",
           "m = Mul (x, v) y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, "
           "nodes_falsenodeids = [2, 0, 4, 0, 6, 0, 0], nodes_featureids = [0, 0, 0, 0, 0, 0, 0], "
           'nodes_modes = ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", '
           '"LEAF"], nodes_nodeids = [0, 1, 2, 3, 4, 5, 6], nodes_treeids = [0, 0, 0, 0, 0, 0, '
           "0], nodes_truenodeids = [1, 0, 3, 0, 5, 0, 0], nodes_values = [0.25, 0.0, 0.5, 0.0, "
           "0.75, 0.0, 0.0], target_ids = [0, 0, 0, 0], target_nodeids = [1, 3, 5, 6], "
           "target_treeids = [0, 0, 0, 0], target_weights = [1.0, 2.0, 3.0, 4.0]> (m)", 0.1, 1.0),
    Recipe("Attention", "stored", "float[1,4,512,64] x", "y = Attention (x, x, x, , , , v)", [512],
           [16], opset=24),
    Recipe("CumProd", "stored", _SQUARE, "y = CumProd (x, v)", 1, 2, opset=26),
    # Strings: the digits of numbers
    *(
        Recipe(op, "factor", "float[N,20000] x",
               f"m = Mul (x, v) f = Floor (m) z = Cast <to = 8> (f) {node}", 5.0, 1e9,
               output=output)
        for op, node, output in (
            ("RegexFullMatch", 'y = RegexFullMatch <pattern = "[0-9]*"> (z)', "bool[]"),
            ("StringConcat", "y = StringConcat (z, z)", "string[]"),
            ("StringSplit", 'y, n = StringSplit <delimiter = "1"> (z)', "string[]"),
            ("CategoryMapper", ("y = ai.onnx.ml.CategoryMapper <cats_int64s = [0], "
             'cats_strings = ["0"]> (z)'), "int64[]"),
            ("Tokenizer", ('y = com.microsoft.Tokenizer <mark = 0, mincharnum = 1, pad_value = "", '
             'separators = ["1"]> (z)'), "string[]"),
        )
    ),
    Recipe("TfIdfVectorizer", "stored", "float[N,20000] x",
           "m = Mul (x, v) z = Cast <to = 7> (m) y = TfIdfVectorizer <max_gram_length = 1, "
           'max_skip_count = 0, min_gram_length = 1, mode = "TF", ngram_counts = [0], '
           "ngram_indexes = [0, 1], pool_int64s = [0, 1]> (z)", 9999.0, 0.5),
    Recipe("MoE", "stored", "float[64,64] x, float[64,8] r, float[8,128,64] a, float[8,64,128] b",
           "q = Mul (r, v) y = com.microsoft.MoE <k = 1> (x, q, a, , b)", 0.0, 1.0),
    Recipe("ExpandDims", "factor", "float[N,20000,4] x",
           "z = com.microsoft.ExpandDims (x, v) y = Softmax <axis = -1> (z)", _int32(1),
           _int32(3)),
    Recipe("MultiHeadAttention", "stored",
           "float[1,1,512] x, float[1,1,512] k, float[1,8,2048,64] a",
           "y, p, q = com.microsoft.MultiHeadAttention <num_heads = 8> (x, k, k, , , , a, a, v)",
           _int32([16]), _int32([2047])),
)  # fmt: skip
