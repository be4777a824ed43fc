"""How often verdicts on real architectures are right, and how long a check of each takes.

Each model is rebuilt from its twin, as a check rebuilds a baseline, and compared with itself with
other weights. On one core it is also compared with a variant that has a load next to it, which
takes 5 % of its time. Before the comparisons, a long duet measures how much slower the variant is,
without added noise; this ratio is stored as its reference. A variant counts as 5 % slower if its
reference is between 4.5 % and 6 % and the interval is at most 2 % wide.

Each comparison has the error level of one case in a suite with as many cases as there are models.
The models need about 2 GB of disk (`TMPDIR` or `--folder`).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from kept import keep_row, left_of, read_records, read_rows, rounded
from known_counts import light_model
from loads import LOADS, loaded
from measuring import Program, say
from real_results import (
    LOAD_5,
    UNCHANGED,
    Compared,
    RealModel,
    Reference,
    Setting,
    expectations,
    tables,
)
from real_variants import LOAD_DEPTH, LOAD_WIDTH, add_load
from results import Rows

from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import judge_rounds
from pytest_modelperf.comparing.records import CaseComparison, How, Verdict
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import Twin, make_twin, read_twin
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import Wanted, run_duet, run_pair
from pytest_modelperf.profiler.prepare import Model, Pair, prepare
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, STRETCH_SECONDS, SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.estimates import duet_ratio, summarize
from pytest_modelperf.stats.records import Ratio

LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "light_resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
TWINS = Path(__file__).with_name("real_models")
# By default at least this many comparisons of unchanged models are made in total.
LEAST_UNCHANGED = 400
# Time limit of one comparison.
MAX_SECONDS = 10.0
# Seeds of the weights: of the baseline, and of everything that is compared with it.
BEFORE_SEED, AFTER_SEED = 0, 1
# A reference duet ends when the half-width of its interval is below the precision or below this
# part of the slowdown, or when the time is over.
REFERENCE_PRECISION = 0.008
REFERENCE_PART = 0.1
REFERENCE_CONFIDENCE = 0.95
MAX_REFERENCE_SECONDS = 12.0
# Slow models get more time, because each round takes longer.
REFERENCE_SECONDS_A_MS = 0.1
# The slowdown of the load, the relative precision that is good enough, and the most trials.
LOAD_SHARE = 0.0525
LOAD_PRECISION = 0.13
LOAD_TRIALS = 4
# Rough speed of one core, for the first trial of a load.
_MACS_A_MS = 3e7


def measure(options: argparse.Namespace) -> Rows:
    bench = Bench(options.folder, Gate(judges_starts=False).divided(len(model_names())))
    references = [bench.reference(model) for model in options.models if options.slower]
    plan = plan_comparisons(
        LOADS[:1] if options.quiet else LOADS[:2],
        [(model, count) for model in options.models for count in options.cores],
        references,
        repetitions_of(options),
        options.slower,
    )
    return {
        "models": [bench.model(model) for model in options.models],
        "references": references,
        "comparisons": bench.run(plan),
    }


def model_names() -> tuple[str, ...]:
    return (*LIGHT, *sorted(path.stem for path in TWINS.glob("*.onnx")))


def repetitions_of(options: argparse.Namespace) -> int:
    """Comparisons of each unchanged model, per machine state and core count."""
    places = len(options.models) * len(options.cores) * (1 if options.quiet else 2)
    return options.repetitions or math.ceil(LEAST_UNCHANGED / places)


def plan_comparisons(
    machines: Sequence[str],
    cases: Sequence[tuple[str, int]],
    references: Sequence[Reference],
    repetitions: int,
    slower: int,
) -> list[Setting]:
    """Every comparison. Models and changes alternate, so that drift affects all of them alike."""
    plan = []
    for machine in machines:
        for number in range(max(repetitions, slower)):
            if number < repetitions:
                plan += [Setting(machine, cores, model, UNCHANGED) for model, cores in cases]
            if number < slower:
                plan += [Setting(machine, v.cores, v.model, v.change) for v in references]
    return plan


@dataclass(slots=True)
class Bench:
    """The folder of results and rebuilt models, and the gate of one case.

    Without `trusts_plans` models of one plan are timed as well.
    """

    folder: Path
    gate: Gate
    trusts_plans: bool = True

    def run(self, plan: Sequence[Setting]) -> list[Compared]:
        """All comparisons of the plan; those that earlier runs stored in the folder are reused."""
        left = left_of(plan, [each.setting for each in self.comparisons()])
        for machine, settings in groupby(left, lambda setting: setting.machine):
            with loaded(machine):
                for setting in settings:
                    keep_row(self.folder, "comparisons", self.compare(setting))
            say(f"{machine}: done")
        wanted = set(plan)
        return [each for each in self.comparisons() if each.setting in wanted]

    def comparisons(self) -> list[Compared]:
        return read_records(read_rows(self.folder, "comparisons"), Compared)

    def compare(self, setting: Setting) -> Compared:
        before = self.baseline(setting.model)
        rows = self.reference(setting.model).rows if setting.change == LOAD_5 else None
        with self.variant(setting.model, rows) as after:
            return compare(setting, before, after, self.gate, trusts_plans=self.trusts_plans)

    def baseline(self, model: str) -> Path:
        """The path of the baseline model, which stays in the folder."""
        path = self.folder / "models" / f"{model}.onnx"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            rebuild(twin_of(model), path, BEFORE_SEED)
        return path

    @contextmanager
    def variant(self, model: str, rows: int | None = None) -> Iterator[Path]:
        """The path of a model with other weights, and with a load of so many rows."""
        twin = twin_of(model)
        if rows is not None:
            twin = Twin(model, add_load(twin.proto, rows))
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            yield rebuild(twin, Path(place, "now.onnx"), AFTER_SEED)

    def model(self, name: str) -> RealModel:
        """Size and speed of a model, measured once."""
        for known in read_records(read_rows(self.folder, "models"), RealModel):
            if known.name == name:
                return known
        started = time.monotonic()
        with self.variant(name) as path:
            seconds = round(time.monotonic() - started, 2)
            rounds = duet(path, path, 1, None, MAX_SECONDS / 5)
        nodes = len(twin_of(name).proto.graph.node)
        found = RealModel(name, nodes, median_ms(rounds), seconds)
        keep_row(self.folder, "models", found)
        return found

    def reference(self, model: str) -> Reference:
        """The reference of the load that is adjusted to the wanted slowdown, or of the last trial.

        It is measured once.
        """
        for known in read_records(read_rows(self.folder, "references"), Reference):
            if known.model == model:
                return known
        rows = first_rows(self.model(model).one_core_ms, LOAD_SHARE)
        for _ in range(LOAD_TRIALS):
            reference = self.measure(model, rows)
            slower = (reference.ratio or 1.0) - 1.0
            if abs(slower - LOAD_SHARE) <= LOAD_PRECISION * LOAD_SHARE:
                break
            rows = next_rows(rows, slower, LOAD_SHARE)
        keep_row(self.folder, "references", reference)
        say(f"{model}: {reference.ratio}")
        return reference

    def measure(self, model: str, rows: int) -> Reference:
        seconds = max(MAX_REFERENCE_SECONDS, REFERENCE_SECONDS_A_MS * self.model(model).one_core_ms)
        with self.variant(model, rows) as after:
            rounds = duet(self.baseline(model), after, 1, REFERENCE_PRECISION, seconds)
        ratio = ratio_of(rounds)
        value, low, high = map(rounded, (ratio.value, ratio.low, ratio.high))
        return Reference(model, 1, LOAD_5, rows, value, low, high, len(rounds), median_ms(rounds))


def compare(
    setting: Setting, before: Path, after: Path, gate: Gate, *, trusts_plans: bool = True
) -> Compared:
    """Judges the latency of one case as a check does."""
    started = time.monotonic()
    setup = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS), stretch_seconds=STRETCH_SECONDS)
    pair, place = load_pair(before, after, setting.cores, setup)
    wanted = Wanted(lambda _: False, plans=True, trusts_plans=trusts_plans)
    rounds = run_pair(pair, gate, place, wanted).rounds
    verdict = p50 = p95 = Verdict.PASSED
    ratio: float | None = 1.0
    low = high = None
    how = How.PLAN
    if rounds:
        judged = judge_rounds(rounds, gate)
        verdict = CaseComparison(place.case, judged.metrics, ()).verdict
        named = {metric.name: metric for metric in judged.metrics}
        p50, p95 = (named[f"latency_{name}"].verdict for name in ("p50", "p95"))
        ratio, how = named["latency_p50"].ratio, judged.how
        low, high = named["latency_p50"].interval or (None, None)
    seconds = round(time.monotonic() - started, 3)
    return Compared(
        **asdict(setting), verdict=verdict.value, p50=p50.value, p95=p95.value, seconds=seconds,
        rounds=len(rounds), ratio=rounded(ratio), low=rounded(low), high=rounded(high),
        how=how.value,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Ends a duet at a precision of its ratio; None: after the last round."""

    precision: float | None
    rounds: int = DUET_POLICY.max_rounds
    samples_needed: tuple[int, ...] = (DUET_POLICY.min_samples,)
    has_limits: bool = False

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        ratio = ratio_of(rounds)
        if self.precision is None or ratio.low is None or ratio.high is None:
            return False
        wanted = max(self.precision, REFERENCE_PART * abs(ratio.value - 1.0))
        return ratio.high - ratio.low <= 2 * wanted


def duet(
    before: Path, after: Path, cores: int, precision: float | None, max_seconds: float
) -> Sequence[DuetRound]:
    """The rounds of a duet that ends at a precision, or after `max_seconds`."""
    setup = Setup(policy=SamplingPolicy(max_seconds=max_seconds))
    pair, place = load_pair(before, after, cores, setup)
    return run_duet(pair, PrecisionRule(precision), place)


def load_pair(before: Path, after: Path, cores: int, setup: Setup) -> tuple[Pair, CasePlace]:
    request = ProfileRequest(cores=(cores,))
    old, new = (prepare(Model.load(path, request, Extensions())) for path in (before, after))
    return Pair(old, new, setup, setup), CasePlace(Case(1, cores), 1, 1, lambda _: None)


def ratio_of(rounds: Sequence[DuetRound]) -> Ratio:
    pairs = [(each.before.block, each.after.block) for each in rounds]
    return duet_ratio(pairs, REFERENCE_CONFIDENCE)


def median_ms(rounds: Sequence[DuetRound]) -> float:
    return round(summarize([each.before.times_ns for each in rounds], 1).median_ns / 1e6, 3)


def first_rows(model_ms: float, slower: float) -> int:
    """An estimate of the rows of a load that takes this part of a model's time."""
    return max(1, round(slower * model_ms * _MACS_A_MS / (LOAD_DEPTH * LOAD_WIDTH**2)))


def next_rows(rows: int, slower: float, wanted: float) -> int:
    """The rows of the next trial, in proportion to the slowdown of this one, at most 4 times."""
    factor = wanted / max(slower, wanted / 4)
    return max(1, round(rows * max(factor, 0.25)))


def twin_of(name: str) -> Twin:
    if name not in LIGHT:
        return read_twin(TWINS / f"{name}.onnx")
    return make_twin(open_model(light_model(name.removeprefix("light_"))))


if __name__ == "__main__":
    program = Program("real", __doc__, tables, expectations)
    program.choose("--models", model_names())
    program.number("--repetitions", 0, "comparisons of each unchanged model")
    program.number("--slower", 2, "comparisons of each slower variant")
    program.numbers("--cores", (1, 2), "core counts")
    program.flag("--quiet", "without added noise")
    sys.exit(program.run(measure))
