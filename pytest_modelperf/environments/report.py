"""Environments as a report: those that are kept, or those that were removed."""

from __future__ import annotations

from pytest_modelperf.environments.records import Kept
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Tone
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.text.words import count_of

_TIME = "%Y-%m-%d %H:%M UTC"


def environments_report(kept: Kept) -> Report:
    found = f"{_count(kept)} in" if kept.environments else "no environment is kept in"
    return _report(f"{found} {kept.folder}", kept, Tone.BAD)


def removal_report(removed: Kept) -> Report:
    if not removed.environments and not removed.unreadable:
        return _report(f"nothing to remove in {removed.folder}", removed)
    return _report(f"removed {_count(removed)} from {removed.folder}", removed)


def _report(subject: str, kept: Kept, of_unreadable: Tone = Tone.PLAIN) -> Report:
    unreadable = tuple(
        Line(word=each.folder.name, text=each.problem, tone=of_unreadable)
        for each in kept.unreadable
    )
    return Report(
        title=subject,
        subject=subject,
        blocks=(*([Rows(_table(kept))] if kept.environments else []), Paragraph(unreadable)),
    )


def _count(kept: Kept) -> str:
    """Return the number and the size: `2 environments, 310 MB`."""
    count = len(kept.environments) + len(kept.unreadable)
    nbytes = sum(each.nbytes or 0 for each in kept.environments)
    return f"{count_of(count, 'environment')}, {format_bytes(nbytes)}"


def _table(kept: Kept) -> Table:
    table = table_of(
        "",
        kept.environments,
        (
            Column("requirements", is_text=True, is_name=True, least=20),
            lambda each: " ".join(each.requirements),
        ),
        (
            Column("asked as", is_text=True, rank=1),
            lambda each: "; ".join(" ".join(request) for request in each.requests),
        ),
        (Column("Python", is_text=True), lambda each: each.python_version),
        (Column("made by", is_text=True, rank=1), lambda each: each.installer),
        (
            Column("last used", is_text=True, least=len("2026-01-31 12:00 UTC")),
            lambda each: f"{each.used:{_TIME}}",
        ),
        (Column("size"), lambda each: format_bytes(each.nbytes)),
    )
    # Most environments are requested by exact versions, which leave a column blank.
    return drop_blank_columns(table)
