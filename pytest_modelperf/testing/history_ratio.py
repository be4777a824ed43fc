"""The ratio of a model to its baseline, as a history stores it."""

from __future__ import annotations

from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.history.records import MOST_FACTOR, StoredRatio

# An unchanged model is as fast as its baseline, and so is one whose kernels are the same: both are
# known without an interval.
_SAME = StoredRatio(ratio=1.0, low=1.0, high=1.0, confidence=0.99)


def ratio_to_baseline(
    compared: CaseComparison, name: str, *, is_static: bool
) -> StoredRatio | None:
    """The measured ratio; None if both sides did not run in turn, or its error is unknown.

    Stored times are of another day, so ratios to them are not chained.
    """
    if compared.how is How.PLAN:
        return _SAME
    metric = compared.metric(name)
    if metric is None:
        is_same = compared.outcome is Verdict.UNCHANGED and not is_static
        return _SAME if is_same else None
    return _measured_ratio(metric) if compared.is_duet else None


def _measured_ratio(metric: Metric) -> StoredRatio | None:
    ratio, interval, confidence = metric.ratio, metric.interval, metric.confidence
    if ratio is None or interval is None or confidence is None:
        return None
    # An infinite bound says nothing.
    if not all(1 / MOST_FACTOR < value < MOST_FACTOR for value in (ratio, *interval)):
        return None
    return StoredRatio(ratio=ratio, low=interval[0], high=interval[1], confidence=confidence)
