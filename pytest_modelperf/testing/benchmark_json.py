"""A run in the JSON of pytest-benchmark, for the tools that read it.

Every figure means what it means there: pytest_benchmark/stats.py, version 5. Times are in seconds,
and a round is one inference. Cases that were not timed are left out.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import median, stdev

import numpy as np

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.testing.outcome_names import name_models_of_tests
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.text.escaping import printable

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
    """The run as JSON text; `version` is the version of this package."""
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
    """Facts that tell whether two runs can be compared. The name of the host is not among them."""
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
    """The benchmark of a case, which the readers of two runs match by its `fullname`."""
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
    """The name without folders, which does not depend on the other tests of a run."""
    function, bracket, rest = test.partition("[")
    return f"{function.rpartition('/')[2]}{bracket}{rest}"


def _describe(times_ns: Sequence[int]) -> Mapping[str, float | int | str]:
    ordered = sorted(times_ns)
    count, total = len(ordered), sum(ordered)
    mean = total / count
    deviation = stdev(ordered) if count > 1 else 0.0
    # The median of each half; of an odd number, between the two ways to halve it. It is method 3 of
    # https://en.wikipedia.org/wiki/Quartile#Computing_methods.
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
