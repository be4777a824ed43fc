"""The members of a workload that take longer, as reasons."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_modelperf.comparing.figures import format_change, format_interval, metric_title
from pytest_modelperf.comparing.records import MEMBER, Metric, Verdict


def slower_members(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """`seq=128: +10.2 % (+9.1 … +11.0 %)`, the slowest first."""
    found = [m for m in metrics if m.name.startswith(MEMBER) and m.verdict is Verdict.REGRESSED]
    ranked = sorted(found, key=lambda metric: -(metric.ratio or 0.0))
    return tuple(
        f"{metric_title(each.name)}: {format_change(each)} ({format_interval(each)})"
        for each in ranked
    )
