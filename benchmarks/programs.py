"""Programs of other people, judged against their own past: what is found, why, and how soon.

    python benchmarks/programs.py                  all, some three hours
    python benchmarks/programs.py --quick          each once, some ten minutes
    python benchmarks/programs.py --programs magika --kinds "changed model"
    python benchmarks/programs.py --busy           all once more while both cores are busy
    python benchmarks/programs.py --folder f       keep what is found, and go on from it

Each program is a small git repository with the files of a package of PyPI, a module that uses them,
and a test that calls `modelperf.check`. Its first commit is recorded. Then a comment is added,
which must not fail, and slowdowns are planted in its code one after the other: each has to be
found, and the first reason has to name it. Before that, each slowdown is timed without a verdict,
in pairs of fresh processes, so that its true size is known.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import results
import soak
from kept_rows import keep_row, read_rows
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
from results import Expectation, Result, Start, conclude, markdown
from stranger_programs import KINDS, PROGRAMS, Program, Slowdown

from pytest_modelperf.files.store import user_cache_folder
from pytest_modelperf.systems.trees import TREES

SAME = "a comment"
# A slowdown below this is not what the benchmark asks for.
LEAST_RATIO = 1.05
MOST_RECORDING_S, MOST_UNCHANGED_S, MOST_BUSY_S = 10.0, 0.3, 15.0
LEAST_FOUND = 0.95
# The sizes and the times of calls that the time to a verdict is asked of.
_TEN_PERCENT = (1.07, 1.13)
_SHORT_MS = (5.0, 50.0)
_LIMIT_S = 600.0
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
class Ran:
    """A run of pytest: its exit code, its seconds, the end of its output and its report."""

    code: int
    seconds: float
    output: str
    cases: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """The repository of a program, a worktree of its first commit, and the packages it imports."""

    program: Program
    folder: Path
    tree: Path
    site: Path


def main() -> int:
    parser = results.parser(__doc__)
    names = [each.name for each in PROGRAMS]
    parser.add_argument(
        "--programs",
        nargs="+",
        choices=names,
        metavar="NAME",
        default=names,
        help=results.list_names(names),
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=[SAME, *KINDS],
        metavar="KIND",
        default=[SAME, *KINDS],
        help=results.list_names([SAME, *KINDS]),
    )
    parser.add_argument("--same", type=int, default=34, help="checks with a comment, a program")
    parser.add_argument("--planted", type=int, default=3, help="checks of each slowdown")
    parser.add_argument("--size-rounds", type=int, default=5, help="pairs of processes of each")
    parser.add_argument("--busy", action="store_true", help="check once more with both cores busy")
    parser.add_argument("--quick", action="store_true", help="each check once, without true sizes")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    options = parser.parse_args()
    if options.quick:
        options.same = options.planted = 1
        options.size_rounds = 0
    start = Start.now("programs")
    with tempfile.TemporaryDirectory() as name:
        kept = (options.folder or Path(name, "kept")).resolve()
        kept.mkdir(parents=True, exist_ok=True)
        for program in PROGRAMS:
            if program.name in options.programs:
                with made(program, Path(name).resolve()) as place:
                    measure(place, options, kept)
        rows = {kind: read_rows(kept, kind) for kind in ("costs", "sizes", "checks")}
    return conclude(start.finish(rows), tables, expectations, options.json)


@contextmanager
def made(program: Program, folder: Path) -> Iterator[Place]:
    """The repository of a program; wheels are kept in the cache of the user."""
    cache = user_cache_folder() / "benchmark-programs"
    cache.mkdir(parents=True, exist_ok=True)
    place = Place(
        program, folder / program.name, folder / f"{program.name}-before", install_needed(cache)
    )
    make_repository(program, find_wheel(program.requirement, cache / "wheels"), place.folder)
    git(place.folder, "worktree", "add", "--detach", "--quiet", str(place.tree))
    yield place


def measure(place: Place, options: Namespace, kept: Path) -> None:
    """All that is asked of one program, as far as it was not done before."""
    program = place.program
    known = {(row["program"], row["kind"]) for row in read_rows(kept, "sizes")}
    slowdowns = [each for each in program.slowdowns if each.kind in options.kinds]
    for change in slowdowns if options.size_rounds else ():
        if (program.name, change.kind) not in known:
            keep_row(kept, "sizes", asdict(find_size(place, change, options.size_rounds)))
    cost = find_cost(place)
    if all(row["program"] != program.name for row in read_rows(kept, "costs")):
        keep_row(kept, "costs", asdict(cost))
    done = {
        (row["program"], row["kind"], row["repetition"], row["is_busy"])
        for row in read_rows(kept, "checks")
    }
    loads = (False, True) if options.busy else (False,)
    asked: list[tuple[Slowdown | None, int]] = [(each, options.planted) for each in slowdowns]
    if SAME in options.kinds:
        asked.append((None, options.same))
    for planned, repetitions in asked:
        kind = SAME if planned is None else planned.kind
        for repetition, is_busy in product(range(repetitions), loads):
            if (program.name, kind, repetition, is_busy) not in done:
                neighbours = soak.neighbours("both busy", 0) if is_busy else nullcontext()
                with planted(planned, place.folder), neighbours:
                    found = check(place, planned, repetition, is_busy=is_busy)
                keep_row(kept, "checks", asdict(found))
                print(describe(found), file=sys.stderr, flush=True)


def find_size(place: Place, change: Slowdown, rounds: int) -> Size:
    found = time_slowdown(change, Trees(place.folder, place.tree, place.site), rounds)
    size = Size(
        place.program.name, change.kind, found.before_ms, found.ratio, found.low, found.high
    )
    print(f"{size.program}, {size.kind}: x{size.ratio:.3f}", file=sys.stderr, flush=True)
    return size


def find_cost(place: Place) -> Cost:
    """Records and commits the baseline, and times runs that find nothing changed."""
    (place.folder / _PLAIN).write_text(_PLAIN_TEXT, encoding="utf-8")
    commit(place.folder, "A test without a check")
    recorded = run_pytest(place, TEST, "--modelperf-update-baseline")
    if recorded.code:
        raise SystemExit(f"{place.program.name} was not recorded:\n{recorded.output[-3000:]}")
    commit(place.folder, "The baseline")
    pairs = [(run_pytest(place, TEST), run_pytest(place, _PLAIN)) for _ in range(_PAIRS)]
    is_right = all(not checked.code and not plain.code for checked, plain in pairs)
    return Cost(
        place.program.name,
        round(recorded.seconds, 2),
        round(statistics.median(each.seconds for each, _ in pairs), 2) if is_right else None,
        round(statistics.median(each.seconds for _, each in pairs), 2) if is_right else None,
    )


def run_pytest(place: Place, test: str, *options: str) -> Ran:
    with tempfile.TemporaryDirectory() as name:
        report = Path(name, "report.json")
        begun = time.monotonic()
        # The process leads a group, so that a check without an end is killed with its stations.
        process = subprocess.Popen(
            [
                sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--modelperf",
                f"--modelperf-json={report}", *options, test,
            ],
            cwd=place.folder,
            env=environment(place.site, COLUMNS="120"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **TREES.popen_options(),
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            TREES.tree_of(process.pid).kill()
            output, _ = process.communicate()
            output += f"\nended after {_LIMIT_S:g} s"
        seconds = time.monotonic() - begun
        cases = json.loads(report.read_text("utf-8"))["cases"] if report.exists() else []
    return Ran(process.returncode, seconds, output, cases)


def check(place: Place, change: Slowdown | None, repetition: int, *, is_busy: bool) -> Check:
    """A check of the work tree as it is."""
    ran = run_pytest(place, TEST)
    case: Mapping[str, Any] = ran.cases[0] if ran.cases else {}
    metrics: Sequence[Mapping[str, Any]] = case.get("metrics", ())
    p50: Mapping[str, Any] = next((m for m in metrics if m["name"] == "latency_p50"), {})
    reasons = tuple(case.get("reasons", ()))[:_MOST_REASONS]
    verdict = case.get("verdict")
    has_reason = bool(change and reasons and re.search(change.reason, reasons[0]))
    return Check(
        program=place.program.name,
        kind=SAME if change is None else change.kind,
        repetition=repetition,
        is_busy=is_busy,
        verdict=verdict,
        ratio=p50.get("ratio"),
        seconds=round(ran.seconds, 1),
        rounds=case.get("rounds"),
        reasons=reasons,
        is_right=verdict not in _FOUND if change is None else has_reason,
        problem=None if verdict is not None else ran.output[-2000:],
    )


def describe(found: Check) -> str:
    change = "" if found.ratio is None else f", x{found.ratio:.3f}"
    first = f": {found.reasons[0]}" if found.reasons else ""
    mark = "" if found.is_right else "  <- wrong"
    return (
        f"{found.program}, {found.kind} {found.repetition}: {found.verdict}{change}, "
        f"{found.seconds:.1f} s{first}{mark}"
    )


# -- what was found


def checks_of(result: Result) -> list[Check]:
    rows = result.rows["checks"]
    return [Check(**{**row, "reasons": tuple(row["reasons"])}) for row in rows]


def sizes_of(result: Result) -> dict[tuple[str, str], Size]:
    sizes = [Size(**row) for row in result.rows["sizes"]]
    return {(each.program, each.kind): each for each in sizes}


def planted_checks(result: Result) -> list[Check]:
    """The checks of slowdowns that are at least as large as asked, as far as that is known."""
    sizes = sizes_of(result)
    return [
        each
        for each in checks_of(result)
        if each.kind != SAME
        and ((size := sizes.get((each.program, each.kind))) is None or size.ratio >= LEAST_RATIO)
    ]


def tables(result: Result) -> dict[str, str]:
    sizes = sizes_of(result)
    checks = checks_of(result)
    lines = []
    for key in dict.fromkeys(map(_row_of, checks)):
        own = [each for each in checks if _row_of(each) == key]
        program, kind, is_busy = key
        size = sizes.get((program, kind))
        found = sum(each.is_found for each in own)
        lines.append(
            (
                program,
                kind,
                "both busy" if is_busy else "quiet",
                "" if size is None else f"{100 * (size.ratio - 1):+.0f} %",
                f"{found} of {len(own)}",
                f"{sum(each.is_open for each in own)} of {len(own)}",
                "" if kind == SAME else f"{sum(each.is_right for each in own)} of {len(own)}",
                f"{statistics.median(each.seconds for each in own):.1f} s",
            )
        )
    titles = (
        "program", "change", "load", "true size", "called slower", "left open",
        "first reason right", "median",
    )  # fmt: skip
    return {
        "programs": markdown(titles, lines, "lllrrrrr"),
        "programs costs": _cost_table(result),
        "programs short": _sentence(result),
    }


def _row_of(found: Check) -> tuple[str, str, bool]:
    return found.program, found.kind, found.is_busy


def _cost_table(result: Result) -> str:
    lines = []
    for row in result.rows["costs"]:
        cost = Cost(**row)
        beyond = "" if (found := beyond_start(cost)) is None else f"{found:.2f} s"
        lines.append((cost.program, f"{cost.recording:.1f} s", beyond))
    return markdown(("program", "recording", "unchanged, beyond pytest's own start"), lines)


def _sentence(result: Result) -> str:
    checks = planted_checks(result)
    same = [each for each in checks_of(result) if each.kind == SAME]
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
    same = [each for each in checks_of(result) if each.kind == SAME]
    checks = planted_checks(result)
    costs = [Cost(**row) for row in result.rows["costs"]]
    alarms = sum(each.is_found for each in same)
    found = [
        Expectation("a comment changed: alarms", "none", f"{alarms} of {len(same)}", alarms == 0),
        _share("a slowdown of 5 % or more: found", [each.is_found for each in checks]),
        _share("its first reason: right", [each.is_right for each in checks]),
        _most("recording", MOST_RECORDING_S, [each.recording for each in costs]),
        _most(
            "an unchanged program, beyond pytest's own start",
            MOST_UNCHANGED_S,
            [seconds for each in costs if (seconds := beyond_start(each)) is not None],
        ),
    ]
    busy = [each.seconds for each in checks if each.is_busy and _is_ten_percent(each, result)]
    if busy:
        found.append(_most("+10 % with both cores busy, median", MOST_BUSY_S, busy))
    return tuple(found)


def _is_ten_percent(found: Check, result: Result) -> bool:
    size = sizes_of(result).get((found.program, found.kind))
    if size is None:
        return False
    low, high = _TEN_PERCENT
    return low <= size.ratio <= high and _SHORT_MS[0] <= size.before_ms <= _SHORT_MS[1]


def _share(what: str, held: Sequence[bool]) -> Expectation:
    expected = f"in {100 * LEAST_FOUND:g} %"
    if not held:
        return Expectation(what, expected, "no check", None)
    return Expectation(
        what, expected, f"{sum(held)} of {len(held)}", sum(held) >= LEAST_FOUND * len(held)
    )


def _most(what: str, limit: float, seconds: Sequence[float]) -> Expectation:
    expected = f"at most {limit:g} s"
    if not seconds:
        return Expectation(what, expected, "not measured", None)
    typical = statistics.median(seconds)
    return Expectation(what, expected, f"{typical:.2f} s", typical <= limit)


if __name__ == "__main__":
    sys.exit(main())
