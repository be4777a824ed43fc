"""From the times of an engine's kernels to those of the model's layers, which sum to the latency.

The time of a kernel is shown at one of the layers that it stands for: the one with the most MACs;
if none has any, the one with the kernel's operator; else the one with the most operations of other
kinds, the last of several. Kernels that the engine inserted to change the layout of a tensor get a
row for each operator, as do other kernels that stand for no layer. The rest of an inference is the
overhead of the runtime. Its share comes from the same runs as the kernels, and is applied to the
latency, which was measured at another time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_grouped

from msgspec import Struct, field

from pytest_modelperf.graph.structure import Graph, Node, PlanGraph
from pytest_modelperf.profiler.fusion import KernelPlace, KernelPlaces, is_same_operator
from pytest_modelperf.profiler.measurements import Kernel, KernelRun, LayerTime, RowKind
from pytest_modelperf.profiler.records import StaticLayer

_KINDS = tuple(RowKind)
# No engine's clock is coarser. A larger step between the times of a few kernels is chance.
_COARSEST_TICK_NS = 1000


def attribute(  # noqa: PLR0913, PLR0917  # the engine's side of it, and the model's
    run: KernelRun,
    plan: PlanGraph | None,
    graph: Graph,
    layers: Sequence[StaticLayer],
    latency_ns: float,
    names: Mapping[str, Node] | None = None,
) -> tuple[LayerTime, ...]:
    """The times of the layers in graph order, then the times that belong to no layer.

    `layers` are those of the static profile of `graph`. `names` are its nodes by the names that
    the engine knows them by; without it, by their own.
    """
    if names is None:
        names = {node.name: node for node in graph.walk() if node.name}
    places = KernelPlaces(graph, names)
    if plan is not None:
        places.add_plan(plan, graph)
    table = LayerTable(layers, layer_indexes(graph, layers))
    step_ns = _resolution_ns(run.kernels)
    for kernel, place in zip(run.kernels, places.of_kernels(run.kernels), strict=True):
        table.add(kernel, place, _typical_ns(kernel.self_ns, step_ns))
    return table.finished(run, latency_ns, step_ns)


def main_layer(covered: Iterable[int], layers: Sequence[StaticLayer], kernel_op: str) -> int | None:
    """The index of the layer that a kernel's time is shown at, among those it stands for."""

    def weight(index: int) -> tuple[int, bool, int, int]:
        layer = layers[index]
        is_its_own = is_same_operator(kernel_op, layer.op_type)
        return layer.macs or 0, is_its_own, layer.elementwise_ops or 0, index

    return max(covered, key=weight, default=None)


def layer_indexes(graph: Graph, layers: Sequence[StaticLayer]) -> dict[Node, int]:
    """The layer of each node. A node in a branch that was not counted has the layer of its If."""
    indexes: dict[Node, int] = {}
    end = _pair(graph, layers, 0, indexes)
    if end != len(layers):
        raise ValueError("the layers are not those of this graph")
    return indexes


def _pair(graph: Graph, layers: Sequence[StaticLayer], at: int, found: dict[Node, int]) -> int:
    """Pair the nodes of `graph` with the layers from `at` on; returns the end of them, or -1."""
    for node in graph.nodes:
        if at >= len(layers) or (layers[at].id, layers[at].op_type) != (node.id, node.op_type):
            return -1
        found[node] = holder = at
        at += 1
        bodies = list(node.bodies.values())
        if node.op_type == "If" and len(bodies) > 1:
            at = _pair_branch(bodies, layers, at, found)
        else:
            for body in bodies:
                at = _pair(body, layers, at, found)
                if at < 0:
                    return -1
        for body in bodies:
            for inner in body.walk():
                found.setdefault(inner, holder)
    return at


def _pair_branch(
    branches: Sequence[Graph], layers: Sequence[StaticLayer], at: int, found: dict[Node, int]
) -> int:
    """Only one branch of an If was counted: the longest that matches."""
    for branch in sorted(branches, key=lambda branch: -sum(1 for _ in branch.walk())):
        tried: dict[Node, int] = {}
        end = _pair(branch, layers, at, tried)
        if end >= 0:
            found.update(tried)
            return end
    return -1


def _resolution_ns(kernels: Iterable[Kernel]) -> int:
    """The tick of the clock that the engine reads: all times differ by a multiple of it."""
    return math.gcd(
        _COARSEST_TICK_NS,
        *(round(value - kernel.self_ns[0]) for kernel in kernels for value in kernel.self_ns),
    )


def _typical_ns(values: Sequence[float], resolution_ns: int) -> float:
    """The median; interpolated between the ticks of a coarse clock."""
    if resolution_ns < 2:
        return median(values)
    return max(0.0, median_grouped(values, resolution_ns))


class _Row(Struct):
    """Kernels that are shown as one."""

    kind: RowKind
    layer: int | None
    times: list[tuple[float, Kernel]] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)

    @property
    def ns(self) -> float:
        return sum(ns for ns, _ in self.times)

    def finished(self, scale: float, runs_scale: float | None = None) -> LayerTime:
        """Its time, and that of each run if they have a scale."""
        kernels = [kernel for _, kernel in self.times]
        _, main = max(self.times, key=lambda time: time[0])
        known = [kernel.name for kernel in kernels]
        return LayerTime(
            kind=self.kind,
            kernel=" + ".join(known) if self.kind is RowKind.LAYER else main.op_type,
            ns=self.ns * scale,
            layer=self.layer,
            fused=tuple(sorted(self.covered - {self.layer})),
            provider=main.provider,
            precision=main.precision,
            runs_ns=() if runs_scale is None else _sum_by_run(kernels, runs_scale),
            parts=tuple(sorted(self.parts)),
        )


class LayerTable:
    """The rows that are built while kernels are added."""

    def __init__(self, layers: Sequence[StaticLayer], indexes: Mapping[Node, int]) -> None:
        self._layers = layers
        self._indexes = indexes
        self._rows: dict[tuple[RowKind, int | str], _Row] = {}

    def add(self, kernel: Kernel, place: KernelPlace, ns: float, part: int | None = None) -> None:
        """Add a kernel that took so long; `part` is the number of the part in which it changed."""
        covered = {self._indexes[node] for node in place.nodes}
        shown = main_layer(covered, self._layers, kernel.op_type)
        key = kernel.op_type if shown is None else shown
        row = self._rows.setdefault((place.kind, key), _Row(place.kind, shown))
        row.times.append((ns, kernel))
        row.covered |= covered
        if part is not None:
            row.parts.add(part)

    def times(self) -> tuple[LayerTime, ...]:
        """The times of all rows as they were added."""
        return tuple(row.finished(1.0) for row in self._in_order())

    def finished(
        self, run: KernelRun, latency_ns: float, resolution_ns: int
    ) -> tuple[LayerTime, ...]:
        rows = self._in_order()
        spent = sum(row.ns for row in rows)
        sums = _sum_by_run([kernel for row in rows for _, kernel in row.times], 1.0)
        typical = _typical_ns(sums, resolution_ns) if sums else spent
        whole = _Whole.of(run, typical)
        in_kernels_ns = latency_ns * (1.0 - whole.rest)
        scale = in_kernels_ns / spent if spent else 0.0
        times = tuple(row.finished(scale, scale) for row in rows)
        has_runs = len(sums) == len(whole.runs_ns)
        overhead = LayerTime(
            kind=RowKind.OVERHEAD,
            kernel="",
            ns=max(0.0, latency_ns - math.fsum(time.ns for time in times)),
            runs_ns=whole.rests_ns(sums, latency_ns) if has_runs else (),
        )
        return (*times, overhead)

    def _in_order(self) -> list[_Row]:
        return sorted(self._rows.values(), key=_position)


class _Whole(Struct, frozen=True):
    """The time of inferences, and the share of it that their kernels do not explain."""

    runs_ns: tuple[float, ...]
    rest: float

    @classmethod
    def of(cls, run: KernelRun, kernels_ns: float) -> _Whole:
        """The profiled or the plain inferences, whichever leave the smaller rest.

        A profiled inference has the cost of profiling in its rest. A plain one beside it does not,
        but it has what disturbed it alone.
        """
        wholes = [runs for runs in (run.run_ns, run.plain_ns) if runs]
        runs = min(wholes, key=median, default=())
        typical = median(runs) if runs else 0.0
        return cls(runs, max(0.0, 1.0 - kernels_ns / typical) if typical else 0.0)

    def rests_ns(self, sums: Sequence[float], latency_ns: float) -> tuple[float, ...]:
        """The part of each run that its kernels do not explain.

        In one run or another the kernels can take longer than the plain inference beside it.
        """
        return tuple(
            latency_ns * (1.0 - spent / whole) if whole else 0.0
            for spent, whole in zip(sums, self.runs_ns, strict=True)
        )


def _sum_by_run(kernels: Sequence[Kernel], scale: float) -> tuple[float, ...]:
    """The time of all kernels together in each run; empty if one of them lacks a run."""
    if len({len(kernel.self_ns) for kernel in kernels}) != 1:
        return ()
    return tuple(scale * sum(run) for run in zip(*(k.self_ns for k in kernels), strict=True))


def _position(row: _Row) -> tuple[int, int]:
    return _KINDS.index(row.kind), -1 if row.layer is None else row.layer
