"""Codes: the elements of a tensor as unsigned integers with the same bits, and their numbers.

numpy has no bfloat16, no floats of 8 bits and no numbers of 4 bits or less. Codes exist for
numbers of all types, and can be packed, unpacked and compared without decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np
from msgspec import Struct

from pytest_modelperf.graph.structure import BITS

if TYPE_CHECKING:
    import numpy.typing as npt

# One code for each element, for any width in the file.
Codes: TypeAlias = "npt.NDArray[np.unsignedinteger[Any]]"
Numbers: TypeAlias = "npt.NDArray[Any]"

# The ml_dtypes for types that numpy lacks, by our names, which are those of ONNX.
ML_TYPES: Mapping[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
}
# The types of numpy itself, which shapes, conditions and counts have.
NUMPY_DTYPES = frozenset({
    "bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
})  # fmt: skip
_COMPONENTS: Mapping[str, str] = {"complex64": "float32", "complex128": "float64"}
_OUR_NAMES: Mapping[str, str] = {np.dtype(kind).name: name for name, kind in ML_TYPES.items()}
# The exponent of a float8e8m0 is its code minus this bias.
_SCALE_BIAS = 127


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of arrays of these numbers, from numpy or ml_dtypes."""
    dtype: np.dtype[Any] = np.dtype(ML_TYPES.get(name, name))
    return dtype


def name_of(dtype: np.dtype[Any]) -> str:
    """Return our name of an array's type, which may be from ml_dtypes."""
    return "string" if dtype.kind in "OSU" else _OUR_NAMES.get(dtype.name, dtype.name)


class NumberType(Struct, frozen=True):
    """A type of numbers. A complex number has two components of this type."""

    name: str
    components: int = 1

    @property
    def bits(self) -> int:
        return BITS[self.name]

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype(f"u{max(self.bits, 8) // 8}")

    @property
    def is_float(self) -> bool:
        return "float" in self.name

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full mantissa, or 1 for integers."""
        return float(_float_info(self.name).smallest_normal) if self.is_float else 1.0

    @property
    def subnormal_steps(self) -> int:
        """The number of positive subnormal numbers plus one, so 1 if there are none."""
        return 1 << int(_float_info(self.name).nmant) if self.is_float else 1

    @property
    def lowest(self) -> float | int:
        if self.is_float:
            return float(_float_info(self.name).min)
        return 0 if self.name == "bool" or self.name[0] == "u" else -(1 << (self.bits - 1))

    @property
    def highest(self) -> float | int:
        if self.is_float:
            return float(_float_info(self.name).max)
        if self.name == "bool":
            return 1
        return (1 << (self.bits if self.name[0] == "u" else self.bits - 1)) - 1

    def shape(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return dims if self.components == 1 else (*dims, self.components)

    def decode(self, codes: Codes) -> Numbers:
        """Return the numbers of these codes, in a type that numpy has."""
        if self.name == "bfloat16":
            return codes.view(dtype_of(self.name)).astype(np.float32)
        if self.is_float:
            # A table is used because ml_dtypes converts small floats several times slower.
            return codes.view(self.name) if self.bits > 8 else _table(self.name)[codes]
        if self.name == "bool" or self.name[0] == "u":
            return codes
        if self.bits >= 8:
            return codes.view(self.name)
        sign = np.uint8(1 << (self.bits - 1))
        return (codes ^ sign).astype(np.int8) - np.int8(sign)

    def encode(self, numbers: Numbers) -> Codes:
        """Return the codes of the numbers nearest to these, which must be finite and in range."""
        if self.is_float and self.bits > 8:
            if self.name == "bfloat16":
                numbers = numbers.astype(np.float32)
            return np.asarray(numbers.astype(dtype_of(self.name)).view(self.code_dtype))
        if self.is_float:
            return _finite(self.name).nearest(numbers)
        whole = np.rint(numbers) if numbers.dtype.kind == "f" else numbers
        if self.bits == 64:
            # As floats, the highest numbers of 64 bits would be one too high.
            whole = np.clip(whole, self.lowest, float(self.highest) - 2048)
            return whole.astype(np.uint64 if self.name[0] == "u" else np.int64).view(np.uint64)
        codes = whole.astype(np.int64).astype(self.code_dtype)
        return codes if self.bits >= 8 else codes & np.uint8((1 << self.bits) - 1)

    def unpack(self, data: bytes | bytearray | memoryview) -> Codes:
        """Return the codes in packed bytes, with the padding if they have 4 or 2 bits."""
        if self.bits >= 8:
            little = self.code_dtype.newbyteorder("<")
            return np.frombuffer(data, little).astype(self.code_dtype, copy=False)
        packed = np.frombuffer(data, np.uint8)
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        mask = np.uint8((1 << self.bits) - 1)
        return np.asarray((packed[:, None] >> shifts & mask).reshape(-1))

    def pack(self, codes: Codes) -> bytes:
        """Pack codes into bytes, with the last byte padded with zero bits."""
        if self.bits >= 8:
            return codes.astype(self.code_dtype.newbyteorder("<"), copy=False).tobytes()
        per_byte = 8 // self.bits
        padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
        padded[: codes.size] = codes
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        packed: npt.NDArray[np.uint8] = np.bitwise_or.reduce(
            padded.reshape(-1, per_byte) << shifts, axis=1
        )
        return packed.tobytes()


def number_type(dtype: str) -> NumberType | None:
    """Return the number type of this dtype, or None for text and unknown types."""
    if dtype in _COMPONENTS:
        return NumberType(_COMPONENTS[dtype], 2)
    return NumberType(dtype) if dtype in BITS else None


def codes_of(values: Numbers, number: NumberType) -> Codes:
    """Return the codes of an array from onnx, whose type may be from numpy or ml_dtypes."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if number.bits < 8:
        # ml_dtypes stores one number in each byte, with arbitrary upper bits.
        return flat.view(np.uint8) & np.uint8((1 << number.bits) - 1)
    return flat.view(number.code_dtype)


# The type that stores one number of each type that numpy lacks, even if it has 4 bits or less.
STORED_AS: Mapping[str, str] = {name: NumberType(name).code_dtype.name for name in ML_TYPES}


def to_stored(values: Numbers, dtype: str) -> Numbers:
    """Return the nearest numbers of a type, or their bits if numpy lacks the type.

    In the second case, `values` must be finite. A float of 8 bits or less becomes 0 or a normal
    number, never a subnormal one.
    """
    number = NumberType(dtype)
    if dtype not in STORED_AS:
        with np.errstate(all="ignore"):
            return values.astype(dtype)
    if not number.is_float:
        # The upper bits repeat the sign.
        return values.astype(np.int8).view(np.uint8)
    if number.bits > 8:
        return number.encode(values)
    sizes = np.abs(values.astype(np.float64))
    if number.lowest > 0:
        exponents = np.rint(np.log2(np.maximum(sizes, number.lowest)))
        return np.asarray(np.clip(exponents + _SCALE_BIAS, 0, 254), np.uint8)
    found = _finite(dtype, number.smallest_normal).nearest(sizes)
    # A negative zero is not a number in some of these types.
    is_negative = (values < 0) & (found != 0)
    return np.where(is_negative, found | (1 << (number.bits - 1)), found).astype(np.uint8)


class _Finite(Struct, frozen=True, eq=False):
    numbers: npt.NDArray[np.float64]
    codes: npt.NDArray[np.uint8]

    def nearest(self, numbers: Numbers) -> npt.NDArray[np.uint8]:
        """Return the code of the nearest number, or of the lower of two that are equally near."""
        middles = (self.numbers[1:] + self.numbers[:-1]) / 2
        return self.codes[np.searchsorted(middles, numbers)]


@cache
def _finite(name: str, least: float | None = None) -> _Finite:
    table = _table(name).astype(np.float64)
    is_kept = np.isfinite(table) & ~(np.signbit(table) & (table == 0))
    if least is not None:
        is_kept &= (table == 0) | (table >= least)
    codes = np.flatnonzero(is_kept)
    codes = codes[np.argsort(table[codes], kind="stable")]
    return _Finite(table[codes], codes.astype(np.uint8))


@cache
def _table(name: str) -> npt.NDArray[np.float32]:
    # ml_dtypes reports the conversion of NaN as invalid.
    with np.errstate(invalid="ignore"):
        return np.arange(1 << BITS[name], dtype=np.uint8).view(dtype_of(name)).astype(np.float32)


@cache
def _float_info(name: str) -> Any:  # noqa: ANN401  # as ml_dtypes types it
    describe: Any = ml_dtypes.finfo
    return describe(dtype_of(name))
