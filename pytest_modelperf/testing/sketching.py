"""Comparing the outputs of a model with the sketch of them in its baseline.

This finds a model that is faster but wrong when there is no older model to run, such as after an
upgrade of the engine or an optimization of the graph. The sketch belongs to the trained weights, so
it cannot be used after training.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.output_sketch import digest_inputs, sketch_tensors
from pytest_modelperf.baselines.recorded import has_recorded_structure
from pytest_modelperf.baselines.records import Baseline, OutputSketch, StoredCase
from pytest_modelperf.comparing.judged_case import UNJUDGED_OUTPUTS
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS
from pytest_modelperf.comparing.output_changes import compare_with_sketch, judge_outputs
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.copies import can_be_watched
from pytest_modelperf.graph.deciding_inputs import find_random
from pytest_modelperf.graph.stored_weights import digest_weights
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.model_in_worker import CasePlace, run_for_outputs
from pytest_modelperf.profiler.prepare import PreparedModel, prepare
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult

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
