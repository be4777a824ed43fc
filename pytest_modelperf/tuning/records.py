"""The records of a tuning: its candidates, the standing of each, and the winner with its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from pytest_modelperf.comparing.changes import OUTPUT, Interval, OutputChange
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import ENGINE, EngineFacts
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.notebook import Shown
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.stats.records import Ratio

REFUSED, FAILED, UNSEEN = "not the same", "not possible", "not tried"


class OptionSet(Struct, frozen=True):
    """Options of an engine to try together, in addition to those that the user gave.

    With `needs_process`, some apply to a whole process, so sessions with others cannot share it.
    """

    options: Mapping[str, str]
    needs_process: bool = False

    @property
    def name(self) -> str:
        """The name: `execution_mode=parallel, inter_op_num_threads=2`."""
        return ", ".join(f"{key}={value}" for key, value in self.options.items())

    def merged(self, other: OptionSet) -> OptionSet:
        return OptionSet(
            {**self.options, **other.options}, self.needs_process or other.needs_process
        )


class Tried(Struct, frozen=True, kw_only=True):
    """A set of options and its standing: its speedup over the baseline, or the reason for none.

    `standing` is None if it did not run. `outputs` judges the difference of its outputs from those
    of the baseline, or is None if they were not compared. `refusal` says why it cannot be
    recommended although it may be faster.
    """

    option_set: OptionSet
    standing: Standing | None = None
    speedup: Ratio | None = None
    rounds: int = 0
    outputs: Metric | None = None
    output_changes: tuple[OutputChange, ...] = ()
    refusal: str | None = None
    failure: str | None = None

    @property
    def name(self) -> str:
        return self.option_set.name

    @property
    def word(self) -> str:
        if self.failure is not None:
            return FAILED
        if self.standing is None:
            return UNSEEN
        return REFUSED if self.has_other_outputs else self.standing.value

    @property
    def has_other_outputs(self) -> bool:
        return self.outputs is not None and self.outputs.verdict is Verdict.REGRESSED


TRIED = JsonObject(
    Tried,
    "options=option_set.options standing speedup=speedup.value interval=speedup.interval rounds"
    " outputs=output_changes outputs_verdict=outputs.verdict refusal failure",
    interval=Interval,
    outputs=OUTPUT,
)


class SideCosts(Struct, frozen=True, kw_only=True):
    """The costs of the model with some options, for the user to weigh.

    `memory_bytes` is the resident memory that loading it and some inferences add. A figure that was
    not measured is None.
    """

    p50_ms: float | None = None
    load_ms: float | None = None
    memory_bytes: int | None = None


class Confirmation(Struct, frozen=True, kw_only=True):
    """Fresh rounds of one set of options and the baseline, each side in its own processes.

    `detectable` is the gain that these rounds would have shown in nine of ten runs.
    """

    name: str
    is_shown: bool
    speedup: Ratio | None
    rounds: int
    detectable: float | None = None
    refusal: str | None = None


CONFIRMATION = JsonObject(
    Confirmation,
    "name is_shown speedup=speedup.value interval=speedup.interval rounds detectable refusal",
    about="Fresh rounds of one set of options; `detectable` is the gain that they could have"
    " shown.",
    interval=Interval,
)


class TuningLimits(Struct, frozen=True):
    """The limits that a set of options must keep to be recommended. None means no limit."""

    latency_ms: float | None = None
    memory_bytes: int | None = None


class TunedCase(Struct, frozen=True, kw_only=True):
    """One case: all that was tried, and the winner, or None if nothing is shown to help.

    `winner` has all options that the winner runs with, and `given` those of the baseline. `equals`
    are sets of options that cannot be distinguished from the winner. `most_gain` is an upper bound
    for the gain of all sets that ran and may be recommended, if their rounds show one. `detectable`
    is the gain that the sets that stayed open would have shown in nine of ten races.
    """

    case: Case
    given: Mapping[str, str] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    baseline: SideCosts = field(default_factory=SideCosts)
    winner: OptionSet | None = None
    winner_costs: SideCosts | None = None
    winner_engine: EngineFacts | None = None
    equals: tuple[str, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    most_gain: float | None = None
    detectable: float | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def confirmed(self) -> Confirmation | None:
        winner = None if self.winner is None else self.winner.name
        return next((each for each in self.confirmations if each.name == winner), None)

    @property
    def won(self) -> TunedCase | None:
        """The case, if it has a winner."""
        return None if self.winner is None or self.winner_engine is None else self

    @property
    def fastest_first(self) -> Sequence[Tried]:
        """All that was tried, the fastest first, and last what did not run."""
        return sorted(self.tried, key=lambda each: each.speedup.value if each.speedup else -1.0)[
            ::-1
        ]

    @property
    def has_faster(self) -> bool:
        """Whether a set of options that may be recommended was faster in the race."""
        return any(t.standing is Standing.FASTER and t.refusal is None for t in self.tried)

    @property
    def rounds(self) -> int:
        return sum(t.rounds for t in self.tried) + sum(c.rounds for c in self.confirmations)


WINNER = JsonObject(
    TunedCase,
    "options=winner.options costs=winner_costs equals python= table=",
    title="Winner",
    about="The set of options that is shown to be better: its costs, and the code to paste.",
    options=Mapping[str, str],
    python=str | None,
    table=str,
)
TUNED_CASE = JsonObject(
    TunedCase,
    "id batch_size=case.batch_size cores=case.cores dims=case.varied phase=case.phase.phase"
    " prompt=case.phase.prompt generate=case.phase.generate given baseline tried winner=won"
    " confirmations most_gain detectable notes failure",
    tried=TRIED,
    winner=WINNER,
    confirmations=CONFIRMATION,
)


class Tuning(Shown, frozen=True, kw_only=True):
    """A model, and the options that make it faster at each case.

    `confidence` is that of all statements about a case together. `outputs_tolerance` is the allowed
    difference of outputs, as a share of their largest value. With `is_named`, a failure of a set of
    options counts, because the user asked for it.
    """

    model: ModelFacts
    machine: MachineFacts | None
    engine: EngineFacts | None
    cases: tuple[TunedCase, ...]
    limits: TuningLimits
    least_gain: float
    confidence: float
    outputs_tolerance: float
    seconds: float
    is_named: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether a case, or options that the user named, could not be measured."""
        return any(
            case.failure is not None
            or (self.is_named and any(t.failure is not None for t in case.tried))
            for case in self.cases
        )


TUNING = JsonDocument(
    Tuning,
    "model machine engine limits least_gain confidence outputs_tolerance seconds cases",
    machine=MACHINE,
    engine=ENGINE.or_nulls,
    cases=TUNED_CASE,
)
