"""The plans that an engine makes of two models: saved, their parts run, and the times of layers.

A kernel that both plans have takes the same time on both sides. The changed kernels of a part
together take longer by the same amount as the part did in place. A profile of each plan is used
only to divide these times among the kernels.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.plans.parts import (
    Part,
    PartSide,
    TensorBytes,
    cold_share,
    find_moves,
    find_parts,
    moved_file,
    write_numbered,
    write_part,
    write_watched,
)
from pytest_modelperf.graph.plans.plan import (
    EnginePlan,
    WeightFacts,
    find_other_work,
    find_plan_difference,
    match_plans,
    read_plan,
    stored_spans,
    with_stored,
)
from pytest_modelperf.graph.structure import PlanGraph, byte_size
from pytest_modelperf.profiler.fusion import KernelPlace, KernelPlaces, plan_steps
from pytest_modelperf.profiler.layers import LayerTable, layer_indexes, resolution_ns
from pytest_modelperf.profiler.measurements import (
    GraphKernel,
    Kernel,
    KernelRun,
    LayerTime,
    Measurement,
    RowKind,
)
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.sampling.kernels import ask_for_shapes, run_plan_kernels
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, SamplingPolicy
from pytest_modelperf.profiler.sampling.worker_bench import PlacedPart, Rig, measure_rounds
from pytest_modelperf.profiler.worker.client import Meanwhile
from pytest_modelperf.profiler.worker.endings import writing_for_worker
from pytest_modelperf.stats.robust import CalmTime, calm_time

# The runtime holds the weights twice while it saves a plan, and writes them to the disk.
MAX_WEIGHT_BYTES = 2 << 30
# One session that ends after 130 inferences or 0.3 s, whichever comes first. It takes more time if
# that is needed for the inferences of a median and they fit into a second. No case is judged by it.
SHORT_POLICY = SamplingPolicy(
    max_seconds=0.3,
    stretch_seconds=1.0,
    min_rounds=1,
    max_rounds=1,
    stretch_rounds=1,
    max_block=130,
    min_slow_window=DUET_POLICY.min_slow_window,
    warm_after_seconds=DUET_POLICY.warm_after_seconds,
)
# One session of 30 ms and at least three inferences, or fewer if they take more than 0.3 s. The
# first inference is warm-up enough for a slower model, because only its fastest inferences count.
SHORTEST_POLICY = replace(
    SHORT_POLICY, stretch_seconds=None, min_samples=3, min_slow_block=3, warm_after_seconds=0.01
)
# If the changed kernels take more of the time than this, the parts are most of the model, and
# timing the whole model shows the same.
_MOST_CHANGED = 0.5
_MOST_PARTS = 24
# Waking the threads before a part takes about this long. In a small model the threads are not woken
# if that would be more than this share, because parts would then seem to be most of the model.
_WAKING_NS = 100_000
_MOST_WAKING = 0.1


class SavedPlan(Struct, frozen=True, eq=False):
    """The plan of the model of a rig, as a file of its worker.

    `weights` is the path of the file of larger weights, as the worker sees it, or None if there is
    none. `runs_parts` is true if parts of the plan can be timed by themselves.
    """

    rig: Rig
    plan: EnginePlan
    weights: str | None
    runs_parts: bool


def save_plan(
    rig: Rig,
    weight_bytes: int,
    *,
    keeps_session: bool = False,
    meanwhile: Meanwhile | None = None,
) -> SavedPlan | None:
    """Save the plan of a rig, and do something else `meanwhile`.

    Returns None if the engine shows no plan or the model is too large to save. With `keeps_session`
    the session that makes the plan becomes the first session of the rig, so its load takes longer.
    """
    if weight_bytes > MAX_WEIGHT_BYTES:
        return None
    answer = rig.ask(
        "plan",
        "as its plan was saved",
        model=str(rig.workload.model),
        folder=rig.workload.folder,
        name=_folder_of(rig),
        side=rig.side if keeps_session else None,
        meanwhile=meanwhile,
    )
    if answer is None:
        return None
    data, path = answer["data"], answer["path"]
    facts: dict[int, WeightFacts] = {}
    file = None
    spans = stored_spans(data)
    if spans:
        file = posixpath.join(posixpath.dirname(path.replace("\\", "/")), spans[0].location)
        answers = rig.worker.ask(
            "weights",
            "as the weights of its plan were read",
            file=file,
            spans=[(span.offset, span.nbytes, span.dtype) for span in spans],
        )
        facts = {
            span.offset: WeightFacts(content, share)
            for span, (content, share) in zip(spans, answers, strict=True)
        }
        places = [(span.offset, span.nbytes) for span in spans if span.is_shape]
        if places:
            contents = rig.worker.ask(
                "spans", "as the shapes in its plan were read", file=file, spans=places
            )
            offsets = (offset for offset, _ in places)
            data = with_stored(data, dict(zip(offsets, contents, strict=True)))
    inputs = {
        name: f"{feed.dtype} {tuple(map(int, feed.array.shape))}"
        for name, feed in rig.workload.feeds.items()
    }
    return SavedPlan(rig, EnginePlan(data, inputs, facts), file, answer["runs_parts"])


def measure_shortly(
    rig: Rig, place: CasePlace, is_usual: Callable[[Measurement], bool] | None = None
) -> Measurement:
    """Measure the latency of a model whose plan is known, in one session.

    If a few inferences are usual, it ends with them. A generation is always measured for longer,
    because its first steps are faster than later ones.
    """
    if is_usual is not None and rig.workload.steps is None:
        measured = _measure_by(SHORTEST_POLICY, rig, place)
        if is_usual(measured):
            return measured
    return _measure_by(SHORT_POLICY, rig, place)


def _measure_by(policy: SamplingPolicy, rig: Rig, place: CasePlace) -> Measurement:
    longest = min(rig.setup.policy.max_seconds, policy.stretch_seconds or 0.0)
    setup = replace(rig.setup, policy=replace(policy, stretch_seconds=longest))
    measured = measure_rounds(replace(rig, setup=setup, watches=True), place.tell_round)
    # Saving the plan needed more memory than running the model.
    return replace(measured, peak_rss_bytes=None, engine_peak_bytes=None)


class PlacedParts(Struct, frozen=True, eq=False):
    """The parts in which two plans differ, with both sides of each as files of the workers.

    `partners` are the kernels that are the same in both plans. `reason` explains why there are no
    parts although the plans differ.
    """

    parts: tuple[Part, ...] = ()
    before: tuple[PlacedPart, ...] = ()
    after: tuple[PlacedPart, ...] = ()
    partners: Mapping[int, int] = field(default_factory=dict)
    reason: str | None = None


def place_parts(before: SavedPlan, after: SavedPlan) -> PlacedParts:
    """Cut out what differs, run both plans for the tensors at the edges, and try each part."""
    try:
        return _place_parts(before, after)
    except MeasureError as error:
        # The whole model can still be judged.
        return PlacedParts(reason=f"what changed does not run by itself: {error}")


def _place_parts(before: SavedPlan, after: SavedPlan) -> PlacedParts:
    old, new = run_once(before), run_once(after)
    matching = match_plans(before.plan, after.plan, old.types, new.types)

    def share_changed() -> float:
        return max(
            _share(before.plan, matching.before, old), _share(after.plan, matching.after, new)
        )

    if share_changed() > _MOST_CHANGED and old.times_ns and new.times_ns:
        # A kernel that waited for a processor seems long, but rarely waits again in a second run.
        old, new = old.shortened(run_once(before)), new.shortened(run_once(after))
    if (share := share_changed()) > _MOST_CHANGED:
        return PlacedParts(reason=f"kernels that take {100 * share:.0f} % of it changed")
    parts = find_parts(before.plan, after.plan, matching, (old.times_ns, new.times_ns))
    if not parts:
        difference = find_plan_difference(before.plan, after.plan)
        return PlacedParts(reason=f"no kernel differs, but {difference}")
    if len(parts) > _MOST_PARTS:
        return PlacedParts(reason=f"it changed in {len(parts)} places")
    plans, sizes = (before.plan, after.plan), (old.sizes, new.sizes)
    shares = [cold_share(plans, part, sizes) for part in parts]
    spent_ns = min(sum(side.times_ns.values()) for side in (old, new))
    wakes = after.rig.cores > 1 and len(parts) * _WAKING_NS <= _MOST_WAKING * spent_ns
    placed = run_apart(before, after, parts, shares, wakes_threads=wakes)
    return replace(placed, partners=matching.partners)


def time_plans(*sides: SavedPlan) -> Sequence[KernelRun] | None:
    """Return the times of the kernels of plans, named by their index, if the engine shows them."""
    paths = {
        side.rig.still_feed: send_beside(side, "numbered", partial(write_numbered, side.plan))
        for side in sides
    }
    kernels = sum(len(side.plan.kernels) for side in sides)
    return run_plan_kernels(paths, sides[-1].rig, kernels)


def run_apart(
    before: SavedPlan,
    after: SavedPlan,
    parts: Sequence[Part],
    shares: Sequence[float],
    *,
    wakes_threads: bool = False,
) -> PlacedParts:
    """Prepare both sides of these parts for running.

    Raises MeasureError if the engine refuses a part. `shares` has the `cold_share` of each part.
    For `wakes_threads` see `write_part`.
    """
    old = _place(before, [part.before for part in parts], shares, wakes_threads=wakes_threads)
    new = _place(after, [part.after for part in parts], shares, wakes_threads=wakes_threads)
    return PlacedParts(tuple(parts), old, new)


def send_beside(side: SavedPlan, name: str, write: Callable[[Path], None]) -> str:
    """Write a file next to the plan, and return its path as the worker sees it."""
    worker, folder = side.rig.worker, _folder_of(side.rig)
    local = worker.folder / folder / f"{name}.onnx"
    with writing_for_worker("as a part of the model was written"):
        local.parent.mkdir(exist_ok=True)
        write(local)
    return worker.send_file(local, f"{folder}/{local.name}")


class Edges(Struct, frozen=True):
    """The type and shape of each tensor at which parts begin, and the bits of those sent."""

    types: Mapping[str, tuple[str, tuple[int, ...]]]
    sent: Mapping[str, tuple[str, bytes]]


def read_edges(
    side: SavedPlan,
    edges: Sequence[str],
    *,
    kept: Mapping[str, Sequence[str]] | None = None,
    sent: Sequence[str] = (),
) -> Edges:
    """Run a plan once to read tensors inside it.

    The worker keeps some of them as the inputs that `kept` names, and sends those in `sent` back.
    """
    plan = side.plan
    answer = side.rig.ask(
        "tensors",
        "as the tensors of its parts were read",
        model=send_beside(side, "watched", partial(write_watched, plan, edges)),
        feed=side.rig.still_feed,
        names=[name for name in edges if name in plan.producers],
        kept=kept or {},
        sent=list(sent),
    )
    types = {name: (str(dtype), tuple(shape)) for name, (dtype, shape) in answer["types"].items()}
    return Edges(types, answer["sent"])


def send_part(
    side: SavedPlan,
    name: str,
    part: PartSide,
    types: Mapping[str, tuple[str, Sequence[int]]],
    *,
    wakes_threads: bool = False,
) -> str:
    """Write a part and its weights next to the plan. Return its path as the worker sees it."""
    write = partial(write_part, side.plan, part, types, wakes_threads=wakes_threads)
    path = send_beside(side, name, write)
    moves = find_moves(side.plan, part)
    if moves:
        side.rig.worker.ask(
            "move",
            "as the weights of a part were copied",
            source=side.weights,
            target=moved_file(path),
            moves=list(map(astuple, moves)),
        )
    return path


def _folder_of(rig: Rig) -> str:
    return f"plan{rig.side}"


def _share(plan: EnginePlan, changed: Sequence[int], seen: Seen) -> float:
    """Return the share of changed kernels in the time, or in the number without times."""
    times = seen.times_ns or dict.fromkeys(range(len(plan.kernels)), 1)
    return sum(times.get(index, 0) for index in changed) / max(sum(times.values()), 1)


class Seen(Struct, frozen=True):
    """The findings of one run of a plan: type and bytes of each tensor, time of each kernel."""

    types: Mapping[str, str]
    times_ns: Mapping[int, int]
    sizes: TensorBytes

    def shortened(self, again: Seen) -> Seen:
        """Return the findings with the shorter time of each kernel in two runs."""
        both = self.times_ns, again.times_ns
        times_ns = {k: min(side[k] for side in both if k in side) for k in {**both[0], **both[1]}}
        return replace(self, times_ns=times_ns)


def find_other_size(before: SavedPlan, after: SavedPlan) -> str | None:
    """Run two equal plans once, and return the operator of a kernel that works on other sizes."""
    old, new = run_once(before).types, run_once(after).types
    return find_other_work(before.plan, after.plan, old, new)


def run_once(side: SavedPlan) -> Seen:
    """Run a plan unchanged, to find what only a run shows."""
    types = dict(side.plan.inputs)
    times_ns: dict[int, int] = {}
    sizes = {name: feed.array.nbytes for name, feed in side.rig.workload.feeds.items()}
    copy = send_beside(side, "numbered", partial(write_numbered, side.plan))
    seen = ask_for_shapes(side.rig, copy, None, "as the tensors of its plan were looked at")
    for each in seen or ():
        calls = each["calls"]
        if not each["name"].isdigit():
            continue
        times_ns[int(each["name"])] = each.get("spent_ns", 0)
        if len(calls) != 1:
            continue
        outputs = [name for name in side.plan.kernels[int(each["name"])].outputs if name]
        shown = list(zip(each.get("types", ()), calls[0], strict=False))
        if len(shown) == len(outputs):
            for name, (kind, shape) in zip(outputs, shown, strict=True):
                types[name] = f"{kind} {tuple(shape)}"
                sizes[name] = byte_size(kind, prod(shape))
    return Seen(types, times_ns, sizes)


def _place(
    side: SavedPlan, parts: Sequence[PartSide], shares: Sequence[float], *, wakes_threads: bool
) -> tuple[PlacedPart, ...]:
    rig = side.rig
    names = [f"{rig.side} part {number}" for number in range(len(parts))]
    edges = list(dict.fromkeys(name for part in parts for name in part.inputs))
    kept = {name: list(part.inputs) for name, part in zip(names, parts, strict=True)}
    types = read_edges(side, edges, kept=kept).types
    placed = []
    for number, (name, part, share) in enumerate(zip(names, parts, shares, strict=True)):
        path = send_part(side, f"part{number}", part, types, wakes_threads=wakes_threads)
        placed.append(PlacedPart(name, path, share))
        # Open each part now, so that one that cannot be loaded is found before the first round.
        rig.open_part(placed[-1])
        rig.close_as(name)
    return tuple(placed)


class TimedKernel(Struct, frozen=True):
    """A kernel of a plan, the nodes of the model that it runs, and its time in a profile."""

    kernel: Kernel
    place: KernelPlace
    ns: float


class TimedPlan(Struct, frozen=True):
    """A plan, and those of its kernels that ran, by their index."""

    steps: PlanGraph
    kernels: Mapping[int, TimedKernel]


class ChangedPlans(Struct, frozen=True):
    """Two plans, the kernels that both have (before to after), and the parts that changed."""

    before: TimedPlan
    after: TimedPlan
    partners: Mapping[int, int]
    parts: tuple[Part, ...]


class SideTimes(Struct, frozen=True):
    """The layer times of a side, and the kernels of its plan."""

    layers: tuple[LayerTime, ...]
    kernels: tuple[GraphKernel, ...]


class SharedTimes(Struct, frozen=True):
    """The times of both sides, which differ by the shifts of the parts and by `elsewhere`."""

    before: SideTimes
    after: SideTimes


def has_known_kernels(plan: EnginePlan) -> bool:
    """Whether each kernel of a plan can be found by its index in a profile."""
    # Kernels in a body have names of their own, and a profile does not show their body.
    steps = read_plan(plan.proto.SerializeToString()).nodes
    return len(steps) == len(plan.kernels) and not any(step.bodies for step in steps)


def read_times(model: Model, plan: EnginePlan, run: KernelRun) -> TimedPlan:
    """Return the plan of a model and the times of its kernels, which ran named by their index."""
    steps = read_plan(plan.proto.SerializeToString())
    graph = model.bound.graph
    names = {node.name: node for node in graph.walk() if node.name}
    places = KernelPlaces(graph, names).of_steps(steps, graph)
    tick_ns = resolution_ns(run.kernels)
    kernels = {}
    for kernel in run.kernels:
        if kernel.name.isdigit() and (at := int(kernel.name)) < len(places):
            kernels[at] = TimedKernel(kernel, places[at], calm_time(kernel.self_ns, tick_ns))
    return TimedPlan(steps, kernels)


def share_out(  # noqa: PLR0913, PLR0917  # both sides, and what is to be shared
    changed: ChangedPlans,
    before: Model,
    after: Model,
    before_ns: float,
    shifts_ns: Sequence[float],
    elsewhere_ns: float,
) -> SharedTimes:
    """Return the layer times of both models, of which the first takes `before_ns`.

    `shifts_ns` is how much longer each part takes now, and `elsewhere_ns` is how much longer the
    whole model takes beyond that. The row with this extra time has the number after the last part
    as its part.
    """
    sides = changed.before, changed.after
    old, new = ({index: each.ns for index, each in s.kernels.items()} for s in sides)
    spent = math.fsum(old.values())
    scale = before_ns / spent if spent > before_ns else 1.0
    old = {index: ns * scale for index, ns in old.items()}
    new.update({b: old.get(a, 0.0) for a, b in changed.partners.items() if b in new})
    left_ns: dict[int, float] = {}
    for number, (part, shift) in enumerate(zip(changed.parts, shifts_ns, strict=True)):
        left_ns[number] = _share_part(old, new, part, shift)
    rest = max(0.0, before_ns - math.fsum(old.values()))
    overhead = LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=rest)
    beyond = elsewhere_ns + math.fsum(left_ns.values())
    parts = [number for number, ns in left_ns.items() if ns]
    if elsewhere_ns:
        parts.append(len(changed.parts))
    elsewhere = LayerTime(kind=RowKind.ELSEWHERE, kernel="", ns=beyond, parts=tuple(parts))
    was = [part.before.changed for part in changed.parts]
    now = [part.after.changed for part in changed.parts]
    return SharedTimes(
        _side_times(before, changed.before, old, was, (overhead,)),
        _side_times(after, changed.after, new, now, (overhead, *([elsewhere] if beyond else []))),
    )


def _share_part(old: dict[int, float], new: dict[int, float], part: Part, shift: float) -> float:
    """Make the times of a part differ by its shift. Return the time that no kernel can take."""
    gone = [index for index in part.before.changed if index in old]
    come = [index for index in part.after.changed if index in new]
    spent, spends = (math.fsum(s[i] for i in own) for s, own in ((old, gone), (new, come)))
    wanted = spent + shift
    if spends > 0.0 and wanted > 0.0:
        _scale(new, come, wanted / spends)
        return 0.0
    if spent > 0.0 and spends == 0.0 and shift < 0.0:
        _scale(old, gone, -shift / spent)
        return 0.0
    _scale(new, come, 0.0)
    return wanted


def _scale(times: dict[int, float], kernels: Iterable[int], factor: float) -> None:
    for index in kernels:
        times[index] *= factor


def _side_times(
    model: Model,
    plan: TimedPlan,
    times_ns: Mapping[int, float],
    changed: Sequence[Sequence[int]],
    others: tuple[LayerTime, ...],
) -> SideTimes:
    layers = model.static.layers
    table = LayerTable(layers, layer_indexes(model.bound.graph, layers))
    part_of = {index: number for number, own in enumerate(changed) for index in own}
    for index, each in plan.kernels.items():
        table.add(each.kernel, each.place, CalmTime(times_ns[index]), part_of.get(index))
    times = table.times()
    kernels = table.kernels_of(plan_steps(plan.steps), list(plan.kernels), times)
    return SideTimes((*times, *others), kernels)
