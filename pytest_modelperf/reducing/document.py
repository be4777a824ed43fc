"""A reduction as JSON, with the place of its files."""

from __future__ import annotations

from pytest_modelperf.reducing.records import REDUCTION, Reduction
from pytest_modelperf.report.document import dump_document


def dump_reduction(found: Reduction, target: str) -> str:
    """The reduction as JSON text; `target` is where its files were put."""
    document = REDUCTION.of(found)
    search, written = found.search, document["written"]
    kept = () if search is None else search.kept
    for index, unit in enumerate(document["units"]):
        unit["kept"] = index in kept
    if written is not None:
        is_smallest = search is not None and search.is_smallest
        written |= {"target": target, "kernels": found.kernels, "smallest": is_smallest}
    return dump_document(document)
