"""The charts of a page that draws measured and counted cases.

A report names them, and only a page makes the data that they draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_modelperf.report.model import Drawing, Drawings, Drawn, ReportBlock

_FOLDER = Path(__file__).with_name("html")

CASE_DRAWINGS = Drawings(
    parts=(
        Drawing("chart", "Latency and throughput"),
        Drawing("time", "Inference time"),
        Drawing("rounds", "Samples by round"),
        Drawing("calls", "Calls of the program"),
        Drawing("types", "Performance summary"),
        Drawing("icicle", "Cost by type, layer and kernel"),
        Drawing("depth", "Layers by depth"),
        Drawing("graph", "Graph"),
        Drawing("kernels", "Kernels"),
        Drawing("transitions", "Precisions"),
    ),
    styles=tuple(_FOLDER / f"{name}.css" for name in ("layers", "calls", "kernels", "graph")),
    scripts=tuple(
        _FOLDER / f"{name}.js"
        for name in (
            "pairs",
            "results",
            "points",
            "chart",
            "time",
            "rounds",
            "layers",
            "types",
            "icicle_chart",
            "icicle",
            "calls",
            "kernels",
            "graph_places",
            "graph_view",
            "graph",
            "precisions",
            "depth",
        )
    ),
    of_case=("rounds", "calls", "types", "layers", "precisions", "graph"),
)


class CaseAdditions(Struct, frozen=True):
    """Additions of another package to the report of a profile, by the ids of cases.

    `blocks` follow the layer types. `entries` have the data for the scripts of the added drawings.
    """

    drawings: Drawings = Drawings()
    entries: Mapping[str, Mapping[str, Any]] = {}
    blocks: Mapping[str, Sequence[ReportBlock]] = {}


def case_drawn(
    data: Callable[[], Mapping[str, Any]],
    additions: CaseAdditions | None = None,
    leading: str | None = None,
) -> Drawn:
    """Return the charts of cases, including those that were added.

    The `leading` part is above the overview.
    """
    if additions is None or not additions.entries:
        return Drawn(CASE_DRAWINGS if leading is None else CASE_DRAWINGS.led_by(leading), data)
    return Drawn(CASE_DRAWINGS.plus(additions.drawings), partial(_with_entries, data, additions))


def _with_entries(
    data: Callable[[], Mapping[str, Any]], additions: CaseAdditions
) -> Mapping[str, Any]:
    made = data()
    models = [
        {
            **model,
            "cases": [{**case, **additions.entries.get(case["id"], {})} for case in model["cases"]],
        }
        for model in made["models"]
    ]
    return {**made, "models": models}
