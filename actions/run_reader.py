"""Reads the report of a run that may come from a stranger: bounded, typed, and without commands.

A pull request from a fork runs its own code, so it can put anything into the artifact. Only what a
comment shows is kept: figures, verdicts and sentences, whose characters are escaped when they are
rendered. Commands to copy are not kept.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from workflow import StepError

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.changes import Interval
from pytest_modelperf.comparing.records import METRIC, CaseComparison, Metric
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.report.picture.drawn import MOST_BOXES
from pytest_modelperf.report.picture.layout import SeenBox
from pytest_modelperf.stats.records import Latency, Percentile
from pytest_modelperf.testing.outcomes import RUN, CaseOutcome, Source

# A part of the report, of the type that its declaration makes.
Part: TypeAlias = Any

MAX_ZIP_BYTES = 16 << 20
_MAX_RUN_BYTES = 64 << 20
_MAX_NUMBER_BYTES = 1 << 10
_MAX_CASES = 2000
_MAX_METRICS = 40
_MAX_REASONS = 6
# No name or sentence of ours is longer.
_MAX_NAME = 300
_MAX_SENTENCE = 600
_MAX_FAILURE = 2000
_NS_PER_MS = 1e6
# The other ways of compression unpack a block at once, however large it becomes.
_BOUNDED_WAYS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# What Python raises for an archive that is damaged, encrypted or made up: among others for names
# in no encoding (ValueError) and for a version that it lacks (RuntimeError).
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip


class ReadCase(Struct, frozen=True):
    """A case of a report: its name, its id, what is shown of it, and its changed kernels."""

    name: str
    id: str
    outcome: CaseOutcome
    picture: tuple[SeenBox, ...] = ()


class _PullRequestJson(Struct, frozen=True):
    number: int


class Artifact:
    """The files of an artifact, which are read in memory and never unpacked."""

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _UNREADABLE as error:
            raise StepError(f"the artifact is no zip file: {error}") from error

    def read_cases(self) -> tuple[ReadCase, ...]:
        """The cases in the report of the run."""
        name = "modelperf.json"
        try:
            run = msgspec.json.decode(self._read(name, _MAX_RUN_BYTES), type=RUN.json_type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StepError(
                f"{name} of the artifact is not the report of a run: {error}. Use the same version "
                "of both actions."
            ) from error
        if len(run.cases) > _MAX_CASES:
            raise StepError(f"{name} has {len(run.cases):,} cases; a comment shows {_MAX_CASES:,}")
        return tuple(map(_case, run.cases))

    def read_number(self) -> int:
        """The number that the run gives for its pull request; nobody has checked it."""
        name = "pull-request.json"
        try:
            content = self._read(name, _MAX_NUMBER_BYTES)
            return msgspec.json.decode(content, type=_PullRequestJson).number
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StepError(f"{name} of the artifact names no pull request: {error}") from error

    def _read(self, name: str, max_bytes: int) -> bytes:
        try:
            member = self._zip.getinfo(name)
        except KeyError:
            raise StepError(
                f"the artifact has no {name}: does the input `artifact` name that of the tests?"
            ) from None
        if member.compress_type not in _BOUNDED_WAYS:
            raise StepError(
                f"{name} of the artifact cannot be read: it is compressed by method "
                f"{member.compress_type} of zip, and only 0 and 8 unpack within a bound"
            )
        try:
            with self._zip.open(member) as file:
                content = file.read(max_bytes + 1)
        except _UNREADABLE as error:
            raise StepError(f"{name} of the artifact cannot be read: {error}") from error
        if len(content) > max_bytes:
            raise StepError(f"{name} of the artifact has more than {max_bytes:,} bytes")
        return content


def _case(case: Part) -> ReadCase:
    test, case_id = _cut(case.test, _MAX_NAME), _cut(case.id, _MAX_NAME)
    path = None if case.model.path is None else _cut(case.model.path, _MAX_NAME)
    comparison = CaseComparison(
        case=Case(batch_size=case.batch_size, cores=case.cores),
        metrics=tuple(map(_metric, case.metrics[:_MAX_METRICS])),
        layer_types=(),
        reasons=tuple(_cut(reason, _MAX_SENTENCE) for reason in case.reasons[:_MAX_REASONS]),
        rounds=case.rounds,
        outcome=case.verdict,
        failure=None if case.failure is None else _cut(case.failure, _MAX_FAILURE),
    )
    outcome = CaseOutcome(
        test=test,
        source=Source(path="", line=None),
        model=ModelFacts.named(_cut(case.model.name, _MAX_NAME), path),
        cores=case.cores,
        batch_size=case.batch_size,
        comparison=comparison,
        engine=_cut(case.engine or "", _MAX_NAME),
        static=_static(case.static),
        latency=_latency(case.latency, case.batch_size),
        confidence=case.confidence,
        is_xfailed=case.xfailed,
    )
    name = test if case_id in test else f"{test} {case_id}"
    return ReadCase(name, case_id, outcome, case.picture[: MOST_BOXES + 1])


def _static(static: Part) -> StoredStatic | None:
    """The counts that a table shows; None if any is unknown."""
    if static is None or static.macs is None or static.params is None:
        return None
    return StoredStatic(
        macs=static.macs,
        elementwise_ops=0,
        backward_macs=0,
        effective_macs=None,
        params=static.params,
        scalar_params=None,
        weight_bytes=0,
        activation_bytes=0,
        knows_activations=False,
        peak_activation_bytes=None,
        uncounted_ops={},
        notes=(),
        layer_types={},
    )


def _latency(latency: Part, batch_size: int) -> Latency | None:
    """The percentiles that a table shows."""
    if latency is None:
        return None
    shown = ((50.0, latency.p50_ms), (95.0, latency.p95_ms))
    return Latency(
        batch_size=batch_size,
        confidence=0.0,
        percentiles=tuple(
            Percentile(percent=percent, needed=0, value_ns=None if ms is None else ms * _NS_PER_MS)
            for percent, ms in shown
        ),
        samples=0,
        rounds=0,
        min_ns=0,
        max_ns=0,
        mean_ns=0.0,
    )


def _metric(metric: Part) -> Metric:
    return METRIC.read(
        metric,
        name=_cut(metric.name, _MAX_NAME),
        reason=None if metric.reason is None else _cut(metric.reason, _MAX_SENTENCE),
        interval=_bounds(metric.interval),
        measured_ratio=metric.ratio,
        after_interval=_bounds(metric.after_interval),
    )


def _bounds(interval: Interval) -> tuple[float, float] | None:
    if interval is None:
        return None
    low, high = interval
    return None if low is None or high is None else (low, high)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
