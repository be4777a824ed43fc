"""How long `modelperf history` takes to list a large history, and how much memory.

    python benchmarks/listing.py [--points 1000000]

The history is made up: models with ten cases each and a thousand points a case, of pure noise. The
command runs three times in a process of its own: without an index, with the index that the first
run left, and after one more test run added a line for each case of one model. Counted is the
processor time, which other programs on the machine hardly change.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import results
from results import Expectation, Result, Start, conclude, markdown

from pytest_modelperf.history.records import (
    LINE_SCHEMA,
    HistoryLine,
    StoredFigures,
    StoredRatio,
)
from pytest_modelperf.history.store import HistoryStore

CASES, POINTS = 10, 1000
ERROR = 0.004
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
SECONDS, BYTES = 2.0, 500e6
FIRST, AGAIN, ADDED = "first listing", "listed again", "one model of them run once more"


@dataclass(frozen=True, slots=True)
class Listed:
    """One listing: its processor time, and its peak of memory."""

    what: str
    points: int
    seconds: float
    peak_bytes: int
    file_bytes: int


def make_lines(model: int, runs: range) -> Iterator[HistoryLine]:
    """The lines of so many runs of one model; every run checks a model of the same speed."""
    drawn = random.Random(f"{model} {runs}")
    for index in runs:
        for case in range(CASES):
            ratio = 1.0 + drawn.gauss(0.0, ERROR)
            stored = StoredRatio(ratio=ratio, low=ratio * 0.99, high=ratio * 1.01, confidence=0.99)
            yield HistoryLine(
                schema=LINE_SCHEMA,
                date=BEGIN + dt.timedelta(hours=index),
                commit=f"{index:040x}",
                branch="main",
                model=f"models--m{model}",
                machine="linux-x86_64-2c",
                case=f"b{2**case}-c1",
                engine="onnxruntime",
                engine_version="1.32.0",
                digest=f"{model:032x}{index:032x}",
                baseline=f"{model:064x}",
                recorded=False,
                verdict="passed",
                p50=stored,
                p95=stored,
                figures=StoredFigures(
                    macs=10**9, params=10**7, weight_bytes=10**7, peak_activation_bytes=10**6
                ),
                load_ms=21.3,
                peak_rss_bytes=10**8,
                seconds=1.2,
                how="duet",
            )


def list_once(what: str, folder: Path, points: int) -> Listed:
    """One run of the command; its output goes nowhere."""
    command = [
        sys.executable,
        "-m",
        "pytest_modelperf",
        "history",
        "--dir",
        str(folder / "history"),
    ]
    environment = {**os.environ, "MODELPERF_CACHE_DIR": str(folder / "cache")}
    nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    child = os.posix_spawn(sys.executable, command, environment, file_actions=[nowhere])
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(command)} failed")
    return Listed(
        what,
        points,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * _bytes_of_rss(),
        sum(path.stat().st_size for path in folder.rglob("*.jsonl")),
    )


def _bytes_of_rss() -> int:
    """The unit of `ru_maxrss`."""
    return 1 if sys.platform == "darwin" else 1024


def measure(points: int) -> Iterator[Listed]:
    models = max(1, points // (CASES * POINTS))
    made = models * CASES * POINTS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store = HistoryStore(folder / "history")
        for model in range(models):
            store.append(make_lines(model, range(POINTS)))
        yield list_once(FIRST, folder, made)
        yield list_once(AGAIN, folder, made)
        store.append(make_lines(0, range(POINTS, POINTS + 1)))
        yield list_once(ADDED, folder, made + CASES)


def tables(result: Result) -> dict[str, str]:
    rows = [Listed(**row) for row in result.rows["listed"]]
    lines = [
        (row.what, f"{row.points:,}", f"{row.seconds:.1f} s", f"{row.peak_bytes / 1e6:.0f} MB")
        for row in rows
    ]
    text = markdown(("listing", "points", "processor time", "peak memory"), lines)
    size = rows[0].file_bytes / 1e6
    return {
        "listing": f"{text}\n\nThe files have {size:.0f} MB, {CASES} cases a file and "
        f"{POINTS:,} points a case."
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    rows = [Listed(**row) for row in result.rows["listed"]]
    slowest = max((row for row in rows if row.what != FIRST), key=lambda row: row.seconds)
    largest = max(rows, key=lambda row: row.peak_bytes)
    first = next(row for row in rows if row.what == FIRST)
    return (
        Expectation(
            "first listing of a large history",
            f"at most {SECONDS:g} s",
            f"{first.seconds:.1f} s",
            first.seconds <= SECONDS,
        ),
        Expectation(
            "later listings",
            f"at most {SECONDS:g} s",
            f"{slowest.seconds:.1f} s, {slowest.what}",
            slowest.seconds <= SECONDS,
        ),
        Expectation(
            "memory of a listing",
            f"at most {BYTES / 1e6:.0f} MB",
            f"{largest.peak_bytes / 1e6:.0f} MB",
            largest.peak_bytes <= BYTES,
        ),
    )


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--points", type=int, default=1_000_000, help="of all cases together")
    arguments = parser.parse_args()
    points: int = arguments.points
    if points < CASES * POINTS:
        parser.error(f"--points takes {CASES * POINTS:,} or more")
    start = Start.now("listing")
    rows = {"listed": [asdict(each) for each in measure(points)]}
    return conclude(start.finish(rows), tables, expectations, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
