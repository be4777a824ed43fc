"""The stages of a tuning, on a model whose speedups are known: what is recommended."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import Sent
from pytest_modelperf.tuning.race import Visit
from pytest_modelperf.tuning.records import OptionSet, TunedCase, TuningLimits
from pytest_modelperf.tuning.report import OUTPUTS_VARY
from pytest_modelperf.tuning.tuned import Countdown, TuningTerms, tune_case
from tests.support.known import known
from tests.support.tunings import FakeDuets, option_sets


def tune(
    duets: FakeDuets, *names: str, limits: TuningLimits | None = None, seconds: float = 10_000
) -> TunedCase:
    terms = TuningTerms(limits=limits or TuningLimits())
    return tune_case(duets, option_sets(*names), terms, Countdown(seconds, duets.clock))


def test_options_that_help_alone_are_combined_and_confirmed_against_the_baseline() -> None:
    duets = FakeDuets({"a=1": 1.3, "b=1": 1.2}, memory={"": 2000, "a=1, b=1": 1000})
    case = tune(duets, "a=1", "b=1", "c=1")
    assert case.winner == OptionSet({"a": "1", "b": "1"})
    assert case.confirmed is not None
    assert case.confirmed.speedup is not None
    assert case.confirmed.speedup.value == pytest.approx(1.56, rel=0.02)
    assert known(case.confirmed.speedup.low) > 1.0
    assert duets.met[-1] == ("a=1, b=1", "")
    assert case.winner_costs is not None
    assert case.winner_costs.p50_ms == pytest.approx(10 / 1.56, rel=0.02)
    assert case.baseline.p50_ms == pytest.approx(10, rel=0.02)
    assert (case.winner_costs.memory_bytes, case.baseline.memory_bytes) == (1000, 2000)


def test_more_options_lead_only_if_they_are_shown_faster_than_fewer() -> None:
    """The second option gains nothing in addition to the first, so it is not recommended."""
    duets = FakeDuets({"a=1": 1.3})
    case = tune(duets, "a=1", "a=1+b=1")
    assert case.winner == OptionSet({"a": "1"})
    assert case.equals == ("a=1, b=1",)
    assert ("a=1, b=1", "a=1") in duets.met


def test_a_set_that_the_contest_shows_to_be_slower_does_not_count_as_equal() -> None:
    """Both intervals of the race overlap, and in direct comparison the second is 5 % slower."""
    duets = FakeDuets({"a=1": 1.3, "a=2": 1.235})
    case = tune(duets, "a=1", "a=2+b=1")
    assert ("a=2, b=1", "a=1") in duets.met
    assert case.winner == OptionSet({"a": "1"})
    assert case.equals == ()


def test_without_a_winner_the_answer_has_the_gain_it_would_have_seen() -> None:
    case = tune(FakeDuets({"a=1": 0.8}), "a=1", "b=1")
    assert case.winner is None
    assert 0.0 <= known(case.most_gain) <= 0.02
    assert case.baseline.p50_ms == pytest.approx(10, rel=0.02)


def test_a_gain_of_the_race_that_fresh_processes_deny_is_not_recommended() -> None:
    case = tune(FakeDuets({"a=1": 1.3}, confirmed={"a=1": 1.0}), "a=1", "b=1")
    assert case.winner is None
    (denied,) = case.confirmations
    assert (denied.name, denied.is_shown) == ("a=1", False)
    assert denied.detectable is not None


def test_the_next_best_is_confirmed_if_the_best_is_rejected() -> None:
    duets = FakeDuets({"a=1": 1.5, "b=1": 1.2}, confirmed={"a=1": 0.8})
    case = tune(duets, "a=1", "b=1")
    assert [each.name for each in case.confirmations] == ["a=1, b=1", "a=1"]
    assert case.winner is None


def test_faster_with_other_outputs_does_not_count_as_a_gain() -> None:
    duets = FakeDuets({"a=1": 2.0, "b=1": 1.3}, values={"a=1": 1.1})
    case = tune(duets, "a=1", "b=1")
    assert case.winner == OptionSet({"b": "1"})
    assert case.tried[0].refusal == (
        "its outputs differ by 10 % of their largest value, allowed 0.1 %"
    )
    assert all("a=1" not in each.name for each in case.confirmations)


def test_outputs_that_vary_by_themselves_are_not_compared() -> None:
    duets = FakeDuets({"a=1": 2.0}, values={"a=1": 1.1}, again=0.9)
    case = tune(duets, "a=1")
    assert case.winner == OptionSet({"a": "1"})
    assert OUTPUTS_VARY in case.notes


class WithoutOutputs(FakeDuets):
    """The engine returns no outputs, or only their types."""

    output: Mapping[str, Sent] | None = None

    def visit(self, visit: Visit) -> list[DuetRound]:
        rounds = super().visit(visit)
        self.outputs = dict.fromkeys(self.outputs, self.output)
        return rounds


def test_a_winner_whose_outputs_were_not_compared_has_a_note() -> None:
    duets = WithoutOutputs({"a=1": 2.0})
    case = tune(duets, "a=1")
    assert case.winner == OptionSet({"a": "1"})
    (note,) = case.notes
    assert note == (
        "it is unknown whether a=1 changes the outputs: the engine does not return the outputs of "
        "a model. Compare them yourself"
    )
    duets.output = {"y": ("object", (1,), None)}
    (note,) = tune(duets, "a=1").notes
    assert "changes the outputs: not compared: no numbers, or more than 64.00 MiB" in note
    assert tune(FakeDuets({"a=1": 2.0}), "a=1").notes == ()


def test_outputs_that_cannot_be_read_again_do_not_end_the_case() -> None:
    duets = FakeDuets({"a=1": 2.0, "b=1": 1.3}, values={"a=1": 1.1}, again=None)
    case = tune(duets, "a=1", "b=1")
    assert case.winner == OptionSet({"b": "1"})
    assert case.tried[0].refusal is not None
    assert any("the baseline was ended" in note for note in case.notes)


def test_a_limit_of_memory_excludes_what_takes_more() -> None:
    duets = FakeDuets({"a=1": 1.3}, memory={"": 100, "a=1": 2_000_000})
    case = tune(duets, "a=1", limits=TuningLimits(memory_bytes=1_000_000))
    assert (case.winner, case.confirmations) == (None, ())
    assert case.tried[0].refusal == "it takes 1.907 MiB of memory, allowed 976.6 KiB"
    assert case.baseline.memory_bytes == 100
    duets = FakeDuets({"a=1": 1.3}, memory={"": 100, "a=1": 900_000})
    assert tune(duets, "a=1", limits=TuningLimits(memory_bytes=1_000_000)).winner is not None


def test_a_winner_stays_one_if_its_memory_cannot_be_measured() -> None:
    duets = FakeDuets({"a=1": 1.3}, memory={"": 100}, unmeasured=["a=1"])
    case = tune(duets, "a=1")
    assert case.winner == OptionSet({"a": "1"})
    assert (known(case.winner_costs).memory_bytes, case.baseline.memory_bytes) == (None, 100)
    assert any("a=1 was ended" in note for note in case.notes)
    limited = tune(duets, "a=1", limits=TuningLimits(memory_bytes=1000))
    assert (limited.winner, limited.tried[0].refusal is None) == (None, False)


def test_a_limit_of_latency_excludes_what_is_not_shown_to_keep_it() -> None:
    speedups = {"a=1": 1.3}
    case = tune(FakeDuets(speedups), "a=1", limits=TuningLimits(latency_ms=5.0))
    assert case.winner is None
    assert case.tried[0].refusal == "its median latency is not shown to be within 5 ms"
    assert tune(FakeDuets(speedups), "a=1", limits=TuningLimits(latency_ms=8.0)).winner is not None


def test_options_that_fail_have_their_reason_and_the_others_go_on() -> None:
    case = tune(FakeDuets({"a=1": 1.3}, broken=["b=1"]), "b=1", "a=1")
    assert case.tried[0].failure == "b=1 does not run"
    assert case.winner == OptionSet({"a": "1"})


def test_a_model_that_runs_with_no_options_fails() -> None:
    with pytest.raises(MeasureError, match="a=1 does not run"):
        tune(FakeDuets(broken=["a=1"]), "a=1")


def test_sets_without_enough_time_are_named() -> None:
    case = tune(FakeDuets(), "a=1", "b=1", "c=1", seconds=8)
    assert case.notes == ("there was no time for c=1: a longer time limit makes more",)


class SlowSessions(FakeDuets):
    """A visit has time for a single round, which takes 4 s."""

    def visit(self, visit: Visit) -> list[DuetRound]:
        self.now += 3
        return super().visit(replace(visit, rounds=1))


def test_single_options_go_on_if_none_of_them_could_be_confirmed() -> None:
    case = tune(SlowSessions({"c=1": 1.4}), "a=1", "b=1", "c=1", "d=1", seconds=56)

    # By the end of the usual share each had two rounds.
    assert max(each.rounds for each in case.tried) == 3
    assert known(case.confirmed).name == "c=1"
