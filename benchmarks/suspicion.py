"""How often a model that was only trained again is measured although its plan settles it.

Each model of real.py is recorded once on a quiet machine. Then all are replaced by themselves with
other weights, and one `pytest --modelperf` after the other checks them, in an order drawn by lot.
Their plans settle them, unless the short run takes longer than drift explains: that is a suspicion,
and nothing is slower here, so each one is a measurement for nothing.

In each run the recorded times of some models, drawn by lot, are divided by 1.3 or by 2, as if these
models had become so much slower by what no plan shows. These should be suspected.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import run_pytest, write_settings
from expected import CONFIDENCE, Expectation, expect_share, highest_rate
from kept import keep_row, read_rows
from loads import BUSY, LOADS, QUIET, loaded
from measuring import Program, say
from real import AFTER_SEED, BEFORE_SEED, model_names, twin_of
from results import Result, Rows
from shown import count_of, grouped, markdown

from pytest_modelperf.graph.replaced import rebuild

# What the recorded times of planted models are divided by, and the share of models.
PLANTED = (1.3, 2.0)
PLANTED_SHARE = 0.2
# The largest share of models that were only trained again that may be measured for nothing, and the
# smallest share of planted slowdowns that have to be, on a quiet machine.
MOST_SUSPECTED = 0.02
LEAST_FOUND = {1.3: 0.9, 2.0: 1.0}

_NOTE = "the plan is the recorded one"


@dataclass(frozen=True, slots=True)
class Checked:
    """One case of one run. `planted` is what its recorded times were divided by.

    `how` says by what it was judged, and `is_suspected` whether a short run was the reason.
    """

    load: str
    run: int
    model: str
    cores: int
    planted: float
    how: str | None
    is_suspected: bool
    verdict: str | None
    seconds: float

    @property
    def is_settled(self) -> bool:
        """Whether its plan settles it, but for a suspicion."""
        return self.how == "plan" or self.is_suspected


def measure(options: argparse.Namespace) -> Rows:
    bench = Bench(options.folder, options.models, options.cores)
    bench.prepare()
    for load in options.loads:
        with loaded(load):
            for number in range(options.runs):
                bench.run(load, number)
    return {"cases": [row for row in bench.read() if row["load"] in options.loads]}


class Bench:
    """A project with the models, and their baselines as they were recorded."""

    def __init__(self, folder: Path, models: Sequence[str], cores: Sequence[int]) -> None:
        self.folder, self.models, self.cores = folder, models, list(cores)
        self.project, self.recorded = folder / "project", folder / "recorded"

    def prepare(self) -> None:
        """Record the models, and replace each by itself with other weights."""
        self.project.mkdir(parents=True, exist_ok=True)
        cores = {"cores": self.cores}
        write_settings(self.project, {f"{name}.onnx": cores for name in self.models})
        if not self.recorded.exists():
            for name in self.models:
                rebuild(twin_of(name), self.project / f"{name}.onnx", BEFORE_SEED)
            ran = run_pytest(self.project, "--modelperf-update-baseline", *files_of(self.models))
            baselines = self.project / "baselines"
            if not baselines.exists():
                raise RuntimeError(f"nothing was recorded:\n{ran.output}")
            baselines.rename(self.recorded)
            for name in self.models:
                rebuild(twin_of(name), self.project / f"{name}.onnx", AFTER_SEED)

    def run(self, load: str, number: int) -> None:
        """Check every model once; a run that is stored is not made again."""
        if any((row["load"], row["run"]) == (load, number) for row in self.read()):
            return
        lot = random.Random(f"{load} {number}")
        planted = plant(self.models, lot)
        baselines = self.project / "baselines"
        shutil.rmtree(baselines, ignore_errors=True)
        shutil.copytree(self.recorded, baselines)
        for name, factor in planted.items():
            shorten(baselines / name, factor)
        order = lot.sample(self.models, len(self.models))
        ran = run_pytest(self.project, "--modelperf-no-cache", *files_of(order))
        if not ran.cases:
            raise RuntimeError(f"the models were not checked:\n{ran.output}")
        for case in ran.cases:
            keep_row(self.folder, "cases", read_case(case, load, number, planted))
        say(f"{load}: run {number + 1} is done")

    def read(self) -> list[dict[str, Any]]:
        """The cases of all runs so far."""
        return read_rows(self.folder, "cases")


def files_of(models: Sequence[str]) -> list[str]:
    return [f"{name}.onnx" for name in models]


def plant(models: Sequence[str], lot: random.Random) -> dict[str, float]:
    """Some of the models, and what their recorded times are divided by."""
    chosen = lot.sample(models, max(1, round(PLANTED_SHARE * len(models))))
    factors = lot.sample(PLANTED, len(PLANTED))
    return {name: factors[index % len(factors)] for index, name in enumerate(chosen)}


def shorten(baseline: Path, factor: float) -> None:
    """Divide all times that were recorded of a model."""
    for path in baseline.glob("*.json"):
        if path.name == "model.json":
            continue
        document = json.loads(path.read_text("utf-8"))
        for case in document["cases"].values():
            for process in case["processes"]:
                process["times_ns"] = [
                    [round(ns / factor) for ns in times] for times in process["times_ns"]
                ]
        path.write_text(json.dumps(document), encoding="utf-8")


def read_case(
    case: Mapping[str, Any], load: str, number: int, planted: Mapping[str, float]
) -> Checked:
    """A case of a report of a run."""
    model = case["model"]["name"].removesuffix(".onnx")
    told = {name: case[name] for name in ("cores", "how", "verdict", "seconds")}
    is_suspected = any(note.startswith(_NOTE) for note in case["notes"])
    return Checked(
        load=load, run=number, model=model, planted=planted.get(model, 1.0),
        is_suspected=is_suspected, **told,
    )  # fmt: skip


def tables(result: Result) -> Mapping[str, str]:
    groups = grouped(result.read("cases", Checked), lambda case: (case.load, case.cores))
    lines = []
    for place, here in groups.items():
        settled = [case for case in here if case.is_settled]
        same = [case for case in settled if case.planted == 1.0]
        worse = sum(case.is_suspected and case.verdict == "regressed" for case in same)
        found = (suspected([c for c in settled if c.planted == factor]) for factor in PLANTED)
        share = f"{len(settled)} of {len(here)}"
        lines.append((*place, share, suspected(same), worse, *found))
    header = (
        "load", "cores", "settled by their plan", "measured for nothing", "called slower",
        *(f"{factor:g} times as long: measured" for factor in PLANTED),
    )  # fmt: skip
    return {"suspicion": markdown(header, lines)}


def suspected(cases: Sequence[Checked]) -> str:
    return count_of(case.is_suspected for case in cases)


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(_expectations([c for c in result.read("cases", Checked) if c.is_settled]))


def _expectations(settled: Sequence[Checked]) -> Iterator[Expectation]:
    alike = [case for case in settled if case.planted == 1.0]
    for load, same in grouped(alike, lambda case: case.load).items():
        hits = sum(case.is_suspected for case in same)
        highest = highest_rate(hits, len(same))
        is_met = True if highest <= MOST_SUSPECTED else None
        yield Expectation(
            f"settled models that are measured for nothing, {load}",
            f"at most {100 * MOST_SUSPECTED:g} %",
            f"{suspected(same)} (at most {100 * highest:.1f} %, {100 * CONFIDENCE:g} % confidence)",
            is_met if hits <= MOST_SUSPECTED * len(same) else False,
        )
    for factor, share in LEAST_FOUND.items():
        slower = [case for case in settled if case.load == QUIET and case.planted == factor]
        if slower:
            what = f"models that take {factor:g} times as long, quiet: measured"
            limit = f"at least {100 * share:g} %"
            yield expect_share(what, (case.is_suspected for case in slower), share, limit)


if __name__ == "__main__":
    program = Program("suspicion", __doc__, tables, expectations)
    program.choose("--models", model_names())
    program.numbers("--cores", (1, 2), "core counts")
    program.number("--runs", 15, "runs under each load")
    program.choose("--loads", LOADS, (QUIET, BUSY))
    sys.exit(program.run(measure))
