"""A reduction as text: the answer first, then the steps, then what is left to know."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.figures import format_change, interval_clause
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import Wording
from pytest_modelperf.reducing.readme import describe_kernels, metric_cells
from pytest_modelperf.reducing.records import ReduceStep, Reduction, StepAnswer
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_seconds, percent
from pytest_modelperf.text.words import count_of

_COLORS = {
    StepAnswer.SLOWER: "red",
    StepAnswer.NOT_SLOWER: "",
    StepAnswer.OPEN: "yellow",
    StepAnswer.FAILED: "yellow",
}


def render_reduction(found: Reduction, style: PageStyle, wording: Wording, target: str) -> str:
    """The report; `target` is where the files were put, if any were."""
    page = style.page()
    is_worse = found.verdict is Verdict.REGRESSED
    case = f"{printable(found.before)} -> {printable(found.after)} {printable(found.comparison.id)}"
    headline = f"{case}: {_headline(found)}"
    page.sentence(headline, style="bold red" if is_worse else "bold")
    for line in _answer(found, target, wording):
        page.sentence(line)
    if found.verdict is Verdict.INCONCLUSIVE:
        doubt = describe_doubt(found.comparison, wording)
        if doubt is not None:
            page.sentence(doubt, style="yellow")
    _write_steps(page, found)
    write_items(page, [f"note: {note}" for note in _notes(found)], "dim")
    return page.text()


def _headline(found: Reduction) -> str:
    """The answer in a few words."""
    whole = found.whole
    if whole is None:
        return "both sides are the same model on the same engine, so nothing is slower"
    change = (
        f"{format_change(whole)}{interval_clause(whole)}, allowed {100 * found.tolerance:+.4g} %"
    )
    if found.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: whether it is slower is not shown: {change}"
    if found.verdict is not Verdict.REGRESSED:
        return f"nothing is slower: {change}"
    if found.written is None:
        return f"slower, but no part of it by itself: {change}"
    counts = found.kernels
    return (
        f"slower: {change}; reduced to {count_of(counts.before, 'kernel')} before and "
        f"{counts.after:,} after: {printable(describe_kernels(found.kept))}"
    )


def _answer(found: Reduction, target: str, wording: Wording) -> Iterator[str]:
    """The slowdown that could have been seen, or the written files and the next command."""
    whole, written = found.whole, found.written
    if found.verdict is not Verdict.REGRESSED:
        if whole and whole.detectable is not None and math.isfinite(whole.detectable):
            yield f"a slowdown of {percent(whole.detectable)} or more would have been seen"
        yield "no file was written"
        return
    if written is None:
        yield (
            "no file was written: give it more time with "
            f"{wording.names['max_seconds']}, or see modelperf compare --html"
        )
        return
    ratio = written.metric.ratio or 1.0
    before, after = metric_cells(written.metric)[:2]
    yield f"with drawn weights: {before} before, {after} after, {ratio:.3g} times as long"
    sizes = " and ".join(map(format_bytes, written.sizes))
    yield f"written: {printable(target)}, with models of {sizes}; its README.md says what to type"
    if not written.shows_slowdown:
        yield "the slowdown was not shown with drawn weights, so it may depend on the trained ones"


def _write_steps(page: Page, found: Reduction) -> None:
    if found.search is None:
        return
    columns = (
        Column("step"),
        Column("shown", is_text=True, least=10),
        Column("kernels"),
        Column("before"),
        Column("after"),
        Column("change"),
        Column("interval"),
        Column("limit"),
        Column("time"),
        Column("what", is_text=True, rank=1),
    )
    steps = found.search.steps
    rows = tuple(_row(number, step, found) for number, step in enumerate(steps, 1))
    page.table(Table("", columns, rows), row_styles=[_COLORS[step.shown] for step in steps])
    for reason in dict.fromkeys(step.reason for step in steps if step.reason is not None):
        page.item(f"kernels that did not run by themselves: {printable(reason)}")


def _row(number: int, step: ReduceStep, found: Reduction) -> tuple[str, ...]:
    units = tuple(found.units[index] for index in step.units)
    figures = ("", "", "", "")
    if step.metric is not None:
        figures = metric_cells(step.metric)[:4]
    return (
        str(number),
        step.shown.value,
        " -> ".join(
            str(sum(map(len, side)))
            for side in ([unit.before for unit in units], [unit.after for unit in units])
        ),
        *figures,
        f"{100 * step.allowed:+.1f} %",
        f"{step.seconds:.0f} s",
        printable(describe_kernels(units)),
    )


def _notes(found: Reduction) -> Iterator[str]:
    search, written = found.search, found.written
    if search is not None and search.kept and not search.is_smallest:
        yield "the time was over before it was known whether fewer kernels show it"
    if written is not None:
        yield from written.warnings
    if search is None:
        return
    yield (
        f"{count_of(len(search.steps) + 1, 'duet')} in {format_seconds(found.seconds)}; the chance "
        f"of any wrong answer is at most {100 * found.level:g} %"
    )
