"""How often a part that did not change looks slower or faster, and how sure its figure is.

    python benchmarks/parts_alike.py                      500 parts, some twenty minutes
    python benchmarks/parts_alike.py --parts 40           fewer
    python benchmarks/parts_alike.py --busy               beside processes that keep both cores busy

The two sides of a part are the same kernels of one model, whose weights are drawn anew on the other
side: a kernel that is drawn by lot, with its neighbours. Each is run and judged as in a comparison,
against a tolerance of 0.2 %. An alarm is a part that is called slower than that, or whose interval
lies wholly beyond it in either direction.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import results
import soak
from msgspec.structs import replace
from real import TWINS
from results import Expectation, Result, Start, conclude, markdown

from pytest_modelperf.comparing.gates import part_rounds
from pytest_modelperf.graph.plans.matching import Matching
from pytest_modelperf.graph.plans.parts import find_parts
from pytest_modelperf.graph.rebuild import rebuild
from pytest_modelperf.graph.twin import read_twin
from pytest_modelperf.profiler.duet import AFTER, BEFORE, SharedDuet
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.plans import SavedPlan, run_apart, save_plan
from pytest_modelperf.profiler.preparation import Model, make_workload, start_on
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.rig import Setup, set_up
from pytest_modelperf.profiler.sampling import sample_duet
from pytest_modelperf.profiler.sampling_policy import DUET_POLICY
from pytest_modelperf.stats.duet import DuetRule
from pytest_modelperf.stats.parts import judge_parts
from pytest_modelperf.stats.quantiles import load_quantiles

MODELS = ("lstm", "mobilenet_v2", "mobilenet_v2_qdq", "llama_4", "bert_4_int8")
RULE = DuetRule(tolerance=0.002, level=0.005, has_early_looks=False)
ROUNDS = 9
MAX_SECONDS = 4.0


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--parts", type=int, default=500, help="how many parts are run")
    parser.add_argument("--busy", action="store_true", help="beside busy processes")
    parser.add_argument("--seed", type=int, default=0, help="which kernels are drawn")
    options = parser.parse_args()
    start = Start.now("parts_alike")
    load_quantiles()
    choose = random.Random(options.seed)
    rows: list[Mapping[str, Any]] = []
    with soak.neighbours("both busy", 0) if options.busy else nullcontext():
        for number, model in enumerate(MODELS):
            share = options.parts // len(MODELS) + (number < options.parts % len(MODELS))
            rows += measured(model, share, choose, is_busy=options.busy)
            print(f"{len(rows)} of {options.parts} parts", file=sys.stderr)
    return conclude(start.finish({"parts": rows}), tables, expectations, options.json)


def measured(
    name: str, count: int, choose: random.Random, *, is_busy: bool
) -> list[Mapping[str, Any]]:
    """A row for each part of one model."""
    rows: list[Mapping[str, Any]] = []
    with both_sides(name) as (before, after):
        while len(rows) < count:
            kernel = choose.randrange(len(before.plan.kernels))
            begun = time.monotonic()
            rounds = run_part(before, after, kernel)
            if not rounds:
                continue
            found = judge_parts(part_rounds(rounds), RULE, is_last=True)
            rows.append(
                {
                    "model": name,
                    "kernel": before.plan.kernels[kernel].op_type,
                    "is_busy": is_busy,
                    "answer": found.answer.value,
                    "ratio": found.ratio,
                    "low": found.low,
                    "high": found.high,
                    "seconds": round(time.monotonic() - begun, 2),
                }
            )
    return rows


@contextmanager
def both_sides(name: str) -> Iterator[tuple[SavedPlan, SavedPlan]]:
    """The plans of a model and of the same one with other weights, in one worker."""
    with tempfile.TemporaryDirectory() as place, start_on(Setup(), 1) as worker:
        saved = []
        for seed, side in enumerate((BEFORE, AFTER)):
            path = rebuild(read_twin(TWINS / f"{name}.onnx"), Path(place, f"{side}.onnx"), seed)
            model = Model.load(path, ProfileRequest(), Extensions())
            rig = set_up(worker, Setup(), 1, make_workload(model, worker, side), side)
            plan = save_plan(rig, model.static.weight_bytes)
            if plan is None:
                raise RuntimeError(f"the engine tells no plan of {name}")
            saved.append(plan)
        before, after = saved
        if before.plan.digest != after.plan.digest:
            raise RuntimeError(f"other weights of {name} have another plan")
        yield before, after


def run_part(before: SavedPlan, after: SavedPlan, kernel: int) -> Sequence[DuetRound]:
    """The rounds of a kernel and its neighbours; none if they are most of the model."""
    partners = dict(zip(_in_order(before), _in_order(after), strict=True))
    other = partners.pop(kernel)
    parts = find_parts(before.plan, after.plan, Matching(partners, (kernel,), (other,)))
    placed = run_apart(before, after, parts)
    before.rig.parts, after.rig.parts = placed.before, placed.after
    duet = SharedDuet(before.rig, after.rig)
    policy = replace(DUET_POLICY, max_seconds=MAX_SECONDS)
    rounds = sample_duet(
        duet, policy, time.perf_counter_ns, lambda _: None, lambda made: len(made) >= ROUNDS
    )
    return () if duet.too_large is not None else rounds


def _in_order(side: SavedPlan) -> list[int]:
    """The kernels in an order that is the same for the same plan."""
    plan = side.plan
    return sorted(
        range(len(plan.kernels)),
        key=lambda k: (plan.forward[k], plan.backward[k], plan.kernels[k].name),
    )


def tables(result: Result) -> Mapping[str, str]:
    groups: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for row in result.rows["parts"]:
        groups.setdefault((row["model"], row["is_busy"]), []).append(row)
    lines = [
        (
            model,
            "both cores busy" if is_busy else "as it is",
            str(len(rows)),
            str(_alarms(rows)),
            f"{100 * _left_out(rows) / len(rows):.1f} %",
            f"{100 * float(np.median([(r['high'] - r['low']) / 2 for r in rows])):.2f} %",
            f"{float(np.median([row['seconds'] for row in rows])):.1f}",
        )
        for (model, is_busy), rows in groups.items()
    ]
    header = (
        "model", "machine", "parts", "alarms", "interval without 0", "half of an interval",
        "median s",
    )  # fmt: skip
    return {"parts alike": markdown(header, lines)}


def expectations(result: Result) -> tuple[Expectation, ...]:
    rows = result.rows["parts"]
    alarms = _alarms(rows)
    what = "parts that did not change shown slower or faster by more than 0.2 % of the model"
    return (Expectation(what, "none", f"{alarms} of {len(rows)}", not alarms),)


def _alarms(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many parts are shown to differ by more than the tolerance, in either direction."""
    slowest, fastest = 1 + RULE.tolerance, 1 - RULE.tolerance
    return sum(
        row["answer"] == "worse" or row["low"] > slowest or row["high"] < fastest for row in rows
    )


def _left_out(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many intervals leave out that nothing changed."""
    return sum(not row["low"] <= 1.0 <= row["high"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
