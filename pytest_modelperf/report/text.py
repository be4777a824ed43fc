"""Tables as terminal text: in colour and cut to the terminal, or plain and whole in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.text import Text

from pytest_modelperf.records import CaseProfile, Profile
from pytest_modelperf.report.comparison_tables import layer_type_change_table, metric_table
from pytest_modelperf.report.layer_columns import DEFAULT_COLUMNS
from pytest_modelperf.report.static_tables import (
    describe_model,
    layer_table,
    layer_type_table,
    summary_table,
    uncounted_table,
)
from pytest_modelperf.report.tables import GAP, Table, column_widths, fit_table
from pytest_modelperf.units import display_width, printable
from pytest_modelperf.verdicts import Comparison

# The first reasons are those that explain most; the table has them all.
MAX_REASONS = 4

# Wide enough for any name, so that nothing is cut where no one looks at a screen.
UNLIMITED_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class TextStyle:
    """How text is written: its width in columns (None: as wide as needed), and in colour or not."""

    width: int | None = None
    color: bool = False


@dataclass(frozen=True, slots=True)
class LayerView:
    """Which layers a report shows: the columns, their order, and how many."""

    columns: Sequence[str] = DEFAULT_COLUMNS
    sort: str | None = None
    top: int | None = None


def render_profile(profile: Profile, view: LayerView, style: TextStyle) -> str:
    """The whole report of a static profile."""
    page = _Page(style)
    page.line(describe_model(profile), "bold")
    distinct = _distinct(profile.cases)
    for case in distinct:
        if len(distinct) > 1:
            page.line("")
            page.line(case.case.id, "bold")
        _write_case(page, case, view)
    return page.text()


def render_comparison(comparison: Comparison, style: TextStyle) -> str:
    """The whole report of a comparison: the verdict first, then what it rests on."""
    page = _Page(style)
    before, after = printable(comparison.before.name), printable(comparison.after.name)
    page.line(f"{before} -> {after}: {comparison.verdict.value}", "bold")
    for case in comparison.cases:
        if len(comparison.cases) > 1:
            page.line("")
            page.line(f"{case.id}: {case.verdict.value}", "bold")
        page.table(metric_table(case))
        page.table(layer_type_change_table(case))
        for reason in case.reasons[:MAX_REASONS]:
            page.line(f"why: {reason}")
        if len(case.reasons) > MAX_REASONS:
            page.line(f"     and {len(case.reasons) - MAX_REASONS} more, as the table shows")
    return page.text()


def _distinct(cases: Sequence[CaseProfile]) -> list[CaseProfile]:
    """One case for each static profile: the number of cores changes nothing in it."""
    seen: dict[int, CaseProfile] = {}
    for case in cases:
        seen.setdefault(id(case.static), case)
    return list(seen.values())


def _write_case(page: _Page, case: CaseProfile, view: LayerView) -> None:
    static = case.static
    page.table(summary_table(case))
    for note in static.notes:
        page.line(f"note: {note}", "yellow")
    uncounted = uncounted_table(static)
    if uncounted is not None:
        page.table(uncounted, "yellow")
    page.table(layer_type_table(static))
    page.table(layer_table(static, view.columns, view.sort, view.top))


class _Page:
    """Collects styled text; rich does the layout."""

    def __init__(self, style: TextStyle) -> None:
        self._file = StringIO()
        self._style = style
        self._console = Console(
            file=self._file,
            force_terminal=style.color,
            color_system="standard" if style.color else None,
            no_color=not style.color,
            width=style.width or UNLIMITED_WIDTH,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        lines = self._file.getvalue().splitlines()
        return "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"

    def line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style if self._style.color else ""))

    def table(self, table: Table, style: str = "") -> None:
        fitted = fit_table(table, self._console.width)
        widths = column_widths(fitted)
        self.line("")
        if fitted.title:
            self.line(fitted.title, "bold cyan")
        if any(column.title for column in fitted.columns):
            self.line(_aligned(fitted, [c.title for c in fitted.columns], widths), f"bold {style}")
            self.line("─" * (sum(widths) + GAP * (len(widths) - 1)), style)
        for row in fitted.rows:
            self.line(_aligned(fitted, row, widths), style)
        if fitted.total is not None:
            self.line("")
            self.line(_aligned(fitted, fitted.total, widths), "bold")
        if fitted.caption:
            self.line(fitted.caption, "dim")


def _aligned(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table. Not laid out by rich, whose releases differ in their spacing."""
    parts = []
    for column, cell, width in zip(table.columns, cells, widths, strict=True):
        blanks = " " * (width - display_width(cell))
        parts.append(cell + blanks if column.is_text else blanks + cell)
    return (" " * GAP).join(parts)
