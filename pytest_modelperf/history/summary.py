"""What the files of a history say: the chain of each case, its steps, and its drift."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.chain import ChainOfCase, chain_cases
from pytest_modelperf.history.index import FoundCases, HistoryIndex
from pytest_modelperf.history.records import (
    LISTED_POINTS,
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
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from _hashlib import HASH

# An error names at most so many cases.
_MOST_NAMED = 8
# The chance that any drift is reported where there is none.
_DRIFT_LEVEL = 0.01


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """Which part of a history is listed: None is all; `since` leaves out older points."""

    metric: HistoryMetric = HistoryMetric.P50
    model: str | None = None
    case: str | None = None
    machine: str | None = None
    since: dt.datetime | None = None
    tag: Tag | None = None


class Drift(Struct, frozen=True):
    """How much more a case costs than at a point in its history, which `since` names."""

    case: CaseHistory
    since: str
    start: HistoryPoint
    shift: Shift


class PastRuns(Struct, frozen=True):
    """The chains of the latency in one file, by case and engine; `notes` say what was skipped."""

    file: HistoryFile
    chains: Mapping[tuple[str, str | None], ChainOfCase]
    notes: tuple[str, ...] = ()


def read_past_runs(file: HistoryFile) -> PastRuns:
    """The runs so far; a file that nobody wrote yet has none."""
    if not file.path.exists():
        return PastRuns(file, {})
    chains = chain_cases(file.read(), HistoryMetric.P50)
    return PastRuns(file, chains, tuple(file.notes))


def read_history(
    store: HistoryStore, query: HistoryQuery, index: HistoryIndex | None = None
) -> History:
    """The histories that the query asks for; with an index, a listing with the last points."""
    cases: list[CaseHistory] = []
    notes: list[str] = []
    files = store.files(query.model)
    _require("kind of machine", query.machine, {file.machine for file in files})
    known: set[str] = set()
    for file in files:
        if query.machine not in {None, file.machine}:
            continue
        if index is None:
            found = _read_file(file, query)
        else:
            found = index.look_up(file, query, partial(_list_file, file, query))
        cases += found.cases
        known.update(found.ids)
        notes += found.notes
    _require("case", query.case, known)
    if index is not None:
        notes += index.problems
    return History(metric=query.metric, cases=tuple(cases), tag=query.tag, notes=tuple(notes))


def _read_file(file: HistoryFile, query: HistoryQuery, hasher: HASH | None = None) -> FoundCases:
    chains = chain_cases(file.read(hasher), query.metric)
    made = (
        summarize_case(file, case, engine, chain, query)
        for (case, engine), chain in sorted(chains.items(), key=lambda each: str(each[0]))
        if query.case in {None, case}
    )
    return FoundCases(
        ids=tuple(sorted({case for case, _ in chains})),
        cases=tuple(with_steps(each, query.metric) for each in made if each is not None),
        notes=tuple(file.notes),
    )


def _list_file(file: HistoryFile, query: HistoryQuery, hasher: HASH | None) -> FoundCases:
    found = _read_file(file, query, hasher)
    listed = tuple(replace(case, points=case.points[-LISTED_POINTS:]) for case in found.cases)
    return replace(found, cases=listed)


def _require(kind: str, name: str | None, known: Iterable[str]) -> None:
    """UsageError for a name that no file has."""
    if name is not None and name not in known:
        named = shorten_list([*map(printable, sorted(known))], _MOST_NAMED)
        raise UsageError(
            f"the history has no {kind} {printable(name)}. There {'are' if named else 'is none'}"
            f"{f': {named}' if named else ''}."
        )


def find_drifts(history: History, allowed: float) -> list[Drift]:
    """The cases that are shown to cost more than allowed; the level is divided among all checks."""
    checks = [drift for case in history.cases for drift in list_drifts(case, history.tag)]
    if not checks:
        return []
    quantile = NormalDist().inv_cdf(1.0 - _DRIFT_LEVEL / len(checks))
    return [check for check in checks if check.shift.bounds(quantile)[0] > allowed]


def list_drifts(case: CaseHistory, tag: Tag | None) -> list[Drift]:
    """The changes of a case since its first point, and since the tag if that has a point."""
    found = [Drift(case, "its first point", case.first, case.since_first)]
    if tag is not None and case.tagged is not None and case.since_tag is not None:
        found.append(Drift(case, tag.name, case.tagged, case.since_tag))
    return found


def summarize_case(
    file: HistoryFile, case: str, engine: str | None, chain: ChainOfCase, query: HistoryQuery
) -> CaseHistory | None:
    """The history of one case, without its steps; None if it has no point since the first day."""
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
        first=points[0],
        count=len(points),
        earlier_points=chain.earlier_points,
        unlinked=chain.unlinked,
        tagged=tagged,
    )


def _point_of(tag: Tag, points: Sequence[HistoryPoint]) -> HistoryPoint | None:
    """The last point of the tag's commit; or else the last one before the tag was made."""
    own = [point for point in points if point.commit == tag.commit]
    older = [point for point in points if point.date <= tag.date]
    found = own or older
    return found[-1] if found else None


def with_steps(case: CaseHistory, metric: HistoryMetric) -> CaseHistory:
    return replace(case, steps=_find_steps(case.points, metric))


def _find_steps(points: Sequence[HistoryPoint], metric: HistoryMetric) -> tuple[Step, ...]:
    if metric.is_exact:
        pairs = pairwise(points)
        changed = [(old, new) for old, new in pairs if old.level != new.level]
        return tuple(Step(old, new, shift_between(old, new)) for old, new in changed)
    from pytest_modelperf.stats.change_points import find_changes

    changes = find_changes(
        [point.level for point in points],
        [point.variance for point in points],
        [point.shared_variance for point in points],
    )
    return tuple(
        Step(points[each.index - 1], points[each.index], Shift(each.size, each.error))
        for each in changes
    )
