"""A run in the formats of other tools: Bencher, pytest-benchmark, JUnit, GitHub Actions."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from posixpath import join, normpath
from statistics import median, stdev

import numpy as np

from pytest_modelperf.comparing.figures import LATENCY
from pytest_modelperf.comparing.findings import describe_doubt
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.comparing.verdict_lines import FAILED, failure_lines, word_of_reasons
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.report.document import number
from pytest_modelperf.report.exports import BencherMetric, dump_bencher
from pytest_modelperf.testing.history_lines import ratio_to_baseline
from pytest_modelperf.testing.outcome_names import name_models_of_tests, name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.wording import describe_outcome, rank_outcome, recording_with
from pytest_modelperf.text.escaping import printable

_PERCENTS = {50.0: "latency", 95.0: "latency-p95"}


def dump_bencher_run(report: RunReport) -> str:
    """Return the run as JSON text, without failed cases and upgrades of the engine."""
    named = name_models_of_tests(report.outcomes)
    return dump_bencher(
        {name: dict(_measures(outcome)) for name, outcome in named if not outcome.has_failed}
    )


def _measures(outcome: CaseOutcome) -> Iterator[tuple[str, BencherMetric]]:
    """Yield the measures of a case. Each Bencher project has `latency`, in ns, and `throughput`."""
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


# -- a run in the JSON of pytest-benchmark


_NS_PER_S = 1e9
# pytest-benchmark writes this without a repository.
_NO_COMMIT = {
    "id": "unversioned",
    "time": None,
    "author_time": None,
    "dirty": False,
    "project": None,
    "branch": "(unknown)",
}


def dump_benchmarks(report: RunReport, version: str) -> str:
    """Return the run as JSON text. `version` is the version of this package."""
    document = {
        "machine_info": _machine(report.machine),
        "commit_info": _NO_COMMIT,
        "benchmarks": [
            _benchmark(printable(name), outcome)
            for name, outcome in name_models_of_tests(report.outcomes)
            if any(outcome.times_ns)
        ],
        "datetime": None if report.started is None else report.started.isoformat(),
        "version": version,
    }
    return json.dumps(document, indent=4, allow_nan=False) + "\n"


def _machine(machine: MachineFacts | None) -> dict[str, object]:
    """Return facts that show if two runs are comparable, without the name of the host."""
    if machine is None:
        return {}
    return {
        "node": machine.key,
        "processor": machine.cpu,
        "machine": machine.architecture,
        "python_implementation": None,
        "python_version": machine.python,
        "release": machine.kernel,
        "system": machine.system,
        "cpu": {"brand_raw": machine.cpu, "count": machine.usable_cores},
    }


def _benchmark(fullname: str, outcome: CaseOutcome) -> dict[str, object]:
    return {
        "group": None,
        "name": _without_folders(fullname),
        "fullname": fullname,
        "params": {
            "model": printable(outcome.model.name),
            "batch_size": outcome.batch_size,
            "cores": outcome.cores,
        },
        "param": printable(outcome.comparison.id),
        "extra_info": {
            "verdict": outcome.word,
            "engine": outcome.engine or None,
            "macs": None if outcome.static is None else outcome.static.macs,
            "params": None if outcome.static is None else outcome.static.params,
            "peak_rss_bytes": outcome.peak_rss_bytes,
        },
        "options": {},
        "stats": _describe([time for made in outcome.times_ns for time in made]),
    }


def _without_folders(test: str) -> str:
    """Remove the folders, so that the name does not depend on the other tests of a run."""
    function, bracket, rest = test.partition("[")
    return f"{function.rpartition('/')[2]}{bracket}{rest}"


def _describe(times_ns: Sequence[int]) -> Mapping[str, float | int | str]:
    ordered = sorted(times_ns)
    count, total = len(ordered), sum(ordered)
    mean = total / count
    deviation = stdev(ordered) if count > 1 else 0.0
    # The median of each half. For an odd number, it is between the two ways to halve it: method 3
    # of https://en.wikipedia.org/wiki/Quartile#Computing_methods.
    low, high = map(float, np.quantile(ordered, (0.25, 0.75), method="hazen"))
    spread = high - low
    far = count - len(_between(mean - deviation, mean + deviation, ordered))
    within = _between(low - 1.5 * spread, high + 1.5 * spread, ordered)
    farther = count - len(within)
    return {
        "min": ordered[0] / _NS_PER_S,
        "max": ordered[-1] / _NS_PER_S,
        "mean": mean / _NS_PER_S,
        "stddev": deviation / _NS_PER_S,
        "rounds": count,
        "median": median(ordered) / _NS_PER_S,
        "iqr": spread / _NS_PER_S,
        "q1": low / _NS_PER_S,
        "q3": high / _NS_PER_S,
        "iqr_outliers": farther,
        "stddev_outliers": far,
        "outliers": f"{far};{farther}",
        "ld15iqr": within[0] / _NS_PER_S,
        "hd15iqr": within[-1] / _NS_PER_S,
        "ops": count * _NS_PER_S / total if total else 0,
        "total": total / _NS_PER_S,
        "iterations": 1,
    }


def _between(low: float, high: float, ordered: Sequence[int]) -> Sequence[int]:
    return ordered[bisect_left(ordered, low) : bisect_right(ordered, high)]


# -- the properties of a test in JUnit's XML


# The prefix of all names.
PREFIX = "modelperf."
VERDICT_PROPERTY = f"{PREFIX}verdict"


def junit_properties(outcome: CaseOutcome) -> tuple[tuple[str, str], ...]:
    """Return pairs of name and value, without unknown values.

    Times are in milliseconds. A change is relative: 0.118 is 11.8 % slower. Characters that XML
    cannot represent are escaped.
    """
    return tuple((f"{PREFIX}{name}", printable(value)) for name, value in _facts(outcome))


def add_properties(properties: list[tuple[str, object]], outcomes: Sequence[CaseOutcome]) -> None:
    """Add the properties of the worst outcome of a test to those of its JUnit entry."""
    worst = min(outcomes, key=rank_outcome)
    # If a test runs again, the properties of its first run are still there.
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
    # If a time has a budget and a change, keep that of the change: the last one of a name wins.
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
    return str(value) if isinstance(value, int) else f"{value:.6g}"


# -- annotations of a run for GitHub Actions


# GitHub shows this many of each kind per step, and silently drops the others.
MAX_OF_A_KIND = 10

_TOP = "."
_TITLE = "model performance"
_ERROR, _WARNING, _NOTICE = "error", "warning", "notice"
_KINDS = {
    Verdict.REGRESSED.value: _ERROR,
    Verdict.OVER_BUDGET.value: _ERROR,
    FAILED: _ERROR,
    Verdict.INCONCLUSIVE.value: _WARNING,
    Verdict.NEW.value: _NOTICE,
}
# GitHub shows the message next to a line of code, so it has only the first reasons.
_MAX_REASONS = 3


def github_annotations(report: RunReport, folder: str = _TOP) -> tuple[str, ...]:
    """Return a line for each error of the run and each case to look at, to be printed as is.

    The worst case is first. `folder` is the root of the run in the repository, because GitHub
    resolves paths from its top. If there are more of one kind than GitHub shows, the last line of
    that kind has the number of the others.
    """
    named = zip(report.outcomes, name_outcomes(report.outcomes), strict=True)
    worst_first = sorted(named, key=lambda pair: rank_outcome(pair[0]))
    lines = [_command(_ERROR, {"title": _TITLE}, printable(error)) for error in report.errors]
    for kind in (_ERROR, _WARNING, _NOTICE):
        found = [pair for pair in worst_first if _kind(pair[0], report) == kind]
        fits = len(found) <= MAX_OF_A_KIND
        shown = found if fits else found[: MAX_OF_A_KIND - 1]
        lines += [_annotate(kind, outcome, name, folder) for outcome, name in shown]
        more = len(found) - len(shown)
        if more:
            text = f"{more:,} more cases are like these: see the summary of the run"
            lines.append(_command(kind, {"title": _TITLE}, text))
    return tuple(lines)


def _kind(outcome: CaseOutcome, report: RunReport) -> str | None:
    """Return the kind of annotation, if any. In a strict run, each is an error."""
    kind = _KINDS.get(outcome.word)
    return _ERROR if kind is not None and report.is_strict else kind


def _annotate(kind: str, outcome: CaseOutcome, name: str, folder: str) -> str:
    lines: Sequence[str]
    if outcome.has_failed:
        lines = failure_lines(outcome.comparison)
    else:
        reasons = outcome.comparison.reasons[:_MAX_REASONS]
        doubt = describe_doubt(outcome.comparison, recording_with(outcome.accept))
        verdict = describe_outcome(outcome)
        word = word_of_reasons(outcome.comparison)
        why = (f"{word}: {printable(r)}" for r in reasons if printable(r) not in verdict)
        lines = [verdict, *([] if doubt is None else [doubt]), *why]
    if outcome.verdict is Verdict.REGRESSED:
        ways = (outcome.advice, outcome.accept)
        lines = [*lines, *(f"accept: {printable(way)}" for way in ways if way is not None)]
    file = outcome.source.path
    place = {"file": file if folder == _TOP else normpath(join(folder, file))}
    if outcome.source.line is not None:
        place["line"] = str(outcome.source.line)
    return _command(kind, {**place, "title": f"{name} {outcome.word}"}, "\n".join(lines))


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{kind} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    """Escape the message of a command, which is one line, like `escapeData` of GitHub's toolkit."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape a property, which ends at a comma or colon, like `escapeProperty` of the toolkit."""
    return _escape_data(printable(text)).replace(":", "%3A").replace(",", "%2C")
