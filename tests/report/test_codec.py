"""Declarations of records as JSON objects: how they are written, typed and read back."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct, field

import pytest_modelperf
from pytest_modelperf.files.documents import ContradictionError
from pytest_modelperf.report.codec import JsonDocument, JsonObject, OrNulls
from pytest_modelperf.report.document import dump_document, to_json
from tests.support.documents import assert_read_back

Ns = Annotated[int, Meta(ge=0, le=5_000_000)]


class Color(Enum):
    """A closed set."""

    RED = "red"


class Size(Struct, frozen=True):
    """A record within a record."""

    width: int
    height: int | None


class Part(Struct, frozen=True):
    """A part of it.

    This is for readers of the code.
    """

    name: str
    spent_ns: Ns = 0
    nbytes: int = field(name="bytes", default=0)


class Whole(Struct, frozen=True):
    """A record with values of every kind."""

    color: Color
    size: Size
    parts: tuple[Part, ...] = ()
    best: Part | None = None
    by_name: Mapping[str, Part] = {}
    span_ns: tuple[float, float] | None = None
    folder: Path | None = None

    @property
    def area(self) -> int | None:
        return None if self.size.height is None else self.size.width * self.size.height

    @property
    def longest(self) -> float:
        return math.inf


PART = JsonObject(Part, "name spent_ms=spent_ns bytes=nbytes")
WHOLE = JsonObject(
    Whole,
    "color width=size.width height=size.height area? parts best by_name names=parts.name"
    " first=parts.0.name all=by_name.* span_ms?=span_ns longest self=. note?= folder",
    parts=PART,
    best=PART.or_nulls,
    by_name=PART,
    all=PART,
    longest=float | None,
    self=JsonObject(Whole, "width=size.width", title="Inside"),
    note=str | None,
)
RECORD = Whole(
    color=Color.RED,
    size=Size(2, None),
    parts=(Part("a", 1_500_000, 8), Part("b")),
    by_name={"x": Part("c")},
    span_ns=(0.0, 2e6),
    folder=Path("a") / "b",
)


def test_an_object_has_the_values_at_its_paths() -> None:
    assert to_json(WHOLE.of(RECORD, note="n")) == {
        "color": "red",
        "width": 2,
        "height": None,
        "area": None,
        "parts": [
            {"name": "a", "spent_ms": 1.5, "bytes": 8},
            {"name": "b", "spent_ms": 0.0, "bytes": 0},
        ],
        "best": {"name": None, "spent_ms": None, "bytes": None},
        "by_name": {"x": {"name": "c", "spent_ms": 0.0, "bytes": 0}},
        "names": ["a", "b"],
        "first": "a",
        "all": [{"name": "c", "spent_ms": 0.0, "bytes": 0}],
        "span_ms": [0.0, 2.0],
        "longest": None,
        "self": {"width": 2},
        "note": "n",
        "folder": str(Path("a") / "b"),
    }


def test_the_type_accepts_all_that_is_written() -> None:
    assert_read_back(dump_document(WHOLE.of(RECORD)), WHOLE)


def test_a_record_is_read_back_with_what_the_document_lacks() -> None:
    found = msgspec.convert(to_json(WHOLE.of(RECORD)), WHOLE.json_type)
    assert WHOLE.read(found, by_name=RECORD.by_name, best=None, folder=RECORD.folder) == RECORD
    assert WHOLE.read_part(Size, "size", found, "") == RECORD.size


def test_a_value_that_must_be_there_is_named_with_its_place() -> None:
    nulls = msgspec.convert(to_json(PART.or_nulls.missing()), PART.or_nulls.json_type)
    with pytest.raises(ContradictionError) as error:
        PART.read(nulls, "cases[0].best")
    assert (error.value.place, error.value.problem) == (
        "cases[0].best.name",
        "expected a value, found null",
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "a", "spent_ms": 6.0, "bytes": 0}, r"<= 5\.0 - at `\$\.spent_ms`"),
        ({"name": "a", "spent_ms": 1.0}, "missing required field `bytes`"),
        ({"name": 1, "spent_ms": 1.0, "bytes": 0}, r"\$\.name"),
    ],
)
def test_the_type_refuses_what_the_record_does_not_allow(
    document: dict[str, object], message: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(document, PART.json_type)


def test_unknown_keys_are_refused_on_request() -> None:
    strict = JsonObject(Size, "*", forbids_unknown=True)
    document = {"width": 1, "height": 2, "depth": 3}
    assert msgspec.convert(document, JsonObject(Size, "*").json_type).width == 1
    with pytest.raises(msgspec.ValidationError, match="unknown field `depth`"):
        msgspec.convert(document, strict.json_type)


def test_a_star_is_every_field_that_has_no_key() -> None:
    starred = JsonObject(Part, "time_ms=spent_ns *?")
    assert [(key.name, key.is_computed) for key in starred.keys] == [
        ("time_ms", False),
        ("name", True),
        ("bytes", True),
    ]


def test_the_second_of_two_keys_counts_at_the_place_of_the_first() -> None:
    moved = JsonObject(Whole, f"{JsonObject(Size, 'width height').keys_at('size')} width=area")
    assert moved.of(RECORD) == {"width": None, "height": None}


def test_a_document_begins_with_its_schema() -> None:
    document = JsonDocument(Size, "*")
    assert document.dump(RECORD.size) == '{\n  "schema": 1,\n  "width": 2,\n  "height": null\n}\n'


def test_a_missing_record_has_the_values_that_are_given() -> None:
    assert OrNulls(PART, bytes=0).missing() == {"name": None, "spent_ms": None, "bytes": 0}


def test_a_description_is_the_first_paragraph_of_the_record() -> None:
    schema = msgspec.json.schema(PART.json_type)["$defs"]["Part"]
    assert schema["description"] == "A part of it."


@pytest.mark.parametrize("path", ["missing", "size.depth", "parts.missing", "color.value"])
def test_a_path_that_the_record_does_not_have_is_an_error(path: str) -> None:
    with pytest.raises(TypeError, match="does not have"):
        _ = JsonObject(Whole, f"key={path}").json_type


def test_a_key_that_is_given_needs_a_type() -> None:
    with pytest.raises(TypeError, match=r"Whole\.note needs a type"):
        _ = JsonObject(Whole, "note=").json_type


def declarations() -> tuple[Any, ...]:
    """Every declaration of the package, by its name."""
    root = Path(pytest_modelperf.__file__).parent
    found = []
    for file in sorted(root.rglob("*.py")):
        if "= JsonObject(" in (text := file.read_text("utf-8")) or "= JsonDocument(" in text:
            name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            values = vars(importlib.import_module(name)).items()
            found += [
                pytest.param(value, id=f"{file.parent.name}.{file.stem}.{each}")
                for each, value in values
                if isinstance(value, JsonObject)
            ]
    return tuple(found)


@pytest.mark.parametrize("declared", declarations())
def test_every_declared_path_leads_to_a_value_of_its_record(declared: JsonObject[Any]) -> None:
    assert msgspec.json.schema(declared.json_type)
    unknown = set(declared.inner) - {key.attribute for key in declared.keys}
    assert unknown == set()
