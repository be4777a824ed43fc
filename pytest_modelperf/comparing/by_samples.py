"""A case held against the processes that were recorded, where its twin is not trusted."""

from __future__ import annotations

import time

from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredLatency
from pytest_modelperf.comparing.gates import (
    stored_metrics,
    stored_start_metrics,
    unjudged_metrics,
)
from pytest_modelperf.comparing.judged_case import JudgedCase, side_run
from pytest_modelperf.comparing.paired_case import PairedCase
from pytest_modelperf.comparing.records import How, Metric, Verdict
from pytest_modelperf.comparing.stored_case import compare_counts
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.measured_cases import MeasuredCase, measure_case
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.sampling.policy import coarsened
from pytest_modelperf.profiler.shown.conditions import find_noise


def compare_with_samples(asked: PairedCase, refusal: str) -> JudgedCase:
    """The model measured now against the recorded processes; `refusal` is why there is no duet."""
    begun = time.monotonic()
    found = _measure(asked)
    pair, gate, now = replace(asked.pair, after=found.model), asked.gate, found.profile
    if now.measured is None:
        raise MeasureError(now.reason)
    counted = compare_counts(replace(asked, pair=pair))
    stored = asked.recorded
    note = f"not run as a duet: {refusal}"
    doubt = _why_not_judged(stored, now.measured)
    is_judged = stored is not None and doubt is None
    if stored is None or doubt is not None:
        metrics = unjudged_metrics(now.measured.latency, gate)
    else:
        metrics = stored_metrics(stored, now.measured.latency, gate)
        if gate.judges_starts:
            metrics += stored_start_metrics(stored, now.measured.rounds, gate)
        doubt = _why_doubtful(metrics, now.measured, asked.place.case.cores)
        if doubt is not None:
            metrics = tuple(map(_as_inconclusive, metrics))
    comparison = replace(
        counted,
        metrics=(*metrics, *counted.metrics),
        notes=(*counted.notes, note if doubt is None else f"{note}; {doubt}"),
        rounds=len(now.measured.rounds),
        how=How.STORED if is_judged else None,
        after=side_run(now.measured),
        seconds=time.monotonic() - begun,
    )
    return JudgedCase(comparison, now, pair=pair)


def _measure(asked: PairedCase) -> MeasuredCase:
    pair, gate = asked.pair, asked.gate
    # Recorded processes differ by more than the precision that one of them can reach.
    policy = coarsened(pair.after_setup.policy, gate.tolerance)
    policy = replace(policy, tail_samples=gate.samples_needed)
    setup = replace(pair.after_setup, policy=policy)
    return measure_case(pair.after, setup, asked.place, takes_layers=False)


def _why_not_judged(stored: StoredLatency | None, now: Measurement) -> str | None:
    """Why the latency cannot be compared with a stored one."""
    if stored is None:
        return (
            "no times of the recorded model are stored for this kind of machine, so the latency is "
            "not judged"
        )
    if not stored.is_of(now.engine):
        return "it was recorded on another engine, so the latency is not judged"
    if now.mixture is not None:
        # The median of inferences of several kinds can change from one kind to another by chance.
        return "stored times say nothing about a workload, so the latency is not judged"
    return None


def _why_doubtful(metrics: tuple[Metric, ...], now: Measurement, cores: int) -> str | None:
    """Why a regression may not come from the model: a duet would disturb both sides alike."""
    noise = find_noise([made.block.noise for made in now.rounds], cores)
    if not noise or all(metric.verdict is not Verdict.REGRESSED for metric in metrics):
        return None
    return f"{', '.join(noise)}, so slower times may not come from the model"


def _as_inconclusive(metric: Metric) -> Metric:
    """The metric; inconclusive where it was a regression."""
    if metric.verdict is not Verdict.REGRESSED:
        return metric
    return replace(metric, verdict=Verdict.INCONCLUSIVE)
