"""Why the code of a program takes longer: the functions whose own time grew, by cProfile.

A profiler slows small functions down more than large ones, so its times explain and judge nothing.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.programs.records import CallProfile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import change_decimals, format_ms
from pytest_modelperf.text.words import count_of

# A function is named if its own time grew by this share of what all functions together grew.
_SHARE = 0.1
_MOST_FUNCTIONS = 4
# The time of a session has a row of its own.
_INFERENCE = re.compile(r"\bonnxruntime_pybind11_state\.run\w*$")
# A growth of less is the noise of the profiler.
_LEAST_NS = 20_000


class FunctionChange(Struct, frozen=True, kw_only=True):
    """A function on both sides: its calls and its own time in one call of the program."""

    place: str
    calls_before: float
    calls_after: float
    before_ns: float
    after_ns: float

    @property
    def grown_ns(self) -> float:
        return self.after_ns - self.before_ns

    def describe(self) -> str:
        """`reader.py:prepare: 1 call, 0.60 -> 9.80 ms`."""
        old, new = self.calls_before, self.calls_after
        calls = count_of(round(new), "call") if old == new else f"{old:g} -> {new:g} calls"
        decimals = change_decimals(self.grown_ns)
        times = f"{format_ms(self.before_ns, decimals)} -> {format_ms(self.after_ns, decimals)} ms"
        return f"{printable(self.place)}: {calls}, {times}"


def grown_functions(
    before: Sequence[CallProfile], after: Sequence[CallProfile]
) -> tuple[FunctionChange, ...]:
    """The functions whose own time grew most, by the typical profile of each side."""
    old, new = (
        {place: each for place, each in _typical(side).items() if not _INFERENCE.search(place)}
        for side in (before, after)
    )
    changes = [
        FunctionChange(
            place=place,
            calls_before=old[place].calls if place in old else 0.0,
            calls_after=new[place].calls if place in new else 0.0,
            before_ns=old[place].ns if place in old else 0.0,
            after_ns=new[place].ns if place in new else 0.0,
        )
        for place in {**old, **new}
    ]
    grown = [change for change in changes if change.grown_ns >= _LEAST_NS]
    whole_ns = sum(change.grown_ns for change in grown)
    named = [change for change in grown if change.grown_ns >= _SHARE * whole_ns]
    ranked = sorted(named, key=lambda change: -change.grown_ns)
    return tuple(ranked[:_MOST_FUNCTIONS])


class _Typical(Struct, frozen=True):
    """The typical calls and own time of all functions at one place."""

    calls: float
    ns: float


def _typical(profiles: Sequence[CallProfile]) -> dict[str, _Typical]:
    """The functions of a side; what a profile does not have took no time there.

    Two functions of one name in one file count as one, because a change moves their lines.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, profile in enumerate(profiles):
        for function in profile.functions:
            sums = found.setdefault(function.place, [(0.0, 0.0)] * len(profiles))
            calls, ns = sums[number]
            sums[number] = calls + function.calls, ns + function.own_ns
    return {
        place: _Typical(
            statistics.median(calls for calls, _ in sums), statistics.median(ns for _, ns in sums)
        )
        for place, sums in found.items()
    }
