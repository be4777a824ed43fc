"""What handing on the state costs in a step, and whether a slower phase of a decoder is found.

    python benchmarks/generate.py            some minutes
    python benchmarks/generate.py --short    a small form of it, for a look

First, blocks of our steps and of two loops that anyone would write take turns in random order, on
one session: one hands on values by `run_with_ort_values`, one by an IOBinding. Expected: the median
of ours is at most 1 % or 2 µs above either.

Second, a decoder is compared with one of other weights, with one whose steps alone do 5 % more, and
with one whose prefill alone does. Both phases are judged apart: with memory as the system gives it,
and with the huge pages that glibc asks for where a variable of the environment tells it to. A step
reads all weights and computes little, so its time depends on the pages that they lie in. Expected:
the phase that is slower is found, and no other is called slower.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import results
from msgspec.structs import replace
from results import Expectation, Result, Start, at_most, conclude, format_ns, markdown

from pytest_modelperf.comparing.gates import Gate, latency_metrics
from pytest_modelperf.graph.structure import Generation, Phase
from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.mixture import make_steps
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import run_duet
from pytest_modelperf.profiler.prepare import Model, Pair, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.sessions import StepArrays
from pytest_modelperf.profiler.worker.timing import time_one
from pytest_modelperf.stats.estimates import paired_difference, ratio_of_rounds

# The small decoder is that of the tests, which lie beside the benchmarks in the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from examples.generating.make_decoder import DecoderShape, make_decoder  # needs the line above

MAX_RATIO = 1.01
MAX_DIFFERENCE_NS = 2_000
CONFIDENCE = 0.95
FEWEST_BLOCKS = 6
OVERHEAD = Generation(prompt=64, generate=16)
COMPARED = Generation(prompt=64, generate=32)
MAX_SECONDS = 10.0
SLOWER_BY = 0.05
MIN_FOUND = 0.95

STEPPED = {
    "2 layers of 64": DecoderShape(2, 64, vocabulary=256),
    "4 layers of 256": DecoderShape(4, 256, 8, 4, 2000),
    "4 layers of 256, static cache": DecoderShape(4, 256, 8, 4, 2000, capacity=128),
    "4 layers of 512": DecoderShape(4, 512, 8, 4, 4000),
}
# Wide enough that nearly all of its time goes into products.
JUDGED = DecoderShape(3, 512, 8, 4, 2000)
UNCHANGED = "no change"
SLOWER = {Phase.STEP: "step +5 %", Phase.PREFILL: "prefill +5 %"}
# What glibc of the worker is told about memory.
PAGES = {"as given": "", "huge": "glibc.malloc.hugetlb=1"}


@dataclass(frozen=True, slots=True)
class Added:
    """A decoder and a loop: the median step of the loop, and what ours takes over it."""

    model: str
    loop: str
    median_ns: float
    ratio: float
    low: float
    high: float
    blocks: int

    @property
    def added_ns(self) -> float:
        return self.median_ns * (self.ratio - 1.0)

    @property
    def is_within(self) -> bool | None:
        most = max(MAX_RATIO, 1.0 + MAX_DIFFERENCE_NS / self.median_ns)
        return at_most(most, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on one phase of a decoder, and the change that was made to it.

    `spread` is the standard deviation of the differences of the rounds, and `before_ms` the median
    of the side before.
    """

    pages: str
    change: str
    phase: str
    verdict: str
    ratio: float
    spread: float
    before_ms: float
    rounds: int
    seconds: float

    @property
    def is_slower(self) -> bool:
        """Whether the truth is that this phase is slower."""
        return self.change == SLOWER[Phase(self.phase)]


# -- what a step costs


def compare_steps(name: str, shape: DecoderShape, seconds: float) -> list[Added]:
    """Our steps beside each loop, in blocks of a whole generation."""
    request = ProfileRequest(generations=(OVERHEAD,), phases=(Phase.STEP,))
    model = Model.load(make_decoder(shape), request, Extensions())
    if model.bound.phase is None:
        raise ValueError("a step is a phase")
    made = make_steps(model.bound, model.bound.phase, 0, {}, name)
    arrays = {key: feed.array for key, feed in made.feeds.items()}
    dtypes = {key: feed.dtype for key, feed in made.feeds.items()}
    wired: Mapping[str, Any] = made.to_wire()
    plan = StepArrays(arrays, **wired)

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    serialized = make_decoder(shape).SerializeToString()
    session = ort.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    # The engine's own way to step: what a worker times.
    steps = engine._Session(session).prepare_steps(plan, dtypes)  # noqa: SLF001  # what is measured

    def ours() -> list[int]:
        steps.rewind(0)
        return time_one(steps, plan.count, sys.maxsize // 2, time.perf_counter_ns).tolist()

    loops = {"OrtValue": ort_value_loop(session, plan), "IOBinding": binding_loop(session, plan)}
    return [beside(name, loop, ours, bare, seconds) for loop, bare in loops.items()]


def beside(
    name: str,
    loop: str,
    ours: Callable[[], list[int]],
    bare: Callable[[], list[int]],
    seconds: float,
) -> Added:
    for warm in (bare, ours):
        warm()
    choose = random.Random(0)
    medians: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    gc.disable()
    while time.monotonic() < end or len(medians) < FEWEST_BLOCKS:
        sides = [bare, ours]
        order = [0, 1]
        choose.shuffle(order)
        found = {side: float(np.median(sides[side]())) for side in order}
        medians.append((found[0], found[1]))
    gc.enable()
    before, after = ([pair[side] for pair in medians] for side in (0, 1))
    ratio = ratio_of_rounds(before, after, CONFIDENCE)
    if ratio.low is None or ratio.high is None:
        raise ValueError("too few blocks for an interval")
    median = float(np.median(before))
    return Added(name, loop, median, ratio.value, ratio.low, ratio.high, len(medians))


def ort_value_loop(session: Any, plan: StepArrays) -> Callable[[], list[int]]:  # noqa: ANN401  # it has no types
    """What anyone would write: outputs are handed on as they are."""
    names = [output.name for output in session.get_outputs()]
    handed_on = [(past, names.index(present)) for past, present in plan.state]
    fixed, first = ort_values(plan.fixed), ort_values(plan.state_at(0))
    inputs = [ort_values(plan.inputs_at(step)) for step in range(plan.count)]

    def loop() -> list[int]:
        clock = time.perf_counter_ns
        times = []
        state = dict(first)
        for own in inputs:
            start = clock()
            outputs = session.run_with_ort_values(names, {**fixed, **own, **state})
            for past, place in handed_on:
                state[past] = outputs[place]
            times.append(clock() - start)
        return times

    return loop


def binding_loop(session: Any, plan: StepArrays) -> Callable[[], list[int]]:  # noqa: ANN401  # it has no types
    """The same by an IOBinding, which lets the runtime make each output where it likes."""
    names = [output.name for output in session.get_outputs()]
    handed_on = [(past, names.index(present)) for past, present in plan.state]
    fixed, first = ort_values(plan.fixed), ort_values(plan.state_at(0))
    inputs = [ort_values(plan.inputs_at(step)) for step in range(plan.count)]
    binding = session.io_binding()
    for name, value in fixed.items():
        binding.bind_ortvalue_input(name, value)

    def loop() -> list[int]:
        clock = time.perf_counter_ns
        times = []
        for name, value in first.items():
            binding.bind_ortvalue_input(name, value)
        for own in inputs:
            start = clock()
            for name, value in own.items():
                binding.bind_ortvalue_input(name, value)
            for name in names:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
            outputs = binding.get_outputs()
            for past, place in handed_on:
                binding.bind_ortvalue_input(past, outputs[place])
            times.append(clock() - start)
        return times

    return loop


def ort_values(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}


# -- what is found


def write_variants(folder: Path, shape: DecoderShape = JUDGED) -> dict[str, Path]:
    """The decoder before, another with other weights, and one whose phase is slower for each."""
    shapes = {"before": shape, UNCHANGED: shape}
    step, prefill = (columns_of(phase, shape) for phase in (Phase.STEP, Phase.PREFILL))
    shapes[SLOWER[Phase.STEP]] = replace(shape, last_token_work=step)
    shapes[SLOWER[Phase.PREFILL]] = replace(shape, other_tokens_work=prefill)
    paths = {}
    for number, (name, own) in enumerate(shapes.items()):
        paths[name] = folder / f"decoder{number}.onnx"
        onnx.save(make_decoder(own, seed=number), paths[name])
    return paths


def columns_of(phase: Phase, shape: DecoderShape) -> int:
    """The columns of a product that adds so much to the MACs of a phase."""
    request = ProfileRequest(generations=(COMPARED,), phases=(phase,))
    macs = Model.load(make_decoder(shape), request, Extensions()).static.macs
    tokens = 1 if phase is Phase.STEP else COMPARED.prompt - 1
    return round(SLOWER_BY * macs / (tokens * shape.hidden))


def judge(pages: str, change: str, before: Path, after: Path) -> list[Answer]:
    """What a gated duet says of each phase."""
    # Workers take over the environment.
    os.environ["GLIBC_TUNABLES"] = PAGES[pages]
    setup = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS))
    answers: list[Answer] = []
    for phase in Phase:
        begun = time.monotonic()
        own = ProfileRequest(generations=(COMPARED,), phases=(phase,))
        old, new = (prepare(Model.load(path, own, Extensions())) for path in (before, after))
        gate = Gate(judges_starts=False).divided(len(Phase))
        place = CasePlace(new.case(1), 1, 1, lambda _: None)
        rounds = run_duet(Pair(old, new, setup, setup), gate, place)
        pairs = [(each.before.block, each.after.block) for each in rounds]
        metric = next(each for each in latency_metrics(rounds, gate) if each.name == "latency_p50")
        answers.append(
            Answer(
                pages=pages,
                change=change,
                phase=phase.value,
                verdict=metric.verdict.value,
                ratio=metric.ratio or 1.0,
                spread=float(np.std([paired_difference(pair) for pair in pairs], ddof=1)),
                before_ms=metric.before or 0.0,
                rounds=len(rounds),
                seconds=round(time.monotonic() - begun, 2),
            )
        )
    return answers


# -- what is shown


def added_in(result: Result) -> list[Added]:
    return [Added(**row) for row in result.rows["steps"]]


def answers_in(result: Result) -> list[Answer]:
    return [Answer(**row) for row in result.rows["answers"]]


def tables(result: Result) -> dict[str, str]:
    steps = markdown(
        ("decoder", "loop", "its step", "ours / loop", f"{100 * CONFIDENCE:g} % interval", "added"),
        [
            (
                each.model,
                each.loop,
                format_ns(each.median_ns),
                f"{each.ratio:.4f}",
                f"{each.low:.4f} to {each.high:.4f}",
                format_ns(each.added_ns, "+"),
            )
            for each in added_in(result)
        ],
        "llrrrr",
    )
    rows = []
    for (pages, change, phase), group in grouped(answers_in(result)).items():
        verdicts = [each.verdict for each in group]
        rows.append(
            (
                pages,
                change,
                phase,
                f"{np.median([each.before_ms for each in group]):.2f} ms",
                f"{100 * (float(np.median([each.ratio for each in group])) - 1):+.1f} %",
                f"{100 * float(np.median([each.spread for each in group])):.1f} %",
                *(str(verdicts.count(word) or "-") for word in ("regressed", "inconclusive")),
                str(len(verdicts) - verdicts.count("regressed") - verdicts.count("inconclusive")),
                f"{np.median([each.seconds for each in group]):.1f} s",
            )
        )
    header = (
        "pages",
        "change",
        "phase",
        "p50 before",
        "median change",
        "sd of rounds",
        "regressed",
        "inconclusive",
        "not slower",
        "median",
    )
    return {"generate steps": steps, "generate verdicts": markdown(header, rows, "lllrrrrrrr")}


def expectations(result: Result) -> tuple[Expectation, ...]:
    found = [
        Expectation(
            f"a step of {each.model} over the {each.loop} loop",
            f"at most {100 * (MAX_RATIO - 1):.0f} % or {MAX_DIFFERENCE_NS / 1000:g} µs more",
            f"{100 * (each.ratio - 1):+.2f} % ({100 * (each.low - 1):+.2f} to "
            f"{100 * (each.high - 1):+.2f}), {format_ns(each.added_ns, '+')}",
            each.is_within,
        )
        for each in added_in(result)
    ]
    answers = answers_in(result)
    alarms = [each for each in answers if not each.is_slower]
    wrong = sum(each.verdict == "regressed" for each in alarms)
    found.append(
        Expectation(
            "a phase that did not change, called slower",
            "none",
            f"{wrong} of {len(alarms)}",
            wrong == 0,
        )
    )
    slower = [each for each in answers if each.is_slower]
    for (pages, change, phase), group in grouped(slower).items():
        right = sum(each.verdict == "regressed" for each in group)
        found.append(
            Expectation(
                f"{change}, pages {pages}: the {phase} found",
                f"at least {100 * MIN_FOUND:g} %",
                f"{right} of {len(group)}",
                right >= MIN_FOUND * len(group),
            )
        )
    return tuple(found)


def grouped(answers: Sequence[Answer]) -> dict[tuple[str, str, str], list[Answer]]:
    groups: dict[tuple[str, str, str], list[Answer]] = {}
    for each in answers:
        groups.setdefault((each.pages, each.change, each.phase), []).append(each)
    return groups


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each decoder and loop")
    parser.add_argument("--comparisons", type=int, default=20, help="of each change")
    parser.add_argument("--short", action="store_true", help="one second, and one comparison")
    arguments = parser.parse_args()
    seconds, comparisons = arguments.seconds, arguments.comparisons
    if arguments.short:
        seconds, comparisons = 1.0, 1
    start = Start.now("generate")
    steps = [
        asdict(each)
        for name, shape in STEPPED.items()
        for each in compare_steps(name, shape, seconds)
    ]
    answers: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = write_variants(Path(folder))
        # The changes in turn, so that all see the same hours.
        for _ in range(comparisons):
            for pages, change in product(PAGES, (UNCHANGED, *SLOWER.values())):
                answers += map(asdict, judge(pages, change, paths["before"], paths[change]))
    result = start.finish({"steps": steps, "answers": answers})
    return conclude(result, tables, expectations, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
