"""What differs between two sides: times, layers, outputs, parts, kernels, stages and calls."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from msgspec import Struct

from pytest_modelperf.files.documents import Count, Figure, Number
from pytest_modelperf.profiler.counting.records import LAYER_TYPE, LayerType
from pytest_modelperf.profiler.measurements import GraphKernel
from pytest_modelperf.profiler.rows import LAYER, LayerRow
from pytest_modelperf.report.codec import JsonObject
from pytest_modelperf.report.picture.records import BoxState

# The bounds of a figure in a document: null if unknown. A bound that is infinite is null as well.
Interval: TypeAlias = tuple[Figure | None, Figure | None] | None
StageKind: TypeAlias = Literal["session", "rest", "label", "input"]


class TimeChange(Struct, frozen=True, kw_only=True):
    """How much longer something takes now, with its interval.

    `share` is its share of the whole difference, or None if the whole difference is within the
    noise. Reports show `explained` instead.
    """

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    share: float | None = None

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns / 1e6, self.high_ns / 1e6

    @property
    def is_within_noise(self) -> bool:
        """Whether the interval contains 0. False without an interval."""
        found = self.interval_ms
        return found is not None and found[0] <= 0.0 <= found[1]

    @property
    def explained(self) -> Figure | None:
        """The share of the difference that it explains, or None for a change within the noise."""
        return None if self.share and self.is_within_noise else self.share

    def explains(self, least: float) -> bool:
        """Whether it is at least this share of the difference and more than noise."""
        return self.explained is not None and self.explained >= least


_CHANGE_KEYS = "change_ms=time.ns change_interval_ms=time.interval_ms explains=time.explained"


ELSEWHERE = JsonObject(
    TimeChange,
    "change_ms=ns interval_ms",
    about="How much longer the whole model takes than the parts that changed.",
    change_ms=Figure | None,
    interval_ms=Interval,
)


class LayerTypeChange(Struct, frozen=True):
    """All layers of one operator on both sides, None for a side without any."""

    op: str
    before: LayerType | None
    after: LayerType | None
    time: TimeChange | None = None

    @property
    def known(self) -> LayerType | None:
        """The layers of the side now, or of the side before if there are none now."""
        return self.after or self.before

    @property
    def added_macs(self) -> int:
        before, after = (
            0 if side is None else side.macs or 0 for side in (self.before, self.after)
        )
        return after - before

    @property
    def added_ops(self) -> int:
        sides = (self.before, self.after)
        before, after = (0 if side is None else side.elementwise_ops or 0 for side in sides)
        return after - before

    @property
    def is_equal(self) -> bool:
        return self.before == self.after


LAYER_TYPE_CHANGE = JsonObject(
    LayerTypeChange,
    f"op_type=known.op_type domain=known.counts.domain {_CHANGE_KEYS} before after",
    change_ms=Figure | None,
    change_interval_ms=Interval,
    before=LAYER_TYPE,
    after=LAYER_TYPE,
)


class LayerChange(Struct, frozen=True):
    """One layer on both sides, None for a side without it.

    Its row has no time on a side on which it runs inside the kernel of another layer.
    """

    before: LayerRow | None
    after: LayerRow | None
    time: TimeChange | None = None


LAYER_CHANGE = JsonObject(
    LayerChange,
    f"{_CHANGE_KEYS} before after",
    change_ms=Figure | None,
    change_interval_ms=Interval,
    before=LAYER,
    after=LAYER,
)


class OutputChange(Struct, frozen=True, kw_only=True):
    """One output of both models on the same inputs.

    `difference` is the reason why both cannot be compared. Then there are no figures. If
    `is_other`, they differ in more than their values. `largest` is the largest absolute
    value before. With `is_least`, the true difference is at least the one shown.
    """

    name: str
    max_absolute: float | None = None
    max_relative: float | None = None
    cosine: float | None = None
    difference: str | None = None
    is_other: bool = False
    largest: float | None = None
    is_least: bool = False

    @property
    def share(self) -> Figure | None:
        """The largest difference as a share of the largest value before."""
        if self.max_absolute is None or self.largest is None:
            return None
        if self.max_absolute == 0:
            return 0.0
        return self.max_absolute / self.largest if self.largest else math.inf


OUTPUT = JsonObject(OutputChange, "name max_absolute max_relative cosine difference")


class TensorDifference(Struct, frozen=True, kw_only=True):
    """A tensor inside both models. `layer` and `op_type` are those of the node that makes it.

    `values` says how far it differs, as for an output.
    """

    layer: str
    op_type: str
    values: OutputChange

    @property
    def name(self) -> str:
        return self.values.name


TENSOR = JsonObject(
    TensorDifference,
    "name layer op_type share=values.share max_absolute=values.max_absolute"
    " largest=values.largest difference=values.difference",
    about="A tensor inside both models; `share` is its difference by its largest value before.",
)


class FirstDifference(Struct, frozen=True, kw_only=True):
    """Where the outputs of two models begin to differ by more than `allowed`.

    `output` is the output that was followed back to `tensor`. `inputs` are the compared tensors
    that the node of `tensor` reads. They differ by at most `allowed`. `others` are
    earlier nodes that may cause the difference as well, because their tensors could not be
    compared. With `is_fused` the difference disappears if `tensor` is made an output, which breaks
    the fusions around it. The `readers` are then the layers that read it. `runs` is how often each
    side ran.
    """

    allowed: float
    output: str
    tensor: TensorDifference
    inputs: tuple[TensorDifference, ...] = ()
    others: tuple[str, ...] = ()
    is_fused: bool = False
    readers: tuple[str, ...] = ()
    runs: Count


FIRST_DIFFERENCE = JsonObject(
    FirstDifference,
    "allowed output tensor inputs others fused=is_fused readers runs",
    tensor=TENSOR,
    inputs=TENSOR,
)


class KernelCounts(Struct, frozen=True, kw_only=True):
    """The number of kernels of a part on both sides."""

    before: Count
    after: Count


class PartChange(Struct, frozen=True, kw_only=True):
    """Kernels that differ between the plans of both sides, and how much longer they take now.

    `time` is the difference of the times that were measured in turn. `reasons` are sentences about
    what changed in the part.
    """

    kernels: KernelCounts
    before_ns: float
    after_ns: float
    time: TimeChange
    reasons: tuple[str, ...]


PART = JsonObject(
    PartChange,
    "kernels before_ms=before_ns after_ms=after_ns change_ms=time.ns interval_ms=time.interval_ms"
    " reasons",
    before_ms=Figure | None,
    after_ms=Figure | None,
    change_ms=Figure | None,
    interval_ms=Interval,
)


class KernelChange(Struct, frozen=True, kw_only=True):
    """One kernel of both plans, seen as one graph. None for a side without it.

    `inputs` are the indexes of the kernels that feed it on either side. If it runs on both sides,
    `only_before` and `only_after` are those of them that feed it on one side only. `part` is the
    index of the part in which it changed.
    """

    before: GraphKernel | None
    after: GraphKernel | None
    state: BoxState
    inputs: tuple[int, ...] = ()
    only_before: tuple[int, ...] = ()
    only_after: tuple[int, ...] = ()
    part: int | None = None


class StageTime(Struct, frozen=True, kw_only=True):
    """The calls of a stage or a function in one call of its program, and their total time."""

    calls: Number
    ns: float


class StageChange(Struct, frozen=True, kw_only=True):
    """A stage of a program on both sides, None for a side without it.

    A session is all inferences of one model, and the rest is the time outside of sessions. Together
    they make up the call. A label is a part of the rest, and an input one of a workload. With
    `is_judged` the verdict depends on the stage: its work differs, or it is the rest.
    """

    name: str
    kind: StageKind
    before: StageTime | None
    after: StageTime | None
    time: TimeChange | None = None
    is_judged: bool = False


_STAGE_TIME = JsonObject(StageTime, "calls ms=ns", ms=Figure)


STAGE = JsonObject(
    StageChange,
    "name kind judged=is_judged before after change_ms=time.ns interval_ms=time.interval_ms"
    " explains=time.explained",
    before=_STAGE_TIME,
    after=_STAGE_TIME,
    change_ms=Figure | None,
    interval_ms=Interval,
)


class CallChange(Struct, frozen=True, kw_only=True):
    """A function in the call tree of a program, None for a side that does not call it.

    Its times include those of the functions that it calls. A tree is a tuple in the order in which
    calls begin: the functions that one calls follow it, one `level` deeper. Small functions share
    one entry, whose `place` is `12 others`. On a side on which a function takes less than 0.01 % of
    the call, the functions that it calls are unknown.
    """

    place: str
    level: Count
    before: StageTime | None
    after: StageTime | None


CALL = JsonObject(CallChange, "place level before after", before=_STAGE_TIME, after=_STAGE_TIME)
