"""Divide operators into kinds, which have the same colours on all pages and in all charts."""

from __future__ import annotations

import re

_BESIDE = ("beside", "beside the layers")
_OTHER = ("other", "other operators")
# The id in the style sheet, the title, and a pattern of names. The first kind that matches wins.
# `re` compiles and keeps each of them when it is first tried: most runs try few.
_KINDS = (
    ("attention", "attention and recurrent", r"Attention|LSTM|GRU|RNN|RotaryEmbedding"),
    ("quantization", "quantization", r"uantizeLinear"),
    ("convolution", "convolution", r"Conv"),
    ("product", "matrix product", r"MatMul|Gemm|Einsum"),
    ("normalization", "normalization", r"(?<!Random)Norm|LRN"),
    ("reduction", "pooling and reduction", r"Pool|^(QLinear)?Reduce|^Arg|TopK|^Cum(Sum|Prod)"),
    (
        "movement",
        "movement of data",
        (
            r"Reshape|Transpose|Concat|Slice|Gather|Scatter|Split|^Pad|Resize|Upsample|Expand|"
            r"queeze$|Flatten|Tile|^Cast|Identity|ToSpace|ToDepth|^Constant|^Shape|Reorder|MemcpyTo"
        ),
    ),
    (
        "elementwise",
        "elementwise",
        (
            r"^(Bias|QLinear)?(Add|Sub|Mul|Div|Pow|Sqrt|Exp|Log|Neg|Abs|Max|Min|Mod|Where|Clip|Erf|"
            r"Reciprocal|Floor|Ceil|Round|Sign|Not|And|Or|Xor|Bitwise|BitShift|Equal|Greater|Less|"
            r"IsInf|IsNaN|Shrink|Sum$|Mean$|A?([Ss]in|[Cc]os|[Tt]an)h?$)|[eE]lu|GELU|LU$|"
            r"Sigmoid|Softmax|Softplus|Softsign|Swish|Mish|Tanh|Dropout"
        ),
    ),
)


def kind_of(op_type: str, *, is_layer: bool = True) -> dict[str, str]:
    """Return the kind of an operator: its name in the style sheet, and its title."""
    return dict(zip(("id", "title"), _kind(op_type) if is_layer else _BESIDE, strict=True))


def _kind(op_type: str) -> tuple[str, str]:
    name = op_type.rpartition("::")[2]
    found = ((kind, title) for kind, title, pattern in _KINDS if re.search(pattern, name))
    return next(found, _OTHER)
