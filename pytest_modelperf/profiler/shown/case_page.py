"""A page that draws measured and counted cases: of a profile, a comparison, a sweep or a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

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
        Drawing("icicle", "Cost by type, layer and kernel"),
        Drawing("depth", "Layers by depth"),
        Drawing("graph", "Graph"),
        Drawing("kernels", "Kernels"),
        Drawing("transitions", "Precisions"),
    ),
    styles=tuple(_FOLDER / f"{name}.css" for name in ("layers", "kernels", "graph")),
    scripts=tuple(
        _FOLDER / f"{name}.js"
        for name in (
            "points",
            "chart",
            "time",
            "rounds",
            "layers",
            "types",
            "icicle",
            "kernels",
            "graph_places",
            "graph_view",
            "graph",
            "precisions",
            "depth",
        )
    ),
    of_case=("rounds", "types", "layers", "precisions", "graph"),
)


class PageAddition(Struct, frozen=True):
    """A part that another room adds to the page of a profile.

    `entries` has what the scripts of the added drawings read of each case, by its id.
    """

    drawings: Drawings
    entries: Mapping[str, Mapping[str, Any]]


def render_case_page(
    data: Mapping[str, Any],
    overview: Overview | None = None,
    addition: PageAddition | None = None,
) -> str:
    """Returns the page: what the overview says, and below it what the scripts draw of the data."""
    if addition is None or not addition.entries:
        return render_page(data, overview or Overview(), CASE_DRAWINGS)
    models = [
        {
            **model,
            "cases": [{**case, **addition.entries.get(case["id"], {})} for case in model["cases"]],
        }
        for model in data["models"]
    ]
    drawings = CASE_DRAWINGS.plus(addition.drawings)
    return render_page({**data, "models": models}, overview or Overview(), drawings)
