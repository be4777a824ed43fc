"""Cut kernels out of two plans as models of their own, and run these two in turn.

Each side of a pair has a worker that keeps its plan. The kernels that are cut out of it run in
other workers. If both sides can share a worker, they run in one; otherwise each side has a fresh
worker in each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.plans.parts import Unit, find_units, kernels_of, make_side
from pytest_modelperf.graph.plans.plan import match_plans
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    adding_notes,
    alone_at,
    make_workload,
    start_on,
    unchanged,
)
from pytest_modelperf.profiler.pairs.plans import (
    SavedPlan,
    read_edges,
    run_once,
    save_plan,
    send_part,
    time_plans,
)
from pytest_modelperf.profiler.pairs.run import StopRule, take_rounds, take_shared_rounds
from pytest_modelperf.profiler.prepare import Pair, PreparedModel
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet, SplitDuet, StartRig
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload, set_up
from pytest_modelperf.stats.quantiles import load_quantiles

# Each plan is profiled this many times, in turn with the other; the shorter time counts.
_PROFILES = 2


class Cut(Struct, frozen=True, eq=False):
    """Kernels of a plan as a model file, their inputs, and the engine's options and defaults."""

    path: Path
    feeds: Mapping[str, Feed]
    setup: Setup
    options: Mapping[str, str]


class CutPair(Struct, frozen=True, eq=False):
    """The same place in two plans, cut out of each."""

    before: Cut
    after: Cut


class OpenPlans(Struct):
    """The plans of both sides, each kept by a worker, and divided into units."""

    sides: tuple[SavedPlan, SavedPlan]
    units: tuple[Unit, ...]
    # How much longer each unit takes in the second plan, by short profiles.
    longer_ns: tuple[float, ...]
    cuts: int = 0

    def cut(self, units: Iterable[Unit]) -> CutPair:
        """Cut these units out as a pair of models, whose files last until the plans are closed."""
        self.cuts += 1
        chosen, name = tuple(units), f"cut{self.cuts}"
        before, after = (
            _cut(saved, kernels_of(chosen, side), name) for side, saved in enumerate(self.sides)
        )
        return CutPair(before, after)

    def names(self, unit: Unit) -> tuple[tuple[str, ...], tuple[str, ...]]:
        before, after = (
            tuple(saved.plan.kernels[index].op_type for index in kernels)
            for saved, kernels in zip(self.sides, (unit.before, unit.after), strict=True)
        )
        return before, after


@contextmanager
def open_plans(pair: Pair, place: CasePlace) -> Iterator[OpenPlans]:
    """Save the plans of both sides.

    Raises MeasureError if an engine shows no plan. Nothing else may be measured until the plans are
    open; after that the workers only wait.
    """
    with unchanged(pair.before, pair.after), ExitStack() as stack:
        with alone_at(place):
            place.tell("comparing plans")
            before = stack.enter_context(_saved(pair.before, pair.before_setup, BEFORE, place))
            after = stack.enter_context(_saved(pair.after, pair.after_setup, AFTER, place))
            opened = _divide(before, after, shares_a_setup=pair.shares_a_worker)
        yield opened


@contextmanager
def _saved(model: PreparedModel, setup: Setup, side: str, place: CasePlace) -> Iterator[SavedPlan]:
    with start_on(setup, place.case.cores) as worker:
        workload = make_workload(model, worker, side)
        with adding_notes(workload.notes):
            rig = set_up(worker, setup, place.case.cores, workload, side)
            saved = save_plan(rig, model.static.weight_bytes)
        if saved is None or not saved.runs_parts:
            raise MeasureError(
                f"{model.file.name} has no plan that can be cut into parts: this works only "
                "on ONNX Runtime's CPU provider, and for models below 2 GiB. Use the parts that "
                "modelperf compare shows."
            )
        yield saved


def _divide(before: SavedPlan, after: SavedPlan, *, shares_a_setup: bool) -> OpenPlans:
    sides = before, after
    old, new = map(run_once, sides)
    matching = match_plans(before.plan, after.plan, old.types, new.types)
    units = find_units(before.plan, after.plan, matching, (old.types, new.types))
    times = [old.times_ns, new.times_ns]
    profiled: list[list[Mapping[int, float]]] = [[], []]
    for _ in range(_PROFILES):
        for side, saved in enumerate(sides):
            profiled[side].append(_time_kernels(saved))
    spent = [_shorter(own) or times[side] for side, own in enumerate(profiled)]
    longer = []
    for unit in units:
        is_same_work = shares_a_setup and not unit.is_changed
        taken = [sum(spent[s].get(i, 0.0) for i in kernels_of([unit], s)) for s in (0, 1)]
        longer.append(0.0 if is_same_work else taken[1] - taken[0])
    return OpenPlans(sides, units, tuple(longer))


def _time_kernels(side: SavedPlan) -> Mapping[int, float]:
    """Return the typical time of each kernel in a short profile, as far as the engine shows it."""
    return {
        int(kernel.name): median(kernel.self_ns)
        for run in time_plans(side) or ()
        for kernel in run.kernels
        if kernel.name.isdigit() and kernel.self_ns
    }


def _shorter(profiles: Sequence[Mapping[int, float]]) -> dict[int, float]:
    known = {index for times in profiles for index in times}
    return {index: min(times.get(index, inf) for times in profiles) for index in known}


def _cut(side: SavedPlan, kernels: Sequence[int], name: str) -> Cut:
    part = make_side(side.plan, kernels, kernels)
    edges = read_edges(side, part.inputs, sent=part.inputs)
    path = send_part(side, name, part, edges.types)
    feeds = {}
    for each, (stored, bits) in edges.sent.items():
        dtype, shape = edges.types[each]
        feeds[each] = Feed(dtype, np.frombuffer(bits, stored).reshape(shape))
    return Cut(Path(path), feeds, side.rig.setup, side.rig.facts.options)


def run_cuts(pair: CutPair, rule: StopRule, place: CasePlace) -> Sequence[DuetRound]:
    """Take the rounds of a duet of the cuts, alone on this machine."""
    load_quantiles()
    setup = pair.after.setup
    with alone_at(place):
        if pair.before.setup == setup:
            with start_on(setup, place.case.cores) as worker:
                old, new = (
                    set_up(worker, setup, place.case.cores, _workload(cut), side)
                    for side, cut in _named(pair)
                )
                return take_shared_rounds(SharedDuet(old, new), rule, place)
        started: list[Rig] = []
        first, second = (_starter(cut, side, place, started) for side, cut in _named(pair))
        with closing(SplitDuet(first, second)) as duet:
            return take_rounds(duet, setup, rule, place, started)


def _named(pair: CutPair) -> tuple[tuple[str, Cut], tuple[str, Cut]]:
    return (BEFORE, pair.before), (AFTER, pair.after)


def _workload(cut: Cut) -> Workload:
    return Workload(model=str(cut.path), feeds=cut.feeds, is_plan=True)


def _starter(cut: Cut, side: str, place: CasePlace, started: list[Rig]) -> StartRig:
    @contextmanager
    def start() -> Iterator[Rig]:
        cores = place.case.cores
        with start_on(cut.setup, cores) as worker:
            rig = set_up(worker, cut.setup, cores, _workload(cut), side)
            started.append(rig)
            yield rig

    return start
