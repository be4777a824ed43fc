"""The answers of the gate about the rounds of a duet, without running any."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.baselines.recording import (
    Evidence,
    FidelityGate,
    judge_twin,
    trust_by_plan,
    try_again,
)
from pytest_modelperf.baselines.records import Fidelity, StoredLatency, StoredProcess
from pytest_modelperf.comparing.gates import (
    Gate,
    latency_metrics,
    start_metrics,
    stored_metrics,
    stored_start_metrics,
)
from pytest_modelperf.comparing.judged_case import describe_modes, judge_rounds
from pytest_modelperf.comparing.limits import Tolerances, read_tolerances
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.measurements import Block, DuetRound, Noise, Round
from pytest_modelperf.stats.estimates import summarize
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.profiles import make_round

OPEN = Verdict.INCONCLUSIVE


def rounds(ratio: float, count: int = 13, spread: float = 0.002) -> list[DuetRound]:
    """Rounds of 40 turns in which the second side takes `ratio` times as long."""
    random = np.random.RandomState(1)

    def side(scale: float) -> Round:
        times = 1e6 * scale * np.exp(0.01 * random.standard_normal(40))
        block = Block(times_ns=tuple(times.astype(int).tolist()), noise=Noise(wall_ns=1))
        return Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)

    return [
        DuetRound(before=side(1.0), after=side(ratio * float(np.exp(spread * random.randn()))))
        for _ in range(count)
    ]


def metric(ratio: float, name: str = "latency_p50", count: int = 13) -> Metric:
    return next(m for m in latency_metrics(rounds(ratio, count), Gate()) if m.name == name)


def with_modes(made: list[DuetRound], slow_before: int, slow_now: int) -> list[DuetRound]:
    """The same rounds, in which some of ten inferences of a side take seven times as long."""
    random = np.random.default_rng(2)

    def slowed(side: Round, slow: int) -> Round:
        times = side.block.times_ns
        is_slow = random.permutation(np.arange(len(times)) % 10 < slow)
        slower = tuple(7 * ns if chosen else ns for ns, chosen in zip(times, is_slow, strict=True))
        return replace(side, block=replace(side.block, times_ns=slower))

    return [
        DuetRound(before=slowed(each.before, slow_before), after=slowed(each.after, slow_now))
        for each in made
    ]


def test_a_median_in_another_mode_is_judged_by_the_medians_with_a_note() -> None:
    made = with_modes(rounds(1.0), 4, 6)
    found = next(m for m in latency_metrics(made, Gate()) if m.name == "latency_p50")
    assert found.verdict is Verdict.REGRESSED
    assert found.ratio == pytest.approx(7.0, rel=0.05)
    # The row shows the figure that was judged.
    assert known(found.after) / known(found.before) == pytest.approx(found.ratio, rel=0.05)
    (note,) = describe_modes(judge_rounds(made, Gate()))
    assert note.startswith("the inferences come in modes")


def test_modes_as_frequent_as_before_are_not_mentioned() -> None:
    made = with_modes(rounds(1.0), 4, 4)
    found = next(m for m in latency_metrics(made, Gate()) if m.name == "latency_p50")
    assert found.verdict is Verdict.PASSED
    assert not list(describe_modes(judge_rounds(made, Gate())))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.1, Verdict.REGRESSED),
        (1.0, Verdict.PASSED),
        (0.9, Verdict.IMPROVED),
        (1.03, Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict_of_the_median(ratio: float, verdict: Verdict) -> None:
    found = metric(ratio)
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(ratio, abs=0.01)
    low, high = known(found.interval)
    assert low < ratio < high
    assert (found.gated, found.awaited, found.allowed) == (True, True, 0.03)


def test_values_are_in_milliseconds_and_come_from_all_rounds() -> None:
    found = metric(1.1)
    assert found.before == pytest.approx(1.0, rel=0.01)
    assert found.after == pytest.approx(1.1, rel=0.01)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(2, 20))
@example(seed=20, count=4)
def test_percentiles_of_a_side_rise_and_agree_with_their_changes(seed: int, count: int) -> None:
    """Other processes disturb some rounds of either side, and half of the turns in them."""
    random = np.random.default_rng(seed)

    def disturbed(side: Round) -> Round:
        waits = random.exponential(3e6, 40) * (random.random(40) < random.choice([0.0, 0.0, 0.5]))
        times = tuple((np.array(side.times_ns) + waits).astype(int).tolist())
        seen = tuple((waits > 0).astype(int).tolist())
        return replace(side, block=replace(side.block, times_ns=times, switches=seen))

    made = [
        DuetRound(before=disturbed(each.before), after=disturbed(each.after))
        for each in rounds(float(random.uniform(0.6, 1.6)), count)
    ]
    shown = [m for m in latency_metrics(made, Gate()) if m.before is not None]
    assert shown
    for lower, higher in pairwise(shown):
        assert (lower.before or 0.0) <= (higher.before or 0.0)
        assert (lower.after or 0.0) <= (higher.after or 0.0)
    for each in shown:
        assert each.after == pytest.approx((each.before or 0.0) * (each.ratio or 0.0))


def test_percentiles_that_are_not_of_the_gate_are_shown_and_decide_nothing() -> None:
    gated = {m.name: m.gated for m in latency_metrics(rounds(1.1), Gate())}
    assert [name for name, is_gated in gated.items() if is_gated] == ["latency_p50", "latency_p95"]
    assert set(gated) >= {"latency_p90", "latency_p97", "latency_p99", "latency_p99.9"}


def test_a_percentile_without_enough_samples_is_inconclusive_and_has_no_value() -> None:
    found = metric(1.0, "latency_p99")
    assert (found.verdict, found.before, found.interval) == (Verdict.INCONCLUSIVE, None, None)


def test_one_metric_that_is_worse_decides_at_once() -> None:
    gate = Gate()
    pairs = rounds(1.2, count=6)
    assert gate.is_decided(pairs)
    assert not gate.is_decided(pairs[:2])


def test_between_two_looks_nothing_is_decided() -> None:
    pairs = rounds(1.2, count=9)
    assert [n for n in range(len(pairs) + 1) if Gate().is_decided(pairs[:n])] == [6, 9]


def test_an_unchanged_model_passes_before_an_alarm_may_be_raised() -> None:
    pairs = rounds(1.0, count=6)
    decided = [n for n in range(len(pairs) + 1) if Gate().divided(20).is_decided(pairs[:n])]
    assert decided == [4, 5, 6]


def test_no_round_is_the_last_before_the_median_of_the_whole_is_known() -> None:
    """It takes twelve samples: one a round for a slow model, so its parts are decided earlier."""

    def slow(side: Round) -> Round:
        return replace(side, block=replace(side.block, times_ns=side.block.times_ns[:1]))

    few = rounds(1.2, count=13)
    pairs = [DuetRound(before=slow(each.before), after=slow(each.after)) for each in few]
    assert [n for n in range(len(pairs) + 1) if Gate().is_decided(pairs[:n])] == [13]


def with_tail(ratio: float, count: int = 35, spread: float = 0.002) -> list[DuetRound]:
    """Rounds whose second side has a tail that is longer by this ratio, and the same median."""
    made = []
    for each in rounds(1.0, count, spread):
        ordered = sorted(each.after.times_ns)
        times = tuple(ordered[:36]) + tuple(round(ratio * ns) for ns in ordered[36:])
        made.append(
            replace(
                each, after=replace(each.after, block=replace(each.after.block, times_ns=times))
            )
        )
    return made


def test_a_tail_that_was_not_asked_for_leaves_no_case_open() -> None:
    few = rounds(1.0, count=4)
    p95 = next(m for m in latency_metrics(few, Gate()) if m.name == "latency_p95")

    assert (p95.gated, p95.awaited, p95.decides) == (True, False, p95.verdict is not OPEN)
    assert Gate().is_decided(few)
    assert not Gate(tolerances=read_tolerances({"p95": 0.001}, "here")).is_decided(few)


def test_a_tail_can_fail_a_case_and_is_looked_at_longer_while_it_looks_worse() -> None:
    gate = Gate().divided(5)
    found = with_tail(1.5)
    decided = [n for n in range(36) if gate.is_decided(found[:n])]

    assert decided[0] > 4
    p50, p95 = (
        next(m for m in latency_metrics(found, gate) if m.name == name)
        for name in ("latency_p50", "latency_p95")
    )
    assert (p50.verdict, p95.verdict, p95.allowed) == (Verdict.PASSED, Verdict.REGRESSED, 0.1)


def test_the_median_has_nine_tenths_of_the_level_and_the_other_figures_the_rest() -> None:
    gate = Gate()
    assert gate.rule(50.0).level == pytest.approx(0.009)
    # p95, load, first inference and memory.
    others = [gate.rule(95.0), *(gate.figure_rule(name) for name in ("load", "first", "memory"))]
    assert [rule.level for rule in others] == pytest.approx([0.00025] * 4)
    three = Gate(tolerances=read_tolerances({"p99": 0.2}, "here"))
    assert [three.rule(p).level for p in (50.0, 95.0, 99.0)] == pytest.approx(
        [0.009, 0.0002, 0.0002]
    )
    alone = Gate(tolerances=Tolerances(((50.0, 0.03),)), judges_starts=False)
    assert alone.rule(50.0).level == pytest.approx(0.01)


def starting(load: float, first: float, count: int, spread: float = 0.01) -> list[DuetRound]:
    """Rounds of the same latency whose second side takes `load` and `first` times as long to start.

    The first round is cold: its first side takes ten times as long to load.
    """
    random = np.random.RandomState(3)

    def changed(side: Round, load_ms: float, first_ms: float) -> Round:
        ns = [
            int(1e6 * ms * np.exp(spread * random.standard_normal())) for ms in (load_ms, first_ms)
        ]
        return replace(side, load_ns=ns[0], first_ns=ns[1])

    return [
        DuetRound(
            before=changed(each.before, 200.0 if number == 0 else 20.0, 2.0),
            after=changed(each.after, 20.0 * load, 2.0 * first),
        )
        for number, each in enumerate(rounds(1.0, count))
    ]


def start_verdicts(made: list[DuetRound], gate: Gate) -> dict[str, Verdict]:
    return {m.name: m.verdict for m in start_metrics(made, gate)}


def test_a_model_that_takes_twice_as_long_to_load_regressed_by_that_alone() -> None:
    made = starting(load=2.0, first=1.0, count=9)
    # Six rounds are too few at the level of one of several figures.
    assert [n for n in range(2, 10) if Gate().is_decided(made[:n])] == [9]
    assert Gate(judges_starts=False).is_decided(made[:4])
    load, first = start_metrics(made, Gate())
    assert (load.name, load.verdict, load.gated, load.awaited) == (
        "load_ms",
        Verdict.REGRESSED,
        True,
        False,
    )
    assert load.ratio == pytest.approx(2.0, rel=0.02)
    assert (load.before, load.after) == pytest.approx((20.0, 40.0), rel=0.02)
    assert (first.name, first.verdict) == ("first_inference_ms", Verdict.PASSED)


def test_the_cold_first_round_makes_no_load_look_improved() -> None:
    assert set(start_verdicts(starting(1.0, 1.0, count=9), Gate()).values()) == {Verdict.PASSED}
    cold = start_metrics(starting(1.0, 1.0, count=1), Gate())[0]
    assert cold.verdict is OPEN
    assert cold.before == pytest.approx(200.0, rel=0.1)


def test_a_start_that_stays_open_decides_nothing_unless_it_is_named() -> None:
    made = starting(load=1.0, first=1.0, count=9, spread=0.5)
    assert Gate().is_decided(made)
    load, _ = start_metrics(made, Gate())
    assert (load.verdict, load.decides) == (OPEN, False)
    named = Gate(tolerances=read_tolerances("load=0.15", "here"))
    assert not named.is_decided(made)
    assert start_metrics(made, named)[0].decides


def test_a_first_inference_may_be_as_much_slower_as_the_median() -> None:
    made = starting(load=1.0, first=1.3, count=13)
    wide = Gate(tolerances=read_tolerances(0.5, "here"))
    assert start_verdicts(made, Gate())["first_inference_ms"] is Verdict.REGRESSED
    assert start_verdicts(made, wide)["first_inference_ms"] is Verdict.PASSED
    named = Gate(tolerances=read_tolerances("p50=0.5,first=0.1", "here"))
    assert start_verdicts(made, named)["first_inference_ms"] is Verdict.REGRESSED


def test_a_difference_at_the_tolerance_is_measured_further() -> None:
    pairs = rounds(1.03, count=9)
    assert not Gate().is_decided(pairs)


def test_the_level_of_a_run_is_shared_by_its_cases() -> None:
    assert Gate().divided(5).level == pytest.approx(0.002)
    assert Gate().divided(5).rule(50.0).pass_level == Gate().rule(50.0).pass_level == 0.05


DOUBT = "its work depends on data (TopK)"


def fidelity(ratio: float, *, spread: float = 0.002) -> Fidelity:
    return judge_twin(Evidence(rounds(ratio, spread=spread)), DOUBT, has_same_plan=True)


def test_a_twin_with_the_plan_of_its_model_is_trusted_without_a_run() -> None:
    trusted = trust_by_plan()
    assert (trusted.is_trusted, trusted.has_same_plan, trusted.rounds) == (True, True, 0)
    assert not trusted.shows_difference


def test_a_doubtful_twin_has_to_be_shown_to_be_near() -> None:
    assert fidelity(1.0).is_trusted
    unclear = fidelity(1.0, spread=0.05)
    assert not unclear.is_trusted
    assert not unclear.shows_difference
    assert unclear.reason == (
        "the twin was not shown to run within 2 % of the model, and its work depends on data (TopK)"
    )


def test_a_twin_that_is_shown_to_differ_is_not_trusted() -> None:
    far = fidelity(1.05)
    assert (far.is_trusted, far.shows_difference) == (False, True)
    assert far.reason == (
        "the twin was shown to run more than 2 % slower than the model; "
        "its work depends on data (TopK)"
    )
    assert "faster" in (fidelity(0.95).reason or "")


def test_a_twin_is_decided_as_soon_as_it_is_near_or_far() -> None:
    gate = FidelityGate()
    for ratio in (1.0, 1.05):
        assert gate.is_decided(rounds(ratio))
    assert not gate.is_decided(rounds(1.0, spread=0.05))


def tries(*spreads: float) -> tuple[Evidence, list[int]]:
    """Return the evidence of tries with such spreads, and how many rounds each had before it."""
    left, earlier = iter(spreads), []

    def take(gate: FidelityGate) -> list[DuetRound]:
        earlier.append(len(gate.earlier))
        return rounds(1.0, count=gate.rounds, spread=next(left))

    return try_again(take(FidelityGate()), take), earlier


def test_a_twin_that_noise_hid_is_tried_again_and_judged_without_the_noise() -> None:
    """Other programs ran during its first duet, so its retrained model was open for good."""
    evidence, earlier = tries(0.2, 0.002)
    assert earlier == [0, 35]
    found = judge_twin(evidence, DOUBT, has_same_plan=True)
    assert (found.is_trusted, found.rounds, evidence.confidence) == (True, 35, 0.995)


def test_rounds_that_vary_alike_are_judged_together() -> None:
    assert not Evidence(rounds(1.0, count=35, spread=0.04)).is_shown
    evidence, earlier = tries(0.04, 0.04, 0.04)
    assert (evidence.is_shown, len(evidence.rounds), earlier[-1]) == (True, 105, 70)


def test_a_twin_is_tried_no_more_once_it_is_shown_to_be_near_and_given_up_if_no_try_shows_it() -> (
    None
):
    assert tries(0.002)[1] == [0]
    evidence, earlier = tries(0.9, 0.9, 0.9)
    assert (evidence.is_shown, earlier) == (False, [0, 35, 70])


def test_a_twin_that_is_shown_to_be_far_is_not_tried_again() -> None:
    def take(gate: FidelityGate) -> list[DuetRound]:
        raise AssertionError(gate)

    assert judge_twin(try_again(rounds(1.05), take), DOUBT, has_same_plan=True).shows_difference


def test_few_twins_are_trusted_that_are_just_so_far_off() -> None:
    random = np.random.default_rng(4)

    def take(gate: FidelityGate) -> tuple[DuetRound, ...]:
        ratios = FAR * np.exp(0.01 * random.standard_normal(gate.rounds))
        pairs = tuple(one_turn(float(ratio)) for ratio in ratios)
        decided = (n for n in range(4, gate.rounds) if gate.is_decided(pairs[:n]))
        return pairs[: next(decided, gate.rounds)]

    trusted = 0
    for _ in range(200):
        evidence = try_again(take(FidelityGate()), take)
        trusted += judge_twin(evidence, DOUBT, has_same_plan=False).is_trusted
    # 5 % of 200 are 10, and one run in a hundred has more than 18.
    assert trusted <= 18


FAR = 1.02


def one_turn(ratio: float) -> DuetRound:
    def side(time_ns: float) -> Round:
        block = Block(times_ns=(round(time_ns),), noise=Noise(wall_ns=1))
        return Round(load_ns=1, first_ns=1, warmup_runs=1, is_steady=True, block=block)

    return DuetRound(before=side(1e6), after=side(1e6 * ratio))


def test_a_percentile_that_today_has_too_few_samples_for_is_not_passed_over() -> None:
    process = store_process([make_round([1_000_000] * 40)])
    stored = StoredLatency(engine=make_engine("e"), model_sha256=None, processes=(process,) * 5)
    median, tail = stored_metrics(stored, summarize([[1_000_000] * 40] * 2, 1), Gate())
    assert (median.name, median.after) == ("latency_p50", 1.0)
    assert (tail.name, tail.after) == ("latency_p95", None)
    assert (tail.gated, tail.verdict) == (True, Verdict.INCONCLUSIVE)


def stored_starts(*load_ms: float, rounds: int = 3) -> StoredLatency:
    """A process for each time to load; the first inference takes twice as long."""
    return StoredLatency(
        engine=make_engine("e"),
        model_sha256=None,
        processes=tuple(store_process(started(each, rounds)) for each in load_ms),
    )


def store_process(rounds: Sequence[Round]) -> StoredProcess:
    return StoredProcess(
        date=dt.date(2026, 1, 31),
        load_ns=tuple(made.load_ns for made in rounds),
        first_ns=tuple(made.first_ns for made in rounds),
        peak_rss_bytes=None,
        layer_type_ns=None,
        samples=tuple(len(made.times_ns) for made in rounds),
        times_ns=tuple(made.times_ns for made in rounds),
    )


def started(load_ms: float, rounds: int = 3) -> tuple[Round, ...]:
    """Rounds of one process, the first of which is cold and takes five times as long."""
    times = [5 * load_ms, *([load_ms] * (rounds - 1))]
    return tuple(make_round([1_000_000], load_ms=ms, first_ms=2 * ms) for ms in times)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (9.9, Verdict.PASSED),
        (10.5, Verdict.PASSED),
        (14.0, Verdict.REGRESSED),
        (6.0, Verdict.IMPROVED),
        (11.5, Verdict.INCONCLUSIVE),
    ],
)
def test_starts_are_judged_by_the_recorded_processes(now: float, verdict: Verdict) -> None:
    gate = Gate(level=0.5)
    stored = stored_starts(9.8, 9.9, 10.0, 10.1, 10.2)
    load, first = stored_start_metrics(stored, started(now), gate)
    assert (load.name, first.name) == ("load_ms", "first_inference_ms")
    assert (load.before, load.after) == (10.0, now)
    assert (first.before, first.after) == (20.0, 2 * now)
    assert (load.verdict, first.verdict) == (verdict, verdict)
    assert load.allowed == 0.15
    assert not load.awaited
    (named, _) = stored_start_metrics(
        stored, started(now), Gate(tolerances=read_tolerances("load=0.15", "here"))
    )
    assert named.awaited is True


@pytest.mark.parametrize(
    ("stored", "now", "before", "after"),
    [
        (stored_starts(10, 10, 10, 10), started(10), 10, 10),
        (stored_starts(*[10] * 9, rounds=1), started(10), None, 10),
        (stored_starts(*[10] * 9), started(10, rounds=1), 10, None),
    ],
    ids=["few processes", "only cold ones", "only a cold one now"],
)
def test_starts_stay_open_if_too_few_were_recorded(
    stored: StoredLatency, now: tuple[Round, ...], before: float | None, after: float | None
) -> None:
    for metric, factor in zip(stored_start_metrics(stored, now, Gate()), (1, 2), strict=True):
        expected = [None if each is None else factor * each for each in (before, after)]
        assert [metric.before, metric.after] == expected
        assert (metric.verdict, metric.decides) == (Verdict.INCONCLUSIVE, False)
