"""A page that draws measured and counted cases: of a profile, a comparison, a sweep or a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.report.html.drawings import Drawing, Drawings
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Drawn, Report

_FOLDER = Path(__file__).with_name("html")

CASE_DRAWINGS = Drawings(
    parts=(
        Drawing("chart", "Latency and throughput"),
        Drawing("time", "Inference time"),
        Drawing("rounds", "Samples by round"),
        Drawing("types", "Performance summary"),
        Drawing("icicle", "Cost by type, layer and kernel"),
        Drawing("depth", "Layers by depth"),
        Drawing("graph", "Graph"),
        Drawing("kernels", "Kernels"),
        Drawing("transitions", "Precisions"),
    ),
    styles=tuple(
        _FOLDER / f"{name}.css"
        for name in (
            "kinds",
            "layers",
            "types",
            "icicle",
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
            "kinds",
            "points",
            "chart",
            "time",
            "rounds",
            "layers",
            "types",
            "icicle",
            "kernel_filters",
            "kernel_details",
            "kernel_columns",
            "kernels",
            "graph_places",
            "graph_view",
            "graph",
            "precisions",
            "depth",
        )
    ),
    of_case=("rounds", "types", "layers", "graph"),
)

_NO_REPORT = Report(title="Model performance")


class PageAddition(Struct, frozen=True):
    """A part that another room adds to the page of a profile.

    `entries` has what the scripts of the added drawings read of each case, by its id.
    """

    drawings: Drawings
    entries: Mapping[str, Mapping[str, Any]]


def render_case_page(
    data: Mapping[str, Any],
    report: Report = _NO_REPORT,
    addition: PageAddition | None = None,
) -> str:
    """The page of a report, and what the scripts draw of the data."""
    drawn = case_drawn(lambda: data, addition)
    return render_page(replace(report, drawn=drawn))


def case_drawn(
    data: Callable[[], Mapping[str, Any]], addition: PageAddition | None = None
) -> Drawn:
    """The charts of cases, and those of the addition."""
    if addition is None or not addition.entries:
        return Drawn(CASE_DRAWINGS, data)
    return Drawn(CASE_DRAWINGS.plus(addition.drawings), lambda: _with_entries(data(), addition))


def _with_entries(data: Mapping[str, Any], addition: PageAddition) -> Mapping[str, Any]:
    models = [
        {
            **model,
            "cases": [{**case, **addition.entries.get(case["id"], {})} for case in model["cases"]],
        }
        for model in data["models"]
    ]
    return {**data, "models": models}
