"""The summary of a history: ratios to different baselines as one curve, its steps and its drift.

A run measures a model relative to its baseline. Both are known by their digests, so a model that
was measured against one baseline and became the next one links the two. Logarithms of ratios are
added along the links, and so are their variances. A baseline that returns has its earlier level. If
a baseline was never measured against the one before, a new chain begins.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from operator import attrgetter, ne
from statistics import NormalDist

from msgspec import Struct, field

from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.records import (
    LINE_TYPES,
    LISTED_POINTS,
    CaseHistory,
    ChainedLine,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    StoredRatio,
    Tag,
)
from pytest_modelperf.history.store import (
    FoundCases,
    Hasher,
    HistoryFile,
    HistoryIndex,
    HistoryStore,
)
from pytest_modelperf.stats.linked_levels import Levels, LinkedBaselines, moderated
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

# The place of the first baseline of a chain.
_NO_LINE = -1


class ModelLevel(Struct, frozen=True):
    """The logarithm of a model's cost relative to the start of a chain, with its variance.

    `place` is the line that measured it, against the baseline with the number `parent`. No line
    measured the first baseline of a chain.
    """

    value: float
    variance: float
    parent: int
    place: int = _NO_LINE


class ChainOfCase(Struct, frozen=True, dict=True):
    """The latest chain of one case: the lines of its points, and their levels.

    `past` has all lines of the case. `unlinked` says why the chain is not linked to the one before,
    if that is known.
    """

    metric: HistoryMetric
    past: Sequence[ChainedLine]
    lines: Sequence[ChainedLine]
    levels: Levels
    earlier_points: int = 0
    unlinked: str | None = None
    made: dict[int, HistoryPoint] = field(default_factory=dict)

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        return tuple(map(self.point, range(len(self.lines))))

    def point(self, place: int) -> HistoryPoint:
        """Return the point of the line at this place. Each is made once."""
        if place not in self.made:
            line, levels = self.lines[place], self.levels
            self.made[place] = HistoryPoint(
                date=line.date,
                commit=line.commit,
                verdict=line.verdict,
                baseline=line.baseline,
                level=levels.values[place],
                variance=levels.own_variance(place),
                link_variance=self._variances_from_first[levels.baselines[place]],
                reasons=line.reasons,
                run_url=line.run_url,
            )
        return self.made[place]

    def shift(self, before: int, after: int) -> Shift:
        """Return the change between the points of these places."""
        levels = self.levels
        size = levels.values[after] - levels.values[before]
        if before == after:
            return Shift(size)
        links = levels.linked.variances_from(levels.baselines[before])[levels.baselines[after]]
        variance = levels.own_variance(before) + levels.own_variance(after) + links
        return Shift(size, math.sqrt(variance))

    def followed_by(self, line: ChainedLine) -> ChainOfCase:
        """Return the chain with one more line. This one stays as it is."""
        return chain_lines([*self.past, line], self.metric)

    def since(self, date: dt.datetime) -> ChainOfCase:
        """Return the chain without its older points."""
        kept = [place for place, line in enumerate(self.lines) if line.date >= date]
        return ChainOfCase(
            self.metric,
            self.past,
            [self.lines[place] for place in kept],
            self.levels.at(kept),
            self.earlier_points,
            self.unlinked,
        )

    @cached_property
    def _variances_from_first(self) -> Sequence[float]:
        return self.levels.linked.variances_from(self.levels.baselines[0])


def chain_cases(
    lines: Iterable[ChainedLine], metric: HistoryMetric
) -> dict[tuple[str, str | None], ChainOfCase]:
    """Return the latest chain of each case and engine, from the lines of one file."""
    by_case: defaultdict[tuple[str, str | None], list[ChainedLine]] = defaultdict(list)
    for line in lines:
        by_case[line.case, line.engine].append(line)
    return {key: chain_lines(own, metric) for key, own in by_case.items()}


def chain_lines(lines: Iterable[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    """Return the latest chain of one case, from all of its lines.

    The lines are sorted by date, because a pull or a merge adds older lines behind newer ones.
    """
    by_date = sorted(lines, key=attrgetter("date"))
    return _chain_exact(by_date, metric) if metric.is_exact else _chain_ratios(by_date, metric)


def variances_of(ratios: Sequence[StoredRatio]) -> list[float]:
    """Return the variance of the logarithm of each ratio, from the width of its interval.

    The intervals hold after all interim looks, so they are wider than this many standard errors:
    the variances are too large rather than too small.
    """
    # A history has few different confidences.
    confidences = {ratio.confidence for ratio in ratios}
    errors = {each: 0.5 / NormalDist().inv_cdf((1.0 + each) / 2.0) for each in confidences}
    return [(math.log(each.high / each.low) * errors[each.confidence]) ** 2 for each in ratios]


def _chain_exact(lines: Sequence[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    figures = map(attrgetter("figures"), lines)
    values = [None if each is None else getattr(each, metric.value) for each in figures]
    counted = [line for line, value in zip(lines, values, strict=True) if value]
    levels = [math.log(value) for value in values if value]
    count = len(levels)
    exact = Levels(levels, [0.0] * count, [0] * count, [False] * count)
    return ChainOfCase(metric, lines, counted, exact)


def _chain_ratios(lines: Sequence[ChainedLine], metric: HistoryMetric) -> ChainOfCase:
    ratio_of = attrgetter(metric.value)
    measured = [each for each in lines if each.baseline is not None and ratio_of(each) is not None]
    if not measured:
        return ChainOfCase(metric, lines, (), Levels())
    first, levels = _link(measured, [*map(ratio_of, measured)])
    chained = measured[first:]
    unlinked = _why_unlinked(lines, chained[0])
    return ChainOfCase(metric, lines, chained, levels, first, unlinked)


def _link(lines: Sequence[ChainedLine], ratios: Sequence[StoredRatio]) -> tuple[int, Levels]:
    """Return the place at which the last chain begins, and its levels.

    A baseline has the most certain level that its model was measured to have. The choice does not
    depend on the value of the level.
    """
    variances = moderated(variances_of(ratios))
    baselines = [line.baseline for line in lines]
    differs = enumerate(map(ne, baselines, baselines[1:]), 1)
    begins = [0, *(place for place, is_other in differs if is_other)]
    needed = {baselines[begin] for begin in begins}
    links = [place for place, line in enumerate(lines) if line.digest in needed]
    first = 0
    values: list[float] = []
    numbers: list[int] = []
    linked = LinkedBaselines()
    known: dict[str | None, ModelLevel] = {}
    # The numbers of baselines by the lines that measured them.
    made: dict[int, int] = {}
    for begin, end in pairwise([*begins, len(lines)]):
        base = known.get(baselines[begin])
        if base is None:
            first, base = begin, ModelLevel(0.0, 0.0, 0)
            known = {baselines[begin]: base}
            values, numbers, linked, made = [], [], LinkedBaselines(), {base.place: 0}
        if base.place not in made:
            made[base.place] = linked.add(base.parent, variances[base.place])
        number = made[base.place]
        values += [base.value + math.log(ratio.ratio) for ratio in ratios[begin:end]]
        numbers += [number] * (end - begin)
        for place in links[bisect_left(links, begin) : bisect_left(links, end)]:
            digest, variance = lines[place].digest, base.variance + variances[place]
            if digest not in known or variance < known[digest].variance:
                known[digest] = ModelLevel(values[place - first], variance, number, place)
    are_links = [place in made for place in range(first, len(lines))]
    for place, number in made.items():
        if place != _NO_LINE:
            numbers[place - first] = number
    return first, Levels(values, variances[first:], numbers, are_links, linked)


def _why_unlinked(lines: Sequence[ChainedLine], first: ChainedLine) -> str | None:
    """Return why a chain's first baseline has no ratio to the one before, if known."""
    known = None
    for line in lines:
        if line.unlinked is not None and line.digest == first.baseline:
            known = line.unlinked
        if line is first:
            break
    return known


# The most cases that an error names.
_MOST_NAMED = 8
# The chance of reporting any drift that does not exist.
_DRIFT_LEVEL = 0.01


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """The part of a history to list. None selects all. `since` leaves out older points."""

    metric: HistoryMetric = HistoryMetric.P50
    model: str | None = None
    case: str | None = None
    machine: str | None = None
    since: dt.datetime | None = None
    tag: Tag | None = None


class Drift(Struct, frozen=True):
    """The change of a case's cost since the point that `since` names."""

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
    """Read the runs so far, none from a missing file."""
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
    """Return the changes of a case since its first point, and since its tag if that has one."""
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
    """Return the place of the tag's last point, or else of the last point before the tag."""
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
