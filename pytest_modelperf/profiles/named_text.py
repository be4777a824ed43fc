"""One kept profile, or the counts, as the text of `modelperf profile` with what was kept."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiler.shown.text import write_profile
from pytest_modelperf.profiles.advice import roofline_command
from pytest_modelperf.profiles.records import NamedProfile
from pytest_modelperf.profiles.report_pairs import describe_kept
from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.roofline.report import roofline_insets
from pytest_modelperf.text.escaping import printable


def render_named(
    named: NamedProfile, view: LayerView, style: PageStyle, *, is_older: bool = False
) -> str:
    """A profile as `modelperf profile` shows it, its date, and why it has no roofline."""
    page = style.page()
    page.line(printable(describe_kept(named)), "bold")
    if is_older:
        page.item("of another model file than the present one", style="yellow")
    write_profile(page, named.profile, view, roofline_insets(named.rooflines, view.top))
    without = [
        case
        for case in named.profile.cases
        if case.measured is not None and case.case.id not in named.rooflines
    ]
    if without:
        page.line("")
        _write_missing_roofline(page, named, without)
    return page.text()


def render_flops(
    named: NamedProfile, view: LayerView, style: PageStyle, notes: Sequence[str] = ()
) -> str:
    """The counts, with the roofline of each case, or a note on why there is none."""
    page = style.page()
    write_profile(page, named.profile, view, roofline_insets(named.rooflines, view.top))
    write_items(page, [printable(note) for note in notes], "yellow")
    return page.text()


def _write_missing_roofline(
    page: Page, named: NamedProfile, without: Sequence[CaseProfile]
) -> None:
    """Why these cases have no roofline, and the command that keeps a profile with one."""
    timed = [case for case in without if case.measured and case.measured.layer_times]
    untimed = ", ".join(printable(case.case.id) for case in without if case not in timed)
    if untimed:
        page.item(f"no roofline of {untimed}: there are no times of layers")
    if timed:
        ids = ", ".join(printable(case.case.id) for case in timed)
        page.item(f"no roofline of {ids}: none was kept")
        for line in fold_command("with one", roofline_command(named, timed), page.width):
            page.line(line)
