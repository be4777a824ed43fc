"""A recorded model compared with the baseline that it replaces, so that a history chains both."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.stats.estimates import duet_ratio
from pytest_modelperf.stats.looks import LOOKS
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult
from pytest_modelperf.testing.judging import compare_with_twin, settle_case
from pytest_modelperf.testing.outcomes import BaselineLink

# The smallest step of a history.
_PRECISION = 0.01
_TOLERANCES = Tolerances(shares=((50.0, _PRECISION), (95.0, 0.1)))


class LinkGate(Gate, frozen=True, kw_only=True):
    """Measures until the ratio is known to 1 %, because all later points share its error."""

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
    """The result of a recorded case with its link, if a history is written and one is possible."""
    context = bound.context
    if context.history is None or context.is_static or result.recording is None or stored is None:
        return result
    if stored.model.case(bound.case.id) is None:
        return result
    return replace(result, link=_measure_link(bound, stored))


def _measure_link(bound: BoundCheck, stored: Baseline) -> BaselineLink:
    """The link of a case that is stored.

    The case is recorded in any case, so an error is the reason that there is no ratio.
    """
    gate = LinkGate(tolerances=_TOLERANCES, level=RUN_LEVEL, rounds=bound.check.gate.rounds)
    bound = replace(bound, check=replace(bound.check, gate=gate, budgets=()))
    # Both sides run here, so that they differ in the model alone.
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
    """Why the comparison has no ratio; None if it has one."""
    if compared.failure is not None:
        return compared.failure
    return compared.reasons[0] if compared.outcome is Verdict.NEW else None
