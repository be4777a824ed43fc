"""The budget of a speedup: a model in turn with another one, or with a Python function."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.by_duet import Details, compare_models
from pytest_modelperf.comparing.gates import Gate, median_gate
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.errors import MeasureError, UsageError
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.programs.callables import Compared, ComparedPair, compare_callables
from pytest_modelperf.testing.case_check import BoundCheck
from pytest_modelperf.text.escaping import printable


def judge_speedup(bound: BoundCheck) -> Metric | None:
    """How many times as fast as another model or function it is, if a budget limits it.

    Both run in turn until the limit is decided. The model is the first side if it has to be faster:
    the other side is then allowed to take longer, because a tolerance is never negative.
    """
    budget = next(
        (b for b in bound.check.budgets if b.figure.source is FigureSource.OTHER_MODEL), None
    )
    if budget is None or bound.context.is_static:
        return None
    other, least = str(budget.companion), budget.limit
    is_exchanged = least > 1.0
    policy = bound.check.setup.policy
    gate = median_gate(
        max(least, 1.0 / least) - 1.0, bound.check.gate.limit_level, policy.max_seconds
    )
    case = _compare(bound, budget, gate, is_exchanged=is_exchanged)
    if case.failure is not None:
        raise MeasureError(f"the speedup over {printable(other)} is not known: {case.failure}")
    return speedup_metric(budget, case.metric("latency_p50"), is_exchanged=is_exchanged)


def _compare(
    bound: BoundCheck, budget: Budget, gate: Gate, *, is_exchanged: bool
) -> CaseComparison:
    check, watch, other = bound.check, bound.place.watch, str(budget.companion)
    if budget.names_function:
        feeds = prepare(bound.model).feeds
        both: list[Compared] = [_function(other), check.graph]
        before, after = reversed(both) if is_exchanged else both
        pair = ComparedPair(
            before=before,
            after=after,
            inputs=tuple(feed.array for feed in feeds.values()),
            setup=check.setup,
            cores=bound.case.cores,
        )
        return compare_callables(pair, gate, watch)
    sides = Side(Path(other), check.setup), Side(check.graph, check.setup)
    old, new = reversed(sides) if is_exchanged else sides
    extensions = bound.context.extensions
    return compare_models(old, new, check.request, gate, extensions, watch, Details.NEVER).cases[0]


def _function(name: str) -> Any:  # noqa: ANN401  # whatever has that name
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"speedup: there is no function {printable(name)}: {error}. Give the path of a model, "
            "or a function as in over='my_package.models:run'."
        ) from error
    return found


def speedup_metric(budget: Budget, p50: Metric | None, *, is_exchanged: bool) -> Metric:
    """The metric of a speedup by the ratio of a duet, whose first side is it if `is_exchanged`."""
    least, other = budget.limit, str(budget.companion)
    metric = Metric(
        budget.figure.metric,
        None,
        1.0,
        Verdict.PASSED if least <= 1.0 else Verdict.OVER_BUDGET,
        limit=least,
        detail=f"over {other if budget.names_function else Path(other).name}",
    )
    if p50 is None:
        # Both files are the same model.
        return metric
    value, interval = p50.ratio, p50.interval
    if not is_exchanged:
        value = None if value is None else 1.0 / value
        interval = None if interval is None else (1.0 / interval[1], 1.0 / interval[0])
    is_faster = (p50.verdict is Verdict.REGRESSED) is is_exchanged
    verdict = Verdict.PASSED if is_faster else Verdict.OVER_BUDGET
    return replace(
        metric,
        after=value,
        verdict=Verdict.INCONCLUSIVE if p50.is_open else verdict,
        after_interval=interval,
        confidence=p50.confidence,
        rounds_needed=p50.rounds_needed,
        samples_needed=p50.samples_needed,
    )
