"""The rows of a profile: its layers, and the figures of a generation or a workload."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from pytest_modelperf.files.documents import (
    Count,
    DurationMs,
    Figure,
    Number,
    Positive,
    SignedMs,
    Sum,
)
from pytest_modelperf.profiler.counting.records import SPARSITY, StaticLayer
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.report.codec import JsonObject
from pytest_modelperf.stats.records import Percentile, Slope

_Sizes: TypeAlias = tuple[Count | None, ...]
# The counts of a model can need more than 64 bits.
_COUNT: Any = Count | None


class LayerRow(Struct, frozen=True):
    """A layer of the model and its time in one inference, or a time that belongs to no layer.

    `fused` are the layers that ran in the same kernel and have no time of their own. Each of them
    has `runs_in`, the id of the layer that the time is shown at.
    """

    static: StaticLayer | None
    time: LayerTime | None = None
    fused: tuple[StaticLayer, ...] = ()
    runs_in: str | None = None

    @property
    def ns(self) -> float | None:
        return None if self.time is None else self.time.ns

    @property
    def ms(self) -> float | None:
        return None if self.time is None else self.time.ns / 1e6

    @property
    def half_width(self) -> float | None:
        """Half the interval of its time, relative to the time, or None if that is unknown."""
        if self.time is None or self.time.half_width_ns is None or self.time.ns <= 0.0:
            return None
        return self.time.half_width_ns / self.time.ns

    @property
    def qualified_op(self) -> str:
        """The operator of the layer, or the kind of time without a layer."""
        if self.static is not None:
            return self.static.qualified_op
        return "" if self.time is None else self.time.kind.value

    @property
    def layers(self) -> tuple[StaticLayer, ...]:
        """The layer and those that ran in the same kernel."""
        return self.fused if self.static is None else (self.static, *self.fused)

    @property
    def precision(self) -> str | None:
        """The precision that the layer ran in, or the model's if it is unknown."""
        if self.time is not None and self.time.precision is not None:
            return self.time.precision
        return None if self.static is None else self.static.precision

    @property
    def gmacs_per_second(self) -> float | None:
        """The rate of the kernel with all of its layers, or None without MACs or a time."""
        macs = sum(layer.macs or 0 for layer in self.layers)
        return macs / self.ns if macs and self.ns else None

    @property
    def kind(self) -> RowKind:
        return RowKind.LAYER if self.static is not None or self.time is None else self.time.kind

    @property
    def op_type(self) -> str:
        """The operator without its domain, or the kind of time without a layer."""
        return self.qualified_op if self.static is None else self.static.op_type

    @property
    def kernel(self) -> str | None:
        """The engine's name for the kernel, or None if the model did not run or it is unknown."""
        return None if self.time is None else self.time.kernel or None

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """The interval of its time, or None if that is unknown."""
        if self.time is None or self.time.half_width_ns is None:
            return None
        half_width_ns = self.time.half_width_ns
        return self.time.ns - half_width_ns, self.time.ns + half_width_ns


LAYER = JsonObject(
    LayerRow,
    "kind id=static.id name=static.name op_type domain=static.domain weight=static.weight"
    " provider=time.provider precision ms=ns interval_ms=interval_ns macs=static.macs"
    " elementwise_ops=static.elementwise_ops backward_macs=static.backward_macs"
    " effective_macs=static.effective_macs params=static.params weight_bytes=static.weight_bytes"
    " output_bytes=static.output_bytes input_shape=static.input_shape"
    " output_shape=static.output_shape repeats=static.repeats sparsity=static.sparsity kernel"
    " fused=fused.id runs_in",
    title="Layer",
    ms=SignedMs | None,
    interval_ms=tuple[SignedMs, SignedMs] | None,
    **dict.fromkeys(("macs", "elementwise_ops", "backward_macs", "effective_macs"), _COUNT),
    **dict.fromkeys(("params", "weight_bytes", "output_bytes", "repeats"), _COUNT),
    input_shape=_Sizes | None,
    output_shape=_Sizes | None,
    sparsity=SPARSITY,
)


class GenerationFigures(Struct, frozen=True, kw_only=True):
    """The figures of a phase of a generation; None is unknown, or a figure of the other phase.

    `ttft` is the time to the first token, the median of the prefill. `token_p50` and `token_p95`
    are those of a step. `growth` is how much longer each step takes than the one before it.
    `tokens_per_second` counts all items of a batch together. `cache_bytes` is how much the state of
    one item grows with a token.
    """

    ttft: Percentile | None = None
    token_p50: Percentile | None = None
    token_p95: Percentile | None = None
    growth: Slope | None = None
    tokens_per_second: Number | None = None
    cache_bytes: int | None = None
    first_macs: Sum | None = None
    last_macs: Sum | None = None

    @property
    def step(self) -> GenerationFigures | None:
        """The figures, if they have the times of a step."""
        return None if self.token_p50 is None or self.token_p95 is None else self

    @property
    def counted(self) -> GenerationFigures | None:
        """The figures, if anything was counted."""
        counts = (self.cache_bytes, self.first_macs, self.last_macs)
        return None if counts == (None, None, None) else self


GENERATION = JsonObject(
    GenerationFigures,
    "ttft_ms?=ttft.value_ms token_ms?=step growth_ns_per_token?=growth tokens_per_second?"
    " cache_bytes_per_token=cache_bytes macs=counted",
    cache_bytes_per_token=Count | None,
    token_ms=JsonObject(
        GenerationFigures,
        "p50=token_p50.value_ms p95=token_p95.value_ms",
        title="StepTimes",
        about="The time of a step.",
    ),
    growth_ns_per_token=JsonObject(
        Slope, "value=ns_per_step interval", about="A figure with its interval."
    ),
    macs=JsonObject(
        GenerationFigures,
        "first=first_macs last=last_macs",
        title="StepMacs",
        about="The MACs of the first step and of the last.",
    ),
)


# The part of a case's id that marks a workload.
MIXED = "mixed"


class MemberFigures(Struct, frozen=True, kw_only=True):
    """The figures of one member of a workload. The times are None if it did not run.

    `share` is its share of the time of a pass, and `macs` is None if a count is missing.
    """

    name: str
    weight: Positive
    is_largest: bool
    macs: Count | None = None
    p50: Percentile | None = None
    share: Figure | None = None


class WorkloadFigures(Struct, frozen=True, kw_only=True):
    """The figures of a workload: the time of one pass with its interval, and its members.

    In a pass, every member occurs as often as its weight.
    """

    total_ms: DurationMs | None = None
    interval_ms: tuple[DurationMs, DurationMs] | None = None
    members: tuple[MemberFigures, ...]

    @property
    def mean_macs(self) -> Figure | None:
        """The mean MACs of an inference in a pass, or None if those of a member are unknown."""
        counts = [each.macs for each in self.members if each.macs is not None]
        if len(counts) < len(self.members):
            return None
        weights = [each.weight for each in self.members]
        return sum(w * macs for w, macs in zip(weights, counts, strict=True)) / sum(weights)


WORKLOAD = JsonObject(
    WorkloadFigures,
    "total_ms interval_ms mean_macs members",
    members=JsonObject(
        MemberFigures,
        "name weight largest=is_largest macs p50_ms=p50.value_ms interval_ms=p50.interval_ms share",
        title="WorkloadMember",
        about="One member of a workload; its times are null if nothing ran.",
    ),
)
