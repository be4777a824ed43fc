"""The document of one run of a benchmark: what it found, on which machine, when and with what."""

from __future__ import annotations

import datetime as dt
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from expected import Expectation
from kept import read_records
from shown import markdown

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Mapping[str, Sequence[Any]]
T = TypeVar("T")

FOLDER = Path(__file__).with_name("results")
# A block for those who do not want to see all: how its name ends.
SHORT = " short"
_LOOP_TURNS = 100_000
_LOOP_TIMES = 15


class ResultError(ValueError):
    """A stored document is not of the form that it should have."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How busy the machine is, and how fast: the time of a fixed loop of Python.

    `load` is None on Windows, which has no such figure.
    """

    load: float | None
    loop_ms: float

    @classmethod
    def now(cls) -> Moment:
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        return cls(load, round(_time_loop_ms(), 3))

    @property
    def load_text(self) -> str:
        return "unknown" if self.load is None else f"{self.load:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run of a benchmark found, and on which machine, when and with what.

    `seconds` are those of the run and of earlier ones that it went on from.
    """

    benchmark: str
    command: str
    date: str
    seconds: float
    is_complete: bool
    before: Moment
    after: Moment
    machine: Row
    versions: Mapping[str, str]
    rows: Rows

    def read(self, kind: str, record: type[T]) -> list[T]:
        """The rows of a kind as records."""
        return read_records(self.rows.get(kind, ()), record)


def dump(result: Result) -> str:
    """The document, a line for each row, so that a diff shows what has changed."""
    document = asdict(result)
    rows: Rows = document.pop("rows")
    head = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}")
    kinds = ",\n".join(
        f"  {json.dumps(kind)}: [\n{_lines(found)}\n  ]" for kind, found in rows.items()
    )
    return f'{head},\n "rows": {{\n{kinds}\n }}\n}}\n'


def load(path: Path) -> Result:
    """A stored document; ResultError if it is none."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ResultError(
            f"{path}: {error}. To make it again: python benchmarks/{path.stem}.py --json {path}"
        ) from error


def from_json(document: object) -> Result:
    """The document as it was written; ResultError says what is wrong with it."""
    if not isinstance(document, dict):
        raise ResultError(f"expected an object, found {type(document).__name__}")
    names = {field.name for field in fields(Result)}
    if document.keys() != names:
        raise ResultError(f"expected the keys {sorted(names)}, found {sorted(document)}")
    dt.datetime.fromisoformat(document["date"])
    try:
        return msgspec.convert(document, Result)
    except msgspec.ValidationError as error:
        raise ResultError(str(error)) from error


def conditions(result: Result) -> str:
    """When, where and with what it was measured, as a sentence below a table."""
    where = [
        _machine(result),
        result.machine.get("virtualization"),
        f"load {result.before.load_text} before and {result.after.load_text} after",
        f"a fixed loop {result.before.loop_ms:.1f} and {result.after.loop_ms:.1f} ms",
        result.machine.get("system"),
    ]
    versions = [f"{name} {number}" for name, number in result.versions.items()]
    return (
        f"{day(result)}, `{result.command}`, "
        f"{duration(result.seconds)}: {', '.join(each for each in where if each)}; "
        f"{', '.join(versions)}."
    )


def short_conditions(result: Result) -> str:
    """The same, for those who want to know the machine and the day alone."""
    return f"{day(result)}, {_machine(result)}"


def day(result: Result) -> str:
    return result.date.partition("T")[0]


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def expectation_table(expected: Sequence[Expectation]) -> str:
    rows = [(each.what, each.expected, each.found, each.outcome) for each in expected]
    return markdown(("what", "expected", "found", ""), rows, "llll")


def _machine(result: Result) -> str:
    """The processor, and how many of its cores the benchmark could use."""
    facts = result.machine
    cores = facts.get("usable_cores")
    name = facts.get("cpu") or facts.get("architecture") or "unknown processor"
    return name if cores is None else f"{name}, {cores} core{'' if cores == 1 else 's'}"


def _time_loop_ms() -> float:
    times = []
    for _ in range(_LOOP_TIMES):
        start = time.perf_counter()
        total = 0
        for turn in range(_LOOP_TURNS):
            total += turn
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def _lines(rows: Sequence[Row]) -> str:
    return ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in rows)
