"""The race: who leaves when, what a failure ends, and what little time leaves undone."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.race import RaceRule, Standing, standing_of
from pytest_modelperf.tuning.race import Duets, Lane, Visit, run_race
from pytest_modelperf.tuning.records import OptionSet
from tests.support.small_models import parse
from tests.support.ssh import HOST, put_in_place_of_ssh
from tests.support.tunings import FakeDuets, option_sets

RULE = RaceRule()


def race(duets: FakeDuets, *names: str, seconds: float = 10_000) -> list[Lane]:
    sets = option_sets(*names)
    rule = RULE.of_stage(len(sets))
    return run_race(sets, duets.visit, rule, lambda _: seconds - duets.now, random.Random(1))


def standings(lanes: list[Lane]) -> list[Standing | None]:
    return [None if lane.decision is None else standing_of(lane.decision) for lane in lanes]


def test_the_poor_and_the_fast_leave_early_and_equals_a_little_later() -> None:
    lanes = race(FakeDuets({"slow=1": 0.5, "fast=1": 2.0}), "slow=1", "fast=1", "equal=1")
    assert standings(lanes) == [Standing.SLOWER, Standing.FASTER, Standing.ALIKE]
    assert [len(lane.rounds) for lane in lanes[:2]] == [9, 9]
    assert len(lanes[2].rounds) < 35


def test_the_first_pass_keeps_the_order_and_divides_the_time() -> None:
    duets = FakeDuets()
    race(duets, "a=1", "b=1", "c=1", seconds=300)
    first = [visit for visit in duets.visits if visit.number == 0]
    assert [visit.option_set.name for visit in first] == ["a=1", "b=1", "c=1"]
    assert [round(visit.seconds) for visit in first] == [100, 148, 292]


def test_a_set_that_does_not_run_ends_its_own_race_alone() -> None:
    lanes = race(FakeDuets({"a=1": 2.0}, broken=["b=1"]), "b=1", "a=1")
    assert standings(lanes) == [None, Standing.FASTER]
    assert str(lanes[0].error) == "b=1 does not run"


def test_without_time_the_last_are_not_tried_and_the_others_stay_open() -> None:
    lanes = race(FakeDuets(), "a=1", "b=1", "c=1", seconds=7)
    assert standings(lanes) == [Standing.OPEN, Standing.OPEN, None]


def test_noise_leaves_a_small_gain_open() -> None:
    (lane,) = race(FakeDuets({"a=1": 1.02}, spread=0.1), "a=1")
    assert (standings([lane]), len(lane.rounds)) == ([Standing.OPEN], 35)


MODEL = parse("g (float[4] x) => (float[4] y) { y = Abs(x) }")


def test_the_machine_is_the_one_that_the_options_ran_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_ssh(tmp_path, monkeypatch)
    extensions = load_extensions(["tests.support.faulty_plugin"])
    setup = Setup(engine=extensions.engines.find("timed"), spec=HOST)
    model = Model.load(MODEL, ProfileRequest(), extensions)
    duets = Duets(prepare(model), setup, CasePlace(model.case(1), 1, 1, lambda _: None))
    with closing(duets):
        rounds = duets.visit(Visit(OptionSet({"a": "1"}), 1, 10.0, 0))
    assert len(rounds) == 1
    assert duets.machine is not None
