"""The outcomes of a run as lines of a history, with the ratio of each model to its baseline."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.baselines.records import Baseline, StoredCase, UpdatePlan
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.history.records import (
    LINE_SCHEMA,
    MOST_FACTOR,
    HistoryLine,
    StoredFigures,
    StoredRatio,
)
from pytest_modelperf.history.repository import Revision, find_revision, find_run_url
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.testing.outcomes import CaseOutcome

# An unchanged model, or one with the same kernels, is exactly as fast as its baseline, so the
# interval has no width.
_SAME = StoredRatio(ratio=1.0, low=1.0, high=1.0, confidence=0.99)


def ratio_to_baseline(
    compared: CaseComparison, name: str, *, is_static: bool
) -> StoredRatio | None:
    """Return the ratio, or None if both sides did not run in turn or its error is unknown.

    Stored times are from another day, so ratios to them are not chained.
    """
    if compared.how is How.PLAN:
        return _SAME
    metric = compared.metric(name)
    if metric is None:
        is_same = compared.outcome is Verdict.UNCHANGED and not is_static
        return _SAME if is_same else None
    return _measured_ratio(metric) if compared.is_duet else None


def _measured_ratio(metric: Metric) -> StoredRatio | None:
    ratio, interval, confidence = metric.ratio, metric.interval, metric.confidence
    if ratio is None or interval is None or confidence is None:
        return None
    # An infinite or huge bound contains no information.
    if not all(1 / MOST_FACTOR < value < MOST_FACTOR for value in (ratio, *interval)):
        return None
    return StoredRatio(ratio=ratio, low=interval[0], high=interval[1], confidence=confidence)


# -- the outcomes of a run as lines of a history


class RunConditions(Struct, frozen=True):
    """The facts that all lines of a run share. `machine` is the key of this machine."""

    date: dt.datetime
    revision: Revision
    machine: str
    is_static: bool
    url: str | None = None


def write_history(
    folder: Path,
    settings: RunSettings,
    outcomes: Sequence[CaseOutcome],
    plans: Iterable[UpdatePlan],
    date: dt.datetime,
) -> None:
    """Add a line for each case with a baseline. `plans` are the updates of this run."""
    held = [
        outcome
        for outcome in outcomes
        # An upgrade has a verdict on the engine, not on the model.
        if outcome.baseline is not None and not outcome.has_failed and not outcome.is_upgrade
    ]
    if not held:
        return
    run = RunConditions(
        date.astimezone(dt.timezone.utc).replace(microsecond=0),
        find_revision(settings.root),
        describe_machine().key,
        settings.static_only,
        find_run_url(os.environ),
    )
    before = _baselines_before(settings, held, plans)
    HistoryStore(folder).append(_lines(held, before, run))


def _baselines_before(
    settings: RunSettings, outcomes: Iterable[CaseOutcome], plans: Iterable[UpdatePlan]
) -> Mapping[str, Baseline | None]:
    store = BaselineStore(settings.baseline_dir)
    before: dict[str, Baseline | None] = {}
    for plan in plans:
        before.setdefault(plan.name, plan.before)
    for name in {str(outcome.baseline) for outcome in outcomes} - set(before):
        before[name] = store.read(name, machines=())
    return before


def _lines(
    outcomes: Iterable[CaseOutcome], before: Mapping[str, Baseline | None], run: RunConditions
) -> Iterator[HistoryLine]:
    for outcome in outcomes:
        baseline = before[str(outcome.baseline)]
        stored = None if baseline is None else baseline.model.case(outcome.comparison.id)
        yield history_line(outcome, stored, run)


def history_line(
    outcome: CaseOutcome, stored: StoredCase | None, run: RunConditions
) -> HistoryLine:
    """Make the line of one case. `stored` is the case of its baseline."""
    compared, link = outcome.comparison, outcome.link
    if link is not None and link.comparison is not None:
        compared = link.comparison
    engine, _, version = outcome.engine.partition(" ")
    recorded = None if outcome.recording is None else outcome.recording.cases[0]
    known = recorded or stored
    baseline = None if stored is None else stored.model_sha256
    return HistoryLine(
        schema=LINE_SCHEMA,
        date=run.date,
        commit=run.revision.commit,
        branch=run.revision.branch,
        model=str(outcome.baseline),
        # On a cluster, each case is stored with the machine that judged it.
        machine=run.machine if outcome.machine is None else outcome.machine.key,
        case=compared.id,
        engine=engine or (None if known is None else known.engine),
        engine_version=version or None,
        digest=_digest(outcome, recorded, baseline),
        baseline=baseline,
        recorded=outcome.is_recorded,
        verdict=outcome.word,
        how=None if compared.how is None else compared.how.value,
        p50=ratio_to_baseline(compared, compared.typical_name, is_static=run.is_static),
        p95=ratio_to_baseline(compared, "latency_p95", is_static=run.is_static),
        figures=_figures(outcome),
        load_ms=outcome.load_ms,
        peak_rss_bytes=outcome.peak_rss_bytes,
        seconds=round(outcome.seconds, 3),
        reasons=compared.reasons,
        unlinked=None if link is None else link.problem,
        run_url=run.url,
    )


def _digest(outcome: CaseOutcome, recorded: StoredCase | None, baseline: str | None) -> str | None:
    """Return the digest of the checked model, or None if its large file was not read in full."""
    if recorded is not None:
        return recorded.model_sha256
    return baseline if outcome.verdict is Verdict.UNCHANGED else outcome.model.sha256


def _figures(outcome: CaseOutcome) -> StoredFigures | None:
    static = outcome.static
    if static is None:
        return None
    return StoredFigures(
        macs=static.macs,
        params=static.params,
        weight_bytes=static.weight_bytes,
        peak_activation_bytes=static.peak_activation_bytes,
        size_bytes=outcome.model.total_bytes,
    )
