"""The roofline within the report of a profile on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_modelperf.profiler.shown.text import Inset
from pytest_modelperf.report.page import Page
from pytest_modelperf.roofline.records import Roofline
from pytest_modelperf.roofline.tables import peak_lines, roofline_table


def roofline_insets(rooflines: Mapping[str, Roofline], top: int | None) -> dict[str, Inset]:
    """Writes the roofline of each case, by its id; `top` is the number of layers shown."""
    return {
        case_id: partial(_write_roofline, roofline, top) for case_id, roofline in rooflines.items()
    }


def _write_roofline(roofline: Roofline, top: int | None, page: Page) -> None:
    page.line("")
    for line in peak_lines(roofline.peaks):
        page.item(line)
    page.table(roofline_table(roofline, top), cuts_first=True)
