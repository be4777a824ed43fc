"""The graph of a case as a picture: its kernels, coloured by their times or, without, by MACs.

A page draws it for every case, and an SVG file for the first that knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.profiler.fusion import is_layout
from pytest_modelperf.profiler.kernel_graph import kernels_of_case
from pytest_modelperf.profiler.measurements import GraphKernel, RowKind
from pytest_modelperf.profiler.records import CaseProfile, LayerRow, Profile
from pytest_modelperf.report.picture.records import Box, Picture
from pytest_modelperf.report.picture.svg import render_svg

_NS_PER_MS = 1e6
UNKNOWN_EDGES = (
    "This case was stored without the connections of its kernels, so there is no graph of them."
)

# A row of layers by its layer, or by its kind and the operator of its kernels.
RowKey = int | tuple[RowKind, str]


def render_profile_svg(profile: Profile) -> str:
    """The picture; if no case has one, the reason of the first in its place."""
    pictures = [(case, case_picture(case)) for case in profile.cases]
    case, picture = next((each for each in pictures if each[1].boxes), pictures[0])
    facts = [case.case.id]
    if case.measured is not None:
        facts.append(f"median {case.measured.latency.median_ns / _NS_PER_MS:.4g} ms")
        facts.append(case.measured.engine.label)
    return render_svg(picture, profile.model.name, ", ".join(facts))


def case_picture(case: CaseProfile) -> Picture:
    kernels, layers = kernels_of_case(case), case.layers
    if not kernels:
        return Picture((), reason=UNKNOWN_EDGES if layers else "")
    rows = row_indexes(layers)
    has_times = any(kernel.ns is not None for kernel in kernels)
    boxes = []
    for kernel in kernels:
        # A layer without a time has the row at its own place.
        at = rows.get(row_key(kernel), kernel.layer)
        row = None if at is None else layers[at]
        boxes.append(
            Box(
                op_type=kernel.op_type,
                name=name_of(row) or kernel.op_type,
                inputs=kernel.inputs,
                values=(kernel_ms(kernel) if has_times else _macs_of(row),),
                row=at,
                is_layout=is_layout(kernel.op_type, kernel.kind),
            )
        )
    return Picture(tuple(boxes), unit="ms" if has_times else "MACs")


def row_key(kernel: GraphKernel) -> RowKey:
    """The key of the row that has the time of a kernel."""
    return (kernel.kind, kernel.op_type) if kernel.layer is None else kernel.layer


def row_indexes(rows: Sequence[LayerRow | None]) -> Mapping[RowKey, int]:
    """The place of each row that has a time, by its key."""
    found: dict[RowKey, int] = {}
    for at, row in enumerate(rows):
        if row is not None and row.time is not None:
            time = row.time
            found[(time.kind, time.kernel) if time.layer is None else time.layer] = at
    return found


def name_of(row: LayerRow | None) -> str | None:
    """The name of the layer of a row; None if it has none."""
    return None if row is None or row.static is None else row.static.name or row.static.id


def kernel_ms(kernel: GraphKernel | None) -> float | None:
    return None if kernel is None or kernel.ns is None else kernel.ns / _NS_PER_MS


def _macs_of(row: LayerRow | None) -> float | None:
    layers = () if row is None else row.layers
    known = [layer.macs for layer in layers if layer.macs is not None]
    return float(sum(known)) if known else None
