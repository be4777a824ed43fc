"""Reads a profile that was stored as JSON, as the spans of a trace.

A stored profile is no recording: each layer has one typical time. Rounds are shown at the times
when they ran; if only durations were kept, they follow each other. docs/json.md has the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, count, pairwise
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import (
    Count,
    DocumentFile,
    DurationMs,
    DurationNs,
    FileAdvice,
    SignedMs,
)
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.profiler.document import StartsJson
from pytest_modelperf.profiler.facts_document import ShapeJson
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_shape
from pytest_modelperf.tracing.records import (
    FIRST_INFERENCE,
    Argument,
    Category,
    Event,
    Span,
    ThreadName,
)

INFERENCE = "inference"
WARM_UP = "warm-up"
TYPICAL = "typical inference"

_NS_PER_MS = 1e6
_ROUNDS, _LAYERS = 1, 2
# The samples of a case take some 100 kB, and a profile may have many cases.
_MAX_BYTES = 256 << 20
# Other documents of this package, by a key that a profile does not have.
_OTHERS = {
    "traceEvents": "a trace",
    "sides": "a sweep",
    "checkups": "a checkup",
    "before": "a comparison",
    "counts": "a test run",
}

_EXPECTED = "Expected what `modelperf profile MODEL --json F` writes, or a profile of ONNX Runtime."
_ADVICE = FileAdvice(broken=_EXPECTED, conflict=_EXPECTED)


class TracedModel(Struct, frozen=True):
    """The model of a stored profile."""

    name: str | None = None


class TracedProfile(Struct, frozen=True):
    """The keys of a stored profile that a trace needs. All others may be missing or of any type."""

    model: TracedModel
    cases: tuple[TracedCase, ...]

    @property
    def measured_cases(self) -> tuple[TracedCase, ...]:
        return tuple(case for case in self.cases if case.raw is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts of the profile that have no spans, and why."""
        unmeasured = [case for case in self.cases if case.raw is None]
        untimed = [case for case in self.measured_cases if not case.timed_layers]
        return (
            *(f"{case.id}: {case.why_unmeasured}" for case in unmeasured),
            *(f"{case.id}: the engine told no times of layers" for case in untimed),
        )

    def events(self) -> Iterator[Event]:
        """The events: a process for each case, with its rounds and a typical inference."""
        ids = count(1)
        cases = self.measured_cases
        zero_ns = min((case.begun_ns for case in cases if case.begun_ns is not None), default=0)
        for process, case in enumerate(cases, 1):
            yield from case.events(self.model.name or "model", process, ids, zero_ns)


class TracedLatency(Struct, frozen=True):
    """The latency of a stored case."""

    p50_ms: DurationMs | None = None


class TracedCase(Struct, frozen=True):
    """A stored case; `raw` are its rounds, None if it did not run."""

    id: str = "a case"
    outcome: str = "not measured"
    reason: str | None = None
    latency: TracedLatency = TracedLatency()
    layers: tuple[TracedLayer, ...] = ()
    raw: tuple[TracedRound, ...] | None = None

    @property
    def why_unmeasured(self) -> str:
        return f"{self.outcome}, {self.reason}" if self.reason else self.outcome

    @property
    def rounds(self) -> tuple[TracedRound, ...]:
        return self.raw or ()

    @property
    def timed_layers(self) -> tuple[TracedLayer, ...]:
        """The layers that have a time. The rest beside all kernels can be slightly negative."""
        return tuple(layer for layer in self.layers if layer.ms is not None and layer.ms >= 0)

    @property
    def begun_ns(self) -> int | None:
        """The start of its first round; None if its rounds lack usable start times."""
        now_ns = 0
        for made in self.rounds:
            if made.begun_ns is None:
                return None
            for part in made.parts_in_place(made.begun_ns, 0):
                if not now_ns <= part.start_ns <= part.end_ns:
                    return None
                now_ns = part.end_ns
        first = self.rounds[0].begun_ns if self.rounds else None
        return None if first is None else first.load

    def events(
        self, model: str, process: int, ids: Iterator[int], zero_ns: int = 0
    ) -> Iterator[Event]:
        """The events, each span before the spans inside it, on a clock that begins at `zero_ns`."""
        yield ThreadName(name=f"{model} {self.id}", process=process)
        yield ThreadName(name="rounds", process=process, thread=_ROUNDS)
        if self.timed_layers:
            yield ThreadName(name=TYPICAL, process=process, thread=_LAYERS)
        session = next(ids)
        begun_ns = self.begun_ns
        low_ns = 0 if begun_ns is None else begun_ns - zero_ns
        layers = tuple(self._layer_spans(low_ns, process, session, ids))
        rounds = self._in_turn() if begun_ns is None else self._in_place(zero_ns)
        ends_ns = [parts[-1].end_ns for parts in rounds] + [span.end_ns for span in layers]
        yield Span(
            name=self.id,
            category=Category.SESSION,
            start_ns=low_ns,
            duration_ns=max(ends_ns, default=low_ns) - low_ns,
            process=process,
            thread=_ROUNDS,
            id=session,
        )
        for number, parts in enumerate(rounds, 1):
            yield from _round_spans(f"round {number}", parts, process, session, ids)
        yield from layers

    def _in_turn(self) -> list[list[_Part]]:
        """The parts of each round, following each other."""
        rounds = []
        now_ns = 0
        for made in self.rounds:
            rounds.append(made.parts(now_ns))
            now_ns = rounds[-1][-1].end_ns
        return rounds

    def _in_place(self, zero_ns: int) -> list[list[_Part]]:
        """The parts of each round at the times when they ran."""
        return [
            made.parts_in_place(made.begun_ns, zero_ns)
            for made in self.rounds
            if made.begun_ns is not None
        ]

    def _layer_spans(
        self, low_ns: int, process: int, session: int, ids: Iterator[int]
    ) -> Iterator[Span]:
        layers = self.timed_layers
        if not layers:
            return
        # Bounds are rounded, because thousands of rounded durations would drift from their sum.
        times_ns = accumulate((layer.ns for layer in layers), initial=0.0)
        bounds_ns = [low_ns + round(ns) for ns in times_ns]
        median_ns = round((self.latency.p50_ms or 0.0) * _NS_PER_MS)
        whole = Span(
            name=TYPICAL,
            category=Category.LABEL,
            start_ns=low_ns,
            duration_ns=max(median_ns, bounds_ns[-1] - low_ns),
            process=process,
            thread=_LAYERS,
            id=next(ids),
            parent=session,
        )
        yield whole
        for index, (layer, (start_ns, end_ns)) in enumerate(
            zip(layers, pairwise(bounds_ns), strict=True)
        ):
            yield Span(
                name=layer.label,
                category=layer.category,
                start_ns=start_ns,
                duration_ns=end_ns - start_ns,
                process=process,
                thread=_LAYERS,
                id=next(ids),
                parent=whole.id,
                operator_index=index if layer.category is Category.OPERATOR else None,
                arguments=layer.arguments,
            )


class _Part(Struct, frozen=True):
    """A part of a round: its load, an inference, or its warm-up."""

    name: str
    category: Category
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class TracedRound(Struct, frozen=True):
    """The durations of one round, and the start times of its parts if these were kept."""

    load_ms: DurationMs
    first_ms: DurationMs
    times_ns: tuple[DurationNs, ...]
    begun_ns: StartsJson | None = None

    @property
    def load_ns(self) -> int:
        return round(self.load_ms * _NS_PER_MS)

    @property
    def first_ns(self) -> int:
        return round(self.first_ms * _NS_PER_MS)

    def parts(self, start_ns: int) -> list[_Part]:
        """The parts of the round, following each other."""
        first_ns = start_ns + self.load_ns
        return [
            _Part("load", Category.LOAD, start_ns, self.load_ns),
            _Part(FIRST_INFERENCE, Category.INFERENCE, first_ns, self.first_ns),
            *self._inferences(first_ns + self.first_ns),
        ]

    def parts_in_place(self, begun: StartsJson, zero_ns: int) -> list[_Part]:
        """The parts of the round at the times when they ran."""
        parts = [
            _Part("load", Category.LOAD, begun.load - zero_ns, self.load_ns),
            _Part(FIRST_INFERENCE, Category.INFERENCE, begun.first - zero_ns, self.first_ns),
        ]
        if begun.warmup is not None and begun.warmup_end is not None:
            warmup_ns = begun.warmup_end - begun.warmup
            parts.append(_Part(WARM_UP, Category.LABEL, begun.warmup - zero_ns, warmup_ns))
        return [*parts, *self._inferences(begun.block - zero_ns)]

    def _inferences(self, start_ns: int) -> Iterator[_Part]:
        starts_ns = accumulate(self.times_ns, initial=start_ns)
        for ns, begun_ns in zip(self.times_ns, starts_ns, strict=False):
            yield _Part(INFERENCE, Category.INFERENCE, begun_ns, ns)


def _round_spans(
    name: str, parts: Sequence[_Part], process: int, session: int, ids: Iterator[int]
) -> Iterator[Span]:
    whole = Span(
        name=name,
        category=Category.ROUND,
        start_ns=parts[0].start_ns,
        duration_ns=parts[-1].end_ns - parts[0].start_ns,
        process=process,
        thread=_ROUNDS,
        id=next(ids),
        parent=session,
    )
    yield whole
    for part in parts:
        yield Span(
            name=part.name,
            category=part.category,
            start_ns=part.start_ns,
            duration_ns=part.duration_ns,
            process=process,
            thread=_ROUNDS,
            id=next(ids),
            parent=whole.id,
        )


class TracedLayer(Struct, frozen=True):
    """A part of the typical inference: a layer, or time that belongs to no layer."""

    kind: RowKind = RowKind.LAYER
    id: str | None = None
    name: str | None = None
    op_type: str | None = None
    domain: str | None = None
    kernel: str | None = None
    provider: str | None = None
    precision: str | None = None
    ms: SignedMs | None = None
    macs: Count | None = None
    params: Count | None = None
    input_shape: ShapeJson | None = None
    output_shape: ShapeJson | None = None
    fused: tuple[str, ...] | None = None

    @property
    def ns(self) -> float:
        return 0.0 if self.ms is None else self.ms * _NS_PER_MS

    @property
    def label(self) -> str:
        own_name = self.name or self.id if self.id else self.kernel
        return own_name or self.op_type or "layer"

    @property
    def category(self) -> Category:
        return Category.OVERHEAD if self.kind.is_outside_kernels else Category.OPERATOR

    @property
    def arguments(self) -> dict[str, Argument]:
        is_qualified = self.domain and self.op_type
        return {
            "op_type": f"{self.domain}::{self.op_type}" if is_qualified else self.op_type,
            "layer": self.id,
            "kernel": self.kernel,
            "provider": self.provider,
            "precision": self.precision,
            "macs": self.macs,
            "params": self.params,
            "input_shape": None if self.input_shape is None else format_shape(self.input_shape),
            "output_shape": None if self.output_shape is None else format_shape(self.output_shape),
            "fused": self.fused or None,
        }


def read_stored_profile(path: str | Path) -> TracedProfile:
    """Read what `modelperf profile --json` wrote; UsageError for any other file."""
    file = DocumentFile(Path(path), _ADVICE, UsageError)
    try:
        size = require_file(file.path)
        if size > _MAX_BYTES:
            most = format_bytes(_MAX_BYTES)
            raise file.error(f"it has {format_bytes(size)}, of which {most} would be read")
        data = file.path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {printable(str(file.path))}: {reason}.") from error
    document = file.parse(data)
    found = next((what for key, what in _OTHERS.items() if key in document), None)
    if found is not None:
        raise file.error(f"it is no profile: it is {found}")
    file.check_schema(document, SCHEMA)
    return file.convert(document, TracedProfile)
