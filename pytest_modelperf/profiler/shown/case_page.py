"""A page that draws measured and counted cases: of a profile, a comparison, a sweep or a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.overview import Overview
from pytest_modelperf.report.html.render import render_page

_FOLDER = Path(__file__).with_name("html")

CASE_DRAWINGS = Drawings(
    parts=(
        Drawing("chart", "Latency and throughput"),
        Drawing("time", "Inference time"),
        Drawing("rounds", "Samples by round"),
        Drawing("types", "Performance summary"),
        Drawing("depth", "Layers by depth"),
        Drawing("graph", "Graph"),
        Drawing("kernels", "Kernels"),
        Drawing("transitions", "Precisions"),
    ),
    styles=tuple(
        _FOLDER / f"{name}.css"
        for name in (
            "layers",
            "types",
            "kernel_filters",
            "kernels",
            "kernel_details",
            "graph",
            "precisions",
        )
    ),
    scripts=tuple(
        _FOLDER / f"{name}.js"
        for name in (
            "points",
            "chart",
            "time",
            "rounds",
            "layers",
            "types",
            "kernel_filters",
            "kernel_details",
            "kernels",
            "graph_places",
            "graph_view",
            "graph",
            "precisions",
            "depth",
        )
    ),
)


def render_case_page(data: Mapping[str, Any], overview: Overview | None = None) -> str:
    """Returns the page: what the overview says, and below it what the scripts draw of the data."""
    return render_page(data, overview or Overview(), CASE_DRAWINGS)
