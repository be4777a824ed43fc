"""The points of two models differ by the change that the passes told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.sweep.records import PointChange, SweepPoint
from pytest_modelperf.sweep.results import at_changes
from tests.support.sweeps import make_configuration, make_point, make_ratio

TIMES = st.floats(0.1, 100.0)
RATIOS = st.floats(0.2, 5.0)


def point(median_ms: float, rate: float) -> SweepPoint:
    made = make_point(make_configuration(1), median_ms, 0.1)
    return replace(made, throughput=make_ratio(rate, 0.1))


@given(TIMES, TIMES, RATIOS)
def test_a_reader_can_divide_both_points_and_gets_the_change(
    before_ms: float, after_ms: float, ratio: float
) -> None:
    old, new = point(before_ms, 10.0), point(after_ms, 30.0)
    change = PointChange(
        id=old.id, latency=make_ratio(ratio, None), throughput=make_ratio(1 / ratio, None)
    )
    ((before,), (after,)) = at_changes([[old], [new]], [change])
    assert before.p50_ms is not None
    assert after.p50_ms is not None
    assert after.p50_ms / before.p50_ms == pytest.approx(ratio)
    assert before.p50_ms * after.p50_ms == pytest.approx(before_ms * after_ms)
    assert before.throughput is not None
    assert after.throughput is not None
    assert after.throughput.value / before.throughput.value == pytest.approx(1 / ratio)


def test_a_point_without_a_change_stays() -> None:
    old, new = point(5.0, 10.0), point(7.0, 9.0)
    assert at_changes([[old], [new]], []) == [[old], [new]]
    assert at_changes([[old]], []) == [[old]]
