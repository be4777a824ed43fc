"""Budgets judge figures, without running any model."""

from __future__ import annotations

import math

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.baselines.document import store_static
from pytest_modelperf.comparing.budgets import Budget, read_budgets
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import How, Metric, Verdict
from pytest_modelperf.comparing.time_limits import MissLimit
from pytest_modelperf.comparing.verdict_lines import describe_metric
from pytest_modelperf.environments.records import InstalledSize
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.rounds import sample
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.testing.budgets import (
    LimitedFigures,
    budget_notes,
    few_rounds_note,
    item_metrics,
    static_budget_metrics,
    time_limits,
    timed_budget_metrics,
)
from pytest_modelperf.testing.case_budgets import (
    improvement_metric,
    setup_for_limits,
    speedup_metric,
    with_run,
)
from tests.support.comparisons import SAME
from tests.support.fake_bench import MS, FakeBench, FakeClock, steady
from tests.support.known import known
from tests.support.profiles import make_measurement, make_round
from tests.support.small_models import ones, static_of

LEVEL = 0.001
# The setup of a run without a given time.
STRETCHED = Setup(stretch_seconds=60.0)


def budgets(**values: object) -> tuple[Budget, ...]:
    return read_budgets(values, "test")


def rounds_of(*times_ms: float, samples: int = 60, batch_size: int = 1) -> Measurement:
    """Rounds of equal inferences; if there are several times, the rounds take turns."""
    chosen = [times_ms[index % len(times_ms)] for index in range(6)]
    return make_measurement(
        batch_size=batch_size,
        rounds=[make_round([round(ms * MS)] * samples) for ms in chosen],
        half_width=None,
    )


def judged(measured: Measurement | None, **values: object) -> tuple[Metric, ...]:
    batch_size = 1 if measured is None else measured.latency.batch_size
    held = LimitedFigures(None, None, batch_size, measured)
    return timed_budget_metrics(budgets(**values), held, LEVEL)


def verdict(measured: Measurement, **values: object) -> Verdict:
    (metric,) = judged(measured, **values)
    return metric.verdict


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(10.001, Verdict.PASSED), (9.999, Verdict.OVER_BUDGET), (10.0, Verdict.INCONCLUSIVE)],
)
def test_a_median_below_at_and_above_its_limit(limit: float, expected: Verdict) -> None:
    assert verdict(rounds_of(10.0), latency_ms=limit) is expected


def test_a_limit_within_the_interval_is_neither_kept_nor_broken() -> None:
    spread = rounds_of(9.0, 10.0, 11.0)
    (metric,) = judged(spread, latency_ms=10.2)
    assert metric.verdict is Verdict.INCONCLUSIVE
    assert metric.after_interval is not None
    low, high = metric.after_interval
    assert low < 10.2 < high
    assert verdict(spread, latency_ms=high + 0.01) is Verdict.PASSED
    assert verdict(spread, latency_ms=low - 0.01) is Verdict.OVER_BUDGET


def test_latency_and_its_interval_are_in_milliseconds() -> None:
    (metric,) = judged(rounds_of(10.0), latency_ms=12)
    assert (metric.name, metric.before, metric.after) == ("latency_p50", None, 10.0)
    assert metric.limit == 12.0
    assert metric.after_interval == pytest.approx((10.0, 10.0))


def test_an_interval_of_a_budget_has_the_confidence_of_its_own_level() -> None:
    """The confidence of the case is that of its ratio to a baseline, and another one."""
    growth = Growth(inferences=9, bytes_per_inference=1.0, low=0.0, high=2.0, confidence=0.9)
    held = LimitedFigures(None, None, 1, rounds_of(9.0, 11.0), growth)
    words = budgets(latency_ms=12, load_ms=12, items_per_second=1, growth_kb_per_inference=1)
    *of_rounds, of_growth = timed_budget_metrics(words, held, LEVEL)
    assert {metric.confidence for metric in of_rounds} == {1.0 - 2.0 * LEVEL}
    assert of_growth.confidence == growth.confidence


def test_a_percentile_is_judged_with_enough_samples_and_has_no_value_with_too_few() -> None:
    (metric,) = judged(rounds_of(10.0), p99_ms=11)
    assert metric.verdict is Verdict.INCONCLUSIVE
    assert (metric.after, metric.after_interval) == (None, None)
    many = rounds_of(10.0, samples=400)
    assert verdict(many, p99_ms=9) is Verdict.OVER_BUDGET
    assert verdict(many, p99_ms=11) is Verdict.PASSED


@pytest.mark.parametrize("seed", range(3))
def test_a_tail_that_lacks_samples_leaves_the_other_percentiles_their_rounds(seed: int) -> None:
    """10 s have not the 6,636 inferences that p99.9 takes; sessions differ by 3 %."""
    words = ("p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99_9_ms")
    limited = budgets(**dict.fromkeys(words, 6.0))
    gate = Gate(limits=time_limits(limited, 1))
    bench = FakeBench(
        FakeClock(), steady(5 * MS), load_ns=50 * MS, sessions=0.03, jitter=0.02, seed=seed
    )
    policy = SamplingPolicy(tail_samples=gate.samples_needed)
    taken = sample(bench, policy, bench.clock, lambda _: None, gate.fits)
    held = LimitedFigures(None, None, 1, make_measurement(rounds=list(taken), half_width=None))
    *others, rarest = timed_budget_metrics(limited, held, gate.limit_level)
    assert {metric.verdict for metric in others} == {Verdict.PASSED}
    assert rarest.verdict is Verdict.INCONCLUSIVE
    assert rarest.samples_needed == 6636


def held(bench: FakeBench, setup: Setup = STRETCHED, **limits: float) -> tuple[list[Metric], int]:
    """The budgets of a model that runs as long as they ask for, and its rounds."""
    limited = budgets(**limits)
    gate = Gate(limits=time_limits(limited, 1))
    policy = setup_for_limits(setup, gate).policy
    taken = sample(bench, policy, bench.clock, lambda _: None, gate.fits)
    figures = LimitedFigures(None, None, 1, make_measurement(rounds=list(taken), half_width=None))
    return list(timed_budget_metrics(limited, figures, gate.limit_level)), len(taken)


@pytest.mark.parametrize(
    ("time_ms", "limit", "expected", "most_s"),
    [
        (3000, 100, Verdict.OVER_BUDGET, 13),
        (1000, 10_000, Verdict.PASSED, 5),
        (10_000, 100, Verdict.OVER_BUDGET, 41),
        (1000, 1500, Verdict.PASSED, 13),
        (1000, 700, Verdict.OVER_BUDGET, 21),
    ],
)
def test_a_slow_model_is_decided_by_default(
    time_ms: int, limit: float, expected: Verdict, most_s: float
) -> None:
    bench = FakeBench(FakeClock(), steady(time_ms * MS), jitter=0.003)
    begun_ns = bench.clock()
    ((metric,), _) = held(bench, latency_ms=limit)
    assert metric.verdict is expected
    assert (bench.clock() - begun_ns) / 1e9 <= most_s


def test_a_slow_import_leaves_a_function_its_rounds() -> None:
    bench = FakeBench(FakeClock(), steady(MS), load_ns=11_000 * MS, jitter=0.01, loads_once=True)
    ((metric,), rounds) = held(bench, Setup(), latency_ms=50)
    assert (metric.verdict, rounds) == (Verdict.PASSED, 6)


def test_a_model_that_loads_slowly_is_decided_by_its_first_session() -> None:
    bench = FakeBench(FakeClock(), steady(MS), load_ns=11_000 * MS, jitter=0.01)
    ((metric,), rounds) = held(bench, p95_ms=50)
    assert (metric.verdict, rounds) == (Verdict.PASSED, 1)


@pytest.mark.parametrize("words", [{"latency_ms": 3010}, {"p95_ms": 9000}, {"load_ms": 5010}])
def test_an_open_case_of_a_slow_model_says_what_would_decide_it(words: dict[str, float]) -> None:
    bench = FakeBench(FakeClock(), steady(3000 * MS), load_ns=5000 * MS, jitter=0.02)
    ((metric,), rounds) = held(bench, Setup(), **words)
    assert metric.verdict is Verdict.INCONCLUSIVE
    assert metric.rounds_needed is not None
    assert metric.rounds_needed > rounds


def test_a_tail_is_over_budget_with_the_median() -> None:
    ((metric,), _) = held(FakeBench(FakeClock(), steady(200 * MS), jitter=0.001), p95_ms=50)
    assert (metric.verdict, metric.after) == (Verdict.OVER_BUDGET, None)
    assert metric.least == pytest.approx(200, rel=0.01)
    assert describe_metric(metric, None).startswith("p95 latency >= ")


def test_few_rounds_have_a_note() -> None:
    limited = budgets(latency_ms=1)
    few, enough = (
        make_measurement(rounds=[make_round([10 * MS] * 60)] * count) for count in (1, 5)
    )
    assert few_rounds_note(limited, few) == snapshot(
        "budgets are judged by the inferences of 1 session, with bounds 25 % further away for "
        "sessions that did not run"
    )
    assert few_rounds_note(limited, enough) is None
    assert few_rounds_note(budgets(load_ms=1), few) is None


@pytest.mark.parametrize(
    ("least", "expected"),
    [(399, Verdict.PASSED), (401, Verdict.OVER_BUDGET), (400, Verdict.INCONCLUSIVE)],
)
def test_fewer_items_a_second_than_the_least_are_over_budget(least: int, expected: Verdict) -> None:
    (metric,) = judged(rounds_of(10.0, batch_size=4), items_per_second=least)
    assert (metric.verdict, metric.limit) == (expected, least)
    assert metric.after == pytest.approx(400)


def test_the_phases_of_a_generation_have_limits_of_their_own() -> None:
    """The prompt as a whole, one token of it, and how many of these fit in a second."""
    figures = {
        "ttft_ms": (10.0, 9.9, Verdict.OVER_BUDGET),
        "token_ms": (10.0, 10.1, Verdict.PASSED),
        "tokens_per_second": (400.0, 401.0, Verdict.OVER_BUDGET),
    }
    for word, (value, limit, expected) in figures.items():
        (metric,) = judged(rounds_of(10.0, batch_size=4), **{word: limit})
        assert (metric.name, metric.verdict, metric.limit) == (word, expected, limit)
        assert metric.after == pytest.approx(value)


@pytest.mark.parametrize(("word", "limit"), [("cache_bytes_per_token", 4096), ("kernels", 7)])
@pytest.mark.parametrize(
    ("more", "expected"),
    [(0, Verdict.PASSED), (1, Verdict.OVER_BUDGET), (None, Verdict.INCONCLUSIVE)],
)
def test_a_number_may_equal_its_limit(
    word: str, limit: int, more: int | None, expected: Verdict
) -> None:
    found = None if more is None else limit + more
    known = replace(LimitedFigures(None, None, 1), **{word: found})
    (metric,) = static_budget_metrics(budgets(**{word: limit}), known)
    assert (metric.name, metric.after, metric.verdict) == (word, found, expected)


def test_the_interval_of_a_throughput_goes_from_low_to_high() -> None:
    (metric,) = judged(rounds_of(8.0, 10.0), items_per_second=1)
    assert metric.after is not None
    assert metric.after_interval is not None
    low, high = metric.after_interval
    assert low < metric.after < high


def test_a_throughput_asks_the_same_of_the_latency_as_its_inverse() -> None:
    (of_rate,) = time_limits(budgets(items_per_second=400), batch_size=4)
    (of_latency,) = time_limits(budgets(latency_ms=10), batch_size=4)
    assert of_rate == of_latency


def started(*load_ms: float) -> Measurement:
    return make_measurement(
        rounds=[make_round([MS] * 60, load_ms=ms, first_ms=2 * ms) for ms in load_ms],
        half_width=None,
    )


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(21, Verdict.PASSED), (19, Verdict.OVER_BUDGET), (20, Verdict.INCONCLUSIVE)],
)
def test_the_time_to_load_is_judged_by_its_rounds(limit: float, expected: Verdict) -> None:
    (metric,) = judged(started(20, 20, 20, 20, 20, 20), load_ms=limit)
    assert (metric.name, metric.after, metric.verdict) == ("load_ms", 20.0, expected)


@pytest.mark.parametrize(("limit", "expected"), [(60, Verdict.PASSED), (40, Verdict.OVER_BUDGET)])
def test_rounds_are_taken_until_the_budget_of_a_start_is_decided(
    limit: float, expected: Verdict
) -> None:
    """First inferences take some 50 ms, give or take 10 %, which five rounds leave open."""
    limited = budgets(first_inference_ms=limit)
    gate = Gate(limits=time_limits(limited, 1))
    bench = FakeBench(FakeClock(), lambda number: MS if number else 50 * MS, sessions=0.1)
    taken = sample(bench, SamplingPolicy(), bench.clock, lambda _: None, gate.fits)
    for rounds, wanted in ((taken[:5], Verdict.INCONCLUSIVE), (taken, expected)):
        held = LimitedFigures(None, None, 1, make_measurement(rounds=list(rounds), half_width=None))
        (metric,) = timed_budget_metrics(limited, held, gate.limit_level)
        assert metric.verdict is wanted


@pytest.mark.parametrize("word", ["load_ms", "first_inference_ms"])
def test_one_time_loading_of_the_engine_does_not_make_a_budget_uncertain(word: str) -> None:
    """The first session of a process took six times as long, as that of a small model does."""
    (metric,) = judged(started(120, 20, 20.4, 19.6, 20.2, 19.8), **{word: 60})
    assert metric.verdict is Verdict.PASSED


def test_the_first_inference_is_not_the_time_to_load() -> None:
    (metric,) = judged(started(20, 20, 20, 20, 20, 20), first_inference_ms=41)
    assert (metric.after, metric.verdict) == (40.0, Verdict.PASSED)


def test_one_round_gives_no_spread_of_loading() -> None:
    assert verdict(started(20), load_ms=1000) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("megabytes", "expected"),
    [(300.000001, Verdict.PASSED), (300, Verdict.PASSED), (299.999999, Verdict.OVER_BUDGET)],
)
def test_a_megabyte_of_memory_has_a_million_bytes(megabytes: float, expected: Verdict) -> None:
    measured = replace(rounds_of(1.0), peak_rss_bytes=300_000_000)
    (metric,) = judged(measured, peak_memory_mb=megabytes)
    assert (metric.after, metric.verdict) == (300_000_000, expected)


def test_unknown_and_unmeasured_figures_are_not_judged() -> None:
    measured = replace(rounds_of(1.0), peak_rss_bytes=None)
    assert verdict(measured, peak_memory_mb=1) is Verdict.INCONCLUSIVE
    assert judged(None, latency_ms=1, load_ms=1, peak_memory_mb=1) == ()


def test_several_budgets_keep_their_order_and_those_of_the_file_are_left_out() -> None:
    metrics = judged(rounds_of(1.0), load_ms=1, macs=5, latency_ms=2, size_mb=1)
    assert [metric.name for metric in metrics] == ["load_ms", "latency_p50"]


LINEAR = "g (float[N,3] x) => (float[N,5] y) { y = MatMul(x, w) }"
UNKNOWN = """g (float[N,3] x) => (float[N,5] y) { z = my.ops.Odd(x)  y = MatMul(z, w) }"""


def counted(text: str, /, **values: object) -> Metric:
    held = LimitedFigures(static_of(text, w=ones(3, 5)), 1000, 1)
    (metric,) = static_budget_metrics(budgets(**values), held)
    return metric


@pytest.mark.parametrize(
    ("word", "value", "limit"), [("macs", 15, "15"), ("params", 15, 15), ("size_mb", 1000, 0.001)]
)
def test_an_exact_figure_may_be_its_limit_and_no_more(word: str, value: int, limit: object) -> None:
    at = counted(LINEAR, **{word: limit})
    assert (at.after, at.verdict) == (value, Verdict.PASSED)
    below = 14 if word != "size_mb" else 0.000999
    assert counted(LINEAR, **{word: below}).verdict is Verdict.OVER_BUDGET


def test_a_sum_that_leaves_layers_out_may_be_over_but_is_not_within() -> None:
    assert counted(UNKNOWN, macs=1000).verdict is Verdict.INCONCLUSIVE
    assert counted(UNKNOWN, params=1000).verdict is Verdict.PASSED


def test_a_function_has_no_counts() -> None:
    held = LimitedFigures(None, None, 1)
    found = static_budget_metrics(budgets(macs=1, params=1, size_mb=1, latency_ms=1), held)
    assert [(m.name, m.after, m.verdict) for m in found] == [
        (name, None, Verdict.INCONCLUSIVE) for name in ("macs", "params", "size_bytes")
    ]


ALONE = replace(static_of("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"), undecided=1)


def macs_of(*, graph: int, run: int | None = None, chance: str | None = None) -> StaticProfile:
    """A profile of an If: the costlier branch as the graph counts it, and the one that ran."""
    (layer,) = ALONE.layers
    alone = replace(ALONE, layers=(replace(layer, macs=graph),))
    if run is None:
        return alone
    layers = (replace(layer, macs=run),)
    return replace(alone, layers=layers, undecided=0, graph_alone=alone, chance=chance)


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        (macs_of(graph=400, run=100), Verdict.PASSED),
        (macs_of(graph=400, run=300), Verdict.OVER_BUDGET),
        (macs_of(graph=400), Verdict.INCONCLUSIVE),
        (macs_of(graph=200), Verdict.PASSED),
        (macs_of(graph=400, run=100, chance="RandomUniform"), Verdict.INCONCLUSIVE),
    ],
)
def test_macs_of_a_branch_are_judged_by_the_run_that_took_it(
    static: StaticProfile, expected: Verdict
) -> None:
    (metric,) = static_budget_metrics(budgets(macs=200), LimitedFigures(static, None, 1))
    assert metric.verdict is expected


def test_the_macs_come_from_an_earlier_run_of_the_same_case_if_none_runs_now() -> None:
    known = store_static(macs_of(graph=400, run=100))
    held = LimitedFigures(macs_of(graph=400), None, 1, observed=known)
    (metric,) = static_budget_metrics(budgets(macs=200), held)
    assert (metric.after, metric.verdict) == (100, Verdict.PASSED)


@pytest.mark.parametrize("how", [None, How.PLAN])
def test_a_run_for_budgets_alone_does_not_say_how_a_case_was_judged(how: How | None) -> None:
    found = with_run(replace(SAME, how=how), rounds_of(1.0))
    assert (found.rounds, found.how, found.is_duet) == (6, how, False)


def test_the_slowest_inference_is_the_figure_and_says_of_how_many() -> None:
    measured = rounds_of(10.0, 12.0)
    (metric,) = judged(measured, max_ms=11.9)
    assert metric.after == pytest.approx(12.0)
    assert metric.verdict is Verdict.OVER_BUDGET
    assert describe_metric(metric, None) == snapshot(
        "slowest inference 12.00 ms, of 360, limit 11.90 ms"
    )
    assert verdict(measured, max_ms=12) is Verdict.PASSED


def test_a_note_says_what_the_slowest_of_some_inferences_shows_of_others() -> None:
    assert budget_notes(budgets(max_ms=12), rounds_of(10.0), "linux") == snapshot(
        ("with a confidence of 99 %, fewer than 1.27 % of all take longer than the slowest of 360",)
    )
    assert budget_notes(budgets(latency_ms=12), rounds_of(10.0), "linux") == ()
    assert budget_notes(budgets(max_ms=12), None, "linux") == ()


def test_missed_deadlines_are_a_share_with_an_interval() -> None:
    times = [*[round(10 * MS)] * 30, *[round(90 * MS)] * 30]
    late = make_measurement(rounds=[make_round(times)] * 6, half_width=None)
    (metric,) = judged(late, deadline_ms=50, misses=0.01)
    assert (metric.after, metric.limit) == (0.5, 0.01)
    assert metric.verdict is Verdict.OVER_BUDGET
    assert metric.detail == "deadline 50 ms"
    assert verdict(late, deadline_ms=100, misses="5 %") is Verdict.PASSED


def test_a_share_of_misses_that_takes_more_samples_is_open_and_says_how_many() -> None:
    (metric,) = judged(rounds_of(10.0, samples=20), deadline_ms=50, misses=0.001)
    (limit,) = time_limits(budgets(deadline_ms=50, misses=0.001), 1)
    assert metric.verdict is Verdict.INCONCLUSIVE
    assert isinstance(limit, MissLimit)
    assert metric.samples_needed == limit.samples_needed
    assert metric.rounds_needed == math.ceil(limit.samples_needed / 20)


def test_a_run_takes_the_samples_that_show_a_share_of_misses() -> None:
    (metric,), _ = held(FakeBench(FakeClock(), steady(MS)), deadline_ms=50, misses=0.01)
    assert metric.verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0.2501, Verdict.PASSED), (0.25, Verdict.INCONCLUSIVE), (0.2499, Verdict.OVER_BUDGET)],
)
def test_a_real_time_factor_is_the_median_by_the_seconds_of_the_whole_batch(
    limit: float, expected: Verdict
) -> None:
    """10 ms for 4 frames at 100 frames a second are a quarter of real time."""
    (metric,) = judged(rounds_of(10.0, batch_size=4), real_time_factor=limit, frame_rate=100)
    assert metric.after == pytest.approx(0.25)
    assert metric.verdict is expected
    assert metric.detail == "for 0.04 s of input"


def test_items_are_judged_by_their_median_over_the_processes() -> None:
    figures = LimitedFigures(None, None, 1, items={"item_ms": [[4 * MS] * 20 for _ in range(5)]})
    item, first = item_metrics(budgets(item_ms=3, first_item_ms=100), figures, LEVEL)
    assert item.after == pytest.approx(4.0)
    assert item.verdict is Verdict.OVER_BUDGET
    assert (first.after, first.verdict) == (None, Verdict.INCONCLUSIVE)


def test_an_installed_size_names_what_takes_most() -> None:
    found = InstalledSize({"magika": 1_000_000, "numpy": 60_000_000})
    figures = LimitedFigures(None, None, 1, installed={"magika": found})
    (metric,) = static_budget_metrics(budgets(install_bytes="50M", distribution="magika"), figures)
    assert metric.verdict is Verdict.OVER_BUDGET
    assert describe_metric(metric, None) == snapshot(
        "installed size 61.00 MB, magika and 1 requirement; numpy takes 60.0 MB, limit 50.00 MB"
    )


def change(name: str, ratio: float, verdict: Verdict, spread: float | None = None) -> Metric:
    interval = None if spread is None else (ratio - spread, ratio + spread)
    return Metric(name, 1000.0, 1000.0 * ratio, verdict, interval=interval)


def improvement(*metrics: Metric, how: How = How.DUET) -> Metric | None:
    compared = replace(SAME, metrics=metrics, how=how)
    return improvement_metric(budgets(improved_beyond=0.2), compared)


P50 = "latency_p50"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (change(P50, 0.7, Verdict.IMPROVED, 0.05), Verdict.OVER_BUDGET),
        (change(P50, 0.78, Verdict.IMPROVED, 0.05), Verdict.INCONCLUSIVE),
        (change(P50, 0.9, Verdict.IMPROVED, 0.05), Verdict.PASSED),
        (change(P50, 1.5, Verdict.REGRESSED, 0.05), Verdict.PASSED),
        # Its interval has the error level of passes.
        (change(P50, 0.7, Verdict.PASSED, 0.05), Verdict.INCONCLUSIVE),
        (change("macs", 0.79, Verdict.IMPROVED), Verdict.OVER_BUDGET),
        (change("macs", 0.8, Verdict.IMPROVED), Verdict.PASSED),
    ],
)
def test_a_figure_is_too_good_if_all_of_its_interval_is(metric: Metric, expected: Verdict) -> None:
    found = known(improvement(metric))
    assert found.verdict is expected
    assert not found.awaited


def test_the_figure_that_improved_too_much_is_named() -> None:
    found = improvement(
        change(P50, 0.99, Verdict.PASSED, 0.005),
        change("macs", 0.7, Verdict.IMPROVED),
        change("params", 0.6, Verdict.IMPROVED),
        change("weight_bytes", 0.1, Verdict.IMPROVED),
    )
    assert found is not None
    assert describe_metric(found, None) == snapshot("improvement -40.0 %, params, at least -20.0 %")


def test_nothing_is_too_good_without_anything_to_compare() -> None:
    assert improvement() is None
    assert improvement_metric(budgets(latency_ms=3), SAME) is None


@pytest.mark.parametrize("is_exchanged", [False, True])
@pytest.mark.parametrize("is_faster", [False, True])
def test_a_speedup_is_that_of_the_model_whichever_side_it_was(
    is_exchanged: bool,  # noqa: FBT001
    is_faster: bool,  # noqa: FBT001
) -> None:
    (budget,) = budgets(speedup=2, over="old.onnx")
    verdict = Verdict.REGRESSED if is_faster is is_exchanged else Verdict.PASSED
    ratio = 4.0 if is_faster else 1.0
    seen = ratio if is_exchanged else 1.0 / ratio
    found = speedup_metric(
        budget, change(P50, seen, verdict, 0.1 * seen), is_exchanged=is_exchanged
    )
    assert found.after == pytest.approx(ratio)
    assert found.after_interval is not None
    low, high = found.after_interval
    assert low < ratio < high
    assert found.verdict is (Verdict.PASSED if is_faster else Verdict.OVER_BUDGET)


def test_the_same_model_is_as_fast_as_itself() -> None:
    (budget,) = budgets(speedup=1.1, over="models/old.onnx")
    found = speedup_metric(budget, None, is_exchanged=True)
    assert describe_metric(found, None) == snapshot("speedup 1x, over old.onnx, at least 1.1x")
