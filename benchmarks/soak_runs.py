"""The runs of a soak: what was said of their cases, what they left, and what that comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from expected import Expectation, expect_share
from kept import rounded
from results import Result
from shown import count_of, grouped, markdown, median_of

from pytest_modelperf.comparing.gates import RUN_LEVEL

VERDICTS = ("regressed", "improved", "passed", "inconclusive")
WAYS = ("twin", "older model", "one process")
NOISES = ("none", "a core busy", "memory", "both busy", "bursts")
STORED = "stored samples"
MAX_GROWTH_BYTES = 2_000_000
# The share of comparisons that is to be decided, whatever the neighbours do.
MIN_DECIDED = 0.9


@dataclass(frozen=True, slots=True)
class Figure:
    """One judged percentile of a comparison: the verdict on it, the ratio and its interval."""

    name: str
    verdict: str
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def is_beside_one(self) -> bool:
        """Whether 1, which is the truth here, is not in the interval."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class Compared:
    """One case of a run, and what was said of it; `failure` is why nothing could be."""

    case: str
    way: str
    verdict: str | None
    seconds: float
    rounds: int | None
    figures: tuple[Figure, ...]
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What the program has: memory, threads, open files. `process` is another at each start."""

    process: str
    rss_bytes: int
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of every case: under which noise, in which way, and what it left behind."""

    number: int
    noise: str
    way: str
    seconds: float
    cases: tuple[Compared, ...]
    left: tuple[str, ...]
    held: Held

    def has_called(self, verdict: str) -> bool:
        """Whether any figure of its duets has this verdict."""
        return any(
            figure.verdict == verdict
            for case in self.cases
            if case.way != STORED
            for figure in case.figures
        )


def read_case(model: str, case: Mapping[str, Any], way: str) -> Compared:
    """A case of the JSON of a run or of a comparison."""
    judged = [m for m in case["metrics"] if m["gated"] and m["name"].startswith("latency")]
    is_duet = not any(note.startswith("not run as a duet") for note in case["notes"])
    failure = case["failure"]
    if failure is None and (case["verdict"] not in VERDICTS or not judged):
        failure = f"nothing was judged, it is {case['verdict']}"
    figures = []
    for metric in judged:
        low, high = metric["interval"] or (None, None)
        ratios = (rounded(value) for value in (metric["ratio"], low, high))
        figures.append(Figure(metric["name"], metric["verdict"], *ratios))
    return Compared(
        case=f"{Path(model).stem} {case['id']}",
        way=way if is_duet else STORED,
        verdict=case["verdict"],
        seconds=round(case["seconds"] or 0.0, 2),
        rounds=case["rounds"],
        figures=tuple(figures),
        failure=failure,
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """What the program held in its first run, after its warm-up and in the end.

    `made` are the comparisons that it had made itself by then; `bytes_a_hundred` is by how much its
    memory grew with 100 of these after the warm-up.
    """

    made: tuple[int, ...]
    held: tuple[Held, ...]
    bytes_a_hundred: float

    @property
    def is_flat(self) -> bool:
        _, warm, last = self.held
        return (warm.threads, warm.files) == (last.threads, last.files)


def find_growth(runs: Sequence[Run]) -> Growth | None:
    """That of the last start of the program; None where it made too few comparisons itself.

    A quarter of its runs, those by pytest among them, are its warm-up.
    """
    made, counts, held = 0, [], []
    for run in runs:
        if run.held.process == runs[-1].held.process:
            made += len(run.cases) if run.way == "one process" else 0
            counts.append(made)
            held.append(run.held)
    warm = len(held) // 4
    if len(set(counts[warm:])) < 3:
        return None
    memory = [each.rss_bytes for each in held[warm:]]
    slope = float(np.polyfit(counts[warm:], memory, 1)[0])
    return Growth(
        tuple(counts[place] for place in (0, warm, -1)),
        tuple(held[place] for place in (0, warm, -1)),
        100 * slope,
    )


def tables(result: Result) -> dict[str, str]:
    runs = result.read("runs", Run)
    cases = cases_of(runs)
    noises = {noise: cases_of(own) for noise, own in grouped(runs, lambda run: run.noise).items()}
    order = [noise for noise in NOISES if noise in noises]
    by_noise = {noise: noises[noise] for noise in order}
    by_way = grouped(cases, lambda case: case.way)
    return {
        "soak by noise": _count_table("neighbours", {**by_noise, "all": cases}),
        "soak by way": _count_table("compared with", {**by_way, "all": cases}),
        "soak in one process": _growth_table(find_growth(runs)),
    }


def _count_table(head: str, groups: Mapping[str, Sequence[Compared]]) -> str:
    """What was said of the comparisons of each group, and how long one took."""
    rows = []
    for name, cases in groups.items():
        told = Counter("failed" if case.failure else case.verdict for case in cases)
        seconds = [case.seconds for case in cases]
        figures = [figure for case in cases for figure in case.figures]
        rows.append(
            (
                name,
                len(cases),
                *(told[answer] for answer in (*VERDICTS, "failed")),
                count_of(f.verdict != "inconclusive" for f in figures if f.name == "latency_p50"),
                count_of(figure.is_beside_one for figure in figures if figure.low is not None),
                median_of(seconds),
                f"{float(np.quantile(seconds, 0.9)):.1f}",
            )
        )
    header = (head, "comparisons", *VERDICTS, "failed", "p50 decided", "intervals without 1")
    return markdown((*header, "median s", "90 % within s"), rows)


def _growth_table(growth: Growth | None) -> str:
    if growth is None:
        return "Too few comparisons were made in one process to tell whether it grows."
    moments = ("the first run", "its warm-up", "the last run")
    rows = [
        (when, made, f"{held.rss_bytes / 1e6:.1f}", held.threads, held.files)
        for when, made, held in zip(moments, growth.made, growth.held, strict=True)
    ]
    return markdown(("after", "comparisons", "memory, MB", "threads", "open files"), rows)


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(_expectations(result.read("runs", Run)))


def _expectations(runs: Sequence[Run]) -> Iterator[Expectation]:
    most = max(1, round(RUN_LEVEL * len(runs)))
    for verdict in ("regressed", "improved"):
        count = sum(run.has_called(verdict) for run in runs)
        what, expected = f"runs with something called {verdict}", f"at most {most} of {len(runs)}"
        yield Expectation(what, expected, str(count), count <= most)
    cases = cases_of(runs)
    decided = (case.verdict in VERDICTS[:-1] for case in cases)
    yield expect_share("comparisons decided", decided, MIN_DECIDED)
    failed = sum(case.failure is not None for case in cases)
    yield Expectation("comparisons that failed", "none", str(failed), not failed)
    left = ", ".join(what for run in runs for what in run.left)
    yield Expectation("processes, files and locks left", "none", left or "none", not left)
    growth = find_growth(runs)
    if growth is not None:
        _, warm, last = growth.held
        change = f"{last.threads - warm.threads:+d} and {last.files - warm.files:+d}"
        yield Expectation("threads and open files gained", "none", change, growth.is_flat)
        what, limit = "memory gained in 100 comparisons", f"at most {MAX_GROWTH_BYTES / 1e6:g} MB"
        gained = growth.bytes_a_hundred
        yield Expectation(what, limit, f"{gained / 1e6:+.2f} MB", gained <= MAX_GROWTH_BYTES)


def cases_of(runs: Sequence[Run]) -> list[Compared]:
    return [case for run in runs for case in run.cases]


def progress(runs: Sequence[Run]) -> str:
    """The last run in a line."""
    run = runs[-1]
    told = Counter("failed" if case.failure else case.verdict for case in run.cases)
    said = ", ".join(f"{count} {answer}" for answer, count in told.items())
    left = f"; left: {', '.join(run.left)}" if run.left else ""
    memory = run.held.rss_bytes / 1e6
    return (
        f"{len(cases_of(runs))} compared, run {run.number}: {run.noise}, {run.way}, "
        f"{run.seconds:.0f} s, {said}, {memory:.0f} MB{left}"
    )
