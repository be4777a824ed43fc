"""The schema of the Bencher Metric Format, and a check of it.

From https://bencher.dev/bmf.json, which has `patternProperties` in place of `.+` here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_MOST_BENCHMARK, _MOST_MEASURE = 1024, 64
# Bencher's form of the name of a measure, so that one is found again by the name that we give.
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NUMBERS = frozenset({"value", "lower_value", "upper_value"})


def assert_is_bencher(document: object) -> None:
    assert isinstance(document, Mapping)
    for name, measures in document.items():
        assert 0 < len(name) <= _MOST_BENCHMARK
        assert isinstance(measures, Mapping)
        for measure, metric in measures.items():
            assert len(measure) <= _MOST_MEASURE
            assert _SLUG.fullmatch(measure)
            assert isinstance(metric, Mapping)
            assert "value" in metric
            assert set(metric) <= _NUMBERS
            assert all(isinstance(x, int | float) and math.isfinite(x) for x in metric.values())
