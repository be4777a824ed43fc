"""How often a history shows a step, under simulated noise, and how long a large one takes to list.

    python benchmarks/history.py [--series 1000] [--otava PYTHON]

Each series is a year of runs: ratios whose intervals are estimated from a few rounds, as those of a
duet are, and baselines that are recorded anew now and then, so that errors of links add up. One
kind has no step at all, in the other the cost grows by 3 % some points before the end. No model
runs and no clock is read for these: the figures depend on the seed alone. With a Python that has
apache-otava, the same series are given to its published method, E-divisive means with a t test
(Fleming et al., 2023: https://doi.org/10.1145/3578244.3583719).
"""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import results
from results import Expectation, Result, Start, conclude, markdown
from scipy import stats as scipy_stats

from pytest_modelperf.history.records import LINE_SCHEMA, HistoryLine, HistoryMetric, StoredRatio
from pytest_modelperf.history.summary import ChainOfCase, chain_cases
from pytest_modelperf.stats.change_points import find_changes

LEVEL = 0.01
STEP = 0.03
FOUND = 0.9
POINTS = 60
# The points after a step by which it must be found.
AFTER = 5
CONFIDENCE = 0.99
# Standard deviations of the difference of a round, and rounds of a run.
SPREADS = (0.005, 0.01, 0.02)
ROUNDS = (6, 18)
# The runs after which a model becomes the next baseline; 0: never.
LINKS = (0, 15)
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
SEED = 1
OURS = "ours"
PEER = Path(__file__).with_name("otava_steps.py")


@dataclass(frozen=True, slots=True)
class Kind:
    """How noisy the runs of a series are."""

    spread: float
    rounds: int
    links: int


@dataclass(frozen=True, slots=True)
class Found:
    """How many series of a kind have a change point, or have it where the step is."""

    spread: float
    rounds: int
    links: int
    step: float
    series: int
    found: int
    method: str = OURS


KINDS = tuple(Kind(a, b, c) for a in SPREADS for b in ROUNDS for c in LINKS)


@cache
def critical(rounds: int) -> float:
    return float(scipy_stats.t.ppf((1 + CONFIDENCE) / 2, rounds - 1))


def measure(random: np.random.Generator, truth: float, kind: Kind) -> StoredRatio:
    """A ratio from the rounds of a run, with the interval that a t distribution gives it."""
    rounds = random.normal(truth, kind.spread, kind.rounds)
    width = critical(kind.rounds) * float(rounds.std(ddof=1)) / math.sqrt(kind.rounds)
    centre = float(rounds.mean())
    return StoredRatio(
        ratio=math.exp(centre),
        low=math.exp(centre - width),
        high=math.exp(centre + width),
        confidence=CONFIDENCE,
    )


def simulate_series(random: np.random.Generator, kind: Kind, step: float) -> Iterator[HistoryLine]:
    """The lines of a series; each run checks another model of the same speed, but for the step."""
    baseline, baseline_level = "first", 0.0
    for index in range(POINTS):
        level = math.log1p(step) if index >= POINTS - AFTER else 0.0
        model = f"model {index}"
        yield HistoryLine(
            schema=LINE_SCHEMA,
            date=BEGIN + dt.timedelta(days=index),
            commit=None,
            branch=None,
            model="simulated",
            machine="simulated",
            case="b1-c1",
            engine=None,
            engine_version=None,
            digest=model,
            baseline=baseline,
            recorded=False,
            verdict="passed",
            p50=measure(random, level - baseline_level, kind),
            p95=None,
            figures=None,
            load_ms=None,
            peak_rss_bytes=None,
            seconds=None,
            how="duet",
        )
        if kind.links and index % kind.links == kind.links - 1:
            baseline, baseline_level = model, level


def chain_of(random: np.random.Generator, kind: Kind, step: float) -> ChainOfCase:
    (chain,) = chain_cases(simulate_series(random, kind, step), HistoryMetric.P50).values()
    return chain


def find_steps(chain: ChainOfCase) -> list[int]:
    return [change.index for change in find_changes(chain.levels)]


def simulate(series: int, step: float, otava: str | None) -> list[Found]:
    """So many series in all, of each kind the same number."""
    each = -(-series // len(KINDS))
    random = np.random.default_rng(SEED)
    chains = {kind: [chain_of(random, kind, step) for _ in range(each)] for kind in KINDS}
    # The first point of a step may be found one run too early.
    first = POINTS - AFTER - 1 if step else 0
    made = []
    for kind, of_kind in chains.items():
        steps = {OURS: list(map(find_steps, of_kind))}
        if otava is not None:
            steps |= ask_otava(otava, of_kind)
        for method, found in steps.items():
            hits = sum(any(index >= first for index in indexes) for indexes in found)
            made.append(Found(kind.spread, kind.rounds, kind.links, step, each, hits, method))
    return made


def ask_otava(python: str, chains: Sequence[ChainOfCase]) -> dict[str, list[list[int]]]:
    """The change points of each chain by the options of Otava, which runs in its own Python."""
    series = [[math.exp(point.level) for point in chain.points] for chain in chains]
    ran = subprocess.run(
        [python, str(PEER)],
        input=json.dumps(series),
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(ran.stdout)
    label = f"Otava {answer['version']}"
    return {f"{label}, {name}": found for name, found in answer["found"].items()}


def tables(result: Result) -> dict[str, str]:
    rows = [Found(**row) for row in result.rows["series"]]
    lines = []
    for kind in KINDS:
        noise, stepped = (
            next(
                row
                for row in rows
                if _kind(row) == kind and bool(row.step) is has_step and row.method == OURS
            )
            for has_step in (False, True)
        )
        lines.append(
            (
                f"{100 * kind.spread:g} %",
                str(kind.rounds),
                f"every {kind.links}" if kind.links else "never",
                f"{noise.found} of {noise.series}",
                f"{stepped.found} of {stepped.series}",
            )
        )
    titles = ("spread of a round", "rounds", "new baseline", "noise with a step", "steps found")
    text = (
        f"{markdown(titles, lines)}\n\n"
        f"Series of {POINTS} runs: of pure noise, and with a step of {100 * STEP:g} % before the "
        f"last {AFTER} points."
    )
    return {"history": text, "history methods": _method_table(rows)}


def _method_table(rows: Sequence[Found]) -> str:
    """What each method found of the same series."""
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        cells = [method]
        for has_step in (False, True):
            for is_linked in (False, True):
                own = [
                    row
                    for row in rows
                    if row.method == method
                    and bool(row.step) is has_step
                    and bool(row.links) is is_linked
                ]
                found, series = sum(row.found for row in own), sum(row.series for row in own)
                cells.append(f"{found} of {series} ({100 * found / series:.1f} %)")
        lines.append(tuple(cells))
    titles = (
        "method",
        "noise with a step, one baseline",
        f"noise with a step, a new baseline every {max(LINKS)} runs",
        "steps found, one baseline",
        f"steps found, a new baseline every {max(LINKS)} runs",
    )
    return markdown(titles, lines)


def _kind(row: Found) -> Kind:
    return Kind(row.spread, row.rounds, row.links)


def expectations(result: Result) -> tuple[Expectation, ...]:
    rows = [Found(**row) for row in result.rows["series"]]
    rows = [row for row in rows if row.method == OURS]
    noise, stepped = ([row for row in rows if bool(row.step) is s] for s in (False, True))
    false, series = (sum(getattr(row, key) for row in noise) for key in ("found", "series"))
    found, steps = (sum(getattr(row, key) for row in stepped) for key in ("found", "series"))
    return (
        Expectation(
            "series of pure noise with a step",
            f"at most {100 * LEVEL:g} %",
            f"{false} of {series}",
            false <= LEVEL * series,
        ),
        Expectation(
            f"steps of {100 * STEP:g} % found within {AFTER} points",
            f"at least {100 * FOUND:g} %",
            f"{found} of {steps}",
            found >= FOUND * steps,
        ),
    )


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--series", type=int, default=1000, help="of pure noise, and a third")
    parser.add_argument("--otava", metavar="PYTHON", help="a Python that has apache-otava")
    arguments = parser.parse_args()
    series: int = arguments.series
    if series < 3:
        parser.error("--series takes 3 or more")
    start = Start.now("history")
    otava: str | None = arguments.otava
    found = [*simulate(series, 0.0, otava), *simulate(series // 3, STEP, otava)]
    rows = {"series": [asdict(each) for each in found]}
    return conclude(start.finish(rows), tables, expectations, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
