"""What a benchmark found, and the program around its measurement.

A benchmark is a program of this folder. It has two pure functions, which make tables and
expectations of a stored document, and one that measures:

    def tables(result: Result) -> dict[str, str]:
        '''Its tables in Markdown by the names of their blocks in the docs.'''

    def expectations(result: Result) -> tuple[Expectation, ...]:
        '''What was expected, what was found, and whether that will do.'''

    def measure(options: argparse.Namespace) -> Rows:
        '''What was measured: no medians, ratios or verdicts on it.'''

    if __name__ == "__main__":
        program = Program("overhead", __doc__, tables, expectations)
        program.number("--seconds", 4.0, "for each model")
        sys.exit(program.run(measure))

Rows are dataclasses, or what JSON holds, under a name for each kind of them. `--folder` is for what
a later run goes on from; without it, the folder goes with the program.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from scipy.stats import binomtest

from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.hardware import MACHINE

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Mapping[str, Sequence[Any]]
T = TypeVar("T")
K = TypeVar("K")

FOLDER = Path(__file__).with_name("results")
# A block for those who do not want to see all: how its name ends.
SHORT = " short"
CONFIDENCE = 0.95

# Where something is stored does not belong to what was measured.
_PATH_OPTIONS = ("--json", "--folder")
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


def read_records(rows: Iterable[object], record: type[T]) -> list[T]:
    return [msgspec.convert(row, record) for row in rows]


# -- what is expected


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that is expected of a benchmark, and how it came out.

    `is_met` is None if that is not shown, such as by an interval that holds the limit.
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


def expect_share(
    what: str, held: Iterable[bool], least: float = 1.0, expected: str | None = None
) -> Expectation:
    """Expect that at least this share holds; not shown without any."""
    held = list(held)
    limit = expected or ("all" if least == 1.0 else f"at least {100 * least:g} %")
    is_met = sum(held) >= least * len(held) if held else None
    return Expectation(what, limit, f"{sum(held)} of {len(held)}", is_met)


def expect_none(what: str, wrong: Iterable[bool], expected: str = "none") -> Expectation:
    """Expect that nothing is wrong; not shown without anything that could be."""
    wrong = list(wrong)
    is_met = not any(wrong) if wrong else None
    return Expectation(what, expected, f"{sum(wrong)} of {len(wrong)}", is_met)


def expect_most(
    what: str, value: float, most: float, unit: str = "s", digits: int = 1
) -> Expectation:
    """Expect that a figure is at most this."""
    found = f"{value:.{digits}f} {unit}"
    return Expectation(what, f"at most {most:g} {unit}", found, value <= most)


def at_most(limit: float, low: float, high: float) -> bool | None:
    """Return whether an interval shows a figure to be within a limit, or above it."""
    if high <= limit:
        return True
    return False if low > limit else None


def highest_rate(hits: int, tries: int) -> float:
    """Return the upper bound of Clopper and Pearson for a rate."""
    if not tries:
        return 1.0
    found = binomtest(hits, tries, alternative="less").proportion_ci(CONFIDENCE, method="exact")
    return float(found.high)


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group rows by what they share, in the order in which that came up."""
    found: dict[K, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


# -- rows that a folder keeps


def read_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of this kind in a folder, in the order in which they were stored."""
    path = folder / f"{kind}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    return [json.loads(line) for line in lines]


def keep_row(folder: Path, kind: str, row: object) -> None:
    """Store a row at once, so that a later run goes on from it."""
    with (folder / f"{kind}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(_as_row(row)) + "\n")


def _as_row(row: object) -> object:
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else row


def left_of(plan: Sequence[K], done: Iterable[K]) -> list[K]:
    """Return the part of a plan that is not done yet, in its order."""
    known = Counter(done)
    left = []
    for setting in plan:
        if known[setting]:
            known[setting] -= 1
        else:
            left.append(setting)
    return left


# -- the program around a measurement


Measure: TypeAlias = Callable[[argparse.Namespace], Rows]
Tables: TypeAlias = Callable[[Result], Mapping[str, str]]
Expectations: TypeAlias = Callable[[Result], Sequence[Expectation]]


class Program:
    """A benchmark on the command line.

    `peers` are packages that it compares ours with. It ends with 1 if an expectation was missed
    that `decides`.
    """

    def __init__(
        self,
        name: str,
        doc: str | None,
        tables: Tables,
        expectations: Expectations,
        peers: Sequence[str] = (),
    ) -> None:
        self.name, self.tables, self.expectations = name, tables, expectations
        self.peers = peers
        self.decides: Callable[[Expectation], bool] = lambda _: True
        summary = (doc or "").partition("\n")[0]
        self.parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
        add = self.parser.add_argument
        add("--json", type=Path, metavar="FILE", help="write what was found to FILE")
        add("--folder", type=Path, help="keep what is found here, and go on from it")

    def number(self, option: str, default: float, what: str) -> None:
        """Add an option for a number of the type of its default."""
        self.parser.add_argument(option, type=type(default), default=default, help=what)

    def numbers(self, option: str, default: Sequence[int], what: str) -> None:
        """Add an option for numbers with commas between them."""
        self.parser.add_argument(option, type=_numbers, metavar="N,N", default=default, help=what)

    def flag(self, option: str, what: str) -> None:
        self.parser.add_argument(option, action="store_true", help=what)

    def choose(
        self, option: str, names: Iterable[str], default: Iterable[str] | None = None
    ) -> None:
        """Add an option for some of these names; all of them by default."""
        names = tuple(names)
        self.parser.add_argument(
            option,
            nargs="+",
            choices=names,
            metavar="NAME",
            default=names if default is None else tuple(default),
            # argparse reads a single % as a format.
            help=", ".join(names).replace("%", "%%"),
        )

    def run(self, measure: Measure, arguments: Sequence[str] | None = None) -> int:
        """Measure, store and print.

        It is stored first, so that a mistake in a table costs no second run.
        """
        options = self.parser.parse_args(arguments)
        peers = () if getattr(options, "no_peers", False) else self.peers
        if problem := missing_packages(peers):
            self.parser.error(problem)
        start = Start.now(self.name, arguments)
        with tempfile.TemporaryDirectory(prefix="modelperf-bench-") as place:
            options.folder = (options.folder or Path(place)).resolve()
            options.folder.mkdir(parents=True, exist_ok=True)
            with _counted(options.folder / "seconds") as before:
                rows = measure(options)
        result = start.finish(rows, seconds_before=before, peers=peers)
        if options.json is not None:
            options.json.write_text(dump(result), encoding="utf-8")
        expected = self.expectations(result)
        for name, text in self.tables(result).items():
            if not name.endswith(SHORT):
                print(f"## {name}\n\n{text}\n")
        print(f"## expected and found\n\n{expectation_table(expected)}\n\n{conditions(result)}")
        return int(any(each.is_met is False and self.decides(each) for each in expected))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


@contextmanager
def _counted(path: Path) -> Iterator[float]:
    """Yield the seconds of earlier runs in a folder, and add those of this one in any case."""
    before = float(path.read_text("ascii")) if path.exists() else 0.0
    begun = time.monotonic()
    try:
        yield before
    finally:
        path.write_text(str(before + time.monotonic() - begun), "ascii")


def say(*words: object) -> None:
    """Print progress, apart from the tables."""
    print(*words, file=sys.stderr, flush=True)


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

    def finish(
        self, rows: Rows, *, seconds_before: float = 0.0, peers: Sequence[str] = ()
    ) -> Result:
        facts = MACHINE.of(describe_machine())
        machine: dict[str, Any] = json.loads(msgspec.json.encode(facts))
        # Who built it has nothing to do with how fast it is, and it may hold the name of a host.
        machine.pop("kernel")
        versions = {"python": machine.pop("python"), **machine.pop("packages")}
        return Result(
            benchmark=self.benchmark,
            command=self.command,
            date=self.date,
            seconds=round(seconds_before + time.monotonic() - self.started, 1),
            is_complete=True,
            before=self.before,
            after=Moment.now(),
            machine=machine,
            versions=versions | {name: version(name) for name in peers},
            rows={kind: [_as_row(row) for row in found] for kind, found in rows.items()},
        )


def missing_packages(names: Sequence[str]) -> str | None:
    """What to say, and to type, if packages that ours is compared with are not installed."""
    missing = [name for name in names if find_spec(name.replace("-", "_")) is None]
    if not missing:
        return None
    return (
        f"{', '.join(missing)} is not installed for {sys.executable}. Type: "
        f"{sys.executable} -m pip install --group bench"
    )


def without_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Those that say what was measured, without those for where it was stored."""
    kept = []
    left = iter(arguments)
    for argument in left:
        if argument in _PATH_OPTIONS:
            next(left, None)
        elif not argument.startswith(tuple(f"{name}=" for name in _PATH_OPTIONS)):
            kept.append(argument)
    return tuple(kept)


# -- the document


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


# -- as text


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


def format_ns(ns: float, sign: str = "") -> str:
    """A time in the unit that suits it; with the sign `+` a difference."""
    if abs(ns) < 1e4:
        return f"{ns:{sign},.0f} ns"
    return f"{ns / 1e3:{sign}.1f} µs" if abs(ns) < 1e6 else f"{ns / 1e6:{sign}.2f} ms"


def expectation_table(expected: Sequence[Expectation]) -> str:
    rows = [(each.what, each.expected, each.found, each.outcome) for each in expected]
    return markdown(("what", "expected", "found", ""), rows, "llll")


def count_of(held: Iterable[bool]) -> str:
    """How many of all hold."""
    held = list(held)
    return f"{sum(held)} of {len(held)}" if held else "-"


def median_of(values: Iterable[float], digits: int = 1) -> str:
    values = list(values)
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def percent(ratio: float | None, digits: int = 1) -> str:
    """By how much a ratio differs from 1."""
    return "-" if ratio is None else f"{100 * (ratio - 1):+.{digits}f} %"


def rate_text(hits: int, tries: int) -> str:
    """The highest rate that fits so many hits."""
    return f"at most {100 * highest_rate(hits, tries):.2g} % ({100 * CONFIDENCE:g} % confidence)"


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[object]], align: str | None = None
) -> str:
    """A table; `align` has an l or an r for each column, of which else only the first is text."""
    sides = align or "l" + "r" * (len(header) - 1)
    rule = [{"l": "---", "r": "---:"}[side] for side in sides]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (header, rule, *rows))


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
