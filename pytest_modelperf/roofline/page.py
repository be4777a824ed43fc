"""The roofline as a part of the page of a profile: a chart, and a table of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_modelperf.profiler.shown.case_page import PageAddition
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.report.document import to_json
from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.roofline.records import ROOFLINE, Roofline
from pytest_modelperf.roofline.tables import peak_lines, roofline_table

_FOLDER = Path(__file__).with_name("html")
_DRAWINGS = Drawings(
    parts=(Drawing("roofline", "Roofline"),),
    styles=(_FOLDER / "roofline.css",),
    scripts=(_FOLDER / "roofline.js",),
    of_case=("roofline",),
)


def roofline_addition(rooflines: Mapping[str, Roofline]) -> PageAddition:
    """Adds rooflines, by the ids of their cases, to the page of a profile."""
    entries = {case_id: {"roofline": _entry(each)} for case_id, each in rooflines.items()}
    return PageAddition(_DRAWINGS, entries)


def _entry(roofline: Roofline) -> Entry:
    """The keys are those of the JSON document, and what the terminal says beside its table."""
    document: Entry = to_json(ROOFLINE.of(roofline))
    lines = peak_lines(roofline.peaks)
    return {**document, "lines": lines, "notes": roofline_table(roofline, None).caption.split("\n")}
