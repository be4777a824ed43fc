"""Convert the times of an engine's kernels to times of layers, which sum to the latency.

The time of a kernel is shown at one of the layers that it runs: the layer with the most MACs.
Without MACs, it is the layer with the kernel's operator, or else the last of those with the most
operations of other kinds. Kernels that the engine inserted to change the layout of a tensor
get a row for each operator, as do other kernels that run no layer. The rest of an inference is the
overhead of the runtime. All are the times of undisturbed runs, and are scaled to the latency, which
was measured at another time. If other processes made the latency longer, the difference is also a
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct, field

from pytest_modelperf.graph.structure import Graph, Node, PlanGraph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.fusion import (
    FedStep,
    KernelPlace,
    KernelPlaces,
    inserted_kind,
    is_same_operator,
    plan_steps,
    step_indexes,
    without_idle_bodies,
)
from pytest_modelperf.profiler.measurements import (
    LAYER_CONFIDENCE,
    GraphKernel,
    Kernel,
    KernelRun,
    LayerTime,
    RowKind,
)
from pytest_modelperf.stats.robust import CalmTime, calm_time, tick_median

_KINDS = tuple(RowKind)
# No engine's clock is coarser. A larger step between the times of a few kernels is chance.
_COARSEST_TICK_NS = 1000


class Attributed(Struct, frozen=True):
    """The times of the layers in graph order, then those of no layer, and the plan's kernels."""

    times: tuple[LayerTime, ...]
    kernels: tuple[GraphKernel, ...] | None


def attribute(  # noqa: PLR0913, PLR0917  # the engine's side, and the model's
    run: KernelRun,
    plan: PlanGraph | None,
    graph: Graph,
    layers: Sequence[StaticLayer],
    latency_ns: float,
    names: Mapping[str, Node],
    *,
    waits: bool = False,
) -> Attributed:
    """Return the times of the layers, computed from the kernels of a profiled session.

    `layers` are those of the static profile of `graph`. `names` are its nodes by the names that the
    engine uses. `waits` means that other processes disturbed the measured latency: its excess over
    undisturbed inferences is a row of its own.
    """
    places = KernelPlaces(graph, names)
    if plan is not None:
        places.add_plan(plan, graph)
    table = LayerTable(layers, layer_indexes(graph, layers))
    timing = _Timing(run.sessions, resolution_ns(run.kernels))
    for kernel, place in zip(run.kernels, places.of_kernels(run.kernels), strict=True):
        table.add(kernel, place, timing.of_kernel(kernel))
    times = table.finished(timing, run, latency_ns, waits=waits)
    if plan is None:
        return Attributed(times, None)
    steps = plan_steps(plan)
    return Attributed(times, table.kernels_of(steps, step_indexes(steps, run.kernels), times))


def main_layer(covered: Iterable[int], layers: Sequence[StaticLayer], kernel_op: str) -> int | None:
    """Return the index of the layer that a kernel's time is shown at, among those it runs."""

    def weight(index: int) -> tuple[int, bool, int, int]:
        layer = layers[index]
        is_its_own = is_same_operator(kernel_op, layer.op_type)
        return layer.macs or 0, is_its_own, layer.elementwise_ops or 0, index

    return max(covered, key=weight, default=None)


def layer_indexes(graph: Graph, layers: Sequence[StaticLayer]) -> dict[Node, int]:
    """Return the layer of each node. A node in a branch that was not counted has that of its If."""
    indexes: dict[Node, int] = {}
    end = _pair(graph, layers, 0, indexes)
    if end != len(layers):
        raise ValueError("the layers are not those of this graph")
    return indexes


def _pair(graph: Graph, layers: Sequence[StaticLayer], at: int, found: dict[Node, int]) -> int:
    """Pair the nodes of `graph` with the layers from `at` on, and return their end, or -1."""
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
    """Pair the longest branch of an If that matches: only one branch was counted."""
    for branch in sorted(branches, key=lambda branch: -sum(1 for _ in branch.walk())):
        tried: dict[Node, int] = {}
        end = _pair(branch, layers, at, tried)
        if end >= 0:
            found.update(tried)
            return end
    return -1


def resolution_ns(kernels: Iterable[Kernel]) -> int:
    """Return the tick of the engine's clock: all times differ by a multiple of it."""
    return math.gcd(
        _COARSEST_TICK_NS,
        *(round(value - kernel.self_ns[0]) for kernel in kernels for value in kernel.self_ns),
    )


class _Timing(Struct, frozen=True):
    sessions: tuple[int, ...]
    tick_ns: int

    def of_kernel(self, kernel: Kernel) -> CalmTime:
        return CalmTime.of(
            kernel.self_ns, self.sessions, lambda runs: calm_time(runs, self.tick_ns)
        )

    def of_whole(self, runs: Sequence[float]) -> CalmTime:
        return CalmTime.of(runs, self.sessions, lambda runs: calm_time(runs, 0))

    def of_rests(self, rests: Sequence[float], *, waits: bool) -> CalmTime:
        """Return the typical time outside of kernels, leaving out waits if the process waited."""
        typical = calm_time if waits else tick_median
        return CalmTime.of(rests, self.sessions, lambda rests: typical(rests, self.tick_ns))


class _Row(Struct):
    kind: RowKind
    layer: int | None
    times: list[tuple[CalmTime, Kernel]] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)

    @property
    def time(self) -> CalmTime:
        return CalmTime.sum([time for time, _ in self.times])

    def finished(self, scale: float = 1.0) -> LayerTime:
        kernels = [kernel for _, kernel in self.times]
        _, main = max(self.times, key=lambda pair: pair[0].ns)
        known = [kernel.name for kernel in kernels]
        time = self.time.scaled(scale)
        return LayerTime(
            kind=self.kind,
            kernel=" + ".join(known) if self.kind is RowKind.LAYER else main.op_type,
            ns=time.ns,
            layer=self.layer,
            fused=tuple(sorted(self.covered - {self.layer})),
            provider=main.provider,
            precision=main.precision,
            doubts_ns=time.doubts(LAYER_CONFIDENCE),
            parts=tuple(sorted(self.parts)),
        )


# A row by its kind, and its layer or the operator of its kernels.
_RowKey = tuple[RowKind, int | str]


def _graph_kernel(step: FedStep, spent: tuple[_RowKey, float] | None) -> GraphKernel:
    op_type = step.node.op_type
    if spent is None:
        return GraphKernel(op_type=op_type, inputs=step.inputs, kind=inserted_kind(op_type))
    (kind, at), ns = spent
    layer = at if isinstance(at, int) else None
    return GraphKernel(op_type=op_type, inputs=step.inputs, kind=kind, layer=layer, ns=ns)


class LayerTable:
    """The rows of layer times, which are built while kernels are added."""

    def __init__(self, layers: Sequence[StaticLayer], indexes: Mapping[Node, int]) -> None:
        self._layers = layers
        self._indexes = indexes
        self._rows: dict[_RowKey, _Row] = {}
        self._added: list[tuple[_RowKey, float]] = []

    def add(
        self, kernel: Kernel, place: KernelPlace, time: CalmTime, part: int | None = None
    ) -> None:
        """Add a kernel and its time. `part` is the number of the part in which it changed."""
        covered = {self._indexes[node] for node in place.nodes}
        shown = main_layer(covered, self._layers, kernel.op_type)
        key = place.kind, kernel.op_type if shown is None else shown
        row = self._rows.setdefault(key, _Row(place.kind, shown))
        self._added.append((key, time.ns))
        row.times.append((time, kernel))
        row.covered |= covered
        if part is not None:
            row.parts.add(part)

    def times(self) -> tuple[LayerTime, ...]:
        """Return the times of all rows without scaling."""
        return tuple(row.finished() for row in self._in_order())

    def finished(
        self, timing: _Timing, run: KernelRun, latency_ns: float, *, waits: bool
    ) -> tuple[LayerTime, ...]:
        rows = self._in_order()
        kernels = CalmTime.sum([row.time for row in rows])
        rest = _overhead(timing, run, kernels, waits=waits)
        spent_ns = kernels.ns + rest.ns
        if waits:
            scale = rest_scale = min(1.0, latency_ns / spent_ns) if spent_ns else 1.0
        else:
            rest_scale = latency_ns / max(spent_ns, _typical_ns(run)) if rest.ns else 1.0
            left_ns = latency_ns - rest.ns * rest_scale
            scale = left_ns / kernels.ns if kernels.ns else 0.0
        times = [row.finished(scale) for row in rows]
        overhead = rest.scaled(rest_scale)
        ns = overhead.ns if rows else latency_ns
        doubts_ns = overhead.doubts(LAYER_CONFIDENCE)
        times.append(LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=ns, doubts_ns=doubts_ns))
        waited = latency_ns - math.fsum(time.ns for time in times)
        if waits and waited > 0.0:
            times.append(LayerTime(kind=RowKind.WAITING, kernel="", ns=waited))
        return tuple(times)

    def kernels_of(
        self, steps: Sequence[FedStep], ran: Sequence[int | None], times: Sequence[LayerTime]
    ) -> tuple[GraphKernel, ...]:
        """Return the kernels of a plan.

        `ran` are the steps of the kernels that were added, in the same order, and `times` those of
        the rows. Kernels of one row share its time in the same proportions as when they ran.
        """
        spent = {(t.kind, t.kernel if t.layer is None else t.layer): t.ns for t in times}
        rows = {key: (row.time.ns, spent.get(key, 0.0)) for key, row in self._rows.items()}
        found: dict[int, tuple[_RowKey, float]] = {}
        for step, (key, ns) in zip(ran, self._added, strict=True):
            if step is None:
                continue
            ran_ns, shown_ns = rows[key]
            before = found[step][1] if step in found else 0.0
            found[step] = key, before + (shown_ns * ns / ran_ns if ran_ns else 0.0)
        return tuple(
            _graph_kernel(step, found.get(at))
            for at, step in without_idle_bodies(steps, ran).items()
        )

    def _in_order(self) -> list[_Row]:
        return sorted(self._rows.values(), key=_position)


def _overhead(timing: _Timing, run: KernelRun, kernels: CalmTime, *, waits: bool) -> CalmTime:
    """Return the time of an inference that its kernels do not explain.

    That is the rest of the profiled runs, or of plain runs next to them if that is smaller.
    Profiled runs include the cost of profiling, and plain runs have disturbances of their own.
    """
    found = [timing.of_whole(runs).beyond(kernels) for runs in (run.run_ns, run.plain_ns) if runs]
    sums = _sum_by_run(run.kernels)
    if sums and len(sums) == len(run.run_ns):
        rests = [max(0.0, whole - spent) for whole, spent in zip(run.run_ns, sums, strict=True)]
        found.append(timing.of_rests(rests, waits=waits))
    return CalmTime.least(found)


def _typical_ns(run: KernelRun) -> float:
    """Return the median of the inferences, without the cost of profiling if that is known."""
    return min(median(runs) for runs in (run.run_ns, run.plain_ns) if runs)


def _sum_by_run(kernels: Sequence[Kernel]) -> list[float]:
    if len({len(kernel.self_ns) for kernel in kernels}) != 1:
        return []
    return [sum(run) for run in zip(*(kernel.self_ns for kernel in kernels), strict=True)]


def _position(row: _Row) -> tuple[int, int]:
    return _KINDS.index(row.kind), -1 if row.layer is None else row.layer
