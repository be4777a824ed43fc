"""Histories as records, for the tests of their page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.history.records import (
    CaseHistory,
    History,
    HistoryMetric,
    HistoryPoint,
    Shift,
    Step,
    Tag,
)

FIRST_DAY = dt.datetime(2026, 1, 1, 8, 30, tzinfo=dt.timezone.utc)
REASON = "layer dense: MatMul takes longer"
# The standard error of each point.
ERROR = 0.002


def commit_of(day: int) -> str:
    return f"{day + 1:09x}".ljust(40, "f")


def make_history(*cases: CaseHistory, tag: Tag | None = None) -> History:
    return History(metric=HistoryMetric.P50, cases=cases, tag=tag)


def make_case(
    levels: Sequence[float] = (0.0, 0.0, 0.1, 0.1),
    *,
    steps: tuple[int, ...] = (2,),
    reasons: tuple[str, ...] = (REASON,),
    run_url: str | None = None,
    **fields: object,
) -> CaseHistory:
    """A case with a point a day; a step at an index begins the next baseline and has reasons."""
    points: list[HistoryPoint] = []
    for day, level in enumerate(levels):
        is_step = day in steps
        points.append(
            HistoryPoint(
                date=FIRST_DAY + dt.timedelta(days=day),
                commit=commit_of(day),
                verdict="regressed" if is_step else "passed",
                baseline=f"{sum(day >= step for step in steps)}" * 64,
                level=level,
                variance=ERROR**2,
                reasons=reasons if is_step else (),
                run_url=run_url,
            )
        )
    found = tuple(
        Step(points[at - 1], points[at], Shift(levels[at] - levels[at - 1], ERROR)) for at in steps
    )
    case = CaseHistory(
        model="models--encoder",
        machine="linux-x86_64-2c",
        case="b1-c1",
        engine="onnxruntime",
        points=tuple(points),
        first=points[0],
        count=len(points),
        steps=found,
    )
    return replace(case, **fields)
