"""Records that show their report in a notebook, by the method that Jupyter asks for."""

from __future__ import annotations

from functools import singledispatch

from msgspec import Struct

from pytest_modelperf.report.markup_page import MarkupStyle
from pytest_modelperf.report.model import Report
from pytest_modelperf.report.render import render_report


def report_as_html(record: object) -> str | None:
    """The report of a record as HTML; None if nothing was registered to render its type."""
    report = report_of(record)
    return None if report is None else render_report(report, MarkupStyle())


@singledispatch
def report_of(record: object) -> Report | None:  # noqa: ARG001  # the registered ones read it
    """The report of a record; None if nothing was registered to make it."""
    return None


class Shown(Struct, frozen=True):
    """A record that a notebook shows as its report."""

    def _repr_html_(self) -> str | None:
        return report_as_html(self)
