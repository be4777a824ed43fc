"""Recorded rounds of duets, and what each figure of a round would have decided on them.

    python benchmarks/rounds.py                              replay what is stored beside it
    python benchmarks/rounds.py --record benchmarks/rounds   record here, some ten minutes
    python benchmarks/rounds.py --record f --only fast-1-noisy

A chain of equal blocks runs beside the same chain with other weights, so every difference is
noise. It runs on 1 and 2 cores, as a fast model of a millisecond and as a slow one of some ten, on
the machine as it is and with 40 % of each core taken. Models of `soak.py` run on 2 cores beside
each of its neighbours. A replay draws rounds with replacement and applies the rule of the package:
to the differences as they are (how many pass), moved to the tolerance (how many pass wrongly, how
many raise an alarm), and moved to +5 % (how many are found).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soak
from results import markdown
from verdicts import chain, noise

from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import run_duet
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.prepare import Pair as ModelPair
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.duet import DuetRule, judge_sequence, plan_schedule
from pytest_modelperf.stats.estimates import paired_difference
from pytest_modelperf.stats.records import Turns

Floats = npt.NDArray[np.float64]
Pair = tuple[Turns, Turns]

STORED = Path(__file__).with_name("rounds")
ROUNDS = 60
MAX_SECONDS = 120.0
# Blocks of a fast model and of a slow one.
BLOCKS = {"fast": 20, "slow": 200}
DRAWN = 4_000
# The median of a case in a suite of twenty.
RULE = DuetRule(tolerance=0.03, level=0.9 * RUN_LEVEL / 20)
_MACHINES = {"quiet": "as it is", "noisy": "40 % taken"}
_SIDES = ("before", "after")
_KEPT = ("times_ns", "switches", "running_ns")


@dataclass(frozen=True, slots=True)
class Setting:
    """One recording: a model, its cores, and what else the machine did."""

    model: str
    cores: int
    machine: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.cores}-{self.machine.replace(' ', '_')}"


SETTINGS = [
    *(
        Setting(model, cores, machine)
        for model in BLOCKS
        for cores in (1, 2)
        for machine in ("quiet", "noisy")
    ),
    *(
        Setting(model, 2, machine)
        for model in ("short", "wide", "long")
        for machine in ("a core busy", "memory", "both busy", "bursts")
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="record rounds into it")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these settings alone")
    options = parser.parse_args()
    chosen = [each for each in SETTINGS if not options.only or each.name in options.only]
    if not chosen:
        parser.error(f"there are: {', '.join(each.name for each in SETTINGS)}")
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
        for setting in chosen:
            print(f"recording {setting.name}", file=sys.stderr, flush=True)
            store(options.record / f"{setting.name}.npz", record(setting))
        return 0
    print(table([(each, load(path)) for each in chosen if (path := path_of(each)).exists()]))
    return 0


def path_of(setting: Setting) -> Path:
    return STORED / f"{setting.name}.npz"


@dataclass(frozen=True, slots=True)
class _EveryRound:
    """Ends a duet after its last round, whatever was measured."""

    rounds: int = ROUNDS
    samples_needed: tuple[int, ...] = Gate().samples_needed
    has_limits: bool = False

    def is_decided(self, pairs: object) -> bool:
        del pairs
        return False


def record(setting: Setting) -> list[Pair]:
    """Rounds of a model beside itself with other weights."""
    setup = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS))
    request = ProfileRequest(cores=(setting.cores,))
    with tempfile.TemporaryDirectory() as name, _beside(setting.machine):
        models = []
        for side, seed in zip(_SIDES, (0, 1), strict=True):
            folder = Path(name, side)
            folder.mkdir()
            if setting.model in BLOCKS:
                data = chain(BLOCKS[setting.model], seed).SerializeToString()
                (folder / f"{setting.model}.onnx").write_bytes(data)
            else:
                soak.write_models(folder, seed)
            path = folder / f"{setting.model}.onnx"
            models.append(prepare(Model.load(path, request, Extensions())))
        place = CasePlace(Case(1, setting.cores), 1, 1, lambda _: None)
        pair = ModelPair(models[0], models[1], setup, setup)
        duet = run_duet(pair, _EveryRound(), place)
    return [(each.before.block, each.after.block) for each in duet]


def _beside(machine: str) -> AbstractContextManager[None]:
    """What else the machine does."""
    if machine in soak.NEIGHBOURS:
        return soak.neighbours(machine, seed=0)
    return noise(machine == "noisy")


def store(path: Path, rounds: Sequence[Pair]) -> None:
    """Every turn of every round; -1 for what was not known of a turn."""
    arrays: dict[str, npt.NDArray[np.int64]] = {
        "turns": np.array([len(before.times_ns) for before, _ in rounds])
    }
    for index, side in enumerate(_SIDES):
        for name in _KEPT:
            found = [
                getattr(pair[index], name) or (-1,) * len(pair[index].times_ns) for pair in rounds
            ]
            arrays[f"{side}_{name}"] = np.concatenate([np.array(v, np.int64) for v in found])
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # numpy's types miss the names


def load(path: Path) -> list[Pair]:
    with np.load(path) as stored:
        ends = np.cumsum(stored["turns"])[:-1]
        sides = []
        for side in _SIDES:
            parts = {name: np.split(stored[f"{side}_{name}"], ends) for name in _KEPT}
            sides.append(
                [
                    Turns(
                        times_ns=tuple(parts["times_ns"][i].tolist()),
                        switches=_known(parts["switches"][i]),
                        running_ns=_known(parts["running_ns"][i]),
                    )
                    for i in range(len(stored["turns"]))
                ]
            )
    return list(zip(*sides, strict=True))


def _known(values: npt.NDArray[np.int64]) -> tuple[int, ...] | None:
    return tuple(values.tolist()) if (values >= 0).all() else None


# -- what a figure of a round decides

Figure = Callable[[Pair], float]


def _logs(side: Turns) -> Floats:
    return np.log(np.array(side.times_ns, dtype=np.float64))


def median_of_pairs(pair: Pair) -> float:
    before, after = map(_logs, pair)
    return float(np.median(after - before))


def low_quantile(pair: Pair, share: float = 0.1) -> float:
    before, after = map(_logs, pair)
    return float(np.quantile(after, share) - np.quantile(before, share))


FIGURES: dict[str, Figure] = {
    "median of all pairs": median_of_pairs,
    "p10 of each side": low_quantile,
    "**what the package takes**": paired_difference,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """How drawn duets ended, in percent, and after how many rounds on average."""

    worse: float
    passed: float
    rounds: float


def replay(differences: Floats, rule: DuetRule = RULE) -> Rates:
    """The rule on rounds that are drawn with replacement."""
    random = np.random.default_rng(0)
    drawn = differences[random.integers(0, len(differences), (DRAWN, rule.looks[-1]))]
    ended = judge_sequence(drawn, plan_schedule(rule), rule.margin)
    rounds = np.where(ended.answer == 0, rule.looks[-1], ended.rounds)
    return Rates(
        100 * float(np.mean(ended.answer > 0)),
        100 * float(np.mean(ended.answer < 0)),
        float(rounds.mean()),
    )


def table(recorded: Sequence[tuple[Setting, Sequence[Pair]]]) -> str:
    """A line for each setting and figure."""
    rows = []
    for setting, rounds in recorded:
        for title, figure in FIGURES.items():
            found = np.array([figure(pair) for pair in rounds])
            # The median of a recording is chance; the law of the test is about its centre.
            centred = found - np.median(found)
            # The sides are alike, so each difference could as well have been the other way round.
            centred = np.concatenate([centred, -centred])
            same = replay(found)
            at_tolerance = replay(centred + RULE.margin)
            slower = replay(centred + math.log(1.05))
            rows.append(
                (
                    setting.model,
                    str(setting.cores),
                    {"quiet": "as it is", "noisy": "40 % taken"}.get(
                        setting.machine, setting.machine
                    ),
                    title,
                    f"{100 * found.std(ddof=1):.1f} %",
                    f"{same.passed:.0f} % ({same.rounds:.1f})",
                    f"{at_tolerance.worse:.2f} %, {at_tolerance.passed:.1f} %",
                    f"{slower.worse:.0f} % ({slower.rounds:.1f})",
                    f"{slower.passed:.1f} %",
                )
            )
    header = (
        "model", "cores", "machine", "figure of a round", "sd", "unchanged: passed (rounds)",
        "at +3 %: worse, passed", "+5 %: found (rounds)", "passed",
    )  # fmt: skip
    return markdown(header, rows, "lrllrrrrr")


if __name__ == "__main__":
    sys.exit(main())
