"""Compare the size of a model on disk: its file and those of its external data.

The size is exact. Names, notes and versions that exporters write differ by some KB and say nothing
about a model, so it may always grow by a little, unless a tolerance names it.
"""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.comparing.limits import LEAST_SIZE_BYTES, SIZE, Tolerances, allowed_growth
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict

_NAME = "size_bytes"
_LAST_COUNT = "params"


def with_size(
    case: CaseComparison, before: int | None, after: int | None, tolerances: Tolerances
) -> CaseComparison:
    """Return the comparison with the sizes of both models next to its counts.

    The case stays as it is if a size is None, which means unknown, with a note if a tolerance names
    the size. It also stays as it is if it has no metrics, because then there is no side before.
    """
    if not case.metrics:
        return case
    if before is None or after is None:
        if not tolerances.names(SIZE):
            return case
        return replace(case, notes=(*case.notes, _why_unknown(before)))
    names = [metric.name for metric in case.metrics]
    place = names.index(_LAST_COUNT) + 1 if _LAST_COUNT in names else len(names)
    metric = judge_size(before, after, tolerances)
    return replace(case, metrics=(*case.metrics[:place], metric, *case.metrics[place:]))


def judge_size(before: int, after: int, tolerances: Tolerances) -> Metric:
    """Judge both sizes: worse beyond the tolerance, and better if the reverse would be worse."""
    is_named = tolerances.names(SIZE)
    share = tolerances.of_figure(SIZE)
    least = 0 if is_named else LEAST_SIZE_BYTES
    verdict = Verdict.PASSED
    if after - before > max(allowed_growth(before, share), least):
        verdict = Verdict.REGRESSED
    elif before - after > max(allowed_growth(after, share), least):
        verdict = Verdict.IMPROVED
    allowed = max(share, least / before) if before else share
    return Metric(_NAME, before, after, verdict, allowed=allowed, awaited=is_named)


def _why_unknown(before: int | None) -> str:
    if before is None:
        return (
            "the file size is not judged: the size before is not known. A baseline lacks it if "
            "external data was missing when it was recorded, or if other cases were recorded with "
            "another model since: record it again"
        )
    return "the file size is not judged: a file of external data is missing"
