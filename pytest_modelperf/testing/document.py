"""A test run as JSON, with the pictures of its cases."""

from __future__ import annotations

from pytest_modelperf.comparing.page_graph import comparison_picture
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.comparing.verdict_lines import is_quiet
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.report.picture.folded import SeenBox, seen_boxes
from pytest_modelperf.report.picture.mermaid import MOST_BOXES
from pytest_modelperf.testing.outcomes import RUN, RunReport


def dump_run(report: RunReport) -> str:
    """The run as JSON text."""
    document = RUN.of(report)
    for outcome, case in zip(report.outcomes, document["cases"], strict=True):
        case["picture"] = _picture(outcome.comparison)
    return dump_document(document)


def _picture(case: CaseComparison) -> tuple[SeenBox, ...]:
    """The boxes of a case that a comment explains, if they are few enough to be read in it."""
    boxes = () if is_quiet(case) else seen_boxes(comparison_picture(case))
    return boxes if len(boxes) <= MOST_BOXES else ()
