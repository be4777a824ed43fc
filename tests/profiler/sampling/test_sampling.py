"""The loop that samples rounds, on models whose times are known and a clock that is a number."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, Load, Round
from pytest_modelperf.profiler.pairs.plans import SHORT_POLICY, SHORTEST_POLICY
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.policy import (
    DUET_POLICY,
    SamplingPolicy,
    coarsened,
    filling_time,
)
from pytest_modelperf.profiler.sampling.rounds import sample, sample_duet, sample_in_turn
from pytest_modelperf.stats.estimates import estimate_percentile
from tests.support.fake_bench import MS, US, FakeBench, FakeClock, FakeDuetBench, S, steady

POLICY = SamplingPolicy()
# Never precise enough, so that all of the time is used.
TIRELESS = replace(POLICY, precision=0.0)


def run(
    bench: FakeBench,
    policy: SamplingPolicy = POLICY,
    watch: Callable[[SamplingProgress], None] = lambda _: None,
) -> tuple[Round, ...]:
    rounds = sample(bench, policy, bench.clock, watch)
    assert not bench.is_open
    return rounds


def half_width(rounds: Sequence[Round]) -> float:
    found = estimate_percentile([r.times_ns for r in rounds], 50.0, POLICY.confidence).half_width
    assert found is not None
    return found


def never_decided(_: Sequence[DuetRound]) -> bool:
    return False


# -- when to stop


def test_rounds_stop_as_soon_as_the_median_is_precise() -> None:
    bench = FakeBench(FakeClock(), steady(5 * MS), sessions=0.015, jitter=0.02)

    rounds = run(bench)

    assert POLICY.min_rounds < len(rounds) < POLICY.max_rounds
    assert half_width(rounds) <= POLICY.precision
    assert all(
        half_width(rounds[:count]) > POLICY.precision
        for count in range(POLICY.min_rounds, len(rounds))
    )


def test_a_quiet_model_needs_the_fewest_rounds_and_samples() -> None:
    rounds = run(FakeBench(FakeClock(), steady(MS), jitter=0.002))

    assert len(rounds) == POLICY.min_rounds


def test_a_precise_median_waits_for_the_samples_of_the_tail() -> None:
    """Five blocks of 20 are too few for a 95th percentile."""
    bench = FakeBench(FakeClock(), steady(30 * MS), load_ns=MS, jitter=0.002)
    policy = replace(POLICY, max_block=20)

    rounds = run(bench, policy)

    taken = [len(r.times_ns) for r in rounds]
    assert len(rounds) > policy.min_rounds
    assert sum(taken[:-1]) < policy.min_samples <= sum(taken)


def test_a_machine_that_never_agrees_with_itself_is_left_after_the_most_rounds() -> None:
    bench = FakeBench(FakeClock(), steady(20 * US), load_ns=MS, sessions=0.5)

    assert len(run(bench, replace(POLICY, max_rounds=30))) == 30


@pytest.mark.slow
@settings(max_examples=30)
@given(
    turn_ns=st.integers(500 * US, 300 * MS),
    load_ns=st.integers(0, S),
    max_seconds=st.floats(3.0, 12.0),
    jitter=st.floats(0.0, 0.05),
)
def test_time_is_kept_and_used(
    turn_ns: int, load_ns: int, max_seconds: float, jitter: float
) -> None:
    """Counted from the first load. At most one inference begins too late to end in time."""
    bench = FakeBench(FakeClock(), steady(turn_ns), load_ns=load_ns, sessions=0.03, jitter=jitter)
    start = bench.clock()

    rounds = run(bench, replace(TIRELESS, max_seconds=max_seconds))

    spent = bench.clock() - start - load_ns
    assert spent <= max_seconds * S + 1.5 * turn_ns
    if len(rounds) < POLICY.max_rounds:
        dearest = load_ns + 2 * S + POLICY.max_block * turn_ns
        assert spent >= max_seconds * S - dearest


@pytest.mark.parametrize(
    ("load_ns", "seconds"), [(MS, 3.0), (S, 3.0), (1500 * MS, 3.0), (5 * S, 6.5)]
)
def test_the_first_load_takes_its_share_of_the_time_and_leaves_the_rest(
    load_ns: int, seconds: float
) -> None:
    bench = FakeBench(FakeClock(), steady(10 * MS), load_ns=load_ns, sessions=0.2)
    start = bench.clock()

    rounds = run(bench, replace(TIRELESS, max_seconds=3.0, load_share=0.5))

    assert seconds - 1.6 < (bench.clock() - start) / S <= seconds + 0.02
    assert sum(len(made.times_ns) for made in rounds) > 40


def test_a_round_that_would_not_end_in_time_is_not_begun() -> None:
    """Loading takes 3 s, so a third round would be cut off."""
    bench = FakeBench(FakeClock(), steady(10 * MS), load_ns=3 * S, sessions=0.2)
    start = bench.clock()

    run(bench, replace(TIRELESS, max_seconds=8.0))

    assert bench.opened == 3
    assert 6 * S < bench.clock() - start - 3 * S < 8 * S


@pytest.mark.parametrize("min_seconds", [2.0, 4.0])
def test_a_precise_median_goes_on_for_the_least_time(min_seconds: float) -> None:
    """A round takes less than a second, also beyond the most that are usual."""
    bench = FakeBench(FakeClock(), steady(MS), jitter=0.002)
    start = bench.clock()

    run(bench, replace(POLICY, min_seconds=min_seconds, max_rounds=6))

    assert min_seconds <= (bench.clock() - start) / S < min_seconds + 1


def test_the_least_time_does_not_go_beyond_the_most() -> None:
    bench = FakeBench(FakeClock(), steady(MS), jitter=0.002)
    start = bench.clock()

    run(bench, replace(POLICY, max_seconds=3.0, min_seconds=3.0))

    assert (bench.clock() - start) / S < 3.1


@pytest.mark.parametrize("turn_ns", [MS, 40 * MS])
def test_a_warm_up_takes_at_least_what_is_asked_for(turn_ns: int) -> None:
    bench = FakeBench(FakeClock(), steady(turn_ns), jitter=0.002)

    rounds = run(bench, replace(POLICY, min_warmup_seconds=1.0))

    # Each round warms up until less than an inference is missing, which is begun.
    assert 1000 * MS // turn_ns - 1 <= rounds[0].warmup_runs <= 1000 * MS // turn_ns + 2
    assert rounds[0].is_steady


def test_a_warm_up_leaves_time_for_the_block() -> None:
    bench = FakeBench(FakeClock(), steady(100 * MS), jitter=0.002)

    rounds = run(bench, replace(POLICY, max_seconds=4.0, min_warmup_seconds=4.0))

    assert len(rounds) == 1
    assert len(rounds[0].times_ns) >= 5


# -- very slow and very fast models


def test_a_model_that_loads_longer_than_its_time_has_one_full_round() -> None:
    bench = FakeBench(FakeClock(), steady(10 * MS), load_ns=60 * S)

    (only,) = run(bench)

    assert len(only.times_ns) == POLICY.max_block


def test_an_inference_that_takes_all_the_time_is_timed_once() -> None:
    bench = FakeBench(FakeClock(), steady(15 * S), load_ns=2 * S)
    start = bench.clock()

    (only,) = run(bench)

    assert only.times_ns == (15 * S,)
    assert only.warmup_runs == 0
    assert not only.is_steady
    assert bench.clock() - start == 2 * S + 15 * S + 15 * S


@pytest.mark.parametrize(
    ("turn_ns", "rounds", "samples"), [(100 * MS, 5, 60), (300 * MS, 5, 15), (500 * MS, 3, 11)]
)
def test_a_slow_model_has_enough_rounds_for_a_median(
    turn_ns: int, rounds: int, samples: int
) -> None:
    taken = run(FakeBench(FakeClock(), steady(turn_ns), load_ns=turn_ns, jitter=0.003), TIRELESS)

    assert len(taken) == rounds
    assert sum(len(r.times_ns) for r in taken) >= samples


def begins_slowly(number: int) -> int:
    """An inference of 2 ms, the first of which takes 2 s."""
    return 2 * S if number == 0 else 2 * MS


@pytest.mark.parametrize("load_ns", [MS, 3 * S])
def test_a_first_inference_that_prepares_the_engine_is_not_taken_as_typical(load_ns: int) -> None:
    bench = FakeBench(FakeClock(), begins_slowly, load_ns=load_ns)
    policy = replace(SHORT_POLICY, stretch_seconds=3.0)

    (only,) = run(bench, policy)

    assert len(only.times_ns) >= policy.min_slow_block
    assert set(only.times_ns) == {2 * MS}


def test_all_rounds_that_begin_slowly_have_the_blocks_of_a_fast_model() -> None:
    bench = FakeBench(FakeClock(), begins_slowly, load_ns=MS, jitter=0.1)

    start = bench.clock()

    rounds = run(bench, replace(TIRELESS, max_seconds=5.0))

    assert [each.is_steady for each in rounds] == [True, True]
    assert all(len(each.times_ns) >= 30 for each in rounds)
    assert bench.clock() - start < 6 * S


def test_only_the_first_block_of_a_slow_model_that_begins_slowly_is_taken_again() -> None:
    clock, steps = FakeClock(), []
    before, after = (
        FakeBench(clock, lambda number: S if number == 0 else 300 * MS, jitter=0.01, seed=seed)
        for seed in (1, 2)
    )

    sample_duet(
        FakeDuetBench(before, after),
        replace(DUET_POLICY, max_seconds=30.0),
        clock,
        lambda at: steps.append((at.round, at.step)),
        never_decided,
    )

    assert len(set(steps)) > 6
    assert [number for number, step in steps if step == "measure"].count(1) == 2
    assert [number for number, step in steps if step == "measure"].count(2) == 1


def test_a_model_that_begins_slowly_does_not_get_the_time_of_a_slow_one() -> None:
    bench = FakeBench(FakeClock(), begins_slowly, load_ns=MS, jitter=0.1)
    start = bench.clock()

    run(bench, replace(TIRELESS, max_seconds=5.0, stretch_seconds=600.0))

    # A slow one would have 25 rounds of 12 inferences of 2 s.
    assert bench.clock() - start < 60 * S


def test_rounds_of_a_duet_that_begin_slowly_have_whole_blocks() -> None:
    clock = FakeClock()
    before, after = (
        FakeBench(clock, begins_slowly, load_ns=MS, jitter=0.01, seed=seed) for seed in (1, 2)
    )
    policy = replace(DUET_POLICY, stretch_seconds=60.0)

    rounds = run_duet(FakeDuetBench(before, after), never_decided, policy)

    assert all(len(each.before.times_ns) >= DUET_POLICY.min_block for each in rounds)


def test_a_fast_model_is_timed_in_long_blocks() -> None:
    bench = FakeBench(FakeClock(), steady(5 * US), load_ns=5 * MS, jitter=0.05)

    rounds = run(bench)

    assert all(len(r.times_ns) > 200 for r in rounds)
    assert all(r.is_steady for r in rounds)


def test_a_warm_up_does_not_eat_the_time_of_a_slow_model() -> None:
    """After a first inference of 4 s, two windows of 3 s would leave no time to measure."""
    bench = FakeBench(FakeClock(), lambda number: 4 * S if number == 0 else 3 * S, load_ns=0)
    start = bench.clock()

    (only,) = run(bench)

    assert only.times_ns == (3 * S,)
    assert bench.clock() - start <= POLICY.max_seconds * S


# -- how many inferences a round has


def blocks_for(turn_ns: int, *tail_samples: int) -> Sequence[int]:
    """The lengths of the blocks of a model that is measured until its time is over."""
    bench = FakeBench(FakeClock(), steady(turn_ns), load_ns=50 * MS, sessions=0.03, jitter=0.02)
    run(bench, replace(TIRELESS, tail_samples=tail_samples))
    return bench.timed


def test_an_open_limit_takes_the_time_that_is_left() -> None:
    """A noisy moment makes the shortest blocks the best ones for the median, not for a limit."""

    def samples_of(policy: SamplingPolicy) -> int:
        bench = FakeBench(FakeClock(), steady(160 * US), sessions=0.3, jitter=0.02)
        start = bench.clock()
        rounds = sample(bench, policy, bench.clock, lambda _: None, lambda _: False)
        assert len(rounds) == policy.max_rounds
        seconds.append((bench.clock() - start) / S)
        return sum(len(each.times_ns) for each in rounds)

    seconds: list[float] = []
    assert samples_of(POLICY) < 3000
    assert samples_of(filling_time(POLICY)) > 20_000
    assert seconds[0] < 5
    assert 9.5 < seconds[1] < 10.1


def test_a_duet_with_an_open_limit_takes_the_time_that_is_left() -> None:
    clock = FakeClock()
    fast = [FakeBench(clock, steady(160 * US), jitter=0.02, seed=seed) for seed in (1, 2)]
    policy = filling_time(DUET_POLICY)
    start = clock()
    rounds = run_duet(FakeDuetBench(*fast), never_decided, policy)
    assert len(rounds) == DUET_POLICY.max_rounds
    assert max(len(each.before.times_ns) for each in rounds) > DUET_POLICY.max_block
    assert 9.5 * S < clock() - start < 10.1 * S


def test_blocks_are_long_for_a_tail_that_the_time_is_enough_for() -> None:
    assert sum(blocks_for(MS)) < 6636 <= sum(blocks_for(MS, 662, 6636))


def test_no_block_is_longer_for_a_tail_that_the_time_is_too_short_for() -> None:
    """6,636 inferences of 5 ms take 33 s, and there are 10."""
    assert blocks_for(5 * MS, 662, 6636) == blocks_for(5 * MS, 662) != blocks_for(5 * MS)


def later_blocks(bench: FakeBench) -> float:
    """The mean length of the blocks that are planned from earlier rounds."""
    run(bench, replace(TIRELESS, max_rounds=24, max_seconds=1000.0, min_samples=0))
    later = bench.timed[8:]
    return sum(later) / len(later)


def test_blocks_grow_if_loading_is_slow() -> None:
    lengths = [
        later_blocks(
            FakeBench(FakeClock(), steady(5 * MS), load_ns=load_ns, sessions=0.01, jitter=0.05)
        )
        for load_ns in (100 * MS, S, 10 * S)
    ]

    assert POLICY.min_block < lengths[0] < lengths[1] / 2 < lengths[2] / 4


def test_blocks_shrink_if_sessions_differ() -> None:
    lengths = [
        later_blocks(FakeBench(FakeClock(), steady(MS), load_ns=S, sessions=sessions, jitter=0.02))
        for sessions in (0.003, 0.02, 0.1)
    ]

    assert lengths[0] > 2 * lengths[1] > 4 * lengths[2]
    assert lengths[2] == POLICY.min_block


def test_blocks_follow_the_optimum_of_kalibera_and_jones() -> None:
    """sqrt(1000 ms of load / 1 ms of inference) x (2 % within / 2 % between) is 32."""
    bench = FakeBench(FakeClock(), steady(MS), load_ns=S, sessions=0.02, jitter=0.02)

    run(bench, replace(TIRELESS, max_rounds=60, max_seconds=1000.0))

    assert 22 < sum(bench.timed[30:]) / 30 < 42


@settings(max_examples=40)
@given(
    turn_ns=st.integers(US, 20 * MS),
    load_ns=st.integers(0, 2 * S),
    sessions=st.floats(0.0, 0.3),
    jitter=st.floats(0.0, 0.3),
)
def test_blocks_stay_within_their_bounds_while_time_allows(
    turn_ns: int, load_ns: int, sessions: float, jitter: float
) -> None:
    bench = FakeBench(FakeClock(), steady(turn_ns), load_ns, sessions, jitter)

    run(bench, replace(TIRELESS, max_rounds=8, max_seconds=1000.0))

    assert all(POLICY.min_block <= count <= POLICY.max_block for count in bench.timed)


# -- warm-up


@pytest.mark.parametrize("turn_ns", [5 * US, 200 * US, 2 * MS, 10 * MS])
def test_a_model_that_gets_faster_is_warmed_up_until_it_does_not(turn_ns: int) -> None:
    def curve(number: int) -> int:
        return round(turn_ns * (1.0 + 0.03 * max(0, 30 - number)))

    for taken in run(FakeBench(FakeClock(), curve), replace(POLICY, max_seconds=60.0)):
        assert taken.warmup_runs >= 30
        assert taken.is_steady
        assert taken.first_ns == curve(0)
        assert set(taken.times_ns) == {turn_ns}


def test_a_model_that_is_steady_at_once_is_warmed_up_by_one_window() -> None:
    for taken in run(FakeBench(FakeClock(), steady(10 * MS))):
        assert taken.warmup_runs == POLICY.min_window
        assert taken.is_steady


@pytest.mark.parametrize(
    ("turn_ns", "factor"), [(50 * US, 0.9995), (MS, 0.99), (100 * MS, 0.97), (S, 0.97)]
)
def test_a_model_that_never_gets_steady_is_reported(turn_ns: int, factor: float) -> None:
    bench = FakeBench(FakeClock(), lambda number: round(turn_ns * factor**number))

    for taken in run(bench, replace(POLICY, max_rounds=1)):
        assert not taken.is_steady
        assert 0 < taken.warmup_runs <= POLICY.max_windows * POLICY.max_block


def test_a_model_that_never_gets_steady_is_given_up_in_time() -> None:
    """No window begins after half a second, and none lasts longer than its share of it."""
    clock = FakeClock()
    bench = FakeBench(clock, lambda number: round(40 * MS * 0.98**number))
    seen: list[tuple[str, int]] = []

    run(bench, replace(POLICY, max_rounds=1), lambda p: seen.append((p.step, clock())))

    begun = dict(seen)
    assert begun["measure"] - begun["warm up"] < 0.5 * S + 0.125 * S + 2 * 40 * MS


# -- progress and errors


def test_every_step_is_reported_before_it_is_taken() -> None:
    bench = FakeBench(FakeClock(), steady(MS), jitter=0.01)
    seen: list[tuple[SamplingProgress, bool, int]] = []

    def watch(progress: SamplingProgress) -> None:
        taken = sum(count for blocks in bench.blocks[progress.round - 1 :] for _, count in blocks)
        seen.append((progress, bench.is_open, taken))

    rounds = run(bench, watch=watch)

    steps = ["load", "warm up", "measure"]
    assert [(p.round, p.step) for p, _, _ in seen] == [
        (number, step) for number in range(1, len(rounds) + 1) for step in steps
    ]
    for progress, is_open, taken in seen:
        assert is_open == (progress.step != "load")
        assert (taken > 0) == (progress.step == "measure")
        assert (progress.estimate_ns is None) == (progress.round == 1)
        assert (progress.half_width is None) == (progress.round <= 2)
    left = [progress.seconds_left for progress, _, _ in seen]
    assert left[0] == POLICY.max_seconds
    assert left == sorted(left, reverse=True)


def test_the_last_reported_estimate_is_that_of_the_rounds_before() -> None:
    seen: list[SamplingProgress] = []

    rounds = run(FakeBench(FakeClock(), steady(MS), jitter=0.01), watch=seen.append)

    before = estimate_percentile([r.times_ns for r in rounds[:-1]], 50.0)
    assert seen[-1].estimate_ns == before.value_ns
    assert seen[-1].half_width == before.half_width


class FailingBench(FakeBench):
    """A bench that raises `error` at its third block; `close` fails as well if it `is_dead`."""

    error: BaseException = RuntimeError("no more")
    is_dead = False

    def take(self, count: int, max_ns: int) -> tuple[Block]:
        if len(self.blocks[-1]) == 2:
            raise self.error
        return super().take(count, max_ns)

    def close(self) -> None:
        super().close()
        if self.is_dead:
            raise OSError("the worker is gone")


@pytest.mark.parametrize("is_dead", [False, True])
def test_an_error_passes_through_and_the_session_is_closed(is_dead: bool) -> None:  # noqa: FBT001  # a parameter of the test
    bench = FailingBench(FakeClock(), steady(MS))
    bench.is_dead = is_dead

    with pytest.raises(RuntimeError) as caught:
        run(bench)

    assert caught.value is bench.error
    assert not bench.is_open


def test_an_interrupt_passes_through_without_asking_the_worker_for_more() -> None:
    bench = FailingBench(FakeClock(), steady(MS))
    bench.error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        run(bench)

    assert bench.is_open


# -- duets


def duet(after_ns: int, **noise: float) -> FakeDuetBench:
    clock = FakeClock()
    return FakeDuetBench(
        FakeBench(clock, steady(10 * MS), **noise, seed=1),  # type: ignore[arg-type]  # only floats
        FakeBench(clock, steady(after_ns), **noise, seed=2),  # type: ignore[arg-type]
    )


def run_duet(
    bench: FakeDuetBench,
    is_decided: Callable[[Sequence[DuetRound]], bool],
    policy: SamplingPolicy = DUET_POLICY,
) -> tuple[DuetRound, ...]:
    rounds = sample_duet(bench, policy, bench.before.clock, lambda _: None, is_decided)
    assert not bench.before.is_open
    assert not bench.after.is_open
    return rounds


@pytest.mark.parametrize(("asked", "rounds"), [(0.03, 100), (0.001, 20)])
def test_a_coarse_figure_takes_no_more_rounds_than_a_duet(asked: float, rounds: int) -> None:
    policy = coarsened(replace(POLICY, max_rounds=rounds, precision=0.01), asked)
    assert policy.precision == max(asked, 0.01)
    assert policy.max_rounds == min(rounds, DUET_POLICY.max_rounds)
    assert policy == replace(POLICY, precision=policy.precision, max_rounds=policy.max_rounds)


def test_a_duet_stops_when_it_is_decided() -> None:
    asked: list[int] = []

    def is_decided(rounds: Sequence[DuetRound]) -> bool:
        asked.append(len(rounds))
        return len(rounds) == 9

    rounds = run_duet(duet(11 * MS, jitter=0.02), is_decided)

    assert len(rounds) == 9
    assert asked == [4, 5, 6, 7, 8, 9]
    fewest = DUET_POLICY.fewest_in_block(0.0105)
    for each in rounds:
        assert len(each.before.times_ns) == len(each.after.times_ns) >= fewest


def test_the_sides_of_a_duet_are_distinguished() -> None:
    bench = duet(20 * MS)
    bench.before.load_ns, bench.after.load_ns = 3 * MS, 5 * MS
    for each in run_duet(bench, lambda _: True):
        assert (each.before.load_ns, each.after.load_ns) == (3 * MS, 5 * MS)
        assert (each.before.first_ns, each.after.first_ns) == (10 * MS, 20 * MS)
        assert set(each.before.times_ns) == {10 * MS}
        assert set(each.after.times_ns) == {20 * MS}


def test_an_undecided_duet_ends_after_the_most_rounds() -> None:
    policy = replace(DUET_POLICY, max_seconds=1000.0)

    assert len(run_duet(duet(11 * MS, jitter=0.02), never_decided, policy)) == policy.max_rounds


def test_the_last_rounds_of_an_open_duet_take_the_time_that_is_left() -> None:
    bench = slow_duet(inference_ms=2, load_ms=5)
    start = bench.before.clock()
    rounds = run_duet(bench, never_decided)

    lengths = [len(each.before.times_ns) for each in rounds]
    usual = math.ceil(DUET_POLICY.max_rounds / 3)
    assert len(rounds) == DUET_POLICY.max_rounds
    assert min(lengths[usual:]) > 2 * max(lengths[:usual])
    assert 9.5 * S < bench.before.clock() - start < 10.1 * S


def test_an_undecided_duet_ends_in_time() -> None:
    bench = duet(11 * MS, jitter=0.02)
    start = bench.before.clock()

    rounds = run_duet(bench, never_decided, replace(DUET_POLICY, max_seconds=4.0))

    assert DUET_POLICY.min_rounds <= len(rounds) < DUET_POLICY.max_rounds
    assert bench.before.clock() - start - 20 * MS <= 4 * S + 32 * MS


@pytest.mark.parametrize(
    ("ms", "block", "window"), [(1, 12, 5), (5, 6, 3), (10, 3, 2), (20, 3, 1), (100, 3, 1)]
)
def test_slow_inferences_have_short_blocks_and_warm_ups(ms: int, block: int, window: int) -> None:
    assert DUET_POLICY.fewest_in_block(ms / 1000) == block
    assert DUET_POLICY.fewest_in_window(ms / 1000) == window
    # Without a second model nothing cancels.
    assert POLICY.fewest_in_block(ms / 1000) == POLICY.min_block
    assert POLICY.fewest_in_window(ms / 1000) == POLICY.min_window


@pytest.mark.parametrize(("ms", "warmup"), [(200, 1), (300, 0), (900, 0)])
def test_a_first_inference_that_lasts_warms_a_duet_up(ms: int, warmup: int) -> None:
    """The first round has one inference more, which shows that the first one is typical."""
    rounds = run_duet(
        slow_duet(ms, load_ms=10), never_decided, replace(DUET_POLICY, max_seconds=60.0)
    )
    for pair in rounds[1:5]:
        for side in (pair.before, pair.after):
            assert (side.warmup_runs, side.is_steady) == (warmup, True)
            assert side.first_ns not in side.times_ns
    # Without a second model, the rest of a warm-up does not cancel.
    for taken in run(FakeBench(FakeClock(), steady(ms * MS)), replace(POLICY, max_seconds=60.0)):
        assert taken.warmup_runs > 0


def slow_duet(inference_ms: int, load_ms: int, jitter: float = 0.01) -> FakeDuetBench:
    clock = FakeClock()
    before, after = (
        FakeBench(clock, steady(inference_ms * MS), load_ns=load_ms * MS, jitter=jitter, seed=seed)
        for seed in (1, 2)
    )
    return FakeDuetBench(before, after)


def test_slow_inferences_that_vary_much_have_whole_blocks() -> None:
    """A few of them have no median: a neighbour makes one of three take twice as long."""
    policy = replace(DUET_POLICY, max_seconds=60.0)
    first, *others = run_duet(slow_duet(50, 50, jitter=0.3), never_decided, policy)

    assert len(first.before.times_ns) == DUET_POLICY.min_slow_block
    assert all(len(each.before.times_ns) >= DUET_POLICY.min_block for each in others)


def test_a_slow_model_has_enough_rounds_to_decide_a_duet() -> None:
    """A hundred milliseconds an inference, and nearly half a second to load both sides."""
    rounds = run_duet(slow_duet(100, 200), never_decided)

    assert len(rounds) >= 7
    assert all(each.before.warmup_runs == 1 for each in rounds)
    assert all(each.before.is_steady for each in rounds)


@pytest.mark.parametrize(
    ("stretch", "seconds", "rounds"), [(None, 10.0, 3), (60.0, 60.0, 12), (20.0, 20.0, 4)]
)
def test_without_a_given_time_a_slow_model_has_that_of_more_rounds(
    stretch: float | None, seconds: float, rounds: int
) -> None:
    bench = slow_duet(400, 900)
    clock, left = bench.before.clock, []
    policy = replace(DUET_POLICY, stretch_seconds=stretch)

    found = sample_duet(
        bench, policy, clock, lambda at: left.append(at.seconds_left), never_decided
    )

    # It is known when both sides have run.
    assert max(left[:2]) <= DUET_POLICY.max_seconds
    assert left[2] == pytest.approx(seconds, abs=5.0)
    assert max(left) == pytest.approx(seconds, abs=5.0)
    assert rounds - 1 <= len(found) <= rounds + 1


@pytest.mark.parametrize("stretch", [None, 60.0])
def test_after_its_first_block_a_slow_model_reports_how_long_the_fewest_rounds_take(
    stretch: float | None,
) -> None:
    bench = slow_duet(400, 900)
    reported: list[tuple[int, str, float]] = []
    policy = replace(DUET_POLICY, stretch_seconds=stretch)

    def see(at: SamplingProgress) -> None:
        if at.least_seconds is not None:
            reported.append((at.round, at.step, at.least_seconds))

    def is_fewest(rounds: Sequence[DuetRound]) -> bool:
        return len(rounds) == DUET_POLICY.min_rounds

    start = bench.before.clock()
    sample_duet(bench, policy, bench.before.clock, see, is_fewest)
    took = (bench.before.clock() - start) / S

    if stretch is None:
        assert not reported
        return
    ((number, step, seconds),) = reported
    assert (number, step) == (1, "measure")
    assert seconds == pytest.approx(took, rel=0.05)


def test_a_slow_model_that_varies_much_has_the_time_of_its_longer_blocks() -> None:
    """The first block of three says nothing about the others, which have twelve."""

    def seconds_given(jitter: float) -> float:
        bench, left = slow_duet(50, 50, jitter=jitter), []
        policy = replace(DUET_POLICY, stretch_seconds=60.0)
        sample_duet(
            bench,
            policy,
            bench.before.clock,
            lambda at: left.append(at.seconds_left),
            never_decided,
        )
        return max(left)

    assert seconds_given(0.3) > 2 * seconds_given(0.01)


@pytest.mark.parametrize("load_ns", [MS, S])
def test_the_only_round_of_a_slow_model_is_as_long_however_long_it_loads(load_ns: int) -> None:
    bench = FakeBench(FakeClock(), steady(100 * MS), load_ns=load_ns)
    policy = replace(SHORT_POLICY, stretch_seconds=3.0)

    (only,) = run(bench, policy)

    assert len(only.times_ns) == policy.min_slow_block


@pytest.mark.parametrize(
    ("inference_ms", "warmup", "inferences"),
    [(1, 6, 30), (5, 4, 6), (40, 1, 3), (80, 1, 2), (200, 1, 1)],
)
def test_the_shortest_run_takes_30_ms_or_three_inferences_but_at_most_300_ms(
    inference_ms: int, warmup: int, inferences: int
) -> None:
    bench = FakeBench(FakeClock(), steady(inference_ms * MS), load_ns=MS)

    (only,) = run(bench, SHORTEST_POLICY)

    assert len(only.times_ns) == inferences
    *before, _ = bench.blocks[0]
    assert sum(taken for _, taken in before) == warmup


def test_a_model_whose_rounds_are_short_has_no_more_time_than_it_had() -> None:
    bench, left = duet(11 * MS, jitter=0.02), []
    policy = replace(DUET_POLICY, stretch_seconds=60.0)

    sample_duet(
        bench, policy, bench.before.clock, lambda at: left.append(at.seconds_left), never_decided
    )

    assert max(left) == DUET_POLICY.max_seconds


def test_an_error_in_a_duet_closes_both_sides() -> None:
    bench = duet(11 * MS)

    def fail(_: Sequence[DuetRound]) -> bool:
        raise RuntimeError("undecidable")

    with pytest.raises(RuntimeError, match="undecidable"):
        run_duet(bench, fail)

    assert not bench.before.is_open
    assert not bench.after.is_open


# -- many in turn


def take_turns(
    benches: dict[str, FakeBench],
    policy: SamplingPolicy = POLICY,
    watch: Callable[[str, SamplingProgress], None] = lambda *_: None,
    seed: int = 0,
) -> tuple[dict[str, tuple[Round, ...]], dict[str, MeasureError]]:
    clock = next(iter(benches.values())).clock
    return sample_in_turn(
        benches, policy, clock, watch, random.Random(seed), lambda key: key.upper()
    )


def test_each_has_the_rounds_that_it_would_have_alone() -> None:
    shapes = {"a": (MS, 0.02), "b": (5 * MS, 0.001), "c": (20 * MS, 0.05)}
    clock = FakeClock()
    together, failed = take_turns(
        {key: FakeBench(clock, steady(ns), sessions=s) for key, (ns, s) in shapes.items()}
    )
    assert not failed
    for key, (ns, spread) in shapes.items():
        alone = run(FakeBench(FakeClock(), steady(ns), sessions=spread))
        assert [made.times_ns for made in together[key]] == [made.times_ns for made in alone]


def order_of_rounds(keys: str, seed: int) -> list[str]:
    """Return the order of measuring in the passes that all took part in."""
    clock, seen = FakeClock(), []

    def watch(key: str, progress: SamplingProgress) -> None:
        if progress.step == "measure":
            seen.append(key)

    take_turns({key: FakeBench(clock, steady(MS)) for key in keys}, watch=watch, seed=seed)
    return seen


@settings(max_examples=20)
@given(st.integers(0, 50))
def test_a_pass_has_a_round_of_each_in_a_new_random_order(seed: int) -> None:
    seen = order_of_rounds("abcdef", seed)
    passes = [seen[start : start + 6] for start in range(0, len(seen), 6)]
    assert len(passes) == POLICY.min_rounds
    assert all(sorted(each) == list("abcdef") for each in passes)
    assert len({tuple(each) for each in passes}) > 1


@settings(max_examples=20)
@given(st.integers(0, 50))
def test_rounds_of_a_group_follow_each_other_directly(seed: int) -> None:
    seen = order_of_rounds("aAbBcC", seed)
    pairs = [seen[start : start + 2] for start in range(0, len(seen), 2)]
    assert all(one.upper() == other.upper() for one, other in pairs)
    assert {one.isupper() for one, _ in pairs} == {True, False}


def test_the_time_of_one_is_not_spent_by_another() -> None:
    clock = FakeClock()
    benches = {
        "quick": FakeBench(clock, steady(MS), sessions=0.2),
        "slow": FakeBench(clock, steady(50 * MS), sessions=0.2),
    }
    began = clock()
    rounds, _ = take_turns(benches, replace(TIRELESS, max_rounds=10_000))
    assert min(map(len, rounds.values())) > POLICY.min_rounds
    assert 1.5 * POLICY.max_seconds * S < clock() - began < 2.5 * POLICY.max_seconds * S


def restless(clock: FakeClock, **load_ns: int) -> dict[str, FakeBench]:
    """Models that each take all of their time."""
    return {
        key: FakeBench(clock, steady(MS), load_ns=first_ns, sessions=0.2)
        for key, first_ns in load_ns.items()
    }


def test_all_take_no_longer_than_they_have_together() -> None:
    """Time that one takes beyond its own, as for a long load, is taken from the others' rest."""
    clock = FakeClock()
    policy = replace(TIRELESS, max_rounds=10_000, load_share=0.5)
    began = clock()
    benches = restless(clock, slow=30 * S, a=MS, b=MS, c=MS)
    rounds, _ = take_turns(benches, policy)
    # A round of each may begin before the end.
    assert clock() - began < (4 * policy.max_seconds + 1) * S
    assert clock() - began > 0.9 * 4 * policy.max_seconds * S
    assert all(rounds.values())


@pytest.mark.slow
def test_a_failure_costs_the_others_no_time() -> None:
    class Hanging(FakeBench):
        def open(self) -> tuple[Load]:
            clock.pass_ns(100 * S)
            raise MeasureError("no answer")

    clock = FakeClock()
    policy = replace(TIRELESS, max_rounds=10_000, load_share=0.5)
    began = clock()
    benches = {**restless(clock, a=MS, b=MS), "hanging": Hanging(clock, steady(MS))}
    _, failed = take_turns(benches, policy)
    assert set(failed) == {"hanging"}
    assert clock() - began > (100 + 0.9 * 2 * policy.max_seconds) * S


class Broken(FakeBench):
    """A model that fails in its third round."""

    def open(self) -> tuple[Load]:
        if self.opened == 2:
            raise MeasureError("it is gone")
        return super().open()


def test_one_that_fails_has_no_rounds_and_the_others_go_on() -> None:
    clock = FakeClock()
    rounds, failed = take_turns({"a": FakeBench(clock, steady(MS)), "b": Broken(clock, steady(MS))})
    assert len(rounds["a"]) == POLICY.min_rounds
    assert "b" not in rounds
    assert str(failed["b"]) == "it is gone"
