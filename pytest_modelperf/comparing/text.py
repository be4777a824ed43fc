"""The report of a comparison on a terminal."""

from __future__ import annotations

from pytest_modelperf.comparing.case_text import verdict_style, write_doubts, write_findings
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.tables import case_table, is_measured
from pytest_modelperf.comparing.verdict_lines import describe_run, describe_verdict, is_quiet
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.text.escaping import printable


def render_comparison(comparison: Comparison, style: PageStyle, wording: Wording) -> str:
    """The whole report of a comparison: the verdict first, then its evidence.

    Among several cases, those that only passed are just a row of the first table.
    """
    page = style.page()
    before, after = map(printable, name_models((comparison.before, comparison.after)))
    page.line(f"{before} -> {after}: {describe_run(comparison)}", "bold")
    if comparison.engines:
        page.item(f"on {', '.join(map(printable, comparison.engines))}")
    is_one = len(comparison.cases) == 1
    if not is_one:
        page.table(case_table(comparison))
    for case in comparison.cases:
        if is_one or not is_quiet(case):
            _write_comparison(page, case, comparison, wording, is_one=is_one)
    quiet = [] if is_one else [case for case in comparison.cases if is_quiet(case)]
    notes = dict.fromkeys(note for case in quiet for note in case.notes)
    write_items(page, [f"note: {printable(note)}" for note in notes])
    return page.text()


def _write_comparison(
    page: Page,
    case: CaseComparison,
    comparison: Comparison,
    wording: Wording,
    *,
    is_one: bool,
) -> None:
    """One case: its verdict, unless the report began with it, and its evidence."""
    is_run = is_measured(case) or case.outcome is not None or case.failure is not None
    if not is_one:
        page.line("")
    if is_run or not is_one:
        sentence = describe_verdict(case, comparison.confidence)
        page.sentence(f"{printable(case.id)} {sentence}", style=f"bold {verdict_style(case)}")
    write_doubts(page, case, wording)
    write_findings(page, case, wording)
