"""The inputs of each operator whose values decide how long it takes, including random values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.graph.structure import Graph, Node, Tensor, is_open

# The places of the inputs that decide, or None if it is unknown what decides.
Deciding = tuple[int, ...] | None


def deciding_inputs(
    op_type: str, domain: str, *, opset: int | None = None, outputs: int = 1
) -> Deciding:
    """Return the places of the inputs whose values decide the time of an operator.

    None means that it is unknown. `domain` is empty for the operators of ONNX. Without an `opset`,
    the latest one counts. `outputs` is the number of outputs that are used.
    """
    if op_type == "Scan" and not domain and has_sequence_lengths(opset):
        return (0,)
    if op_type == "MaxPool" and outputs > 1:
        # The places of the largest numbers decide how often its indices change.
        return (0,)
    return _TABLE.get(_SAME_AS.get(domain, domain), {}).get(op_type)


def depends_on_numbers(op_type: str, domain: str) -> bool:
    """Whether the time of an operator depends a little on all numbers in its inputs."""
    # These handle large and small numbers in different ways, or branch on each number.
    return op_type in _TABLE_BY_NUMBERS and _SAME_AS.get(domain, domain) in _TABLE


def has_sequence_lengths(opset: int | None) -> bool:
    """Whether the first input of a Scan gives the lengths of sequences."""
    return opset is not None and opset < _FIRST_SCAN_OF_ONE


# Before this opset, a Scan worked on a batch of sequences.
_FIRST_SCAN_OF_ONE = 9

# The places of the axes of a reduction, of the lengths of sequences, and so on.
_BY_VALUES_OF_ONNX: Mapping[str, tuple[int, ...]] = {
    # Values that shape the output.
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
            "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Squeeze", "Unsqueeze",
            "Expand", "Reshape", "Tile", "Split", "SplitToSequence", "Trilu", "CumSum", "CumProd",
            "AffineGrid", "CenterCropPad", "Upsample",
        ),
        (1,),
    ),
    "BlackmanWindow": (0,), "HammingWindow": (0,), "HannWindow": (0,), "ConstantOfShape": (0,),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    # Values that are places.
    **dict.fromkeys(
        (
            "Compress", "Gather", "GatherElements", "GatherND", "GridSample", "MaxRoiPool",
            "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "SequenceAt",
            "SequenceErase",
        ),
        (1,),
    ),
    "DeformConv": (2,),
    "MaxUnpool": (1, 2),
    "RoiAlign": (1, 2),
    "RotaryEmbedding": (3,),
    "SequenceInsert": (2,),
    "TensorScatter": (2,),
    # Values that are counts, lengths or conditions.
    "Attention": (6,),
    "GRU": (4,), "LSTM": (4,), "RNN": (4,),
    "If": (0,),
    "Loop": (0, 1),
    # Values that are searched, sorted or parsed.
    "ImageDecoder": (0,),
    "Multinomial": (0,),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "Pow": (1,), # squares and cubes are computed in another way
    "RegexFullMatch": (0,), "StringNormalizer": (0,), "StringSplit": (0,), "TfIdfVectorizer": (0,),
    "StringConcat": (0, 1),
    "TopK": (0, 1),
    "Unique": (0,),
}  # fmt: skip

_BY_NUMBERS = """
    Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh Binarizer Cast CastLike Celu Cos Cosh Elu Erf Exp
    Hardmax LeakyRelu Log Mod Normalizer PRelu Pow Selu Shrink Sin Sinh Softplus Tan ThresholdedRelu
"""
_BY_SHAPES_OF_ONNX = """
    Abs Acos Acosh Add Affine And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool
    BatchNormalization Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    CastLike CausalConvWithState Ceil Celu Clip Concat ConcatFromSequence Constant Conv ConvInteger
    ConvTranspose Cos Cosh Crop DepthToSpace DequantizeLinear Det DisentangledAttention_TRT Div
    DynamicQuantizeLinear Einsum Elu Equal Erf Exp EyeLike Flatten Floor Gelu Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GroupNormalization
    HardSigmoid HardSwish Hardmax Identity ImageScaler InstanceNormalization IsInf IsNaN LRN
    LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax LpNormalization
    LpPool MatMul MatMulInteger Max MaxPool Mean MeanVarianceNormalization MemcpyFromHost
    MemcpyToHost Min Mish Mod Mul Neg NegativeLogLikelihoodLoss Not Optional OptionalGetElement
    OptionalHasElement Or PRelu ParametricSoftplus QLinearConv QLinearMatMul QuantizeLinear
    RMSNormalization RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal Relu
    Round Scale ScaledTanh Scan Selu SequenceConstruct SequenceEmpty SequenceLength SequenceMap
    Shape Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Size Softmax
    SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Sqrt Sub Sum SwiGLU Swish Tan Tanh
    ThresholdedRelu Transpose Where Xor
"""

# Operators that older versions of ONNX Runtime put into the domain of ONNX.
_OLD_BY_VALUES: Mapping[str, tuple[int, ...]] = {
    "DynamicSlice": (1, 2, 3),
    "EfficientNMS_TRT": (0, 1),
    "GRUUnit": (2, 3),
    "GivenTensorFill": (0,),
    "MultilevelCropAndResize_TRT": (0,),
    "PyramidROIAlign_TRT": (0,),
}

_BY_VALUES_OF_RUNTIME: Mapping[str, tuple[int, ...]] = {
    # Values that shape the output.
    "BiasDropout": (3, 4), "BitmaskBiasDropout": (3, 4), "BitmaskDropout": (1, 2),
    "ConvTransposeWithDynamicPads": (2,),
    "CropAndResize": (1, 2, 3),
    "DequantizeBFP": (1, 2),
    "ExpandDims": (1,), "Trilu": (1,),
    "MatMulFpQ4": (2,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "RelativePositionBias": (1, 2),
    # Values that are places.
    "EmbedLayerNormalization": (0, 1, 8), "QEmbedLayerNormalization": (0, 1),
    "GatherBlockQuantized": (1,), "GatherND": (1,), "GatherPacked": (1,), "TorchEmbedding": (1, 2),
    "GridSample": (1,),
    "MRotaryEmbedding": (1,), "RotaryEmbedding": (1,), "RMSNormRotary": (2, 5),
    "MatMulNBits": (4,),
    "NGramHashMapping": (0, 3, 6), "VarlenNGramHashMapping": (0, 3, 4, 7, 8, 9),
    "WordConvEmbedding": (0,),
    # Values that are counts or lengths, or that choose experts, blocks or tokens.
    "Attention": (3, 6), "QAttention": (5,), "QOrderedAttention": (17,),
    "AttnLSTM": (4, 12), "DynamicQuantizeLSTM": (4,),
    "ConvStateReplay": (3,), "GatedDeltaNetStateReplay": (3,),
    "DecoderAttention": (8, 9, 10, 11),
    "DecoderMaskedMultiHeadAttention": (7, 8, 9), "DecoderMaskedSelfAttention": (6, 7, 8),
    "DynamicSparseAttention": (7, 8, 9, 10, 13, 17),
    "GatedDeltaNet": (3, 9, 10),
    "GatedRelativePositionBias": (6,),
    "GroupQueryAttention": (5, 6, 9, 16),
    "LongformerAttention": (3, 6), "QOrderedLongformerAttention": (7, 12),
    "Mamba2Verify": (9,),
    "MoE": (1,), "MoEPacked": (1,), "QMoE": (1, 14), "MoEGroupRouter": (0,),
    "MultiHeadAttention": (8, 9),
    "PackedAttention": (3, 4), "PackedMultiHeadAttention": (4, 5),
    "PackedSparseAttentionIndexer": (6, 7, 11, 15, 16, 17, 18, 19, 20, 21),
    "PackedSparseAttentionIndexerMerge": (0, 1, 2, 3, 4, 5, 6),
    "PagedAttention": (5, 6, 7, 10, 16),
    "RemovePadding": (1,), "RestorePadding": (1,),
    "SparseAttention": (5, 6, 7, 8),
    "SparseAttentionIndexer": (6, 11, 12),
    "SparsePagedAttention": (5, 6, 7, 8, 9, 10, 13, 21),
    "VarlenCausalConvWithState": (2, 5, 6, 7),
    # Values that are searched, sorted or parsed.
    "BifurcationDetector": (0, 1, 2, 3),
    "DynamicTimeWarping": (0,),
    "MurmurHash3": (0,),
    "NGramRepeatBlock": (0,),
    "SampleOp": (0,),
    "SparseToDenseMatMul": (0,),
    "SpeculativePrefixCommit": (0, 1, 2, 3, 4, 5, 6),
    "Tokenizer": (0,),
    "Unique": (0,),
}  # fmt: skip

_BY_SHAPES_OF_RUNTIME = """
    BiasAdd BiasGelu BiasSoftmax BiasSplitGelu BranchwiseRMSNorm CDist CausalConvWithState
    ComplexMul ComplexMulConj DequantizeLinear DequantizeWithOrder DynamicQuantizeMatMul EngramGate
    FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedAdd GatedRMSNorm Gelu
    GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GroupNorm HyperConnectionLowRankMix
    HyperConnectionPostMix HyperConnectionPreMix Inverse Irfft IsAllFinite LinearAttention
    LinearAttentionGate MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulBnb4
    MatMulInteger16 MatMulIntegerToFloat MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv
    MatMulPacked MaxpoolWithMask MulInteger NhwcConv NhwcFusedConv NhwcMaxPool QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearConvTranspose QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere
    QOrderedGelu QOrderedLayerNormalization QOrderedMatMul QuantizeBFP QuantizeLinear
    QuantizeWithOrder QuickGelu ReduceSumInteger Rfft RouterGateUpProj ScaledSiLU SkipGroupNorm
    SkipLayerNormalization SkipSimplifiedLayerNormalization SwiGLU TransposeMatMul UnfoldTensor
"""
# These generate until their own results end it, or they hide what they run.
_UNKNOWN_OF_RUNTIME = "BeamSearch EPContext GreedySearch Sampling Snpe WhisperBeamSearch"

_BY_VALUES_OF_ML: Mapping[str, tuple[int, ...]] = {
    "ArrayFeatureExtractor": (1,),
    **dict.fromkeys(
        (
            "CastMap", "CategoryMapper", "DictVectorizer", "LabelEncoder", "OneHotEncoder",
            "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
        ),
        (0,),
    ),
}  # fmt: skip
_BY_SHAPES_OF_ML = """
    Binarizer FeatureVectorizer Imputer LinearClassifier LinearRegressor Normalizer SVMClassifier
    SVMRegressor Scaler ZipMap
"""

_BY_SHAPES_OF_BLOCKED = """
    AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample
"""


def _by_shapes(names: str) -> Mapping[str, Deciding]:
    return dict.fromkeys(names.split(), ())


_TABLE: Mapping[str, Mapping[str, Deciding]] = {
    "": {**_by_shapes(_BY_SHAPES_OF_ONNX), **_OLD_BY_VALUES, **_BY_VALUES_OF_ONNX},
    "ai.onnx.ml": {**_by_shapes(_BY_SHAPES_OF_ML), **_BY_VALUES_OF_ML},
    "ai.onnx.preview": {"FlexAttention": ()},
    "ai.onnx.preview.training": {**_by_shapes("Adagrad Adam Momentum"), "Gradient": None},
    "com.microsoft": {
        **_by_shapes(_BY_SHAPES_OF_RUNTIME),
        **_BY_VALUES_OF_RUNTIME,
        **dict.fromkeys(_UNKNOWN_OF_RUNTIME.split()),
    },
    "com.microsoft.nchwc": _by_shapes(_BY_SHAPES_OF_BLOCKED),
    "com.ms.internal.nhwc": {
        **_by_shapes(_BY_SHAPES_OF_RUNTIME),
        **_by_shapes(_BY_SHAPES_OF_ONNX),
        **_BY_VALUES_OF_ONNX,
    },
}
_TABLE_BY_NUMBERS = frozenset(_BY_NUMBERS.split())
_SAME_AS: Mapping[str, str] = {"ai.onnx": ""}


# -- whether random values decide how much a graph computes. Then two runs may differ


# Operators whose result differs from run to run.
RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip
# The values of their inputs decide how large their outputs are.
_SIZED_BY_VALUES = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})


def find_random(graph: Graph) -> frozenset[str]:
    """Return the names of the tensors of the outer graph that are computed from random values."""
    random: dict[str, str] = {}
    for node in graph.nodes:
        nodes = [node, *(inner for body in node.bodies.values() for inner in body.walk())]
        source = _source([tensor for each in nodes for tensor in each.inputs], random)
        if any(each.op_type in RANDOM for each in nodes):
            source = node.op_type
        if source is not None:
            random.update((t.name, source) for t in node.outputs if t is not None)
    return frozenset(random)


def find_chance(graph: Graph, random: dict[str, str] | None = None) -> str | None:
    """Find an operator whose random values decide a shape, a branch or a trip count.

    Return its type, such as `RandomUniform`. Values computed from random values count as random:
    `random` maps those that were found so far to their source.
    """
    random = {} if random is None else random
    for node in graph.nodes:
        source = _source(node.inputs, random)
        if node.op_type in RANDOM:
            source = node.op_type
        decided = _deciding_source(node, random)
        if decided is not None:
            return decided
        for body in node.bodies.values():
            if source is not None:
                random.update((tensor.name, source) for tensor in body.inputs)
            found = find_chance(body, random)
            if found is not None:
                return found
            source = source or _source(body.outputs, random)
            # The first output of the body of a Loop decides whether there is another trip.
            ends = _source(body.outputs[:1], random) if node.op_type == "Loop" else None
            if ends is not None:
                return ends
        if source is not None:
            random.update((t.name, source) for t in node.outputs if t is not None)
    return None


def _deciding_source(node: Node, random: dict[str, str]) -> str | None:
    if node.op_type == "If":
        return _source(node.inputs[:1], random) if len(node.bodies) > 1 else None
    if node.op_type == "Loop":
        return _source(node.inputs[:2], random)
    is_origin = any(map(is_open, node.outputs)) and not any(map(is_open, node.inputs))
    if is_origin or node.op_type in _SIZED_BY_VALUES:
        return _source(node.inputs, random)
    return None


def _source(tensors: Sequence[Tensor | None], random: dict[str, str]) -> str | None:
    return next((random[t.name] for t in tensors if t is not None and t.name in random), None)
