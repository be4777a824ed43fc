"""The graph of two sides as one picture, coloured by the measured difference of each kernel.

A page shows the picture of each case, and an SVG file that of the worst case that has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.page_layers import ordered_layers
from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    How,
    KernelChange,
    LayerChange,
)
from pytest_modelperf.comparing.verdict_lines import describe_verdict, rank_case, verdict_word
from pytest_modelperf.profiler.fusion import is_layout
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_data import LABELS
from pytest_modelperf.profiler.shown.page_graph import (
    UNKNOWN_EDGES,
    kernel_ms,
    name_of,
    row_indexes,
    row_key,
)
from pytest_modelperf.report.picture.records import Box, ChangedPart, Picture
from pytest_modelperf.report.picture.svg import render_svg

_NS_PER_MS = 1e6


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


def comparison_picture(case: CaseComparison) -> Picture:
    if not case.kernels:
        return Picture((), reason=_reason(case))
    layers = ordered_layers(case.layers)
    rows = row_indexes([c.before for c in layers]), row_indexes([c.after for c in layers])
    boxes = []
    for kernel in case.kernels:
        found = (
            of_side.get(row_key(own))
            for of_side, own in zip(rows, (kernel.before, kernel.after), strict=True)
            if own is not None
        )
        # The row of the layer now, if there is one.
        at = next(reversed([row for row in found if row is not None]), None)
        boxes.append(_box(kernel, at, layers))
    parts = tuple(
        ChangedPart("; ".join(part.reasons), part.time.ns / _NS_PER_MS, part.time.interval_ms)
        for part in case.parts
    )
    return Picture(tuple(boxes), sides=LABELS, parts=parts)


def _reason(case: CaseComparison) -> str:
    """Why there is no picture; empty where nothing is known of the layers either."""
    if case.how is How.PLAN:
        return "Nothing differs: the engine runs the same kernels on both sides."
    return UNKNOWN_EDGES if case.layers else ""


def _box(kernel: KernelChange, at: int | None, layers: Sequence[LayerChange]) -> Box:
    shown = kernel.after or kernel.before
    change = None if at is None else layers[at]
    row = None if change is None else change.after or change.before
    time = None if change is None else change.time
    op_type = "" if shown is None else shown.op_type
    return Box(
        op_type=op_type,
        name=name_of(row) or op_type,
        inputs=kernel.inputs,
        only_before=kernel.only_before,
        only_after=kernel.only_after,
        values=(kernel_ms(kernel.before), kernel_ms(kernel.after)),
        row=at,
        state=kernel.state,
        is_layout=shown is not None and is_layout(op_type, shown.kind),
        is_clear=time is not None and time.interval_ms is not None and not time.is_within_noise,
        part=kernel.part,
    )
