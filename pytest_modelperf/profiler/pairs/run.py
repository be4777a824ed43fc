"""Run a duet: two models in turn in fresh sessions, round by round, until it is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.data_dependence import DataDependence, find_data_dependence
from pytest_modelperf.graph.plans.parts import Part
from pytest_modelperf.graph.plans.plan import find_plan_difference
from pytest_modelperf.graph.structure import PlanDigest, PlanGraph
from pytest_modelperf.profiler.measurements import DuetRound, KernelRun, Measurement
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Sent,
    Timed,
    adding_notes,
    alone_at,
    check_cores,
    make_workload,
    read_outputs,
    see_shapes_if_told,
    start_on,
    time_layers,
    unchanged,
)
from pytest_modelperf.profiler.pairs.plans import (
    ChangedPlans,
    SavedPlan,
    find_other_size,
    has_known_kernels,
    measure_shortly,
    place_parts,
    read_times,
    save_plan,
    time_plans,
)
from pytest_modelperf.profiler.prepare import Pair, PreparedModel
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.sampling.duet import (
    AFTER,
    BEFORE,
    PairSide,
    SharedDuet,
    SplitDuet,
    StartRig,
    failing_as,
)
from pytest_modelperf.profiler.sampling.kernels import read_kernels
from pytest_modelperf.profiler.sampling.loop import Bench, SamplingProgress
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, filling_time
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, set_up, step_of, sum_up
from pytest_modelperf.stats.quantiles import load_quantiles
from pytest_modelperf.stats.slowdowns import MachineDrift, ShortLook, Weighed, weigh


class StopRule(Protocol):
    """The rule that decides when a duet has enough rounds."""

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""

    @property
    def samples_needed(self) -> tuple[int, ...]:
        """The samples of each side that each awaited percentile needs, in ascending order."""

    @property
    def has_limits(self) -> bool:
        """Whether the rule also waits for absolute limits, which more samples decide."""

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether no further round is needed."""


def take_shared_rounds(duet: SharedDuet, rule: StopRule, place: CasePlace) -> Sequence[DuetRound]:
    setup, passes = duet.after.setup, duet.after.workload.pass_inferences
    rigs = duet.before, duet.after
    return take_rounds(duet, setup, rule, place, rigs, pass_inferences=passes)


def take_rounds(  # noqa: PLR0913  # of what, how, until when, for whom
    duet: Bench,
    setup: Setup,
    rule: StopRule,
    place: CasePlace,
    rigs: Sequence[Rig],
    *,
    pass_inferences: int = 1,
) -> Sequence[DuetRound]:
    """Take rounds until the rule has decided or the time is over."""
    fewest, *tail_samples = rule.samples_needed
    policy = replace(
        DUET_POLICY,
        max_seconds=setup.policy.max_seconds,
        min_warmup_seconds=setup.policy.min_warmup_seconds,
        stretch_seconds=setup.stretch_seconds,
        min_samples=fewest,
        tail_samples=tuple(tail_samples),
        max_rounds=rule.rounds,
        pass_inferences=pass_inferences,
    )
    if rule.has_limits:
        policy = filling_time(policy)

    def see(progress: SamplingProgress) -> None:
        for rig in rigs:
            rig.step = step_of(progress)
        place.tell_round(progress)

    return sample_duet(duet, policy, time.perf_counter_ns, see, rule.is_decided)


class RanSide(Struct, frozen=True):
    """The results of one side. `model` has the shapes that its run saw."""

    model: PreparedModel
    profile: CaseProfile
    plan: PlanGraph | None = None
    outputs: Mapping[str, Sent] | None = None


class PlanFinding(Struct, frozen=True):
    """A comparison of the plans of both sides.

    `kernels` is the number of kernels in the second plan. `parts` are the parts that ran in each
    turn next to the whole model. If there are none although the plans differ, `reason` explains
    why. If the plans are the same but the sides still ran in turn, `slowdown` is how many
    times as long the second side took in short runs.
    """

    kernels: int
    is_same: bool
    parts: tuple[Part, ...] = ()
    reason: str | None = None
    slowdown: float | None = None


class PairRun(Struct, frozen=True):
    """The rounds of a pair, the results of each side, and the total duration.

    If it was enough that the plans are the same, there are no rounds. Then each side ran only
    briefly, the second one to get its figures. `plans` is None if the engine shows no
    plans, or if they were not asked for. `changed` has the kernels of both plans if parts ran and
    details were wanted.
    """

    rounds: Sequence[DuetRound]
    before: RanSide
    after: RanSide
    seconds: float
    plans: PlanFinding | None = None
    changed: ChangedPlans | None = None


WantsDetails: TypeAlias = Callable[[Sequence[DuetRound]], bool]


class Wanted(Struct, frozen=True):
    """The facts to find out in addition to the rounds.

    `details` is called once, after the last round, and decides whether layers and outputs are
    wanted. The layers are always wanted if the engine has several providers, because a layer may
    have fallen back to another provider. With `outputs`, outputs are read whatever `details`
    returns. Without `compares_outputs` they are never read, because the outputs of a twin differ
    from those of its model.

    With `plans`, the parts in which the plans differ run next to the whole model. With
    `trusts_plans`, no duet runs if the plans are the same, unless the second side takes longer in a
    short run. With `undisturbed`, layers that other processes disturbed are shown with their times
    without these disturbances, as in a profile.
    """

    details: WantsDetails
    outputs: bool = False
    compares_outputs: bool = True
    plans: bool = False
    trusts_plans: bool = False
    undisturbed: bool = False

    def reads_outputs(self, *, has_details: bool) -> bool:
        return self.compares_outputs and (self.outputs or has_details)

    def wants_details(self, rounds: Sequence[DuetRound], rigs: Sequence[Rig]) -> bool:
        has_details = self.details(rounds)
        return has_details or any(len(rig.facts.providers) > 1 for rig in rigs)


def run_pair(pair: Pair, rule: StopRule, place: CasePlace, wanted: Wanted) -> PairRun:
    """Run the duet of a case, alone on this machine, with layers and outputs if wanted."""
    load_quantiles()
    check_cores(place.case.cores, pair.after_setup)
    run = _share_a_worker if pair.shares_a_worker else _use_two_workers
    with unchanged(pair.before, pair.after), alone_at(place):
        return run(pair, rule, place, wanted)


def _share_a_worker(pair: Pair, rule: StopRule, place: CasePlace, wanted: Wanted) -> PairRun:
    begun = time.monotonic()
    with _shared_worker(pair, place) as (old, new):
        planned = _compare_plans(pair, old, new, place) if wanted.plans else None
        plans = None if planned is None else planned.finding
        if plans is not None and plans.is_same and wanted.trusts_plans:
            short = _run_shortly(pair, old, new, place)
            if short.weighed.is_explained:
                seconds = time.monotonic() - begun
                return PairRun((), short.before, short.after, seconds, plans)
            plans = replace(plans, slowdown=short.weighed.slowdown)
        duet = SharedDuet(old, new)
        rounds = take_shared_rounds(duet, rule, place)
        if plans is not None and duet.too_large is not None:
            share = f"{100 * duet.too_large:.0f} %"
            reason = f"the parts that changed, with their neighbours, take {share} of it"
            plans = replace(plans, parts=(), reason=reason)
        sides = [(pair.before, old), (pair.after, new)]
        runs = None
        wants_details = wanted.wants_details(rounds, (old, new))
        reads_outputs = wanted.reads_outputs(has_details=wants_details)
        if wants_details and planned is not None and plans is not None and plans.parts:
            runs = _time_plans(planned, place)
        takes_layers = wants_details and runs is None
        before, after = _sum_up_sides(
            sides, rounds, place, wanted, takes_layers=takes_layers, reads_outputs=reads_outputs
        )
    changed = _place_kernels(planned, before, after, runs)
    return PairRun(rounds, before, after, time.monotonic() - begun, plans, changed)


class _Planned(Struct, frozen=True):
    finding: PlanFinding
    sides: tuple[SavedPlan, SavedPlan] | None = None
    partners: Mapping[int, int] = field(default_factory=dict)


def _compare_plans(pair: Pair, old: Rig, new: Rig, place: CasePlace) -> _Planned | None:
    """Compare the plans. If they differ, the rigs get the parts that differ.

    Returns None if the engine shows no plan. It also returns None if data decides how much is
    computed, because the same kernels can then do different work.

    If the plans differ, None means that the model can only be judged as a whole. Either the engine
    cannot run parts of a plan. Or the model has nodes with bodies, and a change before such a node
    can change how often a body runs. Or it is a workload, and a part would run at the sizes of a
    single member.
    """
    models = pair.before, pair.after
    if any(find_data_dependence(model.bound.graph) is not None for model in models):
        return None
    place.tell("comparing plans")
    try:
        before, after = _save_plans(pair, old, new)
    except MeasureError as error:
        return _Planned(PlanFinding(0, is_same=False, reason=f"its plan was not saved: {error}"))
    if before is None or after is None or before.plan.find_data() or after.plan.find_data():
        return None
    kernels = after.plan.digest.kernels
    if before.plan.digest == after.plan.digest:
        return _Planned(_check_sizes(before, after))
    has_bodies = any(node.bodies for model in models for node in model.bound.graph.nodes)
    is_mixed = pair.after.request.mixture is not None
    if is_mixed or has_bodies or not (before.runs_parts and after.runs_parts):
        return None
    placed = place_parts(before, after)
    old.parts, new.parts = placed.before, placed.after
    finding = PlanFinding(kernels, is_same=False, parts=placed.parts, reason=placed.reason)
    return _Planned(finding, (before, after), placed.partners)


def _check_sizes(before: SavedPlan, after: SavedPlan) -> PlanFinding:
    kernels = after.plan.digest.kernels
    try:
        other = find_other_size(before, after)
    except MeasureError as error:
        return PlanFinding(kernels, is_same=False, reason=f"its plan did not run: {error}")
    reason = None if other is None else f"its {other} works on other sizes"
    return PlanFinding(kernels, is_same=other is None, reason=reason)


def _time_plans(planned: _Planned, place: CasePlace) -> Sequence[KernelRun] | None:
    sides = planned.sides
    if sides is None or not all(has_known_kernels(side.plan) for side in sides):
        return None
    place.tell("timing layers")
    with suppress(MeasureError):
        return time_plans(*sides)
    return None


def _place_kernels(
    planned: _Planned | None, before: RanSide, after: RanSide, runs: Sequence[KernelRun] | None
) -> ChangedPlans | None:
    if planned is None or planned.sides is None or runs is None:
        return None
    (old, new), (first, second) = planned.sides, runs
    timed = read_times(before.model, old.plan, first), read_times(after.model, new.plan, second)
    return ChangedPlans(*timed, planned.partners, planned.finding.parts)


class _ShortRun(Struct, frozen=True):
    """The first side with its counts only, the second with its own latency, and both weighed."""

    before: RanSide
    after: RanSide
    weighed: Weighed


def _run_shortly(pair: Pair, old: Rig, new: Rig, place: CasePlace) -> _ShortRun:
    """Run both sides briefly. With the same plan they should take the same time."""
    before = see_shapes_if_told(pair.before, old)
    after = see_shapes_if_told(pair.after, new)
    measured = measure_shortly(new, place)

    def looks() -> Iterator[ShortLook]:
        yield _look(measure_shortly(old, place), measured)
        yield _look(measure_shortly(old, place), measure_shortly(new, place))

    first = RanSide(before, CaseProfile(place.case, before.static))
    second = RanSide(after, CaseProfile(place.case, after.static, measured))
    return _ShortRun(first, second, weigh(looks(), MachineDrift()))


def _look(before: Measurement, after: Measurement) -> ShortLook:
    slowdown = after.low_ns / before.low_ns if before.low_ns else 1.0
    return ShortLook(slowdown, max(before.taken, after.taken))


@contextmanager
def _shared_worker(pair: Pair, place: CasePlace) -> Iterator[tuple[Rig, Rig]]:
    """Start both sides in one worker, so that they differ only in the model."""
    setup, cores = pair.after_setup, place.case.cores
    with start_on(setup, cores) as worker:
        place.tell("loading")
        old = make_workload(pair.before, worker, BEFORE)
        new = make_workload(pair.after, worker, AFTER)
        with adding_notes((*old.notes, *new.notes)):
            with failing_as(BEFORE):
                before = set_up(worker, setup, cores, old, BEFORE)
            with failing_as(AFTER):
                after = set_up(worker, setup, cores, new, AFTER)
            yield before, after


def _use_two_workers(pair: Pair, rule: StopRule, place: CasePlace, wanted: Wanted) -> PairRun:
    """Run each side in its own workers, because engines, options or interpreters differ."""
    begun = time.monotonic()
    rigs: list[Rig] = []

    def starter(model: PreparedModel, setup: Setup, side: PairSide) -> StartRig:
        @contextmanager
        def start() -> Iterator[Rig]:
            with failing_as(side), start_on(setup, place.case.cores) as worker:
                workload = make_workload(model, worker, side)
                with adding_notes(workload.notes):
                    rig = set_up(worker, setup, place.case.cores, workload, side)
                    rigs.append(rig)
                    yield rig

        return start

    starters = (
        starter(pair.before, pair.before_setup, BEFORE),
        starter(pair.after, pair.after_setup, AFTER),
    )
    with closing(SplitDuet(*starters)) as duet:
        rounds = take_rounds(
            duet, pair.after_setup, rule, place, rigs, pass_inferences=pair.after.pass_inferences
        )
    is_detailed = wanted.wants_details(rounds, rigs)
    reads_outputs = wanted.reads_outputs(has_details=is_detailed)
    results: list[RanSide] = []
    for start, model in zip(starters, (pair.before, pair.after), strict=True):
        with start() as rig:
            side = [(model, rig)]
            results += _sum_up_sides(
                side, rounds, place, wanted, takes_layers=is_detailed, reads_outputs=reads_outputs
            )
    before, after = results
    return PairRun(rounds, before, after, time.monotonic() - begun)


class TwinRun(Struct, frozen=True):
    """A comparison of a model and its twin, by their plans and by a duet.

    `plan` is the plan of the model, or None if the engine shows none. `difference` describes how
    the twin's plan differs, and `knows_plans` is true if plans or kernels were compared. `by_data`
    is the first kernel of the plan whose work depends on data. If the same plan
    was enough, there are no rounds.
    """

    rounds: Sequence[DuetRound]
    knows_plans: bool
    difference: str | None = None
    plan: PlanDigest | None = None
    by_data: DataDependence | None = None


def run_twin(pair: Pair, rule: StopRule, place: CasePlace, *, trusts_plans: bool) -> TwinRun:
    """Compare the plans of a model and its twin, and run a duet if the plans do not decide."""
    check_cores(place.case.cores, pair.after_setup)
    with (
        unchanged(pair.before, pair.after),
        alone_at(place),
        _shared_worker(pair, place) as (old, new),
    ):
        model, twin = _save_plans(pair, old, new)
        if model is not None and twin is not None:
            difference = find_plan_difference(model.plan, twin.plan)
            by_data = model.plan.find_data()
            found = TwinRun(
                (), knows_plans=True, difference=difference, plan=model.plan.digest, by_data=by_data
            )
            if difference is None and by_data is None and trusts_plans:
                return found
        else:
            found = _compare_kernels(old, new)
        load_quantiles()
        rounds = take_shared_rounds(SharedDuet(old, new), rule, place)
    return replace(found, rounds=rounds)


def run_duet(pair: Pair, rule: StopRule, place: CasePlace) -> Sequence[DuetRound]:
    """Take rounds of the whole models of a pair in one worker, alone on this machine."""
    check_cores(place.case.cores, pair.after_setup)
    load_quantiles()
    with (
        unchanged(pair.before, pair.after),
        alone_at(place),
        _shared_worker(pair, place) as (old, new),
    ):
        return take_shared_rounds(SharedDuet(old, new), rule, place)


def _save_plans(pair: Pair, old: Rig, new: Rig) -> tuple[SavedPlan | None, SavedPlan | None]:
    before = save_plan(old, pair.before.static.weight_bytes)
    after = None if before is None else save_plan(new, pair.after.static.weight_bytes)
    return before, after


def _compare_kernels(old: Rig, new: Rig) -> TwinRun:
    """Compare the kernels of a model and its twin, for an engine that saves no plan."""
    model = read_kernels(old)
    twin = None if model is None else read_kernels(new)
    if model is None or twin is None:
        return TwinRun((), knows_plans=False)
    here, there = (
        [(kernel.name, kernel.op_type, kernel.precision, kernel.calls) for kernel in run.kernels]
        for run in (model, twin)
    )
    difference = None if here == there else "its kernels are others"
    return TwinRun((), knows_plans=True, difference=difference)


def _sum_up_sides(  # noqa: PLR0913  # of what, by which rounds, and what else is wanted
    sides: Sequence[tuple[PreparedModel, Rig]],
    rounds: Sequence[DuetRound],
    place: CasePlace,
    wanted: Wanted,
    *,
    takes_layers: bool,
    reads_outputs: bool,
) -> list[RanSide]:
    """Return the results of sides of one worker: latency, and perhaps layers and outputs."""
    outputs = [read_outputs(rig) if reads_outputs else None for _, rig in sides]
    if takes_layers:
        place.tell("timing layers")
        measured = [(Timed(model, sum_up_side(rig, rounds)), rig) for model, rig in sides]
        timed = time_layers(measured, undisturbed=wanted.undisturbed)
    else:
        known = [see_shapes_if_told(model, rig) for model, rig in sides]
        timed = [
            Timed(m, sum_up_side(rig, rounds)) for m, (_, rig) in zip(known, sides, strict=True)
        ]
    return [
        RanSide(each.model, each.profile(place.case), each.plan, seen)
        for each, seen in zip(timed, outputs, strict=True)
    ]


def sum_up_side(rig: Rig, rounds: Sequence[DuetRound]) -> Measurement:
    own = [r.before if rig.side == BEFORE else r.after for r in rounds]
    return sum_up(rig, own, 0.0, is_alone=False)
