"""Two kept profiles side by side, and the times of one beside its counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.records import LayerChange, LayerTypeChange
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiles.records import (
    DIMENSIONS,
    ENGINE,
    MODEL_FILE,
    CasePair,
    DifferentCondition,
    NamedProfile,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.text.escaping import printable

_DIGITS = 12
# Two runs that did not take turns prove no difference, whatever their intervals. This interval
# contains every ratio.
_NOT_SHOWN = (0.0, math.inf)


def put_side_by_side(before: NamedProfile, after: NamedProfile) -> SideBySide:
    """The cases that both have. If they share none and have one each, these two are paired."""
    old, new = _measured(before), _measured(after)
    shared = [case_id for case_id in old if case_id in new]
    chosen = [(old[case_id], new[case_id]) for case_id in shared]
    if not chosen and len(old) == len(new) == 1:
        chosen = list(zip(old.values(), new.values(), strict=True))
    if not chosen:
        raise UsageError(
            f"{before.name} and {after.name} have no case in common: {_ids(before)}; "
            f"{_ids(after)}. Measure one of them again with the --batch, --cores and --dim of the "
            "other."
        )
    paired = {id(case) for pair in chosen for case in pair}
    return SideBySide(
        before=before,
        after=after,
        pairs=tuple(_pair(*cases) for cases in chosen),
        single=tuple(
            (named.name, case.case)
            for named in (before, after)
            for case in _measured(named).values()
            if id(case) not in paired
        ),
        unlike=_unlike(
            _conditions(before, [old for old, _ in chosen]),
            _conditions(after, [new for _, new in chosen]),
        ),
    )


class BesideFirst(NamedTuple):
    """Each profile beside the first, and notes on those that have no case in common with it."""

    pairs: tuple[SideBySide, ...]
    notes: tuple[str, ...]


def put_beside_first(kept: Sequence[NamedProfile]) -> BesideFirst:
    """UsageError if none has a case in common with the first."""
    first, *others = kept
    found = [_try_beside(first, other) for other in others]
    pairs = tuple(each for each in found if isinstance(each, SideBySide))
    notes = tuple(each for each in found if isinstance(each, str))
    if not pairs:
        raise UsageError(notes[0])
    return BesideFirst(pairs, notes)


def _try_beside(first: NamedProfile, other: NamedProfile) -> SideBySide | str:
    """Both side by side, or why not."""
    try:
        return put_side_by_side(first, other)
    except UsageError as error:
        return error.message


def put_beside_work(kept: NamedProfile) -> WorkAndTime:
    """The counts of each case beside its times."""
    cases = [
        case for case in kept.profile.cases if case.counted is not None and case.has_layer_times
    ]
    if not cases:
        raise UsageError(
            f"{kept.name} has no times of layers to hold against MACs: its engine told none, or "
            f"it is of a Python function. To see it alone: --show {kept.name}"
        )
    missing = tuple(case.case for case in kept.profile.cases if case not in cases)
    return WorkAndTime(kept=kept, cases=tuple(cases), without_times=missing)


def _measured(named: NamedProfile) -> dict[str, CaseProfile]:
    return {case.case.id: case for case in named.profile.cases if case.measured is not None}


def _ids(named: NamedProfile) -> str:
    measured = ", ".join(map(printable, _measured(named)))
    return f"{named.name} has {measured or 'no measured case'}"


def _pair(before: CaseProfile, after: CaseProfile) -> CasePair:
    """Both cases, with what differs most first, either way: none of it is shown, or a cause."""
    found = Differences.between(before, after, _NOT_SHOWN)
    layers = [change for change in found.of_layers() if change.time is not None]
    return CasePair(
        before=before,
        after=after,
        layer_types=tuple(sorted(found.of_layer_types(), key=_by_size)),
        layers=tuple(sorted(layers, key=_by_size)),
    )


def _by_size(change: LayerTypeChange | LayerChange) -> float:
    return 0.0 if change.time is None else -abs(change.time.ns)


# -- what was not the same


def _unlike(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[DifferentCondition, ...]:
    """The conditions that differ; one that is unknown on a side is left out."""
    return tuple(
        DifferentCondition(what=what, before=text, after=after[what])
        for what, text in before.items()
        if what in after and after[what] != text
    )


def _conditions(named: NamedProfile, cases: Sequence[CaseProfile]) -> dict[str, str]:
    """The known conditions of a measurement that can change its times, and its model file."""
    model, machine = named.profile.model, named.profile.machine
    engines = dict.fromkeys(_engine(case.measured.engine) for case in cases if case.measured)
    given = dict.fromkeys(_given_dims(case.case) for case in cases)
    found = {
        MODEL_FILE: None if model.sha256 is None else f"sha256 {model.sha256[:_DIGITS]}",
        "machine": None if machine is None else machine.key,
        "processor": None if machine is None else machine.cpu,
        "instruction sets": None
        if machine is None or machine.instruction_sets is None
        else " ".join(machine.instruction_sets),
        ENGINE: ", ".join(engines),
        DIMENSIONS: None if None in given else "; ".join(map(str, given)),
    }
    return {what: text for what, text in found.items() if text is not None}


def _given_dims(case: Case) -> str | None:
    """The sizes that were given to dimensions; None where the kept profile does not say."""
    if case.given_dims is None:
        return None
    return ", ".join(f"{name}={size}" for name, size in case.given_dims) or "none given"


def _engine(engine: EngineFacts) -> str:
    options = (f"{key}={value}" for key, value in sorted(engine.options.items()))
    return " ".join([engine.name, *([engine.version] if engine.version else []), *options])
