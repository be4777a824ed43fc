"""A bisect as data for the scripts of a page: its steps, and the versions that they found."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pytest_modelperf.bisect.records import Bisect, BisectStep, Version, describe_change, short_name
from pytest_modelperf.comparing.page_data import ShownComparison, compared_model, engine_of_runs
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.verdict_lines import verdict_word
from pytest_modelperf.profiler.shown.page_data import LABELS, model_entry, side_entry, whole_page
from pytest_modelperf.profiler.shown.page_latency import Entry

# The most characters of a commit's title next to its step.
_LONGEST_TITLE = 60


class VersionPair(Struct, frozen=True):
    """Two versions that a page shows in full: the ends of a regression, or those of the range."""

    before: Version
    after: Version
    step: BisectStep | None

    @property
    def name(self) -> str:
        return f"{short_name(self.before)} → {short_name(self.after)}"

    @property
    def compared(self) -> CaseComparison | None:
        return None if self.step is None else self.step.comparison


def shown_pairs(bisect: Bisect) -> tuple[VersionPair, ...]:
    """Return the versions of each regression, or both ends of the range without any."""
    found = bisect.search.regressions
    if found:
        return tuple(VersionPair(each.last_good, each.first_bad, each.pair) for each in found)
    ends = bisect.search.ends
    return (VersionPair(ends.against, ends.version, ends),)


def bisect_data(bisect: Bisect) -> Entry:
    return {
        **whole_page([_pair_entry(pair) for pair in shown_pairs(bisect)]),
        "choice": "Versions",
        "bisect": _steps_entry(bisect),
    }


def _pair_entry(pair: VersionPair) -> Entry:
    case = pair.compared
    runs = ([], []) if case is None else ([case.before], [case.after])
    sides = [
        side_entry(label, short_name(version), engine_of_runs(found))
        for label, version, found in zip(LABELS, (pair.before, pair.after), runs, strict=True)
    ]
    if case is None:
        return model_entry(pair.name, sides=sides, points=[[] for _ in sides])
    return compared_model(
        pair.name, sides, [ShownComparison(case.id, case.id, verdict_word(case), case)]
    )


def _steps_entry(bisect: Bisect) -> Entry:
    """Return the steps. Versions are places in the range, and changes are relative to `against`."""
    versions = bisect.range.versions
    return {
        "kind": bisect.range.kind.value,
        "judges": bisect.judges.value,
        "versions": [{"name": short_name(each), "title": each.title} for each in versions],
        "steps": [
            _step_entry(number, step, versions)
            for number, step in enumerate(bisect.search.steps, 1)
        ],
        "found": [
            [versions.index(each.last_good), versions.index(each.first_bad)]
            for each in bisect.search.regressions
        ],
    }


def _step_entry(number: int, step: BisectStep, versions: Sequence[Version]) -> Entry:
    metric = step.metric
    interval = None if metric is None else metric.interval
    has_change = step.judged is not None and (step.is_same_model or metric is not None)
    return {
        "place": versions.index(step.version),
        "against": versions.index(step.against),
        "answer": step.answer.value,
        "allowed": step.allowed,
        "change": step.change if has_change else None,
        "interval": None if interval is None else [bound - 1.0 for bound in interval],
        "lines": [
            f"step {number}: {short_name(step.version)} is {step.answer.value}",
            *([_cut(step.version.title)] if step.version.title else []),
            f"against {short_name(step.against)}: {step.reason or describe_change(step)}",
            f"limit +{100 * step.allowed:.1f} %",
        ],
    }


def _cut(title: str) -> str:
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
