"""Stored samples that are a copy of others, and so no evidence of a second run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from pytest_modelperf.baselines.records import StoredLatency
from pytest_modelperf.files.documents import ContradictionError, shortened

# Samples of fewer different values can be equal by chance: a coarse clock knows a few values only.
# Even where all values are as likely as each other, two blocks of 12 are equal once in 10^13.
_FEWEST_VALUES = 12

_Samples: TypeAlias = tuple[tuple[int, ...], ...]


def require_own_samples(cases: Mapping[str, StoredLatency]) -> None:
    """ContradictionError if a process or round of a machine's file repeats another one."""
    places: dict[_Samples, str] = {}
    for place, times_ns in chain(_processes(cases), _rounds(cases)):
        if len(set(chain.from_iterable(times_ns))) < _FEWEST_VALUES:
            continue
        first = places.setdefault(times_ns, place)
        if first != place and not place.startswith(f"{first}["):
            raise ContradictionError(
                place, f"the samples are those of {first}, which no two runs have: they were copied"
            )


def _processes(cases: Mapping[str, StoredLatency]) -> Iterator[tuple[str, _Samples]]:
    """The places in the file of the processes, and their samples."""
    for case_id, case in sorted(cases.items()):
        for number, process in enumerate(case.processes):
            place = f'cases["{shortened(case_id)}"].processes[{number}].times_ns'
            yield place, process.times_ns


def _rounds(cases: Mapping[str, StoredLatency]) -> Iterator[tuple[str, _Samples]]:
    for place, rounds in _processes(cases):
        for number, times_ns in enumerate(rounds):
            yield f"{place}[{number}]", (times_ns,)
