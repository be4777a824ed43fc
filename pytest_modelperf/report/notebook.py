"""Records that show their report in a notebook, by the method that Jupyter asks for."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pytest_modelperf.report.model import Report


@singledispatch
def report_of(record: object) -> Report | None:  # noqa: ARG001  # the registered ones read it
    """The report of a record; None if nothing was registered to make it."""
    return None


class Shown(Struct, frozen=True):
    """A record that a notebook shows as its report."""

    def _repr_html_(self) -> str | None:
        """The report as HTML; None if nothing was registered to make it."""
        report = report_of(self)
        if report is None:
            return None
        # Every module of records imports this one, and few records are shown in a notebook.
        from pytest_modelperf.report.markup_page import MarkupStyle
        from pytest_modelperf.report.render import render_report

        return render_report(report, MarkupStyle())
