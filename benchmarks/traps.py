"""How many models pass by their plan although a value makes them slower.

A trap is a pair of models that differ in the value of one operand (`trap_models.py`). It goes the
way of a user: baselines of the first models are recorded, the second ones take their places, and
`pytest --modelperf --modelperf-strict` checks them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from bare_sessions import start_session, time_ratio
from commands import run_pytest, write_settings
from expected import Expectation, expect_none
from kept import keep_row, read_rows
from measuring import Program, say
from results import Result, Rows
from shown import grouped, markdown, table
from trap_models import Trap, traps

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

LEAST_TRAPS = 60
# How much slower the second model of a pair has to be.
SLOWER = 1.05
# How an unchanged plan or model settles a case.
SETTLED = frozenset({"plan", "unchanged"})
# So many traps share a run of pytest.
_BATCH = 20
_RACE_SECONDS = 0.3

Feeds: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True)
class Sprung:
    """The result of a trap: by a bare loop, how many times as long its second model takes.

    `verdict` and `how` are those of the check; None if the case has no result.
    """

    name: str
    operator: str
    slower: float
    verdict: str | None
    how: str | None

    @property
    def is_confirmed(self) -> bool:
        return self.slower >= SLOWER

    @property
    def is_hole(self) -> bool:
        passes = self.how in SETTLED or self.verdict in {"passed", "improved", "unchanged"}
        return self.is_confirmed and passes


def measure(options: argparse.Namespace) -> Rows:
    """Record and check the traps that the folder lacks, some in each run of pytest."""
    chosen = traps()[:: options.every]
    known = {row["name"] for row in read_rows(options.folder, "traps")}
    left = iter([trap for trap in chosen if trap.name not in known])
    while batch := list(islice(left, _BATCH)):
        with tempfile.TemporaryDirectory() as place:
            for found in spring(batch, Path(place).resolve()):
                keep_row(options.folder, "traps", found)
                say(found)
    wanted = {trap.name for trap in chosen}
    rows = read_rows(options.folder, "traps")
    return {"traps": [row for row in rows if row["name"] in wanted]}


def spring(batch: Sequence[Trap], project: Path) -> Iterator[Sprung]:
    """The results of traps that share a project.

    What a plan settles is decided before any measurement, so these are short and wait for no other.
    """
    placed = {f"m{index:02}.onnx": trap for index, trap in enumerate(batch)}
    write_settings(project, {name: trap.settings for name, trap in placed.items()})
    for slower, option in ((False, "--modelperf-update-baseline"), (True, "--modelperf-strict")):
        for name, trap in placed.items():
            onnx.save(trap.model(slower=slower), project / name)
        own = {LOCK_VARIABLE: str(project / ".measuring")}
        ran = run_pytest(project, option, "--modelperf-max-seconds=0.1", environment=own)
        if ran.code not in {0, 1} or not ran.cases:
            raise RuntimeError(f"pytest ended with {ran.code}\n{ran.output}")
    cases = {case["model"]["name"]: case for case in ran.cases}
    for name, trap in placed.items():
        case, ratio = cases.get(name, {}), round(confirm(trap), 3)
        yield Sprung(trap.name, trap.recipe.operator, ratio, case.get("verdict"), case.get("how"))


def confirm(trap: Trap) -> float:
    """How many times as long the second model takes: the median of ratios of runs in turn.

    The time is that which this thread spent on a processor, so other processes hardly disturb it.
    """
    sessions = (start(trap, slower=False), start(trap, slower=True))
    feeds = make_feeds(sessions[0])
    for session in sessions:
        session.run(None, feeds)
    return time_ratio(sessions, feeds, _RACE_SECONDS, time.thread_time_ns)


def start(trap: Trap, *, slower: bool) -> onnxruntime.InferenceSession:
    """A session of one thread."""
    none = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options = {} if trap.is_optimized else {"graph_optimization_level": none}
    model = trap.model(slower=slower).SerializeToString()
    return start_session(model, log_severity_level=4, **options)


def make_feeds(session: onnxruntime.InferenceSession) -> Feeds:
    """Random numbers; an open size is one."""
    random = np.random.default_rng(0)
    return {
        each.name: random.random(
            [size if isinstance(size, int) else 1 for size in each.shape], dtype=np.float32
        )
        for each in session.get_inputs()
    }


# -- what was found


def tables(result: Result) -> dict[str, str]:
    sprung = result.read("traps", Sprung)
    columns = {
        "operator": lambda found: found[0].operator,
        "pairs": len,
        "confirmed": lambda found: sum(each.is_confirmed for each in found),
        "slower by up to": lambda found: f"{max(each.slower for each in found):.1f} times",
        "holes": lambda found: sum(each.is_hole for each in found),
    }
    by_operator = grouped(sprung, lambda each: each.operator).values()
    holes = [(e.name, f"{e.slower:.2f} times", e.verdict, e.how) for e in sprung if e.is_hole]
    titles = ("pair", "slower", "verdict", "by")
    return {
        "traps": table(by_operator, columns),
        "traps holes": markdown(titles, holes, "lrll") if holes else "None.",
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    sprung = result.read("traps", Sprung)
    confirmed = [each for each in sprung if each.is_confirmed]
    found, is_met = f"{len(confirmed)} of {len(sprung)}", len(confirmed) >= LEAST_TRAPS
    what = "pairs that a bare loop confirms to be 5 % slower"
    return (
        Expectation(what, f"at least {LEAST_TRAPS}", found, is_met),
        expect_none("of these, settled or passed", (each.is_hole for each in confirmed)),
    )


if __name__ == "__main__":
    program = Program("traps", __doc__, tables, expectations)
    program.number("--every", 1, "one trap in so many")
    sys.exit(program.run(measure))
