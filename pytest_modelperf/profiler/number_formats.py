"""Numbers of types that numpy lacks, as the unsigned integers that hold their bits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    import numpy.typing as npt

# Integers smaller than a byte, and their ranges. A model packs them; as inputs each has a byte.
NARROW_INTEGERS: Mapping[str, tuple[int, int]] = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int2": (-2, 1),
    "uint2": (0, 3),
}
# The names of ml_dtypes, which brings these types to numpy.
_ML_NAMES: Mapping[str, str] = {"float8e8m0fnu": "float8e8m0", "float4e2m1fn": "float4e2m1"}
_SCALE = "float8e8m0"
_SCALE_BIAS = 127


class _Layout(Struct, frozen=True):
    """The layout of a small float: a sign, then exponent and mantissa.

    `specials` are how many of the largest codes stand for no finite number.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: int

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.exponent_bits + self.mantissa_bits)


# onnx's documentation, "Float stored in 8 bits" and "Float stored in 4 bits".
_LAYOUTS: Mapping[str, _Layout] = {
    "float8e4m3fn": _Layout(4, 3, 7, 1),
    "float8e4m3fnuz": _Layout(4, 3, 8, 0),
    "float8e5m2": _Layout(5, 2, 15, 4),
    "float8e5m2fnuz": _Layout(5, 2, 16, 0),
    "float4e2m1": _Layout(2, 1, 1, 0),
}

# The type that holds the bits.
STORED_AS: Mapping[str, str] = {
    "bfloat16": "uint16",
    _SCALE: "uint8",
    **dict.fromkeys(_LAYOUTS, "uint8"),
    **dict.fromkeys(NARROW_INTEGERS, "uint8"),
}


def to_bits(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The bits of the numbers of `dtype` that are nearest to `values`, which are finite.

    A small float becomes 0 or a normal number, never a subnormal one.
    """
    if dtype == "bfloat16":
        # Rounds to nearest, and a tie to even.
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
        return np.asarray(rounded, np.uint16)
    if dtype == _SCALE:
        exponents = np.log2(np.maximum(np.abs(values.astype(np.float64)), 2.0**-_SCALE_BIAS))
        return np.asarray(np.clip(np.rint(exponents) + _SCALE_BIAS, 0, 254), np.uint8)
    if dtype in NARROW_INTEGERS:
        return values.astype(np.int8).view(np.uint8)
    codes, numbers = _magnitudes(dtype)
    sizes = np.abs(values.astype(np.float64))
    middles = (numbers[1:] + numbers[:-1]) / 2
    found = codes[np.searchsorted(middles, sizes)]
    # A negative zero is no number in some of these types.
    is_negative = (values < 0) & (found != 0)
    return np.where(is_negative, found | _LAYOUTS[dtype].sign, found).astype(np.uint8)


def name_of(dtype: np.dtype[Any]) -> str:
    """Our name of an array's type, types of ml_dtypes included."""
    if dtype.kind in "OSU":
        return "string"
    name = dtype.name.replace("_", "")
    return _ML_NAMES.get(name, name)


@cache
def _magnitudes(dtype: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """The codes of zero and of all positive normal numbers, and the numbers."""
    layout = _LAYOUTS[dtype]
    first = 1 << layout.mantissa_bits
    normal = np.arange(first, layout.sign - layout.specials)
    exponents = (normal >> layout.mantissa_bits) - layout.bias
    fractions = 1 + (normal & (first - 1)) / first
    numbers = np.ldexp(fractions, exponents)
    return (
        np.concatenate([[0], normal]).astype(np.uint8),
        np.concatenate([[0.0], numbers]),
    )
