"""The search for the kernels that slow a model down, and the files of those that it finds.

The search runs kernels alone and compares them by duets. It does not depend on an engine: a
`UnitJudge` runs some units of both plans in turn; in tests it is a table of times. The search tries
the unit that a profile shows to slow down most, then the first two, the first four, until some are
shown to be slower. Then it leaves out all units it can, by halves, quarters and so on, as Zeller
and Hildebrandt do ("Simplifying and isolating failure-inducing input", IEEE TSE 28 (2002)). The
profile decides only the order.

The whole models and the search get half of the level each, so that a reduction is wrong with at
most the whole level. Each duet of the search has a share of its half, and so has the duet of the
written files.

The files are models without weights, which are drawn later, and the JSON of the search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.comparing.by_running import Details, compare_models
from pytest_modelperf.comparing.gates import RUN_LEVEL, median_gate
from pytest_modelperf.comparing.judged_case import bind_pairs, judge_rounds
from pytest_modelperf.comparing.limits import DEFAULT_TOLERANCE
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import ChangedModelError, MeasureError
from pytest_modelperf.files.output import write_folder
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.weightless import leave_weights_out, make_anonymous, write_weightless
from pytest_modelperf.graph.weights.run_plan import (
    PLAN_FILE,
    PROGRAM_FILE,
    RunModel,
    RunPlan,
    describe_input,
    draw_inputs,
    draw_weights,
    write_run,
)
from pytest_modelperf.profiler.engines.session_facts import session_attributes
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.model_in_worker import CasePlace, Stopwatch, Watch
from pytest_modelperf.profiler.pairs.cuts import Cut, CutPair, OpenPlans, open_plans, run_cuts
from pytest_modelperf.profiler.prepare import prepare_pair
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.reducing.records import (
    REDUCTION,
    ReduceStep,
    Reduction,
    StepAnswer,
    UnitKernels,
    UnitSearch,
    WrittenPair,
)
from pytest_modelperf.reducing.report import write_readme, write_repro
from pytest_modelperf.report.document import dump_document
from pytest_modelperf.stats.decisions import SearchLevels, middle_change

# Only this provider reports its plans.
_PROVIDERS = ("CPUExecutionProvider",)
# The value of ORT_DISABLE_ALL, with which the kernels run unchanged.
_AS_THEY_ARE = 0
# Streams of weights are numbered from 1, those of inputs from here.
_INPUT_STREAMS = 1 << 20


class PairFiles(Struct, frozen=True):
    """A folder with `before.onnx` and `after.onnx`, and the notes to draw their weights from."""

    folder: Path
    plan: RunPlan
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of both models without their weights."""
        before, after = ((self.folder / m.file).stat().st_size for m in self.plan.models)
        return before, after

    @contextmanager
    def drawn(self, cut: CutPair) -> Iterator[CutPair]:
        """Yield the pair with drawn weights and inputs, and remove the weights afterwards."""
        before, after = self.plan.models
        try:
            yield CutPair(self._draw(before, cut.before), self._draw(after, cut.after))
        finally:
            for model in self.plan.models:
                (self.folder / model.weights_file).unlink(missing_ok=True)

    def _draw(self, model: RunModel, cut: Cut) -> Cut:
        draw_weights(model, self.folder)
        drawn = draw_inputs(model).items()
        feeds = {
            name: Feed(own.dtype, array)
            for (name, array), own in zip(drawn, cut.feeds.values(), strict=True)
        }
        return replace(cut, path=self.folder / model.file, feeds=feeds)


@contextmanager
def pair_files(cut: CutPair, cores: int, *, is_anonymous: bool) -> Iterator[PairFiles]:
    """Yield the files of a pair in a folder that is removed at the end of the context."""
    streams: dict[_Key, int] = {}
    with working_folder("reduced") as place:
        folder = place / "pair"
        folder.mkdir()
        made = [
            _write_model(folder, name, own, streams, is_anonymous=is_anonymous)
            for name, own in ((BEFORE, cut.before), (AFTER, cut.after))
        ]
        session = session_attributes(cut.after.options)
        plan = RunPlan(
            cores=cores,
            providers=_PROVIDERS,
            options={**session.options, "graph_optimization_level": _AS_THEY_ARE},
            config=session.config,
            models=tuple(model for model, _ in made),
        )
        yield PairFiles(folder, plan, tuple(dict.fromkeys(d for _, own in made for d in own)))


# The name, the type and the shape of an input.
_Key: TypeAlias = tuple[str, str, tuple[int, ...]]


def _write_model(
    folder: Path, name: str, cut: Cut, streams: dict[_Key, int], *, is_anonymous: bool
) -> tuple[RunModel, tuple[str, ...]]:
    shared = leave_weights_out(open_model(cut.path), f"{name}.weights")
    inputs = []
    for each, feed in cut.feeds.items():
        # An input that both models have gets the same numbers in both.
        key = each, feed.dtype, feed.array.shape
        stream = streams.setdefault(key, _INPUT_STREAMS + len(streams))
        inputs.append(describe_input(each, feed.dtype, feed.array, stream, shared.texts, name))
    if is_anonymous:
        renamed = make_anonymous(shared.proto)
        shared = replace(shared, proto=renamed.proto)
        inputs = [replace(each, name=renamed.values[each.name]) for each in inputs]
    model = RunModel(
        file=f"{name}.onnx",
        weights_file=shared.weights_file,
        weights=shared.weights,
        inputs=tuple(inputs),
    )
    write_weightless(shared, folder / model.file)
    return model, shared.doubts


# -- the folder or archive of a reduced pair


_README_FILE, _REPRO_FILE = "README.md", "repro.py"
# The files that are written into a folder, or removed from it.
REPLACED_FILES = (
    _README_FILE, _REPRO_FILE, PROGRAM_FILE, PLAN_FILE,
    *(f"{side}.{kind}" for side in (BEFORE, AFTER) for kind in ("onnx", "weights")),
)  # fmt: skip


def deliver(found: Reduction, files: PairFiles, target: str, machine: MachineFacts) -> None:
    """Add the programs and the README to the files of a pair, and write all to `target`.

    A name that ends in `.zip` is an archive. Weights that were drawn for an earlier pair are
    removed.
    """
    write_run(files.plan, files.folder)
    texts = {
        _README_FILE: write_readme(found, machine),
        _REPRO_FILE: write_repro(is_upgrade=found.is_upgrade),
    }
    contents = {path.name: path.read_bytes() for path in sorted(files.folder.iterdir())}
    write_folder(
        contents | {name: text.encode() for name, text in texts.items()},
        target,
        stale=[model.weights_file for model in files.plan.models],
    )


def dump_reduction(found: Reduction, target: str) -> str:
    """Return the reduction as JSON text. Its files are at `target`."""
    document = REDUCTION.of(found)
    search, written = found.search, document["written"]
    kept = () if search is None else search.kept
    for index, unit in enumerate(document["units"]):
        unit["kept"] = index in kept
    if written is not None:
        is_smallest = search is not None and search.is_smallest
        written |= {"target": target, "kernels": found.kernels, "smallest": is_smallest}
    return dump_document(document)


# -- the search


class UnitQuestion(Struct, frozen=True, kw_only=True):
    """The question to a judge: whether these units are slower than `allowed` by themselves."""

    units: tuple[int, ...]
    allowed: float
    # The bound on the chance of a wrong answer in either direction.
    level: float
    number: int


# Runs units of both plans in turn, or raises MeasureError if they do not run alone.
UnitJudge: TypeAlias = Callable[[UnitQuestion], Metric]


class ReduceRule(Struct, frozen=True, kw_only=True):
    """The change that counts as slower, the level of the whole search, and its longest time.

    The duets share the level, and one of them is reserved for the files that are written.
    """

    allowed: float
    level: float
    max_seconds: float = math.inf


def levels_for(units: int, level: float) -> SearchLevels:
    """Return the levels of the duets of a search among this number of units."""
    return SearchLevels(units + 1, level)


def find_smallest(
    longer: Sequence[float],
    judge: UnitJudge,
    rule: ReduceRule,
    clock: Callable[[], float] = time.monotonic,
) -> UnitSearch:
    """Find the fewest units that still show the slowdown. Those that took `longer` come first."""
    ranked = sorted(range(len(longer)), key=lambda index: (-longer[index], index))
    search = _Leaving(judge, rule, levels_for(len(ranked), rule.level), clock, clock())
    kept: Sequence[int] = ()
    for size in _sizes(len(ranked)):
        if search.is_over:
            break
        if search.shows_slowdown(ranked[:size]):
            kept = ranked[:size]
            break
    smallest, is_smallest = search.leave_out(sorted(kept))
    return UnitSearch(
        steps=tuple(search.steps), kept=tuple(smallest), is_smallest=bool(kept) and is_smallest
    )


def _sizes(units: int) -> Iterator[int]:
    size = 1
    while size < units:
        yield size
        size *= 2
    if units:
        yield units


class _Leaving(Struct):
    judge: UnitJudge
    rule: ReduceRule
    levels: SearchLevels
    clock: Callable[[], float]
    begun: float
    steps: list[ReduceStep] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.clock() - self.begun > self.rule.max_seconds

    def leave_out(self, units: Sequence[int]) -> tuple[Sequence[int], bool]:
        """Return the units that cannot be left out, and whether the search is complete."""
        parts = 2
        while len(units) > 1:
            for chunk in _chunks(units, parts):
                if self.is_over:
                    return units, False
                rest = [unit for unit in units if unit not in chunk]
                if self.shows_slowdown(rest):
                    units, parts = rest, max(parts - 1, 2)
                    break
            else:
                if parts >= len(units):
                    break
                parts = min(2 * parts, len(units))
        return units, True

    def shows_slowdown(self, units: Sequence[int]) -> bool:
        asked = tuple(sorted(units))
        known = next((step for step in self.steps if step.units == asked), None)
        step = known or self._ask(asked)
        return step.shown is StepAnswer.SLOWER

    def _ask(self, units: tuple[int, ...]) -> ReduceStep:
        begun, allowed = self.clock(), self.rule.allowed
        number = len(self.steps) + 1
        metric, reason = None, None
        try:
            level = self.levels.of(number)
            question = UnitQuestion(units=units, allowed=allowed, level=level, number=number)
            metric = self.judge(question)
        except ChangedModelError:
            # The previous steps measured another model.
            raise
        except MeasureError as error:
            reason = error.message
        step = ReduceStep(
            units=units,
            shown=StepAnswer.FAILED if metric is None else _SHOWN[metric.verdict],
            allowed=allowed,
            metric=metric,
            reason=reason,
            seconds=self.clock() - begun,
        )
        self.steps.append(step)
        return step


_SHOWN = {
    Verdict.REGRESSED: StepAnswer.SLOWER,
    Verdict.PASSED: StepAnswer.NOT_SLOWER,
    Verdict.IMPROVED: StepAnswer.NOT_SLOWER,
    Verdict.INCONCLUSIVE: StepAnswer.OPEN,
}


def _chunks(units: Sequence[int], parts: int) -> Iterator[Sequence[int]]:
    for number in range(parts):
        start, stop = (len(units) * place // parts for place in (number, number + 1))
        yield units[start:stop]


# The maximum shares of the time for the whole models and for one duet of the search.
_WHOLE_SHARE, _DUET_SHARE = 0.3, 0.15

# Writes the files of a reduction to their target.
Deliver: TypeAlias = Callable[[Reduction, PairFiles], None]


class ReduceRequest(Struct, frozen=True, kw_only=True):
    """A request to reduce one case of two models, with the rule and the limit of time."""

    before: Side
    after: Side
    request: ProfileRequest
    extensions: Extensions
    tolerance: float = DEFAULT_TOLERANCE
    level: float = RUN_LEVEL
    max_seconds: float = 60.0
    is_anonymous: bool = False


def run_reduce(
    asked: ReduceRequest,
    deliver: Deliver,
    watch: Watch = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Reduction:
    """Find the smallest pair of models that still shows the slowdown.

    `deliver` gets its files. It is called only if B and a part of it alone are slower.
    """
    stopwatch = Stopwatch(watch, clock)
    whole = asked.max_seconds * _WHOLE_SHARE
    gate = median_gate(asked.tolerance, asked.level / 2, whole)
    compared = compare_models(
        _within(asked.before, whole),
        _within(asked.after, whole),
        asked.request,
        gate,
        asked.extensions,
        stopwatch,
        Details.NEVER,
    )
    (case,) = compared.cases
    if case.failure is not None:
        raise MeasureError(f"the two models could not be compared: {case.failure}")
    reduction = Reduction(
        before=compared.before.name,
        after=compared.after.name,
        comparison=case,
        tolerance=asked.tolerance,
        level=asked.level,
    )
    if reduction.verdict is Verdict.REGRESSED:
        reduction = _reduce(asked, reduction, deliver, stopwatch)
    return replace(reduction, seconds=stopwatch.seconds)


def _reduce(
    asked: ReduceRequest, found: Reduction, deliver: Deliver, stopwatch: Stopwatch
) -> Reduction:
    (cores,) = asked.request.cores
    seconds = asked.max_seconds * _DUET_SHARE
    before, after = (_within(side, seconds) for side in (asked.before, asked.after))
    (bound,) = bind_pairs(before, after, asked.request, asked.extensions)
    pair = prepare_pair(bound)
    place = CasePlace(pair.after.case(cores), 1, 1, stopwatch)
    whole = 1.0 if found.whole is None or found.whole.ratio is None else found.whole.ratio
    with open_plans(pair, place) as plans:
        units = tuple(_named(plans))
        levels = levels_for(len(units), asked.level / 2)
        rule = ReduceRule(
            allowed=middle_change(whole),
            level=asked.level / 2,
            # The written files need time for a duet as well.
            max_seconds=asked.max_seconds - stopwatch.seconds - seconds,
        )
        judge = _CutJudge(plans, place, seconds, levels.planned)
        search = find_smallest(plans.longer_ns, judge, rule, lambda: stopwatch.seconds)
        found = replace(found, units=units, search=search)
        if not search.kept:
            return found
        place.tell("writing the models")
        cut = plans.cut(plans.units[index] for index in search.kept)
        with pair_files(cut, cores, is_anonymous=asked.is_anonymous) as files:
            question = UnitQuestion(
                units=search.kept,
                allowed=rule.allowed,
                level=levels.of(len(search.steps) + 1),
                number=len(search.steps) + 1,
            )
            with files.drawn(cut) as drawn:
                metric = judge.run(drawn, question)
            written = WrittenPair(metric=metric, sizes=files.sizes, warnings=files.warnings)
            found = replace(found, written=written, seconds=stopwatch.seconds)
            deliver(found, files)
    return found


def _named(plans: OpenPlans) -> Iterator[UnitKernels]:
    for unit, longer in zip(plans.units, plans.longer_ns, strict=True):
        before, after = plans.names(unit)
        yield UnitKernels(before=before, after=after, is_changed=unit.is_changed, longer_ns=longer)


class _CutJudge(Struct):
    plans: OpenPlans
    place: CasePlace
    seconds: float
    planned: int

    def __call__(self, question: UnitQuestion) -> Metric:
        cut = self.plans.cut(self.plans.units[index] for index in question.units)
        return self.run(cut, question)

    def run(self, cut: CutPair, question: UnitQuestion) -> Metric:
        gate = median_gate(question.allowed, question.level, self.seconds)
        number = question.number
        place = replace(self.place, number=number, cases=max(self.planned, number))
        return judge_rounds(run_cuts(cut, gate, place), gate).p50


def _within(side: Side, seconds: float) -> Side:
    policy = replace(side.setup.policy, max_seconds=seconds)
    return replace(side, setup=replace(side.setup, policy=policy, stretch_seconds=None))
