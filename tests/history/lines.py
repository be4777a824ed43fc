"""Lines of a history as the tests write them."""

from __future__ import annotations

import datetime as dt
import math

from pytest_modelperf.history.records import LINE_SCHEMA, HistoryLine, StoredFigures, StoredRatio

FIRST_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
# The quantile of a normal distribution for an interval at 99 %.
QUANTILE = 2.5758293035489004


def make_ratio(ratio: float, error: float = 0.005) -> StoredRatio:
    """A ratio whose logarithm has this standard error."""
    width = math.exp(QUANTILE * error)
    return StoredRatio(ratio=ratio, low=ratio / width, high=ratio * width, confidence=0.99)


def commit_of(day: int) -> str:
    return f"{day:09x}".ljust(40, "f")


def make_line(  # noqa: PLR0913  # one for each field that a test is about
    day: int = 0,
    ratio: float | None = 1.0,
    error: float = 0.005,
    *,
    baseline: str | None = "a",
    digest: str | None = None,
    case: str = "b1-c1",
    macs: int = 15,
    verdict: str = "passed",
    recorded: bool = False,
    how: str | None = None,
    reasons: tuple[str, ...] = (),
) -> HistoryLine:
    """The line of a run on that day, whose commit is the number of the day."""
    return HistoryLine(
        schema=LINE_SCHEMA,
        date=FIRST_DAY + dt.timedelta(days=day),
        commit=commit_of(day),
        branch="main",
        model="models--encoder",
        machine="linux-x86_64-2c",
        case=case,
        engine="onnxruntime",
        engine_version="1.31.1",
        digest=digest or f"model of day {day}",
        baseline=baseline,
        recorded=recorded,
        verdict=verdict,
        p50=None if ratio is None else make_ratio(ratio, error),
        p95=None,
        figures=StoredFigures(macs=macs),
        load_ms=None,
        peak_rss_bytes=None,
        seconds=1.0,
        how=how,
        reasons=reasons,
    )
