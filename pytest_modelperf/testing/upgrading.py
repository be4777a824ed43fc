"""Judging an upgrade of the engine: a baseline's twin on the recorded and installed versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing.by_running import (
    Details,
    compare_case,
    compare_pair_outputs,
    with_outputs,
)
from pytest_modelperf.comparing.judged_case import JudgedCase, PairedCase
from pytest_modelperf.comparing.limits import DEFAULT_OUTPUTS, OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.settled import find_missing
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.comparing.since_recorded import (
    EngineChange,
    change_of_engine,
    find_engine_change,
)
from pytest_modelperf.errors import BaselineError, ModelPerfError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.profiler.prepare import Pair, prepare
from pytest_modelperf.profiler.worker.gateway import LOCAL
from pytest_modelperf.spec.run_definitions import JUDGE_UPGRADES
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of


def engine_change_of(bound: BoundCheck, stored: Baseline | None) -> EngineChange | None:
    """Return the change of the engine since the case was recorded, if any is known.

    If an option names the engine of the baseline, the user knows of the change. The engine behind a
    gateway is not known.
    """
    context = bound.context
    is_named = context.baseline_python is not None or bool(context.baseline_requirements)
    if stored is None or context.is_static or context.against is not None or is_named:
        return None
    if bound.check.setup.spec != LOCAL:
        return None
    case = stored.model.case(bound.case.id)
    if case is None or case.engine != bound.check.setup.engine.name:
        return None
    if find_missing(bound.case, case, bound.model) is not None:
        return None
    return find_engine_change(case)


def judge_upgrade(bound: BoundCheck, stored: Baseline, change: EngineChange) -> CaseResult:
    """Judge an upgrade. If an environment or a run fails, the case has failed."""
    try:
        compared = _with_outputs(_compare(bound, stored, change), bound, change)
    except ModelPerfError as error:
        failure = error.worded(bound.check.setup.wording)
        compared = JudgedCase(CaseComparison(bound.case, (), (), failure=failure))
    return CaseResult(compared.comparison, compared.profile or bound.counted)


def _compare(bound: BoundCheck, stored: Baseline, change: EngineChange) -> JudgedCase:
    case = stored.model.case(bound.case.id)
    refusal = stored.model.twin_refusal(bound.case.id)
    if refusal is None:
        now = Side(bound.check.graph, bound.check.setup)
        key, extensions = bound.machine.key, bound.context.extensions
        with baseline_side(stored, key, now, bound.check.request, extensions) as before:
            return _compare_engines(bound, before.source, change)
    if case is not None and case.model_sha256 == bound.file.sha256(bound.place.tell):
        # The unchanged model itself is better than a twin.
        return _compare_engines(bound, bound.check.graph, change)
    reason = f"the model changed, and the recorded one cannot be run: {refusal}"
    open_case = CaseComparison(bound.case, (), (), (reason,), outcome=Verdict.INCONCLUSIVE)
    return JudgedCase(open_case)


def _compare_engines(bound: BoundCheck, source: ModelSource, change: EngineChange) -> JudgedCase:
    setup = bound.check.setup
    before = Side(source, bound.setup_with([change.recorded_requirement]))
    model = prepare(bound.bind_older(source))
    pair = Pair(model, model, before.setup, setup)
    gate = bound.check.gate
    # `_with_outputs` compares the outputs of the model itself.
    gate = replace(gate, tolerances=gate.tolerances.without(OUTPUTS))
    return compare_case(PairedCase(pair, before, gate, bound.place), Details.WHEN_WORSE)


def _with_outputs(found: JudgedCase, bound: BoundCheck, change: EngineChange) -> JudgedCase:
    """Add the outputs of the current model on both versions, judged only if there is a limit."""
    comparison = found.comparison
    if comparison.failure is not None:
        return found
    limit = bound.check.gate.tolerances.outputs
    before = bound.setup_with([change.recorded_requirement])
    model = prepare(bound.model)
    pair = Pair(model, model, before, bound.check.setup)
    allowed = DEFAULT_OUTPUTS if limit is None else limit
    compared = compare_pair_outputs(pair, bound.place, allowed)
    if limit is None and not compared.outputs:
        return found
    comparison = with_outputs(comparison, compared, is_judged=limit is not None)
    if limit is not None and compared.metric.verdict is Verdict.REGRESSED:
        # Wrong outputs are an answer even if nothing could be timed.
        comparison = replace(comparison, outcome=None)
    return replace(found, comparison=comparison)


# -- the engines that changed since the baselines of a project were recorded


def find_engine_changes(store: BaselineStore) -> Mapping[EngineChange, int]:
    """Count the baselines for each change of an engine."""
    found: Counter[EngineChange] = Counter()
    try:
        names = store.names()
    except BaselineError:
        # Each check of a model reports this error.
        return {}
    for name in names:
        try:
            stored = store.read(name, ())
        except BaselineError:
            continue
        if stored is not None:
            recorded = {(case.engine, case.engine_version) for case in stored.model.cases}
            changes = {change_of_engine(engine, version) for engine, version in recorded}
            found.update(change for change in changes if change is not None)
    return found


def describe_engine_changes(changes: Mapping[EngineChange, int], *, are_judged: bool) -> list[str]:
    """Return a line for each change: what was recorded with which version, and how to judge it."""
    return [
        _describe(change, count, is_judged=are_judged) for change, count in sorted(changes.items())
    ]


def _describe(change: EngineChange, count: int, *, is_judged: bool) -> str:
    baselines = count_of(count, "baseline")
    recorded = printable(f"{change.engine} {change.recorded}")
    now = "the upgrade is judged" if is_judged else f"{JUDGE_UPGRADES.flag} judges the upgrade"
    return (
        f"modelperf: {baselines} recorded with {recorded}, installed is "
        f"{printable(change.installed)}: {now}"
    )
