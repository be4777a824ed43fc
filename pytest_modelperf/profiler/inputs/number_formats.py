"""Numbers of types that numpy lacks, as the unsigned integers that hold their bits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_modelperf.graph.number_codes import ML_TYPES, NumberType, dtype_of
from pytest_modelperf.graph.structure import BITS

if TYPE_CHECKING:
    import numpy.typing as npt

# Integers smaller than a byte, and their ranges. A model packs them; as inputs each has a byte.
NARROW_INTEGERS: Mapping[str, tuple[int, int]] = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int2": (-2, 1),
    "uint2": (0, 3),
}
_OUR_NAMES: Mapping[str, str] = {np.dtype(kind).name: name for name, kind in ML_TYPES.items()}
_SCALE = "float8e8m0"
_SCALE_BIAS = 127

# The type that holds the bits.
STORED_AS: Mapping[str, str] = {
    "bfloat16": "uint16",
    _SCALE: "uint8",
    "float8e4m3fn": "uint8",
    "float8e4m3fnuz": "uint8",
    "float8e5m2": "uint8",
    "float8e5m2fnuz": "uint8",
    "float4e2m1": "uint8",
    **dict.fromkeys(NARROW_INTEGERS, "uint8"),
}


def to_bits(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The bits of the numbers of `dtype` that are nearest to `values`, which are finite.

    A small float becomes 0 or a normal number, never a subnormal one.
    """
    if dtype == "bfloat16":
        return np.asarray(values, np.float32).astype(dtype_of(dtype)).view(np.uint16)
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
    return np.where(is_negative, found | _sign(dtype), found).astype(np.uint8)


def name_of(dtype: np.dtype[Any]) -> str:
    """Our name of an array's type, types of ml_dtypes included."""
    return "string" if dtype.kind in "OSU" else _OUR_NAMES.get(dtype.name, dtype.name)


def _sign(dtype: str) -> int:
    """The sign's bit."""
    return 1 << (BITS[dtype] - 1)


@cache
def _magnitudes(dtype: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """The codes of zero and of all positive normal numbers, and the numbers."""
    codes = np.arange(_sign(dtype), dtype=np.uint8)
    # ml_dtypes calls a conversion of NaN invalid.
    with np.errstate(invalid="ignore"):
        numbers = codes.view(dtype_of(dtype)).astype(np.float64)
    is_kept = np.isfinite(numbers) & ((codes == 0) | (numbers >= NumberType(dtype).smallest_normal))
    return codes[is_kept], numbers[is_kept]
