"""The Bencher Metric Format: the JSON that the adapter `json` of Bencher reads.

A document is an object of benchmarks, each of which is an object of measures. Bencher makes a slug
of each name, so the names here are slugs: https://bencher.dev/docs/reference/bencher-metric-format
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.report.document import dump_document
from pytest_modelperf.text.escaping import printable

# Bencher does not accept longer names of benchmarks.
_MOST_CHARACTERS = 1024


class BencherMetric(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure with the bounds of its interval, which are left out if it has none."""

    value: float
    lower_value: float | None = None
    upper_value: float | None = None


def dump_bencher(benchmarks: Mapping[str, Mapping[str, BencherMetric]]) -> str:
    """Return the document of all benchmarks that have measures, by the names of both."""
    return dump_document(
        {printable(name)[:_MOST_CHARACTERS]: each for name, each in benchmarks.items() if each}
    )
