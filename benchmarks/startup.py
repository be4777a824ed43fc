"""What the plugin costs a pytest run that does not ask for it, and what a command's start costs.

`python -m pytest` runs one trivial test in a fresh process, with the plugin and with
`-p no:modelperf`, in random order. pytest finds the plugin as it finds any that is installed, by
its entry point: naming it would have pytest look through all packages on one side only. No other
plugin is loaded. In the same way `modelperf profile --static` and `modelperf --help` take turns
with a Python that does as good as nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median

from expected import CONFIDENCE, Expectation, at_most
from known_counts import light_model
from measuring import Program
from results import Result, Rows
from scipy.stats import quantile_test
from shown import markdown

MAX_ADDED_MS = 5.0
MAX_STATIC_RATIO = 1.3
MAX_HELP_MS = 100.0
# With fewer pairs no interval of the median holds with this confidence.
MIN_PAIRS = 6
MAX_SECONDS = 60
HEAVY = ("click", "msgspec", "numpy", "onnx", "onnxruntime", "scipy")

_ROOT = Path(__file__).resolve().parent.parent
_WITH_PLUGIN = "with the plugin"
_RUNS: dict[str, tuple[str, ...]] = {_WITH_PLUGIN: (), "-p no:modelperf": ("-p", "no:modelperf")}
_GROUP = "pytest11"
_COMMAND = ("-m", "pytest_modelperf")
_STATIC, _HELP = "modelperf profile --static", "modelperf --help"
_IMPORTS, _NOTHING = "import onnx, numpy", "python -c pass"

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


def measure(options: argparse.Namespace) -> Rows:
    choose = random.Random(0)
    count = max(options.pairs, MIN_PAIRS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        install_entry_point(folder)
        (folder / "test_trivial.py").write_text("def test_trivial():\n    assert True\n")
        # These also compile what is not yet compiled, so that no timed run has to.
        imports = [imports_of(name, given, folder) for name, given in _RUNS.items()]
        runs = {name: [*_TEST, *given] for name, given in _RUNS.items()}
        pairs = [
            Pair(*(turn[name] for name in _RUNS)) for turn in timed(runs, count, choose, folder)
        ]
        model = light_model("squeezenet")
        commands = {
            "static_ms": (*_COMMAND, "profile", str(model), "--static"),
            "imports_ms": ("-c", "import onnx, numpy"),
            "help_ms": (*_COMMAND, "--help"),
            "nothing_ms": ("-c", "pass"),
        }
        turns = timed(commands, count, choose, folder)
    return {"pairs": pairs, "imports": imports, "commands": turns}


def install_entry_point(folder: Path) -> None:
    """What an installed package leaves for pytest to find, and all that it reads of it."""
    installed = folder / "pytest_modelperf-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: pytest-modelperf\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        f"[{_GROUP}]\nmodelperf = pytest_modelperf.plugin\n"
    )


# Whatever else is installed here is kept out.
_OTHERS = sorted({point.name for point in entry_points(group=_GROUP)} - {"modelperf"})
_OPTIONS = ("-pno:cacheprovider", *(f"-pno:{name}" for name in _OTHERS), "-q", "test_trivial.py")
_TEST = ("-m", "pytest", *_OPTIONS)


def timed(
    commands: Mapping[str, Sequence[str]], count: int, choose: random.Random, folder: Path
) -> list[dict[str, float]]:
    """The ms of each command in that many turns, each in an order drawn for it.

    One more turn comes first, which compiles what is not yet compiled.
    """
    turns = []
    for _ in range(count + 1):
        took_ms = {}
        for name in choose.sample(sorted(commands), len(commands)):
            started = time.perf_counter()
            run(commands[name], folder)
            took_ms[name] = (time.perf_counter() - started) * 1e3
        turns.append(took_ms)
    return turns[1:]


def imports_of(name: str, options: Sequence[str], folder: Path) -> Imports:
    lines = run(["-c", _LIST_IMPORTS, *_OPTIONS, *options], folder).strip().splitlines()
    code, heavy, ours = json.loads(lines[-1])
    if code:
        sys.exit(f"pytest {' '.join(options)} failed:\n{lines}")
    return Imports(name, tuple(heavy), len(ours))


def run(command: Sequence[str], folder: Path) -> str:
    """What a Python prints that finds this package as an installed one."""
    dropped = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    own = {
        "PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}",
        # As with any installed package, the sources were compiled by the first run.
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=kept | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_SECONDS,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect_typical(
    what: str, values: Sequence[float], most: float, unit: str, form: str
) -> Expectation:
    """Expect that a median is at most this; its interval assumes no shape of the noise.

    `form` has places for the median and both ends.
    """
    between = quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    low, high = float(between.low), float(between.high)
    found = form.format(median(values), low, high)
    return Expectation(what, f"at most {most:g}{unit}", found, at_most(most, low, high))


def tables(result: Result) -> dict[str, str]:
    pairs = result.read("pairs", Pair)
    medians = (median(p.loaded_ms for p in pairs), median(p.blocked_ms for p in pairs))
    rows = [
        (each.run, f"{ms:.1f} ms", each.ours, ", ".join(each.heavy) or "none")
        for each, ms in zip(result.read("imports", Imports), medians, strict=True)
    ]
    titles = zip(CommandTurn.__slots__, (_STATIC, _IMPORTS, _HELP, _NOTHING), strict=True)
    commands = [
        (title, f"{median(row[name] for row in result.rows['commands']):.0f} ms")
        for name, title in titles
    ]
    return {
        "startup": markdown(("run", "median", "modules of ours", "heavy modules"), rows, "lrrl"),
        "startup commands": markdown(("process", "median"), commands, "lr"),
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    added = [pair.added_ms for pair in result.read("pairs", Pair)]
    turns = result.read("commands", CommandTurn)
    static = [turn.static_ms / turn.imports_ms for turn in turns]
    asked = [turn.help_ms - turn.nothing_ms for turn in turns]
    heavy = next(each.heavy for each in result.read("imports", Imports) if each.run == _WITH_PLUGIN)
    what, none = "added to a run without --modelperf", "heavy modules imported without --modelperf"
    form = f"{{:+.1f}} ms ({100 * CONFIDENCE:g} % interval {{:+.1f}} to {{:+.1f}})"
    times, beyond = f"{_STATIC} in times of {_IMPORTS}", f"{_HELP} beyond {_NOTHING}"
    return (
        expect_typical(what, added, MAX_ADDED_MS, " ms", form),
        Expectation(none, "none", ", ".join(heavy) or "none", not heavy),
        expect_typical(times, static, MAX_STATIC_RATIO, "", "{:.2f} ({:.2f} to {:.2f})"),
        expect_typical(beyond, asked, MAX_HELP_MS, " ms", "{:.0f} ms ({:.0f} to {:.0f})"),
    )


if __name__ == "__main__":
    program = Program("startup", __doc__, tables, expectations, peers=("pytest",))
    program.number("--pairs", 40, f"at least {MIN_PAIRS}")
    sys.exit(program.run(measure))
