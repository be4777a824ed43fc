"""Compare the static profile with onnx_tool's: time, memory and counts, as tables in Markdown.

The models are those that the onnx package carries, and some that are made in a temporary
folder. Nothing is read from the network.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from expected import Expectation, expect_share
from generated_models import LARGE_BYTES, write_blocks, write_chain, write_large
from known_counts import LIGHT_MODELS, LightModel, Trap, traps
from measuring import Program, say
from results import Result, ResultError, Rows
from runs import TOOLS, Contest, Figure, Ratio, Run, contest, run_once
from shown import table

import pytest_modelperf

PEER = "onnx_tool"
LARGE = "1.6 GB of weights"
# The least ratio that is expected of a graph of many nodes, and of a large file.
MANY_NODES_RATIO = 10
LARGE_RATIO = 20


@dataclass(frozen=True, slots=True)
class TrapRuns:
    """The runs of both tools on the small model of this name."""

    name: str
    ours: Run
    theirs: Run

    @property
    def trap(self) -> Trap:
        return _TRAPS[self.name]

    @property
    def is_right(self) -> bool:
        """Whether ours is."""
        return self.trap.is_right(_answer(self.trap, self.ours), one_figure=False)

    @property
    def is_theirs_right(self) -> bool:
        return self.trap.is_right(_answer(self.trap, self.theirs), one_figure=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured."""

    light: Sequence[Contest]
    light_again: Sequence[Contest]
    many_nodes: Sequence[Contest]
    large: Sequence[Contest]
    traps: Sequence[TrapRuns]

    @property
    def contests(self) -> tuple[Contest, ...]:
        return (*self.light, *self.many_nodes, *self.large)


def measure(options: argparse.Namespace) -> Rows:
    """Every contest, the large model last, as it drives other files out of memory."""
    folder, (light_pairs, pairs) = options.folder, (1, 1) if options.quick else (5, 3)
    _check_space(folder, options.skip_large)
    # As pip leaves an installed package, and onnx_tool's: an editable one is compiled on its
    # first import, or on each where PYTHONDONTWRITEBYTECODE forbids to keep the result.
    compileall.compile_dir(pytest_modelperf.__path__[0], quiet=1)
    rows: dict[str, list[object]] = {}
    for kind, flags in (("light", ()), ("light again", ("--warm",))):
        for model in LIGHT_MODELS:
            say("...", model.name, *flags)
            found = contest(model.name, model.path, light_pairs, *flags)
            rows.setdefault(kind, []).append(found)
    generated = [
        ("many nodes", "8,000 nodes, blocks", write_blocks),
        ("many nodes", "8,000 nodes, chain", write_chain),
        ("large", LARGE, write_large),
    ]
    for kind, name, write in generated:
        rows.setdefault(kind, [])
        if kind == "large" and options.skip_large:
            continue
        say("...", name)
        path = folder / "generated.onnx"
        write(path)
        rows[kind].append(contest(name, path, pairs))
        path.unlink()
    rows["traps"] = []
    for trap in traps():
        say("...", trap.name)
        path = folder / "trap.onnx"
        trap.write(path)
        flags = ("--sparsity",) if trap.figure == "sparsity" else ()
        ours, theirs = (run_once(tool, path, *flags) for tool in TOOLS)
        rows["traps"].append(TrapRuns(trap.name, ours, theirs))
    return rows


def measured_in(result: Result) -> Measured:
    runs = result.read("traps", TrapRuns)
    if gone := [each.name for each in runs if each.name not in _TRAPS]:
        raise ResultError(
            f"known_counts.py no longer has {', '.join(gone)}. "
            "Type: python benchmarks/evidence.py --only static"
        )
    kinds = ("light", "light again", "many nodes", "large")
    light, again, many_nodes, large = (result.read(kind, Contest) for kind in kinds)
    return Measured(light, again, many_nodes, large, runs)


def tables(result: Result) -> dict[str, str]:
    measured = measured_in(result)
    return {
        "static": cost_table(measured),
        "static counts": trap_table(measured.traps),
        "static short": f"{expectation_table(measured)}\n\n{right_counts(measured.traps)}",
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    measured = measured_in(result)
    return (
        *(
            Expectation(f"{goal.what}: {where}", goal.expected, _found(ratio), _is_met(ratio, goal))
            for goal in goals(measured)
            for where, ratio in (("profile call", goal.call), ("whole process", goal.process))
            if where == "profile call" or goal.has_process
        ),
        expect_share("small models counted right", (each.is_right for each in measured.traps)),
        expect_share("light models counted right", map(_has_right_counts, measured.light)),
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that was expected of the profile alone and, where it is, of the whole process."""

    what: str
    wanted: float
    call: Ratio | None
    process: Ratio | None = None
    has_process: bool = True
    of_memory: bool = False

    @property
    def expected(self) -> str:
        if self.wanted == 1:
            return "no slower"
        return f"1/{self.wanted:g} as much" if self.of_memory else f"{self.wanted:g}x faster"


def goals(measured: Measured) -> list[Goal]:
    found = [
        Goal(each.model, MANY_NODES_RATIO, each.ratio(_call), each.ratio(_process))
        for each in measured.many_nodes
    ]
    for large in measured.large:
        memory = (large.ratio(Run.growth_bytes), large.ratio(_peak))
        found += [
            Goal(large.model, LARGE_RATIO, large.ratio(_call), large.ratio(_process)),
            Goal(f"{large.model}, memory", LARGE_RATIO, *memory, of_memory=True),
        ]
    light, again = measured.light, measured.light_again
    return [
        *found,
        Goal("the slowest light model", 1, _slowest(light, _call), _slowest(light, _process)),
        Goal("the same, a model profiled before", 1, _slowest(again, _call), has_process=False),
    ]


def expectation_table(measured: Measured) -> str:
    columns = {
        "expected": lambda goal: f"{goal.what}: {goal.expected}",
        "profile call": lambda goal: _judged(goal.call, goal),
        "whole process": lambda goal: _judged(goal.process, goal) if goal.has_process else "",
    }
    return table(goals(measured), columns)


def right_counts(found: Sequence[TrapRuns]) -> str:
    ours, theirs = (sum(each.is_right for each in found), sum(e.is_theirs_right for e in found))
    return (
        f"Of {len(found)} small models, each made for one way in which counting goes wrong, {PEER} "
        f"counts {theirs} right and this tool {ours}."
    )


def cost_table(measured: Measured) -> str:
    """Ratios of onnx_tool's figures by ours: the median, least and largest of all pairs."""
    again = {each.model: each for each in measured.light_again}
    warm = "call, a model before"
    columns = {
        "model": lambda each: each.model,
        "call": lambda each: _found(each.ratio(_call)),
        "process": lambda each: _found(each.ratio(_process)),
        "peak": lambda each: _found(each.ratio(_peak)),
        warm: lambda each: _found(again[each.model].ratio(_call)) if each.model in again else "",
    }
    return table(measured.contests, columns)


def trap_table(found: Iterable[TrapRuns]) -> str:
    columns = {
        "model": lambda each: each.name,
        "figure": lambda each: _FIGURES[each.trap.figure],
        "right": lambda each: f"{'at least ' * each.trap.at_least}{_shown(each.trap.right)}",
        "ours": lambda each: _marked(each.trap, each.ours, is_right=each.is_right),
        PEER: lambda each: _marked(each.trap, each.theirs, is_right=each.is_theirs_right),
    }
    return table(found, columns)


_FIGURES = {"macs": "MACs", "total_ops": "operations", "params": "params", "sparsity": "zeros"}


def _call(run: Run) -> float | None:
    return run.call_seconds


def _process(run: Run) -> float | None:
    return run.process_seconds


def _peak(run: Run) -> float | None:
    return run.peak_bytes


def _judged(ratio: Ratio | None, goal: Goal) -> str:
    return f"{_found(ratio)}, {'met' if _is_met(ratio, goal) else 'missed'}"


def _found(ratio: Ratio | None) -> str:
    return "a run failed" if ratio is None else str(ratio)


def _is_met(ratio: Ratio | None, goal: Goal) -> bool:
    return ratio is not None and ratio.median >= goal.wanted


def _has_right_counts(found: Contest) -> bool:
    run, right = found.pairs[0].ours, _LIGHT[found.model]
    return (run.macs, run.params) == (right.macs, right.params)


_LIGHT: Mapping[str, LightModel] = {model.name: model for model in LIGHT_MODELS}
_TRAPS: Mapping[str, Trap] = {trap.name: trap for trap in traps()}


def _slowest(contests: Iterable[Contest], figure: Figure) -> Ratio | None:
    ratios = [each.ratio(figure) for each in contests]
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known, key=lambda ratio: ratio.median) if len(known) == len(ratios) else None


def _answer(trap: Trap, run: Run) -> int | str | None:
    found: int | str | None = getattr(run, trap.figure)
    return found


def _marked(trap: Trap, run: Run, *, is_right: bool) -> str:
    shown = run.error_name if run.error else _shown(_answer(trap, run))
    return shown if is_right else f"**{shown}**"


def _shown(value: int | str | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else value


def _check_space(folder: Path, skip_large: bool) -> None:  # noqa: FBT001  # an option
    free = shutil.disk_usage(folder).free
    if not skip_large and free < LARGE_BYTES:
        sys.exit(
            f"the large model needs {LARGE_BYTES / 1e9:.1f} GB in {folder.parent}, which has "
            f"{free / 1e9:.1f} GB. Set TMPDIR to a folder with more room, or leave the model out: "
            'make bench ARGS="--skip-large"'
        )


if __name__ == "__main__":
    program = Program("static", __doc__, tables, expectations, peers=(PEER,))
    # A ratio of times is shown as missed, but half of it is the peer's.
    program.decides = lambda each: each.what.endswith("counted right")
    program.flag("--quick", "one pair of runs of each model")
    program.flag("--skip-large", "leave out the model of 1.6 GB")
    sys.exit(program.run(measure))
