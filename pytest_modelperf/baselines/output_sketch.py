"""A sketch of the outputs of a model: about a hundred numbers to compare later outputs with.

For each output it has a sample of the elements. It also splits all elements into the same number of
groups, and has the sum of each group with random signs. A comparison with a later output gives a
lower bound of the largest difference of an element:

- a sampled element differs by exactly as much as it does, and so do the smallest and the largest;
- a sum over n elements that differ by d at most differs by n times d at most, and by 6 times the
  root of n times d but for a chance of 3e-8, by Hoeffding's inequality: the signs do not depend on
  what an engine does.

So a difference that the sketch shows is real. It misses small differences in few elements: a single
element has to differ by 6 times the root of the size of its group. An output of few elements is
stored whole, and a digest shows any difference of whole numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.baselines.records import TensorSketch
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.model_in_worker import Sent

# The number of all samples of a case, and also of all sums; each output has its share of both.
_NUMBERS = 96
_LEAST_NUMBERS = 6
# A sum with random signs deviates by more than this many roots of its size once in 30 million.
_ROOTS = 6.0
_DIGITS = 8
# Larger numbers of 64 bits count as infinite, because sums of them would be infinite.
_LARGEST = 1e290

Floats: TypeAlias = npt.NDArray[np.float64]


def sketch_tensors(
    outputs: Mapping[str, Sent], names: Collection[str]
) -> Mapping[str, TensorSketch]:
    """Return a sketch of each output that was sent and has elements."""
    known = {
        name: (dtype, shape, data)
        for name, (dtype, shape, data) in outputs.items()
        if name in names and data
    }
    numbers = max(_LEAST_NUMBERS, _NUMBERS // max(len(known), 1))
    return {
        name: _sketch(np.frombuffer(data, np.dtype(dtype)), shape, numbers)
        for name, (dtype, shape, data) in sorted(known.items())
    }


def least_difference(before: TensorSketch, sent: Sent) -> float | None:
    """Return a lower bound of the largest difference of an element.

    Returns None if type, shape or the count of infinite and NaN elements differ, or without data.
    """
    dtype, shape, data = sent
    if data is None or tuple(shape) != before.shape:
        return None
    values = np.frombuffer(data, np.dtype(dtype))
    if values.dtype.kind != np.dtype(before.dtype).kind:
        return None
    after = _make(values, before.shape, len(before.samples), len(before.sums))
    if after.not_finite != before.not_finite:
        return None
    groups = _group_sizes(values.size, len(before.sums))
    most = np.minimum(groups, _ROOTS * np.sqrt(groups))
    found = [
        abs(after.low - before.low),
        abs(after.high - before.high),
        *np.abs(np.subtract(after.samples, before.samples)),
        *(np.abs(np.subtract(after.sums, before.sums)) / np.maximum(most, 1.0)),
    ]
    least = float(max(found))
    # Stored numbers are rounded, so a difference of this size means nothing.
    rounded = 10.0 ** (1 - _DIGITS) * before.largest
    least = least if least > rounded else 0.0
    is_other = before.digest is not None and after.digest != before.digest
    return max(least, 1.0) if is_other else least


def digest_inputs(feeds: Mapping[str, Feed]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, feed in sorted(feeds.items()):
        digest.update(repr((name, feed.to_wire())).encode())
    return digest.hexdigest()


def _sketch(values: npt.NDArray[Any], shape: tuple[int, ...], numbers: int) -> TensorSketch:
    is_whole = values.size <= 2 * numbers
    counts = (values.size, 0) if is_whole else (numbers, numbers)
    return _make(values, shape, *counts)


def _make(
    values: npt.NDArray[Any], shape: tuple[int, ...], samples: int, sums: int
) -> TensorSketch:
    kind = values.dtype.kind
    exact = np.abs(values) if kind == "c" else values
    finite = exact.astype(np.float64)
    is_finite = np.abs(finite) <= _LARGEST
    tests = np.isnan(finite), finite > _LARGEST, finite < -_LARGEST
    nans, above, below = (int(np.count_nonzero(test)) for test in tests)
    low = float(finite.min(where=is_finite, initial=math.inf))
    high = float(finite.max(where=is_finite, initial=-math.inf))
    finite = np.where(is_finite, finite, 0.0)
    if not is_finite.any():
        low = high = 0.0
    hashes = _hashes(finite.size)
    places = np.arange(samples) if samples == finite.size else _sample_places(finite.size, samples)
    digest = None
    if kind in "biu":
        digest = hashlib.blake2b(values.astype(np.int64).tobytes(), digest_size=16).hexdigest()
    return TensorSketch(
        dtype=values.dtype.name,
        shape=tuple(shape),
        low=_rounded(low),
        high=_rounded(high),
        not_finite=(nans, above, below),
        samples=tuple(map(_rounded, finite[places].tolist())),
        sums=tuple(map(_rounded, _signed_sums(finite, hashes, sums).tolist())),
        digest=digest,
    )


def _signed_sums(values: Floats, hashes: npt.NDArray[np.uint64], sums: int) -> Floats:
    if not sums:
        return np.zeros(0)
    signs = np.where(hashes & np.uint64(1), 1.0, -1.0)
    groups = _groups(hashes, sums)
    summed = np.bincount(groups, weights=values * signs, minlength=sums)
    return summed.astype(np.float64, copy=False)


def _group_sizes(size: int, sums: int) -> Floats:
    if not sums:
        return np.zeros(0)
    return np.bincount(_groups(_hashes(size), sums), minlength=sums).astype(np.float64)


def _groups(hashes: npt.NDArray[np.uint64], sums: int) -> npt.NDArray[np.int64]:
    return ((hashes >> np.uint64(33)) % np.uint64(sums)).astype(np.int64)


def _sample_places(size: int, samples: int) -> npt.NDArray[np.int64]:
    """Return a pseudo-random place for each sample. The same place may occur twice."""
    return (_hashes(samples, start=size) % np.uint64(size)).astype(np.int64)


def _hashes(count: int, start: int = 0) -> npt.NDArray[np.uint64]:
    """Return SplitMix64 numbers (Steele, Lea, Flood, 2014), the same in every version of numpy."""
    with np.errstate(over="ignore"):
        state = np.arange(start + 1, start + count + 1, dtype=np.uint64)
        state *= np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
