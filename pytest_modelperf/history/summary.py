"""The summary of the files of a history: the chain of each case, its steps, and its drift."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from statistics import NormalDist

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.chain import ChainOfCase, chain_cases
from pytest_modelperf.history.records import (
    LINE_TYPES,
    LISTED_POINTS,
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    Tag,
)
from pytest_modelperf.history.store import (
    FoundCases,
    Hasher,
    HistoryFile,
    HistoryIndex,
    HistoryStore,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

# The most cases that an error names.
_MOST_NAMED = 8
# The chance that any drift is reported although there is none.
_DRIFT_LEVEL = 0.01


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """The part of a history to list. None selects everything. `since` leaves out older points."""

    metric: HistoryMetric = HistoryMetric.P50
    model: str | None = None
    case: str | None = None
    machine: str | None = None
    since: dt.datetime | None = None
    tag: Tag | None = None


class Drift(Struct, frozen=True):
    """The change of a case's cost since a point in its history, which `since` names."""

    case: CaseHistory
    since: str
    start: HistoryPoint
    shift: Shift


class PastRuns(Struct, frozen=True):
    """The chains of the latency in one file, by case and engine. `notes` say what was skipped."""

    file: HistoryFile
    chains: Mapping[tuple[str, str | None], ChainOfCase]
    notes: tuple[str, ...] = ()


def read_past_runs(file: HistoryFile) -> PastRuns:
    """Read the runs so far. A file that does not exist yet has none."""
    if not file.path.exists():
        return PastRuns(file, {})
    return PastRuns(file, _read_chains(file, HistoryMetric.P50), tuple(file.notes))


def read_history(
    store: HistoryStore, query: HistoryQuery, index: HistoryIndex | None = None
) -> History:
    """Read the histories that the query selects. With an index, each has only its last points."""
    cases: list[CaseHistory] = []
    notes: list[str] = []
    files = store.files(query.model)
    _require("kind of machine", query.machine, {file.machine for file in files})
    known: set[str] = set()
    for file in files:
        if query.machine not in {None, file.machine}:
            continue
        if index is None:
            found = _read_file(file, query, None, None)
        else:
            found = index.look_up(file, query, partial(_read_file, file, query, LISTED_POINTS))
        cases += found.cases
        known.update(found.ids)
        notes += found.notes
    _require("case", query.case, known)
    if index is not None:
        notes += index.problems
    return History(
        metric=query.metric,
        cases=tuple(cases),
        since=query.since,
        tag=query.tag,
        notes=tuple(notes),
    )


def _read_chains(
    file: HistoryFile, metric: HistoryMetric, hasher: Hasher | None = None
) -> dict[tuple[str, str | None], ChainOfCase]:
    return chain_cases(file.read(LINE_TYPES[metric], hasher), metric)


def _read_file(
    file: HistoryFile, query: HistoryQuery, most_points: int | None, hasher: Hasher | None
) -> FoundCases:
    chains = _read_chains(file, query.metric, hasher)
    made = (
        summarize_case(file, case, engine, chain, query, most_points=most_points)
        for (case, engine), chain in sorted(chains.items(), key=lambda each: str(each[0]))
        if query.case in {None, case}
    )
    return FoundCases(
        ids=tuple(sorted({case for case, _ in chains})),
        cases=tuple(each for each in made if each is not None),
        notes=tuple(file.notes),
    )


def _require(kind: str, name: str | None, known: Iterable[str]) -> None:
    if name is not None and name not in known:
        named = shorten_list([*map(printable, sorted(known))], _MOST_NAMED)
        raise UsageError(
            f"the history has no {kind} {printable(name)}. There {'are' if named else 'is none'}"
            f"{f': {named}' if named else ''}."
        )


def find_drifts(history: History, allowed: float) -> list[Drift]:
    """Return the cases that are shown to cost more than allowed.

    The level is divided among all checks.
    """
    checks = [drift for case in history.cases for drift in list_drifts(case, history.tag)]
    if not checks:
        return []
    quantile = NormalDist().inv_cdf(1.0 - _DRIFT_LEVEL / len(checks))
    return [check for check in checks if check.shift.bounds(quantile)[0] > allowed]


def list_drifts(case: CaseHistory, tag: Tag | None) -> list[Drift]:
    """Return the changes of a case since its first point, and since the tag if that has a point."""
    found = [Drift(case, "its first point", case.first, case.since_first)]
    if tag is not None and case.tagged is not None and case.since_tag is not None:
        found.append(Drift(case, tag.name, case.tagged, case.since_tag))
    return found


def summarize_case(  # noqa: PLR0913  # what the case is called, its chain, and what is asked of it
    file: HistoryFile,
    case: str,
    engine: str | None,
    chain: ChainOfCase,
    query: HistoryQuery,
    *,
    most_points: int | None = None,
) -> CaseHistory | None:
    """Return the history of one case, or None if it has no point since the query's first day."""
    shown = chain if query.since is None else chain.since(query.since)
    count = len(shown.lines)
    if not count:
        return None
    listed = range(0 if most_points is None else max(0, count - most_points), count)
    tagged = None if query.tag is None else _place_of(query.tag, chain)
    return CaseHistory(
        model=file.model,
        machine=file.machine,
        case=case,
        engine=engine,
        points=tuple(map(shown.point, listed)),
        first=shown.point(0),
        count=count,
        earlier_points=chain.earlier_points,
        unlinked=chain.unlinked,
        steps=_find_steps(shown),
        tagged=None if tagged is None else chain.point(tagged),
        since_tag=None if tagged is None else chain.shift(tagged, len(chain.lines) - 1),
    )


def _place_of(tag: Tag, chain: ChainOfCase) -> int | None:
    """Return the place of the last point of the tag's commit, or else of the last one before it."""
    lines = chain.lines
    own = [place for place, line in enumerate(lines) if line.commit == tag.commit]
    found = own or [place for place, line in enumerate(lines) if line.date <= tag.date]
    return found[-1] if found else None


def _find_steps(chain: ChainOfCase) -> tuple[Step, ...]:
    point = chain.point
    if chain.metric.is_exact:
        pairs = enumerate(pairwise(chain.levels.values), 1)
        places = [place for place, (old, new) in pairs if old != new]
        return tuple(Step(point(i - 1), point(i), chain.shift(i - 1, i)) for i in places)
    from pytest_modelperf.stats.change_points import find_changes

    changes = find_changes(chain.levels)
    return tuple(
        Step(point(each.index - 1), point(each.index), Shift(each.size, each.error))
        for each in changes
    )
