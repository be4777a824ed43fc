"""The baselines of a folder on a terminal, and a line for each that changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_modelperf.baselines.overview import (
    SHORT,
    BaselineOverview,
    BrokenBaseline,
    Contradiction,
    Review,
    ReviewedBaseline,
    ReviewStatus,
)
from pytest_modelperf.baselines.plan_table import change_text, figure_title
from pytest_modelperf.baselines.records import Baseline, BaselineChange
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_count
from pytest_modelperf.text.words import count_of, shorten_list

_COLUMNS = (
    Column("folder", is_text=True, is_name=True),
    Column("model", is_text=True, is_name=True, rank=1),
    Column("sha256", is_text=True, least=SHORT),
    Column("cases", is_text=True, rank=1),
    Column("MACs"),
    Column("params"),
    Column("recorded", is_text=True, least=len("2026-01-31")),
)
_STYLES = {
    ReviewStatus.NEW: "green",
    ReviewStatus.CHANGED: "",
    ReviewStatus.REMOVED: "yellow",
}
_MOST = 3
_OF_SAME_MODEL = "changed although the model is the same"
_NOT_RECORDED = "this is not what a recording writes"
# The figures that have words of their own in a line.
_RATIOS = {"latency_p50_ns": "p50", "macs": "MACs", "params": "params"}
_TOLD = frozenset({
    *_RATIOS, "model", "twin", "twin_trusted", "runtime", "engine version", "plan", "machine",
    "case",
    # These change with every recording.
    "latency_p95_ns", "peak_rss_bytes", "processes",
})  # fmt: skip


def render_overview(overview: BaselineOverview, style: TextStyle) -> str:
    page = style.page()
    where = printable(str(overview.folder))
    if overview.baselines:
        page.line(f"{count_of(len(overview.baselines), 'baseline')} in {where}", "bold")
        page.table(Table("", _COLUMNS, tuple(map(_row, overview.baselines))))
    else:
        page.line(f"no baseline in {where}", "bold")
    _write_broken(page, overview.broken)
    return page.text()


def render_review(review: Review, style: TextStyle) -> str:
    page = style.page()
    count = len(review.baselines)
    whole = count + review.unchanged
    page.line(
        f"{count:,} of {count_of(whole, 'baseline')} in {printable(str(review.folder))} changed "
        f"since {review.commit}",
        "bold",
    )
    for each in review.baselines:
        told = "; ".join(_parts(each))
        is_wrong = bool(each.contradictions)
        page.sentence(
            f"{each.status.value} {printable(each.name)}: {told}",
            style="red" if is_wrong else _STYLES[each.status],
        )
    _write_broken(page, review.broken)
    return page.text()


def _write_broken(page: Page, broken: Sequence[BrokenBaseline]) -> None:
    for each in broken:
        at = "" if each.commit is None else f" in {each.commit}"
        page.item(f"broken {printable(each.name)}{at}: {each.problem}", style="red")


def _row(baseline: Baseline) -> tuple[str, ...]:
    return (
        printable(baseline.name),
        printable(baseline.model.model.name),
        _digest(baseline),
        _cases([case.id for case in baseline.model.cases]),
        *_counts(baseline),
        _recorded(baseline),
    )


def _digest(baseline: Baseline) -> str:
    return (baseline.model.model.sha256 or UNKNOWN)[:SHORT]


def _cases(case_ids: Sequence[str]) -> str:
    return shorten_list([printable(case_id) for case_id in case_ids], _MOST)


def _counts(baseline: Baseline) -> tuple[str, str]:
    """The MACs and the params, of the least and the most of its cases if these differ."""
    statics = [case.static for case in baseline.model.cases]
    return _spread([s.macs for s in statics]), _spread([s.params for s in statics])


def _spread(values: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(format_count(value) for value in (min(values), max(values))))


def _recorded(baseline: Baseline) -> str:
    """The last day on which one of its cases was recorded."""
    return max(case.provenance.date for case in baseline.model.cases).isoformat()


def _parts(each: ReviewedBaseline) -> Iterator[str]:
    """The remarks of a line on a baseline, the gravest first."""
    whole = each.after or each.before
    if each.status is not ReviewStatus.CHANGED and whole is not None:
        macs, params = _counts(whole)
        yield from (
            f"model {_digest(whole)}",
            _cases([case.id for case in whole.model.cases]),
            f"MACs {macs}",
            f"params {params}",
        )
        return
    changes = each.changes
    yield from _contradiction_parts(each.contradictions)
    yield from _model_parts(each, changes)
    for name, title in _RATIOS.items():
        yield from _ratio_parts(name, title, changes)
    yield from _case_parts(each)
    yield from _twin_parts(each, changes)
    yield from _plan_parts(changes)
    yield from _runtime_parts(changes)
    yield from _machine_parts(changes)
    others = dict.fromkeys(figure_title(c.name) for c in changes if c.name not in _TOLD)
    if others:
        yield f"also {shorten_list(list(others), _MOST)}"


def _contradiction_parts(found: Sequence[Contradiction]) -> Iterator[str]:
    if any(each.case is None for each in found):
        yield f"size or opsets {_OF_SAME_MODEL}: {_NOT_RECORDED}"
    cases = [each for each in found if each.case is not None]
    for versions in dict.fromkeys(each.versions for each in cases):
        of_these = [each.case or "" for each in cases if each.versions == versions]
        told = f"another version recorded it, {printable(', '.join(versions))}"
        yield (
            f"counts {_OF_SAME_MODEL} ({_cases(of_these)}): {told if versions else _NOT_RECORDED}"
        )


def _model_parts(each: ReviewedBaseline, changes: Sequence[BaselineChange]) -> Iterator[str]:
    if each.is_same_model:
        yield "same model"
    for change in changes:
        if change.name == "model" and change.case is None:
            is_counted = any(other.name in {"macs", "params"} for other in changes)
            yield f"new model {_pair(change)}{'' if is_counted else ', same MACs and params'}"
    if each.cases_of_older_model:
        yield f"{_cases(each.cases_of_older_model)} recorded of an older model"


def _ratio_parts(name: str, title: str, changes: Sequence[BaselineChange]) -> Iterator[str]:
    """`p50 +12.0 % (b8-c2), +3.0 % (b1-c1)`, the worst first."""
    found = [
        change
        for change in changes
        if change.name == name and None not in {change.before, change.after}
    ]
    if not found:
        return
    shows_machine = len({change.machine for change in found}) > 1
    places: dict[str, list[str]] = {}
    for change in sorted(found, key=_rank, reverse=True):
        on = f" on {printable(change.machine or '')}" if shows_machine else ""
        places.setdefault(change_text(change), []).append(f"{printable(change.case or '')}{on}")
    told = [f"{text} ({shorten_list(where, _MOST)})" for text, where in places.items()]
    yield f"{title} {shorten_list(told, _MOST)}"


def _rank(change: BaselineChange) -> float:
    """How bad a change is: what was 0 and is more grew most."""
    return math.inf if change.ratio is None else change.ratio


def _case_parts(each: ReviewedBaseline) -> Iterator[str]:
    known, now = (
        [] if side is None else [case.id for case in side.model.cases]
        for side in (each.before, each.after)
    )
    for word, ids in (
        ("added", [case for case in now if case not in known]),
        ("removed", [case for case in known if case not in now]),
    ):
        if ids:
            yield f"{word} {_cases(ids)}"


def _twin_parts(each: ReviewedBaseline, changes: Sequence[BaselineChange]) -> Iterator[str]:
    for change in changes:
        if change.name == "twin":
            told = change_text(change)
            is_odd = each.is_same_model and told == "changed"
            yield f"twin {_OF_SAME_MODEL if is_odd else told}"
    for value, word in (("no", "no longer trusted"), ("yes", "trusted now")):
        cases = [
            change.case or ""
            for change in changes
            if change.name == "twin_trusted" and change.after == value
        ]
        if cases:
            yield f"twin {word} ({_cases(cases)})"


def _plan_parts(changes: Sequence[BaselineChange]) -> Iterator[str]:
    cases = [change.case or "" for change in changes if change.name == "plan"]
    if cases:
        yield f"plan changed ({_cases(cases)})"


def _runtime_parts(changes: Sequence[BaselineChange]) -> Iterator[str]:
    """The engine and its version before and now, once for all cases in which both are the same."""
    found = [
        change
        for change in changes
        if change.name == "runtime" and None not in {change.before, change.after}
    ]
    for pair in dict.fromkeys(map(_pair, found)):
        yield f"runtime {pair}"


def _machine_parts(changes: Sequence[BaselineChange]) -> Iterator[str]:
    for change in changes:
        if change.name != "machine":
            continue
        key = printable(change.machine or "")
        if change.before is None:
            yield f"measured on {key}"
        elif change.after is None:
            yield f"no longer measured on {key}"
        else:
            yield f"processor of {key} {_pair(change)}"


def _pair(change: BaselineChange) -> str:
    return f"{printable(str(change.before))} -> {printable(str(change.after))}"
