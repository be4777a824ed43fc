"""A tuning as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.comparing.document import (
    Interval,
    OutputJson,
    outputs_to_json,
    phase_keys,
    ratio_interval,
)
from pytest_modelperf.comparing.records import Verdict
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    MachineJson,
    engine_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document
from pytest_modelperf.stats.race import Standing
from pytest_modelperf.tuning.pasted import engine_options_table, session_code
from pytest_modelperf.tuning.records import (
    Confirmation,
    SideCosts,
    Tried,
    TunedCase,
    Tuning,
    TuningLimits,
)


class TriedJson(Struct, frozen=True, kw_only=True):
    """A set of options in the race; `speedup` is the time of the baseline over its time."""

    options: Mapping[str, str]
    standing: Standing | None
    speedup: float | None
    interval: Interval
    rounds: int
    outputs: tuple[OutputJson, ...]
    outputs_verdict: Verdict | None
    refusal: str | None
    failure: str | None


class ConfirmationJson(Struct, frozen=True, kw_only=True):
    """Fresh rounds of one set of options; `detectable` is the gain that they could have shown."""

    name: str
    is_shown: bool
    speedup: float | None
    interval: Interval
    rounds: int
    detectable: float | None
    refusal: str | None


class WinnerJson(Struct, frozen=True, kw_only=True):
    """The set of options that is shown to be better: its costs, and the code to paste."""

    options: Mapping[str, str]
    costs: SideCosts | None
    equals: tuple[str, ...]
    python: str | None
    table: str


class TunedCaseJson(Struct, frozen=True, kw_only=True):
    """One case; `winner` is null if nothing is shown to help."""

    id: str
    batch_size: int
    cores: int
    dims: Mapping[str, int]
    phase: Phase | None
    prompt: int | None
    generate: int | None
    given: Mapping[str, str]
    baseline: SideCosts
    tried: tuple[TriedJson, ...]
    winner: WinnerJson | None
    confirmations: tuple[ConfirmationJson, ...]
    most_gain: float | None
    detectable: float | None
    notes: tuple[str, ...]
    failure: str | None


class TuningJson(Struct, frozen=True, kw_only=True):
    """A model, and the options that make it faster."""

    schema: int
    model: ModelFacts
    machine: MachineJson | None
    engine: EngineJson
    limits: TuningLimits
    least_gain: float
    confidence: float
    outputs_tolerance: float
    seconds: float
    cases: tuple[TunedCaseJson, ...]


def dump_tuning(tuning: Tuning) -> str:
    """The tuning as JSON text."""
    return dump_document(tuning_to_json(tuning))


def tuning_to_json(tuning: Tuning) -> TuningJson:
    return copy_fields(
        TuningJson,
        tuning,
        schema=SCHEMA,
        machine=machine_to_json(tuning.machine),
        engine=engine_to_json(tuning.engine),
        cases=tuple(_case(tuning, case) for case in tuning.cases),
    )


def _case(tuning: Tuning, case: TunedCase) -> TunedCaseJson:
    return copy_fields(
        TunedCaseJson,
        case,
        batch_size=case.case.batch_size,
        cores=case.case.cores,
        dims=dict(case.case.dims),
        **phase_keys(case.case),
        tried=tuple(map(_tried, case.tried)),
        winner=_winner(tuning, case),
        confirmations=tuple(map(_confirmation, case.confirmations)),
    )


def _tried(tried: Tried) -> TriedJson:
    return copy_fields(
        TriedJson,
        tried,
        options=tried.option_set.options,
        speedup=None if tried.speedup is None else tried.speedup.value,
        interval=ratio_interval(tried.speedup),
        outputs=outputs_to_json(tried.output_changes),
        outputs_verdict=None if tried.outputs is None else tried.outputs.verdict,
    )


def _confirmation(each: Confirmation) -> ConfirmationJson:
    return copy_fields(
        ConfirmationJson,
        each,
        speedup=None if each.speedup is None else each.speedup.value,
        interval=ratio_interval(each.speedup),
    )


def _winner(tuning: Tuning, case: TunedCase) -> WinnerJson | None:
    winner, facts = case.winner, case.winner_engine
    if winner is None or facts is None:
        return None
    return WinnerJson(
        options=winner.options,
        costs=case.winner_costs,
        equals=case.equals,
        python=session_code(facts, tuning.model.name, case.case.cores),
        table=engine_options_table(case, facts.name),
    )
