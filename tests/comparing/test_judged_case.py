"""A judged case, and the notes on its duet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.comparing.judged_case import (
    describe_factor,
    describe_stretch,
    notes_of_sides,
    side_run,
)
from pytest_modelperf.comparing.records import Metric, Verdict
from tests.support.known import known
from tests.support.profiles import make_measurement

P50 = Metric("latency_p50", 6.4, 6.8, Verdict.REGRESSED, measured_ratio=6.8 / 6.4)


def test_both_sides_differ_by_what_was_judged() -> None:
    """So the chart of a page and the items per second show the same change."""
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
    shown = known(side_run(measured, (P50,)))
    old, new = (x.latency.percentile(50.0) for x in (measured, shown))
    assert new.half_width == pytest.approx(old.half_width)


def test_a_percentile_that_no_metric_shows_stays() -> None:
    measured = make_measurement(7.0)
    assert known(side_run(measured)).latency == measured.latency


def test_a_note_on_one_side_names_it_and_one_on_both_is_shown_once() -> None:
    shared = "weights are subnormal"
    one, two = (f"only a run can show the output shapes of {n}" for n in ("1 layer", "2 layers"))
    assert list(notes_of_sides((shared, one), (two, shared))) == [
        shared,
        f"before: {one}",
        f"now: {two}",
    ]


@pytest.mark.parametrize(
    ("seconds", "usual", "shown"),
    [
        (10.3, 10.0, None),
        (10.6, 10.0, "11"),
        (0.7, 0.5, "0.7"),
        (0.52, 0.5, None),
        (29.6, 10.0, "30"),
    ],
)
def test_a_longer_time_is_noted_if_it_is_shown_as_longer(
    seconds: float, usual: float, shown: str | None
) -> None:
    note = describe_stretch(seconds, usual)
    assert (note is None) == (shown is None)
    if shown is not None:
        assert f"measured for {shown} s instead of {usual:g} s" in (note or "")


@given(st.floats(min_value=0, max_value=1e4), st.sampled_from([0.5, 2.0, 10.0, 60.0]))
def test_no_note_compares_a_time_with_itself(seconds: float, usual: float) -> None:
    found = re.search(
        r"for ([0-9.]+) s instead of ([0-9.]+) s", describe_stretch(seconds, usual) or ""
    )
    assert found is None or float(found[1]) > float(found[2])


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.3, "70 % less time on this machine than"),
        (0.994, "1 % less time on this machine than"),
        (0.996, "as long on this machine as"),
        (1.004, "as long on this machine as"),
        (1.05, "5 % longer on this machine than"),
        (1.994, "99 % longer on this machine than"),
        (2.0, "2.0 times as long on this machine as"),
        (12.34, "12.3 times as long on this machine as"),
    ],
)
def test_a_factor_is_a_percentage_until_it_is_twice(factor: float, words: str) -> None:
    assert describe_factor(factor) == words
