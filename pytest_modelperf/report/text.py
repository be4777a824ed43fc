"""The reports that a terminal shows: of a profile, static or measured, and of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.records import CaseProfile, Outcome, Profile
from pytest_modelperf.report.comparison_tables import (
    case_table,
    explains_layers,
    has_output_figures,
    has_times,
    is_measured,
    layer_time_tables,
    layer_type_change_table,
    layer_type_time_tables,
    metric_table,
    output_table,
    shows_graphs,
)
from pytest_modelperf.report.conditions import (
    describe_machine_line,
    doubt_lines,
    engine_lines,
    unmeasured_lines,
)
from pytest_modelperf.report.layer_table import LayerView, layer_table
from pytest_modelperf.report.measured_tables import (
    latency_tables,
    layer_type_time_table,
    performance_table,
)
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.static_tables import (
    describe_model,
    layer_type_table,
    summary_table,
    uncounted_table,
)
from pytest_modelperf.report.verdict_lines import (
    FAILED,
    describe_doubt,
    describe_facts,
    describe_run,
    describe_verdict,
    failure_lines,
    is_quiet,
    verdict_word,
)
from pytest_modelperf.units import printable
from pytest_modelperf.verdicts import CaseComparison, Comparison, Verdict

__all__ = ["LayerView", "TextStyle", "render_comparison", "render_profile"]

# The first reasons are those that explain most. Without times the table has them all.
MAX_REASONS = 4
MAX_TIMED_REASONS = 6
# Between a number and its unit, where no line is to end. In a name it would be escaped.
_NO_BREAK = "\N{NO-BREAK SPACE}"
_COLORS = {
    Verdict.REGRESSED.value: "red",
    Verdict.OVER_BUDGET.value: "red",
    FAILED: "red",
    Verdict.INCONCLUSIVE.value: "yellow",
    Verdict.IMPROVED.value: "green",
    Verdict.NEW.value: "",
    Verdict.PASSED.value: "",
    Verdict.UNCHANGED.value: "",
}


def render_profile(profile: Profile, view: LayerView, style: TextStyle) -> str:
    """The whole report of a profile: what running it told, if it ran, and what it counts."""
    page = Page(style)
    page.line(describe_model(profile), "bold")
    if any(case.measured or case.outcome is not Outcome.STATIC for case in profile.cases):
        _write_performance(page, profile)
    shown = _worth_showing(profile.cases)
    known: set[int] = set()
    for case in shown:
        if len(shown) > 1:
            page.line("")
            page.line(printable(case.case.id), "bold")
        _write_case(page, case, view, is_counted=id(case.counted) in known)
        known.add(id(case.counted))
    return page.text()


def render_comparison(comparison: Comparison, style: TextStyle) -> str:
    """The whole report of a comparison: the verdict first, then what it rests on.

    Of several cases those that only passed are a row of the first table, and no more.
    """
    page = Page(style)
    before, after = printable(comparison.before.name), printable(comparison.after.name)
    page.line(f"{before} -> {after}: {describe_run(comparison)}", "bold")
    if comparison.engines:
        page.item(f"on {', '.join(map(printable, comparison.engines))}")
    is_one = len(comparison.cases) == 1
    if not is_one:
        page.table(case_table(comparison))
    for case in comparison.cases:
        if is_one or not is_quiet(case):
            _write_comparison(page, case, comparison, is_one=is_one)
    quiet = [] if is_one else [case for case in comparison.cases if is_quiet(case)]
    notes = dict.fromkeys(note for case in quiet for note in case.notes)
    _write_items(page, [f"note: {printable(note)}" for note in notes], "")
    return page.text().replace(_NO_BREAK, " ")


def _write_comparison(
    page: Page, case: CaseComparison, comparison: Comparison, *, is_one: bool
) -> None:
    """One case: its verdict in a sentence, figures, layers, why, and how that is known."""
    _write_headline(page, case, comparison, is_one=is_one)
    page.table(metric_table(case))
    if has_times(case):
        page.table(*layer_type_time_tables(case))
        if explains_layers(case):
            page.table(*layer_time_tables(case))
    elif shows_graphs(case):
        page.table(layer_type_change_table(case))
    _write_facts(page, case)
    if has_output_figures(case):
        page.table(output_table(case))


def _write_facts(page: Page, case: CaseComparison) -> None:
    """Why, how that is known, and what else was noted."""
    most, where = MAX_REASONS, "as the table shows"
    if has_times(case):
        most, where = MAX_TIMED_REASONS, "--json has them"
    lines = [("why", reason) for reason in case.reasons[:most]]
    more = len(case.reasons) - most
    if more > 0:
        lines.append(("", f"     and {more} more, {where}"))
    lines += [(word, text) for word, text in describe_facts(case)]
    if lines and is_measured(case):
        page.line("")
    for word, text in lines:
        whole = f"{word}: {text}" if word else text
        _write_sentence(page, whole, indent=len(word) + 2)


def _write_sentence(page: Page, text: str, indent: int = 2, style: str = "") -> None:
    page.item(text.replace(" %", f"{_NO_BREAK}%"), indent=indent, style=style)


def _write_headline(
    page: Page, case: CaseComparison, comparison: Comparison, *, is_one: bool
) -> None:
    """The verdict in a sentence, unless the report has begun with all of it; then what is wrong."""
    is_run = is_measured(case) or case.outcome is not None or case.failure is not None
    if not is_one:
        page.line("")
    if is_run or not is_one:
        sentence = describe_verdict(case, comparison.confidence)
        style = f"bold {_COLORS[verdict_word(case)]}"
        _write_sentence(page, f"{printable(case.id)} {sentence}", style=style)
    for line in failure_lines(case):
        page.item(line, style="red")
    doubt = describe_doubt(case)
    if doubt is not None:
        _write_sentence(page, doubt, style="yellow")


def _write_reasons(page: Page, case: CaseComparison) -> None:
    most = MAX_TIMED_REASONS if has_times(case) else MAX_REASONS
    if has_times(case):
        page.line("")
    for reason in case.reasons[:most]:
        page.item(f"why: {reason}", indent=5)
    more = len(case.reasons) - most
    if more > 0:
        where = "--json has them" if has_times(case) else "as the table shows"
        page.line(f"     and {more} more, {where}")


def _write_performance(page: Page, profile: Profile) -> None:
    """Where it ran, how fast each case was, and how sure that is."""
    cases = profile.cases
    if profile.machine is not None:
        page.item(describe_machine_line(profile.machine))
    for line in engine_lines(cases):
        page.item(line)
    has_run = any(case.measured for case in cases)
    if has_run:
        page.table(performance_table(cases))
    _write_items(page, unmeasured_lines(cases), "red")
    if has_run:
        page.table(*latency_tables(cases))
    _write_items(page, doubt_lines(cases), "yellow")


def _write_items(page: Page, lines: Sequence[str], style: str) -> None:
    if lines:
        page.line("")
    for line in lines:
        page.item(line, style=style)


def _worth_showing(cases: Sequence[CaseProfile]) -> list[CaseProfile]:
    """The cases with tables of their own: those with layer times, and one of each other graph."""
    known = {id(case.counted) for case in cases if _has_layer_times(case)}
    shown: list[CaseProfile] = []
    for case in cases:
        is_new = case.counted is not None and id(case.counted) not in known
        if is_new or _has_layer_times(case):
            shown.append(case)
            known.add(id(case.counted))
    return shown


def _has_layer_times(case: CaseProfile) -> bool:
    return case.measured is not None and case.measured.layer_times is not None


def _write_case(page: Page, case: CaseProfile, view: LayerView, *, is_counted: bool) -> None:
    """The tables of one case; those that count the graph only if no case before had them."""
    if case.counted is not None and not is_counted:
        page.table(summary_table(case))
        for note in case.counted.notes:
            page.line(f"note: {note}", "yellow")
        uncounted = uncounted_table(case.counted)
        if uncounted is not None:
            page.table(uncounted, style="yellow")
    if _has_layer_times(case):
        page.table(layer_type_time_table(case))
    elif case.counted is not None:
        page.table(layer_type_table(case.counted))
    page.table(layer_table(case, view))
