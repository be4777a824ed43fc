"""Kept profiles side by side as the data that the scripts of a page draw."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.page_data import ShownComparison, compared_case, engine_of_runs
from pytest_modelperf.comparing.records import CaseComparison, TimeChange
from pytest_modelperf.profiler.shown.page_data import (
    LABELS,
    model_entry,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.profiles.records import CasePair, SideBySide

ARROW = " → "


def pairs_data(pairs: Sequence[SideBySide]) -> Entry:
    """Each pair of profiles, of which a reader chooses one."""
    return {**whole_page([_pair_entry(pair) for pair in pairs]), "choice": "Profiles"}


def _pair_entry(pair: SideBySide) -> Entry:
    shown = [ShownComparison(each.id, each.id, "", _compared(each)) for each in pair.pairs]
    points = [side for each in shown if None not in (side := each.points())]
    names = (pair.before.name, pair.after.name)
    runs = [[each.compared.before for each in shown], [each.compared.after for each in shown]]
    return model_entry(
        ARROW.join(names),
        sides=[
            side_entry(label, name, engine_of_runs(found))
            for label, name, found in zip(LABELS, names, runs, strict=True)
        ],
        points=list(zip(*points, strict=True)),
        cases=[compared_case(each, len(LABELS)) for each in shown],
    )


def _compared(pair: CasePair) -> CaseComparison:
    """A case of both; the two did not take turns, so no figure is judged or has an interval."""
    return CaseComparison(
        pair.after.case,
        (),
        tuple(replace(change, time=_untested(change.time)) for change in pair.layer_types),
        layers=tuple(replace(change, time=_untested(change.time)) for change in pair.layers),
        before=side_run(pair.before.measured),
        after=side_run(pair.after.measured),
    )


def _untested(time: TimeChange | None) -> TimeChange | None:
    return None if time is None else TimeChange(ns=time.ns)
