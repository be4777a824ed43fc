"""How right verdicts are that look at the changed parts of a model only, and how soon they come.

Models of many architectures are changed in one place, and compared with what they were by
`modelperf compare`, in both directions: each change is also undone. The truth of a change is a long
duet of whole models on a quiet machine (long_duet.py). Then the comparisons are made under three
loads.

One change is sized to make a model 0.5 % slower: both models have a chain of small kernels, one of
them a longer chain. The truth of a much longer chain is measured, and scaled by the length.

Run it on a machine that does nothing else; a truth is only as good as the quiet. The models need
about 3 GB of disk (`TMPDIR` or `--folder`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

import onnx
from changes import CHANGES, add_kernels
from commands import run_modelperf, run_process
from kept import keep_row, left_of, read_records, read_rows
from loads import LOADS, loaded
from long_duet import Slowdown
from measuring import Program, say
from onnx import ModelProto
from parts_results import (
    PRECISION,
    SLIGHT,
    SLIGHT_MAX_MS,
    TRUTH_SECONDS,
    Check,
    Setting,
    Truth,
    expectations,
    read_check,
    tables,
)
from real import TWINS
from results import Rows
from yolo_model import yolo_model

from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import read_twin

YOLO = "yolo"
MODELS = (
    "lstm", "mobilenet_v2_qdq", "mobilenet_v2", "bert_4_int8", "llama_4", YOLO, "gpt2_4", "bert_4",
    "resnet50", "vit_6",
)  # fmt: skip
# The time of the rounds of one comparison.
MAX_SECONDS = 10.0
# Chains of kernels: the first trial, the slowdown that is measured and scaled, and the most pairs.
_TRIAL_PAIRS, _TRIAL_SECONDS = 32, 10.0
_MEASURED_SLOWDOWN, _WANTED_SLOWDOWN = 0.05, 0.005
_MOST_PAIRS = 512
_LONG_DUET = Path(__file__).with_name("long_duet.py")


def measure(options: argparse.Namespace) -> Rows:
    bench = Bench(options.folder, options.truth_seconds, options.max_seconds)
    truths = [
        bench.truth(model, cores, change)
        for model in options.models
        for change in options.changes
        for cores in options.cores
    ]
    plan = plan_checks(options.loads, truths, options.repetitions)
    return {"truths": truths, "checks": bench.run(plan)}


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
    """The folder of models, truths and comparisons so far."""

    folder: Path
    truth_seconds: float = 0.0
    max_seconds: float = MAX_SECONDS
    _model: tuple[str, ModelProto] | None = field(default=None)

    def run(self, plan: Sequence[Setting]) -> list[Check]:
        """All comparisons of the plan; those that earlier runs stored in the folder are reused."""
        left = left_of(plan, [each.setting for each in self.checks()])
        for load, settings in groupby(left, lambda setting: setting.load):
            with loaded(load):
                for setting in settings:
                    keep_row(self.folder, "checks", self.check(setting))
            say(f"{load}: done")
        wanted = set(plan)
        return [each for each in self.checks() if each.setting in wanted]

    def checks(self) -> list[Check]:
        return read_records(read_rows(self.folder, "checks"), Check)

    def check(self, setting: Setting) -> Check:
        known = self._known_truth(setting.model, setting.cores, setting.change)
        pairs = None if known is None else known.pairs
        with self.sides(setting.model, setting.change, pairs) as sides:
            if sides is None:
                raise ValueError(f"{setting.model} has no place for {setting.change!r}")
            before, after = reversed(sides) if setting.is_undone else sides
            return compare(setting, before, after, self.max_seconds)

    def truth(self, model: str, cores: int, change: str) -> Truth:
        """The truth of a change of a model on this number of cores, measured once."""
        known = self._known_truth(model, cores, change)
        if known is not None:
            return known
        if change == SLIGHT:
            truth = self._slight_truth(model, cores)
        else:
            with self.sides(model, change) as sides:
                found = None if sides is None else self.duet(*sides, cores, self.truth_seconds)
            truth = truth_of(model, cores, change, found)
        keep_row(self.folder, "truths", truth)
        say(f"{model}, {cores} cores, {change}: {truth.ratio}")
        return truth

    def _known_truth(self, model: str, cores: int, change: str) -> Truth | None:
        known = read_records(read_rows(self.folder, "truths"), Truth)
        key = (model, cores, change)
        return next((each for each in known if (each.model, each.cores, each.change) == key), None)

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
        options = (f"--cores={cores}", f"--precision={PRECISION}", f"--seconds={seconds}")
        command = [sys.executable, str(_LONG_DUET), str(before), str(after), *options]
        ran = run_process(command, self.folder)
        if ran.code:
            raise RuntimeError(ran.output)
        return Slowdown(**json.loads(ran.output.splitlines()[-1]))

    @contextmanager
    def sides(
        self, model: str, change: str, pairs: int | None = None
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


def truth_of(
    model: str, cores: int, change: str, found: Slowdown | None, pairs: int | None = None
) -> Truth:
    if found is None:
        return Truth(model, cores, change, None, None, None, 0, None)
    return Truth(model, cores, change, pairs=pairs, **asdict(found))


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
    found = replace(found, ratio=ratio, low=low, high=high)
    return truth_of(model, cores, SLIGHT, found, wanted)


def compare(setting: Setting, before: Path, after: Path, max_seconds: float) -> Check:
    """What the command says of two models, and how long it takes from start to end."""
    limit = setting.seconds_of(max_seconds)
    options = ["--batch=1", f"--cores={setting.cores}", f"--max-seconds={limit:g}"]
    options.append(f"--tolerance=p50={setting.tolerance:g}")
    ran = run_modelperf("compare", before, after, options=options)
    if ran.document is None:
        return Check(**asdict(setting), seconds=ran.seconds, failure=ran.output.strip()[-500:])
    return read_check(setting, ran.document, ran.seconds)


def _write(path: Path, proto: ModelProto) -> None:
    """Writes a model down to the disk, so that nothing is left to be written while it is timed."""
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    program = Program("parts", __doc__, tables, expectations)
    program.choose("--models", (*sorted(path.stem for path in TWINS.glob("*.onnx")), YOLO), MODELS)
    program.choose("--changes", (*CHANGES, SLIGHT))
    program.numbers("--cores", (1, 2), "core counts")
    program.choose("--loads", LOADS)
    program.number("--repetitions", 1, "comparisons of each kind")
    program.number("--truth-seconds", TRUTH_SECONDS, "the time of a long duet")
    program.number("--max-seconds", MAX_SECONDS, "the time of the rounds of a comparison")
    sys.exit(program.run(measure))
