"""Kept profiles on a terminal: the list, one of them, two side by side."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.profiler.shown.text import write_profile
from pytest_modelperf.profiles.advice import describe_doubt, judging_command, roofline_command
from pytest_modelperf.profiles.records import (
    FLOPS,
    NamedProfile,
    ProfileList,
    SideBySide,
    WorkAndTime,
)
from pytest_modelperf.profiles.tables import (
    case_pair_table,
    layer_pair_table,
    profile_list_tables,
    type_pair_table,
    work_and_time_table,
)
from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.page import Page, TextStyle, write_items
from pytest_modelperf.roofline.report import roofline_insets
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_path

_TIME = "%Y-%m-%d %H:%M UTC"


def render_list(found: ProfileList, style: TextStyle) -> str:
    page = Page(style)
    known = found.flops or next(reversed(found.kept), None)
    page.line(
        printable(found.model) if known is None else describe_model(known.profile.model), "bold"
    )
    if known is not None:
        page.table(*profile_list_tables(found), cuts_first=True)
    if not found.kept:
        page.line("")
        page.item(f"none is kept: {_first_command(found)}")
    unusable = [f"{printable(each.name)}: {printable(each.reason)}" for each in found.unusable]
    write_items(page, unusable, "red")
    return page.text()


def _first_command(found: ProfileList) -> str:
    """The command that keeps a first profile. Without counts and errors, it is a function."""
    is_function = found.flops is None and not found.unusable
    engine = " --engine callable" if is_function else ""
    folder = "" if found.folder is None else f" --profile-dir {shell_path(found.folder)}"
    return f"modelperf profile {shell_path(found.model)}{engine} --name baseline{folder}"


def render_named(
    named: NamedProfile, view: LayerView, style: TextStyle, *, is_older: bool = False
) -> str:
    """A profile as `modelperf profile` shows it, its date, and why it has no roofline."""
    page = Page(style)
    page.line(_kept(named), "bold")
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
    named: NamedProfile, view: LayerView, style: TextStyle, notes: Sequence[str] = ()
) -> str:
    """The counts, with the roofline of each case, or a note on why there is none."""
    page = Page(style)
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


def render_side_by_side(found: SideBySide, top: int | None, style: TextStyle) -> str:
    page = Page(style)
    page.line(f"{printable(found.before.name)} -> {printable(found.after.name)}", "bold")
    for word, named in (("before", found.before), ("now", found.after)):
        page.item(f"{word}: {_kept(named)}")
    for each in found.unlike:
        text = f"{each.what}: {printable(each.before)} -> {printable(each.after)}"
        page.item(text, style="yellow")
    page.table(case_pair_table(found), cuts_first=True)
    for name, case in found.single:
        page.item(f"{printable(case.id)} was measured in {describe_single(found, name, case)}")
    page.line("")
    page.sentence(describe_doubt(found), style="yellow")
    for line in fold_command("to know", judging_command(found), page.width):
        page.line(f"  {line}")
    for pair in found.pairs:
        if not pair.layers:
            page.line("")
            page.item(f"{printable(pair.id)}: no times of layers on both sides")
            continue
        if len(found.pairs) > 1:
            page.line("")
            page.line(printable(pair.id), "bold")
        page.table(type_pair_table(pair))
        page.table(layer_pair_table(pair, top))
    return page.text()


def render_work_and_time(found: WorkAndTime, style: TextStyle) -> str:
    page = Page(style)
    page.line(f"{FLOPS} and {_kept(found.kept)}", "bold")
    for case in found.cases:
        if len(found.cases) > 1:
            page.line("")
            page.line(printable(case.case.id), "bold")
        page.table(work_and_time_table(case))
    for each in found.without_times:
        page.item(f"{printable(each.id)} has no times of layers")
    return page.text()


def describe_kept(name: str, folder: str, replaced: dt.date | None, command: str) -> str:
    """The folder of a kept profile, the one that it replaced, and the command that lists it."""
    instead = "" if replaced is None else f" in place of the one of {replaced}"
    return f"kept as {name} in {printable(folder)}{instead}: {command}"


def describe_date(named: NamedProfile) -> str:
    """When it was kept; empty for the counts."""
    return "" if named.date is None else named.date.strftime(_TIME)


def _kept(named: NamedProfile) -> str:
    name = printable(named.name)
    return name if named.date is None else f"{name}, kept {describe_date(named)}"


def describe_single(found: SideBySide, name: str, case: Case) -> str:
    other = found.after if name == found.before.name else found.before
    is_there = any(each.case.id == case.id for each in other.profile.cases)
    return f"{printable(name)} only" + (f": in {printable(other.name)} it failed" * is_there)
