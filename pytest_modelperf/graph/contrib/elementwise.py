"""Output shapes of the operators that keep or broadcast their inputs' shapes.

These are activations, normalizations, quantization and reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from pytest_modelperf.graph.model_file import dtype_name
from pytest_modelperf.graph.shape_arithmetic import (
    Dim,
    broadcast,
    concat,
    dim,
    product,
    quotient,
    reduce,
    total,
    with_last,
)
from pytest_modelperf.graph.shape_rule import (
    OutputType,
    ShapeRule,
    dtype_of,
    has_input,
    ints_of,
    like,
    one,
    shape_of,
)
from pytest_modelperf.graph.structure import Node, Shape


def _shaped_like_first(dtype: str | None = None, *, dtype_of_input: int = 0) -> ShapeRule:
    """One output with the shape of the first input, and the type of an input or a fixed one."""

    def rule(node: Node) -> tuple[OutputType]:
        return one(dtype or dtype_of(node, dtype_of_input), shape_of(node, 0))

    return rule


def _broadcast(*indexes: int, dtype: str | None = None) -> ShapeRule:
    """One output that these inputs broadcast to, of the last one's type or of a fixed one."""

    def rule(node: Node) -> tuple[OutputType]:
        shape = broadcast(*(shape_of(node, index) for index in indexes))
        return one(dtype or dtype_of(node, indexes[-1]), shape)

    return rule


def _quantize(node: Node) -> tuple[OutputType]:
    dtype = dtype_of(node, 2) if has_input(node, 2) else "uint8"
    return one(dtype, shape_of(node, 0))


def _qlinear_concat(node: Node) -> tuple[OutputType]:
    """After the output's scale and zero point, inputs come in threes: value, scale, zero point."""
    shapes = [shape_of(node, index) for index in range(2, len(node.inputs), 3)]
    return one(dtype_of(node, 1), concat(shapes, node.attr_int("axis", 0)))


def _reduce(node: Node) -> tuple[OutputType]:
    keeps_dims = node.attr_int("keepdims", 1) != 0
    shape = reduce(shape_of(node, 0), node.attr_ints("axes"), keeps_dims=keeps_dims)
    return one(dtype_of(node, 0), shape)


def _reduce_to_32_bits(node: Node) -> tuple[OutputType]:
    dtype = {"int8": "int32", "uint8": "uint32"}.get(dtype_of(node, 0) or "")
    return one(dtype, _reduce(node)[0].shape)


def _dequantize_with_order(node: Node) -> tuple[OutputType]:
    return one(dtype_name(node.attr_int("to", 0)), shape_of(node, 0))


def _quantize_bfp(node: Node) -> tuple[OutputType, ...]:
    """Raw bytes, whose number depends on the format, and the shape and strides that they encode."""
    shape = shape_of(node, 0)
    rank = OutputType("int64", (None if shape is None else len(shape),))
    return OutputType("uint8", (None,)), rank, rank


def _dequantize_bfp(node: Node) -> tuple[OutputType]:
    shape, rank = ints_of(node, 1), dim(shape_of(node, 1), 0)
    dtype = dtype_name(node.attr_int("dtype", 1))
    return one(dtype, shape if shape is not None or rank is None else (None,) * rank)


def _skip_layer_normalization(node: Node) -> tuple[OutputType, ...]:
    result = OutputType(dtype_of(node, 0), shape_of(node, 0))
    statistic = OutputType("float32", with_last(shape_of(node, 0), 1))
    return result, statistic, statistic, result


def _layer_normalization(statistics: int) -> ShapeRule:
    """The type follows the scale; `axis` is where the normalized dimensions begin."""

    def rule(node: Node) -> tuple[OutputType, ...]:
        shape, axis = shape_of(node, 0), node.attr_int("axis", -1)
        means: Shape | None = None
        if shape is not None and -len(shape) <= axis < len(shape):
            begin = axis % len(shape)
            means = shape[:begin] + (1,) * (len(shape) - begin)
        return OutputType(dtype_of(node, 1), shape), *[OutputType("float32", means)] * statistics

    return rule


def _embed_layer_normalization(word_embedding: int, dtype: int) -> ShapeRule:
    def rule(node: Node) -> tuple[OutputType, ...]:
        words = shape_of(node, 0)
        batch, length = dim(words, 0), dim(words, 1)
        width = dim(shape_of(node, word_embedding), 1)
        embedded = OutputType(dtype_of(node, dtype), (batch, length, width))
        return embedded, OutputType("int32", (batch,)), embedded

    return rule


def _bias_split_gelu(node: Node) -> tuple[OutputType]:
    shape = shape_of(node, 0)
    return one(dtype_of(node, 0), with_last(shape, quotient(dim(shape, -1), 2)))


def _swiglu(node: Node) -> tuple[OutputType]:
    """Without a second input, the last dimension of the first holds both halves."""
    shape = shape_of(node, 0)
    if not has_input(node, 1):
        shape = with_last(shape, quotient(dim(shape, -1), 2))
    return one(dtype_of(node, 0), shape)


def _dropout(node: Node) -> tuple[OutputType, ...]:
    shape = shape_of(node, 0)
    return OutputType(dtype_of(node, 0), shape), OutputType("bool", shape)


def _bitmask_dropout(node: Node) -> tuple[OutputType, ...]:
    """The mask has a bit for each element, in words of 32."""
    shape = shape_of(node, 0)
    size = None if shape is None else product(*shape)
    words = None if size is None else (size + 31) // 32
    return OutputType(dtype_of(node, 0), shape), OutputType("uint32", (words,))


def _murmur_hash(node: Node) -> tuple[OutputType]:
    return one("uint32" if node.attr_int("positive", 1) else "int32", shape_of(node, 0))


def _all_finite(_node: Node) -> tuple[OutputType]:
    return one("bool", ())


# Every output has the type and the shape of the first input.
_UNCHANGED = (
    "BiasAdd", "BiasGelu", "BiasSoftmax", "BranchwiseRMSNorm", "FastGelu", "GatedAdd",
    "GatedRMSNorm", "Gelu", "GroupNorm", "HyperConnectionPostMix", "Inverse", "MoE", "MoEPacked",
    "QMoE", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QOrderedGelu",
    "QOrderedLayerNormalization", "QuickGelu", "SampleOp", "ScaledSiLU", "Trilu",
)  # fmt: skip

ELEMENTWISE_RULES: Mapping[str, ShapeRule] = {
    **dict.fromkeys(_UNCHANGED, like(0)),
    "BiasDropout": _dropout,
    "BiasSplitGelu": _bias_split_gelu,
    "BitmaskBiasDropout": _bitmask_dropout,
    "BitmaskDropout": _bitmask_dropout,
    "ComplexMul": _broadcast(0, 1),
    "ComplexMulConj": _broadcast(0, 1),
    "DequantizeBFP": _dequantize_bfp,
    "DequantizeLinear": _shaped_like_first(dtype_of_input=1),
    "DequantizeWithOrder": _dequantize_with_order,
    "EmbedLayerNormalization": _embed_layer_normalization(word_embedding=2, dtype=2),
    "EngramGate": like(0, 0),
    "IsAllFinite": _all_finite,
    "MulInteger": _broadcast(0, 2, dtype="int32"),
    "MurmurHash3": _murmur_hash,
    "NGramRepeatBlock": like(1),
    "QEmbedLayerNormalization": _embed_layer_normalization(word_embedding=2, dtype=8),
    "QLinearAdd": _broadcast(0, 3),
    "QLinearConcat": _qlinear_concat,
    "QLinearMul": _broadcast(0, 3),
    "QLinearReduceMean": _reduce,
    "QLinearWhere": _broadcast(0, 1, 4),
    "QuantizeBFP": _quantize_bfp,
    "QuantizeLinear": _quantize,
    "QuantizeWithOrder": _shaped_like_first("int8"),
    "ReduceSumInteger": _reduce_to_32_bits,
    "SkipGroupNorm": like(0, 0),
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_layer_normalization,
    "SwiGLU": _swiglu,
}


def _reshape_by_attribute(node: Node) -> tuple[OutputType, ...]:
    """Reshape before opset 5: 0 copies a dimension, -1 takes the rest."""
    target, data = node.attr_ints("shape"), shape_of(node, 0)
    if not target or data is None:
        return ()
    shape = [data[i] if size == 0 and i < len(data) else size for i, size in enumerate(target)]
    elements = prod([size for size in data if size is not None])
    others = prod([size for size in shape if size is not None and size != -1])
    is_known = None not in data and None not in shape and others > 0
    rest = elements // others if is_known else None
    return one(dtype_of(node, 0), tuple(rest if size == -1 else size for size in shape))


def _crop(node: Node) -> tuple[OutputType]:
    """An image without its borders (left, top, right, bottom), or a part of a stated size."""
    shape, border = shape_of(node, 0), node.attr_ints("border")
    if shape is None or len(shape) != 4 or len(border) != 4:
        return one(dtype_of(node, 0), None)
    left, top, right, bottom = border
    sides: Shape = node.attr_ints("scale")
    if len(sides) != 2:
        sides = (total(shape[2], -top, -bottom), total(shape[3], -left, -right))
    return one(dtype_of(node, 0), (*shape[:2], *sides))


def _rows(node: Node) -> Dim:
    shape = shape_of(node, 0)
    return shape[0] if shape and len(shape) == 2 else None


def _regressor(targets: str | None) -> ShapeRule:
    """Floats for each row, as many as an attribute says, or one."""

    def rule(node: Node) -> tuple[OutputType]:
        count = 1 if targets is None else node.attr_int(targets, 1)
        return one("float32", (_rows(node), count))

    return rule


def _classifier(numbers: str, scores: Callable[[Node, int], Dim]) -> ShapeRule:
    """A class for each row, and its scores; the classes are texts, or the `numbers`."""

    def rule(node: Node) -> tuple[OutputType, ...]:
        rows, texts = _rows(node), node.attr_ints("classlabels_strings")
        classes = len(texts or node.attr_ints(numbers))
        found = OutputType("string" if texts else "int64", (rows,))
        return found, OutputType("float32", (rows, scores(node, classes)))

    return rule


def _scores_of_svm(node: Node, classes: int) -> Dim:
    """One for each class; without probabilities, one for each pair of more than two."""
    if not node.attr_ints("vectors_per_class"):
        return None
    is_by_class = classes == 2 or node.attr_ints("prob_a")
    return classes if is_by_class else classes * (classes - 1) // 2


def _array_feature_extractor(node: Node) -> tuple[OutputType]:
    """The chosen elements of each row, flattened; a vector is one row."""
    shape, chosen = shape_of(node, 0), shape_of(node, 1)
    count = None if chosen is None else product(*chosen)
    return one(dtype_of(node, 0), (*(shape[:-1] or (1,)), count) if shape else None)


def _feature_vectorizer(node: Node) -> tuple[OutputType]:
    """The columns that an attribute names of each input, side by side; a vector is one row."""
    shape = shape_of(node, 0)
    rows = None if not shape else 1 if len(shape) == 1 else shape[0]
    return one("float32", (rows, sum(node.attr_ints("inputdimensions")) or None))


# Operators of the standard domains for which onnx has no inference, or whose inference crashes; and
# those that ONNX Runtime adds to that domain. Its LayerNormalization is older than onnx's, which
# begins with opset 17; some others were in ONNX once, and CoreML's converter wrote them.
STANDARD_DOMAIN_RULES: Mapping[str, ShapeRule] = {
    **dict.fromkeys(
        ("Affine", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"), like(0)
    ),
    "Crop": _crop,
    "LayerNormalization": _layer_normalization(statistics=2),
    "Reshape": _reshape_by_attribute,
    "SimplifiedLayerNormalization": _layer_normalization(statistics=1),
    "ai.onnx.ml::ArrayFeatureExtractor": _array_feature_extractor,
    "ai.onnx.ml::FeatureVectorizer": _feature_vectorizer,
    "ai.onnx.ml::Imputer": like(0),
    "ai.onnx.ml::LabelEncoder": lambda node: one(None, shape_of(node, 0)),
    "ai.onnx.ml::LinearRegressor": _regressor("targets"),
    "ai.onnx.ml::Normalizer": _shaped_like_first("float32"),
    "ai.onnx.ml::Scaler": _shaped_like_first("float32"),
    "ai.onnx.ml::SVMClassifier": _classifier("classlabels_ints", _scores_of_svm),
    "ai.onnx.ml::SVMRegressor": _regressor(None),
    "ai.onnx.ml::TreeEnsembleClassifier": _classifier(
        "classlabels_int64s", lambda _, classes: classes or None
    ),
    "ai.onnx.ml::TreeEnsembleRegressor": _regressor("n_targets"),
}
