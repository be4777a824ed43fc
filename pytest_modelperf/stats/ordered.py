"""What decisions on other percentiles of the same times imply for one of them.

A percentile is at least as large as each lower one. So what is shown of a lower percentile, that it
is over a limit, holds for the higher one, and what is shown of a higher percentile, that it is
within the limit, holds for the lower one. The same is true of bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pytest_modelperf.stats.decisions import BudgetAnswer, BudgetDecision


def imply(
    own: BudgetDecision, lower: Sequence[BudgetDecision], higher: Sequence[BudgetDecision]
) -> BudgetDecision:
    """The decision on a percentile, with what lower and higher ones of the same limit imply.

    It errs with at most the sum of the error levels of all decisions.
    """
    if own.answer is not BudgetAnswer.OPEN:
        return own
    is_over = any(each.answer is BudgetAnswer.OVER for each in lower)
    is_within = any(each.answer is BudgetAnswer.WITHIN for each in higher)
    if not (is_over or is_within):
        return own
    return replace(
        own,
        answer=BudgetAnswer.OVER if is_over else BudgetAnswer.WITHIN,
        low=max(_known(each.low for each in (own, *lower)), default=None),
        high=min(_known(each.high for each in (own, *higher)), default=None),
        samples_needed=None,
    )


def _known(bounds: Iterable[float | None]) -> list[float]:
    return [bound for bound in bounds if bound is not None]
