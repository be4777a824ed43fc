"""Models that did not change, compared again and again on a machine that does: a soak.

Four models of 10 us to some ms, at batch 1 and 2, on 1 and 2 cores, have other weights than before
and the same work, so each comparison runs, and whatever is called worse or better is a false alarm.
From run to run, in a random order, the neighbours change: none; one that keeps a core busy; one
that streams through memory; both cores busy; bursts on both. So does the way to compare:

- twin: `pytest --modelperf` in a process of its own, against a recorded baseline;
- older model: the same with `--modelperf-against` a folder of the models as they were;
- one process: the Python API, in this very process, which makes all of these one after the other.

If a twin was not shown to run like its model, the case is compared with stored samples instead,
for which docs/statistics.md promises no level; these are counted apart.

A run of duets may call something worse with a chance of at most 1 %, which its cases share. That is
its chance if everything is slower by just what is allowed, 3 %. Here nothing is slower, so of n
runs far fewer than n / 100 should raise an alarm; n / 100, and at least one, are let pass. The same
holds for what is called improved. The interval of a pass has a confidence of 90 %, so up to a tenth
of these do not hold 1; that is only shown, for a twin may be off by more than an interval is wide.
After a run no process of it may be left, no file and no lock. After a quarter of the runs the
threads, open files and memory of this process should stay the same.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from commands import Ran, run_pytest, write_settings
from draft import Draft
from filelock import FileLock, Timeout
from kept import keep_row, read_records, read_rows
from loads import loaded
from measuring import Program, say
from results import Rows
from soak_runs import (
    NOISES,
    WAYS,
    Compared,
    Held,
    Run,
    cases_of,
    expectations,
    progress,
    read_case,
    tables,
)
from verdicts import chain

from pytest_modelperf.comparing.by_running import Details, compare_models
from pytest_modelperf.comparing.gates import RUN_LEVEL, Gate
from pytest_modelperf.comparing.records import COMPARISON
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.records import rounds_within

BATCHES = (1, 2)
# A recording that was disturbed is made again, for without a trusted twin there is no duet.
RECORDINGS = 2

_MARKER = "MODELPERF_SOAK"
# Processes that were killed may take a moment to be gone.
_GRACE_SECONDS = 2.0


def measure(options: argparse.Namespace) -> Rows:
    if not Path("/proc/self/fd").is_dir():
        sys.exit("what a run leaves behind is read from /proc, which only Linux has")
    soak = Soak(options.folder, options.max_seconds, f"{os.getpid()}-{uuid.uuid4().hex[:8]}")
    runs = soak.read()
    soak.prepare(records=not runs)
    plan = itertools.islice(plan_runs(0), len(runs), None)
    while len(cases_of(runs)) < options.comparisons:
        noise, way = next(plan)
        runs.append(soak.run(len(runs), noise, way))
        say(progress(runs))
    return {"runs": runs}


def plan_runs(seed: int) -> Iterator[tuple[str, str]]:
    """Noise and way of each run, for ever: every noise with every way, then all of them again."""
    choose = random.Random(seed)
    combinations = list(itertools.product(NOISES, WAYS))
    while True:
        yield from choose.sample(combinations, len(combinations))


class Soak:
    """The folder of a soak: the project, the models as they were, and a place for temporary files.

    `process` is also the mark in the environment of every process that a run starts.
    """

    def __init__(self, folder: Path, max_seconds: float, process: str) -> None:
        self.folder, self.max_seconds, self.process = folder, max_seconds, process
        self.project, self.older = folder / "project", folder / "older"
        self.temporary, self.lock = folder / "tmp", folder / "measuring.lock"
        self.cores = (1, 2)[: len(os.sched_getaffinity(0))]
        # Models and the ids of their cases.
        places = itertools.product(MODELS, BATCHES, self.cores)
        self.cases = [(name, f"b{batch}-c{cores}") for name, batch, cores in places]

    def prepare(self, *, records: bool) -> None:
        """Models of before and of now, and baselines of those of before if there are none yet."""
        for folder in (self.project, self.older, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {
            _MARKER: self.process,
            "TMPDIR": str(self.temporary),
            "MODELPERF_LOCK": str(self.lock),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # What it was before is kept there, too.
        tempfile.tempdir = None
        sizes = {"batch_size": list(BATCHES), "cores": list(self.cores)}
        write_settings(self.project, {f"{name}.onnx": sizes for name in MODELS})
        write_models(self.older, seed=0)
        if records:
            self.record()
        write_models(self.project, seed=1)

    def record(self) -> None:
        write_models(self.project, seed=0)
        for _ in range(RECORDINGS):
            tests = self.untrusted()
            if tests:
                say(f"recording {len(tests)} baselines")
                self.pytest("--modelperf-update-baseline", *tests)

    def untrusted(self) -> list[str]:
        """The tests of cases whose twin was not shown to run like its model, or never ran."""
        tests = []
        for name, case in self.cases:
            path = self.project / "baselines" / name / "model.json"
            stored = json.loads(path.read_text("utf-8"))["cases"] if path.exists() else {}
            fidelity = stored.get(case, {}).get("fidelity")
            if fidelity is None or not fidelity["is_trusted"]:
                tests.append(f"{name}.onnx::{case}")
        return tests

    def read(self) -> list[Run]:
        """Those that were made in this folder before."""
        return read_records(read_rows(self.folder, "runs"), Run)

    def run(self, number: int, noise: str, way: str) -> Run:
        """Every case once more, and what is left of that when it is over."""
        files = self.files()
        # Neighbours do not belong to the run, so they do not get its mark.
        with loaded("quiet" if noise == "none" else noise, number, without=_MARKER):
            begun = time.monotonic()
            cases = self.compare_here() if way == "one process" else self.compare_by_pytest(way)
            seconds = round(time.monotonic() - begun, 2)
        left = (*self.processes(), *sorted(self.files() - files), *self.locks())
        run = Run(number, noise, way, seconds, cases, left, self.held())
        keep_row(self.folder, "runs", run)
        return run

    def compare_by_pytest(self, way: str) -> tuple[Compared, ...]:
        against = () if way == "twin" else (f"--modelperf-against={self.older}",)
        ran = self.pytest(f"--modelperf-max-seconds={self.max_seconds:g}", *against)
        found = [read_case(case["model"]["name"], case, way) for case in ran.cases]
        if len(found) < len(self.cases):
            found.append(Compared("the others", way, None, 0.0, None, (), ran.output[-2000:]))
        return tuple(found)

    def pytest(self, *options: str) -> Ran:
        return run_pytest(self.project, *options)

    def compare_here(self) -> tuple[Compared, ...]:
        """The same comparisons by the Python API; they share the level of a run as well."""
        setup = Setup(policy=SamplingPolicy(max_seconds=self.max_seconds))
        gate = Gate(level=RUN_LEVEL / len(MODELS), rounds=rounds_within(self.max_seconds))
        request = ProfileRequest(batch_sizes=BATCHES, cores=self.cores)
        found: list[Compared] = []
        for name in MODELS:
            before, after = (folder / f"{name}.onnx" for folder in (self.older, self.project))
            comparison = compare_models(
                Side(before, setup), Side(after, setup), request, gate, details=Details.WHEN_WORSE
            )
            cases = json.loads(COMPARISON.dump(comparison))["cases"]
            found += [read_case(name, case, "one process") for case in cases]
        return tuple(found)

    def processes(self) -> tuple[str, ...]:
        """Those that a run started and did not end, by their mark or because they are ours."""
        end = time.monotonic() + _GRACE_SECONDS
        while (found := find_processes(self.process)) and time.monotonic() < end:
            time.sleep(0.1)
        return found

    def files(self) -> set[str]:
        """Everything in the project, and what is temporary."""
        return {
            str(path.relative_to(self.folder))
            for folder in (self.project, self.temporary)
            for path in folder.rglob("*")
        }

    def locks(self) -> tuple[str, ...]:
        try:
            with FileLock(self.lock, timeout=0):
                return ()
        except Timeout:
            return (f"{self.lock.name}, still held",)

    def held(self) -> Held:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        threads, files = (
            sum(1 for _ in Path("/proc/self", what).iterdir()) for what in ("task", "fd")
        )
        return Held(self.process, pages * os.sysconf("SC_PAGESIZE"), threads, files)


def find_processes(mark: str) -> tuple[str, ...]:
    """What runs with this mark in its environment, or was started by this process."""
    own, found = os.getpid(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may hold anything, come the state and the parent.
            name, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
            state, parent = rest.split()[:2]
            is_marked = f"{_MARKER}={mark}".encode() in (folder / "environ").read_bytes()
        except OSError:
            # It is gone by now, or another user's.
            continue
        if int(folder.name) != own and (is_marked or int(parent) == own):
            found.append(f"process {name.partition('(')[2]}, {state}")
    return tuple(found)


# -- the models


def products(layers: int, width: int, seed: int) -> onnx.ModelProto:
    """So many products with a square matrix, with a Relu each."""
    draft, last = Draft(seed), "x"
    for _ in range(layers):
        weight = draft.drawn(width, width, scale=width**-0.5)
        last = draft.add("Relu", draft.add("MatMul", last, weight))
    return draft.model(last, ["N", width])


# Of some 10 us; of 8 MB of weights; of some 0.3 ms and 1 ms.
MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "tiny": lambda seed: products(6, 64, seed),
    "wide": lambda seed: products(2, 1024, seed),
    "short": lambda seed: chain(2, seed),
    "long": lambda seed: chain(8, seed),
}


def write_models(folder: Path, seed: int) -> None:
    for name, make in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(make(seed).SerializeToString())


if __name__ == "__main__":
    program = Program("soak", __doc__, tables, expectations)
    program.number("--comparisons", 1000, "this number, or a few more")
    program.number("--max-seconds", 10.0, "those of a comparison")
    sys.exit(program.run(measure))
