"""One case on a terminal: its verdict, its figures, its layers, and the reasons."""

from __future__ import annotations

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.tables import (
    explains_layers,
    has_output_figures,
    has_times,
    is_measured,
    layer_time_tables,
    layer_type_change_table,
    layer_type_time_tables,
    metric_tables,
    output_table,
    shows_graphs,
)
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    describe_facts,
    failure_lines,
    verdict_word,
    word_of_reasons,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.report.page import Page
from pytest_modelperf.text.escaping import printable

# The first reasons explain most. Without times the table has all of them.
MAX_REASONS = 4
MAX_TIMED_REASONS = 6

_COLORS = {
    Verdict.REGRESSED.value: "red",
    Verdict.OVER_BUDGET.value: "red",
    FAILED: "red",
    Verdict.INCONCLUSIVE.value: "yellow",
    Verdict.IMPROVED.value: "green",
}


def verdict_style(case: CaseComparison) -> str:
    """The colour of its verdict; empty where none is needed."""
    return _COLORS.get(verdict_word(case), "")


def write_doubts(page: Page, case: CaseComparison, wording: Wording) -> None:
    """Writes why there is no verdict, or what would help to get one."""
    for line in failure_lines(case):
        page.item(line, style="red")
    doubt = describe_doubt(case, wording)
    if doubt is not None:
        page.sentence(doubt, style="yellow")


def write_findings(page: Page, case: CaseComparison, wording: Wording) -> None:
    """Writes figures, layers, reasons, and how they were found."""
    if case.metrics:
        page.table(*metric_tables(case), cuts_first=True)
    if has_times(case):
        page.table(*layer_type_time_tables(case))
        if explains_layers(case):
            page.table(*layer_time_tables(case, wording))
    elif shows_graphs(case):
        page.table(layer_type_change_table(case))
    _write_facts(page, case, wording)
    if has_output_figures(case):
        page.table(output_table(case))


def _write_facts(page: Page, case: CaseComparison, wording: Wording) -> None:
    """Writes reasons, how they were found, and notes."""
    most, where = MAX_REASONS, "as the table shows"
    if has_times(case):
        most, where = MAX_TIMED_REASONS, f"{wording.names['json']} has them"
    word = word_of_reasons(case)
    lines = [(word, printable(reason)) for reason in case.reasons[:most]]
    more = len(case.reasons) - most
    if more > 0:
        lines.append(("", f"{' ' * len(word)}  and {more} more, {where}"))
    lines += describe_facts(case, wording)
    if lines and is_measured(case):
        page.line("")
    for word, text in lines:
        write_fact(page, word, text)


def write_fact(page: Page, word: str, text: str, style: str = "") -> None:
    """Writes `why: 12 fusions lost`, with further lines indented."""
    page.sentence(f"{word}: {text}" if word else text, indent=len(word) + 2, style=style)
