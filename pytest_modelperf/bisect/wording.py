"""The words for a version and for a step, in a report and in a chart."""

from __future__ import annotations

from pytest_modelperf.bisect.records import Answer, BisectStep, Version
from pytest_modelperf.comparing.figures import format_change, format_figure, interval_clause
from pytest_modelperf.comparing.limits import OUTPUTS


def short_name(version: Version) -> str:
    """`1.22.0`, or the start of a commit's id."""
    return version.label.rpartition(" ")[2]


def describe_change(step: BisectStep) -> str:
    """`+7.8 % (99.8 % interval +7.0 … +8.7 %)`, or `differ by 3.1 %`."""
    if step.is_same_model:
        return "the same model"
    if step.is_of_outputs:
        return describe_output_change(step)
    if step.is_of_work:
        return step.more_work or "no more work"
    metric = step.metric
    if metric is None or metric.ratio is None:
        return "unknown"
    return f"{format_change(metric)}{interval_clause(metric)}"


def describe_output_change(step: BisectStep) -> str:
    """How far the outputs of a step are apart."""
    share = step.output_share
    if share is None:
        is_open = step.answer is Answer.INCONCLUSIVE
        return "cannot be compared" if is_open else "differ in more than their values"
    return f"differ by {format_outputs(share)}" if share else "are equal"


def format_outputs(share: float) -> str:
    return format_figure(OUTPUTS, share)
