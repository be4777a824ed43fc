"""A test run as JSON: the types of its document, and how records become them."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field
from msgspec.structs import asdict

from pytest_modelperf.baselines.records import Value
from pytest_modelperf.comparing.document import ComparedCaseJson, case_comparison_to_json
from pytest_modelperf.comparing.engine_change import EngineChange
from pytest_modelperf.comparing.page_graph import comparison_picture
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.verdict_lines import is_quiet
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number, Positive
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.shown.document import GenerationJson, StaticJson, generation_to_json
from pytest_modelperf.profiler.shown.facts_document import (
    LatencyJson,
    MachineJson,
    latency_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document, to_json
from pytest_modelperf.report.picture.folded import seen_boxes
from pytest_modelperf.report.picture.mermaid import MOST_BOXES
from pytest_modelperf.report.picture.records import BoxState
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport, Source

# A type that extends another has its own keys last.
_FIRST = ("test", "source", "model", "batch_size", "cores", "engine", "machine")


class SeenBoxJson(Struct, frozen=True, kw_only=True):
    """A kernel of a picture, or several that did not change; those that feed it by their places."""

    op_type: str
    name: str
    kernels: Positive
    change_ms: Figure | None
    state: BoxState
    inputs: tuple[Count, ...]


class RunCaseJson(ComparedCaseJson, frozen=True, kw_only=True):
    """One case of a run: the keys of a case of a comparison, and those of its test.

    `seconds` is the time of the whole check, not only of the comparison. `picture` has the kernels
    that changed, between those that did not; it is empty if nothing is to be said of the case.
    """

    test: str
    source: Source
    model: ModelFacts
    batch_size: Positive
    cores: Positive
    engine: str | None
    machine: str | None
    confidence: Confidence | None
    generation: GenerationJson | None
    static: StaticJson | None
    latency: LatencyJson | None
    load_ms: Number | None
    first_inference_ms: Number | None
    peak_rss_bytes: Count | None
    recorded: bool
    accept: str | None
    engine_change: EngineChange | None
    upgrade: bool
    xfailed: bool = False
    picture: tuple[SeenBoxJson, ...] = ()


class OutcomeCountsJson(Struct, frozen=True):
    """The number of cases with each verdict, of recorded, of failed and of xfailed ones."""

    passed: Count
    improved: Count
    regressed: Count
    over_budget: Count = field(name="over budget")
    inconclusive: Count
    new: Count
    unchanged: Count
    recorded: Count
    failed: Count
    xfailed: Count = 0


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
    errors: tuple[str, ...] = ()


def dump_run(report: RunReport) -> str:
    """The run as JSON text; each case begins with its test."""
    document = to_json(run_to_json(report))
    cases = document["cases"]
    return dump_document(
        {**document, "cases": [{**{key: case[key] for key in _FIRST}, **case} for case in cases]}
    )


def run_to_json(report: RunReport) -> RunJson:
    has_verdict = any(not outcome.has_failed for outcome in report.outcomes)
    return copy_fields(
        RunJson,
        report,
        schema=SCHEMA,
        verdict=report.verdict if has_verdict else None,
        started=None if report.started is None else report.started.isoformat(),
        strict=report.is_strict,
        machine=machine_to_json(report.machine),
        counts=_counts(report),
        cases=tuple(map(_case, report.outcomes)),
        baselines=_baselines(report),
    )


def _counts(report: RunReport) -> OutcomeCountsJson:
    found = Counter(outcome.word for outcome in report.outcomes)
    return OutcomeCountsJson(*(found[word] for word in OutcomeCountsJson.__struct_encode_fields__))


def _case(outcome: CaseOutcome) -> RunCaseJson:
    latency, machine, generation = outcome.latency, outcome.machine, outcome.generation
    keys = {
        **asdict(case_comparison_to_json(outcome.comparison)),
        "id": outcome.case_id,
        "seconds": outcome.seconds,
        "engine": outcome.engine or None,
        "machine": None if machine is None else machine.key,
        "generation": None if generation is None else generation_to_json(generation),
        "static": None if outcome.static is None else copy_fields(StaticJson, outcome.static),
        "latency": None if latency is None else latency_to_json(latency),
        "recorded": outcome.is_recorded,
        "upgrade": outcome.is_upgrade,
        "xfailed": outcome.is_xfailed,
        "picture": _picture(outcome.comparison),
    }
    return copy_fields(RunCaseJson, outcome, **keys)


def _picture(case: CaseComparison) -> tuple[SeenBoxJson, ...]:
    """The boxes of a case that a comment explains, if they are few enough to be read in it."""
    boxes = () if is_quiet(case) else seen_boxes(comparison_picture(case))
    shown = boxes if len(boxes) <= MOST_BOXES else ()
    return tuple(copy_fields(SeenBoxJson, box) for box in shown)


def _baselines(report: RunReport) -> BaselinesJson:
    return BaselinesJson(
        changes=tuple(
            copy_fields(BaselineChangeJson, change, baseline=plan.name)
            for plan in report.plans
            for change in plan.changes
        ),
        notes=tuple(note for plan in report.plans for note in plan.notes),
        written=report.is_written,
        unused=None
        if report.unused is None
        else tuple(f"{folder}: {case}" for folder, case in report.unused),
    )
