"""The rounds of two sets of options on real workers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pytest_modelperf.profiler.hookspecs import load_extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.tuning.race import Duets, Visit
from pytest_modelperf.tuning.records import OptionSet
from tests.support.small_models import parse
from tests.support.ssh import HOST, put_in_place_of_ssh

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
