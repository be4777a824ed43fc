"""How often `modelperf tune` is right: about options that do nothing, and about planted bad ones.

    python benchmarks/tune.py                           160 tunings, an hour and a half
    python benchmarks/tune.py --nothing 8 --planted 3   a few
    python benchmarks/tune.py --folder f                keep what is found, and go on from it

The model is the chain of convolutions of `upgrade.py`. Options that do nothing are entries of the
configuration that ONNX Runtime does not know, which it ignores: none of them may be called better.
A planted option makes the baseline slower, and the winner has to set it otherwise: it is one of
some fifteen sets that share the time, of which `modelperf tune` takes 120 s unless it is told.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import results
from kept_rows import keep_row, read_rows
from results import Expectation, Result, Start, conclude, markdown
from upgrade import write_chain

from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.tuning.records import TunedCase
from pytest_modelperf.tuning.request import TuningRequest

NOTHING = {"session.does_nothing": ("1", "2", "3", "4", "5", "6")}
PLANTED: Mapping[str, Mapping[str, str]] = {
    "no graph optimizations": {"graph_optimization_level": "none"},
    "one thread of two": {"intra_op_num_threads": "1"},
    "no spinning": {"session.intra_op.allow_spinning": "0"},
}
_AA = "options that do nothing"
ARMS: Mapping[str, Mapping[str, str]] = {_AA: {}, **PLANTED}
_ROWS = "tunings"


@dataclass(frozen=True, slots=True)
class Tuned:
    """One tuning: its winner and the speedup of that, if there is one.

    `is_right` claims that the winner changes the planted option, or that options that do nothing
    have none.
    """

    arm: str
    winner: str | None
    speedup: float | None
    low: float | None
    rounds: int
    seconds: float
    is_right: bool


def tune_often(model: Path, asked: argparse.Namespace, folder: Path) -> None:
    """Adds the tunings that a folder lacks to those that it has."""
    for arm, options in ARMS.items():
        known = sum(row["arm"] == arm for row in read_rows(folder, _ROWS))
        count = asked.planted if options else asked.nothing
        seconds = asked.planted_seconds if options else asked.seconds
        for _ in range(known, count):
            found = tune_once(str(model), arm, options, asked.cores, seconds)
            keep_row(folder, _ROWS, asdict(found))
            print(f"{arm}: {found.winner}, {found.speedup}, {found.seconds:.0f} s", flush=True)


def tune_once(
    model: str, arm: str, options: Mapping[str, str], cores: int, seconds: float
) -> Tuned:
    setup = Setup(options=options, policy=SamplingPolicy(max_seconds=seconds))
    wanted = {} if options else NOTHING
    asked = TuningRequest(ModelRun(model, setup), ProfileRequest(cores=(cores,)), wanted)
    found = asked.run(Extensions())
    (case,) = found.cases
    speedup = None if case.confirmed is None else case.confirmed.speedup
    return Tuned(
        arm=arm,
        winner=None if case.winner is None else case.winner.name,
        speedup=None if speedup is None else speedup.value,
        low=None if speedup is None else speedup.low,
        rounds=case.rounds,
        seconds=found.seconds,
        is_right=_is_right(case, options),
    )


def _is_right(case: TunedCase, options: Mapping[str, str]) -> bool:
    if case.failure is not None:
        return False
    if not options:
        return case.winner is None
    return case.winner is not None and bool(case.winner.options.keys() & options.keys())


def tables(result: Result) -> dict[str, str]:
    lines = []
    for arm, rows in _arms(result).items():
        right = sum(row.is_right for row in rows)
        gains = sorted(row.speedup for row in rows if row.speedup is not None)
        middle = f"x{gains[len(gains) // 2]:.2f}" if gains else "-"
        seconds = sorted(row.seconds for row in rows)[len(rows) // 2]
        lines.append((arm, f"{right} of {len(rows)}", middle, f"{seconds:.0f} s"))
    header = ("baseline", "right", "median speedup of the winner", "median time")
    return {"tune": markdown(header, lines, "lrrr")}


def expectations(result: Result) -> tuple[Expectation, ...]:
    found = []
    for arm, rows in _arms(result).items():
        right = sum(row.is_right for row in rows)
        what = "not called better" if arm == _AA else "found"
        found.append(
            Expectation(
                f"{arm}: {what}", f"{len(rows)} of {len(rows)}", f"{right}", right == len(rows)
            )
        )
    return tuple(found)


def _arms(result: Result) -> dict[str, list[Tuned]]:
    found: dict[str, list[Tuned]] = {}
    for row in result.rows[_ROWS]:
        found.setdefault(row["arm"], []).append(Tuned(**row))
    return found


def main() -> int:
    asked = _options()
    start = Start.now("tune")
    with tempfile.TemporaryDirectory() as name:
        model = Path(name, "chain.onnx")
        write_chain(model)
        folder = (asked.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        tune_often(model, asked, folder)
        rows = read_rows(folder, _ROWS)
    return conclude(start.finish({_ROWS: rows}), tables, expectations, asked.json)


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    parser.add_argument("--nothing", type=int, default=100, help="tunings of options without use")
    parser.add_argument("--planted", type=int, default=20, help="tunings of each planted option")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a tuning without use")
    parser.add_argument("--planted-seconds", type=float, default=120.0, help="of each other")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
