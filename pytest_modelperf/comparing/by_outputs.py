"""Two models, or one on two engines, judged by their outputs alone: one inference of each."""

from __future__ import annotations

import time

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.first_difference import SearchedOutputs, search_difference
from pytest_modelperf.comparing.judged_case import bind_pairs
from pytest_modelperf.comparing.output_changes import compare_outputs, judge_outputs
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric
from pytest_modelperf.comparing.settled import as_unchanged
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, read_facts
from pytest_modelperf.profiler.pairs.outputs import run_for_outputs
from pytest_modelperf.profiler.prepare import Pair, prepare_pair
from pytest_modelperf.profiler.request import ProfileRequest


class ComparedOutputs(Struct, frozen=True):
    """The outputs of both sides compared and judged, and where they begin to differ."""

    outputs: tuple[OutputChange, ...]
    metric: Metric
    searched: SearchedOutputs


def compare_pair_outputs(
    pair: Pair, place: CasePlace, allowed: float, *, searches: bool = True
) -> ComparedOutputs:
    """Compare the outputs of one inference of each side, or raise MeasureError if one fails."""
    place.tell("comparing outputs")
    before = run_for_outputs(pair.before, pair.before_setup, place)
    after = None
    if before is not None:
        after = run_for_outputs(pair.after, pair.after_setup, place)
    if before is None or after is None:
        note = f"the engine {pair.after_setup.engine.name} does not report the outputs of a model"
        return ComparedOutputs((), judge_outputs((), allowed), SearchedOutputs(notes=(note,)))
    outputs = compare_outputs(before, after)
    searched = SearchedOutputs()
    if searches:
        searched = search_difference(pair, place, outputs, allowed)
    return ComparedOutputs(outputs, judge_outputs(outputs, allowed), searched)


def compare_outputs_of(  # noqa: PLR0913, PLR0917  # the sides, what to run, how to judge, and who is informed
    before: Side,
    after: Side,
    request: ProfileRequest,
    allowed: float,
    extensions: Extensions,
    watch: Watch,
    *,
    searches: bool,
) -> Comparison:
    """Compare the outputs of the only case of a request on both sides, without timing anything."""
    (bound,) = bind_pairs(before, after, request, extensions)
    begun = time.monotonic()
    place = CasePlace(bound.after.case(request.cores[0]), 1, 1, watch)
    facts = read_facts(bound.before, 1, watch), read_facts(bound.after, 1, watch)
    case = CaseComparison(place.case, (), ())
    is_same = facts[0].sha256 == facts[1].sha256 is not None
    if bound.shares_a_worker and is_same:
        case = as_unchanged(case)
    else:
        found = compare_pair_outputs(prepare_pair(bound), place, allowed, searches=searches)
        if not found.outputs:
            raise MeasureError(f"outputs cannot be compared: {', '.join(found.searched.notes)}.")
        case = with_outputs(case, found, is_judged=True)
    return Comparison(*facts, (replace(case, seconds=time.monotonic() - begun),), tolerance=allowed)


def with_outputs(
    case: CaseComparison, found: ComparedOutputs, *, is_judged: bool
) -> CaseComparison:
    """Return the case with what the outputs show, which decides only if it `is_judged`."""
    return replace(
        case,
        metrics=(*case.metrics, *([found.metric] if is_judged else ())),
        outputs=found.outputs,
        first_difference=found.searched.first,
        notes=(*case.notes, *found.searched.notes),
    )
