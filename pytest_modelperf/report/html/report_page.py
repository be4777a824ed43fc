"""A report as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_modelperf.report.html.drawings import Drawings
from pytest_modelperf.report.html.overview import CaseSection, Overview
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Report, Section
from pytest_modelperf.report.render import with_word

_NO_DATA: Mapping[str, Any] = {"models": [], "start": 0}
_NO_DRAWINGS = Drawings(needs_plotly=False)


def render_report_page(
    report: Report, data: Mapping[str, Any] = _NO_DATA, drawings: Drawings = _NO_DRAWINGS
) -> str:
    """The page of a report; scripts draw the data, if there are any."""
    return render_page(data, overview_of(report), drawings)


def overview_of(report: Report) -> Overview:
    cases = report.cases
    return Overview(
        title=report.title,
        headline=report.headline,
        tone=report.tone,
        lines=report.answers or tuple(line.text for line in report.opening),
        cases=None if cases is None else cases.table,
        tones=() if cases is None else cases.tones,
        sections=tuple(map(_section, report.sections)),
        facts=report.facts,
        notes=tuple(map(with_word, report.closing)),
    )


def _section(section: Section) -> CaseSection:
    return CaseSection(
        name=section.title,
        sentence=section.sentence,
        tone=section.tone,
        blocks=section.blocks,
    )
