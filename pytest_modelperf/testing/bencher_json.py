"""A run in the Bencher Metric Format: the figures of each case, for Bencher to keep."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.comparing.figures import LATENCY
from pytest_modelperf.report.bencher import BencherMetric, dump_bencher
from pytest_modelperf.report.document import number
from pytest_modelperf.testing.history_ratio import ratio_to_baseline
from pytest_modelperf.testing.outcome_names import name_models_of_tests
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport

_PERCENTS = {50.0: "latency", 95.0: "latency-p95"}


def dump_bencher_run(report: RunReport) -> str:
    """The run as JSON text; a case that failed has no figures, and an upgrade none of the model."""
    named = name_models_of_tests(report.outcomes)
    return dump_bencher(
        {name: dict(_measures(outcome)) for name, outcome in named if not outcome.has_failed}
    )


def _measures(outcome: CaseOutcome) -> Iterator[tuple[str, BencherMetric]]:
    """`latency` in nanoseconds and `throughput` are measures that every project of Bencher has."""
    compared = outcome.comparison
    for name in ("p50", "p95"):
        ratio = ratio_to_baseline(compared, f"{LATENCY}{name}", is_static=outcome.latency is None)
        if ratio is not None:
            yield (
                f"latency-{name}-ratio",
                BencherMetric(value=ratio.ratio, lower_value=ratio.low, upper_value=ratio.high),
            )
    for percent, name in _PERCENTS.items():
        found = None if outcome.latency is None else outcome.latency.percentile(percent)
        if found is not None and found.value_ns is not None:
            yield (
                name,
                BencherMetric(
                    value=found.value_ns, lower_value=found.low_ns, upper_value=found.high_ns
                ),
            )
    for name, value in _values(outcome):
        known = number(value)
        if known is not None:
            yield name, BencherMetric(value=known)


def _values(outcome: CaseOutcome) -> Iterator[tuple[str, float | None]]:
    latency, static = outcome.latency, outcome.static
    if latency is not None:
        yield "throughput", latency.items_per_second
    yield "load-ms", outcome.load_ms
    yield "first-inference-ms", outcome.first_inference_ms
    yield "peak-rss-bytes", outcome.peak_rss_bytes
    if static is not None:
        yield "macs", static.macs
        yield "params", static.params
        yield "weight-bytes", static.weight_bytes
        yield "peak-activation-bytes", static.peak_activation_bytes
