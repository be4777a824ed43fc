"""The terminal report of a shared model: whether it stands for the original one, and what it is."""

from __future__ import annotations

from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.sharing.folder import files_of
from pytest_modelperf.sharing.records import Likeness, Share
from pytest_modelperf.sharing.wording import (
    describe_likeness,
    describe_method,
    describe_plan,
    describe_size,
    times_table,
)
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes


def render_share(share: Share, target: str, style: TextStyle) -> str:
    """The whole report: the answer first, then its evidence, then the files."""
    page = Page(style)
    is_same = share.likening.likeness is Likeness.SAME
    page.sentence(
        describe_likeness(share.likening), style="bold green" if is_same else "bold yellow"
    )
    page.sentence(describe_plan(share.likening))
    page.table(times_table(share.likening, describe_size(share), "median"))
    page.line("")
    page.sentence(describe_method(share.likening))
    page.item(describe_machine_line(share.machine))
    page.item(describe_engine(share.checkup.engine))
    page.sentence(f"doctor: {describe_checkup(share.checkup)}")
    for doubt in share.doubts:
        page.item(f"note: {printable(doubt)}")
    files = files_of(share)
    sizes = ", ".join(f"{name} {format_bytes(len(data))}" for name, data in files.items())
    page.line("")
    page.item(f"{printable(target)}: {sizes}", style="bold")
    page.sentence(
        f"The weights that its program draws take {format_bytes(share.weight_bytes)}. Read the "
        "files before you publish them."
    )
    return page.text()
