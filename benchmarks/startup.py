"""What the plugin costs a pytest run that does not ask for it, and what a command's start costs.

    python benchmarks/startup.py [--pairs 40]

`python -m pytest` runs one trivial test in a fresh process, once with the plugin loaded and without
`--modelperf`, once with `-p no:modelperf`; the two take turns in random order, so that the machine
is the same for both. pytest finds the plugin as it finds any that is installed, by its entry point:
naming it would have pytest look through all packages on one side only. No other plugin is loaded.
Expected: at most 5 ms more, and no heavy module.

`modelperf profile light_squeezenet.onnx --static` runs as a whole process in turn with
`python -c "import onnx, numpy"`, and `modelperf --help` with `python -c pass`. Expected: at most
1.3 times as long, and at most 100 ms more.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median

import onnx
import results
from results import Expectation, Result, Start, at_most, conclude, markdown
from scipy.stats import quantile_test

MAX_ADDED_MS = 5.0
MAX_STATIC_RATIO = 1.3
MAX_HELP_MS = 100.0
CONFIDENCE = 0.95
# With fewer pairs no interval of the median holds with this confidence.
MIN_PAIRS = 6
MAX_SECONDS = 60
HEAVY = ("click", "msgspec", "numpy", "onnx", "onnxruntime", "scipy")

_ROOT = Path(__file__).resolve().parent.parent
_LOADED = ()
_BLOCKED = ("-p", "no:modelperf")
_RUNS = {"with the plugin": _LOADED, "-p no:modelperf": _BLOCKED}
_GROUP = "pytest11"
_COMMAND = ("-m", "pytest_modelperf")
_STATIC, _IMPORTS, _HELP, _NOTHING = (
    "modelperf profile --static",
    "import onnx, numpy",
    "modelperf --help",
    "python -c pass",
)

# The same run, and then what it imported.
_LIST_IMPORTS = f"""
import json, sys
import pytest
code = pytest.main(sys.argv[1:])
ours = [name for name in sys.modules if name.partition(".")[0] == "pytest_modelperf"]
print()
print(json.dumps([int(code), [name for name in {HEAVY!r} if name in sys.modules], ours]))
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs beside each other, from start to end of the process."""

    loaded_ms: float
    blocked_ms: float

    @property
    def added_ms(self) -> float:
        return self.loaded_ms - self.blocked_ms

    @property
    def ratio(self) -> float:
        return self.loaded_ms / self.blocked_ms


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and between what it lies with the confidence of this benchmark."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Imports:
    """What a run imported: heavy modules, and how many of our own."""

    run: str
    heavy: tuple[str, ...]
    ours: int


@dataclass(frozen=True, slots=True)
class CommandTurn:
    """Each process once, in ms."""

    static_ms: float
    imports_ms: float
    help_ms: float
    nothing_ms: float


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the order within the pairs")
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"an interval of the median needs {MIN_PAIRS} pairs or more")
    start = Start.now("startup")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        install_entry_point(folder)
        (folder / "test_trivial.py").write_text("def test_trivial():\n    assert True\n")
        # These also compile what is not yet compiled, so that no timed run has to.
        imports = [imports_of(name, options, folder) for name, options in _RUNS.items()]
        choose = random.Random(arguments.seed)
        pairs = timed_pairs(folder, arguments.pairs, choose)
        turns = timed_commands(folder, arguments.pairs, choose)
    rows = {
        "pairs": [asdict(pair) for pair in pairs],
        "imports": [asdict(each) for each in imports],
        "commands": [asdict(turn) for turn in turns],
    }
    return conclude(start.finish(rows, peers=("pytest",)), tables, expectations, arguments.json)


def install_entry_point(folder: Path) -> None:
    """What an installed package leaves for pytest to find, and all that it reads of it."""
    installed = folder / "pytest_modelperf-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: pytest-modelperf\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        f"[{_GROUP}]\nmodelperf = pytest_modelperf.plugin\n"
    )


def no_other_plugin() -> tuple[str, ...]:
    """Options that keep out whatever else is installed here."""
    others = {point.name for point in entry_points(group=_GROUP)} - {"modelperf"}
    return tuple(f"-pno:{name}" for name in sorted(others))


_NO_OTHERS = ("-pno:cacheprovider", *no_other_plugin())


def timed_pairs(folder: Path, count: int, choose: random.Random) -> tuple[Pair, ...]:
    """That many runs with the plugin and without, who goes first drawn for each pair."""
    pairs = []
    for _ in range(count):
        order = [_LOADED, _BLOCKED]
        choose.shuffle(order)
        took_ms = {options: run_once(options, folder) for options in order}
        pairs.append(Pair(took_ms[_LOADED], took_ms[_BLOCKED]))
    return tuple(pairs)


def run_once(options: Sequence[str], folder: Path) -> float:
    """How many ms pytest took, from start to end of its process."""
    started = time.perf_counter()
    done = run_test([sys.executable, "-m", "pytest"], options, folder)
    took_ms = (time.perf_counter() - started) * 1e3
    if done.returncode != 0:
        sys.exit(f"pytest {' '.join(options)} failed:\n{done.stdout}{done.stderr}")
    return took_ms


def imports_of(name: str, options: Sequence[str], folder: Path) -> Imports:
    done = run_test([sys.executable, "-c", _LIST_IMPORTS], options, folder)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines or not lines[-1].startswith("[0,"):
        sys.exit(f"pytest {' '.join(options)} failed:\n{done.stdout}{done.stderr}")
    _, heavy, ours = json.loads(lines[-1])
    return Imports(name, tuple(heavy), len(ours))


def timed_commands(folder: Path, count: int, choose: random.Random) -> tuple[CommandTurn, ...]:
    """That many turns of all processes, each in an order drawn for it; one more comes first."""
    model = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    processes = {
        "static_ms": (*_COMMAND, "profile", str(model), "--static"),
        "imports_ms": ("-c", "import onnx, numpy"),
        "help_ms": (*_COMMAND, "--help"),
        "nothing_ms": ("-c", "pass"),
    }
    turns = []
    for _ in range(count + 1):
        took_ms = {}
        for name in choose.sample(sorted(processes), len(processes)):
            started = time.perf_counter()
            done = run([sys.executable, *processes[name]], folder)
            took_ms[name] = (time.perf_counter() - started) * 1e3
            if done.returncode != 0:
                sys.exit(f"{name} failed:\n{done.stderr}")
        turns.append(CommandTurn(**took_ms))
    # The first turn compiles what is not yet compiled.
    return tuple(turns[1:])


def run_test(
    program: Sequence[str], options: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """One run of the trivial test, with ours as the only plugin where `options` let it."""
    return run([*program, *_NO_OTHERS, *options, "-q", "test_trivial.py"], folder)


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that finds this package as an installed one."""
    dropped = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    told = {
        "PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}",
        # As with any installed package, the sources were compiled by the first run.
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=kept | told,
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_SECONDS,
    )


def typical(values: Sequence[float]) -> Interval:
    """The median of what was found in each pair; its interval assumes no shape of the noise."""
    between = quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    return Interval(median(values), float(between.low), float(between.high))


def pairs_of(result: Result) -> list[Pair]:
    return [Pair(**row) for row in result.rows["pairs"]]


def turns_of(result: Result) -> list[CommandTurn]:
    return [CommandTurn(**row) for row in result.rows["commands"]]


def tables(result: Result) -> dict[str, str]:
    pairs, turns = pairs_of(result), turns_of(result)
    medians = (median(p.loaded_ms for p in pairs), median(p.blocked_ms for p in pairs))
    rows = [
        (row["run"], f"{ms:.1f} ms", str(row["ours"]), ", ".join(row["heavy"]) or "none")
        for row, ms in zip(result.rows["imports"], medians, strict=True)
    ]
    ratio = typical([pair.ratio for pair in pairs])
    header = ("run", "median", "modules of ours", "heavy modules")
    return {
        "startup": (
            f"{markdown(header, rows, 'lrrl')}\n\n"
            f"Within a pair, of {len(pairs)}, the plugin adds {added_text(pairs)}, a ratio of "
            f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})."
        ),
        "startup commands": markdown(
            ("process", "median"),
            [
                (_STATIC, f"{median(turn.static_ms for turn in turns):.0f} ms"),
                (_IMPORTS, f"{median(turn.imports_ms for turn in turns):.0f} ms"),
                (_HELP, f"{median(turn.help_ms for turn in turns):.0f} ms"),
                (_NOTHING, f"{median(turn.nothing_ms for turn in turns):.0f} ms"),
            ],
            "lr",
        ),
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    pairs = pairs_of(result)
    added = typical([pair.added_ms for pair in pairs])
    turns = turns_of(result)
    static = typical([turn.static_ms / turn.imports_ms for turn in turns])
    asked = typical([turn.help_ms - turn.nothing_ms for turn in turns])
    heavy = next(row["heavy"] for row in result.rows["imports"] if row["run"] in _RUNS)
    return (
        Expectation(
            "added to a run without --modelperf",
            f"at most {MAX_ADDED_MS:g} ms",
            added_text(pairs),
            at_most(MAX_ADDED_MS, added.low, added.high),
        ),
        Expectation(
            "heavy modules imported without --modelperf",
            "none",
            ", ".join(heavy) or "none",
            not heavy,
        ),
        Expectation(
            f"{_STATIC} in times of {_IMPORTS}",
            f"at most {MAX_STATIC_RATIO:g}",
            f"{static.value:.2f} ({static.low:.2f} to {static.high:.2f})",
            at_most(MAX_STATIC_RATIO, static.low, static.high),
        ),
        Expectation(
            f"{_HELP} beyond {_NOTHING}",
            f"at most {MAX_HELP_MS:g} ms",
            f"{asked.value:.0f} ms ({asked.low:.0f} to {asked.high:.0f})",
            at_most(MAX_HELP_MS, asked.low, asked.high),
        ),
    )


def added_text(pairs: Sequence[Pair]) -> str:
    added = typical([pair.added_ms for pair in pairs])
    return (
        f"{added.value:+.1f} ms ({100 * CONFIDENCE:g} % interval {added.low:+.1f} to "
        f"{added.high:+.1f})"
    )


if __name__ == "__main__":
    sys.exit(main())
