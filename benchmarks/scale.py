"""What many models, and a model of many nodes, take of time and memory, and how that grows.

The first part runs `pytest --modelperf` in projects of many small models, whose cases an object
answers for that runs nothing (`scale_probe.py`): what is left is the time of pytest-modelperf and
of pytest. The second part runs every command on graphs of many nodes (`scale_models.py`).

Expected: twice as much of it takes at most 2.3 times as long, and each a stated time and memory.
Time is that of a processor, which other processes change least. The more cases a run
has, the smaller is the error level of each, and the more rounds it takes to call one worse. So
twice as much of a run that measures is twice as many blocks of inferences.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import scale_probe
from bare_sessions import profile_runs
from commands import ROOT, Ran, run_process, with_sources, write_settings
from draft import Draft
from expected import Expectation, expect_most
from kept import keep_row, read_rows
from measuring import Program, say
from results import Result, Row, Rows
from scale_models import SHAPES, VARIANTS, Recipe
from shown import grouped, markdown

from pytest_modelperf.profiler.worker.lock import LOCK_VARIABLE

SIZES = (125, 250, 500)
BATCH_SIZES = (1, 2, 4, 8)
NODES = (10_000, 20_000)
MAX_GROWTH = 2.3
MAX_SESSION_BYTES = 1_500_000_000
MAX_COMMAND_SECONDS = 30.0
MAX_COMMAND_BYTES = 2_000_000_000
# What takes less than this is mostly the start of a process, and grows with nothing.
_LEAST_SECONDS = 2.0
_LEAST_SHOWN = 0.1
_QUICK = 10
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Session:
    """A kind of run: its options, and what a case of it may take of a processor at most.

    Each case that runs gets the `verdict`.
    """

    name: str
    options: Sequence[str]
    max_case_ms: float
    verdict: str | None
    slower: float = 1.0
    seed: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


_REPORTS = (
    "--modelperf-json=run.json",
    "--modelperf-markdown=run.md",
    "--modelperf-html=run.html",
    "--modelperf-benchmark-json=benchmark.json",
    "--junitxml=junit.xml",
)
_GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "summary.md"}
_STATIC = "--modelperf-static-only"
SESSIONS = (
    Session("collection", ("--collect-only",), 5, None),
    Session("one case by its id", ("models/model0001.onnx::b2-c1", _STATIC), 2, "new"),
    Session("recording", ("--modelperf-update-baseline",), 500, "recorded"),
    Session("unchanged", (), 50, "unchanged"),
    Session("static figures", (_STATIC,), 50, "passed"),
    Session("static figures, -n 2", (_STATIC, "-p", "xdist.plugin", "-n", "2"), 50, "passed"),
    Session("duets", _REPORTS, 250, "passed", seed=1, environment=_GITHUB),
    Session(
        "duets, all worse", _REPORTS, 300, "regressed", slower=1.1, seed=1, environment=_GITHUB
    ),
)


def measure(options: argparse.Namespace) -> Rows:
    share = _QUICK if options.quick else 1
    found: dict[str, list[Row]] = {}
    if options.sessions or not options.graph:
        sizes = [size // share for size in SIZES]
        found["sessions"] = [
            row for size in sizes for row in kept(options.folder, f"models{size}", models=size)
        ]
    if options.graph or not options.sessions:
        found["commands"] = [
            row
            for shape in SHAPES
            for size in (size // share for size in NODES)
            for row in kept(options.folder, f"{shape}{size}", shape=shape, nodes=size)
        ]
    return found


def kept(folder: Path, name: str, **size: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # of either part
    """The rows of one size; those of earlier runs in the folder are reused, if all were made."""
    place = folder / name
    if not (folder / f"{name}.jsonl").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        rows = list(run_commands(place, **size) if "shape" in size else run_sessions(place, **size))
        shutil.rmtree(place)
        for row in rows:
            keep_row(folder, name, row)
    return read_rows(folder, name)


# -- many models


def run_sessions(project: Path, models: int) -> Iterator[Row]:
    """Each kind of run; the later ones are held against what the third recorded."""
    write_project(project, models)
    for session in SESSIONS:
        write_models(project, models, session.seed)
        say(f"{models} models: {session.name}")
        yield {"session": session.name, "models": models, **run_session(project, session)}


def write_project(folder: Path, models: int) -> None:
    """Every second model has a table of its own, the others share one that is a glob."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    names = ["*.onnx", *(_model_name(index) for index in range(0, models, 2))]
    cases = {"batch_size": list(BATCH_SIZES)}
    write_settings(folder, {f"models/{name}": cases for name in names})


def write_models(folder: Path, models: int, seed: int) -> None:
    for index in range(models):
        draft = Draft((seed, index))
        hidden = draft.add("MatMul", "x", draft.drawn(32, 32, scale=0.1), name="hidden")
        active = draft.add("Relu", hidden, name="active")
        last = draft.add("MatMul", active, draft.drawn(32, 8, scale=0.1), name="last")
        model = draft.model(last, ["N", 32], ["N", 8])
        onnx.save(model, folder / "models" / _model_name(index))


def _model_name(index: int) -> str:
    return f"model{index:04}.onnx"


def run_session(folder: Path, session: Session) -> dict[str, Any]:
    """One run, and what its steps took."""
    steps = folder / ".steps"
    steps.unlink(missing_ok=True)
    run = start(
        ["pytest", "-q", "-p", "pytest_modelperf.plugin", "-p", "scale_probe", "--modelperf",
         *session.options],
        folder,
        {
            # Nothing is measured, so no other measurement has to wait for it.
            LOCK_VARIABLE: str(folder / ".measuring"),
            scale_probe.STEPS: str(steps),
            scale_probe.SLOWER: str(session.slower),
            **session.environment,
        },
    )  # fmt: skip
    told = json.loads(steps.read_text("utf-8"))
    if other := set(told["verdicts"]) - {session.verdict}:
        sys.exit(f"{session.name}: {', '.join(sorted(other))} in place of {session.verdict}\n"
                 f"{run.output}")  # fmt: skip
    return {
        **_figures(run),
        "steps": {name: round(seconds, 3) for name, seconds in told["seconds"].items()},
        "verdicts": told["verdicts"],
        "blocks": told["blocks"],
    }


# -- many nodes


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed, and what it is called; before it runs, `model` is put in the model's place."""

    name: str
    arguments: Sequence[str]
    model: str | None = None


def run_commands(place: Path, shape: str, nodes: int) -> Iterator[Row]:
    """Each command on a graph; some need what earlier ones wrote."""
    recipe, write = Recipe(nodes=nodes), SHAPES[shape]
    write(recipe, place / _MODEL)
    for name, change in VARIANTS.items():
        write(change(recipe), place / f"{name}.onnx")
    profile_runs(place / _MODEL, place / _RUNTIME_PROFILE, 10, make_feed)
    for command in COMMANDS:
        say(f"{shape} of {nodes:,} nodes: {command.name}")
        told = run_command(place, command)
        yield {"graph": shape, "nodes": nodes, "command": command.name, **told}


def run_command(folder: Path, command: Command) -> dict[str, Any]:
    if command.model is not None:
        shutil.copyfile(folder / command.model, folder / _MODEL)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run = start(command.arguments, folder)
    made = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    ]
    return {
        **_figures(run),
        "file_bytes": {path.name: path.stat().st_size for path in made},
    }


def make_feed(session: onnxruntime.InferenceSession) -> dict[str, npt.NDArray[np.float32]]:
    (taken,) = session.get_inputs()
    return {taken.name: np.full((1, *taken.shape[1:]), 0.5, np.float32)}


_MODEL, _RUNTIME_PROFILE = "model.onnx", "runtime.json"


_OTHER = f"{next(iter(VARIANTS))}.onnx"
_QUICKLY = "--max-seconds 4"
_PROFILE = f"pytest_modelperf profile {_MODEL}"
_COMPARE = f"pytest_modelperf compare {_MODEL}"
_WHATIF = f"pytest_modelperf whatif {_MODEL} {_QUICKLY}"
_TEST = f"pytest -q -p pytest_modelperf.plugin --modelperf {_MODEL}"
_FILES = "--html {0}.html --json {0}.json"
_TYPED = {
    "profile --static": f"{_PROFILE} --static",
    "profile --static --sparsity": f"{_PROFILE} --static --sparsity",
    "shapes": f"pytest_modelperf shapes {_MODEL} --output shaped.onnx",
    "profile": f"{_PROFILE} {_QUICKLY}",
    "profile, all files": f"{_PROFILE} {_QUICKLY} {_FILES.format('profile')} --csv profile.csv "
    "--trace trace.json",
    "profile --roofline": f"{_PROFILE} {_QUICKLY} --roofline",
    "profile --name first": f"{_PROFILE} {_QUICKLY} --name first --replace",
    "profile --name second": f"{_PROFILE} {_QUICKLY} --name second --replace",
    "profiles --compare": f"pytest_modelperf profiles {_MODEL} --compare first second",
    **{f"compare, {name}": f"{_COMPARE} '{name}.onnx' {_QUICKLY}" for name in VARIANTS},
    "compare, all files": f"{_COMPARE} '{_OTHER}' {_QUICKLY} {_FILES.format('compare')} "
    "--markdown compare.md",
    "whatif --prune": f"{_WHATIF} --prune 0.5",
    "whatif --prune-channels": f"{_WHATIF} --prune-channels 0.5",
    "whatif --quantize": f"{_WHATIF} --quantize int8-dynamic",
    "sweep": f"pytest_modelperf sweep {_MODEL} --batch 1,2 {_QUICKLY}",
    "trace": f"pytest_modelperf trace {_RUNTIME_PROFILE}",
    "pytest, recording": f"{_TEST} --modelperf-update-baseline",
    "pytest, unchanged": _TEST,
}
COMMANDS = (
    *(Command(name, shlex.split(typed)) for name, typed in _TYPED.items()),
    Command("pytest, other weights", shlex.split(_TEST), model=_OTHER),
)


# -- a process, and what it took

_TELL_USAGE = """
import atexit, json, resource, runpy, sys, time
path, module = sys.argv[1:3]
sys.argv = [module, *sys.argv[3:]]
def tell():
    from pytest_modelperf.systems.process import OWN_PROCESS
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    told = {
        "own_seconds": time.process_time(),
        "own_peak_bytes": OWN_PROCESS.peak_bytes(),
        "children_seconds": children.ru_utime + children.ru_stime,
        "children_peak_bytes": children.ru_maxrss * unit,
    }
    with open(path, "w") as file:
        json.dump(told, file)
atexit.register(tell)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Ran:
    """A module of Python run as a program. Its document says what it took, without its children.

    A false alarm is a finding, and no failure of ours.
    """
    usage = folder / ".usage"
    usage.unlink(missing_ok=True)
    own = {
        **with_sources(str(ROOT / "benchmarks")),
        "COLUMNS": "120",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **(environment or {}),
    }
    run = run_process([sys.executable, "-c", _TELL_USAGE, str(usage), *command], folder, usage, own)
    if run.code not in {0, 1} or run.document is None:
        sys.exit(f"{' '.join(command)} ended with {run.code}\n{run.output}")
    usage.unlink()
    return run


def _figures(run: Ran) -> dict[str, Any]:
    took = {name: round(value, 2) for name, value in run.document.items()}
    return {"seconds": run.seconds, **took, "lines": run.output.count("\n")}


# -- tables


def tables(result: Result) -> dict[str, str]:
    found = {}
    if "sessions" in result.rows:
        found["scale-sessions"] = sessions_table(result.rows["sessions"])
    if "commands" in result.rows:
        found["scale-commands"] = commands_table(result.rows["commands"])
    return found


def sessions_table(rows: Sequence[Row]) -> str:
    """Each kind of run with its steps: seconds of a processor at each size, and their growth."""
    sizes = sorted({row["models"] for row in rows})
    header = ("run", "step", *(f"{size * len(BATCH_SIZES):,} cases" for size in sizes),
              "ms a case", "growth", "blocks a case", "most memory")  # fmt: skip
    lines = []
    for session, found in grouped(rows, lambda row: str(row["session"])).items():
        largest = found[-1]
        whole = [_session_seconds(row) for row in found]
        cases = largest["models"] * len(BATCH_SIZES)
        peak = f"{largest['own_peak_bytes'] / _MEGABYTE:,.0f} MB"
        blocks = " ".join(
            f"{row['blocks'] / row['models'] / len(BATCH_SIZES):.0f}" for row in found
        )
        shown = blocks if largest["blocks"] else ""
        lines.append((session, "all", *_seconds_cells(whole, cases), shown, peak))
        for step in largest["steps"]:
            spent = [row["steps"].get(step, 0.0) for row in found]
            if spent[-1] >= _LEAST_SHOWN:
                lines.append(("", step, *_seconds_cells(spent, cases), "", ""))
    return markdown(header, lines, "ll" + "r" * (len(header) - 2))


def _session_seconds(row: Row) -> float:
    """All but the start of the process; of workers of pytest-xdist, that too."""
    steps: Mapping[str, float] = row["steps"]
    return float(row["children_seconds"]) + fsum(steps.get(name, 0.0) for name in _WHOLE)


_WHOLE = ("collect", "check", "end")


def _seconds_cells(seconds: Sequence[float], cases: int) -> Sequence[str]:
    growth = max(_growths(seconds), default=None)
    return (
        *(f"{value:.2f}" for value in seconds),
        f"{1e3 * seconds[-1] / cases:.2f}",
        "" if growth is None else f"{growth:.2f}",
    )


def commands_table(rows: Sequence[Row]) -> str:
    """Each command on the largest graph of each shape, and how it grew from the one before."""
    header = ("command", "graph", "s", "our own s", "growth", "our memory", "its workers'",
              "lines", "largest file")  # fmt: skip
    lines = []
    for command, all_graphs in grouped(rows, lambda row: str(row["command"])).items():
        for graph, found in grouped(all_graphs, lambda row: str(row["graph"])).items():
            largest = found[-1]
            growth = max(_growths([row["own_seconds"] for row in found]), default=None)
            file = max(largest["file_bytes"].values(), default=None)
            lines.append((
                command, graph, f"{largest['seconds']:.1f}", f"{largest['own_seconds']:.1f}",
                "" if growth is None else f"{growth:.2f}",
                *(f"{largest[f'{who}_peak_bytes'] / _MEGABYTE:,.0f} MB" for who in _PROCESSES),
                f"{largest['lines']:,}",
                "" if file is None else f"{file / _MEGABYTE:.1f} MB",
            ))  # fmt: skip
    return markdown(header, lines, "ll" + "r" * (len(header) - 2))


_PROCESSES = ("own", "children")


def _growths(seconds: Sequence[float], work: Sequence[int] = ()) -> list[float]:
    """How many times as long each size took as the one before, which is half of its work."""
    done = work or [2**size for size in range(len(seconds))]
    return [
        2.0 * (after / before) / (more / less)
        for (before, after), (less, more) in zip(pairwise(seconds), pairwise(done), strict=True)
        if before >= _LEAST_SECONDS
    ]


def _blocks(rows: Sequence[Row], step: str) -> Sequence[int]:
    """The blocks of each size, where running them is most of what a step does."""
    return [row["blocks"] for row in rows if row["blocks"]] if step in _MEASURING else ()


_ALL = "all of it"
_MEASURING = ("check", _ALL)


# -- what is expected


def expectations(result: Result) -> tuple[Expectation, ...]:
    sessions, commands = (result.rows.get(kind, ()) for kind in ("sessions", "commands"))
    return (
        *(_of_sessions(sessions) if sessions else ()),
        *(_of_commands(commands) if commands else ()),
    )


def _of_sessions(rows: Sequence[Row]) -> Iterator[Expectation]:
    for session, found in grouped(rows, lambda row: str(row["session"])).items():
        largest = found[-1]
        cases = largest["models"] * len(BATCH_SIZES)
        limit = next(each.max_case_ms for each in SESSIONS if each.name == session)
        took = 1e3 * _session_seconds(largest) / cases
        yield expect_most(f"{session}: {cases:,} cases, each", took, limit, "ms")
        steps = {name: [row["steps"].get(name, 0.0) for row in found] for name in largest["steps"]}
        steps[_ALL] = [_session_seconds(row) for row in found]
        growth = {
            name: max(_growths(seconds, _blocks(found, name)), default=0.0)
            for name, seconds in steps.items()
        }
        if any(growth.values()):
            step = max(growth, key=lambda name: growth[name])
            work = "as many blocks" if any(_blocks(found, step)) else "as much"
            yield _growth_expectation(f"{work}, {session}: {step}", growth[step])
    yield _most("any session: memory", rows, MAX_SESSION_BYTES)


def _of_commands(rows: Sequence[Row]) -> Iterator[Expectation]:
    for graph, of_graph in grouped(rows, lambda row: str(row["graph"])).items():
        commands = grouped(of_graph, lambda row: str(row["command"]))
        growth = {
            command: max(_growths([row["own_seconds"] for row in found]), default=0.0)
            for command, found in commands.items()
        }
        yield from _worst(
            _growth_expectation(f"as much, {graph}: {command}", growth[command])
            for command in sorted(growth, key=lambda name: -growth[name])
            if growth[command]
        )
    yield from _worst(
        expect_most(
            f"{row['graph']} of {row['nodes']:,} nodes: {row['command']}",
            row["own_seconds"],
            MAX_COMMAND_SECONDS,
        )
        for row in sorted(rows, key=lambda row: -row["own_seconds"])
    )
    yield _most("any command: memory of our own", rows, MAX_COMMAND_BYTES)


def _worst(falling: Iterable[Expectation]) -> Iterator[Expectation]:
    """All that are missed, and the first that is met."""
    for expectation in falling:
        yield expectation
        if expectation.is_met:
            return


def _growth_expectation(what: str, growth: float) -> Expectation:
    return expect_most(f"twice {what}", growth, MAX_GROWTH, "times", digits=2)


def _most(what: str, rows: Sequence[Row], limit: int) -> Expectation:
    most = max(row["own_peak_bytes"] for row in rows)
    return expect_most(what, most / _MEGABYTE, limit / _MEGABYTE, "MB", digits=0)


if __name__ == "__main__":
    program = Program("scale", __doc__, tables, expectations)
    program.flag("--sessions", "only many models")
    program.flag("--graph", "only models of many nodes")
    program.flag("--quick", "a tenth of the sizes")
    sys.exit(program.run(measure))
