"""Reads a profile that was stored as JSON, as the spans of a trace.

A stored profile is no recording: each layer has one typical time. Rounds are shown at the times
when they ran; if only durations were kept, they follow each other. docs/json.md has the keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from pathlib import Path

from msgspec import Struct, field

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.reading import require_file
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_shape
from pytest_modelperf.tracing.records import Argument, Category, Event, Span, ThreadName

FIRST_INFERENCE = "first inference"
INFERENCE = "inference"
WARM_UP = "warm-up"
TYPICAL = "typical inference"

_SCHEMA = 1
_NS_PER_MS = 1e6
# A day. Longer times cannot be measurements, and their sums would exceed 64 bits.
_MAX_NS = 86_400_000_000_000
# The latest time of a clock, with room for a day in 64 bits.
_MAX_MOMENT_NS = 1 << 62
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

Json = Mapping[str, object]


class StoredProfile(Struct, frozen=True):
    """A stored profile; `notes` say which parts of it have no spans, and why."""

    model: str
    notes: tuple[str, ...]
    cases: tuple[StoredCase, ...]

    def events(self) -> Iterator[Event]:
        """The events: a process for each case, with its rounds and a typical inference."""
        ids = count(1)
        zero_ns = min(
            (case.begun_ns for case in self.cases if case.begun_ns is not None), default=0
        )
        for process, case in enumerate(self.cases, 1):
            yield from case.events(self.model, process, ids, zero_ns)


class StoredCase(Struct, frozen=True):
    """A case that ran."""

    id: str
    rounds: tuple[StoredRound, ...]
    layers: tuple[StoredLayer, ...]
    median_ns: float

    @property
    def begun_ns(self) -> int | None:
        """The start of its first round; None if its rounds lack usable start times."""
        now_ns = 0
        for made in self.rounds:
            if made.begun is None:
                return None
            for part in made.parts_in_place(made.begun, 0):
                if not now_ns <= part.start_ns <= part.end_ns:
                    return None
                now_ns = part.end_ns
        first = self.rounds[0].begun if self.rounds else None
        return None if first is None else first.load_ns

    def events(
        self, model: str, process: int, ids: Iterator[int], zero_ns: int = 0
    ) -> Iterator[Event]:
        """The events, each span before the spans inside it, on a clock that begins at `zero_ns`."""
        yield ThreadName(name=f"{model} {self.id}", process=process)
        yield ThreadName(name="rounds", process=process, thread=_ROUNDS)
        if self.layers:
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
            made.parts_in_place(made.begun, zero_ns)
            for made in self.rounds
            if made.begun is not None
        ]

    def _layer_spans(
        self, low_ns: int, process: int, session: int, ids: Iterator[int]
    ) -> Iterator[Span]:
        if not self.layers:
            return
        # Bounds are rounded, because thousands of rounded durations would drift from their sum.
        times_ns = accumulate((layer.ns for layer in self.layers), initial=0.0)
        bounds_ns = [low_ns + round(ns) for ns in times_ns]
        whole = Span(
            name=TYPICAL,
            category=Category.LABEL,
            start_ns=low_ns,
            duration_ns=max(round(self.median_ns), bounds_ns[-1] - low_ns),
            process=process,
            thread=_LAYERS,
            id=next(ids),
            parent=session,
        )
        yield whole
        for index, (layer, (start_ns, end_ns)) in enumerate(
            zip(self.layers, pairwise(bounds_ns), strict=True)
        ):
            yield Span(
                name=layer.name,
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


class StoredStarts(Struct, frozen=True):
    """The starts of the parts of a round, and the end of its warm-up if it had one."""

    load_ns: int
    first_ns: int
    warmup_ns: int | None
    warmup_end_ns: int | None
    block_ns: int


class StoredRound(Struct, frozen=True):
    """The durations of one round, and their starts if these were kept."""

    load_ns: int
    first_ns: int
    times_ns: tuple[int, ...]
    begun: StoredStarts | None = None

    def parts(self, start_ns: int) -> list[_Part]:
        """The parts of the round, following each other."""
        first_ns = start_ns + self.load_ns
        return [
            _Part("load", Category.LOAD, start_ns, self.load_ns),
            _Part(FIRST_INFERENCE, Category.INFERENCE, first_ns, self.first_ns),
            *self._inferences(first_ns + self.first_ns),
        ]

    def parts_in_place(self, begun: StoredStarts, zero_ns: int) -> list[_Part]:
        """The parts of the round at the times when they ran."""
        parts = [
            _Part("load", Category.LOAD, begun.load_ns - zero_ns, self.load_ns),
            _Part(FIRST_INFERENCE, Category.INFERENCE, begun.first_ns - zero_ns, self.first_ns),
        ]
        if begun.warmup_ns is not None and begun.warmup_end_ns is not None:
            warmup_ns = begun.warmup_end_ns - begun.warmup_ns
            parts.append(
                _Part(WARM_UP, Category.LABEL, begun.warmup_ns - zero_ns, warmup_ns),
            )
        return [*parts, *self._inferences(begun.block_ns - zero_ns)]

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


class StoredLayer(Struct, frozen=True):
    """A part of the typical inference: a layer, or time that belongs to no layer."""

    name: str
    category: Category
    ns: float
    arguments: Mapping[str, Argument] = field(default_factory=dict)


def read_stored_profile(path: str | Path) -> StoredProfile:
    """Read what `modelperf profile --json` wrote; UsageError for any other file."""
    file = Path(path)
    try:
        size = require_file(file)
        if size > _MAX_BYTES:
            most = format_bytes(_MAX_BYTES)
            raise _foreign(file, f"it has {format_bytes(size)}, of which {most} would be read")
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {_shown(file)}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise _foreign(file, "it is no text") from error
    except json.JSONDecodeError as error:
        raise _foreign(file, f"line {error.lineno} is no JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise _foreign(file, "it is nested too deeply, or has numbers without end") from error
    return _Reader(file).profile(document)


class _Reader(Struct, frozen=True):
    """Reads the document; a wrong value is an error with its place."""

    file: Path

    def profile(self, document: object) -> StoredProfile:
        if not isinstance(document, dict):
            raise _foreign(self.file, "it is no object of JSON")
        found = next((what for key, what in _OTHERS.items() if key in document), None)
        if found is not None:
            raise _foreign(self.file, f"it is {found}")
        if "schema" not in document:
            raise _foreign(self.file, 'it has no "schema"')
        if document.get("schema") != _SCHEMA:
            raise _foreign(
                self.file, f'"schema" is {document.get("schema")!r:.40}, expected {_SCHEMA}'
            )
        model = self._object(document.get("model"), "model")
        entries = [
            (f"cases[{i}]", self._object(entry, f"cases[{i}]"))
            for i, entry in enumerate(self._list(document.get("cases"), "cases"))
        ]
        ran = [(place, entry) for place, entry in entries if entry.get("raw") is not None]
        notes = [_unmeasured(entry) for _, entry in entries if entry.get("raw") is None]
        cases = tuple(self._case(entry, place) for place, entry in ran)
        notes += [
            f"{case.id}: the engine told no times of layers" for case in cases if not case.layers
        ]
        return StoredProfile(_text(model.get("name")) or "model", tuple(notes), cases)

    def _case(self, entry: Json, place: str) -> StoredCase:
        rounds = tuple(
            self._round(self._object(made, f"{place}.raw[{i}]"), f"{place}.raw[{i}]")
            for i, made in enumerate(self._list(entry.get("raw"), f"{place}.raw"))
        )
        layers = (
            self._layer(self._object(layer, f"{place}.layers[{i}]"), f"{place}.layers[{i}]")
            for i, layer in enumerate(self._list(entry.get("layers"), f"{place}.layers"))
        )
        latency = self._object(entry.get("latency"), f"{place}.latency")
        median_ms = latency.get("p50_ms")
        return StoredCase(
            _text(entry.get("id")) or place,
            rounds,
            tuple(layer for layer in layers if layer is not None),
            0.0 if median_ms is None else self._ns(median_ms, _NS_PER_MS, f"{place}.latency"),
        )

    def _round(self, made: Json, place: str) -> StoredRound:
        return StoredRound(
            round(self._ns(made.get("load_ms"), _NS_PER_MS, f"{place}.load_ms")),
            round(self._ns(made.get("first_ms"), _NS_PER_MS, f"{place}.first_ms")),
            tuple(
                round(self._ns(ns, 1, f"{place}.times_ns"))
                for ns in self._list(made.get("times_ns"), f"{place}.times_ns")
            ),
            self._starts(made.get("begun_ns"), f"{place}.begun_ns"),
        )

    def _starts(self, value: object, place: str) -> StoredStarts | None:
        """The start times; None if they were not kept, as in early versions."""
        if value is None:
            return None
        told = self._object(value, place)
        keys = ("load", "first", "warmup", "warmup_end", "block")
        load, first, warmup, warmup_end, block = (_moment(told.get(key)) for key in keys)
        if load is None or first is None or block is None:
            raise _foreign(self.file, f"{place} is {value!r:.80}, expected whole nanoseconds")
        return StoredStarts(load, first, warmup, warmup_end, block)

    def _layer(self, layer: Json, place: str) -> StoredLayer | None:
        """The layer; None if it has no time of its own."""
        if layer.get("ms") is None:
            return None
        ms = layer["ms"]
        # The rest of the latency after all kernels can be slightly negative.
        if isinstance(ms, int | float) and ms < 0:
            return None
        kind, op_type, domain = (_text(layer.get(key)) for key in ("kind", "op_type", "domain"))
        layer_id, kernel = _text(layer.get("id")), _text(layer.get("kernel"))
        own = _text(layer.get("name")) or layer_id if layer_id else kernel
        return StoredLayer(
            own or op_type or "layer",
            Category.OVERHEAD if kind == RowKind.OVERHEAD.value else Category.OPERATOR,
            self._ns(ms, _NS_PER_MS, f"{place}.ms"),
            {
                "op_type": f"{domain}::{op_type}" if domain and op_type else op_type,
                "layer": layer_id,
                "kernel": kernel,
                "provider": _text(layer.get("provider")),
                "precision": _text(layer.get("precision")),
                "macs": _count(layer.get("macs")),
                "params": _count(layer.get("params")),
                "input_shape": _shape(layer.get("input_shape")),
                "output_shape": _shape(layer.get("output_shape")),
                "fused": _texts(layer.get("fused")),
            },
        )

    def _ns(self, value: object, unit_ns: float, place: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            ns = value * unit_ns if abs(value) <= _MAX_NS else math.inf
            if 0 <= ns <= _MAX_NS:
                return ns
        raise _foreign(self.file, f"{place} has {value!r:.40}, expected a duration of up to a day")

    def _object(self, value: object, place: str) -> Json:
        if isinstance(value, dict):
            return value
        raise _foreign(self.file, f"{place} is {value!r:.40}, expected an object")

    def _list(self, value: object, place: str) -> Sequence[object]:
        if isinstance(value, list):
            return value
        raise _foreign(self.file, f"{place} is {value!r:.40}, expected a list")


def _unmeasured(entry: Json) -> str:
    what = _text(entry.get("outcome")) or "not measured"
    reason = _text(entry.get("reason"))
    return f"{_text(entry.get('id')) or 'a case'}: {what}" + (f", {reason}" if reason else "")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(text for text in value if isinstance(text, str)) or None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(value: object) -> int | None:
    ns = _count(value)
    return ns if ns is not None and 0 <= ns < _MAX_MOMENT_NS else None


def _shape(value: object) -> str | None:
    if not isinstance(value, list):
        return None
    return format_shape(tuple(dim if isinstance(dim, int) else None for dim in value))


def _foreign(file: Path, found: str) -> UsageError:
    return UsageError(
        f"{_shown(file)} is no profile: {printable(found)}. Expected what `modelperf profile MODEL "
        f"--json F` writes, or a profile of ONNX Runtime."
    )


def _shown(file: Path) -> str:
    return printable(str(file))
