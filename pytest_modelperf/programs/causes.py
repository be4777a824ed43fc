"""Find why a program takes longer: functions that grew in its call trees, and changed models."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.by_running import compare_models
from pytest_modelperf.comparing.changes import CallChange, StageTime, TimeChange
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import MEDIAN, CaseComparison, How
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import external_files, open_model
from pytest_modelperf.graph.structure import BITS
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.programs.checked import ProgramCheck
from pytest_modelperf.programs.messages import CALL_PLACE, CallNode, CallProfile
from pytest_modelperf.programs.sides import WatchedWork
from pytest_modelperf.programs.trees import keep_file
from pytest_modelperf.programs.work import SessionPair
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import change_decimals, format_ms
from pytest_modelperf.text.words import count_of

# A function is named if the growth of its own time is this share of the growth of all functions.
_SHARE = 0.1
_MOST_FUNCTIONS = 4
# Left out, because the time of a session has a row of its own.
_INFERENCE = re.compile(r"\bonnxruntime_pybind11_state\.run\w*$")
# Built-in functions in which the thread of the call waits for another thread or process.
_WAIT = re.compile(r"'acquire' of '_|'(poll|control)' of 'select\.|select\.select$|posix\.waitpid$")
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
        text = f"{printable(self.place)}: {calls}, {' -> '.join(times)} ms"
        if _WAIT.search(self.place):
            text += ", waiting for a thread or process that is not profiled"
        return text


def grown_functions(
    before: Sequence[CallProfile], after: Sequence[CallProfile], *, call_ns: float = 0.0
) -> tuple[FunctionChange, ...]:
    """Return the functions whose own time grew most, by the typical profile of each side.

    A function must be slower in each profile of `after` than in any profile of `before`. Its growth
    must be a share of that of the whole call, which grew by `call_ns`.
    """
    old, new = (_times_by_place(side) for side in (before, after))
    changes = []
    for place in {**old, **new}:
        if _INFERENCE.search(place):
            continue
        times = old.get(place, [(0.0, 0.0)]), new.get(place, [(0.0, 0.0)])
        if max(ns for _, ns in times[0]) < min(ns for _, ns in times[1]):
            changes.append(FunctionChange(place, *map(_typical, times)))
    grown = [change for change in changes if change.grown_ns >= _LEAST_NS]
    whole_ns = max(sum(change.grown_ns for change in grown), call_ns)
    named = [change for change in grown if change.grown_ns >= _SHARE * whole_ns]
    ranked = sorted(named, key=lambda change: -change.grown_ns)
    return tuple(ranked[:_MOST_FUNCTIONS])


def _times_by_place(profiles: Sequence[CallProfile]) -> dict[str, list[tuple[float, float]]]:
    """Return the calls and the time of each function of a side, by its place, in each profile.

    A function that is missing in a profile took no time there. Two functions of the same name in
    one file count as one, because their lines move with a change.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, profile in enumerate(profiles):
        for function in profile.functions:
            sums = found.setdefault(function.place, [(0.0, 0.0)] * len(profiles))
            calls, ns = sums[number]
            sums[number] = calls + function.calls, ns + function.own_ns
    return found


def _typical(times: Sequence[tuple[float, float]]) -> StageTime:
    return StageTime(
        calls=statistics.median(calls for calls, _ in times),
        ns=statistics.median(ns for _, ns in times),
    )


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


MODEL_SECONDS = 10.0
_NS_PER_MS = 1e6
_MOST_REASONS = 4
_SCALAR = "scalar"
_INPUT = re.compile(rf"^(?P<name>.*): (?P<shape>\d+(x\d+)*|{_SCALAR}) (?P<dtype>\w+)$")


class MacsCounter:
    """A counter of the MACs of a watched call's inferences, with notes on what is not counted."""

    def __init__(self, watched: WatchedWork) -> None:
        self._models = {
            session.sha256: session.model
            for session in watched.work.sessions
            if session.sha256 is not None
        }
        self._files = watched.models
        self._numbers = watched.numbers
        self._failures: dict[str, str] = {}

    def __call__(self, sha256: str, inputs: Sequence[str]) -> int | None:
        """Return the MACs of one inference, or None if they cannot be counted."""
        model = self._models.get(sha256, "")
        path = self._files.get(model)
        if path is None:
            return None
        try:
            specs = _specs(inputs, path, self._numbers.get(model, {}))
            if specs is None:
                return None
            (case,) = profile_model(path, ProfileRequest(inputs=specs)).cases
        except ModelPerfError as error:
            self._failures.setdefault(model, error.message)
            return None
        return case.static.macs

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"the MACs of {printable(model)} cannot be counted: {reason}"
            for model, reason in self._failures.items()
        )


def keep_changed_models(
    seen: tuple[WatchedWork, WatchedWork], pairs: Sequence[SessionPair], folder: Path
) -> tuple[WatchedWork, WatchedWork]:
    """Keep both versions of each changed model in a folder, and return their files there.

    A model that a fixture made is removed with the process of its side.
    """
    changed = [pair.names for pair in pairs if pair.is_other_model]
    before, after = (
        replace(watched, models=_kept(watched.models, names, folder / side))
        for watched, names, side in zip(
            seen, zip(*changed, strict=True), ("before", "after"), strict=True
        )
    )
    return before, after


def _kept(
    models: Mapping[str, Path], names: Collection[str | None], folder: Path
) -> dict[str, Path]:
    found = dict(models)
    for number, (name, path) in enumerate(models.items()):
        if name in names:
            place = folder / str(number)
            files = {path.name: path, **external_files(open_model(path))}
            for location, file in files.items():
                target = place / location
                target.parent.mkdir(parents=True, exist_ok=True)
                keep_file(file, target)
            found[name] = place / path.name
    return found


class ModelDuet(Struct, frozen=True):
    """Reasons by both versions of a model, and how much longer a call takes, if that is known."""

    reasons: tuple[str, ...]
    change: TimeChange | None = None


def compare_versions(
    asked: ProgramCheck, pair: SessionPair, seen: tuple[WatchedWork, WatchedWork], gate: Gate
) -> ModelDuet | None:
    """Compare both versions of a changed model by a duet, or return None if one is unknown."""
    old, new = pair.before, pair.after
    if old is None or new is None or not new.inferences:
        return None
    files = seen[0].models.get(old.model), seen[1].models.get(new.model)
    if files[0] is None or files[1] is None:
        return None
    numbers = seen[1].numbers.get(new.model, {})
    specs = _specs(new.inferences[0].inputs, files[1], numbers)
    if specs is None:
        return None
    policy = replace(asked.setup.policy, max_seconds=MODEL_SECONDS)
    setup = replace(asked.setup, policy=policy)
    asked.show_step(f"compare both versions of {new.model}")
    request, extensions = ProfileRequest(inputs=specs), asked.extensions
    before, after = Side(files[0], setup), Side(files[1], setup)
    name = printable(new.model)
    try:
        found = compare_models(before, after, request, gate, extensions, asked.watch).cases[0]
    except ModelPerfError as error:
        problem = error.worded(setup.wording)
        return ModelDuet((f"{name}: both versions could not be compared: {problem}",))
    reasons = tuple(f"{name}: {reason}" for reason in found.reasons[:_MOST_REASONS])
    is_whole = len(new.inferences) == len(old.inferences) == 1 and old.calls == new.calls
    return ModelDuet(reasons, _change_of(found, new.calls) if is_whole else None)


def _change_of(found: CaseComparison, calls: int) -> TimeChange | None:
    p50 = found.metric(MEDIAN)
    if p50 is None or p50.before is None or p50.ratio is None:
        return None
    before_ns = p50.before * _NS_PER_MS * calls
    if p50.interval is None:
        is_same = found.how is How.PLAN
        return TimeChange(ns=0.0, low_ns=0.0, high_ns=0.0) if is_same else None
    low, high = p50.interval
    return TimeChange(
        ns=before_ns * (p50.ratio - 1.0),
        low_ns=before_ns * (low - 1.0),
        high_ns=before_ns * (high - 1.0),
    )


def _specs(
    inputs: Sequence[str], model: Path, numbers: Mapping[str, float]
) -> tuple[InputSpec, ...] | None:
    """Return the inputs of an inference for a request, or None if a shape is unknown.

    A list has no type of its own, so it gets the type that the model declares, as in the runtime.
    `numbers` are the values of inputs that are single numbers.
    """
    declared = {each.name: each.dtype for each in declared_inputs(open_model(model).proto)}
    found = []
    for text in inputs:
        match = _INPUT.match(text)
        if match is None:
            return None
        name, sizes = match["name"], match["shape"]
        shape = () if sizes == _SCALAR else tuple(int(size) for size in sizes.split("x"))
        value = (numbers[name],) if name in numbers and prod(shape) == 1 else None
        dtype = match["dtype"] if match["dtype"] in BITS else declared.get(name)
        found.append(InputSpec(name, dtype or match["dtype"], shape, value))
    return tuple(found)
