"""What a benchmark found: one document, from which its tables can be made again without a run.

A benchmark is a program with the option `--json FILE` and two pure functions, which make of a
stored document what it prints:

    def tables(result: Result) -> dict[str, str]:
        '''Its tables in Markdown by the names of the blocks where they stand in the docs.'''

    def expectations(result: Result) -> tuple[Expectation, ...]:
        '''What was expected, what was found, and whether that will do.'''

Its `main` is then

    parser = results.parser(__doc__)
    ... other options
    options = parser.parse_args()
    start = Start.now("overhead")
    ... measure
    result = start.finish({"models": [asdict(each) for each in found]}, peers=("onnx_tool",))
    return conclude(result, tables, expectations, options.json)

`rows` are whatever JSON holds, under as many names as there are kinds of them. They are what was
measured, not what was made of it: medians, ratios and what is met belong into the two functions.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import msgspec

from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.facts import MACHINE

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Mapping[str, Sequence[Row]]

FOLDER = Path(__file__).with_name("results")
# A block for those who do not want to see all: how its name ends.
SHORT = " short"

# Where something lies is no part of what was measured.
_PATH_OPTIONS = ("--json", "--folder", "--keep-rounds", "--otava", "--truths")
_LOOP_TURNS = 100_000
_LOOP_TIMES = 15


class ResultError(ValueError):
    """A stored document is not of the form that it should have."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How busy the machine is, and how fast: what a fixed loop of Python takes.

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

    It is not complete where the run ended before all was measured that it had set out to. `seconds`
    are those of the run, which may have gone on from what an earlier one had kept.
    """

    benchmark: str
    command: str
    date: str
    seconds: float
    is_complete: bool
    before: Moment
    after: Moment
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that a benchmark is held to, and how it came out.

    `is_met` is None where an interval holds the limit, so that neither is shown.
    """

    what: str
    expected: str
    found: str
    is_met: bool | None

    @property
    def outcome(self) -> str:
        if self.is_met is None:
            return "not shown"
        return "met" if self.is_met else "missed"


def at_most(limit: float, low: float, high: float) -> bool | None:
    """Whether what lies between two bounds is shown to be no more than a limit, or to be more."""
    if high <= limit:
        return True
    return False if low > limit else None


@dataclass(frozen=True, slots=True)
class Start:
    """The moment at which a benchmark begins."""

    benchmark: str
    command: str
    date: str
    started: float
    before: Moment

    @classmethod
    def now(cls, benchmark: str, arguments: Sequence[str] | None = None) -> Start:
        """With the arguments of this process, if no others are given."""
        given = without_paths(sys.argv[1:] if arguments is None else arguments)
        return cls(
            benchmark=benchmark,
            command=shlex.join(("python", f"benchmarks/{benchmark}.py", *given)),
            date=dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
            started=time.monotonic(),
            before=Moment.now(),
        )

    def finish(self, rows: Rows, *, is_complete: bool = True, peers: Sequence[str] = ()) -> Result:
        """What was found. `peers` are packages beside ours whose versions matter."""
        seconds = time.monotonic() - self.started
        facts = MACHINE.of(describe_machine())
        machine: dict[str, Any] = json.loads(msgspec.json.encode(facts))
        # Who built it has nothing to do with how fast it is, and it may hold the name of a host.
        machine.pop("kernel")
        versions = {"python": machine.pop("python"), **machine.pop("packages")}
        return Result(
            benchmark=self.benchmark,
            command=self.command,
            date=self.date,
            seconds=round(seconds, 1),
            is_complete=is_complete,
            before=self.before,
            after=Moment.now(),
            machine=machine,
            versions=versions | {name: version(name) for name in peers},
            rows=rows,
        )


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0], allow_abbrev=False)
    made.add_argument("--json", type=Path, metavar="FILE", help="write what was found to FILE")
    return made


def list_names(names: Sequence[str]) -> str:
    """The help of an option that takes these names; argparse reads a single % as a format."""
    return ", ".join(names).replace("%", "%%")


def missing_packages(names: Sequence[str]) -> str | None:
    """What to say, and to type, where packages that are measured beside ours are not installed."""
    missing = [name for name in names if find_spec(name.replace("-", "_")) is None]
    if not missing:
        return None
    return (
        f"{', '.join(missing)} is not installed for {sys.executable}. Type: "
        f"{sys.executable} -m pip install --group bench"
    )


def without_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Those that say what was measured, and not where it was put."""
    kept = []
    left = iter(arguments)
    for argument in left:
        if argument in _PATH_OPTIONS:
            next(left, None)
        elif not argument.startswith(tuple(f"{name}=" for name in _PATH_OPTIONS)):
            kept.append(argument)
    return tuple(kept)


def conclude(
    result: Result,
    tables: Callable[[Result], Mapping[str, str]],
    expectations: Callable[[Result], Sequence[Expectation]],
    path: Path | None,
) -> int:
    """Store what was found where that was asked, print it, and say how the program ends.

    It is stored first, so that a mistake in a table costs no second run. The program ends with 1
    where an expectation was missed.
    """
    if path is not None:
        path.write_text(dump(result), encoding="utf-8")
    expected = expectations(result)
    for name, text in tables(result).items():
        if not name.endswith(SHORT):
            print(f"## {name}\n\n{text}\n")
    print(f"## expected and found\n\n{expectation_table(expected)}\n\n{conditions(result)}")
    return 1 if any(each.is_met is False for each in expected) else 0


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
    """A stored document; ResultError where it is none."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ResultError(
            f"{path}: {error}. To make it anew: python benchmarks/{path.stem}.py --json {path}"
        ) from error


def from_json(document: object) -> Result:
    """The document as it was written; ResultError says what is wrong with it."""
    if not isinstance(document, dict):
        raise ResultError(f"expected an object, found {type(document).__name__}")
    names = {field.name for field in fields(Result)}
    if document.keys() != names:
        raise ResultError(f"expected the keys {sorted(names)}, found {sorted(document)}")
    kinds: dict[str, type | tuple[type, ...]] = {
        "benchmark": str, "command": str, "date": str, "seconds": (int, float),
        "is_complete": bool, "before": dict, "after": dict, "machine": dict, "versions": dict,
        "rows": dict,
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(document[name], kind):
            raise ResultError(f"{name}: found {document[name]!r}")
    for kind, rows in document["rows"].items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ResultError(f"rows of {kind}: expected a list of objects")
    dt.datetime.fromisoformat(document["date"])
    try:
        moments = {name: Moment(**document[name]) for name in ("before", "after")}
    except TypeError as error:
        raise ResultError(f"before, after: {error}") from error
    return Result(**(document | moments))


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
        f"{'' if result.is_complete else '**Not complete.** '}{day(result)}, `{result.command}`, "
        f"{duration(result.seconds)}: {', '.join(each for each in where if each)}; "
        f"{', '.join(versions)}."
    )


def short_conditions(result: Result) -> str:
    """The same, for those who want to know the machine and the day alone."""
    begun = "" if result.is_complete else "not complete, "
    return f"{begun}{day(result)}, {_machine(result)}"


def day(result: Result) -> str:
    return result.date.partition("T")[0]


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def format_ns(ns: float, sign: str = "") -> str:
    """A time in the unit that suits it; with the sign `+` a difference."""
    if abs(ns) < 1e4:
        return f"{ns:{sign},.0f} ns"
    return f"{ns / 1e3:{sign}.1f} µs" if abs(ns) < 1e6 else f"{ns / 1e6:{sign}.2f} ms"


def expectation_table(expected: Sequence[Expectation]) -> str:
    rows = [(each.what, each.expected, each.found, each.outcome) for each in expected]
    return markdown(("what", "expected", "found", ""), rows, "llll")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], align: str | None = None) -> str:
    """A table; `align` has an l or an r for each column, of which else only the first is text."""
    sides = align or "l" + "r" * (len(header) - 1)
    rule = [{"l": "---", "r": "---:"}[side] for side in sides]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


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
    return median(times)


def _lines(rows: Sequence[Row]) -> str:
    return ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in rows)
