"""Records that show their report in a notebook, by the method that Jupyter calls."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pytest_modelperf.report.model import Report


@singledispatch
def report_of(record: object) -> Report | None:  # noqa: ARG001  # the registered functions read it
    """Return the report of a record, or None if no function is registered for its type."""
    return None


class Shown(Struct, frozen=True):
    """A record that a notebook shows as its report."""

    def _repr_html_(self) -> str | None:
        """Return the report as HTML, or None if no function is registered for its type."""
        report = report_of(self)
        if report is None:
            return None
        # Imported here: every module of records imports this one, and few records are shown in a
        # notebook.
        from pytest_modelperf.report.markup_page import MarkupStyle
        from pytest_modelperf.report.render import render_report

        return render_report(report, MarkupStyle())
