"""What a report shows of a side are the figures that were judged."""

from __future__ import annotations

import pytest

from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import Metric, Verdict
from tests.support.profiles import make_measurement

P50 = Metric("latency_p50", 6.4, 6.8, Verdict.REGRESSED, measured_ratio=6.8 / 6.4)


def test_both_sides_differ_by_what_was_judged() -> None:
    """So the chart of a page and the items per second tell the same change."""
    before = side_run(make_measurement(7.0, batch_size=8), (P50,), is_before=True)
    after = side_run(make_measurement(6.0, batch_size=8), (P50,))
    assert before is not None
    assert after is not None
    assert (before.latency.p50_ms, after.latency.p50_ms) == pytest.approx((6.4, 6.8))
    rates = before.latency.items_per_second, after.latency.items_per_second
    assert None not in rates
    assert rates[0] / rates[1] == pytest.approx(P50.ratio)  # type: ignore[operator]  # both are known


def test_an_interval_moves_with_its_figure() -> None:
    measured = make_measurement(7.0)
    shown = side_run(measured, (P50,))
    assert shown is not None
    old, new = (x.latency.percentile(50.0) for x in (measured, shown))
    assert new.half_width == pytest.approx(old.half_width)


def test_a_percentile_that_no_metric_shows_stays() -> None:
    measured = make_measurement(7.0)
    shown = side_run(measured)
    assert shown is not None
    assert shown.latency == measured.latency
