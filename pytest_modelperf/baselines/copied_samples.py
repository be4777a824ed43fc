"""Stored samples that are a copy of others, and so no evidence of a second run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredLatency
from pytest_modelperf.files.documents import ContradictionError, shortened

# Samples of fewer different values can be equal by chance: a coarse clock knows a few values only.
# Even where all values are as likely as each other, two blocks of 12 are equal once in 10^13.
_FEWEST_VALUES = 12

_Samples: TypeAlias = tuple[tuple[int, ...], ...]


class _Stored(Struct, frozen=True):
    """The samples of some rounds, and where they stand in the file."""

    place: str
    times_ns: _Samples

    @property
    def are_unique(self) -> bool:
        """Whether no other run can have these times in this order."""
        return len(set(chain.from_iterable(self.times_ns))) >= _FEWEST_VALUES


def require_own_samples(cases: Mapping[str, StoredLatency]) -> None:
    """ContradictionError if a process or round of a machine's file repeats another one."""
    places: dict[_Samples, str] = {}
    for stored in chain(_processes(cases), _rounds(cases)):
        if not stored.are_unique:
            continue
        first = places.setdefault(stored.times_ns, stored.place)
        if first != stored.place and not stored.place.startswith(f"{first}["):
            raise ContradictionError(
                stored.place,
                f"the samples are those of {first}, which no two runs have: they were copied",
            )


def _processes(cases: Mapping[str, StoredLatency]) -> Iterator[_Stored]:
    for case_id, case in sorted(cases.items()):
        for number, process in enumerate(case.processes):
            place = f'cases["{shortened(case_id)}"].processes[{number}].times_ns'
            yield _Stored(place, process.times_ns)


def _rounds(cases: Mapping[str, StoredLatency]) -> Iterator[_Stored]:
    for process in _processes(cases):
        for number, times_ns in enumerate(process.times_ns):
            yield _Stored(f"{process.place}[{number}]", (times_ns,))
