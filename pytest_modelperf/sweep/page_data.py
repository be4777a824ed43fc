"""A sweep as the data that the scripts of a page draw."""

from __future__ import annotations

from pytest_modelperf.comparing.page_data import compared_case, shown_comparisons
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_data import (
    LABELS,
    model_entry,
    profile_case,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    change_entry,
    point_entry,
)
from pytest_modelperf.sweep.records import Sweep, SweepPoint


def sweep_data(sweep: Sweep) -> Entry:
    is_one = len(sweep.sides) == 1
    names = name_models([side.model for side in sweep.sides])
    model = model_entry(
        " → ".join(names),
        sides=[
            side_entry(
                "" if is_one else label,
                name,
                "" if side.engine is None else side.engine.label,
            )
            for label, name, side in zip(LABELS, names, sweep.sides, strict=False)
        ],
        points=[[_sweep_point(point) for point in side.points] for side in sweep.sides],
        changes={c.id: change_entry(c.latency, c.throughput) for c in sweep.changes},
        cases=_cases_at_best(sweep),
        threshold_ms=sweep.threshold_ms,
    )
    return whole_page([model])


def _sweep_point(point: SweepPoint) -> Entry:
    told = None if point.latency is None else RanFigures(latency=point.latency, rounds=point.rounds)
    return point_entry(
        point.id,
        point.configuration.case,
        told,
        streams=point.configuration.streams,
        throughput=point.throughput,
        reason=point.reason,
    )


def _cases_at_best(sweep: Sweep) -> list[Entry]:
    """The layers at the best configuration that the sweep found."""
    if sweep.comparison is not None:
        return [compared_case(each, 2) for each in shown_comparisons(sweep.comparison)]
    return [] if sweep.profile is None else [profile_case(case) for case in sweep.profile.cases]
