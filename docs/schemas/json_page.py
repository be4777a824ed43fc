"""The tables of keys in docs/json.md and docs/baseline-files.md, from the schemas of documents.

`make schemas` writes them between the marks of those pages. A block has the records of a document
that no block before it has. A record of a few keys that explain themselves has no table of its own:
its keys are in the cell of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TypeAlias

from marked_blocks import code, table, with_block
from meanings import meanings, record_name

_DOCS = Path(__file__).parent.parent
JSON_PAGE = _DOCS / "json.md"
BASELINES_PAGE = _DOCS / "baseline-files.md"
# The documents of each page, in the order of its blocks.
BLOCKS: Mapping[Path, Sequence[str]] = {
    JSON_PAGE: (
        "profile", "roofline", "compare", "sweep", "tune", "whatif", "run", "trace", "doctor",
        "env", "bisect", "share", "reduce", "profiles-list", "profiles-compare",
        "profiles-compare-flops", "history", "baselines-list", "baselines-diff",
    ),
    BASELINES_PAGE: ("baseline-model", "baseline-machine", "baseline-program"),
}  # fmt: skip
# A record with all keys of another one shows the rest.
_EXTENDED: Mapping[str, str] = {"RunCase": "CaseComparison"}
# The sections of the records that are documents and parts of other documents.
_ANCHORS: Mapping[str, str] = {"Profile": "a-profile", "Comparison": "a-comparison"}
_MOST_INLINE_KEYS = 6
_MOST_INLINE_VALUES = 4
_TYPES: Mapping[object, str] = {"string": "text", None: "object"}
# Keys with one meaning in every record, which docs/json.md explains once.
_EVERYWHERE = {
    "batch_size", "cores", "dims", "phase", "prompt", "generate", "outcome", "reason", "failure",
    "seconds", "rounds", "notes", "interval", "confidence", "outputs_verdict", "outputs_tolerance",
}  # fmt: skip
_PLAIN = {"text", "integer", "number", "boolean"}

Schema: TypeAlias = Mapping[str, Any]


def with_keys(page: Path, schemas: Callable[[], Mapping[str, Schema]]) -> Callable[[str], str]:
    """Return the function that writes the tables of today into the text of a page."""

    def written(text: str) -> str:
        for name, block in blocks(page, schemas()).items():
            text = with_block(text, f"json: {name}", block)
        return text

    return written


def blocks(page: Path, schemas: Mapping[str, Schema]) -> Mapping[str, str]:
    """Return the tables of each document of a page."""
    places: dict[str, str] = {}
    keys = {
        title: frozenset(record.get("properties", ()))
        for schema in schemas.values()
        for title, record in schema["$defs"].items()
    }
    found = {
        each: {name: _block(schemas[name], each.name, places, keys) for name in names}
        for each, names in BLOCKS.items()
    }
    return found[page]


def _block(
    schema: Schema, page: str, places: dict[str, str], keys: Mapping[str, AbstractSet[str]]
) -> str:
    """The tables of the records that have none yet; `places` has the page of each that has one."""
    tables = _Tables(schema["$defs"], page, places, keys)
    root = str(schema["$ref"]).rpartition("/")[2]
    parts = []
    for title in tables.reachable(root):
        name = record_name(title)
        if name in places or (title != root and tables.is_inline(title)):
            continue
        places[name] = page
        parts += [f"### {name}\n"] if title != root else []
        parts.append(tables.text_of(title))
    return "\n".join(parts)


class _Tables:
    """The tables of the records of one document."""

    def __init__(
        self,
        records: Mapping[str, Schema],
        page: str,
        places: Mapping[str, str],
        keys: Mapping[str, AbstractSet[str]],
    ) -> None:
        self._records = records
        self._page = page
        self._places = places
        self._keys = keys
        self._meanings = meanings()

    def reachable(self, title: str) -> Sequence[str]:
        """Return the record and those in it, an outer one before its inner ones."""
        found = [title]
        for each in found:
            inside = re.findall(r"'#/\$defs/(\w+)'", str(self._records[each].get("properties")))
            found += [name for name in dict.fromkeys(inside) if name not in found]
        return found

    def text_of(self, title: str) -> str:
        """Return the table of a record, and its keys that explain themselves; or the values."""
        record = self._records[title]
        if "enum" in record:
            return f"{_codes(record['enum'])}\n"
        rows = tuple(self._rows(title))
        others = self._others(title)
        parts = [table(("key", "type", "meaning"), rows, space="")] if rows else []
        parts += [f"{'Also: ' if rows else ''}{others}.\n"] if others else []
        return "\n".join(parts)

    def is_inline(self, title: str) -> bool:
        """Whether a type has few values, or a few keys that explain themselves."""
        record = self._records[title]
        if "enum" in record:
            return len(record["enum"]) <= _MOST_INLINE_VALUES
        return (
            len(record["properties"]) <= _MOST_INLINE_KEYS
            and record_name(title) not in self._meanings
            and "#/$defs/" not in str(record["properties"])
        )

    def _rows(self, title: str) -> Iterator[Sequence[str]]:
        """Each key with a meaning; keys with the same one are one row."""
        properties: Mapping[str, Schema] = self._records[title]["properties"]
        name = record_name(title)
        for keys, meaning in self._meanings.get(name, {}).items():
            known = [key for key in keys if key in properties]
            types = dict.fromkeys(self._type(properties[key]) for key in known)
            yield _codes(known), "; ".join(types), meaning
        if name in _EXTENDED:
            yield "the other keys", "", f"as in {self._link(_EXTENDED[name])}"

    def _others(self, title: str) -> str:
        """The keys without a meaning: those of plain types, then the others by their types."""
        name = record_name(title)
        known = {key for keys in self._meanings.get(name, {}) for key in keys} | {"schema"}
        known |= _EVERYWHERE | self._keys.get(_EXTENDED.get(name, ""), frozenset())
        plain: list[str] = []
        found: dict[str, list[str]] = {}
        for key, value in self._records[title]["properties"].items():
            kind = self._type(value)
            if key in known:
                continue
            if kind.removesuffix("?") in _PLAIN:
                plain.append(f"{code(key)}{'?' if kind.endswith('?') else ''}")
            else:
                found.setdefault(kind, []).append(key)
        typed = [f"{_codes(keys)} ({kind})" for kind, keys in found.items()]
        return "; ".join(", ".join(keys) for keys in (plain, typed) if keys)

    def _type(self, value: Schema) -> str:
        """Return a type in a few words; `?` is one that can be null."""
        if "anyOf" in value:
            kinds = [self._type(each) for each in value["anyOf"] if each.get("type") != "null"]
            words = " or ".join(sorted(set(kinds)))
            return f"{words}?" if len(kinds) < len(value["anyOf"]) else words
        if "$ref" in value:
            return self._type_of_record(str(value["$ref"]).rpartition("/")[2])
        if "enum" in value:
            return _values(value["enum"])
        kind = value.get("type")
        if kind == "array":
            items = value.get("items") or value["prefixItems"][0]
            is_interval = len(value.get("prefixItems", ())) == 2 and items.get("type") != "integer"
            return "`[low, high]`" if is_interval else f"list of {self._item(items)}"
        if kind == "object":
            return f"{self._item(value['additionalProperties'])} by name"
        return _TYPES.get(kind, str(kind))

    def _item(self, value: Schema) -> str:
        kind = self._type(value)
        return f"({kind})" if kind.endswith("?") else kind

    def _type_of_record(self, title: str) -> str:
        if not self.is_inline(title):
            return self._link(record_name(title))
        record = self._records[title]
        return (
            _values(record["enum"]) if "enum" in record else f"{{{_codes(record['properties'])}}}"
        )

    def _link(self, name: str) -> str:
        page = self._places.get(name, self._page)
        anchor = _ANCHORS.get(name, name.lower())
        return f"[{name}]({'' if page == self._page else page}#{anchor})"


def _codes(keys: Iterable[str]) -> str:
    return ", ".join(map(code, keys))


def _values(values: Iterable[object]) -> str:
    return "/".join(code(str(each)) for each in values if each is not None)
