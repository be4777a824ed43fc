"""How often a part that did not change looks slower or faster, and how sure its figure is.

The two sides of a part are the same kernels of one model with other weights: a kernel that is drawn
by lot, with its neighbours. Each is run and judged as in a comparison, against a tolerance of
0.2 %. An alarm is a part whose interval is wholly beyond that in either direction. If a part takes
more than a third of the model, another kernel is drawn; a model is given up after twenty such draws
in a row.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from expected import Expectation, expect_none, rate_text
from kept import keep_row, read_rows
from loads import LOADS, QUIET, loaded
from measuring import Program, say
from msgspec.structs import replace
from real import TWINS
from results import Result, Row, Rows
from shown import grouped, markdown, median_of

from pytest_modelperf.comparing.gates import part_rounds
from pytest_modelperf.graph.plans.parts import KernelTimes, find_parts
from pytest_modelperf.graph.plans.plan import Matching
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import read_twin
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import make_workload, start_on
from pytest_modelperf.profiler.pairs.plans import SavedPlan, run_apart, run_once, save_plan
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import set_up
from pytest_modelperf.stats.duet import DuetRule
from pytest_modelperf.stats.parts import judge_parts
from pytest_modelperf.stats.quantiles import load_quantiles

MODELS = ("lstm", "mobilenet_v2", "mobilenet_v2_qdq", "llama_4", "bert_4_int8")
RULE = DuetRule(tolerance=0.002, level=0.005, has_early_looks=False)
ROUNDS = 9
MAX_SECONDS = 4.0
# So many draws in a row that are too large end the parts of a model.
MOST_TOO_LARGE = 20


def measure(options: argparse.Namespace) -> Rows:
    load_quantiles()
    rows: list[Row] = []
    draw = partial(draw_parts, seconds=options.seconds)
    least, more = divmod(options.parts, len(options.models))
    for load in options.loads:
        with loaded(load):
            for number, model in enumerate(options.models):
                place = Place(model, options.cores, load)
                count = least + (number < more)
                rows += take(options.folder, place, count, draw)
    return {"parts": rows}


@dataclass(frozen=True, slots=True)
class Place:
    """Where parts are run: in which model, on how many cores, beside which load."""

    model: str
    cores: int
    load: str

    @classmethod
    def of(cls, row: Row) -> Place:
        return cls(row["model"], row["cores"], row["load"])


def take(
    folder: Path, place: Place, count: int, draw: Callable[[Place, int], Generator[Row]]
) -> list[Row]:
    """Rows of drawn parts until `count` of them ran, or the model is given up.

    All rows that earlier runs stored in the folder are reused, and each new one is stored at once.
    `draw` gives the rows of one draw after another, from a number on.
    """
    rows: list[Row] = [row for row in read_rows(folder, "parts") if Place.of(row) == place]
    with closing(draw(place, len(rows))) as draws:
        while len(ran(rows)) < count and not is_hopeless(rows):
            rows.append(next(draws))
            keep_row(folder, "parts", rows[-1])
    say(f"{place.model}, {place.cores} cores, {place.load}: {len(ran(rows))} of {count} parts")
    return rows


def ran(rows: Sequence[Row]) -> list[Row]:
    """The rows of parts that were small enough to be run."""
    return [row for row in rows if not row["is_too_large"]]


def is_hopeless(rows: Sequence[Row]) -> bool:
    """Whether the last draws were all too large."""
    return len(rows) >= MOST_TOO_LARGE and not ran(rows[-MOST_TOO_LARGE:])


def draw_parts(place: Place, first: int, seconds: float) -> Generator[Row]:
    """The rows of parts of a model, drawn by lot without end, from the draw of this number on."""
    with both_sides(place.model, place.cores) as (before, after):
        kernels, times = _in_order(before), (run_once(before).times_ns, run_once(after).times_ns)
        for number in itertools.count(first):
            # The same kernels are drawn, however many of them turn out to be too large.
            kernel = random.Random(f"{place.model} {number}").choice(kernels)
            begun = time.monotonic()
            rounds = run_part(before, after, times, kernel, seconds)
            kind = before.plan.kernels[kernel].op_type
            row = {**asdict(place), "kernel": kind, "is_too_large": not rounds}
            if rounds:
                found = judge_parts(part_rounds(rounds), RULE, is_last=True)
                row |= {"answer": found.answer.value}
                row |= {name: getattr(found, name) for name in ("ratio", "low", "high")}
            yield row | {"seconds": round(time.monotonic() - begun, 2)}


@contextmanager
def both_sides(name: str, cores: int) -> Iterator[tuple[SavedPlan, SavedPlan]]:
    """The plans of a model and of the same one with other weights, in one worker."""
    with tempfile.TemporaryDirectory() as place, start_on(Setup(), cores) as worker:
        saved = []
        for seed, side in enumerate((BEFORE, AFTER)):
            path = rebuild(read_twin(TWINS / f"{name}.onnx"), Path(place, f"{side}.onnx"), seed)
            model = Model.load(path, ProfileRequest(), Extensions())
            rig = set_up(worker, Setup(), cores, make_workload(prepare(model), worker, side), side)
            plan = save_plan(rig, model.static.weight_bytes)
            if plan is None:
                raise RuntimeError(f"the engine tells no plan of {name}")
            saved.append(plan)
        before, after = saved
        if before.plan.digest != after.plan.digest:
            raise RuntimeError(f"other weights of {name} have another plan")
        yield before, after


def run_part(
    before: SavedPlan,
    after: SavedPlan,
    times: tuple[KernelTimes, KernelTimes],
    kernel: int,
    seconds: float,
) -> Sequence[DuetRound]:
    """The rounds of a kernel and its neighbours; none if they are most of the model."""
    partners = dict(zip(_in_order(before), _in_order(after), strict=True))
    other = partners.pop(kernel)
    parts = find_parts(before.plan, after.plan, Matching(partners, (kernel,), (other,)), times)
    # The shares change figures, and here only answers are looked at.
    placed = run_apart(before, after, parts, [1.0] * len(parts))
    before.rig.parts, after.rig.parts = placed.before, placed.after
    duet = SharedDuet(before.rig, after.rig)
    policy = replace(DUET_POLICY, max_seconds=seconds)

    def is_over(made: Sequence[DuetRound]) -> bool:
        return len(made) >= ROUNDS or duet.too_large is not None

    rounds = sample_duet(duet, policy, time.perf_counter_ns, lambda _: None, is_over)
    return () if duet.too_large is not None else rounds


def _in_order(side: SavedPlan) -> list[int]:
    """The kernels in an order that is the same for the same plan."""
    plan = side.plan
    names = (kernel.name for kernel in plan.kernels)
    keys = list(zip(plan.forward, plan.backward, names, strict=True))
    return sorted(range(len(keys)), key=keys.__getitem__)


def tables(result: Result) -> Mapping[str, str]:
    lines = []
    for place, rows in grouped(result.rows["parts"], Place.of).items():
        parts = ran(rows)
        widths = [high - low for low, high in _intervals(parts)]
        without = sum(not low <= 1.0 <= high for low, high in _intervals(parts))
        counts = (len(parts), len(rows) - len(parts), sum(map(is_alarm, parts)) if parts else "-")
        share = f"{100 * without / len(parts):.1f} %" if parts else "-"
        half = f"{median_of((50 * width for width in widths), 2)} %" if widths else "-"
        seconds = median_of(row["seconds"] for row in parts)
        lines.append((place.model, place.cores, place.load, *counts, share, half, seconds))
    header = (
        "model", "cores", "load", "parts", "too large", "alarms", "interval without 0",
        "half of an interval", "median s",
    )  # fmt: skip
    return {
        "parts alike": markdown(header, lines, "lrlrrrrrr"),
        "parts alike glance": glance(result.rows["parts"]),
    }


def glance(rows: Sequence[Row]) -> str:
    """What a reader would add up."""
    parts = ran(rows)
    alarms = sum(map(is_alarm, parts))
    return (
        f"{len(parts)} unchanged parts of {len({row['model'] for row in parts})} real models, "
        f"each timed against itself with other weights: {alarms} were called slower or faster by "
        f"more than {100 * RULE.tolerance:g} % of the model. The rate is "
        f"{rate_text(alarms, len(parts))}."
    )


def expectations(result: Result) -> tuple[Expectation, ...]:
    what = "parts that did not change shown slower or faster by more than 0.2 % of the model"
    return (expect_none(what, map(is_alarm, ran(result.rows["parts"]))),)


def is_alarm(row: Row) -> bool:
    """Whether a part is shown to differ by more than the tolerance, in either direction."""
    slowest, fastest = 1 + RULE.tolerance, 1 - RULE.tolerance
    return row["answer"] == "worse" or any(
        low > slowest or high < fastest for low, high in _intervals([row])
    )


def _intervals(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The intervals of the parts that had enough rounds for one."""
    return [(row["low"], row["high"]) for row in rows if row["low"] is not None]


if __name__ == "__main__":
    program = Program("parts_alike", __doc__, tables, expectations)
    program.number("--parts", 500, "how many are run under each load")
    program.choose("--models", sorted(path.stem for path in TWINS.glob("*.onnx")), MODELS)
    program.number("--cores", 1, "how many cores a model has")
    program.choose("--loads", LOADS, (QUIET,))
    program.number("--seconds", MAX_SECONDS, "the time of the rounds of a part")
    sys.exit(program.run(measure))
