"""The program around a measurement.

A benchmark is a program of this folder. It has two pure functions, `tables` and `expectations`,
which make Markdown and judgements of a stored document, and one that measures and judges nothing:

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
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from expected import Expectation
from kept import as_row
from results import SHORT, Moment, Result, Rows, conditions, dump, expectation_table

from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.hardware import MACHINE

# Where something is stored does not belong to what was measured.
_PATH_OPTIONS = {
    "--json": "write what was found to this file",
    "--folder": "keep what is found here, and go on from it",
}

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
        self.name, self.peers = name, peers
        self.tables, self.expectations = tables, expectations
        self.decides: Callable[[Expectation], bool] = lambda _: True
        summary = (doc or "").partition("\n")[0]
        self.parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
        for option, what in _PATH_OPTIONS.items():
            self.parser.add_argument(option, type=Path, help=what)

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
            rows={kind: [as_row(row) for row in found] for kind, found in rows.items()},
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
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in _PATH_OPTIONS:
        parser.add_argument(option)
    return tuple(parser.parse_known_args(arguments)[1])
