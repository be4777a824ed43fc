"""A history as JSON."""

from __future__ import annotations

import datetime as dt

from msgspec import Struct

from pytest_modelperf.history.records import (
    INTERVAL_QUANTILE,
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    shift_since,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document


class ShiftJson(Struct, frozen=True, kw_only=True):
    """A relative change with its interval at 99 %."""

    change: float
    low: float
    high: float


class HistoryPointJson(Struct, frozen=True, kw_only=True):
    """One point: its cost relative to the first point, with the interval."""

    date: dt.datetime
    commit: str | None
    verdict: str
    baseline: str | None
    run_url: str | None
    ratio: float
    interval: tuple[float, float]


class StepJson(Struct, frozen=True, kw_only=True):
    """A change point: the last point with the old level, and the first with the new one.

    `run_url` is the page of the run of the first point; null if it is not known.
    """

    last_date: dt.datetime
    last_commit: str | None
    first_date: dt.datetime
    first_commit: str | None
    run_url: str | None
    shift: ShiftJson
    reasons: tuple[str, ...]


class CaseHistoryJson(Struct, frozen=True, kw_only=True):
    """The history of one case on one kind of machine.

    `unlinked` says why nothing links the chain to the earlier points; null if that is not known.
    """

    model: str
    machine: str
    case: str
    engine: str | None
    since_first: ShiftJson
    since_tag: ShiftJson | None
    earlier_points: int
    unlinked: str | None
    steps: tuple[StepJson, ...]
    points: tuple[HistoryPointJson, ...]


class HistoryJson(Struct, frozen=True, kw_only=True):
    """The histories of all cases."""

    schema: int
    metric: HistoryMetric
    tag: str | None
    cases: tuple[CaseHistoryJson, ...]
    notes: tuple[str, ...]


def dump_history(history: History) -> str:
    tag = None if history.tag is None else history.tag.name
    cases = tuple(map(_case, history.cases))
    return dump_document(copy_fields(HistoryJson, history, schema=SCHEMA, tag=tag, cases=cases))


def _case(case: CaseHistory) -> CaseHistoryJson:
    first = case.first
    return copy_fields(
        CaseHistoryJson,
        case,
        since_first=_shift(case.since_first),
        since_tag=None if case.since_tag is None else _shift(case.since_tag),
        steps=tuple(map(_step, case.steps)),
        points=tuple(_point(first, point) for point in case.points),
    )


def _step(step: Step) -> StepJson:
    return StepJson(
        last_date=step.before.date,
        last_commit=step.before.commit,
        first_date=step.after.date,
        first_commit=step.after.commit,
        run_url=step.after.run_url,
        shift=_shift(step.shift),
        reasons=step.after.reasons,
    )


def _point(first: HistoryPoint, point: HistoryPoint) -> HistoryPointJson:
    shift = shift_since(first, point)
    low, high = shift.bounds(INTERVAL_QUANTILE)
    interval = 1.0 + low, 1.0 + high
    return copy_fields(HistoryPointJson, point, ratio=shift.ratio, interval=interval)


def _shift(shift: Shift) -> ShiftJson:
    low, high = shift.bounds(INTERVAL_QUANTILE)
    return ShiftJson(change=shift.change, low=low, high=high)
