"""What many models, and a model of many nodes, take of time and memory, and how that grows.

    python benchmarks/scale.py                     both parts, an hour and more
    python benchmarks/scale.py --sessions          500 models of 4 cases each
    python benchmarks/scale.py --graph             a chain and a transformer of 20,000 nodes
    python benchmarks/scale.py --quick             both, on a tenth of that
    python benchmarks/scale.py --folder f          keep each size in f, and go on from there

The first part runs `pytest --modelperf` in a project of 125, 250 and 500 small models, whose cases
an object answers for that runs nothing (`scale_probe.py`): what is left is the time of
pytest-modelperf and of pytest.

The second part runs every command on graphs of 10,000 and 20,000 nodes (`scale_models.py`) by
ONNX Runtime. Shown beside the whole is what our own process took of a processor: what the workers
take is the time of ONNX Runtime.

Expected: twice as much of it takes at most 2.3 times as long, and each a stated time and memory.
Time is that of a processor, for what else the machine does changes that least. The more cases a run
has, the smaller is the error level of each, and the more rounds it takes to call one worse. So
twice as much of a run that measures is twice as many blocks of inferences.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import scale_probe
from onnx import TensorProto, helper, numpy_helper
from results import Expectation, Result, Row, Start, conclude, markdown, parser
from scale_models import SHAPES, VARIANTS, Recipe

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
_MAX_SECONDS = 3600
_ROOT = Path(__file__).resolve().parent.parent


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


@dataclass(frozen=True, slots=True)
class Run:
    """A process that came to its end. `own_seconds` and `own_peak_bytes` leave out its children."""

    seconds: float
    own_seconds: float
    children_seconds: float
    own_peak_bytes: int
    children_peak_bytes: int
    output: str


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--sessions", action="store_true", help="only many models")
    options.add_argument("--graph", action="store_true", help="only models of many nodes")
    options.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    options.add_argument(
        "--folder", type=Path, help="keep there what is done; a second run goes on"
    )
    told = options.parse_args()
    start = Start.now("scale")
    share = _QUICK if told.quick else 1
    done: dict[str, list[Done]] = {}
    with tempfile.TemporaryDirectory(prefix="modelperf-scale-") as name:
        folder = (told.folder or Path(name)).resolve()
        if told.sessions or not told.graph:
            done["sessions"] = [
                kept(folder / f"models{models}", partial(run_sessions, models=models))
                for models in (size // share for size in SIZES)
            ]
        if told.graph or not told.sessions:
            done["commands"] = [
                kept(folder / f"{shape}{nodes}", partial(run_commands, shape=shape, nodes=nodes))
                for shape in SHAPES
                for nodes in (size // share for size in NODES)
            ]
    before = sum(each.seconds_before for all_done in done.values() for each in all_done)
    rows = {name: [row for each in found for row in each.rows] for name, found in done.items()}
    result = replace(start, started=start.started - before).finish(rows)
    return conclude(result, tables, expectations, told.json)


@dataclass(frozen=True, slots=True)
class Done:
    """What one size told. `seconds_before` are those that an earlier run took for it."""

    rows: Sequence[Row]
    seconds_before: float = 0.0


def kept(place: Path, run: Callable[[Path], Iterable[Row]]) -> Done:
    """What `run` tells in a folder of its own, or told there when it last came to its end."""
    file = place.with_suffix(".json")
    if file.exists():
        told = json.loads(file.read_text("utf-8"))
        return Done(told["rows"], told["seconds"])
    begun = time.monotonic()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    rows = list(run(place))
    shutil.rmtree(place)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"seconds": time.monotonic() - begun, "rows": rows}), "utf-8")
    part.replace(file)
    return Done(rows)


# -- many models


def run_sessions(project: Path, models: int) -> Iterator[Row]:
    """Each kind of run; the later ones are held against what the third recorded."""
    write_project(project, models)
    for session in SESSIONS:
        write_models(project, models, session.seed)
        print(f"{models} models: {session.name}", file=sys.stderr)
        yield {"session": session.name, "models": models, **run_session(project, session)}


def write_project(folder: Path, models: int) -> None:
    """Every second model has a table of its own, the others share one that is a glob."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    cases = f"batch_size = {list(BATCH_SIZES)}"
    tables = [f'[tool.modelperf.models."models/*.onnx"]\n{cases}\n']
    tables += [
        f'[tool.modelperf.models."models/{_model_name(index)}"]\n{cases}\n'
        for index in range(0, models, 2)
    ]
    (folder / "pyproject.toml").write_text("\n".join(tables), "utf-8")


def write_models(folder: Path, models: int, seed: int) -> None:
    for index in range(models):
        draw = np.random.default_rng((seed, index))
        weights = {
            name: draw.normal(0.0, 0.1, shape).astype(np.float32)
            for name, shape in (("w", (32, 32)), ("v", (32, 8)))
        }
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], "hidden"),
            helper.make_node("Relu", ["h"], ["r"], "active"),
            helper.make_node("MatMul", ["r", "v"], ["y"], "last"),
        ]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", width))
            for name, width in (("x", 32), ("y", 8))
        ]
        stored = [numpy_helper.from_array(values, name) for name, values in weights.items()]
        graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], stored)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
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
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # Nothing is measured, so nobody has to wait for it.
            LOCK_VARIABLE: str(folder / ".measuring"),
            scale_probe.STEPS: str(steps),
            scale_probe.SLOWER: str(session.slower),
            **session.environment,
        },
    )  # fmt: skip
    told = json.loads(steps.read_text("utf-8"))
    steps.unlink()
    if other := set(told["verdicts"]) - {session.verdict}:
        sys.exit(f"{session.name}: {', '.join(sorted(other))} in place of {session.verdict}\n"
                 f"{run.output}")  # fmt: skip
    written = [path for path in folder.iterdir() if path.suffix in {".html", ".json", ".md"}]
    return {
        **_figures(run),
        "steps": {name: round(seconds, 3) for name, seconds in told["seconds"].items()},
        "verdicts": told["verdicts"],
        "blocks": told["blocks"],
        "file_bytes": {path.name: path.stat().st_size for path in written},
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
    write_runtime_profile(place / _MODEL, place / _RUNTIME_PROFILE)
    for command in COMMANDS:
        print(f"{shape} of {nodes:,} nodes: {command.name}", file=sys.stderr)
        told = run_command(place, command)
        yield {"graph": shape, "nodes": nodes, "command": command.name, **told}


def run_command(folder: Path, command: Command) -> dict[str, Any]:
    if command.model is not None:
        shutil.copyfile(folder / command.model, folder / _MODEL)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run = start(command.arguments, folder, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    made = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    ]
    return {
        **_figures(run),
        "file_bytes": {path.name: path.stat().st_size for path in made},
    }


def write_runtime_profile(model: Path, path: Path) -> None:
    """What ONNX Runtime writes of ten inferences."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    (taken,) = session.get_inputs()
    inputs = {taken.name: np.full((1, *taken.shape[1:]), 0.5, np.float32)}
    for _ in range(10):
        session.run(None, inputs)
    Path(session.end_profiling()).replace(path)


_MODEL, _RUNTIME_PROFILE = "model.onnx", "runtime.json"


def _commands() -> Iterator[Command]:
    quickly = ("--max-seconds", "4")
    cli, other = "pytest_modelperf", f"{next(iter(VARIANTS))}.onnx"
    profile = (cli, "profile", _MODEL)
    yield Command("profile --static", (*profile, "--static"))
    yield Command("profile --static --sparsity", (*profile, "--static", "--sparsity"))
    yield Command("shapes", (cli, "shapes", _MODEL, "--output", "shaped.onnx"))
    yield Command("profile", (*profile, *quickly))
    yield Command(
        "profile, all files",
        (
            *profile, *quickly, "--html", "profile.html", "--json", "profile.json",
            "--csv", "profile.csv", "--trace", "trace.json",
        ),
    )  # fmt: skip
    yield Command("profile --roofline", (*profile, *quickly, "--roofline"))
    for name in ("first", "second"):
        yield Command(f"profile --name {name}", (*profile, *quickly, "--name", name, "--replace"))
    yield Command("profiles --compare", (cli, "profiles", _MODEL, "--compare", "first", "second"))
    for name in VARIANTS:
        yield Command(f"compare, {name}", (cli, "compare", _MODEL, f"{name}.onnx", *quickly))
    yield Command(
        "compare, all files",
        (
            cli, "compare", _MODEL, other, *quickly, "--html", "compare.html",
            "--json", "compare.json", "--markdown", "compare.md",
        ),
    )  # fmt: skip
    whatif = (cli, "whatif", _MODEL, *quickly)
    yield Command("whatif --prune", (*whatif, "--prune", "0.5"))
    yield Command("whatif --prune-channels", (*whatif, "--prune-channels", "0.5"))
    yield Command("whatif --quantize", (*whatif, "--quantize", "int8-dynamic"))
    yield Command("sweep", (cli, "sweep", _MODEL, "--batch", "1,2", *quickly))
    yield Command("trace", (cli, "trace", _RUNTIME_PROFILE))
    test = ("pytest", "-q", "-p", "pytest_modelperf.plugin", "--modelperf", _MODEL)
    yield Command("pytest, recording", (*test, "--modelperf-update-baseline"))
    yield Command("pytest, unchanged", test)
    yield Command("pytest, other weights", test, model=other)


COMMANDS = tuple(_commands())


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


def start(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Run:
    """A module of Python run as a program. A false alarm is a finding, and no failure of ours."""
    usage = folder / ".usage"
    usage.unlink(missing_ok=True)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _TELL_USAGE, str(usage), *command],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "benchmarks")]),
            "COLUMNS": "120",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=_MAX_SECONDS,
    )
    seconds = time.perf_counter() - begun
    if done.returncode not in {0, 1} or not usage.exists():
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    told = json.loads(usage.read_text("utf-8"))
    usage.unlink()
    (folder / ".output").write_text(done.stdout, "utf-8")
    return Run(seconds=seconds, output=done.stdout, **told)


def _figures(run: Run) -> dict[str, Any]:
    return {
        "seconds": round(run.seconds, 2),
        "own_seconds": round(run.own_seconds, 2),
        "children_seconds": round(run.children_seconds, 2),
        "own_peak_bytes": run.own_peak_bytes,
        "children_peak_bytes": run.children_peak_bytes,
        "lines": run.output.count("\n"),
    }


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
    for session, found in _grouped(rows, "session").items():
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
    for command, all_graphs in _grouped(rows, "command").items():
        for graph, found in _grouped(all_graphs, "graph").items():
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


def _grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Rows by one of their values; they come in growing sizes."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


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
    found: list[Expectation] = []
    if "sessions" in result.rows:
        found += _of_sessions(result.rows["sessions"])
    if "commands" in result.rows:
        found += _of_commands(result.rows["commands"])
    return tuple(found)


def _of_sessions(rows: Sequence[Row]) -> Iterator[Expectation]:
    for session, found in _grouped(rows, "session").items():
        largest = found[-1]
        cases = largest["models"] * len(BATCH_SIZES)
        limit = next(each.max_case_ms for each in SESSIONS if each.name == session)
        took = 1e3 * _session_seconds(largest) / cases
        yield Expectation(
            f"{session}: {cases:,} cases", f"at most {limit:g} ms each", f"{took:.1f} ms",
            took <= limit,
        )  # fmt: skip
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
    yield _most("any session", "memory", rows, "own_peak_bytes", MAX_SESSION_BYTES)


def _of_commands(rows: Sequence[Row]) -> Iterator[Expectation]:
    for graph, of_graph in _grouped(rows, "graph").items():
        growth = {
            command: max(_growths([row["own_seconds"] for row in found]), default=0.0)
            for command, found in _grouped(of_graph, "command").items()
        }
        yield from _worst(
            _growth_expectation(f"as much, {graph}: {command}", growth[command])
            for command in sorted(growth, key=lambda name: -growth[name])
            if growth[command]
        )
    yield from _worst(
        Expectation(
            f"{row['graph']} of {row['nodes']:,} nodes: {row['command']}",
            f"at most {MAX_COMMAND_SECONDS:g} s of our own", f"{row['own_seconds']:.1f} s",
            row["own_seconds"] <= MAX_COMMAND_SECONDS,
        )
        for row in sorted(rows, key=lambda row: -row["own_seconds"])
    )  # fmt: skip
    yield _most("any command", "memory of our own", rows, "own_peak_bytes", MAX_COMMAND_BYTES)


def _worst(falling: Iterable[Expectation]) -> Iterator[Expectation]:
    """All that are missed, and the first that is met."""
    for expectation in falling:
        yield expectation
        if expectation.is_met:
            return


def _growth_expectation(what: str, growth: float) -> Expectation:
    return Expectation(
        f"twice {what}", f"at most {MAX_GROWTH:g} times as long", f"{growth:.2f} times",
        growth <= MAX_GROWTH,
    )  # fmt: skip


def _most(what: str, of: str, rows: Sequence[Row], key: str, limit: int) -> Expectation:
    most = max(row[key] for row in rows)
    return Expectation(
        f"{what}: {of}", f"at most {limit / _MEGABYTE:,.0f} MB", f"{most / _MEGABYTE:,.0f} MB",
        most <= limit,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
