"""The properties of a test in JUnit's XML: names and values of its case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.figures import LATENCY
from pytest_modelperf.comparing.records import Metric
from pytest_modelperf.testing.outcomes import CaseOutcome
from pytest_modelperf.testing.run_lines import rank_outcome
from pytest_modelperf.text.escaping import printable

# The prefix of all names.
PREFIX = "modelperf."
VERDICT_PROPERTY = f"{PREFIX}verdict"


def junit_properties(outcome: CaseOutcome) -> tuple[tuple[str, str], ...]:
    """Pairs of name and value, without unknown values.

    Times are in milliseconds, a change is relative: 0.118 is 11.8 % slower. No character is in
    them that XML cannot hold.
    """
    return tuple((f"{PREFIX}{name}", printable(value)) for name, value in _facts(outcome))


def add_properties(properties: list[tuple[str, object]], outcomes: Sequence[CaseOutcome]) -> None:
    """Add the properties of the worst outcome of a test to those that junit's XML has."""
    worst = min(outcomes, key=rank_outcome)
    # If a test runs again, the properties of its first run are there already.
    kept = [pair for pair in properties if not pair[0].startswith(PREFIX)]
    properties[:] = [*kept, *junit_properties(worst)]


def _facts(outcome: CaseOutcome) -> Iterator[tuple[str, str]]:
    yield "verdict", outcome.word
    yield "case", outcome.case_id
    yield "model", outcome.model.name
    yield "batch_size", str(outcome.batch_size)
    yield "cores", str(outcome.cores)
    if outcome.engine:
        yield "engine", outcome.engine
    if outcome.machine is not None:
        yield "machine", outcome.machine.key
    if outcome.comparison.how is not None:
        yield "how", outcome.comparison.how.value
    yield from _figures(outcome)
    yield "seconds", f"{outcome.seconds:.3f}"


def _figures(outcome: CaseOutcome) -> Iterator[tuple[str, str]]:
    metrics = [m for m in outcome.comparison.metrics if m.name.startswith(LATENCY)]
    # Where a budget limits a time, too, that of its change is stored: the last one of a name.
    limits_first = sorted(metrics, key=lambda metric: metric.limit is None)
    times_ms = {m.name: m.after for m in limits_first if m.after is not None}
    for percentile in () if outcome.latency is None else outcome.latency.percentiles:
        if percentile.value_ns is not None:
            times_ms.setdefault(f"{LATENCY}{percentile.name}", percentile.value_ns / 1e6)
    for name, ms in times_ms.items():
        yield f"{name}_ms", _number(ms)
    for metric in metrics:
        if metric.limit is None:
            yield from _change(metric)
    if outcome.static is not None:
        yield "macs", str(outcome.static.macs)
        yield "params", str(outcome.static.params)
    for name, value in (
        ("load_ms", outcome.load_ms),
        ("first_inference_ms", outcome.first_inference_ms),
        ("peak_rss_bytes", outcome.peak_rss_bytes),
    ):
        if value is not None:
            yield name, _number(value)


def _change(metric: Metric) -> Iterator[tuple[str, str]]:
    if metric.ratio is not None:
        yield f"{metric.name}_change", f"{metric.ratio - 1:+.4f}"
    if metric.interval is not None:
        low, high = metric.interval
        yield f"{metric.name}_change_interval", f"{low - 1:+.4f} {high - 1:+.4f}"


def _number(value: float) -> str:
    """Six digits, without an exponent if possible."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
