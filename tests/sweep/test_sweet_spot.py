"""The laws of the sweet spot: what is best is surely within, and more is only ever allowed more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.records import Case, Outcome
from pytest_modelperf.sweep.records import (
    Configuration,
    PointChange,
    Sweep,
    SweepPoint,
    choose_point,
    find_sweet_spot,
)
from pytest_modelperf.sweep.results import at_changes
from tests.support.sweeps import make_configuration, make_point, make_ratio, make_side

# Few values, so that ties and bounds that are met exactly come up.
MS = st.sampled_from((0.3, 0.5, 1.0, 2.0, 2.5, 5.0, 20.0))
WIDTHS = st.one_of(st.none(), st.sampled_from((0.0, 0.1, 0.6)))
RATES = st.sampled_from((10.0, 50.0, 52.0, 200.0))
THRESHOLDS = st.one_of(MS, st.floats(0.1, 30.0))


@st.composite
def points(draw: st.DrawFn) -> list[SweepPoint]:
    """Configurations of any latency and any throughput, some of them not measured."""
    made = []
    for batch in range(1, draw(st.integers(1, 7)) + 1):
        configuration = make_configuration(batch)
        if draw(st.integers(0, 4)) == 0:
            made.append(
                SweepPoint(configuration=configuration, outcome=Outcome.FAILED, reason="no memory")
            )
            continue
        point = make_point(configuration, draw(MS), draw(WIDTHS))
        made.append(replace(point, throughput=make_ratio(draw(RATES), draw(WIDTHS))))
    return made


def in_phase(phase: GenerationPhase, median_ms: float) -> SweepPoint:
    return make_point(Configuration(Case(1, 1, phase=phase)), median_ms)


def rate_of(made: Sequence[SweepPoint], config_id: str | None) -> float:
    """The items a second of a configuration; of none, nothing."""
    found = next((point for point in made if point.id == config_id), None)
    return 0.0 if found is None or found.throughput is None else found.throughput.value


def upper_bound(point: SweepPoint) -> float:
    interval = point.latency_interval_ms
    return float("inf") if interval is None else interval[1]


@given(points(), THRESHOLDS)
def test_only_what_is_surely_within_is_best_or_as_good_and_none_of_it_gives_more(
    made: list[SweepPoint], threshold_ms: float
) -> None:
    spot = find_sweet_spot(made, threshold_ms)
    within = {point.id for point in made if upper_bound(point) <= threshold_ms}
    assert {spot.best, *spot.equals} - {None} <= within
    assert (spot.best is None) == (not within)
    assert all(rate_of(made, spot.best) >= rate_of(made, config_id) for config_id in within)


def test_steps_compete_with_steps_alone() -> None:
    """A prefill gives fewer inferences of more tokens, or, with a short prompt, more of them."""
    prefill = in_phase(GenerationPhase(Phase.PREFILL, 16, 8), 0.5)
    slow = in_phase(GenerationPhase(Phase.STEP, 16, 8), 5.0)
    quick = in_phase(GenerationPhase(Phase.STEP, 32, 8), 2.0)
    assert find_sweet_spot([prefill, slow, quick], None).best == quick.id
    assert find_sweet_spot([prefill, slow], 1.0).best is None
    assert find_sweet_spot([prefill], None).best == prefill.id


@given(points(), THRESHOLDS, THRESHOLDS)
def test_a_higher_threshold_never_lowers_the_best_throughput(
    made: list[SweepPoint], one_ms: float, other_ms: float
) -> None:
    low, high = (find_sweet_spot(made, ms) for ms in sorted((one_ms, other_ms)))
    assert rate_of(made, low.best) <= rate_of(made, high.best)


@given(points(), THRESHOLDS)
def test_without_a_threshold_the_best_is_the_most_of_all_that_was_measured(
    made: list[SweepPoint], threshold_ms: float
) -> None:
    free = find_sweet_spot(made, None)
    assert rate_of(made, free.best) == max(rate_of(made, point.id) for point in made)
    assert free.undecided == ()
    assert rate_of(made, find_sweet_spot(made, threshold_ms).best) <= rate_of(made, free.best)


@given(points(), THRESHOLDS)
def test_undecided_are_those_whose_interval_goes_beyond_the_threshold(
    made: list[SweepPoint], threshold_ms: float
) -> None:
    spot = find_sweet_spot(made, threshold_ms)
    crossing = set()
    for point in made:
        if point.latency is None:
            continue
        # Without an interval, the median may be anything from the fastest on.
        low_ms = (point.latency_interval_ms or (point.latency.min_ms,))[0]
        if low_ms <= threshold_ms < upper_bound(point):
            crossing.add(point.id)
    assert set(spot.undecided) == crossing


@given(points(), st.one_of(st.none(), THRESHOLDS))
def test_a_configuration_has_one_role_and_as_good_has_a_throughput_in_common_with_the_best(
    made: list[SweepPoint], threshold_ms: float | None
) -> None:
    spot = find_sweet_spot(made, threshold_ms)
    named = [*([] if spot.best is None else [spot.best]), *spot.equals, *spot.undecided]
    assert len(set(named)) == len(named)
    assert set(named) <= {point.id for point in made if point.latency is not None}
    rates = {point.id: point.throughput for point in made}
    best = None if spot.best is None else rates[spot.best]
    within = [p for p in made if p.latency and upper_bound(p) <= (threshold_ms or float("inf"))]
    for point in within:
        rate = point.throughput
        if best is None or best.low is None or rate is None or rate.high is None:
            continue
        is_below = rate.high < best.low
        assert (point.id in {spot.best, *spot.equals}) != is_below


@given(points(), THRESHOLDS, st.randoms(use_true_random=False))
def test_the_order_of_the_configurations_does_not_matter(
    made: list[SweepPoint], threshold_ms: float, random: Random
) -> None:
    shuffled = [*made]
    random.shuffle(shuffled)
    one, other = (find_sweet_spot(each, threshold_ms) for each in (made, shuffled))
    assert rate_of(made, one.best) == rate_of(made, other.best)
    assert set(one.undecided) == set(other.undecided)


def test_without_a_best_the_quickest_is_chosen_though_its_median_is_an_estimate() -> None:
    slow = make_point(make_configuration(1), 30.0, samples=4)
    quick = make_point(make_configuration(2), 25.0, samples=4)
    side = make_side("m.onnx", (slow, quick), threshold_ms=20.0)
    assert (side.spot.best, quick.p50_ms) == (None, None)
    assert choose_point(side) == quick


def test_a_threshold_may_be_a_fraction_of_a_millisecond() -> None:
    quick, slow = make_point(make_configuration(1), 0.4), make_point(make_configuration(8), 0.6)
    assert find_sweet_spot((quick, slow), 0.5).best == "b1-c1"
    assert find_sweet_spot((quick, slow), 0.7).best == "b8-c1"


def test_a_bound_that_is_the_threshold_is_within() -> None:
    point = make_point(make_configuration(), 20.0, 0.0)
    assert find_sweet_spot((point,), 20.0).best == "b1-c1"
    assert find_sweet_spot((point,), 19.999).best is None


def test_a_sweep_has_failed_only_if_nothing_was_measured() -> None:
    good = make_point(make_configuration(), 1.0)
    lost = SweepPoint(configuration=make_configuration(2), outcome=Outcome.FAILED, reason="lost")
    assert Sweep(sides=(make_side("m.onnx", (lost,)),)).has_failed
    assert not Sweep(sides=(make_side("m.onnx", (lost, good)),)).has_failed


def test_the_id_names_streams_only_if_there_are_several() -> None:
    assert make_configuration(4, 2).id == "b4-c2"
    assert make_configuration(4, 2, 3, (("seq", 64),)).id == "b4-c2-seq64-s3"


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
