"""The graph of two sides as an SVG picture: of the worst case that knows it."""

from __future__ import annotations

from pytest_modelperf.comparing.page_graph import comparison_picture
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.verdict_lines import describe_verdict, rank_case, verdict_word
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.report.picture.svg import render_svg


def render_comparison_svg(comparison: Comparison) -> str:
    """The picture; if no case has one, the reason of the worst in its place."""
    cases = sorted(
        comparison.cases,
        key=lambda case: (not case.kernels, rank_case(verdict_word(case), case)),
    )
    title = " → ".join(name_models((comparison.before, comparison.after)))
    worst = cases[0]
    sentence = f"{worst.id} {describe_verdict(worst, comparison.confidence)}"
    return render_svg(comparison_picture(worst), title, sentence)
