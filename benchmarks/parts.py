"""How right verdicts are that look at the changed parts of a model only, and how soon they come.

    python benchmarks/parts.py                               all of it, the better part of a day
    python benchmarks/parts.py --quick                       two models, some minutes
    python benchmarks/parts.py --models lstm yolo            these models alone
    python benchmarks/parts.py --changes "a wider kernel"    this change alone
    python benchmarks/parts.py --cores 1 --loads quiet       one core count, without added load
    python benchmarks/parts.py --folder f                    keep what is found, and go on from it
    python benchmarks/parts.py --truths old.json             use what an earlier run knows well

Models of many architectures are changed in one place, and compared with what they were by
`modelperf compare`, in both directions: each change is also undone. The truth of a change is a long
duet of whole models on a quiet machine, which ends when its interval is narrow or its time is over;
long_duet.py runs it, and shares no code with the tool. Then the comparisons are made under three
loads: quiet, with 40 % of each core taken, and with both cores busy.

One change is sized to make a model 0.5 % slower: both models have a chain of small kernels, one of
them a longer chain. The truth of a much longer chain is measured, and scaled by the length. The
rounds of its comparisons may take 4 s on a quiet machine, and 8 s under load. The whole command
takes longer, because it also loads both models and reads their plans; the tables show its median
time as well.

Run it on a machine that does nothing else; a truth is only as good as the quiet. The models need
about 3 GB of disk (`TMPDIR` or `--folder`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

import onnx
import results
import soak
from changes import CHANGES, add_kernels
from kept_rows import keep_row, read_rows
from long_duet import Slowdown
from onnx import ModelProto
from parts_results import (
    LOADS,
    PRECISION,
    QUIET,
    SLIGHT,
    SLIGHT_MAX_MS,
    SLIGHT_SECONDS,
    TAKEN,
    TRUTH_SECONDS,
    Check,
    Setting,
    Truth,
    check_of,
    expectations,
    read_check,
    row_of,
    tables,
)
from real import TWINS
from results import Start, conclude, list_names
from verdicts import noise
from yolo_model import yolo_model

from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import read_twin

YOLO = "yolo"
MODELS = (
    "lstm", "mobilenet_v2_qdq", "mobilenet_v2", "bert_4_int8", "llama_4", YOLO, "gpt2_4", "bert_4",
    "resnet50", "vit_6",
)  # fmt: skip
ALL_CHANGES = (*CHANGES, SLIGHT)
# The time of the rounds of one comparison.
MAX_SECONDS = 10.0
QUICK = {
    "models": ("lstm", "mobilenet_v2"),
    "changes": ("a pair of transposes", "a wider kernel", "a product in double", SLIGHT),
    "cores": (1,),
    "loads": (QUIET,),
    "truth_seconds": 12.0,
    "max_seconds": 4.0,
}
# Chains of kernels: the first trial, the slowdown that is measured and scaled, and the most pairs.
_TRIAL_PAIRS, _TRIAL_SECONDS = 32, 10.0
_MEASURED_SLOWDOWN, _WANTED_SLOWDOWN = 0.05, 0.005
_MOST_PAIRS = 512
_ROOT = Path(__file__).resolve().parent.parent
_LONG_DUET = Path(__file__).with_name("long_duet.py")


def main() -> int:
    options = _options()
    start = Start.now("parts")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, options.truth_seconds, options.max_seconds)
        if options.truths is not None:
            bench.adopt(options.truths)
        truths = [
            bench.truth(model, cores, change)
            for model in options.models
            for change in options.changes
            for cores in options.cores
        ]
        plan = plan_checks(options.loads, truths, options.repetitions)
        made = bench.run(plan, options.at_most)
    left = len(plan) - len(made)
    if left > 0:
        print(f"{left} of {len(plan)} comparisons are still to be made", file=sys.stderr)
    rows = {
        "truths": [asdict(each) for each in truths],
        "checks": [row_of(each) for each in made],
    }
    result = replace(start, started=start.started - bench.seconds_before).finish(
        rows, is_complete=left <= 0
    )
    return conclude(result, tables, expectations, options.json)


def plan_checks(loads: Sequence[str], truths: Sequence[Truth], repetitions: int) -> list[Setting]:
    """Every comparison, all models and changes once before any is repeated.

    A slight change is not undone, and only planned where it came out as small as was wanted.
    """
    plan = []
    for load in loads:
        for _ in range(repetitions):
            for truth in truths:
                if truth.ratio is None or (truth.change == SLIGHT and not truth.is_slight):
                    continue
                setting = Setting(load, truth.cores, truth.model, truth.change)
                plan.append(setting)
                if truth.change != SLIGHT:
                    plan.append(replace(setting, is_undone=True))
    return plan


@dataclass(slots=True)
class Bench:
    """The folder of models, truths and comparisons so far.

    `seconds_before` are those that earlier runs took for what is reused.
    """

    folder: Path
    truth_seconds: float
    max_seconds: float
    seconds_before: float = 0.0
    _model: tuple[str, ModelProto] | None = field(default=None)

    def run(self, plan: Sequence[Setting], at_most: int | None) -> list[Check]:
        """All comparisons of the plan; those that earlier runs stored in the folder are reused."""
        wanted = Counter(plan)
        made = []
        for check in map(check_of, read_rows(self.folder, "checks")):
            if wanted[check.setting]:
                wanted[check.setting] -= 1
                made.append(check)
        self.seconds_before += sum(check.seconds for check in made)
        if made:
            print(f"goes on from {len(made)} comparisons in {self.folder}", file=sys.stderr)
        left = []
        for setting in reversed(plan):
            if wanted[setting]:
                wanted[setting] -= 1
                left.append(setting)
        left.reverse()
        for load, settings in groupby(left[:at_most], lambda setting: setting.load):
            with loaded(load):
                for setting in settings:
                    made.append(self.check(setting))
                    if len(made) % 10 == 0:
                        print(f"{len(made)} of {len(plan)} comparisons", file=sys.stderr)
        return made

    def check(self, setting: Setting) -> Check:
        """Makes one comparison and stores it at once."""
        pairs = None
        if setting.change == SLIGHT:
            known = self._known_truth(setting.model, setting.cores, SLIGHT)
            pairs = None if known is None else known.pairs
        with self.sides(setting.model, setting.change, pairs) as sides:
            if sides is None:
                raise ValueError(f"{setting.model} has no place for {setting.change!r}")
            before, after = reversed(sides) if setting.is_undone else sides
            check = compare(setting, before, after, self.max_seconds)
        keep_row(self.folder, "checks", row_of(check))
        return check

    def truth(self, model: str, cores: int, change: str) -> Truth:
        """The truth of a change of a model on this number of cores, measured once."""
        known = self._known_truth(model, cores, change)
        if known is not None:
            self.seconds_before += known.seconds
            return known
        if change == SLIGHT:
            truth = self._slight_truth(model, cores)
        else:
            with self.sides(model, change, None) as sides:
                found = None if sides is None else self.duet(*sides, cores, self.truth_seconds)
            truth = truth_of(model, cores, change, found)
        keep_row(self.folder, "truths", asdict(truth))
        told = "has no place" if truth.ratio is None else f"{truth.ratio:.4f}"
        print(f"{model}, {cores} cores, {change}: {told}", file=sys.stderr)
        return truth

    def _known_truth(self, model: str, cores: int, change: str) -> Truth | None:
        for row in read_rows(self.folder, "truths"):
            if (row["model"], row["cores"], row["change"]) == (model, cores, change):
                return Truth(**row)
        return None

    def _slight_truth(self, model: str, cores: int) -> Truth:
        """The truth of a chain that takes 0.5 %, from that of one that takes about 5 %."""
        pairs = _TRIAL_PAIRS
        found = self._chain(model, cores, pairs, min(_TRIAL_SECONDS, self.truth_seconds))
        if found is not None:
            pairs = next_pairs(pairs, found.ratio)
            found = self._chain(model, cores, pairs, self.truth_seconds)
        return scaled_truth(model, cores, pairs, found)

    def _chain(self, model: str, cores: int, pairs: int, seconds: float) -> Slowdown | None:
        """How much these pairs slow a model; None if it has no place for them or is too slow."""
        with self.sides(model, SLIGHT, pairs) as sides:
            found = None if sides is None else self.duet(*sides, cores, seconds)
        return None if found is None or found.before_ms > SLIGHT_MAX_MS else found

    def duet(self, before: Path, after: Path, cores: int, seconds: float) -> Slowdown:
        """How much slower the second model is, by a long duet in a process of its own."""
        done = subprocess.run(
            [
                sys.executable, str(_LONG_DUET), str(before), str(after),
                f"--cores={cores}", f"--precision={PRECISION}", f"--seconds={seconds}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return Slowdown(**json.loads(done.stdout.splitlines()[-1]))

    @contextmanager
    def sides(
        self, model: str, change: str, pairs: int | None
    ) -> Iterator[tuple[Path, Path] | None]:
        """The paths of a model and of the changed one, which go with the context.

        None if the model has no place for the change. `pairs` are those that a chain of kernels has
        more.
        """
        before = self.model(model)
        after = CHANGES[change](before) if pairs is None else add_kernels(before, 1 + pairs)
        if pairs is not None:
            before = add_kernels(before, 1) or before
        if after is None:
            yield None
            return
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            paths = Path(place, "before.onnx"), Path(place, "after.onnx")
            for path, proto in zip(paths, (before, after), strict=True):
                _write(path, proto)
            yield paths

    def model(self, name: str) -> ModelProto:
        """A model with drawn weights. The last one is kept, because it is used often."""
        if self._model is None or self._model[0] != name:
            self._model = (name, self._made(name))
        return self._model[1]

    def _made(self, name: str) -> ModelProto:
        if name == YOLO:
            return yolo_model()
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            path = rebuild(read_twin(TWINS / f"{name}.onnx"), Path(place, "model.onnx"))
            return onnx.load(path)

    def adopt(self, document: Path) -> None:
        """Uses the truths of an earlier run where this folder has none.

        Those that a longer duet would make narrower are left out.
        """
        known = {
            (row["model"], row["cores"], row["change"]) for row in read_rows(self.folder, "truths")
        }
        for row in results.load(document).rows["truths"]:
            truth = Truth(**row)
            is_known = (truth.model, truth.cores, truth.change) in known
            if not is_known and truth.is_settled(PRECISION, self.truth_seconds):
                keep_row(self.folder, "truths", row)


def truth_of(model: str, cores: int, change: str, found: Slowdown | None) -> Truth:
    if found is None:
        return Truth(model, cores, change, None, None, None, 0, None)
    return Truth(
        model, cores, change, found.ratio, found.low, found.high, found.rounds, found.before_ms,
        seconds=found.seconds,
    )  # fmt: skip


def next_pairs(pairs: int, ratio: float) -> int:
    """The pairs of kernels that slow a model by 5 %, from the ratio of other ones."""
    each = max((ratio - 1) / pairs, _MEASURED_SLOWDOWN / _MOST_PAIRS)
    return max(1, round(_MEASURED_SLOWDOWN / each))


def scaled_truth(model: str, cores: int, pairs: int, found: Slowdown | None) -> Truth:
    """The truth of as many pairs as slow a model by 0.5 %, in proportion to that of `pairs`."""
    if found is None or found.ratio <= 1:
        return truth_of(model, cores, SLIGHT, None)
    wanted = max(1, round(_WANTED_SLOWDOWN / (found.ratio - 1) * pairs))
    ratio, low, high = (
        round(1 + (each - 1) * wanted / pairs, 6) for each in (found.ratio, found.low, found.high)
    )
    return Truth(
        model, cores, SLIGHT, ratio, low, high, found.rounds, found.before_ms, wanted, found.seconds
    )


def compare(setting: Setting, before: Path, after: Path, max_seconds: float) -> Check:
    """What the command says of two models, and how long it takes from start to end."""
    limit = SLIGHT_SECONDS[setting.load] if setting.change == SLIGHT else max_seconds
    told = before.with_name("told.json")
    started = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest_modelperf", "compare", str(before), str(after),
            "--batch=1", f"--cores={setting.cores}", f"--max-seconds={limit:g}",
            f"--tolerance=p50={setting.tolerance:g}", f"--json={told}",
        ],
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    seconds = round(time.monotonic() - started, 2)
    if not told.exists():
        failure = done.stderr.strip()[-500:] or f"it ended with {done.returncode}"
        return Check(setting, "", None, None, None, None, 0, seconds, failure)
    return read_check(setting, json.loads(told.read_text(encoding="utf-8")), seconds)


@contextmanager
def loaded(load: str) -> Iterator[None]:
    """The neighbours of a load, which end with the context."""
    if load == QUIET:
        yield
    elif load == TAKEN:
        with noise(is_on=True):
            yield
    else:
        with soak.neighbours("both busy", 0):
            yield


def _write(path: Path, proto: ModelProto) -> None:
    """Writes a model down to the disk, so that nothing is left to be written while it is timed."""
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        file.flush()
        os.fsync(file.fileno())


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    names = (*sorted(path.stem for path in TWINS.glob("*.onnx")), YOLO)
    usual = {
        "models": MODELS, "changes": ALL_CHANGES, "cores": (1, 2), "loads": LOADS,
        "truth_seconds": TRUTH_SECONDS, "max_seconds": MAX_SECONDS,
    }  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", choices=names, metavar="NAME", help=list_names(names)
    )
    parser.add_argument(
        "--changes", nargs="+", choices=ALL_CHANGES, metavar="CHANGE", help=list_names(ALL_CHANGES)
    )
    parser.add_argument("--cores", type=_cores, metavar="N,N", help="1,2 by default")
    parser.add_argument("--loads", nargs="+", choices=LOADS, metavar="LOAD", help=list_names(LOADS))
    parser.add_argument("--repetitions", type=int, default=1, help="comparisons of each kind")
    parser.add_argument("--truth-seconds", type=float, help="the time of a long duet")
    parser.add_argument("--max-seconds", type=float, help="the time of the rounds of a comparison")
    parser.add_argument("--quick", action="store_true", help="two models, some minutes")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    parser.add_argument(
        "--truths", type=Path, metavar="FILE", help="use the narrow truths of this result"
    )
    parser.add_argument("--at-most", type=int, help="stop after so many comparisons")
    options = parser.parse_args()
    for name, value in (usual | (QUICK if options.quick else {})).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _cores(counts: str) -> tuple[int, ...]:
    return tuple(int(each) for each in counts.split(","))


if __name__ == "__main__":
    sys.exit(main())
