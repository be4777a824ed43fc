"""The budget of an improvement: what is much better than its baseline fails, to be recorded."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.comparing.budgets import Budget, FigureSource
from pytest_modelperf.comparing.figures import is_sampled, metric_title
from pytest_modelperf.comparing.records import IMPROVEMENT, CaseComparison, How, Metric, Verdict

# The figures of a baseline that an improvement is looked for in.
_FIGURES = frozenset({"latency_p50", "macs", "params", "size_bytes"})
_ORDER = (Verdict.OVER_BUDGET, Verdict.INCONCLUSIVE, Verdict.PASSED)


def improvement_metric(budgets: Sequence[Budget], compared: CaseComparison) -> Metric | None:
    """The figure that became better by more than a budget allows, or the one that is nearest to it.

    None without such a budget, or if nothing was compared.
    """
    budget = next((b for b in budgets if b.figure.source is FigureSource.BASELINE), None)
    if budget is None:
        return None
    found = [
        _judge(each, budget.limit, is_exact=compared.how is How.PLAN or not is_sampled(each.name))
        for each in compared.metrics
        if each.name in _FIGURES and each.limit is None and each.ratio is not None
    ]
    return min(found, key=lambda m: (_ORDER.index(m.verdict), m.after), default=None)


def _judge(metric: Metric, least: float, *, is_exact: bool) -> Metric:
    """The improvement of one figure: too large only if its whole interval is."""
    ratio = metric.ratio
    low, high = (ratio, ratio) if is_exact else metric.interval or (None, None)
    verdict = Verdict.INCONCLUSIVE
    # The interval of a figure that is not shown to be better has the error level of passes.
    is_sure = is_exact or metric.verdict is Verdict.IMPROVED
    if is_sure and high is not None and high < least:
        verdict = Verdict.OVER_BUDGET
    elif low is not None and low >= least:
        verdict = Verdict.PASSED
    return Metric(
        IMPROVEMENT,
        None,
        ratio,
        verdict,
        limit=least,
        after_interval=None if is_exact else metric.interval,
        confidence=metric.confidence,
        detail=metric_title(metric.name),
        # The duet ends when it is not worse, so it does not wait for this.
        awaited=False,
    )
