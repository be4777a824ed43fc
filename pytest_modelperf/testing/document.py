"""A test run as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field
from msgspec.structs import asdict

from pytest_modelperf.baselines.records import BaselineChange, StoredStatic, UpdatePlan, Value
from pytest_modelperf.comparing.document import (
    ElsewhereJson,
    LayerChangeJson,
    LayerTypeChangeJson,
    MetricJson,
    OutputJson,
    PartJson,
    case_comparison_to_json,
)
from pytest_modelperf.comparing.records import RECORDED, How, Verdict
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number, Positive
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.document import GenerationJson, StaticJson, generation_to_json
from pytest_modelperf.profiler.facts_document import (
    LatencyJson,
    MachineJson,
    ModelJson,
    latency_to_json,
    machine_to_json,
    model_to_json,
)
from pytest_modelperf.report.document import SCHEMA, dump_document, number
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport

_FAILED = "failed"


class SourceJson(Struct, frozen=True, kw_only=True):
    """Where a test is defined."""

    path: str
    line: Count | None


class RunCaseJson(Struct, frozen=True, kw_only=True):
    """One case of a run: the keys of a case of a comparison, and those of its test."""

    test: str
    source: SourceJson
    model: ModelJson
    batch_size: Positive
    cores: Positive
    engine: str | None
    machine: str | None
    id: str
    phase: Phase | None
    prompt: Count | None
    generate: Count | None
    verdict: Verdict | None
    failure: str | None
    how: How | None
    seconds: Number | None
    rounds: Count | None
    metrics: tuple[MetricJson, ...]
    parts: tuple[PartJson, ...]
    elsewhere: ElsewhereJson | None
    layer_types: tuple[LayerTypeChangeJson, ...]
    layers: tuple[LayerChangeJson, ...]
    reasons: tuple[str, ...]
    outputs: tuple[OutputJson, ...]
    notes: tuple[str, ...]
    confidence: Confidence | None
    generation: GenerationJson | None
    static: StaticJson | None
    latency: LatencyJson | None
    load_ms: Number | None
    first_inference_ms: Number | None
    peak_rss_bytes: Count | None
    recorded: bool
    accept: str | None
    engine_change: EngineChangeJson | None
    upgrade: bool


class EngineChangeJson(Struct, frozen=True, kw_only=True):
    """An engine whose installed version is not the recorded one."""

    engine: str
    recorded: str
    installed: str


class OutcomeCountsJson(Struct, frozen=True, kw_only=True):
    """The number of cases with each verdict, of recorded cases and of failed ones."""

    passed: Count
    improved: Count
    regressed: Count
    over_budget: Count = field(name="over budget")
    inconclusive: Count
    new: Count
    unchanged: Count
    recorded: Count
    failed: Count


class BaselineChangeJson(Struct, frozen=True, kw_only=True):
    """One figure that an update of the baselines changes."""

    baseline: str
    case: str | None
    machine: str | None
    name: str
    before: Value
    after: Value


class BaselinesJson(Struct, frozen=True, kw_only=True):
    """The effect of a run on the baselines."""

    changes: tuple[BaselineChangeJson, ...]
    notes: tuple[str, ...]
    written: bool
    unused: tuple[str, ...] | None


class RunJson(Struct, frozen=True, kw_only=True):
    """A test run."""

    schema: int
    verdict: Verdict | None
    started: str | None
    seconds: Number | None
    tolerance: Figure | None
    strict: bool
    machine: MachineJson | None
    counts: OutcomeCountsJson
    cases: tuple[RunCaseJson, ...]
    baselines: BaselinesJson
    notes: tuple[str, ...]


def dump_run(report: RunReport) -> str:
    """The run as JSON text."""
    return dump_document(run_to_json(report))


def run_to_json(report: RunReport) -> RunJson:
    has_verdict = any(not outcome.has_failed for outcome in report.outcomes)
    return RunJson(
        schema=SCHEMA,
        verdict=report.verdict if has_verdict else None,
        started=None if report.started is None else report.started.isoformat(),
        seconds=number(report.seconds),
        tolerance=number(report.tolerance),
        strict=report.is_strict,
        machine=machine_to_json(report.machine),
        counts=_counts(report),
        cases=tuple(map(_case, report.outcomes)),
        baselines=_baselines(report),
        notes=report.notes,
    )


def _counts(report: RunReport) -> OutcomeCountsJson:
    found = Counter(outcome.word for outcome in report.outcomes)
    return OutcomeCountsJson(
        passed=found[Verdict.PASSED],
        improved=found[Verdict.IMPROVED],
        regressed=found[Verdict.REGRESSED],
        over_budget=found[Verdict.OVER_BUDGET],
        inconclusive=found[Verdict.INCONCLUSIVE],
        new=found[Verdict.NEW],
        unchanged=found[Verdict.UNCHANGED],
        recorded=found[RECORDED],
        failed=found[_FAILED],
    )


def _case(outcome: CaseOutcome) -> RunCaseJson:
    latency, machine, generation = outcome.latency, outcome.machine, outcome.generation
    compared = asdict(case_comparison_to_json(outcome.comparison))
    # The time of the whole check, not only of the comparison.
    compared["seconds"] = number(outcome.seconds)
    compared["id"] = outcome.case_id
    change = outcome.engine_change
    return RunCaseJson(
        test=outcome.test,
        source=SourceJson(path=outcome.source.path, line=outcome.source.line),
        model=model_to_json(outcome.model),
        batch_size=outcome.batch_size,
        cores=outcome.cores,
        engine=outcome.engine or None,
        machine=None if machine is None else machine.key,
        confidence=number(outcome.confidence),
        generation=None if generation is None else generation_to_json(generation),
        static=None if outcome.static is None else _static(outcome.static),
        latency=None if latency is None else latency_to_json(latency),
        load_ms=number(outcome.load_ms),
        first_inference_ms=number(outcome.first_inference_ms),
        peak_rss_bytes=outcome.peak_rss_bytes,
        recorded=outcome.is_recorded,
        accept=outcome.accept,
        engine_change=None if change is None else EngineChangeJson(**asdict(change)),
        upgrade=outcome.is_upgrade,
        **compared,
    )


def _static(static: StoredStatic) -> StaticJson:
    return StaticJson(**{key: getattr(static, key) for key in StaticJson.__struct_fields__})


def _baselines(report: RunReport) -> BaselinesJson:
    return BaselinesJson(
        changes=tuple(_change(plan, change) for plan in report.plans for change in plan.changes),
        notes=tuple(note for plan in report.plans for note in plan.notes),
        written=report.is_written,
        unused=report.unused,
    )


def _change(plan: UpdatePlan, change: BaselineChange) -> BaselineChangeJson:
    return BaselineChangeJson(
        baseline=plan.name,
        case=change.case,
        machine=change.machine,
        name=change.name,
        before=_finite(change.before),
        after=_finite(change.after),
    )


def _finite(value: Value) -> Value:
    return number(value) if isinstance(value, float) else value
