"""What the benchmark of generations makes of its runs, and that its decoders differ as it says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import generate
import pytest
from generate import COMPARED, SLOWER, UNCHANGED, Added, Answer
from results import Moment, Result

from examples.generating.make_decoder import DecoderShape
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.request import ProfileRequest, profile_model

MOMENT = Moment(0.1, 5.0)


def _result(added: list[Added], answers: list[Answer]) -> Result:
    return Result(
        benchmark="generate",
        command="",
        date="2026-01-31",
        seconds=1.0,
        is_complete=True,
        before=MOMENT,
        after=MOMENT,
        machine={},
        versions={},
        rows={
            "steps": [asdict(each) for each in added],
            "answers": [asdict(each) for each in answers],
        },
    )


def _answer(change: str, phase: Phase, verdict: str) -> Answer:
    return Answer(
        pages="huge",
        change=change,
        phase=phase.value,
        verdict=verdict,
        ratio=1.05,
        spread=0.016,
        before_ms=2.1,
        rounds=9,
        seconds=2.0,
    )


@pytest.mark.parametrize(
    ("median_ns", "low", "high", "outcome"),
    [
        (1e6, 0.99, 1.009, "met"),
        (1e6, 1.005, 1.02, "not shown"),
        (1e6, 1.012, 1.02, "missed"),
        # 2 µs are 2 % of a step of 0.1 ms.
        (1e5, 1.012, 1.019, "met"),
        (1e5, 1.021, 1.03, "missed"),
    ],
)
def test_a_step_is_held_to_one_percent_or_two_microseconds(
    median_ns: float, low: float, high: float, outcome: str
) -> None:
    added = Added("small", "IOBinding", median_ns, (low + high) / 2, low, high, blocks=9)

    assert generate.expectations(_result([added], []))[0].outcome == outcome


def test_the_changed_phase_has_to_be_found_and_no_other() -> None:
    step, prefill = SLOWER[Phase.STEP], SLOWER[Phase.PREFILL]
    answers = [
        _answer(UNCHANGED, Phase.STEP, "passed"),
        _answer(step, Phase.STEP, "regressed"),
        _answer(step, Phase.PREFILL, "regressed"),
        _answer(prefill, Phase.PREFILL, "inconclusive"),
    ]

    alarms, *found = generate.expectations(_result([], answers))

    assert (alarms.found, alarms.is_met) == ("1 of 2", False)
    assert [(each.found, each.is_met) for each in found] == [("1 of 1", True), ("0 of 1", False)]


def test_each_decoder_does_more_in_one_phase_alone(tmp_path: Path) -> None:
    """5 % more multiplications in the phase that is slower, and next to none in the other."""
    request = ProfileRequest(generations=(COMPARED,))

    def macs(path: Path) -> dict[Phase, int]:
        cases = profile_model(path, request).cases
        return {each.case.phase.phase: each.static.macs for each in cases if each.case.phase}

    paths = generate.write_variants(tmp_path, DecoderShape(2, 128, 8, 4, 500))
    before = macs(paths["before"])

    assert macs(paths[UNCHANGED]) == before
    for slower, change in SLOWER.items():
        after = macs(paths[change])
        for phase in Phase:
            share = 0.05 if phase is slower else 0.0
            assert after[phase] / before[phase] == pytest.approx(1.0 + share, abs=1e-3)


def test_a_row_says_what_was_found_of_a_phase() -> None:
    answers = [
        _answer(SLOWER[Phase.STEP], Phase.STEP, verdict)
        for verdict in ("regressed", "regressed", "inconclusive", "passed")
    ]

    (row,) = generate.tables(_result([], answers))["generate verdicts"].splitlines()[2:]

    assert row == "| huge | step +5 % | step | 2.10 ms | +5.0 % | 1.6 % | 2 | 1 | 1 | 2.0 s |"
