"""Tunings without an engine: rounds drawn from speedups, on a clock that only rounds move."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measurements import Block, DuetRound, EngineFacts, Noise, Round
from pytest_modelperf.profiler.model_in_worker import CasePlace, Sent
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.duet import DuetRule
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.tuning.race import Visit
from pytest_modelperf.tuning.records import (
    Confirmation,
    OptionSet,
    SideCosts,
    Tried,
    TunedCase,
    Tuning,
    TuningLimits,
)
from tests.support.facts import make_model
from tests.support.profiles import MACHINE

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
    """A model with a speedup for each option; options together multiply.

    `speedups` are by option, as `a=1`, and `confirmed` those in fresh processes, where they
    differ. `broken` options do not run, and those in `unmeasured` not where their memory is
    measured. `again` is what the baseline gives in another process; None: it does not run there. A
    round takes a second of `now`.
    """

    speedups: Mapping[str, float] = field(default_factory=dict)
    confirmed: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    broken: Sequence[str] = ()
    unmeasured: Sequence[str] = ()
    spread: float = 0.01
    again: float | None = 1.0
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
        if self.again is None:
            raise MeasureError("the baseline was ended")
        return sent(self.again)

    def memory_of(self, option_set: OptionSet) -> int | None:
        if option_set.name in self.unmeasured:
            raise MeasureError(f"{option_set.name} was ended")
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


def make_tuning(case: TunedCase | None = None, **fields: Any) -> Tuning:  # noqa: ANN401  # fields of any type
    """A tuning of one case."""
    known = {
        "model": make_model("net.onnx"),
        "machine": MACHINE,
        "engine": FACTS,
        "cases": (case or make_tuned_case(),),
        "limits": TuningLimits(),
        "least_gain": 0.02,
        "confidence": 0.99,
        "outputs_tolerance": 0.001,
        "seconds": 61.2,
    }
    return Tuning(**{**known, **fields})


def make_tuned_case(**fields: Any) -> TunedCase:  # noqa: ANN401  # likewise
    """A case with a winner and one set of options of each other kind."""
    fastest, slower, other, broken, unseen = option_sets(
        "graph_optimization_level=all", "enable_mem_pattern=0", "fast_math=1", "no_such=1", "late=1"
    )
    known = {
        "case": Case(1, 2),
        "given": {"graph_optimization_level": "none"},
        "tried": (
            Tried(
                option_set=slower,
                standing=Standing.SLOWER,
                speedup=Ratio(0.8, 0.75, 0.86),
                rounds=9,
            ),
            Tried(
                option_set=fastest, standing=Standing.FASTER, speedup=Ratio(1.4, 1.3, 1.5), rounds=9
            ),
            Tried(
                option_set=other,
                standing=Standing.FASTER,
                speedup=Ratio(1.9, 1.8, 2.0),
                rounds=9,
                outputs=Metric("outputs", 0.0, 0.25, Verdict.REGRESSED, allowed=0.001),
                output_changes=(OutputChange(name="y", max_absolute=0.25, largest=1.0),),
                refusal="its outputs differ by 25 % of their largest value, allowed 0.1 %",
            ),
            Tried(option_set=broken, failure="onnxruntime has no session option 'no_such'"),
            Tried(option_set=unseen),
        ),
        "baseline": SideCosts(p50_ms=14.0, load_ms=30.0, memory_bytes=2_000_000),
        "winner": fastest,
        "winner_costs": SideCosts(p50_ms=10.0, load_ms=45.0, memory_bytes=1_000_000),
        "winner_engine": replace(
            FACTS, options={**FACTS.options, "graph_optimization_level": "all"}
        ),
        "equals": ("execution_mode=sequential",),
        "confirmations": (
            Confirmation(
                name=fastest.name,
                is_shown=True,
                speedup=Ratio(1.41, 1.35, 1.47),
                rounds=9,
                detectable=0.03,
            ),
        ),
        "most_gain": 0.5,
        "notes": ("there was no time for late=1: --max-seconds makes more",),
    }
    return TunedCase(**{**known, **fields})


def make_tried(option_set: OptionSet, standing: Standing, speedup: Ratio) -> Tried:
    return Tried(option_set=option_set, standing=standing, speedup=speedup, rounds=9)


def nothing_helps() -> TunedCase:
    """A case whose only candidate looked faster and was denied."""
    (slow,) = option_sets("enable_mem_pattern=0")
    tried = Tried(
        option_set=slow, standing=Standing.ALIKE, speedup=Ratio(1.0, 0.99, 1.01), rounds=9
    )
    denied = Confirmation(
        name=slow.name, is_shown=False, speedup=Ratio(1.01, 0.98, 1.04), rounds=35, detectable=0.04
    )
    return make_tuned_case(
        tried=(tried,), winner=None, winner_costs=None, winner_engine=None, equals=(),
        confirmations=(denied,), most_gain=0.013, notes=(),
    )  # fmt: skip
