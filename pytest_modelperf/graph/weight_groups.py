"""Find the weights of a model that a twin has to draw alike: equal ones, and scales by one factor.

ONNX Runtime shares the packed form of equal weights within a session: six equal ones of 16 MB ran
2.6 times as fast as six different ones. And it fuses a quantized convolution only if the scales of
its bias are those of its weight, times the scale of its input.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.run_lengths import RunLengths
from pytest_modelperf.graph.stored_tensors import StoredTensor
from pytest_modelperf.graph.weight_notes import Note
from pytest_modelperf.graph.weight_pieces import read_codes

if TYPE_CHECKING:
    import numpy.typing as npt

    Scales = npt.NDArray[np.float64]

# How far the quotients of two vectors of scales may differ: float32 rounds each product.
_QUOTIENT_TOLERANCE = 1e-5


class NotedWeight(Struct, frozen=True, eq=False):
    """A weight of a model with the note on it; the model still has its data.

    `is_scale` says that it turns integers into floats.
    """

    stored: StoredTensor
    number: NumberType
    note: Note
    is_scale: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self.stored.tensor.dims)


def find_groups(file: ModelFile, weights: Sequence[NotedWeight]) -> tuple[int | None, ...]:
    """For each weight of a file, the number of the group that is drawn alike; None if it is alone.

    Equal weights have the same type, shape and bytes: groups of zeros are drawn along an axis, so
    one note gives other bytes in another shape. Vectors of scales are in one group also if one is a
    multiple of the other. Groups are numbered from 1, in the order of their first weights. A weight
    whose note is exact is in no group: the same note gives the same bytes.

    Only scales, and weights with the same type, shape and note, are read once more.
    """
    # By everything besides its bytes that the drawn numbers of a weight depend on.
    alike: dict[object, list[int]] = defaultdict(list)
    scales: dict[tuple[NumberType, tuple[int, ...]], list[int]] = defaultdict(list)
    for index, weight in enumerate(weights):
        if isinstance(weight.note, RunLengths):
            continue
        if weight.is_scale and weight.number.is_float and len(weight.dims) == 1:
            scales[weight.number, weight.dims].append(index)
        else:
            key = weight.number, weight.dims, weight.stored.dense_shape, weight.note
            alike[key].append(index)
    groups: list[list[int]] = []
    for candidates in alike.values():
        if len(candidates) == 1:
            continue
        equal: dict[bytes, list[int]] = defaultdict(list)
        for index in candidates:
            equal[_digest(file, weights[index])].append(index)
        groups += equal.values()
    for candidates in scales.values():
        groups += _multiples({index: _read(file, weights[index]) for index in candidates})
    members = sorted(group for group in groups if len(group) > 1)
    numbers = {index: number for number, group in enumerate(members, 1) for index in group}
    return tuple(numbers.get(index) for index in range(len(weights)))


def _multiples(scales: dict[int, Scales]) -> Iterator[list[int]]:
    """The vectors in groups of those that are multiples of one another, each by its index."""
    spreads = {
        index: float(values.max() / values.mean())
        for index, values in scales.items()
        if np.isfinite(values).all() and values.min() > 0.0
    }
    group: list[int] = []
    # Multiples have one spread, so they stand side by side.
    for index in sorted(spreads, key=spreads.__getitem__):
        if group and not _is_multiple(scales[index], scales[group[-1]]):
            yield sorted(group)
            group = []
        group.append(index)
    yield sorted(group)


def _is_multiple(values: Scales, other: Scales) -> bool:
    quotients = values / other
    return float(np.ptp(quotients)) <= _QUOTIENT_TOLERANCE * float(quotients.max())


def _read(file: ModelFile, weight: NotedWeight) -> Scales:
    pieces = read_codes(file, weight.stored.tensor, weight.number)
    return np.concatenate([weight.number.decode(codes) for codes in pieces]).astype(np.float64)


def _digest(file: ModelFile, weight: NotedWeight) -> bytes:
    """The digest of a weight's codes, which are the same wherever its data is stored."""
    digest = hashlib.blake2b()
    for codes in read_codes(file, weight.stored.tensor, weight.number):
        digest.update(codes.tobytes())
    return digest.digest()
