"""Format the figures of a comparison for people: titles, values, changes and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pytest_modelperf.comparing.budgets import FIGURES, MISSES, SLOWEST, FigureSource
from pytest_modelperf.comparing.changes import TimeChange
from pytest_modelperf.comparing.limits import LEAST_MEMORY_BYTES, LEAST_SIZE_BYTES, OUTPUTS
from pytest_modelperf.comparing.records import IMPROVEMENT, MEMBER, TOTAL, Metric
from pytest_modelperf.profiler.measurements import provider_name
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    LEAST_PERCENT,
    UNKNOWN,
    change_decimals,
    format_bytes,
    format_confidence,
    format_count,
    format_ms,
    format_rate,
    signed_percent,
)

GROWTH = "growth_bytes_per_inference"
CACHE = "cache_bytes_per_token"
_TITLES = {
    TOTAL: "total",
    "macs": "MACs",
    "flops": "FLOPs",
    "params": "params",
    "elementwise_ops": "elementwise",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "peak_activation_bytes": "peak activations",
    "peak_rss_bytes": "peak memory",
    "memory_bytes": "memory",
    GROWTH: "memory growth",
    "load_ms": "load",
    "first_inference_ms": "first inference",
    "size_bytes": "file size",
    "items_per_second": "items/s",
    "ttft_ms": "first token",
    "token_ms": "token",
    "tokens_per_second": "tokens/s",
    CACHE: "cache/token",
    "drift": "drift",
    SLOWEST: "slowest inference",
    MISSES: "missed deadlines",
    IMPROVEMENT: "improvement",
    "real_time_factor": "real-time factor",
    "kernels": "kernels",
    "install_bytes": "installed size",
    "speedup": "speedup",
    "start_ms": "start",
    "first_item_ms": "first item",
    "item_ms": "item",
    "sessions_made": "sessions made",
    "first_item_inferences": "inferences to first item",
}
LATENCY = "latency_"
# Prefix of the metrics that count the layers on each provider.
LAYERS_ON = "layers_on_"
_NS_PER_MS = 1e6
_BYTES = "_bytes"
_BYTES_PER_MB = 1e6
_RATES = frozenset({"items_per_second", "tokens_per_second"})
# Figures of processes, which vary a little from one process to the next.
_OF_PROCESSES = frozenset({"memory_bytes"})
# Figures without a unit that are known from samples.
_RATIOS = frozenset({MISSES, "real_time_factor", "speedup"})
# These figures may grow by this many bytes, even if that is more than the share.
_LEAST_BYTES = {"memory_bytes": LEAST_MEMORY_BYTES, "size_bytes": LEAST_SIZE_BYTES}
_BYTES_PER_KB = 1000
# These figures are ratios that are shown as changes.
_CHANGES = frozenset(
    figure.metric
    for figure in FIGURES.values()
    if figure.source in {FigureSource.HISTORY, FigureSource.BASELINE}
)
# For these figures more is better, so that a limit is a minimum.
_LEAST = frozenset(figure.metric for figure in FIGURES.values() if figure.is_least)


def metric_title(name: str) -> str:
    """Return the title of a metric, such as `MACs` or `p50 latency`."""
    if name.startswith(MEMBER):
        return printable(name.removeprefix(MEMBER))
    if name.startswith(LATENCY) and name not in _TITLES:
        return printable(f"{name.removeprefix(LATENCY)} latency")
    if name.startswith(LAYERS_ON):
        return f"layers on {provider_name(name.removeprefix(LAYERS_ON))}"
    return printable(_TITLES.get(name, name))


def is_time(name: str) -> bool:
    return name.startswith(LATENCY) or name.endswith("_ms")


def is_sampled(name: str) -> bool:
    """Whether the metric comes from many samples, so that more time makes it more precise."""
    return is_time(name) or name in _RATES or name in {*_OF_PROCESSES, *_RATIOS, GROWTH}


def format_figure(name: str, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if is_time(name):
        return f"{format_ms(value * _NS_PER_MS)} ms"
    if name in _SPECIAL:
        return _SPECIAL[name](value)
    if name.endswith(_BYTES):
        return format_bytes(round(value))
    return format_count(int(value)) if float(value).is_integer() else format_rate(value)


_SPECIAL: Mapping[str, Callable[[float], str]] = {
    GROWTH: lambda value: f"{value / _BYTES_PER_KB:.2f} KB".replace("-0.00", "0.00"),
    CACHE: lambda value: format_bytes(round(value)),
    OUTPUTS: lambda value: f"{100 * value:.3g} %",
    MISSES: lambda value: f"{100 * value:.3g} %",
    "real_time_factor": lambda value: f"{value:.3g}",
    "speedup": lambda value: f"{value:.3g}x",
    **dict.fromkeys(_CHANGES, lambda value: signed_percent(value - 1.0)),
}


def format_change(metric: Metric) -> str:
    """Return `+11.8 %`, or `+1` for a small change of an exact figure."""
    if metric.ratio is None:
        return ""
    before, after = metric.before, metric.after
    is_small = 0 < abs(metric.ratio - 1) < LEAST_PERCENT
    if not is_small or is_sampled(metric.name) or before is None or after is None:
        return signed_percent(metric.ratio - 1)
    sign = "+" if after > before else "-"
    return f"{sign}{format_figure(metric.name, abs(after - before))}"


def format_value(metric: Metric, value: float | None) -> str:
    """Return a value in the unit of the metric's limit, in full if both differ but look alike."""
    found, limit = metric.after, metric.limit
    if value is None or found in {None, limit} or limit is None or is_sampled(metric.name):
        return _format_limited(metric, value)
    looks_alike = _format_limited(metric, found) == _format_limited(metric, limit)
    if not looks_alike or metric.name in _CHANGES:
        return _format_limited(metric, value)
    is_bytes = metric.name.endswith(_BYTES) or metric.name == CACHE
    return f"{value:,.0f}{' B' if is_bytes else ''}"


def format_after(metric: Metric) -> str:
    """Return the value now, or `>= 200.1 ms` if only a bound of it is known."""
    if metric.after is None and metric.least is not None:
        return f">= {format_value(metric, metric.least)}"
    return format_value(metric, metric.after)


def _format_limited(metric: Metric, value: float | None) -> str:
    if metric.limit is None or value is None or not metric.name.endswith(_BYTES):
        return format_figure(metric.name, value)
    megabytes = value / _BYTES_PER_MB
    return f"{megabytes:,.0f} MB" if megabytes >= 1000 else f"{format_rate(megabytes)} MB"


def format_interval(metric: Metric) -> str:
    """Return `+10.2 … +13.1 %`, or the interval of the value itself for a metric with a limit."""
    if metric.name in _CHANGES and metric.after_interval is not None:
        return _change_range(metric.after_interval)
    if metric.limit is not None and metric.after_interval is not None:
        return _range(*(format_value(metric, bound) for bound in metric.after_interval))
    if metric.interval is None:
        return ""
    return _change_range(metric.interval)


def interval_clause(metric: Metric, confidence: float | None = None) -> str:
    """Return ` (99.8 % interval +7.0 … +8.7 %)`, by default at the given confidence, or ""."""
    interval, level = format_interval(metric), metric.confidence or confidence
    if not interval:
        return ""
    return f" ({'' if level is None else f'{format_confidence(level)} '}interval {interval})"


def _change_range(ratios: tuple[float, float]) -> str:
    low_share, high_share = (100 * (bound - 1) for bound in ratios)
    return f"{low_share:+.1f} … {high_share:+.1f} %"


def _range(low: str, high: str) -> str:
    """Return both ends, with their unit once if it is the same."""
    number, _, unit = low.rpartition(" ")
    return f"{number if number and high.endswith(f' {unit}') else low} … {high}"


def format_allowed(metric: Metric) -> str:
    """Return `+3 %`, or the limit: `<= 12.00 ms`."""
    if metric.limit is not None:
        sign = ">=" if metric.name in _LEAST else "<="
        return f"{sign} {format_value(metric, metric.limit)}"
    if metric.allowed is None:
        return ""
    least = _LEAST_BYTES.get(metric.name)
    if least and metric.before and math.isclose(metric.allowed * metric.before, least):
        return f"+{least >> 20} MiB"
    return f"{100 * metric.allowed:+.4g} %" if metric.allowed else "0 %"


def describe_allowed(metric: Metric) -> str:
    """Return `allowed +3 %`, `limit 12.00 ms` or `at least 100`, or "" without both."""
    if metric.limit is not None:
        word = "at least" if metric.name in _LEAST else "limit"
        return f"{word} {format_value(metric, metric.limit)}"
    return "" if metric.allowed is None else f"allowed {format_allowed(metric)}"


def describe_sides(metric: Metric) -> str:
    """Return `26.10 ms before, 29.18 ms now`. Empty for a figure without a side before."""
    if metric.limit is not None or metric.before is None or metric.name == OUTPUTS:
        return ""
    before, after = (format_figure(metric.name, value) for value in (metric.before, metric.after))
    return f"{before} before, {after} now"


def describe_outputs(metric: Metric) -> str:
    """Return `outputs differ by 3.1 % of their largest value, allowed 0.1 %`."""
    differ = "in more than their values"
    if metric.after == math.inf:
        differ = "where all of them were 0"
    elif metric.after is not None:
        differ = f"by {format_figure(OUTPUTS, metric.after)} of their largest value"
    return f"outputs differ {differ}, allowed {format_figure(OUTPUTS, metric.allowed)}"


def describe_change(time: TimeChange) -> str:
    """Return `+0.024 ms (+0.010 … +0.029 ms)`, with the same decimals for all three."""
    known = [ns for ns in (time.ns, time.low_ns, time.high_ns) if ns is not None]
    decimals = change_decimals(max(known, key=abs))
    change, *bounds = (format_signed_ms(ns, decimals) for ns in known)
    return f"{change} ms ({' … '.join(bounds)} ms)" if len(known) == 3 else f"{change} ms"


def format_signed_ms(ns: float, decimals: int = 3) -> str:
    """Return `+0.024`, or `0.000` without a sign."""
    text = f"{ns / 1e6:+.{decimals}f}"
    return text if float(text) else text[1:]
