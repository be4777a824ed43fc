"""Comparing a case with its baseline or an older version, or with a baseline that it replaces.

The outputs of a model are compared with their sketch in its baseline. This finds a model that is
faster but wrong even without an older model to run, such as after an upgrade of the engine or an
optimization of the graph. The sketch belongs to the trained weights, so it cannot be used after
training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.output_sketch import digest_inputs, sketch_tensors
from pytest_modelperf.baselines.recorded import has_recorded_structure
from pytest_modelperf.baselines.records import Baseline, OutputSketch, StoredCase
from pytest_modelperf.comparing.by_counts import (
    SideCounts,
    compare_cases,
    compare_with_stored,
    with_size,
)
from pytest_modelperf.comparing.by_running import Details, compare_case
from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate
from pytest_modelperf.comparing.judged_case import UNJUDGED_OUTPUTS, JudgedCase, PairedCase
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS, Tolerances
from pytest_modelperf.comparing.output_changes import compare_with_sketch, judge_outputs
from pytest_modelperf.comparing.records import CaseComparison, How, Measure, Verdict
from pytest_modelperf.comparing.settled import (
    cannot_run_apart,
    find_missing,
    settle,
    settle_by_plan,
    settle_equal,
    with_times,
)
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.comparing.since_recorded import Suspicion
from pytest_modelperf.errors import BindingError, MeasureError, ModelPerfError, Remedy, UsageError
from pytest_modelperf.graph.copies import can_be_watched
from pytest_modelperf.graph.deciding_inputs import find_random
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.stored_weights import digest_weights
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    StartRig,
    run_for_outputs,
    started_rig,
)
from pytest_modelperf.profiler.prepare import Model, PairOf, PreparedModel, prepare, prepare_pair
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.request import size_on_disk
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.decisions import LOOKS
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.testing.case_budgets import measure_for_budgets
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult, CheckContext
from pytest_modelperf.testing.older import older_version
from pytest_modelperf.testing.outcomes import BaselineLink
from pytest_modelperf.text.escaping import printable

_AGAINST = "the sketch of outputs in the baseline"


def sketch_outputs(model: PreparedModel, setup: Setup, place: CasePlace) -> OutputSketch | None:
    """Sketch one inference of a model, or return None if the engine does not return outputs."""
    place.tell("sketching outputs")
    outputs = run_for_outputs(model, setup, place)
    if outputs is None:
        return None
    return OutputSketch(
        inputs=digest_inputs(model.feeds),
        weights=digest_weights(model.file),
        tensors=sketch_tensors(outputs, _lasting(model.bound.graph)),
    )


def _lasting(graph: Graph) -> frozenset[str]:
    """Return the outputs that are the same in each run: not random, and with a known shape."""
    random = find_random(graph)
    return frozenset(
        tensor.name
        for tensor in graph.outputs
        if can_be_watched(tensor) and tensor.is_complete and tensor.name not in random
    )


def with_sketch_judged(
    bound: BoundCheck, result: CaseResult, stored: Baseline | None
) -> CaseResult:
    """Judge the outputs by the sketch, if the case asks for that and ran."""
    comparison, case = result.comparison, None
    if stored is not None:
        case = stored.model.case(bound.case.id)
    is_settled = comparison.outcome is not None or comparison.failure is not None
    is_asked = bound.check.sketches_outputs and not bound.context.is_static
    if case is None or is_settled or not is_asked or bound.context.against is not None:
        return result
    try:
        judged = _judge(bound, case, comparison)
    except MeasureError as error:
        failure = f"its outputs were not read: {error.worded(bound.check.setup.wording)}"
        judged = replace(comparison, failure=failure)
    return replace(result, comparison=judged)


def _judge(bound: BoundCheck, case: StoredCase, comparison: CaseComparison) -> CaseComparison:
    sketch = case.sketch
    if sketch is None:
        return _without(comparison, "it has none: record it again with --modelperf-update-baseline")
    model = prepare(bound.model)
    has_weights = digest_weights(model.file) == sketch.weights
    obstacle = _find_obstacle(case, sketch, model, has_weights=has_weights)
    if obstacle is not None:
        return _without(comparison, obstacle)
    found = run_for_outputs(model, bound.check.setup, bound.place)
    if found is None:
        engine = bound.check.setup.engine.name
        return _without(comparison, f"the engine {engine} does not report the outputs of a model")
    rule = _rule_of(bound, has_weights=has_weights)
    changes = compare_with_sketch(sketch.tensors, found)
    judged = [
        change
        for change in changes
        if rule.judges_all or sketch.tensors[change.name].dtype.startswith("float")
    ]
    is_judged = bool(judged) and rule.reason is None
    metric = judge_outputs(judged, rule.allowed)
    notes = [f"outputs were held against {_AGAINST}: they differ by at least what is shown"]
    if rule.reason is not None:
        notes.append(f"they are shown, not judged, unless a tolerance names them: {rule.reason}")
    return replace(
        _noted(comparison, *notes, *_left_out(model.bound.graph, sketch)),
        metrics=(*comparison.metrics, *([metric] if is_judged else [])),
        outputs=changes,
    )


def _find_obstacle(
    case: StoredCase, sketch: OutputSketch, model: PreparedModel, *, has_weights: bool
) -> str | None:
    if digest_inputs(model.feeds) != sketch.inputs:
        return "it runs on other inputs than when it was recorded"
    if not has_weights and has_recorded_structure(case, model.file):
        return "the same graph has other weights, as after training"
    if not sketch.tensors:
        return "no output is the same in each run"
    return None


class _SketchRule(Struct, frozen=True):
    """The allowed difference of outputs, and the `reason` if they are only shown, not judged.

    With `judges_all`, integers are judged too.
    """

    allowed: float
    judges_all: bool
    reason: str | None = None


def _rule_of(bound: BoundCheck, *, has_weights: bool) -> _SketchRule:
    limit = bound.check.gate.tolerances.outputs
    if limit is not None:
        return _SketchRule(limit, judges_all=True)
    reason = None
    if not has_weights:
        reason = "its graph and its weights are others than the recorded ones"
    elif _is_coarse(bound.model.bound.graph):
        reason = "it computes in fewer than 32 bits, which processors round in other ways"
    return _SketchRule(DEFAULT_OUTPUTS, judges_all=False, reason=reason)


def _is_coarse(graph: Graph) -> bool:
    """Whether a model computes in floats of 16 bits or fewer, or with quantized values."""
    return any(
        "Quantize" in node.op_type
        or node.op_type.startswith("QLinear")
        or node.op_type.endswith("Integer")
        or any(
            t is not None and t.is_float and t.dtype not in {"float32", "float64"}
            for t in (*node.inputs, *node.outputs)
        )
        for node in graph.walk()
    )


def _left_out(graph: Graph, sketch: OutputSketch) -> Iterator[str]:
    names = [tensor.name for tensor in graph.outputs if tensor.name not in sketch.tensors]
    if names:
        yield f"not in {_AGAINST}: {', '.join(names)}"


def _without(comparison: CaseComparison, reason: str) -> CaseComparison:
    return _noted(comparison, f"outputs are not held against {_AGAINST}: {reason}")


def _noted(comparison: CaseComparison, *notes: str) -> CaseComparison:
    kept = (note for note in comparison.notes if note != UNJUDGED_OUTPUTS)
    return replace(comparison, notes=(*kept, *notes))


def judge_case(bound: BoundCheck, stored: Baseline | None) -> CaseResult:
    """Compare a case, and measure it alone if budgets or a new case need that."""
    arrives = bound.check.request.arrivals is not None
    # These budgets are for inferences with arrival times, but a comparison runs them back to back.
    unlimited = replace(bound, check=replace(bound.check, budgets=())) if arrives else bound
    compared = _compare(unlimited, stored)
    comparison, profile = compared.comparison, compared.profile
    is_new = comparison.outcome is Verdict.NEW
    takes_longer = comparison.how is How.PLAN and bool(bound.timed_budgets) and not arrives
    if takes_longer or (arrives and bound.timed_budgets):
        # The run of a comparison is too short for budgets, or has no arrival times.
        profile = None
    if profile is None and comparison.failure is None and (is_new or bound.timed_budgets):
        try:
            profile = measure_for_budgets(bound, is_new=is_new)
        except MeasureError as error:
            failure = error.worded(bound.check.setup.wording)
            comparison = replace(comparison, failure=failure)
    if takes_longer and profile is not None and profile.measured is not None:
        comparison = with_times(comparison, profile.measured, bound.gate)
    return CaseResult(
        comparison, profile or bound.counted, before=compared.before, observed=compared.observed
    )


def settle_alone(bound: BoundCheck, stored: Baseline, start: StartRig) -> CaseResult | None:
    """Settle a case that is unchanged or has the same plan, or return None if it has to run."""
    found = settle_case(bound, stored) or _settle_by_plan(bound, stored, start)
    if found is None:
        bound.context.unsettled.add(bound.check.key)
    if not isinstance(found, JudgedCase) or found.comparison.outcome is Verdict.NEW:
        return None
    return CaseResult(
        found.comparison,
        found.profile or bound.counted,
        before=found.before,
        observed=found.observed,
    )


def _compare(bound: BoundCheck, stored: Baseline | None) -> JudgedCase:
    """Compare a case with its older version or baseline. Without both, the result is empty."""
    context, case = bound.context, bound.case
    if bound.check.baseline is None:
        return JudgedCase(CaseComparison(case, (), ()))
    if context.against is not None:
        with older_model(context, context.against, bound.file) as path:
            return _compare_sides(bound, Side(path, bound.setup_before()))
    if stored is None:
        reason = f"there is no baseline of {case.id}"
        return JudgedCase(CaseComparison(case, (), (), (reason,), outcome=Verdict.NEW))
    settled = _compare_counts(bound, stored) if context.is_static else settle_case(bound, stored)
    found = settled or _settle_by_plan(bound, stored)
    if isinstance(found, Suspicion):
        return _compare_suspected(bound, stored, found)
    return found or compare_with_twin(bound, stored)


def _compare_suspected(bound: BoundCheck, stored: Baseline, why: Suspicion) -> JudgedCase:
    """Run the case in turn with its baseline, even though their plans are the same."""
    measured = replace(bound, check=replace(bound.check, measure=Measure.ALWAYS))
    found = compare_with_twin(measured, stored)
    drift = why.drift(found.comparison)
    if drift is not None:
        bound.context.slowdowns.add(why.place, why.model, drift)
    notes = (why.describe(found.comparison), *found.comparison.notes)
    return replace(found, comparison=replace(found.comparison, notes=notes))


def _settle_by_plan(
    bound: BoundCheck, stored: Baseline, start: StartRig = started_rig
) -> JudgedCase | Suspicion | None:
    if bound.context.is_static or bound.check.key in bound.context.unsettled:
        return None
    before, check = _stored_side(bound, stored), bound.check
    slowdowns = bound.context.slowdowns
    return settle_by_plan(
        before, bound.model, check.setup, bound.gate, bound.place, slowdowns, start
    )


def _stored_side(bound: BoundCheck, stored: Baseline) -> Side:
    """Return the side of a baseline before its twin is rebuilt."""
    setup = bound.setup_before(stored.model.case(bound.case.id))
    machine = stored.machine(bound.machine.key)
    twin = None if stored.twin is None else bound.context.open_twin(stored.twin)
    return Side(bound.check.graph, setup, stored.model, machine, twin)


def compare_with_twin(bound: BoundCheck, stored: Baseline) -> JudgedCase:
    """Run the case in turn with the twin of its baseline, if the twin is trusted."""
    context = bound.context
    now = Side(bound.check.graph, bound.check.setup)
    side = baseline_side(stored, bound.machine.key, now, bound.check.request, context.extensions)
    with side as before:
        setup = bound.setup_before(stored.model.case(bound.case.id))
        return _compare_sides(bound, replace(before, setup=setup))


def _compare_counts(bound: BoundCheck, stored: Baseline) -> JudgedCase | None:
    case = stored.model.case(bound.case.id)
    missing = find_missing(bound.case, case, bound.model)
    if case is None or missing is not None:
        return missing
    # Nothing runs here, so only an earlier run of the same model may have completed the counts.
    is_same = (
        case.observed is not None
        and case.inputs == bound.model.given_inputs
        and case.model_sha256 == bound.file.sha256(bound.place.tell)
    )
    tolerances = bound.check.gate.tolerances
    known = SideCounts(case.static, case.observed)
    found = compare_with_stored(bound.case, known, bound.model.static, tolerances, is_same=is_same)
    sizes = stored.model.size_of(case.id), size_on_disk(bound.file)
    found = _with_layers(bound, with_size(found, *sizes, tolerances), stored)
    return JudgedCase(found, observed=case.observed if is_same else None)


def settle_case(bound: BoundCheck, stored: Baseline) -> JudgedCase | None:
    """Return the comparison if it needs no rebuilt twin, or None if it does.

    Raise UsageError if the baseline has to run in another Python but has no twin for that.
    """
    case = stored.model.case(bound.case.id)
    missing = find_missing(bound.case, case, bound.model)
    if missing is not None:
        return missing
    before = _stored_side(bound, stored)
    obstacle = cannot_run_apart(before, bound.model, bound.check.setup, bound.case)
    if obstacle is not None:
        raise UsageError(
            f"{obstacle}. Give the older model itself with --modelperf-against, record the "
            "baseline again with --modelperf-update-baseline when less else runs here, or "
            f"leave out {bound.context.option_before}."
        )
    return settle(before, bound.model, bound.check.setup, bound.check.gate, bound.place)


def _with_layers(bound: BoundCheck, found: CaseComparison, stored: Baseline) -> CaseComparison:
    """Add the layers that explain worse counts, if the baseline has a twin.

    The stored counts have no layers. The twin has them, and does not need to run.
    """
    is_worse = found.verdict is Verdict.REGRESSED
    if not is_worse or stored.twin is None or not stored.model.has_twin_of(found.id):
        return found
    try:
        old = bound.bind_older(stored.twin)
    except ModelPerfError:
        # The verdict is valid without the layers of a twin that cannot be read.
        return found
    before = CaseProfile(bound.case, old.static)
    compared = compare_cases(before, bound.counted, bound.check.gate.tolerances)
    return replace(found, reasons=compared.reasons)


def _compare_sides(bound: BoundCheck, before: Side) -> JudgedCase:
    old = _bind_before(bound, before)
    if bound.context.is_static:
        then = CaseProfile(bound.case, old.static)
        tolerances = bound.check.gate.tolerances
        counted = compare_cases(then, bound.counted, tolerances)
        known = before.baseline
        size = size_on_disk(old.file) if known is None else known.size_of(bound.case.id)
        return JudgedCase(with_size(counted, size, size_on_disk(bound.file), tolerances))
    pair = PairOf(old, bound.model, before.setup, bound.check.setup)
    if before.baseline is None:
        settled = settle_equal(pair, bound.gate, bound.place)
        if settled is not None:
            return settled
    asked = PairedCase(prepare_pair(pair), before, bound.gate, bound.place)
    return compare_case(asked, Details.WHEN_WORSE)


def _bind_before(bound: BoundCheck, before: Side) -> Model:
    name = f"the older version of {printable(bound.file.name)}"
    try:
        old = bound.bind_older(before.source)
    except BindingError as error:
        if before.baseline is not None:
            raise
        raise BindingError(
            f"{name} cannot have the sizes of {bound.case.id}: {error.message} Give an older "
            "version whose dimensions use their current names, or compare both with `modelperf "
            "compare OLD NEW`, which takes sizes of either."
        ) from error
    batch_size = old.bound.inputs.batch_size
    if batch_size != bound.case.batch_size:
        raise UsageError(
            f"{name} runs at batch size {batch_size}, and the model now at "
            f"{bound.case.batch_size}: they cannot be compared.",
            Remedy("Give a size with {batch} that both can have."),
        )
    return old


@contextmanager
def older_model(context: CheckContext, against: str, file: ModelFile) -> Iterator[Path]:
    """Yield the older version of a model, which exists during the context.

    Raise UsageError for a model that is not a file.
    """
    if context.older is not None:
        yield context.older
        return
    if file.path is None:
        raise UsageError(
            f"{file.name} is not a file, so --modelperf-against cannot name an older one: "
            "give the model by its path."
        )
    with older_version(against, file.path, context.root) as path:
        yield path


# -- comparing a recorded model with the baseline that it replaces


# The smallest step that a history shows.
_PRECISION = 0.01
_TOLERANCES = Tolerances(shares=((50.0, _PRECISION), (95.0, 0.1)))


class LinkGate(Gate, frozen=True, kw_only=True):
    """The gate that measures until the ratio is known to 1 %. All later points share its error."""

    judges_starts: bool = False

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        if len(rounds) < LOOKS[0]:
            return False
        pairs = [(each.before.block, each.after.block) for each in rounds]
        found = duet_ratio(pairs, self.confidence)
        if found.low is None or found.high is None or found.low <= 0.0:
            return False
        return math.log(found.high / found.low) / 2.0 <= _PRECISION


def with_link(bound: BoundCheck, result: CaseResult, stored: Baseline | None) -> CaseResult:
    """Add the link of a recorded case, if a history is written and there is an old baseline."""
    context = bound.context
    if context.history is None or context.is_static or result.recording is None or stored is None:
        return result
    if stored.model.case(bound.case.id) is None:
        return result
    return replace(result, link=_measure_link(bound, stored))


def _measure_link(bound: BoundCheck, stored: Baseline) -> BaselineLink:
    """Compare a recorded case with its old baseline.

    The case is recorded even if this fails, so an error becomes the reason for a missing ratio.
    """
    gate = LinkGate(tolerances=_TOLERANCES, level=RUN_LEVEL, rounds=bound.check.gate.rounds)
    bound = replace(bound, check=replace(bound.check, gate=gate, budgets=()))
    # Both sides run in this Python, so that they differ only in the model.
    context = replace(bound.context, baseline_python=None, baseline_requirements=())
    bound = replace(bound, context=context)
    refusal = stored.model.twin_refusal(bound.case.id)
    try:
        judged = settle_case(bound, stored)
        if judged is None and refusal is not None:
            return BaselineLink(problem=refusal)
        compared = (judged or compare_with_twin(bound, stored)).comparison
    except ModelPerfError as error:
        return BaselineLink(problem=str(error))
    problem = _problem(compared)
    return BaselineLink(compared) if problem is None else BaselineLink(problem=problem)


def _problem(compared: CaseComparison) -> str | None:
    if compared.failure is not None:
        return compared.failure
    return compared.reasons[0] if compared.outcome is Verdict.NEW else None
