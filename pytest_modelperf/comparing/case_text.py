"""One case on a terminal: its verdict, its figures, its layers, and the reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_modelperf.comparing.advice import describe_doubt
from pytest_modelperf.comparing.figures import LATENCY, is_sampled
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.tables import (
    has_output_figures,
    has_times,
    is_measured,
    layer_difference_table,
    layer_type_change_table,
    layers_that_explain,
    main_type_difference_table,
    metric_tables,
    output_table,
    shown_metrics,
    shows_graphs,
    type_difference_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    describe_facts,
    failing_metrics,
    failure_lines,
    verdict_word,
    word_of_reasons,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.report.page import Page
from pytest_modelperf.report.tables import Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, join_words

# The first reasons explain most. Without times the table has all of them.
MAX_REASONS = 4
MAX_TIMED_REASONS = 6

# What a failure shows unless it is asked for more.
MAX_MAIN_REASONS = 3
MAX_MAIN_TYPES = 5

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
        page.table(type_difference_table(case))
        if layers_that_explain(case):
            page.table(layer_difference_table(case, wording))
    elif shows_graphs(case):
        page.table(layer_type_change_table(case))
    _write_facts(page, case, wording)
    if has_output_figures(case):
        page.table(output_table(case))


def write_main_findings(page: Page, case: CaseComparison, wording: Wording) -> None:
    """Write the main reasons, the figures that failed, and the operators that explain most.

    The last line says what is left out.
    """
    word = word_of_reasons(case)
    for reason in case.reasons[:MAX_MAIN_REASONS]:
        write_fact(page, word, printable(reason))
    failing = failing_metrics(case)
    has_table = len(failing) > 1
    if has_table:
        page.table(*metric_tables(case, failing), cuts_first=True)
    types = _main_types(case, failing)
    if types is not None:
        page.table(types)
    facts = list(describe_facts(case, wording))
    main = [fact for fact in facts if fact[0] in _main_facts(case)]
    left = _describe_left(case, len(failing) if has_table else 1, len(facts) - len(main))
    if main or left:
        page.end_table()
    for fact in main:
        write_fact(page, *fact)
    if left:
        page.sentence(left, style="dim")


def _main_types(case: CaseComparison, failing: Sequence[Metric]) -> Table | None:
    """The operators that explain what failed; None if none does."""
    if any(metric.name.startswith(LATENCY) for metric in failing) and has_times(case):
        return main_type_difference_table(case, MAX_MAIN_TYPES)
    has_counts = any(not is_sampled(metric.name) for metric in failing)
    shown = has_counts and shows_graphs(case)
    return layer_type_change_table(case, MAX_MAIN_TYPES) if shown else None


def _main_facts(case: CaseComparison) -> Collection[str]:
    """The words of facts that say why a case failed.

    A note seldom does where a duet showed it.
    """
    words = {"budget"}
    if case.verdict is not Verdict.REGRESSED:
        words.add("note")
    if case.how is How.STORED:
        words |= {"how", "note"}
    if any(metric.name == OUTPUTS for metric in failing_metrics(case)):
        words.add("outputs")
    return words


def _describe_left(case: CaseComparison, figures: int, notes: int) -> str:
    """`-v also shows 5 reasons, 9 figures, 7 layers and 6 notes`; empty if nothing is left out."""
    counts = {
        "reason": len(case.reasons) - MAX_MAIN_REASONS,
        "figure": len(shown_metrics(case)) - figures,
        "layer": len(layers_that_explain(case)),
        "note": notes,
    }
    left = [count_of(count, noun) for noun, count in counts.items() if count > 0]
    return f"-v also shows {join_words(left)}" if left else ""


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
