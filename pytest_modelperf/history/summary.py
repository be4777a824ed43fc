"""What the files of a history say: the chain of each case, its steps, and its drift."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

from msgspec import Struct

from pytest_modelperf.history.chain import ChainOfCase, chain_cases
from pytest_modelperf.history.records import (
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    Tag,
    shift_between,
)
from pytest_modelperf.history.store import HistoryFile, HistoryStore

# The chance that any drift is reported where there is none.
_DRIFT_LEVEL = 0.01


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """Which part of a history is listed; `since` leaves out older points."""

    metric: HistoryMetric = HistoryMetric.P50
    model: str | None = None
    since: dt.datetime | None = None
    tag: Tag | None = None


class Drift(Struct, frozen=True):
    """A case that is shown to cost more than allowed since a point in its history."""

    case: CaseHistory
    since: str
    shift: Shift


def read_history(store: HistoryStore, query: HistoryQuery) -> History:
    cases: list[CaseHistory] = []
    notes: list[str] = []
    for file in store.files(query.model):
        cases += _read_file(file, query)
        notes += file.notes
    return History(metric=query.metric, cases=tuple(cases), tag=query.tag, notes=tuple(notes))


def find_drifts(history: History, allowed: float) -> list[Drift]:
    """The cases that are shown to cost more than allowed; the level is divided among all checks."""
    checks = [
        Drift(case, since, shift)
        for case in history.cases
        for since, shift in _shifts(case, history.tag)
    ]
    if not checks:
        return []
    quantile = NormalDist().inv_cdf(1.0 - _DRIFT_LEVEL / len(checks))
    return [check for check in checks if check.shift.bounds(quantile)[0] > allowed]


def _shifts(case: CaseHistory, tag: Tag | None) -> list[tuple[str, Shift]]:
    """The changes that a drift is looked for in, each with the name of where it begins."""
    found = [("its first point", case.since_first)]
    if tag is not None and case.since_tag is not None:
        found.append((tag.name, case.since_tag))
    return found


def _read_file(file: HistoryFile, query: HistoryQuery) -> list[CaseHistory]:
    chains = chain_cases(file.read(), query.metric)
    made = (
        _summarize(file, case, engine, chain, query)
        for (case, engine), chain in sorted(chains.items(), key=lambda each: str(each[0]))
    )
    return [history for history in made if history is not None]


def _summarize(
    file: HistoryFile, case: str, engine: str | None, chain: ChainOfCase, query: HistoryQuery
) -> CaseHistory | None:
    """The history of one case; None if it has no point in the time that is asked for."""
    points = [p for p in chain.points if query.since is None or p.date >= query.since]
    if not points:
        return None
    tagged = None if query.tag is None else _point_of(query.tag, chain.points)
    return CaseHistory(
        model=file.model,
        machine=file.machine,
        case=case,
        engine=engine,
        points=tuple(points),
        earlier_points=chain.earlier_points,
        steps=_find_steps(points, query.metric),
        since_tag=None if tagged is None else shift_between(tagged, points[-1]),
    )


def _point_of(tag: Tag, points: Sequence[HistoryPoint]) -> HistoryPoint | None:
    """The last point of the tag's commit; or else the last one before the tag was made."""
    own = [point for point in points if point.commit == tag.commit]
    older = [point for point in points if point.date <= tag.date]
    found = own or older
    return found[-1] if found else None


def _find_steps(points: Sequence[HistoryPoint], metric: HistoryMetric) -> tuple[Step, ...] | None:
    """The steps of a series; None if the package that finds them is missing."""
    if metric.is_exact:
        pairs = pairwise(points)
        changed = [(old, new) for old, new in pairs if old.level != new.level]
        return tuple(Step(old, new, shift_between(old, new)) for old, new in changed)
    from pytest_modelperf.stats.change_points import can_find_changes, find_changes

    if not can_find_changes():
        return None
    changes = find_changes(
        [point.level for point in points],
        [point.variance for point in points],
        [point.shared_variance for point in points],
    )
    return tuple(
        Step(points[each.index - 1], points[each.index], Shift(each.size, each.error))
        for each in changes
    )
