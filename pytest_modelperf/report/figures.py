"""The figures of a comparison as people read them: titles, values, changes and intervals."""

from __future__ import annotations

import math

from pytest_modelperf.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    printable,
)
from pytest_modelperf.verdicts import Metric

_TITLES = {
    "macs": "MACs",
    "params": "params",
    "elementwise_ops": "elementwise ops",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "peak_activation_bytes": "peak activations",
    "peak_rss_bytes": "peak memory",
    "load_ms": "load",
    "first_inference_ms": "first inference",
}
LATENCY = "latency_"
_NS_PER_MS = 1e6


def metric_title(name: str) -> str:
    """`MACs`, `p50 latency`."""
    if name.startswith(LATENCY):
        return printable(f"{name.removeprefix(LATENCY)} latency")
    return printable(_TITLES.get(name, name))


def is_time(name: str) -> bool:
    return name.startswith(LATENCY) or name.endswith("_ms")


def format_figure(name: str, value: float | None) -> str:
    """The value of a metric, with its unit."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if is_time(name):
        return f"{format_ms(value * _NS_PER_MS)} ms"
    if name.endswith("_bytes"):
        return format_bytes(round(value))
    return format_count(int(value)) if float(value).is_integer() else format_rate(value)


def format_percent(change: float) -> str:
    """A change with its sign; one too small to show as more than 0.0 % says so."""
    if change and abs(change) < 0.0005:
        return "<0.1 %"
    return f"{100 * change:+.1f} %" if change else "0 %"


def format_change(metric: Metric) -> str:
    return "" if metric.ratio is None else format_percent(metric.ratio - 1)


def format_interval(metric: Metric) -> str:
    """`+10.2 … +13.1 %`, of the change."""
    if metric.interval is None:
        return ""
    low, high = (100 * (bound - 1) for bound in metric.interval)
    return f"{low:+.1f} … {high:+.1f} %"


def format_allowed(metric: Metric) -> str:
    """`+3 %`, or the limit that it must keep to."""
    if metric.limit is not None:
        return f"<= {format_figure(metric.name, metric.limit)}"
    if metric.allowed is None:
        return ""
    return f"{100 * metric.allowed:+.4g} %" if metric.allowed else "0 %"
