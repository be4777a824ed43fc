"""What the gate says of the rounds of a duet, without running any."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from pytest_modelperf.baseline_records import StoredLatency, StoredProcess, StoredRound
from pytest_modelperf.gates import (
    Gate,
    is_faithful,
    judge_fidelity,
    latency_metrics,
    stored_metrics,
)
from pytest_modelperf.limits import Tolerances
from pytest_modelperf.measurements import Block, DuetRound, EngineFacts, Noise, Round
from pytest_modelperf.stats import summarize
from pytest_modelperf.verdicts import Metric, Verdict


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
    assert found.interval is not None
    low, high = found.interval
    assert low < ratio < high
    assert (found.gated, found.allowed) == (True, 0.03)


def test_values_are_in_milliseconds_and_come_from_all_rounds() -> None:
    found = metric(1.1)
    assert found.before == pytest.approx(1.0, rel=0.01)
    assert found.after == pytest.approx(1.1, rel=0.01)


def test_percentiles_that_are_not_of_the_gate_are_shown_and_decide_nothing() -> None:
    gated = {m.name: m.gated for m in latency_metrics(rounds(1.1), Gate())}
    assert [name for name, is_gated in gated.items() if is_gated] == ["latency_p50", "latency_p95"]
    assert set(gated) >= {"latency_p90", "latency_p97", "latency_p99", "latency_p99.9"}


def test_a_percentile_without_enough_samples_is_inconclusive_and_has_no_value() -> None:
    found = metric(1.0, "latency_p99")
    assert (found.verdict, found.before, found.interval) == (Verdict.INCONCLUSIVE, None, None)


def test_one_metric_that_is_worse_decides_at_once() -> None:
    gate = Gate()
    pairs = [(r.before.block, r.after.block) for r in rounds(1.2, count=6)]
    assert gate.is_decided(pairs)
    assert not gate.is_decided(pairs[:2])


def test_between_two_looks_nothing_is_decided() -> None:
    pairs = [(r.before.block, r.after.block) for r in rounds(1.2, count=9)]
    assert [n for n in range(len(pairs) + 1) if Gate().is_decided(pairs[:n])] == [6, 9]


def test_what_lies_at_the_tolerance_goes_on() -> None:
    pairs = [(r.before.block, r.after.block) for r in rounds(1.03, count=9)]
    assert not Gate().is_decided(pairs)


def test_the_level_of_a_run_is_shared_by_its_metrics() -> None:
    assert Gate().divided(5).level == pytest.approx(0.001)
    assert Gate(tolerances=Tolerances(((50.0, 0.03),))).divided(1).level == pytest.approx(0.01)


def test_a_twin_is_trusted_only_where_it_is_shown_to_run_like_its_model() -> None:
    near, far, unclear = rounds(1.0), rounds(1.05), rounds(1.0, spread=0.05)
    assert judge_fidelity(near).is_trusted
    assert judge_fidelity(near).reason is None
    for each in (far, unclear):
        assert not judge_fidelity(each).is_trusted
        assert "within 1 %" in (judge_fidelity(each).reason or "")


def test_it_is_known_of_a_twin_as_soon_as_it_is_near_or_far() -> None:
    pairs = {
        ratio: [(r.before.block, r.after.block) for r in rounds(ratio)] for ratio in (1.0, 1.05)
    }
    assert all(is_faithful(each) for each in pairs.values())
    noisy = [(r.before.block, r.after.block) for r in rounds(1.0, spread=0.05)]
    assert not is_faithful(noisy)


def test_a_percentile_that_today_has_too_few_samples_for_is_not_passed_over() -> None:
    made = StoredRound(load_ns=1, first_ns=1, samples=40, times_ns=(1_000_000,) * 40)
    process = StoredProcess(date=dt.date(2026, 1, 31), rounds=(made,))
    stored = StoredLatency(
        id="b1-c1", engine=EngineFacts("e"), model_sha256=None, processes=(process,) * 5
    )
    median, tail = stored_metrics(stored, summarize([[1_000_000] * 40] * 2, 1), Gate())
    assert (median.name, median.after) == ("latency_p50", 1.0)
    assert (tail.name, tail.after) == ("latency_p95", None)
    assert (tail.gated, tail.verdict) == (True, Verdict.INCONCLUSIVE)
