"""Programs of other people, judged against their own past: what is found, why, and how soon.

Each program is a small git repository with the files of a package of PyPI, a module that uses them,
and a test that calls `modelperf.check`. Its first commit is recorded. Then a comment is added,
which must not fail, and slowdowns are planted in its code one after the other. Before that, each
slowdown is timed without a verdict, in pairs of fresh processes, so that its true size is known.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from commands import Ran, run_pytest
from expected import Expectation, expect_most, expect_none, expect_share
from kept import keep_row, read_rows
from loads import BUSY, QUIET, loaded
from measuring import Program as Benchmark
from measuring import say
from program_repositories import (
    TEST,
    Trees,
    commit,
    environment,
    find_wheel,
    git,
    install_needed,
    make_repository,
    planted,
    time_slowdown,
)
from results import Result, Rows
from shown import count_of, grouped, markdown, median_of, percent
from stranger_programs import KINDS, PROGRAMS, Program, Slowdown

from pytest_modelperf.files.store import user_cache_folder

SAME = "a comment"
# A slowdown below this is not what the benchmark asks for.
LEAST_RATIO = 1.05
MOST_RECORDING_S, MOST_UNCHANGED_S, MOST_BUSY_S = 10.0, 0.3, 15.0
LEAST_FOUND = 0.95
# The sizes and the times of calls that the time to a verdict is asked of.
_TEN_PERCENT = (1.07, 1.13)
_SHORT_MS = (5.0, 50.0)
_PAIRS = 3
_PLAIN = "test_plain.py"
_PLAIN_TEXT = """from program import Program, example


def test_program():
    assert Program().run(example()) is not None
"""
_FOUND = frozenset({"regressed", "over budget"})
_OPEN = frozenset({"inconclusive", None})
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a program with one change. `problem` is the end of its output if it failed."""

    program: str
    kind: str
    repetition: int
    is_busy: bool
    verdict: str | None
    ratio: float | None
    seconds: float
    rounds: int | None
    reasons: tuple[str, ...]
    is_right: bool
    problem: str | None = None

    @property
    def is_found(self) -> bool:
        return self.verdict in _FOUND

    @property
    def is_open(self) -> bool:
        """Whether it has no answer: inconclusive, or failed."""
        return self.verdict in _OPEN


@dataclass(frozen=True, slots=True)
class Size:
    """The true size of a slowdown, by direct timing."""

    program: str
    kind: str
    before_ms: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of recording, of a run that finds all unchanged, and of one without a check."""

    program: str
    recording: float
    unchanged: float | None
    plain: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """A program and its repository."""

    program: Program
    trees: Trees

    def pytest(self, test: str, *options: str) -> Ran:
        own = environment(self.trees.site, COLUMNS="120")
        return run_pytest(self.trees.folder, *options, test, environment=own)


def measure(options: argparse.Namespace) -> Rows:
    kept = options.folder
    with tempfile.TemporaryDirectory() as name:
        for program in PROGRAMS:
            if program.name in options.programs:
                measure_program(made(program, Path(name).resolve()), options, kept)
    return {kind: read_rows(kept, kind) for kind in ("costs", "sizes", "checks")}


def made(program: Program, folder: Path) -> Place:
    """The repository of a program; wheels are kept in the cache of the user."""
    cache = user_cache_folder() / "benchmark-programs"
    cache.mkdir(parents=True, exist_ok=True)
    own, before = folder / program.name, folder / f"{program.name}-before"
    make_repository(program, find_wheel(program.requirement, cache / "wheels"), own)
    git(own, "worktree", "add", "--detach", "--quiet", str(before))
    return Place(program, Trees(own, before, install_needed(cache)))


def measure_program(place: Place, options: argparse.Namespace, kept: Path) -> None:
    """All that is asked of one program, as far as it was not done before."""
    program = place.program
    known = {(row["program"], row["kind"]) for row in read_rows(kept, "sizes")}
    slowdowns = [each for each in program.slowdowns if each.kind in options.kinds]
    for change in slowdowns if options.size_rounds else ():
        if (program.name, change.kind) not in known:
            found = time_slowdown(change, place.trees, options.size_rounds)
            size = (found.before_ms, found.ratio, found.low, found.high)
            keep_row(kept, "sizes", Size(program.name, change.kind, *size))
    cost = find_cost(place)
    if all(row["program"] != program.name for row in read_rows(kept, "costs")):
        keep_row(kept, "costs", cost)
    done = {
        (row["program"], row["kind"], row["repetition"], row["is_busy"])
        for row in read_rows(kept, "checks")
    }
    asked: list[tuple[Slowdown | None, int]] = [(each, options.planted) for each in slowdowns]
    if SAME in options.kinds:
        asked.append((None, options.same))
    for plant, repetitions in asked:
        kind = SAME if plant is None else plant.kind
        for repetition, is_busy in product(range(repetitions), {False, options.busy}):
            if (program.name, kind, repetition, is_busy) not in done:
                with planted(plant, place.trees.folder), loaded(BUSY if is_busy else QUIET):
                    checked = check(place, plant, repetition, is_busy=is_busy)
                keep_row(kept, "checks", checked)
                say(checked)


def find_cost(place: Place) -> Cost:
    """Records and commits the baseline, and times runs that find nothing changed."""
    folder = place.trees.folder
    (folder / _PLAIN).write_text(_PLAIN_TEXT, encoding="utf-8")
    commit(folder, "A test without a check")
    recorded = place.pytest(TEST, "--modelperf-update-baseline")
    if recorded.code:
        raise SystemExit(f"{place.program.name} was not recorded:\n{recorded.output[-3000:]}")
    commit(folder, "The baseline")
    pairs = [(place.pytest(TEST), place.pytest(_PLAIN)) for _ in range(_PAIRS)]
    is_right = all(not checked.code and not plain.code for checked, plain in pairs)
    unchanged, plain = (
        round(statistics.median(each.seconds for each in side), 2) if is_right else None
        for side in zip(*pairs, strict=True)
    )
    return Cost(place.program.name, round(recorded.seconds, 2), unchanged, plain)


def check(place: Place, change: Slowdown | None, repetition: int, *, is_busy: bool) -> Check:
    """A check of the work tree as it is."""
    ran = place.pytest(TEST)
    case: Mapping[str, Any] = ran.cases[0] if ran.cases else {}
    reasons = tuple(case.get("reasons", ()))[:_MOST_REASONS]
    verdict = case.get("verdict")
    has_reason = bool(change and reasons and re.search(change.reason, reasons[0]))
    return Check(
        program=place.program.name,
        kind=SAME if change is None else change.kind,
        repetition=repetition,
        is_busy=is_busy,
        verdict=verdict,
        ratio=ran.p50.get("ratio"),
        seconds=round(ran.seconds, 1),
        rounds=case.get("rounds"),
        reasons=reasons,
        is_right=verdict not in _FOUND if change is None else has_reason,
        problem=None if verdict is not None else ran.output[-2000:],
    )


# -- what was found


def sizes_of(result: Result) -> dict[tuple[str, str], Size]:
    return {(each.program, each.kind): each for each in result.read("sizes", Size)}


def planted_checks(result: Result) -> list[Check]:
    """The checks of slowdowns that are at least as large as asked, as far as that is known."""
    sizes = sizes_of(result)
    return [
        each
        for each in result.read("checks", Check)
        if each.kind != SAME
        and ((size := sizes.get((each.program, each.kind))) is None or size.ratio >= LEAST_RATIO)
    ]


def tables(result: Result) -> dict[str, str]:
    sizes = sizes_of(result)
    checks = result.read("checks", Check)
    lines = []
    for (program, kind, is_busy), own in grouped(
        checks, lambda each: (each.program, each.kind, each.is_busy)
    ).items():
        size = sizes.get((program, kind))
        shown = "" if size is None else percent(size.ratio, 0)
        found, is_open = (count_of(map(attrgetter(name), own)) for name in ("is_found", "is_open"))
        right = "" if kind == SAME else count_of(each.is_right for each in own)
        seconds = f"{median_of(each.seconds for each in own)} s"
        load = BUSY if is_busy else QUIET
        lines.append((program, kind, load, shown, found, is_open, right, seconds))
    titles = (
        "program", "change", "load", "true size", "called slower", "left open",
        "first reason right", "median",
    )  # fmt: skip
    return {
        "programs": markdown(titles, lines, "lllrrrrr"),
        "programs short": _sentence(result),
    }


def _sentence(result: Result) -> str:
    checks = planted_checks(result)
    same = [each for each in result.read("checks", Check) if each.kind == SAME]
    found = sum(each.is_found for each in checks)
    return (
        f"Of {len(checks)} checks of programs with a slowdown planted, {found} found it, and "
        f"{sum(each.is_right for each in checks)} named it first. Of {len(same)} checks with a "
        f"comment changed, {sum(each.is_found for each in same)} raised an alarm."
    )


def beyond_start(cost: Cost) -> float | None:
    """How much longer a run takes that finds a program unchanged than one without a check."""
    if cost.unchanged is None or cost.plain is None:
        return None
    return cost.unchanged - cost.plain


def expectations(result: Result) -> tuple[Expectation, ...]:
    same = [each for each in result.read("checks", Check) if each.kind == SAME]
    checks = planted_checks(result)
    costs = result.read("costs", Cost)
    limit = f"in {100 * LEAST_FOUND:g} %"
    is_found, is_right = ([each.is_found for each in checks], [each.is_right for each in checks])
    beyond = [seconds for each in costs if (seconds := beyond_start(each)) is not None]
    busy = [each.seconds for each in checks if each.is_busy and _is_ten_percent(each, result)]
    limits = (
        ("recording", MOST_RECORDING_S, [each.recording for each in costs]),
        ("an unchanged program, beyond pytest's own start", MOST_UNCHANGED_S, beyond),
        ("+10 % with both cores busy, median", MOST_BUSY_S, busy),
    )
    return (
        expect_none("a comment changed: alarms", (each.is_found for each in same)),
        expect_share("a slowdown of 5 % or more: found", is_found, LEAST_FOUND, limit),
        expect_share("its first reason: right", is_right, LEAST_FOUND, limit),
        *(
            expect_most(what, statistics.median(seconds), most, digits=2)
            for what, most, seconds in limits
            if seconds
        ),
    )


def _is_ten_percent(found: Check, result: Result) -> bool:
    size = sizes_of(result).get((found.program, found.kind))
    if size is None:
        return False
    low, high = _TEN_PERCENT
    return low <= size.ratio <= high and _SHORT_MS[0] <= size.before_ms <= _SHORT_MS[1]


if __name__ == "__main__":
    names = [each.name for each in PROGRAMS]
    benchmark = Benchmark("programs", __doc__, tables, expectations)
    benchmark.choose("--programs", names)
    benchmark.choose("--kinds", [SAME, *KINDS])
    benchmark.number("--same", 34, "checks with a comment, a program")
    benchmark.number("--planted", 3, "checks of each slowdown")
    benchmark.number("--size-rounds", 5, "pairs of processes for the true size of each")
    benchmark.flag("--busy", "check once more with both cores busy")
    sys.exit(benchmark.run(measure))
