"""Memory that grows with every inference, and how it is distinguished from memory that does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.doctor.checkup import GROWTH_LEVEL, find_growth, measure_growth
from pytest_modelperf.profiler.doctor.records import CHECKUPS, Checkups
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import Block, Load, Noise
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.budgets import compare_with_limit
from pytest_modelperf.stats.decisions import BudgetAnswer
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.stats.robust import growth_of
from tests.profiler.doctor.test_document import CHECKUP, shown
from tests.support.profiles import MACHINE
from tests.support.timed_models import write_timed

# The step in which the allocator of the system asks for memory.
STEP = 132 << 10


class FakeRig(Struct):
    """A model whose memory grows by `leak` bytes an inference, which is seen in steps."""

    leak: float
    turn_ns: int = 1_000_000
    has_memory: bool = True
    done: int = 0
    step: str = ""
    setup: Setup = Setup()
    is_open: bool = False

    @property
    def worker(self) -> FakeRig:
        return self

    def open(self) -> tuple[Load]:
        self.is_open = True
        return (Load(1),)

    def close(self) -> None:
        self.is_open = False

    def take(self, count: int, max_ns: int) -> tuple[Block]:
        assert self.is_open
        assert max_ns > count * self.turn_ns
        self.done += count
        return (Block(times_ns=(self.turn_ns,) * count, noise=Noise(wall_ns=1)),)

    def ask(self, command: str, step: str) -> dict[str, Any]:
        assert (command, step) == ("memory", self.step)
        size = (50 << 20) + int(self.leak * self.done) // STEP * STEP
        return {"rss_bytes": size if self.has_memory else None}


def found(rig: FakeRig) -> Growth:
    return find_growth(rig, GROWTH_LEVEL)  # type: ignore[arg-type]  # as much of a rig as it takes


def test_a_leak_of_a_kilobyte_an_inference_is_shown() -> None:
    rig = FakeRig(leak=1000)
    growth = found(rig)
    assert growth.is_shown
    assert growth.bytes_per_inference == pytest.approx(1000, rel=0.1)
    assert (growth.inferences, rig.is_open) == (3000, False)


def test_memory_that_stays_shows_no_growth() -> None:
    growth = found(FakeRig(leak=0))
    assert (growth.is_shown, growth.bytes_per_inference) == (False, 0.0)
    # A step that was not reached yet may be hidden.
    assert growth.high == pytest.approx(STEP / 3000)


def test_a_slow_model_gets_the_inferences_that_the_time_is_enough_for() -> None:
    # Ten seconds are a hundred inferences, in blocks of six.
    growth = found(FakeRig(leak=1000, turn_ns=100_000_000))
    assert growth.inferences == 72
    assert not growth.is_shown
    assert growth.high > 1000


def test_a_platform_that_does_not_measure_memory_is_an_error() -> None:
    with pytest.raises(MeasureError, match="does not report how much memory"):
        found(FakeRig(leak=0, has_memory=False))


def test_a_single_jump_is_not_shown_as_growth() -> None:
    assert not growth_of([0] * 6 + [1 << 24] * 7, 250, GROWTH_LEVEL).is_shown


@given(st.lists(st.integers(0, 1 << 30), min_size=3, max_size=13), st.floats(0.0, 1e6))
def test_a_growth_is_in_its_interval_and_keeps_to_a_limit_above_it(
    sizes: Sequence[int], limit: float
) -> None:
    growth = growth_of(sizes, 10, GROWTH_LEVEL)
    assert growth.low <= growth.bytes_per_inference <= growth.high
    answer = compare_with_limit(growth.low, growth.high, limit)
    assert (answer is BudgetAnswer.OVER) == (growth.low > limit)
    assert (answer is BudgetAnswer.WITHIN) == (growth.high < limit)


LEAKING = """
held = []

def describe(options):
    return {"name": "leaking", "version": "1", "options": options, "providers": []}

def load(model, threads, options):
    return Session(int(options.get("leak", "0")))

class Session:
    def __init__(self, leak):
        self.leak = leak

    def prepare(self, inputs, dtypes):
        return lambda: held.append(bytes(bytearray(self.leak)) if self.leak else None)

    def peak_bytes(self):
        return None

    def close(self):
        pass
"""


def test_an_engine_that_keeps_memory_is_found_in_a_real_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaking_engine.py").write_text(LEAKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_timed(tmp_path / "m.onnx")
    model = prepare(Model.load(tmp_path / "m.onnx", ProfileRequest(), Extensions()))
    engine = EngineModule("leaking", "leaking_engine")
    place = CasePlace(model.case(1), 1, 1, lambda _: None)
    growth = measure_growth(model, Setup(engine=engine, options={"leak": "20000"}), place)
    assert growth.is_shown
    assert growth.low > 15_000
    kept = measure_growth(model, Setup(engine=engine), place)
    # A list of nothing takes some bytes an item.
    assert kept.high < 500


def test_the_doctor_says_whether_memory_grows() -> None:
    growth = Growth(
        inferences=3000, bytes_per_inference=1040.0, low=980.0, high=1100.0, confidence=0.99
    )
    text = shown(replace(CHECKUP, growth=growth))
    assert "memory on 1 core: grows by 1.04 KB with every inference" in text
    none = replace(growth, bytes_per_inference=0.0, low=-10.0, high=10.0)
    text = shown(replace(CHECKUP, growth=none))
    assert "memory on 1 core: no growth shown in 3,000 inferences" in text
    short = replace(none, high=5000.0)
    text = shown(replace(CHECKUP, growth=short))
    assert "--max-seconds makes time for more" in text
    document = CHECKUPS.dump(Checkups(MACHINE, (replace(CHECKUP, growth=growth), CHECKUP)))
    assert document.count('"growth": null') == 1
