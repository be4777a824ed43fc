"""Rooflines as parts of the document of a profile, and how they are read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_modelperf.files.documents import ContradictionError, shortened
from pytest_modelperf.report.document import Json
from pytest_modelperf.roofline.records import LAYER_ROOF, ROOFLINE, Roofline


def rooflines_to_json(rooflines: Mapping[str, Roofline]) -> dict[str, Json]:
    """Rooflines by the ids of their cases, for the document of a profile."""
    return {case_id: ROOFLINE.of(roofline) for case_id, roofline in rooflines.items()}


def read_roofline(found: Any, names: Mapping[str, str]) -> Roofline:  # noqa: ANN401  # of `ROOFLINE`
    """The roofline of a case whose layers have these names, by their ids."""
    for index, roof in enumerate(found.layers):
        if roof.id not in names:
            problem = f'there is no layer "{shortened(roof.id)}"'
            raise ContradictionError(f"layers[{index}].id", problem)
    return ROOFLINE.read(
        found,
        layers=tuple(LAYER_ROOF.read(roof, name=names[roof.id]) for roof in found.layers),
        unplaced={each.reason: each.count for each in found.unplaced},
    )
