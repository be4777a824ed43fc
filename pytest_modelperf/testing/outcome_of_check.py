"""The outcome of a check, as reports show it: its figures, and how to accept them."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.testing.case_check import CaseCheck, CaseResult, CheckContext
from pytest_modelperf.testing.outcomes import CaseOutcome


def make_outcome(
    context: CheckContext, check: CaseCheck, facts: ModelFacts, result: CaseResult, seconds: float
) -> CaseOutcome:
    """Make the outcome of a result. `seconds` is the time that the check took."""
    case, measured = result.profile.case, result.profile.measured
    acceptance = _acceptance(context, check, result.comparison)
    return CaseOutcome(
        test=check.test,
        source=check.source,
        model=facts,
        cores=case.cores,
        batch_size=case.batch_size,
        comparison=result.comparison,
        baseline=check.baseline,
        engine="" if measured is None else measured.engine.label,
        engine_options=_engine_options(check.setup),
        generation_options=_generation_options(check.request),
        static=result.counted,
        generation=result.profile.generation,
        latency=None if measured is None else measured.latency,
        load_ms=None if measured is None else measured.load_ms,
        first_inference_ms=None if measured is None else measured.first_inference_ms,
        peak_rss_bytes=None if measured is None else measured.peak_rss_bytes,
        confidence=check.gate.confidence,
        seconds=seconds,
        times_ns=_samples(result.profile) if context.keeps_samples else (),
        machine=None if measured is None else measured.machine or context.machine,
        recording=result.recording,
        link=result.link,
        accept=acceptance.accept,
        advice=acceptance.advice if result.comparison.regressed else None,
    )


class _Acceptance(Struct, frozen=True):
    """The way to accept a result: a command that records it, or `advice`."""

    accept: str | None
    advice: str | None = None


def _acceptance(context: CheckContext, check: CaseCheck, comparison: CaseComparison) -> _Acceptance:
    """Return the way to accept a result.

    A new baseline helps only if the result was compared with the old one, on the same engine.
    """
    if context.against is not None and check.baseline is not None:
        return _Acceptance(
            None,
            "allow it with --modelperf-tolerance, or give another version with "
            f"--modelperf-against: it was compared with {context.against}, so a new "
            "baseline has no effect",
        )
    is_timed = [metric.name.startswith("latency") for metric in comparison.regressed]
    if len(comparison.engines) == 1 or not any(is_timed):
        return _Acceptance(check.accept)
    before, after = comparison.engines
    return _Acceptance(
        # Counts do not depend on the engine, so a new baseline keeps them.
        None if all(is_timed) else check.accept,
        f"leave out {context.option_before} to judge the model alone: a new baseline keeps the "
        f"model, not the engine, so {after} stays slower than {before} in such a case",
    )


def _engine_options(setup: Setup) -> tuple[str, ...]:
    name = setup.engine.name
    chosen = () if name == DEFAULT_ENGINE else ("--engine", name)
    pairs = [f"{key}={value}" for key, value in setup.options.items()]
    return (*chosen, *(word for pair in pairs for word in ("--engine-option", pair)))


def _generation_options(request: ProfileRequest) -> tuple[str, ...]:
    words: list[str] = []
    for each in request.generations:
        words += ["--prompt", str(each.prompt)] if each.prompt else []
        words += ["--generate", str(each.generate)] if each.generate else []
        for past, present in each.state.items():
            words += ["--state", f"{past}={present}"]
    return tuple(words)


def _samples(profile: CaseProfile) -> tuple[tuple[int, ...], ...]:
    return () if profile.measured is None else tuple(r.times_ns for r in profile.measured.rounds)


def of_model(outcome: CaseOutcome, source: ModelSource) -> CaseOutcome:
    """Give the outcome the name and path that the model has on this machine."""
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    name = open_model(source).name if path is None else path.name
    model = replace(outcome.model, name=name, path=None if path is None else str(path))
    recording = outcome.recording
    if recording is not None:
        facts = replace(recording.model, name=name, path=model.path)
        recording = replace(recording, model=facts)
    return replace(outcome, model=model, recording=recording)
