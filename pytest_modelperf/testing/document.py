"""A test run as JSON: its cases, what became of each, and what it did to the baselines."""

from __future__ import annotations

from collections import Counter

from pytest_modelperf.baselines.records import BaselineChange, StoredStatic, UpdatePlan
from pytest_modelperf.comparing.document import case_comparison_to_json
from pytest_modelperf.comparing.records import RECORDED, Verdict
from pytest_modelperf.profiler.facts_document import (
    latency_to_json,
    machine_to_json,
    model_to_json,
    totals_to_json,
)
from pytest_modelperf.report.document import SCHEMA, Json, dump_document, number
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport

_FAILED = "failed"


def dump_run(report: RunReport) -> str:
    """The run as JSON text."""
    return dump_document(run_to_json(report))


def run_to_json(report: RunReport) -> dict[str, Json]:
    has_verdict = any(not outcome.has_failed for outcome in report.outcomes)
    return {
        "schema": SCHEMA,
        "verdict": report.verdict.value if has_verdict else None,
        "started": None if report.started is None else report.started.isoformat(),
        "seconds": number(report.seconds),
        "tolerance": number(report.tolerance),
        "strict": report.is_strict,
        "machine": machine_to_json(report.machine),
        "counts": _counts(report),
        "cases": [_case(outcome) for outcome in report.outcomes],
        "baselines": {
            "changes": [_change(plan, change) for plan in report.plans for change in plan.changes],
            "notes": [note for plan in report.plans for note in plan.notes],
            "written": report.is_written,
            "unused": None if report.unused is None else list(report.unused),
        },
        "notes": list(report.notes),
    }


def _counts(report: RunReport) -> dict[str, Json]:
    """How many cases there are of each verdict, were recorded, or failed without one."""
    found = Counter(outcome.word for outcome in report.outcomes)
    return {
        word: found[word] for word in (*(verdict.value for verdict in Verdict), RECORDED, _FAILED)
    }


def _case(outcome: CaseOutcome) -> dict[str, Json]:
    latency = outcome.latency
    return {
        "test": outcome.test,
        "source": {"path": outcome.source.path, "line": outcome.source.line},
        "model": model_to_json(outcome.model),
        "batch_size": outcome.batch_size,
        "cores": outcome.cores,
        "engine": outcome.engine or None,
        "machine": None if outcome.machine is None else outcome.machine.key,
        **case_comparison_to_json(outcome.comparison),
        "seconds": number(outcome.seconds),
        "confidence": number(outcome.confidence),
        "static": _static(outcome.static),
        "latency": None if latency is None else latency_to_json(latency),
        "load_ms": number(outcome.load_ms),
        "first_inference_ms": number(outcome.first_inference_ms),
        "peak_rss_bytes": outcome.peak_rss_bytes,
        "recorded": outcome.is_recorded,
        "accept": outcome.accept,
    }


def _static(static: StoredStatic | None) -> Json:
    """The totals; null for a Python function, which has no graph."""
    if static is None:
        return None
    return {
        **totals_to_json(static),
        "uncounted_ops": dict(static.uncounted_ops),
        "coverage": static.coverage,
        "notes": list(static.notes),
    }


def _change(plan: UpdatePlan, change: BaselineChange) -> dict[str, Json]:
    value = [number(v) if isinstance(v, float) else v for v in (change.before, change.after)]
    return {
        "baseline": plan.name,
        "case": change.case,
        "machine": change.machine,
        "name": change.name,
        "before": value[0],
        "after": value[1],
    }
