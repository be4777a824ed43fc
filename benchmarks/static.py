"""Compare the static profile with onnx_tool's: time, memory and counts, as tables in Markdown.

    make bench                          all of it, some minutes
    make bench ARGS=--quick             fewer runs
    make bench ARGS="--json runs.json"  and every single run, for those who want to look closer

The models are those that the onnx package carries, and some that are made in a temporary
folder. Nothing is read from the network. How it is measured stands in README.md beside this.
"""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from generated_models import LARGE_BYTES, write_blocks, write_chain, write_large
from known_counts import LIGHT_MODELS, LightModel, Trap, traps
from runs import Contest, Figure, Ratio, Run, contest, run_once

import pytest_modelperf
from pytest_modelperf import __version__ as our_version

PEER = "onnx_tool"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pairs of runs there are of each kind of model."""

    light: int
    generated: int


FULL = Plan(light=5, generated=3)
QUICK = Plan(light=1, generated=1)


@dataclass(frozen=True, slots=True)
class Conditions:
    """When, where and with what it was measured."""

    date: str
    cpu: str
    cores: int
    load: str
    system: str
    python: str
    packages: dict[str, str]

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"{self.date}, {self.cpu}, {self.cores} cores, load before the start {self.load}, "
            f"{self.system}, Python {self.python}, {packages}"
        )


@dataclass(frozen=True, slots=True)
class TrapResult:
    """What both tools say of one small model."""

    trap: Trap
    ours: Run
    theirs: Run


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured."""

    light: tuple[Contest, ...]
    light_again: tuple[Contest, ...]
    many_nodes: tuple[Contest, ...]
    large: Contest | None
    traps: tuple[TrapResult, ...]

    @property
    def contests(self) -> tuple[Contest, ...]:
        return (*self.light, *self.many_nodes, *(() if self.large is None else (self.large,)))


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all was measured, 1 when our own figures are wrong, 2 when it could not be."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="modelperf-bench-") as folder:
        problem = _missing_peer() or _missing_space(Path(folder), options.skip_large)
        if problem:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        # As pip leaves an installed package, and onnx_tool's: an editable one is compiled on its
        # first import, or on each where PYTHONDONTWRITEBYTECODE forbids to keep the result.
        compileall.compile_dir(pytest_modelperf.__path__[0], quiet=1)
        conditions = conditions_now()
        plan = QUICK if options.quick else FULL
        results = measure(Path(folder), plan, with_large=not options.skip_large)
    print(render(conditions, results))
    if options.json is not None:
        options.json.write_text(to_json(conditions, results), encoding="utf-8")
    wrong = our_errors(results)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


def measure(folder: Path, plan: Plan, *, with_large: bool) -> Results:
    """Every contest, the large model last, as it drives other files out of memory."""
    light = tuple(_light(model, plan.light) for model in LIGHT_MODELS)
    again = tuple(_light(model, plan.light, "--warm") for model in LIGHT_MODELS)
    many_nodes = []
    for name, write in (("8,000 nodes, blocks", write_blocks), ("8,000 nodes, chain", write_chain)):
        path = folder / "many_nodes.onnx"
        write(path)
        _progress(name)
        many_nodes.append(contest(name, path, plan.generated))
    answers = tuple(_trap(trap, folder / "trap.onnx") for trap in traps())
    large = None
    if with_large:
        name = "1.6 GB of weights"
        _progress(name)
        path = folder / "large.onnx"
        write_large(path)
        large = contest(name, path, plan.generated)
        path.unlink()
    return Results(light, again, tuple(many_nodes), large, answers)


def conditions_now() -> Conditions:
    return Conditions(
        date=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        cpu=_cpu_model(),
        cores=os.cpu_count() or 0,
        load=f"{os.getloadavg()[0]:.1f}",
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={
            "pytest-modelperf": our_version,
            **{name: version(name) for name in (PEER, "onnx", "numpy")},
        },
    )


def our_errors(results: Results) -> tuple[str, ...]:
    """Every model that our profile got wrong or stumbled over."""
    wrong = []
    right = {model.name: model for model in LIGHT_MODELS}
    for each in results.contests:
        run = each.pairs[0].ours
        known = right.get(each.model)
        if run.error:
            wrong.append(f"{each.model}: {run.error}")
        elif known is not None and (run.macs, run.params) != (known.macs, known.params):
            wrong.append(f"{each.model}: {run.macs} MACs and {run.params} params are not right")
    wrong += [
        f"{result.trap.name}: {_shown_answer(result.trap, result.ours)}"
        for result in results.traps
        if not result.trap.is_right(_answer(result.trap, result.ours), one_figure=False)
    ]
    return tuple(wrong)


def to_json(conditions: Conditions, results: Results) -> str:
    """Every run of both tools."""
    return json.dumps(
        {
            "conditions": asdict(conditions),
            "contests": [asdict(each) for each in results.contests],
            "light_again": [asdict(each) for each in results.light_again],
            "traps": [
                {
                    "name": result.trap.name,
                    "figure": result.trap.figure,
                    "right": result.trap.right,
                    "ours": asdict(result.ours),
                    "theirs": asdict(result.theirs),
                }
                for result in results.traps
            ],
        },
        indent=1,
    )


def render(conditions: Conditions, results: Results) -> str:
    """The report."""
    pairs = " or ".join(map(str, sorted({len(each.pairs) for each in results.contests})))
    method = (
        "Ratios are onnx_tool's figure divided by ours: above 1, ours needs less. They are medians "
        f"over pairs of fresh processes ({pairs} a model), least and largest in parentheses. "
        "Figures in bold are wrong."
    )
    return "\n\n".join(
        (
            "# The static profile and onnx_tool",
            f"{conditions}.",
            method,
            "## Expected and reached",
            expectation_table(results),
            "## Time",
            time_table(results.contests),
            "## Time of a light model where one was profiled before",
            again_table(results.light_again),
            "## Memory",
            memory_table(results.contests),
            "## Counts of the light models",
            light_table(results.light),
            "## Counts of small models",
            trap_table(results.traps),
        )
    )


def expectation_table(results: Results) -> str:
    rows = [
        (f"{each.model}: 10x faster", *_reached(each, _call, _process, 10))
        for each in results.many_nodes
    ]
    if results.large is not None:
        rows.append(("1.6 GB: 20x faster", *_reached(results.large, _call, _process, 20)))
        rows.append(("1.6 GB: 1/20 of the memory", *_reached(results.large, _growth, _peak, 20)))
    rows.append(
        (
            "every light model: no slower",
            _judged(_slowest(results.light, _call), 1),
            _judged(_slowest(results.light, _process), 1),
        )
    )
    rows.append(
        (
            "the same, a model profiled before",
            _judged(_slowest(results.light_again, _call), 1),
            "",
        )
    )
    return _table(("expected", "profile call", "whole process"), rows)


def again_table(contests: Iterable[Contest]) -> str:
    """Light models in a process that has profiled one before, as in a test run of several."""
    header = ("model", "call, ours", PEER, "ratio")
    return _table(header, [(each.model, *_times(each, _call)) for each in contests])


def time_table(contests: Iterable[Contest]) -> str:
    header = ("model", "call, ours", PEER, "ratio", "process, ours", PEER, "ratio")
    return _table(header, [(c.model, *_times(c, _call), *_times(c, _process)) for c in contests])


def memory_table(contests: Iterable[Contest]) -> str:
    header = ("model", "file", "peak, ours", PEER, "ratio", "of it the call, ours", PEER)
    rows = []
    for each in contests:
        peaks, growths = each.medians(_peak), each.medians(_growth)
        rows.append(
            (
                each.model,
                _mb(each.size_bytes),
                *map(_mb, peaks),
                _shown_ratio(each.ratio(_peak)),
                *map(_mb, growths),
            )
        )
    return _table(header, rows)


def light_table(contests: Sequence[Contest]) -> str:
    header = (
        "model", "MACs, right", "ours", "with elementwise, ours", PEER,
        "params, right", "ours", PEER,
    )  # fmt: skip
    rows = []
    for model, each in zip(LIGHT_MODELS, contests, strict=True):
        ours, theirs = each.pairs[0].ours, each.pairs[0].theirs
        rows.append(
            (
                model.name,
                f"{model.macs:,}",
                *map(_count, (ours.macs, ours.total_ops, theirs.total_ops)),
                f"{model.params:,}",
                *map(_count, (ours.params, theirs.params)),
            )
        )
    return _table(header, rows)


def trap_table(results: Iterable[TrapResult]) -> str:
    header = ("model", "figure", "right", "ours", PEER)
    rows = []
    for result in results:
        trap = result.trap
        right = _shown(trap.right)
        rows.append(
            (
                trap.name,
                _FIGURES[trap.figure],
                f"at least {right}" if trap.at_least else right,
                _marked(trap, result.ours, one_figure=False),
                _marked(trap, result.theirs, one_figure=True),
            )
        )
    return _table(header, rows)


_FIGURES = {
    "macs": "MACs",
    "total_ops": "operations",
    "params": "params",
    "sparsity": "zeros",
}


def _call(run: Run) -> float | None:
    return run.call_seconds


def _process(run: Run) -> float | None:
    return run.process_seconds


def _peak(run: Run) -> float | None:
    return run.peak_bytes


def _growth(run: Run) -> float | None:
    return run.call_growth_bytes


def _reached(each: Contest, call: Figure, process: Figure, wanted: float) -> tuple[str, str]:
    return _judged(each.ratio(call), wanted), _judged(each.ratio(process), wanted)


def _judged(ratio: Ratio | None, wanted: float) -> str:
    if ratio is None:
        return "failed"
    return f"{ratio}, {'met' if ratio.median >= wanted else 'missed'}"


def _slowest(contests: Iterable[Contest], figure: Figure) -> Ratio | None:
    ratios = [each.ratio(figure) for each in contests]
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known, key=lambda ratio: ratio.median) if len(known) == len(ratios) else None


def _times(each: Contest, figure: Figure) -> tuple[str, str, str]:
    ours, theirs = each.medians(figure)
    return _seconds(ours), _seconds(theirs), _shown_ratio(each.ratio(figure))


def _shown_ratio(ratio: Ratio | None) -> str:
    return "-" if ratio is None else str(ratio)


def _answer(trap: Trap, run: Run) -> int | str | None:
    answers = {
        "macs": run.macs,
        "total_ops": run.total_ops,
        "params": run.params,
        "sparsity": run.sparsity,
    }
    return answers[trap.figure]


def _shown_answer(trap: Trap, run: Run) -> str:
    return run.error_name if run.error else _shown(_answer(trap, run))


def _marked(trap: Trap, run: Run, *, one_figure: bool) -> str:
    if trap.is_right(_answer(trap, run), one_figure=one_figure):
        return _shown_answer(trap, run)
    return f"**{_shown_answer(trap, run)}**"


def _shown(value: int | str | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else value


def _seconds(value: float | None) -> str:
    if value is None:
        return "failed"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def _mb(value: float | None) -> str:
    return "failed" if value is None else f"{value / 1e6:,.1f} MB"


def _count(value: int | None) -> str:
    return "failed" if value is None else f"{value:,}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _light(model: LightModel, pairs: int, *flags: str) -> Contest:
    _progress(" ".join((model.name, *flags)))
    return contest(model.name, model.path, pairs, *flags)


def _trap(trap: Trap, path: Path) -> TrapResult:
    _progress(trap.name)
    trap.write(path)
    flags = ("--sparsity",) if trap.figure == "sparsity" else ()
    return TrapResult(trap, run_once("ours", path, *flags), run_once("onnx_tool", path, *flags))


def _missing_peer() -> str | None:
    if find_spec(PEER) is None:
        return f"{PEER} is not installed for {sys.executable}. Run: make bench"
    return None


def _missing_space(folder: Path, skip_large: bool) -> str | None:  # noqa: FBT001  # an option
    free = shutil.disk_usage(folder).free
    if skip_large or free >= LARGE_BYTES:
        return None
    return (
        f"the large model needs {LARGE_BYTES / 1e9:.1f} GB in {folder.parent}, where "
        f"{free / 1e9:.1f} GB are free. Set TMPDIR to a folder with more room, or leave that "
        'model out: make bench ARGS="--skip-large"'
    )


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _progress(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one pair of runs of each model")
    parser.add_argument("--skip-large", action="store_true", help="leave out the model of 1.6 GB")
    parser.add_argument("--json", type=Path, metavar="F", help="write every run to F")
    return parser


if __name__ == "__main__":
    sys.exit(main())
