"""How long a check of a hundred models takes that were only trained again, and of one slower one.

Twenty architectures are built with five seeds each: the models of real.py that take 1 to 80 ms
here, and the two graphs of scale.py. Each is recorded on one core, and then replaced by itself with
other weights. README.md lists the runs.

A time is that of the whole process, and the sources are compiled, as those of an installed package
are. *one alone* is what the check adds to a run without a check, which starts Python, pytest and
the plugin, and imports the same modules.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import imported
from commands import run_pytest, with_sources
from expected import Expectation, expect_most
from kept import keep_row, read_records, read_rows
from loads import BUSY, QUIET, loaded
from measuring import Program, say
from real import duet, first_rows, next_rows, ratio_of, twin_of
from real_variants import add_load
from results import SHORT, Result, Rows
from scale_models import SHAPES, Recipe
from shown import grouped, markdown

from pytest_modelperf.files.store import FOLDER_VARIABLE
from pytest_modelperf.graph.replaced import rebuild

TWINS = (
    "bert_4", "bert_4_int8", "convnext_t", "gpt2_4", "llama_4", "lstm", "mobilenet_v2",
    "mobilenet_v2_qdq", "resnet50", "unet", "vit_6", "bvlc_alexnet", "densenet121", "inception_v1",
    "inception_v2", "light_resnet50", "shufflenet", "squeezenet",
)  # fmt: skip
GRAPH_NODES = 1000
NAMES = (*TWINS, *SHAPES)
LOADS = (QUIET, BUSY)
SLOWER = "resnet50"
# By how much it gets slower, and how near a trial has to come.
PLANTED, PRECISION, TRIALS = 0.03, 0.2, 4
TOLERANCE = "1 %"
RETRAINED, AGAIN, ONE_SLOWER, ALONE = "retrained", "again", "one slower", "one alone"
RECORDING = "recording"
# The most seconds of a run of 100 models, by load; of one model beyond a run without a check.
MOST_SECONDS = {
    (RETRAINED, QUIET): 60.0,
    (RETRAINED, BUSY): 120.0,
    (AGAIN, QUIET): 5.0,
    (ONE_SLOWER, QUIET): 70.0,
}
MOST_ALONE = 0.6
MOST_RECORDING = 3.0


@dataclass(frozen=True, slots=True)
class Done:
    """One run: its seconds, and how many of its cases have each verdict by each way.

    `slower` is the verdict of the model that got slower, and `ratio` by how much it did. `cases`
    has the seconds of each case of a recording.
    """

    load: str
    step: str
    models: int
    seconds: float
    ways: Mapping[str, int]
    model: str | None = None
    slower: str | None = None
    ratio: float | None = None
    cases: Sequence[float] = ()


def measure(options: argparse.Namespace) -> Rows:
    # Each run uses what earlier runs compiled, as with any installed package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(options.folder / "compiled")
    zoo = Zoo(options.folder, options.seeds)
    zoo.record()
    for load in options.loads:
        with loaded(load):
            zoo.measure(load)
    return {"runs": [row for row in zoo.done() if row.load in {RECORDING, *options.loads}]}


class Zoo:
    """A project with the models, and their baselines."""

    def __init__(self, folder: Path, seeds: int) -> None:
        self.folder, self.seeds = folder, seeds
        self.project, self._cache = folder / "project", folder / "cache"
        self.files = [f"{name}-{seed}.onnx" for name in NAMES for seed in range(seeds)]

    def done(self) -> list[Done]:
        return read_records(read_rows(self.folder, "runs"), Done)

    def record(self) -> None:
        """Record all models, and replace each by itself with other weights."""
        self.project.mkdir(parents=True, exist_ok=True)
        (self.project / "pyproject.toml").write_text("[tool.modelperf]\n")
        if (self.folder / "models").exists():
            return
        self._write_models(0)
        update = "--modelperf-update-baseline"
        self._keep(self._check(RECORDING, RECORDING, update, *self.files))
        self._write_models(self.seeds)
        (self.folder / "models").touch()

    def measure(self, load: str) -> None:
        known = {(row.load, row.step) for row in self.done()}
        if (load, AGAIN) not in known:
            shutil.rmtree(self._cache, ignore_errors=True)
            for step in (RETRAINED, AGAIN):
                self._keep(self._check(load, step, *self.files))
        if (load, ONE_SLOWER) not in known:
            self._measure_slower(load)
        for name in NAMES:
            if all((row.load, row.model) != (load, name) for row in self.done()):
                self._measure_alone(load, name)

    def _measure_slower(self, load: str) -> None:
        path = self.project / f"{SLOWER}-0.onnx"
        kept = self.folder / "kept.onnx"
        shutil.copy(path, kept)
        slower, ratio = self._slower(kept)
        shutil.rmtree(self._cache, ignore_errors=True)
        shutil.copy(slower, path)
        try:
            tolerance = f"--modelperf-tolerance={TOLERANCE}"
            ran = self._check(load, ONE_SLOWER, tolerance, *self.files)
            self._keep(replace(ran, ratio=ratio))
        finally:
            shutil.copy(kept, path)

    def _slower(self, before: Path) -> tuple[Path, float]:
        """The model with a load, and by how much that makes it slower; found once."""
        place = self.folder / "slower.onnx"
        known = [row.ratio for row in self.done() if row.ratio is not None]
        if place.exists() and known:
            return place, known[0]
        twin = twin_of(SLOWER)
        rows = first_rows(_milliseconds(before), PLANTED)
        for _ in range(TRIALS):
            rebuild(type(twin)(SLOWER, add_load(twin.proto, rows)), place, self.seeds)
            ratio = ratio_of(duet(before, place, 1, PLANTED / 30, 20.0)).value
            if abs(ratio - 1.0 - PLANTED) <= PRECISION * PLANTED:
                break
            rows = next_rows(rows, ratio - 1.0, PLANTED)
        return place, round(ratio, 4)

    def _measure_alone(self, load: str, name: str) -> None:
        """What the check of one model adds to a run that collects it and has the same imports."""
        file, modules = f"{name}-0.onnx", self.folder / "modules"
        with_plugin = {
            **with_sources(str(Path(__file__).parent)),
            imported.VARIABLE: str(modules),
        }
        if not modules.exists():
            run_pytest(self.project, "-p", "imported", file, environment=with_plugin)
        begun = time.monotonic()
        run_pytest(self.project, "-p", "imported", "--collect-only", file, environment=with_plugin)
        empty = time.monotonic() - begun
        shutil.rmtree(self._cache, ignore_errors=True)
        ran = self._check(load, ALONE, file)
        self._keep(replace(ran, seconds=round(ran.seconds - empty, 2), model=name))

    def _check(self, load: str, step: str, *options: str) -> Done:
        ran = run_pytest(self.project, *options, environment={FOLDER_VARIABLE: str(self._cache)})
        if not ran.cases:
            raise RuntimeError(f"the models were not checked:\n{ran.output}")
        slower = [c["verdict"] for c in ran.cases if c["model"]["name"] == f"{SLOWER}-0.onnx"]
        ways = dict(Counter(f"{case['verdict']}, {case['how']}" for case in ran.cases))
        done = Done(load, step, len(ran.cases), ran.seconds, ways)
        if step == RECORDING:
            return replace(done, cases=[round(case["seconds"], 2) for case in ran.cases])
        return replace(done, slower=slower[0]) if step == ONE_SLOWER else done

    def _keep(self, row: Done) -> None:
        keep_row(self.folder, "runs", row)
        say(f"{row.load}, {row.step}: {row.seconds} s {row.ways}")

    def _write_models(self, first_seed: int) -> None:
        for name in NAMES:
            twin = None if name in SHAPES else twin_of(name)
            for seed in range(self.seeds):
                path = self.project / f"{name}-{seed}.onnx"
                if twin is None:
                    SHAPES[name](Recipe(nodes=GRAPH_NODES, seed=first_seed + seed), path)
                else:
                    rebuild(twin, path, first_seed + seed)


def _milliseconds(model: Path) -> float:
    rounds = duet(model, model, 1, None, 2.0)
    return statistics.median(ns for each in rounds for ns in each.before.times_ns) / 1e6


# -- results


def tables(result: Result) -> Mapping[str, str]:
    rows = result.read("runs", Done)
    lines: list[tuple[object, ...]] = []
    for row in rows:
        if row.step in {RETRAINED, AGAIN, ONE_SLOWER}:
            ways = ", ".join(f"{count} {way}" for way, count in sorted(row.ways.items()))
            lines.append((row.load, row.step, row.models, f"{row.seconds:.1f}", ways))
    for load, seconds in alone(rows).items():
        shown = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        lines.append((load, ALONE, len(seconds), shown, "median (least to most)"))
    recorded = [seconds for row in rows for seconds in row.cases]
    if recorded:
        shown = f"{statistics.fmean(recorded):.1f} a case"
        lines.append((QUIET, RECORDING, len(recorded), shown, "mean"))
    order: list[object] = [RECORDING, RETRAINED, AGAIN, ONE_SLOWER, ALONE]
    lines.sort(key=lambda line: (line[0] != QUIET, order.index(line[1])))
    table = markdown(("load", "run", "models", "s", "verdicts"), lines, "llrrl")
    return {"zoo": table, f"zoo{SHORT}": table}


def alone(rows: Sequence[Done]) -> dict[str, list[float]]:
    """The seconds of each run of one model, by load."""
    groups = grouped((row for row in rows if row.step == ALONE), lambda row: row.load)
    return {load: [row.seconds for row in own] for load, own in groups.items()}


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(_expectations(result.read("runs", Done)))


def _expectations(rows: Sequence[Done]) -> Iterator[Expectation]:
    for row in rows:
        most = MOST_SECONDS.get((row.step, row.load))
        if most is not None and row.models == len(NAMES) * 5:
            yield expect_most(f"{row.models} models, {row.step}, {row.load}", row.seconds, most)
        if row.step == ONE_SLOWER:
            others = row.models - 1
            settled = sum(count for way, count in row.ways.items() if way == "passed, plan")
            yield Expectation(
                f"the slower of {row.models} models, {row.load}",
                "regressed, all others settled by their plans",
                f"{row.slower}, {settled} of {others} others settled",
                row.slower == "regressed" and settled == others,
            )
    for load, seconds in alone(rows).items():
        if load == QUIET:
            what = "one retrained model beyond pytest's start and imports, median"
            yield expect_most(what, statistics.median(seconds), MOST_ALONE, digits=2)
    recorded = [seconds for row in rows for seconds in row.cases]
    if recorded:
        yield expect_most("recording a case, mean", statistics.fmean(recorded), MOST_RECORDING)


if __name__ == "__main__":
    program = Program("zoo", __doc__, tables, expectations)
    program.number("--seeds", 5, "models of each architecture")
    program.choose("--loads", LOADS)
    sys.exit(program.run(measure))
