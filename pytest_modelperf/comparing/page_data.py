"""The data of a comparison for the scripts of a page: cases, layers, and graph of both sides."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.comparing.changes import (
    CallChange,
    KernelChange,
    LayerChange,
    LayerTypeChange,
    TimeChange,
)
from pytest_modelperf.comparing.figures import LATENCY
from pytest_modelperf.comparing.records import CaseComparison, Comparison, How
from pytest_modelperf.comparing.verdict_lines import describe_verdict, rank_case, verdict_word
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.fusion import is_layout
from pytest_modelperf.profiler.measurements import SideRun
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.profiler.shown.page_data import (
    LABELS,
    UNKNOWN_EDGES,
    case_entry,
    kernel_ms,
    model_entry,
    name_of,
    row_indexes,
    row_key,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    change_entry,
    point_entry,
)
from pytest_modelperf.profiler.shown.page_layers import (
    NO_CHANGE,
    SideLayers,
    layer_entry,
    precisions_of,
    type_entry,
)
from pytest_modelperf.report.picture.drawn import render_svg
from pytest_modelperf.report.picture.records import Box, ChangedPart, Picture
from pytest_modelperf.stats.records import Ratio

_NS_PER_MS = 1e6


def comparison_types(
    case: CaseComparison, sides: int, counted: Mapping[str, LayerType] | None
) -> list[Entry]:
    """Return the layer types of the last `sides` sides, those that explain most first.

    If there was no side before, these are the `counted` types of the model now.
    """
    changes = case.layer_types or [
        LayerTypeChange(op, None, kind) for op, kind in (counted or {}).items()
    ]
    precisions = [
        precisions_of([row for row in rows if row is not None], ())
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        type_entry(
            change.op,
            (change.before, change.after)[-sides:],
            precisions[-sides:],
            _change_entry(change.time if sides > 1 else None),
        )
        for change in changes
        if sides > 1 or change.after is not None
    ]


def comparison_layers(case: CaseComparison) -> list[Entry]:
    """Return each timed layer of either side in graph order, then the times of no layer."""
    sides = [
        SideLayers.of([row for row in rows if row is not None], "not there")
        for rows in ([c.before for c in case.layers], [c.after for c in case.layers])
    ]
    return [
        layer_entry((change.before, change.after), sides, depth, _change_entry(change.time))
        for depth, change in enumerate(ordered_layers(case.layers))
    ]


def _change_entry(time: TimeChange | None) -> Entry:
    if time is None:
        return NO_CHANGE
    return {
        "change_ms": time.ns / _NS_PER_MS,
        "change_interval_ms": time.interval_ms,
        "explains": time.explained,
    }


def ordered_layers(changes: Sequence[LayerChange]) -> list[LayerChange]:
    """Return the layers in graph order now. A removed one follows its predecessor before."""
    old_heads = _heads(change.before for change in changes)
    new_heads = _heads(change.after for change in changes)
    indexes = [
        (_index(change.before, old_heads), _index(change.after, new_heads)) for change in changes
    ]
    both = sorted((old, new) for old, new in indexes if old is not None and new is not None)
    known = [old for old, _ in both]
    # Each layer is at its place in the graph now. A removed one follows its predecessor before.
    places: list[tuple[float, int]] = []
    for old, new in indexes:
        if new is not None:
            places.append((new, -1))
        elif old is not None:
            rank = bisect_right(known, old)
            places.append((both[rank - 1][1] if rank else -1, old))
        else:
            places.append((math.inf, -1))
    order = sorted(range(len(changes)), key=places.__getitem__)
    return [changes[index] for index in order]


def _heads(rows: Iterable[LayerRow | None]) -> Mapping[str, int]:
    """Return the graph index of each layer that has its own time, by the id of the layer."""
    return {
        row.static.id: row.time.layer
        for row in rows
        if row is not None and row.static is not None
        if row.time is not None and row.time.layer is not None
    }


def _index(row: LayerRow | None, heads: Mapping[str, int]) -> int | None:
    """Return the index in its graph of a layer, or of the layer whose kernel runs it."""
    if row is None or row.static is None:
        return None
    return heads.get(row.static.id if row.time is not None else row.runs_in or "")


# -- the graph of two sides as one picture


def render_comparison_svg(comparison: Comparison) -> str:
    """Return the picture, or the reason of the worst case if no case has a picture."""
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
        # Prefer the row of the layer now, if there is one.
        at = next(reversed([row for row in found if row is not None]), None)
        boxes.append(_box(kernel, at, layers))
    parts = tuple(
        ChangedPart("; ".join(part.reasons), part.time.ns / _NS_PER_MS, part.time.interval_ms)
        for part in case.parts
    )
    return Picture(tuple(boxes), sides=LABELS, parts=parts)


def _reason(case: CaseComparison) -> str:
    """Return why there is no picture, or an empty string if the layers are unknown as well."""
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


# -- the data of a comparison for the scripts of a page


_P50 = f"{LATENCY}p50"
_P95 = f"{LATENCY}p95"


def comparison_data(comparison: Comparison) -> Entry:
    engines = comparison.engines or ("",)
    names = name_models((comparison.before, comparison.after))
    sides = [
        side_entry(label, name, engine_of_runs(runs) or engine)
        for label, name, runs, engine in zip(
            LABELS,
            names,
            ([case.before for case in comparison.cases], [case.after for case in comparison.cases]),
            (engines[0], engines[-1]),
            strict=True,
        )
    ]
    return whole_page([compared_model(" → ".join(names), sides, shown_comparisons(comparison))])


def engine_of_runs(runs: Iterable[SideRun | None]) -> str:
    return next((run.engine.label for run in runs if run is not None), "")


class ShownComparison(Struct, frozen=True):
    """A comparison with its id and name on the page, and what is known of the model now."""

    id: str
    name: str
    word: str
    compared: CaseComparison
    alone: RanFigures | None = None
    counted: Mapping[str, LayerType] | None = None

    @property
    def figures(self) -> tuple[RanFigures | None, RanFigures | None]:
        """The measured figures of both sides."""
        return _figures(self.compared.before), _figures(self.compared.after) or self.alone

    @property
    def has_before(self) -> bool:
        """Whether anything is known about the side before."""
        case = self.compared
        return (
            case.before is not None
            or any(change.before is not None for change in case.layer_types)
            or any(metric.before is not None for metric in case.metrics)
        )

    @property
    def change(self) -> Entry | None:
        """The ratios in the table of the case."""
        median, p95 = self._ratio(self.compared.typical_name), self._ratio(_P95)
        return None if median is None else change_entry(median, p95=p95)

    def _ratio(self, name: str) -> Ratio | None:
        metric = self.compared.metric(name)
        if metric is None or metric.ratio is None:
            return None
        return Ratio(metric.ratio, *(metric.interval or (None, None)))

    def points(self) -> tuple[Entry | None, Entry | None]:
        case = self.compared
        before, after = (
            None
            if figures is None and case.failure is None
            else point_entry(self.id, case.case, figures, reason=None if figures else reason)
            for figures, reason in zip(self.figures, self._failures(), strict=True)
        )
        return before, after

    def _failures(self) -> tuple[str | None, str | None]:
        """Return why each side has no figures. A side that did not fail was not measured."""
        case = self.compared
        if case.failure is None or case.failed_side is None:
            return case.failure, case.failure
        label = LABELS[case.failed_side == "after"]
        other = f"not measured, because {label} failed"
        return (case.failure, other) if case.failed_side == "before" else (other, case.failure)


def shown_comparisons(comparison: Comparison) -> list[ShownComparison]:
    return [
        ShownComparison(case.id, case.id, verdict_word(case), case) for case in comparison.cases
    ]


def _figures(run: SideRun | None) -> RanFigures | None:
    return None if run is None else RanFigures(latency=run.latency, rounds=run.rounds)


def compared_model(name: str, sides: Sequence[Entry], shown: Sequence[ShownComparison]) -> Entry:
    """Return a model with its sides. A single side is the model now."""
    count = len(sides)
    points = [each.points()[-count:] for each in shown]
    found = [[p for p in side if p is not None] for side in zip(*points, strict=True)]
    changes = {each.id: each.change for each in shown}
    worst = min(shown, key=lambda each: rank_case(each.word, each.compared), default=None)
    return model_entry(
        name,
        sides=sides,
        points=found or [[] for _ in sides],
        changes={key: change for key, change in changes.items() if change is not None},
        cases=[compared_case(each, count) for each in shown],
        start=None if worst is None else worst.id,
    )


def compared_case(each: ShownComparison, sides: int) -> Entry:
    return case_entry(
        each.id,
        each.name,
        each.compared.case,
        word=each.word,
        ran=each.figures[-sides:],
        types=comparison_types(each.compared, sides, each.counted),
        layers=comparison_layers(each.compared) if sides > 1 else [],
        picture=comparison_picture(each.compared) if sides > 1 else None,
    ) | {"calls": [_call_entry(change) for change in each.compared.calls]}


def _call_entry(change: CallChange) -> Entry:
    times = (change.before, change.after)
    return {
        "place": change.place,
        "level": change.level,
        "ms": [None if time is None else time.ns / _NS_PER_MS for time in times],
        "calls": [None if time is None else time.calls for time in times],
    }
