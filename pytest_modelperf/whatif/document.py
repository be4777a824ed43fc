"""A what-if as JSON, with the items per second of each level."""

from __future__ import annotations

from typing import Any

from pytest_modelperf.report.document import dump_document
from pytest_modelperf.whatif.records import WHATIF, WhatIf


def dump_whatif(whatif: WhatIf) -> str:
    """The what-if as JSON text."""
    return dump_document(whatif_document(whatif))


def whatif_document(whatif: WhatIf) -> dict[str, Any]:
    """The document of a what-if as plain values."""
    document = WHATIF.of(whatif)
    for case, found in zip(whatif.cases, document["cases"], strict=True):
        for level, entry in zip(case.levels, found["levels"], strict=True):
            entry["items_per_second"] = case.items_per_second(level)
    return document
