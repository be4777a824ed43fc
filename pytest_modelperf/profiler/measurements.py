"""The records of a measurement: raw samples by round, and the figures computed from them."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from pytest_modelperf.files.documents import (
    Count,
    DurationMs,
    DurationNs,
    Figure,
    Moment,
    Number,
    SignedNs,
)
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.report.codec import JsonObject
from pytest_modelperf.stats.records import Latency, PartTurns, Percentile, RoundSpread, Turns
from pytest_modelperf.stats.slowdowns import low_time
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.stats.mixtures import MixtureLatency

_NS_PER_MS = 1e6
_PROVIDER = "ExecutionProvider"
# The providers that start kernels on a device and do not wait for them, by `provider_name`.
_DEVICES = frozenset({"CUDA", "Dml", "MIGraphX", "NvTensorRTRTX", "ROCM", "Tensorrt", "WebGpu"})

_PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p97_ms", "p99_ms", "p99.9_ms")


def _by_percentile(value: str, about: str, title: str) -> JsonObject[Latency]:
    keys = " ".join(f"{key}=percentiles.{i}.{value}" for i, key in enumerate(_PERCENTILES))
    return JsonObject(Latency, keys, about=about, title=title)


NEEDED = _by_percentile(
    "needed", "The number of samples that each percentile needs.", "NeededSamples"
)
INTERVALS = _by_percentile(
    "interval_ms",
    "The interval of each percentile; null if one round does not show it.",
    "PercentileIntervals",
)
LATENCY = JsonObject(
    Latency,
    "p50_ms p90_ms p95_ms p97_ms p99_ms p99.9_ms=p999_ms min_ms=min_ns max_ms=max_ns"
    " mean_ms=mean_ns samples rounds items_per_second? confidence intervals_ms=. needed=.",
    about="A latency; all null if nothing ran.",
    min_ms=DurationMs,
    max_ms=DurationMs,
    mean_ms=DurationMs,
    intervals_ms=INTERVALS,
    needed=NEEDED,
)


def provider_name(provider: str) -> str:
    """Return the short name of a provider: `CPU` for `CPUExecutionProvider`."""
    return printable(provider.removesuffix(_PROVIDER))


class EngineFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine that ran the model, its options, and its Python."""

    name: str
    version: str | None
    python: str | None
    options: Mapping[str, str]
    providers: tuple[str, ...]

    @property
    def label(self) -> str:
        """The engine with its version, such as `onnxruntime 1.31.1`."""
        return " ".join(part for part in (self.name, self.version) if part)


ENGINE = JsonObject(EngineFacts, "*")


class Noise(Struct, frozen=True, kw_only=True):
    """The disturbances of a block of inferences; None if the platform does not report them.

    `cpu_ns` is the processor time of all threads of the worker. `others_ns` is the time of
    everything else on its processors, which can be a little below 0 because their clock has ticks.
    `stolen_ns` is the time that the hypervisor took. `throttled_ns` is how long the quota of a
    cgroup halted the worker.
    """

    wall_ns: Count
    cpu_ns: Count | None = None
    involuntary_switches: Count | None = None
    others_ns: SignedNs | None = None
    stolen_ns: Count | None = None
    throttled_ns: Count | None = None


class Block(Turns, frozen=True, kw_only=True):
    """Inferences that were timed without a pause, and the noise during them.

    They ran one by one, or several at once: then `measured_per_second` is their rate. `starts_ns`
    is when each began, by the clock of the worker, or None if that was not recorded. `first_step`
    is the generation step of the first inference, which the others followed. `parts` are the parts
    of the model that ran after each of them.
    """

    noise: Noise
    measured_per_second: float | None = None
    starts_ns: tuple[int, ...] | None = None
    first_step: Count | None = None
    parts: tuple[PartTurns, ...] = ()

    @property
    def start_ns(self) -> int | None:
        return self.starts_ns[0] if self.starts_ns else None

    @property
    def end_ns(self) -> int | None:
        return self.starts_ns[-1] + self.times_ns[-1] if self.starts_ns else None

    @property
    def per_second(self) -> float:
        if self.measured_per_second is not None:
            return self.measured_per_second
        return len(self.times_ns) * 1e9 / max(sum(self.times_ns), 1)


class Load(Struct, frozen=True):
    """The time that a session took to create, and when that began, by the clock of the worker.

    With `is_only`, what was loaded stays, so later loads take no time.
    """

    duration_ns: int
    begun_ns: int | None = None
    is_only: bool = False


class RoundStarts(Struct, frozen=True, kw_only=True):
    """The starts of the steps before the block of a round, and the end of its warm-up, if any.

    The clock is `time.perf_counter_ns` of the worker. All processes of a machine share it, but
    different machines do not.
    """

    load_ns: Moment
    first_ns: Moment
    warmup_ns: Moment | None = None
    warmup_end_ns: Moment | None = None


class Round(Struct, frozen=True, kw_only=True):
    """A fresh session: its creation, its first inference, its warm-up, and a timed block.

    `starts` is None if the starts were not recorded.
    """

    load_ns: DurationNs
    first_ns: DurationNs
    warmup_runs: Count
    is_steady: bool
    block: Block
    starts: RoundStarts | None = None

    @property
    def times_ns(self) -> tuple[int, ...]:
        return self.block.times_ns

    @property
    def begun_ns(self) -> int | None:
        """The start of the round, or None if that was not recorded."""
        return None if self.starts is None else self.starts.load_ns

    @property
    def timeline(self) -> Round | None:
        """The round, if the starts of all its parts were recorded."""
        return None if self.starts is None or self.block.start_ns is None else self


STARTS = JsonObject(
    Round,
    "load=starts.load_ns first=starts.first_ns warmup?=starts.warmup_ns"
    " warmup_end?=starts.warmup_end_ns block=block.start_ns",
    title="RoundStarts",
    about="The start times of the parts of a round, by the clock of the worker.",
    load=Moment,
    first=Moment,
    block=Moment,
)
ROUND = JsonObject(
    Round,
    "load_ms=load_ns first_ms=first_ns warmup_runs is_steady noise=block.noise"
    " first_step?=block.first_step begun_ns?=timeline times_ns=block.times_ns",
    begun_ns=STARTS,
    times_ns=Annotated[tuple[DurationNs, ...], Meta(min_length=1)],
)


class DuetRound(Struct, frozen=True, kw_only=True):
    """Two sides in one round: fresh sessions, warmed up together, timed in turn."""

    before: Round
    after: Round


class SideRun(Struct, frozen=True, kw_only=True):
    """The figures of one side of a comparison. Its rounds are without their single times."""

    engine: EngineFacts
    latency: Latency
    rounds: tuple[RoundSpread, ...]
    load_ms: float
    first_inference_ms: float


class RowKind(enum.Enum):
    """The kind of a row of layer times."""

    LAYER = "layer"
    LAYOUT = "layout"
    OTHER = "other kernels"
    OVERHEAD = "runtime overhead"
    WAITING = "waiting for a processor"
    ELSEWHERE = "elsewhere"

    @property
    def is_outside_kernels(self) -> bool:
        return self in {RowKind.OVERHEAD, RowKind.WAITING}


class Kernel(Struct, frozen=True, kw_only=True):
    """One step of the plan that the engine made of the model, and its time in each run.

    `self_ns` leaves out what ran inside it, such as the body of a Loop. `originals` names the nodes
    of the model that it runs, if the engine reports them.
    """

    name: str
    op_type: str
    self_ns: tuple[float, ...]
    calls: int = 1
    provider: str | None = None
    precision: str | None = None
    originals: tuple[str, ...] | None = None


class KernelRun(Struct, frozen=True, kw_only=True):
    """The result of a profiled session: its kernels by run, and its latency next to a plain one.

    The runs are those of one or several sessions, one after the other; `sessions` has the number of
    runs of each. `plan` is the graph that the engine made of the model, as an ONNX file without
    weights. `plain_ns` are the latencies of an unprofiled session that ran in turn with them.
    """

    kernels: tuple[Kernel, ...]
    run_ns: tuple[float, ...]
    sessions: tuple[int, ...] = ()
    plain_ns: tuple[float, ...] = ()
    plan: bytes | None = None
    engine_peak_bytes: int | None = None


# The confidence of the intervals of differences between layers.
LAYER_CONFIDENCE = 0.99


class LayerTime(Struct, frozen=True, kw_only=True):
    """The time of one kernel in one inference, at the layer of the model that shows it.

    `layer` and `fused` are indexes into the layers of the static profile: the layer that the
    kernel's time is shown at, and the others that ran in the same kernel. `layer` is None for a
    time that belongs to no layer. `kernel` is the engine's name of it. `doubts_ns` is the
    uncertainty of the time, as a vector: when times that were taken in turn are added or
    subtracted, so are their vectors, and the length is half the interval, at `LAYER_CONFIDENCE`.
    `parts` are the numbers of the changed parts that contain one of its kernels.
    """

    kind: RowKind
    kernel: str
    ns: float
    layer: int | None = None
    fused: tuple[int, ...] = ()
    provider: str | None = None
    precision: str | None = None
    doubts_ns: tuple[float, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def half_width_ns(self) -> float | None:
        """Half the interval of the time, or None if that is unknown."""
        return math.hypot(*self.doubts_ns) if self.doubts_ns else None


def devices_of(times: Iterable[Kernel | LayerTime]) -> str:
    """Return the devices whose kernels ONNX Runtime starts without waiting, such as `CUDA`.

    The times of their kernels are those of the start. The text is empty if there is no such device.
    """
    names = {provider_name(each.provider) for each in times if each.provider is not None}
    return " and ".join(sorted(names & _DEVICES))


class GraphKernel(Struct, frozen=True, kw_only=True):
    """One kernel of a plan, and the indexes of the kernels that it gets its inputs from.

    `kind` and `layer` name the row of layer times that has its time. `ns` is its own time in one
    inference, without that of kernels in its bodies, or None if it was not measured.
    """

    op_type: str
    inputs: tuple[int, ...] = ()
    kind: RowKind = RowKind.LAYER
    layer: int | None = None
    ns: float | None = None


class Measurement(Struct, frozen=True, kw_only=True):
    """The results of running a case. Raw samples are kept, and `latency` is computed from them.

    `processors` are those that the worker was pinned to, or None if that was not possible.
    `machine` describes the other machine that a worker ran on, and is None for this one.
    `layer_times` is None if they were not taken or the engine has none. `kernels` are those of its
    plan, or None if the engine shows no plan. An inference arrived every `every_ns`, and its time
    counts from then. If that is None, it began when the one before was over. Up to `streams` ran at
    once.
    """

    engine: EngineFacts
    rounds: Annotated[tuple[Round, ...], Meta(min_length=1)]
    latency: Latency
    seconds: Number
    processors: tuple[Count, ...] | None = None
    machine: MachineFacts | None = None
    peak_rss_bytes: Count | None = None
    engine_peak_bytes: Count | None = None
    layer_times: tuple[LayerTime, ...] | None = None
    kernels: tuple[GraphKernel, ...] | None = None
    notes: tuple[str, ...] = ()
    every_ns: Count | None = None
    streams: Count = 1

    def __repr__(self) -> str:
        return f"<measurement: {self.latency!r}>"

    @property
    def every_ms(self) -> DurationMs | None:
        """The milliseconds from one arrival to the next."""
        return None if self.every_ns is None else self.every_ns / _NS_PER_MS

    @property
    def late(self) -> Figure | None:
        """The share of inferences that ended after the next one had arrived."""
        if self.every_ns is None:
            return None
        times_ns = [ns for made in self.rounds for ns in made.times_ns]
        return sum(ns > self.every_ns for ns in times_ns) / len(times_ns)

    @property
    def mixture(self) -> MixtureLatency | None:
        """The times of a workload, or None if this is not one."""
        if self.rounds[0].block.mix is None:
            return None
        # Imported here, because a plain case does not need it.
        from pytest_modelperf.stats.mixtures import summarize_mixture

        return summarize_mixture([made.block for made in self.rounds], self.latency.confidence)

    @property
    def typical(self) -> Percentile:
        """The median time of an inference, or for a workload the mean of its pass."""
        mixture = self.mixture
        return self.latency.percentile(50.0) if mixture is None else mixture.mean

    @property
    def items_per_second(self) -> Number | None:
        """The items of a batch divided by the typical time."""
        typical_ns = self.typical.value_ns
        return self.latency.batch_size * 1e9 / typical_ns if typical_ns else None

    @property
    def low_ns(self) -> float:
        """The time of an inference while it is hardly disturbed."""
        return low_time(made.block.calm_ns for made in self.rounds)

    @property
    def taken(self) -> float:
        """The number of its processors that other processes and the hypervisor used."""
        noises = [made.block.noise for made in self.rounds]
        wall_ns = sum(noise.wall_ns for noise in noises)
        taken_ns = sum((noise.others_ns or 0) + (noise.stolen_ns or 0) for noise in noises)
        return taken_ns / wall_ns if wall_ns else 0.0

    @property
    def load_ms(self) -> DurationMs:
        """The median over rounds of the time that a session took to create."""
        return _median_ms(r.load_ns for r in self.rounds)

    @property
    def first_load_ms(self) -> DurationMs:
        """The time that the first session of the process took to create."""
        return self.rounds[0].load_ns / _NS_PER_MS

    @property
    def first_inference_ms(self) -> DurationMs:
        """The median over rounds of the first inference of a session."""
        return _median_ms(r.first_ns for r in self.rounds)


def _median_ms(times_ns: Iterable[int]) -> float:
    # A static profile needs no median, and this import takes 2 ms.
    from statistics import median

    return median(times_ns) / _NS_PER_MS


# The name of a step begins with this while a measurement waits for another one.
WAITING = "waiting for"
# Work that takes less does not look like a hang.
LONG_SECONDS = 10.0


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a measurement, as a watch receives it.

    `estimate_ns` is the median so far, and `half_width` the larger side of its interval, relative
    to it. `seconds_left` is the most that this case may still take. `least_seconds` is what it
    takes at least, given once for a slow model.
    """

    case_id: str
    case_number: int
    cases: int
    step: str
    round: int | None = None
    estimate_ns: float | None = None
    half_width: float | None = None
    seconds_left: float | None = None
    least_seconds: float | None = None

    @property
    def is_waiting(self) -> bool:
        return self.step.startswith(WAITING)

    @property
    def announcement(self) -> str | None:
        """The message for a long wait, or None. Without it, the run would seem to hang."""
        if self.is_waiting:
            return self.step
        least, most = self.least_seconds, self.seconds_left
        if least is None or most is None or most < LONG_SECONDS:
            return None
        return f"its rounds are slow: they take {least:.0f} to {max(least, most):.0f} s"
