"""Find why the code of a program takes longer: functions that grew, in both call trees."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.comparing.changes import CallChange, StageTime
from pytest_modelperf.programs.records import CALL_PLACE, CallNode, CallProfile
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import change_decimals, format_ms
from pytest_modelperf.text.words import count_of

# A function is named if the growth of its own time is this share of the growth of all functions.
_SHARE = 0.1
_MOST_FUNCTIONS = 4
# Left out, because the time of a session has a row of its own.
_INFERENCE = re.compile(r"\bonnxruntime_pybind11_state\.run\w*$")
# A smaller growth is noise of the profiler.
_LEAST_NS = 20_000


class FunctionChange(Struct, frozen=True):
    """A function on both sides: its calls and its own time in one call of the program."""

    place: str
    before: StageTime
    after: StageTime

    @property
    def grown_ns(self) -> float:
        return self.after.ns - self.before.ns

    def describe(self) -> str:
        """Return a text such as `reader.py:prepare: 1 call, 0.60 -> 9.80 ms`."""
        old, new = self.before.calls, self.after.calls
        calls = count_of(round(new), "call") if old == new else f"{old:g} -> {new:g} calls"
        decimals = change_decimals(self.grown_ns)
        times = (format_ms(side.ns, decimals) for side in (self.before, self.after))
        return f"{printable(self.place)}: {calls}, {' -> '.join(times)} ms"


def grown_functions(
    before: Sequence[CallProfile], after: Sequence[CallProfile]
) -> tuple[FunctionChange, ...]:
    """Return the functions whose own time grew most, by the typical profile of each side."""
    old, new = (
        {place: each for place, each in _typical(side).items() if not _INFERENCE.search(place)}
        for side in (before, after)
    )
    none = StageTime(calls=0.0, ns=0.0)
    changes = [
        FunctionChange(place, old.get(place, none), new.get(place, none))
        for place in {**old, **new}
    ]
    grown = [change for change in changes if change.grown_ns >= _LEAST_NS]
    whole_ns = sum(change.grown_ns for change in grown)
    named = [change for change in grown if change.grown_ns >= _SHARE * whole_ns]
    ranked = sorted(named, key=lambda change: -change.grown_ns)
    return tuple(ranked[:_MOST_FUNCTIONS])


def _typical(profiles: Sequence[CallProfile]) -> dict[str, StageTime]:
    """Return the typical time of each function of a side, by its place.

    A function that is missing in a profile took no time there. Two functions of the same name in
    one file count as one, because their lines move with a change.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, profile in enumerate(profiles):
        for function in profile.functions:
            sums = found.setdefault(function.place, [(0.0, 0.0)] * len(profiles))
            calls, ns = sums[number]
            sums[number] = calls + function.calls, ns + function.own_ns
    return {
        place: StageTime(
            calls=statistics.median(calls for calls, _ in sums),
            ns=statistics.median(ns for _, ns in sums),
        )
        for place, sums in found.items()
    }


# -- the trees of calls of both sides of a program as one


# Functions that take a smaller share of the call on both sides are merged into one entry.
_SMALLEST_SHARE = 0.005

# The calls of some functions, by profile.
_Found: TypeAlias = Sequence[Sequence[CallNode]]


class _Both(Struct, frozen=True):
    before: _Found
    after: _Found

    @property
    def sides(self) -> tuple[_Found, _Found]:
        return self.before, self.after

    @property
    def longest_ns(self) -> float:
        return max(_typical_ns(side) for side in self.sides)

    def change(self, place: str, level: int) -> CallChange:
        before, after = (_typical_time(side) for side in self.sides)
        return CallChange(place=place, level=level, before=before, after=after)

    def at(self, places: Iterable[str]) -> _Both:
        wanted = frozenset(places)
        before, after = (
            [[each for node in nodes for each in node.inner if each.place in wanted]
             for nodes in side]
            for side in self.sides
        )  # fmt: skip
        return _Both(before, after)


def merged_calls(
    before: Sequence[CallProfile], after: Sequence[CallProfile]
) -> tuple[CallChange, ...]:
    """Merge the calls of both sides into one tree, in the order of `CallChange`, longest first."""
    roots = [each.root for each in (*before, *after) if each.root is not None]
    if not roots:
        return ()
    places = {root.place for root in roots}
    place = places.pop() if len(places) == 1 else CALL_PLACE
    whole = _Both(_roots(before, place), _roots(after, place))
    least = [_typical_ns(side) * _SMALLEST_SHARE for side in whole.sides]
    return tuple(_changes(place, 0, whole, least))


def _roots(profiles: Sequence[CallProfile], place: str) -> _Found:
    """Return the root of each profile, wrapped in a node for `place` if it is at another place."""
    found = []
    for profile in profiles:
        root = profile.root
        if root is not None and root.place != place:
            root = CallNode(place=place, ns=root.ns, calls=1, inner=(root,))
        found.append([] if root is None else [root])
    return found


def _changes(
    place: str, level: int, found: _Both, least_ns: Sequence[float]
) -> Iterator[CallChange]:
    yield found.change(place, level)
    nodes = (node for side in found.sides for made in side for node in made)
    inner = {name: found.at([name]) for name in dict.fromkeys(
        each.place for node in nodes for each in node.inner
    )}  # fmt: skip
    names = sorted(inner, key=lambda name: (-inner[name].longest_ns, name))
    small = [name for name in names if _is_small(inner[name], least_ns)]
    for name in names:
        # A single small function keeps its name.
        if name not in small or len(small) == 1:
            yield from _changes(name, level + 1, inner[name], least_ns)
    if len(small) > 1:
        yield found.at(small).change(f"{len(small)} others", level + 1)


def _is_small(found: _Both, least_ns: Sequence[float]) -> bool:
    return all(_typical_ns(side) < least for side, least in zip(found.sides, least_ns, strict=True))


def _typical_time(found: _Found) -> StageTime | None:
    if not any(found):
        return None
    calls = statistics.median(sum(node.calls for node in nodes) for nodes in found)
    return StageTime(calls=calls, ns=_typical_ns(found)) if calls else None


def _typical_ns(found: _Found) -> float:
    times = [sum(node.ns for node in nodes) for nodes in found]
    return statistics.median(times) if times else 0.0
