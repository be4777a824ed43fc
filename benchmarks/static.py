"""Compare the static profile with onnx_tool's: time, memory and counts, as tables in Markdown.

    make bench                          all of it, some minutes
    make bench ARGS=--quick             fewer runs
    make bench ARGS="--json runs.json"  also every single run

The models are those that the onnx package carries, and some that are made in a temporary
folder. Nothing is read from the network. How it is measured stands in README.md beside this.
"""

from __future__ import annotations

import compileall
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import results
from generated_models import LARGE_BYTES, write_blocks, write_chain, write_large
from known_counts import LIGHT_MODELS, LightModel, Trap, traps
from results import (
    Expectation,
    Result,
    ResultError,
    Row,
    Start,
    conclude,
    markdown,
    missing_packages,
)
from runs import Contest, Figure, Pair, Ratio, Run, contest, run_once

import pytest_modelperf

PEER = "onnx_tool"
LARGE = "1.6 GB of weights"
# What the profile of a graph of many nodes, and of a large file, was to be faster by at least.
MANY_NODES_RATIO = 10
LARGE_RATIO = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pairs of runs there are of each kind of model."""

    light: int
    generated: int


FULL = Plan(light=5, generated=3)
QUICK = Plan(light=1, generated=1)


@dataclass(frozen=True, slots=True)
class TrapResult:
    """What both tools say of one small model."""

    trap: Trap
    ours: Run
    theirs: Run


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured."""

    light: tuple[Contest, ...]
    light_again: tuple[Contest, ...]
    many_nodes: tuple[Contest, ...]
    large: Contest | None
    traps: tuple[TrapResult, ...]

    @property
    def contests(self) -> tuple[Contest, ...]:
        return (*self.light, *self.many_nodes, *(() if self.large is None else (self.large,)))


def main() -> int:
    """0 when our figures are right, 1 when one is wrong, 2 when it could not be measured.

    A figure of time is shown as missed, and never makes it fail: the peer's is half of it.
    """
    parser = results.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="one pair of runs of each model")
    parser.add_argument("--skip-large", action="store_true", help="leave out the model of 1.6 GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelperf-bench-") as folder:
        problem = missing_packages([PEER]) or _missing_space(Path(folder), options.skip_large)
        if problem:
            parser.error(problem)
        # As pip leaves an installed package, and onnx_tool's: an editable one is compiled on its
        # first import, or on each where PYTHONDONTWRITEBYTECODE forbids to keep the result.
        compileall.compile_dir(pytest_modelperf.__path__[0], quiet=1)
        start = Start.now("static")
        plan = QUICK if options.quick else FULL
        measured = measure(Path(folder), plan, with_large=not options.skip_large)
    result = start.finish(to_rows(measured), peers=(PEER,))
    conclude(result, tables, expectations, options.json)
    wrong = our_errors(measured)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


def measure(folder: Path, plan: Plan, *, with_large: bool) -> Measured:
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
        _progress(LARGE)
        path = folder / "large.onnx"
        write_large(path)
        large = contest(LARGE, path, plan.generated)
        path.unlink()
    return Measured(light, again, tuple(many_nodes), large, answers)


def our_errors(measured: Measured) -> tuple[str, ...]:
    """Every model that our profile got wrong or stumbled over."""
    wrong = []
    for each in measured.contests:
        run = each.pairs[0].ours
        if run.error:
            wrong.append(f"{each.model}: {run.error}")
        elif each.model in _LIGHT and not _has_right_counts(each):
            wrong.append(f"{each.model}: {run.macs} MACs and {run.params} params are not right")
    wrong += [
        f"{result.trap.name}: {_shown_answer(result.trap, result.ours)}"
        for result in measured.traps
        if not _is_right(result, result.ours, one_figure=False)
    ]
    return tuple(wrong)


def to_rows(measured: Measured) -> dict[str, list[Row]]:
    """Every run of both tools. What is right is known without a run, so it is not stored."""
    large = () if measured.large is None else (measured.large,)
    return {
        **{
            kind: [asdict(each) for each in contests]
            for kind, contests in (
                ("light", measured.light),
                ("light again", measured.light_again),
                ("many nodes", measured.many_nodes),
                ("large", large),
            )
        },
        "traps": [
            {"name": each.trap.name, "ours": asdict(each.ours), "theirs": asdict(each.theirs)}
            for each in measured.traps
        ],
    }


def measured_in(result: Result) -> Measured:
    contests = {
        kind: tuple(_contest_in(row) for row in rows)
        for kind, rows in result.rows.items()
        if kind != "traps"
    }
    known = {trap.name: trap for trap in traps()}
    gone = [row["name"] for row in result.rows["traps"] if row["name"] not in known]
    if gone:
        raise ResultError(
            f"known_counts.py has none of {', '.join(gone)} any more. "
            "Type: python benchmarks/evidence.py --only static"
        )
    return Measured(
        contests["light"],
        contests["light again"],
        contests["many nodes"],
        next(iter(contests["large"]), None),
        tuple(
            TrapResult(known[row["name"]], Run(**row["ours"]), Run(**row["theirs"]))
            for row in result.rows["traps"]
        ),
    )


def tables(result: Result) -> dict[str, str]:
    measured = measured_in(result)
    pairs = " or ".join(map(str, sorted({len(each.pairs) for each in measured.contests})))
    method = (
        "Ratios are onnx_tool's figure divided by ours: above 1, ours needs less. They are medians "
        f"over pairs of fresh processes ({pairs} a model), least and largest in parentheses."
    )
    return {
        "static": f"{expectation_table(measured)}\n\n{method}",
        "static time": time_table(measured.contests),
        "static again": again_table(measured.light_again),
        "static memory": memory_table(measured.contests),
        "static light counts": light_table(measured.light),
        "static counts": f"{trap_table(measured.traps)}\n\n{right_counts(measured.traps)}",
        "static short": f"{expectation_table(measured)}\n\n{right_counts(measured.traps)}",
    }


def expectations(result: Result) -> tuple[Expectation, ...]:
    measured = measured_in(result)
    expected = [
        Expectation(f"{goal.what}: {where}", goal.expected, _found(ratio), _is_met(ratio, goal))
        for goal in goals(measured)
        for where, ratio in (("profile call", goal.call), ("whole process", goal.process))
        if where == "profile call" or goal.has_process
    ]
    right = sum(_is_right(each, each.ours, one_figure=False) for each in measured.traps)
    lights = sum(_has_right_counts(each) for each in measured.light)
    expected += [
        Expectation(f"{what} counted right", "all", f"{count} of {total}", count == total)
        for what, count, total in (
            ("small models", right, len(measured.traps)),
            ("light models", lights, len(measured.light)),
        )
    ]
    return tuple(expected)


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
    large = measured.large
    if large is not None:
        found += [
            Goal(large.model, LARGE_RATIO, large.ratio(_call), large.ratio(_process)),
            Goal(
                f"{large.model}, memory",
                LARGE_RATIO,
                large.ratio(_growth),
                large.ratio(_peak),
                of_memory=True,
            ),
        ]
    light, again = measured.light, measured.light_again
    return [
        *found,
        Goal("the slowest light model", 1, _slowest(light, _call), _slowest(light, _process)),
        Goal("the same, a model profiled before", 1, _slowest(again, _call), has_process=False),
    ]


def expectation_table(measured: Measured) -> str:
    rows = [
        (
            f"{goal.what}: {goal.expected}",
            _judged(goal.call, goal),
            _judged(goal.process, goal) if goal.has_process else "",
        )
        for goal in goals(measured)
    ]
    return markdown(("expected", "profile call", "whole process"), rows)


def right_counts(found: Sequence[TrapResult]) -> str:
    ours = sum(_is_right(each, each.ours, one_figure=False) for each in found)
    theirs = sum(_is_right(each, each.theirs, one_figure=True) for each in found)
    return (
        f"Of {len(found)} small models, each made for one way in which counting goes wrong, {PEER} "
        f"counts {theirs} right and this tool {ours}."
    )


def again_table(contests: Iterable[Contest]) -> str:
    """Light models in a process that has profiled one before, as in a test run of several."""
    header = ("model", "call, ours", PEER, "ratio")
    return markdown(header, [(each.model, *_times(each, _call)) for each in contests])


def time_table(contests: Iterable[Contest]) -> str:
    header = ("model", "call, ours", PEER, "ratio", "process, ours", PEER, "ratio")
    return markdown(header, [(c.model, *_times(c, _call), *_times(c, _process)) for c in contests])


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
    return markdown(header, rows)


def light_table(contests: Sequence[Contest]) -> str:
    header = (
        "model", "MACs, right", "ours", "with elementwise, ours", PEER,
        "params, right", "ours", PEER,
    )  # fmt: skip
    rows = []
    for each in contests:
        ours, theirs, model = each.pairs[0].ours, each.pairs[0].theirs, _LIGHT[each.model]
        rows.append(
            (
                model.name,
                f"{model.macs:,}",
                *map(_count, (ours.macs, ours.total_ops, theirs.total_ops)),
                f"{model.params:,}",
                *map(_count, (ours.params, theirs.params)),
            )
        )
    return markdown(header, rows)


def trap_table(found: Iterable[TrapResult]) -> str:
    header = ("model", "figure", "right", "ours", PEER)
    rows = []
    for result in found:
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
    return markdown(header, rows)


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


def _judged(ratio: Ratio | None, goal: Goal) -> str:
    return f"{_found(ratio)}, {'met' if _is_met(ratio, goal) else 'missed'}"


def _found(ratio: Ratio | None) -> str:
    return "a run failed" if ratio is None else str(ratio)


def _is_met(ratio: Ratio | None, goal: Goal) -> bool:
    return ratio is not None and ratio.median >= goal.wanted


def _is_right(result: TrapResult, run: Run, *, one_figure: bool) -> bool:
    return result.trap.is_right(_answer(result.trap, run), one_figure=one_figure)


def _has_right_counts(found: Contest) -> bool:
    run, right = found.pairs[0].ours, _LIGHT[found.model]
    return (run.macs, run.params) == (right.macs, right.params)


_LIGHT: Mapping[str, LightModel] = {model.name: model for model in LIGHT_MODELS}


def _contest_in(row: Mapping[str, Any]) -> Contest:
    pairs = (Pair(Run(**pair["ours"]), Run(**pair["theirs"])) for pair in row["pairs"])
    return Contest(row["model"], row["size_bytes"], tuple(pairs))


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


def _light(model: LightModel, pairs: int, *flags: str) -> Contest:
    _progress(" ".join((model.name, *flags)))
    return contest(model.name, model.path, pairs, *flags)


def _trap(trap: Trap, path: Path) -> TrapResult:
    _progress(trap.name)
    trap.write(path)
    flags = ("--sparsity",) if trap.figure == "sparsity" else ()
    return TrapResult(trap, run_once("ours", path, *flags), run_once("onnx_tool", path, *flags))


def _missing_space(folder: Path, skip_large: bool) -> str | None:  # noqa: FBT001  # an option
    free = shutil.disk_usage(folder).free
    if skip_large or free >= LARGE_BYTES:
        return None
    return (
        f"the large model needs {LARGE_BYTES / 1e9:.1f} GB in {folder.parent}, where "
        f"{free / 1e9:.1f} GB are free. Set TMPDIR to a folder with more room, or leave that "
        'model out: make bench ARGS="--skip-large"'
    )


def _progress(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
