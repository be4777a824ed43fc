"""The roofline as a part of the page of a profile: a chart, and a table of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_modelperf.profiler.shown.case_page import PageAddition
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.roofline.page_data import roofline_entry
from pytest_modelperf.roofline.records import Roofline

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("roofline", "Roofline"),),
    scripts=(_FOLDER / "roofline.js",),
    of_case=("roofline",),
)


def roofline_addition(rooflines: Mapping[str, Roofline]) -> PageAddition:
    """Adds rooflines, by the ids of their cases, to the page of a profile."""
    entries = {case_id: {"roofline": roofline_entry(each)} for case_id, each in rooflines.items()}
    return PageAddition(_DRAWINGS, entries)
