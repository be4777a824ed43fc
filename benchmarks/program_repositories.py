"""Programs as git repositories: made of their wheels, changed, and timed without a verdict."""

from __future__ import annotations

import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from commands import with_sources
from long_duet import Slowdown as Timed
from onnx import TensorProto, helper
from real_variants import insert_nodes
from stranger_programs import PROGRAM, Edit, Program, Slowdown

from pytest_modelperf.stats.estimates import typical_interval
from pytest_modelperf.stats.slowdowns import low_time

TEST = "test_program.py"
# What the six packages import, in the versions that are the newest.
_NEEDED = (
    "opencv-python-headless", "pillow", "pyclipper", "shapely", "six", "pyyaml", "tqdm",
)  # fmt: skip
_TEST_TEXT = """from program import Program, example


def test_program(modelperf):
    program = Program()
    modelperf.check(program.run, example())
"""
_SETTINGS = """[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "-p no:cacheprovider"
"""
_AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
_ZERO = "modelperf_zero"
# Answers each line, a number of calls, with their times in nanoseconds.
_TIMER = """
import contextlib, gc, json, os, sys, time
sys.path.insert(0, os.getcwd())
with contextlib.redirect_stdout(sys.stderr):
    from program import Program, example
    program, given = Program(), example()
    for _ in range(5):
        program.run(given)
    gc.collect()
    gc.freeze()
for line in sys.stdin:
    times = []
    with contextlib.redirect_stdout(sys.stderr):
        for _ in range(int(line)):
            begun = time.perf_counter_ns()
            program.run(given)
            times.append(time.perf_counter_ns() - begun)
    print(json.dumps(times), flush=True)
"""
_CONFIDENCE = 0.95
# The threads of an idle session spin for some milliseconds, which the other side feels.
_TURN_NS = 150e6
# The time of a pair of processes.
ROUND_NS = 2e9


class PlantingError(ValueError):
    """A slowdown does not fit the files of its program."""


def find_wheel(requirement: str, folder: Path) -> Path:
    """The wheel of a package, which is downloaded once."""
    place = folder / requirement
    if not any(place.glob("*.whl")):
        _pip("download", "--no-deps", "--dest", str(place), requirement)
    (wheel,) = place.glob("*.whl")
    return wheel


def install_needed(folder: Path) -> Path:
    """A folder with the packages that the programs import, for PYTHONPATH; it is made once."""
    place = folder / f"site-{sys.version_info.major}.{sys.version_info.minor}"
    if not place.exists():
        made = place.with_suffix(".part")
        _pip("install", "--no-deps", "--target", str(made), *_NEEDED)
        made.rename(place)
    return place


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], check=True)


def make_repository(program: Program, wheel: Path, folder: Path) -> None:
    """The program as its first commit."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        for name, place in program.files:
            content = archive.read(name)
            if name.endswith(".xz") and not place.endswith(".xz"):
                content = lzma.decompress(content)
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    (folder / PROGRAM).write_text(program.wrapper, encoding="utf-8")
    (folder / TEST).write_text(_TEST_TEXT, encoding="utf-8")
    (folder / "pyproject.toml").write_text(_SETTINGS, encoding="utf-8")
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    apply_edits(program.edits, folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "The program")


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", subject)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *_AUTHOR, *arguments],  # noqa: S607  # the git of the user
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@contextmanager
def planted(change: Slowdown | None, folder: Path) -> Iterator[None]:
    """A slowdown in the work tree, or a comment alone; the commit is there again afterwards."""
    try:
        if change is None:
            path = folder / PROGRAM
            path.write_text(path.read_text("utf-8") + "\n# The end.\n", "utf-8")
        else:
            apply_edits(change.edits, folder)
            if change.model is not None:
                path = folder / change.model.path
                onnx.save(with_kernels(onnx.load(path), change.model.kernels), path)
        yield
    finally:
        git(folder, "checkout", "--quiet", "--", ".")


def apply_edits(edits: Sequence[Edit], folder: Path) -> None:
    for edit in edits:
        path = folder / edit.path
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
        if text.count(edit.old) != 1:
            raise PlantingError(f"{edit.path} has {edit.old!r} {text.count(edit.old)} times")
        path.write_bytes(text.replace(edit.old, edit.new).encode("utf-8"))


def with_kernels(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """The model with a chain of Erf over its first input, whose result adds 0 to an output."""
    graph = model.graph
    floats = [o.name for o in graph.output if o.type.tensor_type.elem_type == TensorProto.FLOAT]
    output = floats[0]
    index = next(index for index, node in enumerate(graph.node) if output in node.output)
    node = graph.node[index]
    chain = [helper.make_node("Cast", [graph.input[0].name], ["erf_0"], to=TensorProto.FLOAT)]
    chain += [
        helper.make_node("Erf", [f"erf_{number}"], [f"erf_{number + 1}"], f"erf_{number}")
        for number in range(count)
    ]
    chain += [
        helper.make_node("ReduceMax", [f"erf_{count}"], ["erf_max"], keepdims=0),
        helper.make_node("Mul", ["erf_max", _ZERO], ["erf_none"]),
    ]
    node.output[:] = [f"{name}_before" if name == output else name for name in node.output]
    last = helper.make_node("Add", [f"{output}_before", "erf_none"], [output])
    insert_nodes(graph, index + 1, [*chain, last], {})
    graph.initializer.append(helper.make_tensor(_ZERO, TensorProto.FLOAT, [], [0.0]))
    return model


# -- times without a verdict


@dataclass(frozen=True, slots=True)
class Trees:
    """The work tree of a program, a worktree of its first commit, and what both import."""

    folder: Path
    before: Path
    site: Path


def time_slowdown(
    change: Slowdown | None, trees: Trees, rounds: int, round_ns: float = ROUND_NS
) -> Timed:
    """How many times as long a call takes, by pairs of fresh processes in turn."""
    ratios, before_ms = [], []
    with planted(change, trees.folder):
        for number in range(rounds):
            with ExitStack() as stack:
                sides = [
                    stack.enter_context(_timer(place, trees.site))
                    for place in (trees.before, trees.folder)
                ]
                old, new = _in_turn(sides, round_ns, first=number % 2)
            # Other processes hold some calls up: the lowest times hardly change.
            ratios.append(low_time([new]) / low_time([old]))
            before_ms.append(low_time([old]) / 1e6)
    low, high = typical_interval(ratios, _CONFIDENCE)
    ratio = math.exp(statistics.fmean(map(math.log, ratios)))
    return Timed(ratio, low, high, rounds, statistics.median(before_ms))


_Timer = Callable[[int], "list[int]"]


def _in_turn(sides: Sequence[_Timer], round_ns: float, first: int) -> tuple[list[int], list[int]]:
    turn_ns = min(_TURN_NS, round_ns / 10)
    ones_ns = [statistics.median(side(3)) for side in sides]
    counts = [max(1, round(turn_ns / one_ns)) for one_ns in ones_ns]
    pair_ns = sum(count * one_ns for count, one_ns in zip(counts, ones_ns, strict=True))
    turns = max(5, round(round_ns / pair_ns))
    times: tuple[list[int], list[int]] = ([], [])
    for turn in range(turns):
        for side in (0, 1) if (turn + first) % 2 else (1, 0):
            times[side].extend(sides[side](counts[side]))
    return times


@contextmanager
def _timer(tree: Path, site: Path) -> Iterator[_Timer]:
    with subprocess.Popen(
        [sys.executable, "-c", _TIMER],
        cwd=tree,
        env=environment(site),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def ask(count: int) -> list[int]:
            print(count, file=process.stdin, flush=True)
            times: list[int] = json.loads(process.stdout.readline() if process.stdout else "[]")
            return times

        try:
            yield ask
        finally:
            if process.stdin is not None:
                process.stdin.close()


def environment(site: Path, **variables: str) -> dict[str, str]:
    """The variables of a process that imports what the programs need."""
    return {**os.environ, **with_sources(str(site)), "PYTHONDONTWRITEBYTECODE": "1", **variables}
