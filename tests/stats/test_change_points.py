"""Changes of level in a series: rarely found in noise, and soon after a step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.stats.change_points import change_penalty, find_changes, find_starts
from pytest_modelperf.stats.linked_levels import Levels, LinkedBaselines, moderated

Floats: TypeAlias = npt.NDArray[np.float64]
# Sums in another order differ by less.
_ROUNDING = 1e-12


def make_levels(
    values: Sequence[float],
    variances: Sequence[float],
    shared: Sequence[float] = (),
    are_links: Sequence[bool] = (),
) -> Levels:
    """Levels whose baselines follow each other; `shared` is the error of the links up to each."""
    are_links = [*map(bool, are_links)] or [False] * len(values)
    linked, numbers = LinkedBaselines(), [0] * len(values)
    for place, (before, after) in enumerate(itertools.pairwise([0.0, *shared])):
        number = numbers[place - 1] if place else 0
        link = after - before
        numbers[place] = linked.add(number, link) if link > _ROUNDING else number
    # A run that measured a baseline has the number of that one, which comes next.
    own = [number + is_link for number, is_link in zip(numbers, are_links, strict=True)]
    if own and own[-1] == len(linked.parents):
        linked.add(numbers[-1], variances[-1])
    return Levels(values, variances, own, are_links, linked)


def changes(levels: list[float], error: float, shared: Sequence[float] = ()) -> list[int]:
    found = find_changes(make_levels(levels, [error**2] * len(levels), shared))
    return [change.index for change in found]


def noise(seed: int, points: int, error: float) -> list[float]:
    drawn: list[float] = np.random.default_rng(seed).normal(0, error, points).tolist()
    return drawn


@pytest.mark.parametrize("levels", [[], [0.0], [0.0, 0.0], [0.0] * 30])
def test_a_level_that_does_not_change_has_no_change_points(levels: list[float]) -> None:
    assert changes(levels, 0.0) == []


def test_pure_noise_has_hardly_any() -> None:
    """The level is 1 %: of 100 series, 5 or more would have one with a chance of 0.3 %."""
    assert sum(bool(changes(noise(seed, 40, 0.02), 0.02)) for seed in range(100)) < 5


def test_points_whose_few_rounds_agree_by_chance_do_not_make_a_step() -> None:
    """Runs of four rounds, the usual number, by their t interval: 5 of 200 would be too many."""
    rounds = np.random.default_rng(1).normal(0.0, 0.02, (200, 60, 4))
    critical = float(scipy.stats.t.ppf(0.983, 3)) / NormalDist().inv_cdf(0.95)
    variances = (critical * rounds.std(axis=2, ddof=1) / 2.0) ** 2
    series = zip(rounds.mean(axis=2).tolist(), map(moderated, variances.tolist()), strict=True)
    assert sum(bool(find_changes(make_levels(*each))) for each in series) < 5


@pytest.mark.parametrize("step", [0.03, -0.03])
def test_a_step_is_found_where_it_is(step: float) -> None:
    levels = [0.0] * 12 + [step] * 5
    assert changes(levels, 0.008) == [12]
    assert changes([a + b for a, b in zip(levels, noise(1, 17, 0.004), strict=True)], 0.004) == [12]


def test_several_steps_are_found() -> None:
    assert changes([0.0] * 8 + [0.05] * 8 + [0.02] * 8, 0.005) == [8, 16]


def test_a_step_below_what_a_twin_may_differ_by_is_none() -> None:
    assert changes([0.0] * 20 + [0.009] * 20, 0.0) == []
    assert changes([0.0] * 20 + [0.011] * 20, 0.0) == [20]


def test_a_single_point_off_the_others_does_not_make_a_step() -> None:
    assert changes([0.0] * 10 + [0.02] + [0.0] * 10, 0.005) == []
    assert changes([0.0] * 10 + [0.02], 0.005) == []
    assert changes([0.0] * 10 + [0.02] * 2, 0.005) == [10]


def test_uncertain_points_count_less() -> None:
    levels = [0.0] * 10 + [0.05] * 3
    (change,) = find_changes(make_levels(levels, [0.01**2] * 13))
    assert change.index == 10
    assert change.size == pytest.approx(0.05)
    assert change.error == pytest.approx(0.01 * (1 / 10 + 1 / 3) ** 0.5)
    assert find_changes(make_levels(levels, [0.01**2] * 10 + [0.2**2] * 3)) == []


def test_the_error_of_a_link_does_not_make_a_step() -> None:
    """All points of a baseline are off by the error of its link."""
    levels = [0.0] * 20 + [0.02] * 20
    assert changes(levels, 0.005) == [20]
    assert changes(levels, 0.005, [0.0] * 20 + [0.01**2] * 20) == []


def test_the_errors_of_the_links_on_two_branches_do_not_make_a_step() -> None:
    """A baseline was reverted, and the next one was linked to that before both."""
    linked = LinkedBaselines()
    reverted, later = linked.add(0, 0.0075**2), linked.add(0, 0.0075**2)
    levels = Levels(
        values=[0.0] * 20 + [0.02] * 20,
        variances=[0.005**2] * 40,
        baselines=[reverted] * 20 + [later] * 20,
        are_links=[False] * 40,
        linked=linked,
    )
    assert find_changes(levels) == []
    assert len(find_changes(replace(levels, baselines=[later] * 40))) == 1


def test_a_step_within_a_baseline_is_as_certain_as_its_points() -> None:
    levels = [0.0] * 30 + [0.03] * 5
    shared = [0.0] * 20 + [0.02**2] * 15
    (change,) = find_changes(make_levels(levels, [0.005**2] * 35, shared))
    assert change.index == 30
    assert change.size == pytest.approx(0.03)
    assert change.error < 0.004


def test_the_measurement_of_a_later_baseline_counts_once() -> None:
    """A run measured a new model, which became the baseline and did not change since."""
    levels, shared = [0.0] * 9 + [0.05] * 11, [0.0] * 10 + [0.01**2] * 10
    variances = [0.0] * 9 + [0.01**2] + [0.0] * 10
    are_links = [place == 9 for place in range(20)]
    (change,) = find_changes(make_levels(levels, variances, shared, are_links))
    assert change.index == 9
    assert change.size == pytest.approx(0.05, rel=1e-3)
    assert change.error == pytest.approx(0.01, rel=0.01)


def test_new_baselines_of_an_unchanged_cost_make_hardly_any_steps() -> None:
    """The level is 1 %, as for other noise. Each sixth of sixty runs measures a new baseline."""
    places = np.arange(60)
    are_links = places % 6 == 5
    variances = np.where(are_links, 0.006**2, 0.0)
    shared = np.cumsum(variances) - variances
    drawn = np.random.default_rng(1).normal(0.0, np.sqrt(variances), (200, 60)).cumsum(axis=1)
    levels = make_levels(drawn[0].tolist(), variances.tolist(), shared.tolist(), are_links.tolist())
    found = [find_changes(replace(levels, values=values)) for values in drawn.tolist()]
    assert sum(map(bool, found)) < 8


def test_the_penalty_grows_with_the_places_where_a_step_could_be() -> None:
    penalties = [change_penalty(points) for points in (2, 10, 100, 1000)]
    assert penalties == sorted(penalties)
    # The quantile of a chi-squared variable with one degree of freedom.
    assert penalties[0] == pytest.approx(6.6349, abs=1e-4)


def total_cost(values: Floats, weights: Floats, starts: Sequence[int], penalty: float) -> float:
    """The cost of a segmentation, segment by segment."""
    total = penalty * len(starts)
    for begin, end in itertools.pairwise([0, *starts, len(values)]):
        own, weight = values[begin:end], weights[begin:end]
        total += float((weight * (own - np.average(own, weights=weight)) ** 2).sum())
    return total


@given(
    points=st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=4, max_size=9),
    penalty=st.floats(min_value=0.1, max_value=50),
)
def test_no_segmentation_costs_less(points: list[tuple[int, int]], penalty: float) -> None:
    """Held against all segmentations whose segments have two points or more."""
    values, weights = (np.array(each, dtype=float) for each in zip(*points, strict=True))
    found = find_starts(values, weights, penalty)
    places = range(2, len(points) - 1)
    possible = [
        starts
        for number in range(len(points) // 2)
        for starts in itertools.combinations(places, number)
        if all(b - a >= 2 for a, b in itertools.pairwise(starts))
    ]
    assert tuple(found) in possible
    least = min(total_cost(values, weights, starts, penalty) for starts in possible)
    assert total_cost(values, weights, found, penalty) == pytest.approx(least, abs=1e-9)


def search_all_ends(values: Floats, weights: Floats, penalty: float) -> list[int]:
    """Optimal partitioning with a search at each end, one segment after the other."""
    centred = values - np.average(values, weights=weights)
    powers = (weights, weights * centred, weights * centred**2)
    weight, first, second = (np.concatenate(([0.0], np.cumsum(each))) for each in powers)

    def cost(begin: int, end: int) -> float:
        moment = first[end] - first[begin]
        return float(second[end] - second[begin] - moment**2 / (weight[end] - weight[begin]))

    best: dict[int, tuple[float, list[int]]] = {0: (-penalty, [])}
    for end in range(2, len(values) + 1):
        possible = [
            (total + cost(begin, end) + penalty, [*starts, begin])
            for begin, (total, starts) in best.items()
            if begin <= end - 2
        ]
        best[end] = min(possible, key=lambda each: each[0])
    return best[len(values)][1][1:]


@given(
    seed=st.integers(0, 2**32 - 1),
    points=st.integers(4, 80),
    step=st.sampled_from([0.0, 0.0, 0.5, 2.0, 50.0]),
    spread=st.sampled_from([0.0, 1.0, 5.0]),
    penalty=st.floats(min_value=2.0, max_value=25.0),
)
def test_the_ends_that_are_left_out_change_nothing(
    seed: int, points: int, step: float, spread: float, penalty: float
) -> None:
    """Held against the search at each end, in noise and with a step, with weights of any size."""
    drawn = np.random.default_rng(seed)
    weights = np.exp(drawn.normal(0.0, spread, points))
    values = drawn.normal(0.0, 1.0, points) / np.sqrt(weights)
    values[drawn.integers(points) :] += step
    found = find_starts(values, weights, penalty)
    assert found == search_all_ends(values, weights, penalty)


def test_noise_that_is_one_segment_up_to_an_early_step_is_searched_from_there() -> None:
    values = np.array(noise(3, 400, 1.0)) + np.repeat([0.0, 8.0, 0.0], [200, 2, 198])
    assert find_starts(values, np.ones(400), 15.0) == [200, 202]


@pytest.mark.parametrize("step", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("penalty", [4.0, 12.0])
def test_a_long_series_is_split_as_a_search_at_each_end_splits_it(
    step: float, penalty: float
) -> None:
    """Even if so many splits pay off that not all of them are listed."""
    values = np.array(noise(7, 300, 1.0)) + np.repeat([0.0, step, 0.0], 100)
    weights = np.exp(np.array(noise(8, 300, 0.5)))
    assert find_starts(values, weights, penalty) == search_all_ends(values, weights, penalty)


@given(
    seed=st.integers(0, 2**32 - 1),
    links=st.lists(st.integers(1, 59), max_size=4),
    step=st.integers(20, 40),
)
def test_the_size_and_error_of_a_step_are_those_of_least_squares_with_every_point(
    seed: int, links: list[int], step: int
) -> None:
    drawn = np.random.default_rng(seed)
    # None is so far below the typical one that it would count as less certain.
    variances = np.exp(drawn.uniform(-0.3, 0.3, 60)) * 0.01**2
    places = np.arange(60)
    shared = np.add.reduce([places >= link for link in [*links, 60]], axis=0) * 0.01**2
    # Half of the links are the errors of the points before them.
    are_links = np.isin(places + 1, links[::2])
    variances[are_links] = (np.append(shared[1:], shared[-1]) - shared)[are_links]
    levels = np.where(places < step, 0.0, 1.0) + drawn.normal(0.0, np.sqrt(variances))
    found = find_changes(
        make_levels(levels.tolist(), variances.tolist(), shared.tolist(), are_links.tolist())
    )
    starts = [change.index for change in found]
    design = np.stack([places >= start for start in (0, *starts)], axis=1).astype(float)
    covariance = np.diag(variances) + np.minimum.outer(shared, shared)
    for place in np.flatnonzero(are_links):
        covariance[place, place + 1 :] = covariance[place + 1 :, place] = covariance[place, place]
        covariance[place, place] += 0.001**2
    inverse = np.linalg.inv(covariance)
    spread = np.linalg.inv(design.T @ inverse @ design)
    sizes = spread @ design.T @ inverse @ levels
    assert step in starts
    assert [change.size for change in found] == pytest.approx(sizes[1:].tolist())
    errors = np.sqrt(np.diag(spread))[1:].tolist()
    assert [change.error for change in found] == pytest.approx(errors)


@pytest.mark.parametrize("seed", range(4))
def test_ruptures_finds_the_same(seed: int) -> None:
    ruptures = pytest.importorskip("ruptures")
    values = np.array(noise(seed, 90, 1.0)) + np.repeat([0.0, 2.0, 1.0], 30)
    search = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(values)
    assert find_starts(values, np.ones(90), 9.0) == search.predict(pen=9.0)[:-1]
