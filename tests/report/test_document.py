"""Records as the plain values of a document."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.report.document import copy_fields, dump_document, to_json


class Span(Struct, frozen=True):
    """A record with a derived value, which its document has too."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class SpanJson(Struct, frozen=True):
    """The part of a document for it."""

    low: float
    high: float
    width: float
    nbytes: int | None = field(name="bytes", default=None)


class Document(Struct, frozen=True):
    """Values of each kind."""

    day: dt.date
    spans: tuple[Span, ...]
    named: Mapping[str, tuple[float, float]]


DOCUMENT = Document(
    day=dt.date(2026, 1, 31),
    spans=(Span(-math.inf, 1.5),),
    named={"wide": (math.nan, math.inf)},
)


def test_infinity_and_nan_are_null_wherever_they_are() -> None:
    assert to_json(DOCUMENT) == {
        "day": "2026-01-31",
        "spans": [{"low": None, "high": 1.5}],
        "named": {"wide": [None, None]},
    }
    assert json.loads(dump_document(DOCUMENT)) == to_json(DOCUMENT)


def test_a_part_of_a_document_has_the_values_of_its_record() -> None:
    made = copy_fields(SpanJson, Span(1.0, 4.0), nbytes=8)
    assert to_json(made) == {"low": 1.0, "high": 4.0, "width": 3.0, "bytes": 8}
    assert copy_fields(Span, made) == Span(1.0, 4.0)
