"""The data of a comparison for the scripts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.comparing.figures import LATENCY
from pytest_modelperf.comparing.page_graph import comparison_picture
from pytest_modelperf.comparing.page_layers import comparison_layers, comparison_types
from pytest_modelperf.comparing.records import CallChange, CaseComparison, Comparison
from pytest_modelperf.comparing.verdict_lines import rank_case, verdict_word
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.measurements import SideRun
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_data import (
    LABELS,
    case_entry,
    model_entry,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    change_entry,
    point_entry,
)
from pytest_modelperf.stats.records import Ratio

_P50 = f"{LATENCY}p50"
_NS_PER_MS = 1e6
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
        """Why each side has no figures; a side that did not fail was not measured."""
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
    """A model with its sides; a single side is the model now."""
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
