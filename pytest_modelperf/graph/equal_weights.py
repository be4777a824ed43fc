"""Find the weights of a model that hold the same bytes.

ONNX Runtime shares the packed form of such weights within a session: six equal ones of 16 MB ran
2.6 times as fast as six different ones. So a twin has to keep them equal.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.number_codes import NumberType
from pytest_modelperf.graph.run_lengths import RunLengths
from pytest_modelperf.graph.stored_tensors import StoredTensor
from pytest_modelperf.graph.weight_notes import Note
from pytest_modelperf.graph.weight_pieces import read_codes


class NotedWeight(Struct, frozen=True, eq=False):
    """A weight of a model with the note on it; the model still has its data."""

    stored: StoredTensor
    number: NumberType
    note: Note


class _Likeness(Struct, frozen=True):
    """Everything about a weight, besides its bytes, that its drawn numbers depend on."""

    number: NumberType
    dims: tuple[int, ...]
    dense_shape: tuple[int, ...]
    note: Note


def find_equal(file: ModelFile, weights: Sequence[NotedWeight]) -> tuple[int | None, ...]:
    """For each weight of a file, the number of its group of equal ones; None if it has no equal.

    Equal weights have the same type, shape and bytes: groups of zeros are drawn along an axis, so
    one note gives other bytes in another shape. Groups are numbered from 1, in the order of their
    first weights. A weight whose note is exact is in no group: the same note gives the same bytes.

    Only weights with the same type, shape and note are read, once more than for their notes.
    """
    alike: dict[_Likeness, list[int]] = defaultdict(list)
    for index, weight in enumerate(weights):
        if not isinstance(weight.note, RunLengths):
            alike[_likeness(weight)].append(index)
    groups: list[list[int]] = []
    for candidates in alike.values():
        if len(candidates) == 1:
            continue
        equal: dict[bytes, list[int]] = defaultdict(list)
        for index in candidates:
            equal[_digest(file, weights[index])].append(index)
        groups += [members for members in equal.values() if len(members) > 1]
    numbers = {
        index: number for number, members in enumerate(sorted(groups), 1) for index in members
    }
    return tuple(numbers.get(index) for index in range(len(weights)))


def _likeness(weight: NotedWeight) -> _Likeness:
    dims = tuple(weight.stored.tensor.dims)
    return _Likeness(weight.number, dims, weight.stored.dense_shape, weight.note)


def _digest(file: ModelFile, weight: NotedWeight) -> bytes:
    """The digest of a weight's codes, which are the same wherever its data is stored."""
    digest = hashlib.blake2b()
    for codes in read_codes(file, weight.stored.tensor, weight.number):
        digest.update(codes.tobytes())
    return digest.digest()
