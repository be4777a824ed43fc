"""Tunings without an engine: rounds drawn from speedups, on a clock that only rounds move."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, EngineFacts, Noise, Round
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.outputs import Sent
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.duet import DuetRule
from pytest_modelperf.tuning.race import Visit
from pytest_modelperf.tuning.records import OptionSet

MS = 1_000_000
TURNS = 6
FACTS = EngineFacts(
    name="onnxruntime",
    version="1.32.0",
    python="3.11",
    options={"session.force_spinning_stop": "1"},
    providers=("CPUExecutionProvider",),
)


def sent(value: float) -> Mapping[str, Sent]:
    return {"y": ("float32", (1,), np.float32(value).tobytes())}


def option_sets(*names: str) -> list[OptionSet]:
    """`a=1+b=2` sets two options."""
    return [OptionSet(dict(part.split("=") for part in name.split("+"))) for name in names]


@dataclass
class FakeDuets:
    """A model that is so many times as fast with each option; options together multiply.

    `speedups` are by option, as `a=1`, and `confirmed` those in fresh processes, where they
    differ. `broken` options do not run. A round takes a second of `now`.
    """

    speedups: Mapping[str, float] = field(default_factory=dict)
    confirmed: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    broken: Sequence[str] = ()
    spread: float = 0.01
    again: float = 1.0
    now: float = 0.0
    setup: Setup = field(default_factory=Setup)
    place: CasePlace = field(default_factory=lambda: CasePlace(Case(1, 2), 1, 1, lambda _: None))
    against: OptionSet = field(default_factory=lambda: OptionSet({}))
    facts: dict[str, EngineFacts] = field(default_factory=dict)
    outputs: dict[str, Mapping[str, Sent] | None] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)
    met: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(1)  # noise, no secret

    def clock(self) -> float:
        return self.now

    def visit(self, visit: Visit) -> list[DuetRound]:
        own = visit.option_set
        self.visits.append(visit)
        if set(_parts(own)) & set(self.broken):
            raise MeasureError(f"{own.name} does not run")
        for each in (own, self.against):
            self.outputs[each.name] = sent(
                max((self.values.get(part, 1.0) for part in _parts(each)), default=1.0)
            )
            self.facts[each.name] = FACTS
        return self._rounds(own, visit.rounds, self.speedups)

    def confirm(self, winner: OptionSet, rule: DuetRule, seconds: float) -> list[DuetRound]:
        assert seconds > 0
        return self._rounds(winner, rule.looks[-1], {**self.speedups, **self.confirmed})

    def read_again(self) -> Mapping[str, Sent] | None:
        return sent(self.again)

    def memory_of(self, option_set: OptionSet) -> int | None:
        return self.memory.get(option_set.name)

    def _rounds(self, own: OptionSet, count: int, speedups: Mapping[str, float]) -> list[DuetRound]:
        self.now += count
        self.met.append((own.name, self.against.name))
        times = [10 * MS / _speedup(each, speedups) for each in (own, self.against)]
        return [
            DuetRound(before=self._side(times[0]), after=self._side(times[1])) for _ in range(count)
        ]

    def _side(self, typical_ns: float) -> Round:
        session = self._random.gauss(1.0, self.spread)
        times = tuple(
            round(typical_ns * session * self._random.gauss(1.0, self.spread / 4))
            for _ in range(TURNS)
        )
        block = Block(times_ns=times, noise=Noise(wall_ns=sum(times)))
        return Round(load_ns=20 * MS, first_ns=times[0], warmup_runs=0, is_steady=True, block=block)


def _parts(option_set: OptionSet) -> list[str]:
    return [f"{key}={value}" for key, value in option_set.options.items()]


def _speedup(option_set: OptionSet, speedups: Mapping[str, float]) -> float:
    product = 1.0
    for part in _parts(option_set):
        product *= speedups.get(part, 1.0)
    return product
