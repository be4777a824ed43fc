"""The roofline: the least time that a machine's peaks allow a layer, next to its real time."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_modelperf.files.documents import (
    MAX_INTEGER,
    ContradictionError,
    Count,
    Number,
    Positive,
    shortened,
)
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile
from pytest_modelperf.profiler.measurements import EngineFacts, LayerTime
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.report.codec import JsonObject
from pytest_modelperf.report.document import Json

_NS_PER_S = 1e9
_SAME = {"uint8": "int8"}

# All real peaks are above one a second, and peaks are used as divisors.
Rate: TypeAlias = Annotated[float, Meta(ge=1, le=MAX_INTEGER)]

UNKNOWN_SIZE = "its operations or its bytes are not known"


class Bound(str, Enum):
    """The resource that limits a layer."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Bandwidth(Struct, frozen=True):
    """The highest bandwidth that was measured for this number of bytes."""

    nbytes: Positive = field(name="bytes")
    bytes_per_second: Rate


# Two measurements of one rate are closer than this ratio.
_LESS = 0.95


class Peaks(Struct, frozen=True, kw_only=True):
    """The highest rates that an engine reached on a machine, with this number of cores.

    `macs_per_second` has the rate for each precision that the engine computed in. `runs_as` maps
    the precision of a model to the one that the engine computes it in. `bandwidths` range from few
    bytes, which stay in a cache, to more than any cache holds.
    """

    machine_key: str = field(name="machine")
    engine: str
    version: str | None
    options: Mapping[str, str]
    cores: Positive
    measured: dt.date
    macs_per_second: Mapping[str, Rate]
    runs_as: Mapping[str, str]
    bandwidths: Annotated[tuple[Bandwidth, ...], Meta(min_length=1)]

    def are_of(self, machine_key: str, engine: EngineFacts, cores: int) -> bool:
        """Whether these peaks belong to this machine, engine with its options, and core count."""
        wanted = machine_key, engine.name, engine.version, dict(engine.options), cores
        return self.subject == wanted

    @property
    def subject(self) -> object:
        """A key that is equal for peaks of the same machine, engine, options and core count."""
        return self.machine_key, self.engine, self.version, dict(self.options), self.cores

    def are_below(self, others: Peaks) -> bool:
        """Whether a rate is clearly lower than that of other peaks, which have fewer cores."""
        own, theirs = self._rates(), others._rates()
        return any(rate < _LESS * theirs[key] for key, rate in own.items() if key in theirs)

    def _rates(self) -> dict[str, float]:
        """Return every rate by its precision or its number of bytes."""
        rates = {str(each.nbytes): each.bytes_per_second for each in self.bandwidths}
        return {**self.macs_per_second, **rates}

    def raised_by(self, others: Peaks) -> Peaks:
        """Return the higher value of each rate in two measurements of the same peaks."""
        rates = dict(self.macs_per_second)
        for precision, rate in others.macs_per_second.items():
            rates[precision] = max(rate, rates.get(precision, 0.0))
        best = {b.nbytes: b for b in self.bandwidths}
        for each in others.bandwidths:
            known = best.get(each.nbytes)
            if known is None or known.bytes_per_second < each.bytes_per_second:
                best[each.nbytes] = each
        bandwidths = tuple(best[nbytes] for nbytes in sorted(best))
        return replace(self, macs_per_second=rates, bandwidths=bandwidths)

    @property
    def bytes_per_second(self) -> float:
        """The bandwidth outside of the caches."""
        return max(self.bandwidths, key=lambda each: each.nbytes).bytes_per_second

    @property
    def balance(self) -> Mapping[str, float]:
        """MACs per byte by precision. Below them, memory outside of the caches is the bound."""
        return {name: rate / self.bytes_per_second for name, rate in self.macs_per_second.items()}

    def bandwidth_of(self, nbytes: int) -> float:
        """Return the bytes per second that are attainable for this number of bytes.

        Between two measured sizes, it is interpolated over the logarithm of the size. More bytes
        are never moved faster than fewer, so smaller sizes have at least the rate of larger ones.
        """
        rising = _rising(self.bandwidths)
        if nbytes <= rising[0].nbytes:
            return rising[0].bytes_per_second
        for low, high in pairwise(rising):
            if nbytes <= high.nbytes:
                place = math.log(nbytes / low.nbytes) / math.log(high.nbytes / low.nbytes)
                return (1 - place) * low.bytes_per_second + place * high.bytes_per_second
        return rising[-1].bytes_per_second

    def computes_as(self, written: str | None) -> str | None:
        """Return the precision in which the engine computes a model of this precision."""
        known = same_precision(written)
        return None if known is None else self.runs_as.get(known, known)


PEAKS = JsonObject(
    Peaks,
    "* bytes_per_second? balance?",
    about="The peaks of an engine on a machine, with what follows from them.",
)


def same_precision(name: str | None) -> str | None:
    """Return the precision whose peak applies: `uint8` and `int8` products are the same work."""
    return None if name is None else _SAME.get(name, name)


def _rising(bandwidths: Sequence[Bandwidth]) -> list[Bandwidth]:
    """Return the bandwidths by size, each at least as high as those of larger sizes."""
    made: list[Bandwidth] = []
    for each in sorted(bandwidths, key=lambda each: -each.nbytes):
        best = max(each.bytes_per_second, made[-1].bytes_per_second if made else 0.0)
        made.append(Bandwidth(each.nbytes, best))
    return made[::-1]


class Work(Struct, frozen=True, kw_only=True):
    """The work of one kernel, for its layer and the layers that are fused with it."""

    macs: int
    elementwise_ops: int
    nbytes: int

    @property
    def operations(self) -> int:
        """The number of MACs or, without MACs, of elementwise operations."""
        return self.macs or self.elementwise_ops


class LayerRoof(Struct, frozen=True, kw_only=True):
    """A layer under its roof.

    Rates are MACs a second or, without MACs, elementwise operations a second. `ns` is the time of
    the layer, or None if the model did not run, and `half_width_ns` is half its interval.
    `least_ns` is its time at the roof. `precision` is the one whose peak was used.
    """

    id: str
    name: str
    op_type: str
    work: Work
    precision: str | None
    least_ns: float
    bound: Bound
    ns: float | None = None
    half_width_ns: float | None = None

    @property
    def intensity(self) -> float | None:
        """Operations per byte, or None if no byte is moved."""
        return self.work.operations / self.work.nbytes if self.work.nbytes else None

    @property
    def attainable_per_second(self) -> float | None:
        return _rate(self.work.operations, self.least_ns)

    @property
    def achieved_per_second(self) -> float | None:
        return _rate(self.work.operations, self.ns)

    @property
    def achieved_bytes_per_second(self) -> float | None:
        return _rate(self.work.nbytes, self.ns)

    @property
    def share(self) -> float | None:
        """The achieved share of the attainable rate, above 1 if the true peak is higher."""
        return self.least_ns / self.ns if self.ns else None

    @property
    def gain_ns(self) -> float | None:
        """The time that would be saved at the roof, by the best estimate of the layer's time."""
        return None if self.ns is None else max(0.0, self.ns - self.least_ns)

    @property
    def gain_interval_ns(self) -> tuple[float, float] | None:
        """The interval of the gain, derived from that of the time."""
        if self.ns is None or self.half_width_ns is None:
            return None
        low_ns, high_ns = (
            max(0.0, self.ns + way * self.half_width_ns - self.least_ns) for way in (-1, 1)
        )
        return low_ns, high_ns

    @property
    def is_beyond(self) -> bool:
        """Whether it is faster than the roof: the true peak is higher than the measured one."""
        return self.ns is not None and self.ns < self.least_ns


LAYER_ROOF = JsonObject(
    LayerRoof,
    "id op_type ms=ns least_ms=least_ns gain_ms?=gain_ns gain_interval_ms?=gain_interval_ns"
    " half_width_ms=half_width_ns share? bound precision macs=work.macs"
    " elementwise_ops=work.elementwise_ops bytes_moved=work.nbytes intensity?"
    " achieved_per_second? attainable_per_second? achieved_bytes_per_second?",
    about="A layer beneath its roof: its times in ms, and its work as keys of their own.",
    ms=Number | None,
    least_ms=Number,
    macs=Count,
    elementwise_ops=Count,
    bytes_moved=Count,
)


class Unplaced(Struct, frozen=True, kw_only=True):
    """The number of layers that have no roof for one reason."""

    reason: str
    count: Count


class Roofline(Struct, frozen=True, kw_only=True):
    """The layers of a case under the peaks of its machine, and how many have no roof, by reason.

    Layers that ran are ordered by their gain, others as in the graph.
    """

    peaks: Peaks
    layers: tuple[LayerRoof, ...]
    unplaced: Mapping[str, int] = field(default_factory=dict)

    @property
    def least_ns(self) -> float:
        return math.fsum(layer.least_ns for layer in self.layers)

    @property
    def gain_ns(self) -> float | None:
        """The time that all layers together would save at their roofs, or None without a run."""
        gains = [layer.gain_ns for layer in self.layers if layer.gain_ns is not None]
        return math.fsum(gains) if gains else None

    @property
    def gain_interval_ns(self) -> tuple[float, float] | None:
        """The widest interval of that time: noise may move all layers in the same direction."""
        known = [layer.gain_interval_ns for layer in self.layers if layer.ns is not None]
        intervals = [interval for interval in known if interval is not None]
        if not intervals or len(intervals) < len(known):
            return None
        low_ns, high_ns = map(math.fsum, zip(*intervals, strict=True))
        return low_ns, high_ns

    @property
    def unplaced_by_reason(self) -> tuple[Unplaced, ...]:
        found = self.unplaced.items()
        return tuple(Unplaced(reason=reason, count=count) for reason, count in found)


ROOFLINE = JsonObject(
    Roofline,
    "peaks least_ms?=least_ns gain_ms?=gain_ns gain_interval_ms?=gain_interval_ns layers"
    " unplaced=unplaced_by_reason",
    peaks=PEAKS,
    layers=LAYER_ROOF,
)


class Rooflines(Struct, frozen=True):
    """The roofline of each case that has one, by its id, and notes on why others have none."""

    by_case: Mapping[str, Roofline] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class KernelWork(Struct, frozen=True):
    """A kernel: the layer that shows its time, its work, and its time.

    `work` is None if it is unknown, `precision` is None if the engine does not report it, and `ns`
    is None if the model did not run.
    """

    layer: StaticLayer
    work: Work | None
    precision: str | None = None
    ns: float | None = None
    half_width_ns: float | None = None


def kernel_works(static: StaticProfile, times: Iterable[LayerTime]) -> Iterator[KernelWork]:
    readers = _readers(static.layers)
    for time in times:
        if time.layer is not None:
            work = _work(static.layers, (time.layer, *time.fused), readers)
            precision = same_precision(time.precision)
            layer = static.layers[time.layer]
            yield KernelWork(layer, work, precision, time.ns, time.half_width_ns)


def place_layers(case: CaseProfile, peaks: Peaks) -> Roofline:
    """Return the roofline of all layers that have a time, the largest gain first."""
    times = () if case.measured is None else case.measured.layer_times or ()
    return _place(peaks, () if case.counted is None else kernel_works(case.counted, times))


def theoretical_roofs(static: StaticProfile, peaks: Peaks) -> Roofline:
    """Return the least time of every layer in graph order, as if each were one kernel.

    The sum is the time without fusion, because an engine that fuses layers moves fewer bytes.
    """
    readers = _readers(static.layers)
    kernels = (
        KernelWork(layer, _work(static.layers, (index,), readers))
        for index, layer in enumerate(static.layers)
    )
    return _place(peaks, kernels)


def _place(peaks: Peaks, kernels: Iterable[KernelWork]) -> Roofline:
    roofs: list[LayerRoof] = []
    unplaced: dict[str, int] = defaultdict(int)
    for each in kernels:
        layer, work = each.layer, each.work
        precision = each.precision or peaks.computes_as(layer.precision)
        peak = peaks.macs_per_second.get(precision or "")
        if work is None:
            unplaced[UNKNOWN_SIZE] += 1
            continue
        if work.macs and peak is None:
            unplaced[f"no peak is known of {precision or 'its precision'}"] += 1
            continue
        compute_ns = _NS_PER_S * work.macs / peak if peak else 0.0
        memory_ns = _NS_PER_S * work.nbytes / peaks.bandwidth_of(work.nbytes)
        roof = LayerRoof(
            id=layer.id,
            name=layer.name,
            op_type=layer.qualified_op,
            work=work,
            precision=precision,
            least_ns=max(compute_ns, memory_ns),
            bound=Bound.COMPUTE if compute_ns > memory_ns else Bound.MEMORY,
            ns=each.ns,
            half_width_ns=each.half_width_ns,
        )
        roofs.append(roof)
    roofs.sort(key=lambda roof: -(roof.gain_ns or 0.0))
    return Roofline(peaks=peaks, layers=tuple(roofs), unplaced=dict(unplaced))


def _readers(layers: Sequence[StaticLayer]) -> Mapping[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for index, layer in enumerate(layers):
        for name in layer.reads or ():
            found.setdefault(name, set()).add(index)
    return {name: frozenset(indexes) for name, indexes in found.items()}


def _work(
    layers: Sequence[StaticLayer], indexes: Iterable[int], readers: Mapping[str, frozenset[int]]
) -> Work | None:
    """Return the work of a kernel for these layers, or None if it is unknown.

    Each tensor is moved once. A tensor that only these layers write and read is not moved.
    """
    inside = frozenset(indexes)
    macs = ops = 0
    reads: dict[str, int | None] = {}
    writes: dict[str, int | None] = {}
    for layer in map(layers.__getitem__, inside):
        if layer.macs is None or layer.elementwise_ops is None:
            return None
        if layer.reads is None or layer.writes is None:
            return None
        macs += layer.macs
        ops += layer.elementwise_ops
        reads.update(layer.reads)
        writes.update(layer.writes)
    moved = [nbytes for name, nbytes in reads.items() if name not in writes]
    moved += [
        nbytes
        for name, nbytes in writes.items()
        # A tensor that no layer reads is an output of the model.
        if not (name in reads and readers[name] <= inside)
    ]
    known = [nbytes for nbytes in moved if nbytes is not None]
    if len(known) < len(moved):
        return None
    return Work(macs=macs, elementwise_ops=ops, nbytes=sum(known))


def _rate(amount: int, ns: float | None) -> float | None:
    return _NS_PER_S * amount / ns if amount and ns else None


# -- rooflines as parts of the document of a profile


def rooflines_to_json(rooflines: Mapping[str, Roofline]) -> dict[str, Json]:
    """Return rooflines by the ids of their cases, for the document of a profile."""
    return {case_id: ROOFLINE.of(roofline) for case_id, roofline in rooflines.items()}


def read_roofline(found: Any, names: Mapping[str, str]) -> Roofline:  # noqa: ANN401  # of `ROOFLINE`
    """Read the roofline of a case, given the names of its layers by their ids."""
    for index, roof in enumerate(found.layers):
        if roof.id not in names:
            problem = f'there is no layer "{shortened(roof.id)}"'
            raise ContradictionError(f"layers[{index}].id", problem)
    return ROOFLINE.read(
        found,
        layers=tuple(LAYER_ROOF.read(roof, name=names[roof.id]) for roof in found.layers),
        unplaced={each.reason: each.count for each in found.unplaced},
    )
