"""The published schemas are those of the types, and the pages describe every key in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import typed_words
from commands_page import all_commands, shared_options
from json_page import BLOCKS
from meanings import meanings, record_name
from write_schemas import (
    DOCUMENTS,
    HERE,
    TABLE_SCHEMA,
    schema_path,
    schema_text,
    table_schema_text,
)
from write_schemas import (
    PAGES as WRITTEN_PAGES,
)

from tests.support.checkout import ROOT

PAGES = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in (
        "json.md",
        "baseline-files.md",
        "profiles.md",
        "history.md",
    )
)

COMMANDS = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")

# The sections that describe a document: its own, then those of the parts that it shares.
SECTIONS = {
    "baseline-machine": ("## `<machine>.json`", "## A profile"),
    "baseline-model": ("## `model.json`",),
    "baseline-program": ("## `program.json`",),
    "baselines-diff": ("## Lists of baselines",),
    "baselines-list": ("## Lists of baselines",),
    "bisect": ("## A bisect", "## A comparison", "## A profile"),
    "compare": ("## A comparison", "## A profile"),
    "doctor": ("## A checkup", "## A profile"),
    "env": ("## Environments",),
    "history": ("## A history",),
    "history-line": ("## A line",),
    "kept-profile": ("## Keeping one", "## A profile"),
    "profile": ("## A profile",),
    "profiles-compare": ("## Lists of profiles", "## A profile"),
    "profiles-compare-flops": ("## Lists of profiles", "## A profile"),
    "profiles-list": ("## Lists of profiles", "## A profile"),
    "reduce": ("## A reduction",),
    "roofline": ("### A roofline",),
    "run": ("## A run", "## A comparison", "## A profile"),
    "share": ("## A shared model", "## A checkup", "## A profile"),
    "sweep": ("## A sweep", "## A comparison", "## A profile"),
    "trace": ("## A trace", "## A profile"),
    "tune": ("## A tuning", "## A comparison", "## A profile"),
    "whatif": ("## A what-if", "## A comparison", "## A profile"),
}

# The documents whose tables are not made of their schemas.
BY_HAND = [name for name in DOCUMENTS if not any(name in each for each in BLOCKS.values())]


def read_schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(schema_path(name).read_text(encoding="utf-8"))
    return schema


def keys_of(name: str) -> set[str]:
    parts = read_schema(name)["$defs"].values()
    return {key for part in parts for key in part.get("properties", {})}


def section(heading: str) -> str:
    _, found, below = PAGES.partition(f"\n{heading}\n")
    assert found, f"no page has {heading!r}"
    return re.split(r"^## ", below, maxsplit=1, flags=re.MULTILINE)[0]


def without_order(schema: object) -> object:
    """A schema without the order of alternatives, which is not the same in all of msgspec."""
    if isinstance(schema, list):
        return [without_order(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {key: without_order(value) for key, value in schema.items()}
    if "anyOf" in found:
        found["anyOf"] = sorted(found["anyOf"], key=str)
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_published_schema_is_that_of_its_type(name: str) -> None:
    expected = json.loads(schema_text(DOCUMENTS[name]))
    assert without_order(read_schema(name)) == without_order(expected), "run `make schemas`"


def test_every_published_schema_has_a_type() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == {*DOCUMENTS, TABLE_SCHEMA.stem}


def test_files_made_from_the_definitions_of_settings_are_up_to_date() -> None:
    assert TABLE_SCHEMA.read_text("utf-8") == table_schema_text(), "run `make schemas`"
    assert typed_words.MODULE.read_text("utf-8") == typed_words.module_text(), "run `make schemas`"
    assert f"](schemas/{TABLE_SCHEMA.name})" in CONFIGURATION


@pytest.mark.parametrize(
    ("page", "written"), WRITTEN_PAGES.items(), ids=[page.name for page in WRITTEN_PAGES]
)
def test_a_page_that_is_made_of_definitions_is_up_to_date(
    page: Path, written: Callable[[str], str]
) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == written(text), "run `make schemas`"


def test_the_page_of_commands_has_every_option_of_each_once() -> None:
    text, _, shared = COMMANDS.partition("\n## Shared options\n")
    lines = [row.strip("|") for row in shared.splitlines() if row.startswith("|`")]
    rows = [re.split(r"(?<!\\)\|", row) for row in lines]
    for name, command in all_commands().items():
        section, _, _ = text.partition(f"\n## modelperf {name}\n")[2].partition("\n## ")
        own = re.findall(r"^- `(.+?)`: ", section, re.MULTILINE)
        taken = [row[0].strip("`") for row in rows if f"`{name}`" in row[-1]]
        listed = [flag for each in (*own, *taken) for flag in re.findall(r"(?<!\S)-[\w-]+", each)]
        options = [each for each in command.params if isinstance(each, click.Option)]
        flags = [flag for each in options for flag in (*each.opts, *each.secondary_opts)]
        assert sorted(listed) == sorted(flags), name
        assert own == sorted(own)


def test_an_option_is_shared_by_two_commands_or_more_with_the_same_words() -> None:
    rows = shared_options(all_commands())
    assert all(len(names) > 1 for names in rows.values())
    sections = COMMANDS.partition("\n## Shared options\n")[0]
    assert not [row for row in rows if f"- {row[0]}: {row[1]}\n" in sections]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_page_links_each_schema(name: str) -> None:
    assert f"](schemas/{name}.json)" in PAGES


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_page_names_every_key_of_a_document(name: str) -> None:
    text = section("## All documents") + "".join(map(section, SECTIONS[name]))
    assert {key for key in keys_of(name) if f"`{key}`" not in text} == set()


@pytest.mark.parametrize(
    "name", sorted(DOCUMENTS.keys() - {each for one in BLOCKS.values() for each in one})
)
def test_a_page_that_is_written_by_hand_names_no_key_that_a_document_lacks(name: str) -> None:
    rows = re.findall(r"^\| (`.+?) \|", section(SECTIONS[name][0]), re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert named
    assert named <= keys_of(name)


def test_each_meaning_is_that_of_a_key() -> None:
    keys: dict[str, set[str]] = {}
    for name in DOCUMENTS:
        for title, record in read_schema(name)["$defs"].items():
            keys.setdefault(record_name(title), set()).update(record.get("properties", {}))
    for record, entries in meanings().items():
        described = [key for each in entries for key in each]
        assert set(described) <= keys.get(record, set()), record
        assert len(described) == len(set(described)), record


def test_the_schema_has_the_meaning_of_a_key_without_its_links() -> None:
    layer = read_schema("profile")["$defs"]["Layer"]["properties"]
    assert layer["interval_ms"]["description"] == "how sure `ms` is, at 99 %"
    assert "description" not in layer["name"]
