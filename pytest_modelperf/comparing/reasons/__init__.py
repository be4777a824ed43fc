"""Why one case is slower or larger than another, as text."""

from pytest_modelperf.comparing.reasons.collecting import (
    NO_GRAPHS,
    Graphs,
    find_causes,
    find_reasons,
    find_reasons_of_parts,
    reasons_of_graphs,
)
from pytest_modelperf.comparing.reasons.graphs import (
    causes_by_counts,
    lower_bounds,
    reasons_of_counts,
)
from pytest_modelperf.comparing.reasons.plans import MeasuredParts

__all__ = [
    "NO_GRAPHS",
    "Graphs",
    "MeasuredParts",
    "causes_by_counts",
    "find_causes",
    "find_reasons",
    "find_reasons_of_parts",
    "lower_bounds",
    "reasons_of_counts",
    "reasons_of_graphs",
]
