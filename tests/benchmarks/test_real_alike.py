"""The expectations on real models that were timed against equal ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from loads import BUSY, QUIET
from real_alike import expectations, plan_comparisons, tables
from real_results import UNCHANGED, Compared, Setting
from results import Result

from tests.support.benchmark_results import result_of

PASSED = Compared(
    QUIET, 1, "lstm", UNCHANGED, "passed", "passed", "passed", 2.0, 9, 1.0, 0.99, 1.01
)


def result(*made: Compared) -> Result:
    return result_of("real_alike", {"comparisons": [asdict(each) for each in made]})


def test_models_take_turns_under_each_load() -> None:
    options = argparse.Namespace(
        loads=(QUIET, BUSY), repetitions=2, models=("a", "b"), cores=(1, 2)
    )
    plan = plan_comparisons(options)
    assert len(plan) == 16
    assert plan[:3] == [
        Setting(QUIET, 1, "a", UNCHANGED),
        Setting(QUIET, 2, "a", UNCHANGED),
        Setting(QUIET, 1, "b", UNCHANGED),
    ]
    assert {each.machine for each in plan[8:]} == {BUSY}


def test_each_load_has_a_line_and_the_sentence_says_what_all_of_them_show() -> None:
    busy = replace(PASSED, machine=BUSY, cores=2, model="vit_6", verdict="inconclusive")
    found = tables(result(PASSED, PASSED, busy))
    assert found["real alike"].splitlines()[2:] == [
        "| quiet | 1 | 1 | 2 | 2 | 0 | 0 | 0 |",
        "| both busy | 2 | 1 | 1 | 0 | 0 | 0 | 1 |",
    ]
    assert found["real alike glance"] == (
        '2 real models were timed although the plan was unchanged (`measure = "always"`; quiet '
        "and both busy; 2026-11-22, A processor, 2 cores). Of 3 timed comparisons 0 raised a false "
        "alarm: the rate is at most 63 % (95 % confidence). 1 gave no answer (both busy)."
    )


def test_an_alarm_and_too_few_comparisons_or_models_are_missed() -> None:
    outcomes = [each.outcome for each in expectations(result(replace(PASSED, verdict="regressed")))]
    assert outcomes == ["missed", "missed", "missed"]
    many = [replace(PASSED, model=str(number % 20)) for number in range(200)]
    assert [each.outcome for each in expectations(result(*many))] == ["met"] * 3
