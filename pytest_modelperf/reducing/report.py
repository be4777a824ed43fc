"""A reduction as a report: the answer first, then the steps, then notes."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.figures import format_change, interval_clause
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.page_data import run_table
from pytest_modelperf.reducing.readme import describe_kernels, metric_cells
from pytest_modelperf.reducing.records import ReduceStep, Reduction, StepAnswer
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Section, Tone, lines_of
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.units import format_bytes, format_seconds, percent
from pytest_modelperf.text.words import count_of

_TONES = {StepAnswer.SLOWER: Tone.BAD, StepAnswer.OPEN: Tone.UNSURE, StepAnswer.FAILED: Tone.UNSURE}


def reduction_report(
    found: Reduction, wording: Wording, target: str, made: dt.datetime | None = None
) -> Report:
    """Return the report. `target` is the path of the files, if any were written."""
    headline = _headline(found)
    title = f"{found.before} -> {found.after} {found.comparison.id}"
    is_worse = found.verdict is Verdict.REGRESSED
    opening = list(lines_of(_answer(found, target, wording)))
    doubt = describe_doubt(found.comparison, wording)
    if found.verdict is Verdict.INCONCLUSIVE and doubt is not None:
        opening.append(Line(text=doubt, tone=Tone.UNSURE))
    return Report(
        title=title,
        subject=f"{title}: {headline}",
        headline=headline,
        tone=Tone.BAD if is_worse else Tone.PLAIN,
        opening=tuple(opening),
        blocks=tuple(_steps(found)),
        closing=lines_of(_notes(found), "note"),
        facts=(run_table([], [("took", format_seconds(found.seconds))], made),),
    )


def _headline(found: Reduction) -> str:
    whole = found.whole
    if whole is None:
        return "both sides are the same model on the same engine, so neither is slower"
    change = (
        f"{format_change(whole)}{interval_clause(whole)}, allowed {100 * found.tolerance:+.4g} %"
    )
    if found.verdict is Verdict.INCONCLUSIVE:
        return f"inconclusive: whether it is slower is not decided: {change}"
    if found.verdict is not Verdict.REGRESSED:
        return f"not slower: {change}"
    if found.written is None:
        return f"slower, but no part of it by itself: {change}"
    counts = found.kernels
    return (
        f"slower: {change}; reduced to {count_of(counts.before, 'kernel')} before and "
        f"{counts.after:,} after: {describe_kernels(found.kept)}"
    )


def _answer(found: Reduction, target: str, wording: Wording) -> Iterator[str]:
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
    yield f"written: {target}, with models of {sizes}; its README.md says what to type"
    if not written.shows_slowdown:
        yield "the slowdown was not shown with drawn weights, so it may depend on the trained ones"


def _steps(found: Reduction) -> Iterator[Section]:
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
    tones = tuple(_TONES.get(step.shown, Tone.PLAIN) for step in steps)
    reasons = dict.fromkeys(step.reason for step in steps if step.reason is not None)
    unrun = lines_of(f"kernels that did not run by themselves: {text}" for text in reasons)
    yield Section(
        title="steps",
        is_titled=False,
        blocks=(Rows(Table("", columns, rows), tones), Paragraph(unrun)),
    )


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
        describe_kernels(units),
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
