"""The sentences about a shared model, on a terminal and in the README of its folder."""

from __future__ import annotations

from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.sharing.records import Likeness, Likening, Share
from pytest_modelperf.stats.records import Latency, Ratio
from pytest_modelperf.text.units import format_ms
from pytest_modelperf.text.words import count_of

_WITHIN = f"{100 * FIDELITY:g} %"


def describe_likeness(likening: Likening) -> str:
    """One sentence: whether the shared model stands for the original one."""
    ratio = describe_ratio(likening.ratio)
    found = likening.likeness
    if found is Likeness.SAME:
        return f"The shared model runs like the original one: it takes {ratio}."
    if found is Likeness.OTHER_PLAN:
        return (
            "The shared model does not run like the original one: the engine makes another plan of "
            f"it, for {likening.difference}. It takes {ratio}."
        )
    if found is Likeness.OTHER_TIME:
        return (
            "The shared model does not run like the original one: it takes "
            f"{ratio}, which is more than {_WITHIN} away."
        )
    return (
        f"It is not shown that the shared model takes as long as the original one within {_WITHIN}:"
        f" it takes {ratio}."
    )


def describe_plan(likening: Likening) -> str:
    """One sentence about the plans of the engine."""
    if likening.has_same_plan is None:
        return "The engine tells no plan, so only the times are compared."
    if likening.has_same_plan:
        return "The engine makes the same plan of both: the same kernels, connected alike."
    return f"The engine makes another plan of the shared model: {likening.difference}."


def describe_ratio(ratio: Ratio) -> str:
    """`1.003 times as long (0.995 to 1.011)`."""
    shown = f"{ratio.value:.3f} times as long"
    if ratio.low is None or ratio.high is None:
        return shown
    return f"{shown} ({ratio.low:.3f} to {ratio.high:.3f})"


def times_table(likening: Likening, title: str, heading: str) -> Table:
    """The median of either model with its interval."""
    rows = (("original", _median(likening.original)), ("shared", _median(likening.shared)))
    return Table(title, (Column("model", is_text=True), Column(heading)), rows)


def describe_size(share: Share) -> str:
    """`batch size 1, 2 cores, seq 64`."""
    case = share.case
    sizes = [f"{name} {size}" for name, size in case.sizes.items()]
    return ", ".join([f"batch size {case.batch_size}", count_of(case.cores, "core"), *sizes])


def describe_method(likening: Likening) -> str:
    return (
        f"Both ran in turn in {count_of(likening.rounds, 'round')}; intervals hold with "
        f"{100 * FIDELITY_CONFIDENCE:g} % confidence."
    )


def _median(latency: Latency) -> str:
    median = latency.percentile(50.0)
    shown = f"{format_ms(latency.median_ns)} ms"
    if median.low_ns is None or median.high_ns is None:
        return shown
    return f"{shown} ({format_ms(median.low_ns)} to {format_ms(median.high_ns)} ms)"
