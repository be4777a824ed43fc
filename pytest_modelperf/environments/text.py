"""The kept environments on a terminal."""

from __future__ import annotations

from pytest_modelperf.environments.records import Kept, KeptEnvironment
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import count_of

_TIME = "%Y-%m-%d %H:%M UTC"
_COLUMNS = (
    Column("requirements", is_text=True, is_name=True, least=20),
    Column("asked as", is_text=True, rank=1),
    Column("Python", is_text=True),
    Column("made by", is_text=True, rank=1),
    Column("last used", is_text=True, least=len("2026-01-31 12:00 UTC")),
    Column("size"),
)


def render_environments(kept: Kept, style: TextStyle) -> str:
    page = style.page()
    if kept.environments:
        page.line(f"{_count(kept)} in {printable(str(kept.folder))}", "bold")
        page.table(_table(kept))
    else:
        page.line(f"no environment is kept in {printable(str(kept.folder))}", "bold")
    for each in kept.unreadable:
        page.item(f"{printable(each.folder.name)}: {each.problem}", style="red")
    return page.text()


def render_removed(removed: Kept, style: TextStyle) -> str:
    page = style.page()
    if not removed.environments and not removed.unreadable:
        page.line(f"nothing to remove in {printable(str(removed.folder))}", "bold")
        return page.text()
    page.line(f"removed {_count(removed)} from {printable(str(removed.folder))}", "bold")
    if removed.environments:
        page.table(_table(removed))
    for each in removed.unreadable:
        page.item(f"{printable(each.folder.name)}: {each.problem}")
    return page.text()


def _count(kept: Kept) -> str:
    """`2 environments, 310 MB`."""
    count = len(kept.environments) + len(kept.unreadable)
    nbytes = sum(each.nbytes or 0 for each in kept.environments)
    return f"{count_of(count, 'environment')}, {format_bytes(nbytes)}"


def _table(kept: Kept) -> Table:
    # Most environments were asked for by exact versions.
    return drop_blank_columns(Table("", _COLUMNS, tuple(map(_row, kept.environments))))


def _row(kept: KeptEnvironment) -> tuple[str, ...]:
    asked = "; ".join(" ".join(request) for request in kept.requests)
    return (
        printable(" ".join(kept.requirements)),
        printable(asked),
        printable(kept.python_version),
        printable(kept.installer),
        f"{kept.used:{_TIME}}",
        format_bytes(kept.nbytes),
    )
