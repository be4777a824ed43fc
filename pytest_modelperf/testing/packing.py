"""Outcomes as text in a test report, which pytest-xdist and other plugins pass on.

They are decoded by the types of the records, so the text cannot choose the class that is made.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.testing.outcomes import CaseOutcome


def pack(outcomes: Iterable[CaseOutcome]) -> str:
    return to_text(tuple(outcomes))


def unpack(text: str) -> tuple[CaseOutcome, ...]:
    """Return the outcomes that `pack` wrote."""
    return from_text(text, tuple[CaseOutcome, ...])
