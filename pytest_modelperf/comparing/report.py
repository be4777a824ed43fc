"""A comparison as a report: its verdict, the figures and layers behind it, and the reasons."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.comparing import tables
from pytest_modelperf.comparing.figures import LATENCY, is_sampled
from pytest_modelperf.comparing.findings import describe_doubt, figure_bars, main_parts
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Comparison, How, Metric, Verdict
from pytest_modelperf.comparing.verdict_lines import (
    describe_facts,
    describe_run,
    describe_verdict,
    failing_metrics,
    failure_lines,
    is_quiet,
    verdict_word,
    word_of_reasons,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.shown.drawn import case_drawn
from pytest_modelperf.profiler.shown.facts import (
    ModelRow,
    describe_machine_line,
    format_share,
    models_table,
    run_table,
)
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.report.model import (
    Choice,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Sheet,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Cell, Table
from pytest_modelperf.text.units import format_confidence
from pytest_modelperf.text.words import count_of, join_words

COMPARISON_COLUMNS = (
    *("case", "batch_size", "cores", "dims", "case_verdict", "how", "rounds", "failure"),
    *("metric", "before", "after", "ratio", "ratio_low", "ratio_high", "allowed"),
    *("verdict", "gated"),
)
# The first reasons explain most. Without times, the table of types shows all of them.
_MAX_REASONS = 4
_MAX_TIMED_REASONS = 6
# What a failure shows unless the user asks for more.
MAX_MAIN_REASONS = 3
MAX_MAIN_TYPES = 5
# What fits on the first screen of a page.
MAX_FINDINGS = 3
MAX_FINDING_REASONS = 2


def comparison_report(
    comparison: Comparison,
    wording: Wording,
    *,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> Report:
    """Return the verdict and its evidence. `machine` is the one that both models ran on, if known.

    A text omits the section of a case that passed among several.
    """
    views = [
        tables.CaseView(
            name=case.id, word=verdict_word(case), compared=case, choice=Choice(0, place)
        )
        for place, case in enumerate(comparison.cases)
    ]
    is_one = len(views) == 1
    before, after = names = name_models((comparison.before, comparison.after))
    engines, confidence = comparison.engines or ("",), comparison.confidence
    models = [
        ModelRow("A, before", comparison.before, engines[0]),
        ModelRow("B, now", comparison.after, engines[-1]),
    ]
    rule = [
        ("tolerance", format_share(comparison.tolerance)),
        ("confidence", "" if confidence is None else format_confidence(confidence)),
        ("rounds", _took(comparison)),
    ]
    quiet = [] if is_one else [view.compared for view in views if is_quiet(view.compared)]
    return Report(
        title=" → ".join(names),
        subject=f"{before} -> {after}: {describe_run(comparison)}",
        headline=tables.describe_views(views),
        counts=tables.count_views(views),
        tone=min(views, key=lambda view: view.rank).tone,
        opening=tuple(_where(comparison, machine)),
        findings=tuple(
            case_finding(view, describe_verdict(view.compared, comparison.confidence), wording)
            for view in views_with_findings(views)
        ),
        blocks=(
            tables.cases_rows(views, on=On.PAGE),
            *([] if is_one else [tables.cases_rows(views, on=On.TEXT)]),
            *_sections(comparison, views, wording),
        ),
        closing=tuple(
            Line(word="note", text=note, on=On.TERMINAL)
            for note in dict.fromkeys(note for case in quiet for note in case.notes)
        ),
        facts=(models_table(models), run_table([machine], rule, made)),
        sheet=metric_sheet(comparison),
        drawn=case_drawn(partial(_page_data, comparison)),
    )


def _where(comparison: Comparison, machine: MachineFacts | None) -> Iterator[Line]:
    if machine is not None:
        yield Line(text=describe_machine_line(machine), on=On.PAGE)
    if comparison.engines:
        yield Line(text=f"on {', '.join(comparison.engines)}")


def _page_data(comparison: Comparison) -> Mapping[str, Any]:
    # Most reports need no page, and the code that draws one takes time to import.
    from pytest_modelperf.comparing.page_data import comparison_data

    return comparison_data(comparison)


def _sections(
    comparison: Comparison, views: Sequence[tables.CaseView], wording: Wording
) -> Iterator[Section]:
    worst = views[0] if len(views) == 1 else tables.worst_view(views)
    for view in views:
        is_shown = len(views) == 1 or not is_quiet(view.compared)
        section = case_section(
            view,
            describe_verdict(view.compared, comparison.confidence),
            case_blocks(view.compared, wording),
            is_open=view is worst,
        )
        on = On.ALL if is_shown else On.PAGE | On.MARKDOWN
        yield replace(section, is_detail=not is_shown, on=on)


def _took(comparison: Comparison) -> str:
    if comparison.rounds is None:
        return ""
    seconds = comparison.seconds
    return f"{comparison.rounds}" if seconds is None else f"{comparison.rounds} in {seconds:.1f} s"


def metric_sheet(comparison: Comparison) -> Sheet:
    """Return all metrics of all cases. A case that failed has one row if it has no metrics."""
    rows = (
        (*_case_cells(case), *figures)
        for case in comparison.cases
        for figures in [_metric_cells(metric) for metric in case.metrics] or [(None,) * 9]
    )
    return Sheet(COMPARISON_COLUMNS, tuple(rows))


def _case_cells(case: CaseComparison) -> tuple[Cell, ...]:
    dims = " ".join(f"{name}={size}" for name, size in case.case.dims)
    verdict = None if case.has_failed else case.verdict.value
    how = None if case.how is None else case.how.value
    sizes = (case.id, case.case.batch_size, case.case.cores, dims)
    return (*sizes, verdict, how, case.rounds, case.failure)


def _metric_cells(metric: Metric) -> tuple[Cell, ...]:
    low, high = metric.interval or (None, None)
    verdict = metric.verdict.value if metric.gated else None
    values = (metric.name, metric.before, metric.after, metric.ratio)
    return (*values, low, high, metric.allowed, verdict, metric.gated)


def case_section(
    view: tables.CaseView, sentence: str, blocks: Iterable[ReportBlock], *, is_open: bool = False
) -> Section:
    """Return the case under its verdict, with which the sentence begins."""
    return Section(
        title=view.name,
        word=view.word,
        sentence=sentence.removeprefix(view.word).lstrip(":, "),
        tone=view.tone,
        blocks=tuple(blocks),
        is_open=is_open,
        choice=view.choice,
    )


def views_with_findings(views: Sequence[tables.CaseView]) -> Sequence[tables.CaseView]:
    """Return the cases that a page says something about first: those that need attention."""
    found = [view for view in views if view.tone in {Tone.BAD, Tone.UNSURE}]
    return sorted(found, key=lambda view: view.rank)[:MAX_FINDINGS]


def case_finding(
    view: tables.CaseView, sentence: str, wording: Wording, accept: Iterable[ReportBlock] = ()
) -> Section:
    """Return what failed, why, and the parts that make most of it. `accept` is what to type."""
    return case_section(view, sentence, (*cause_blocks(view.compared, wording), *accept))


def cause_blocks(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    """Yield the reasons of a change and the parts that make most of it."""
    causes = dict.fromkeys(metric.reason for metric in case.deciding if metric.reason is not None)
    # A reason of the case may be a cause with its time.
    others = [cause for cause in causes if not any(cause in each for each in case.reasons)]
    reasons = (*others, *case.reasons)[:MAX_FINDING_REASONS]
    yield from doubt_blocks(case, wording)
    yield Paragraph(lines_of(reasons, word_of_reasons(case)))
    yield from main_parts(case, wording)


def case_blocks(
    case: CaseComparison, wording: Wording, advice: str | None = None
) -> Iterator[ReportBlock]:
    """Yield all about a case. Layers are drawn only on a page. `advice` says how to accept it."""
    yield from doubt_blocks(case, wording)
    yield figure_bars(case)
    if case.metrics:
        yield tables.metric_rows(case)
    if case.stages:
        yield Rows(tables.stage_table(case))
    yield from _layer_blocks(case, wording)
    lines = (*_reason_lines(case, wording), *_fact_lines(case, wording))
    if advice is not None:
        lines = (*lines, Line(word="accept", text=advice))
    yield Paragraph(lines)
    if tables.has_output_figures(case):
        yield Rows(tables.output_table(case), is_detail=True)


def doubt_blocks(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    """Yield what prevented a verdict, or what would help to get one."""
    if case.failure is not None:
        yield Failure("\n".join(failure_lines(case)))
    doubt = describe_doubt(case, wording)
    if doubt is not None:
        yield Paragraph((Line(text=doubt, tone=Tone.UNSURE),))


def _layer_blocks(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    found: list[Table] = []
    if tables.has_times(case):
        found.append(tables.type_difference_table(case))
        if tables.layers_that_explain(case):
            found.append(tables.layer_difference_table(case, wording))
    elif tables.shows_graphs(case):
        found.append(tables.layer_type_change_table(case))
    for table in found:
        yield Rows(table, on=On.TEXT, is_detail=True)


def _reason_lines(case: CaseComparison, wording: Wording) -> Iterator[Line]:
    most, source = _MAX_REASONS, "as the table shows"
    if tables.has_times(case):
        most, source = _MAX_TIMED_REASONS, f"{wording.names['json']} has them"
    word = word_of_reasons(case)
    for number, reason in enumerate(case.reasons):
        yield Line(word=word, text=reason, on=On.ALL if number < most else On.PAGE)
    more = len(case.reasons) - most
    if more > 0:
        yield Line(text=f"and {count_of(more, 'more reason')}, {source}", on=On.TEXT)


def _fact_lines(case: CaseComparison, wording: Wording) -> Iterator[Line]:
    for word, text in describe_facts(case, wording):
        yield Line(word=word, text=text, is_detail=True)


def main_blocks(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    """Yield the main reasons, the failing figures and operators, and what is left out."""
    yield from doubt_blocks(case, wording)
    word = word_of_reasons(case)
    yield Paragraph(lines_of(case.reasons[:MAX_MAIN_REASONS], word))
    failing = failing_metrics(case)
    has_table = len(failing) > 1
    if has_table:
        yield tables.metric_rows(case, failing)
    if case.stages:
        yield Rows(tables.stage_table(case))
    types = _main_types(case, failing)
    if types is not None:
        yield Rows(types)
    facts = list(_fact_lines(case, wording))
    main = [line for line in facts if line.word in _main_words(case)]
    left = _describe_left(case, len(failing) if has_table else 1, len(facts) - len(main))
    lines = [Line(word=line.word, text=line.text) for line in main]
    if left:
        lines.append(Line(text=left, tone=Tone.DIM))
    yield Paragraph(tuple(lines))


def _main_types(case: CaseComparison, failing: Sequence[Metric]) -> Table | None:
    if any(metric.name.startswith(LATENCY) for metric in failing) and tables.has_times(case):
        return tables.main_type_difference_table(case, MAX_MAIN_TYPES)
    has_counts = any(not is_sampled(metric.name) for metric in failing)
    shown = has_counts and tables.shows_graphs(case)
    return tables.layer_type_change_table(case, MAX_MAIN_TYPES) if shown else None


def _main_words(case: CaseComparison) -> Collection[str]:
    """Return the words of facts that say why a case failed. If a duet did, a note rarely does."""
    words = {"budget"}
    if case.verdict is not Verdict.REGRESSED:
        words.add("note")
    if case.how is How.STORED:
        words |= {"how", "note"}
    if any(metric.name == OUTPUTS for metric in failing_metrics(case)):
        words.add("outputs")
    return words


def _describe_left(case: CaseComparison, figures: int, notes: int) -> str:
    """Return `-v also shows 5 reasons, 9 figures, 7 layers and 6 notes`, or "" without any."""
    counts = {
        "reason": len(case.reasons) - MAX_MAIN_REASONS,
        "figure": len(tables.shown_metrics(case)) - figures,
        "layer": len(tables.layers_that_explain(case)),
        "note": notes,
    }
    left = [count_of(count, noun) for noun, count in counts.items() if count > 0]
    return f"-v also shows {join_words(left)}" if left else ""
