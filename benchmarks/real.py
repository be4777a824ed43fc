"""How often verdicts on real architectures are right, and how long a check of each takes.

    python benchmarks/real.py                                all of it, some two hours
    python benchmarks/real.py --models lstm squeezenet       these alone
    python benchmarks/real.py --repetitions 1 --slower 1     fewer comparisons
    python benchmarks/real.py --cores 1 --quiet              one core count, without added noise
    python benchmarks/real.py --changes "load of 5 %"        one kind of slower variant alone
    python benchmarks/real.py --folder f                     keep what is found, and go on from it
    python benchmarks/real.py --keep-rounds rounds.npz       keep the times of every round too

The models are the nine light ones of the onnx package and those of `real_models`, which
export_models.py exported from torch. Each is rebuilt from its twin, as a check rebuilds a baseline,
and compared with itself rebuilt with other weights. It is also compared with slower variants: with
a load beside it that takes 5 % or 10 % of its time, with one block more, and with its activations
and norms decomposed. Before the comparisons, a long duet measures how much slower each variant is,
without added noise; this ratio is stored as the reference of the variant. A variant counts as 5 %
slower if its reference is between 4.5 % and 6 % and the interval is at most 2 % wide. On several
cores so small a load does not take a steady share of the time, so by default variants run on one.
Under noise two processes keep 40 % of each core busy.

Each comparison has the error level of one case in a suite with as many cases as there are models.
The models need about 2 GB of disk (`TMPDIR` or `--folder`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
import results
from real_results import (
    BLOCK,
    CHANGES,
    LOAD_5,
    LOAD_10,
    QUIET,
    TAKEN,
    UNCHANGED,
    Compared,
    RealModel,
    Reference,
    Setting,
    compared_of,
    expectations,
    tables,
)
from real_variants import LOAD_DEPTH, LOAD_WIDTH, Cost, add_load, decompose, repeat_block
from results import Start, conclude
from verdicts import noise

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
# The slowdown of each load, the relative precision that is good enough, and the most trials.
LOADS = {LOAD_5: 0.0525, LOAD_10: 0.10}
LOAD_PRECISION = 0.13
LOAD_TRIALS = 4
# Rough speed of one core, for the first trial of a load.
_MACS_A_MS = 3e7


def main() -> int:
    parser = results.parser(__doc__)
    names = model_names()
    parser.add_argument("--models", nargs="+", choices=names, metavar="NAME", default=names)
    parser.add_argument("--repetitions", type=int, help="comparisons of each unchanged model")
    parser.add_argument("--slower", type=int, default=2, help="comparisons of each variant")
    parser.add_argument(
        "--changes",
        nargs="+",
        choices=CHANGES[1:],
        metavar="CHANGE",
        default=CHANGES[1:],
        help=results.list_names(CHANGES[1:]),
    )
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--slower-cores", default="1", help="core counts of slower variants")
    parser.add_argument("--quiet", action="store_true", help="without added noise")
    parser.add_argument("--suite", type=int, default=len(names), help="cases that share the level")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    parser.add_argument("--at-most", type=int, help="stop after so many comparisons")
    parser.add_argument("--keep-rounds", type=Path, metavar="FILE", help="an .npz of all rounds")
    options = parser.parse_args()
    machines = [QUIET] if options.quiet else [QUIET, TAKEN]
    cores, slower_cores = (
        [int(each) for each in counts.split(",")]
        for counts in (options.cores, options.slower_cores)
    )
    start = Start.now("real")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, Gate(judges_starts=False).divided(options.suite), options.keep_rounds)
        references = [
            reference
            for model in options.models
            for count in slower_cores
            for reference in bench.references(model, count, options.changes)
        ]
        cases = [(model, count) for model in options.models for count in cores]
        plan = plan_comparisons(
            machines, cases, references, repetitions_of(options), options.slower
        )
        made = bench.run(plan, options.at_most)
        models = [bench.model(model) for model in options.models]
    left = len(plan) - len(made)
    if left > 0:
        print(f"{left} of {len(plan)} comparisons are still to be made", file=sys.stderr)
    rows = {
        "models": [asdict(each) for each in models],
        "references": [asdict(each) for each in references],
        "comparisons": [row_of(each) for each in made],
    }
    result = start.finish(rows, is_complete=left <= 0)
    return conclude(result, tables, expectations, options.json)


def model_names() -> tuple[str, ...]:
    return (*LIGHT, *sorted(path.stem for path in TWINS.glob("*.onnx")))


def repetitions_of(options: argparse.Namespace) -> int:
    """Comparisons of each unchanged model, per machine state and core count."""
    if options.repetitions is not None:
        return int(options.repetitions)
    places = len(options.models) * len(options.cores.split(",")) * (1 if options.quiet else 2)
    return math.ceil(LEAST_UNCHANGED / places)


def plan_comparisons(
    machines: Sequence[str],
    cases: Sequence[tuple[str, int]],
    references: Sequence[Reference],
    repetitions: int,
    slower: int,
) -> list[Setting]:
    """Every comparison. Models and changes alternate, so that drift affects all of them alike."""
    variants = [each for each in references if each.ratio is not None]
    plan = []
    for machine in machines:
        for number in range(max(repetitions, slower)):
            if number < repetitions:
                plan += [Setting(machine, cores, model, UNCHANGED) for model, cores in cases]
            if number < slower:
                plan += [Setting(machine, v.cores, v.model, v.change) for v in variants]
    return plan


@dataclass(slots=True)
class Bench:
    """The folder of results and rebuilt models, and the gate of one case.

    Without `trusts_plans` models of one plan are timed as well.
    """

    folder: Path
    gate: Gate
    kept_rounds: Path | None = None
    trusts_plans: bool = True
    _twins: dict[str, Twin] = field(default_factory=dict)

    def run(
        self,
        plan: Sequence[Setting],
        at_most: int | None = None,
        beside: Callable[[str], AbstractContextManager[None]] = lambda m: noise(m != QUIET),
    ) -> list[Compared]:
        """All comparisons of the plan; those that earlier runs stored in the folder are reused.

        `beside` makes the noise of a machine.
        """
        wanted = Counter(plan)
        made = []
        for row in self._read("comparisons"):
            each = compared_of(row)
            if wanted[each.setting]:
                wanted[each.setting] -= 1
                made.append(each)
        if made:
            print(f"goes on from {len(made)} comparisons in {self.folder}", file=sys.stderr)
        left = []
        for setting in reversed(plan):
            if wanted[setting]:
                wanted[setting] -= 1
                left.append(setting)
        left.reverse()
        for machine, settings in groupby(left[:at_most], lambda setting: setting.machine):
            with beside(machine):
                for setting in settings:
                    made.append(self.compare(setting))
                    if len(made) % 10 == 0:
                        print(f"{len(made)} of {len(plan)} comparisons", file=sys.stderr)
        return made

    def compare(self, setting: Setting) -> Compared:
        """Makes one comparison and stores it at once."""
        before = self.baseline(setting.model)
        with self.variant(setting) as after:
            compared, rounds = compare(
                setting, before, after, self.gate, trusts_plans=self.trusts_plans
            )
        if self.kept_rounds is not None and rounds:
            keep_rounds(self.kept_rounds, setting, rounds)
        self._keep("comparisons", row_of(compared))
        return compared

    def baseline(self, model: str) -> Path:
        """The path of the baseline model, which stays in the folder."""
        path = self.folder / "models" / f"{model}.onnx"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            rebuild(self.twin(model), path, BEFORE_SEED)
        return path

    @contextmanager
    def variant(self, setting: Setting) -> Iterator[Path]:
        """The path of the changed model, which is removed with the context."""
        rows = None
        if setting.change in LOADS:
            rows = next(
                each.rows
                for each in self.references(setting.model, setting.cores, [setting.change])
            )
        twin = self.changed(setting.model, setting.change, rows)
        if twin is None:
            raise ValueError(f"{setting.model} has no variant {setting.change!r}")
        with self.rebuilt(twin) as path:
            yield path

    @contextmanager
    def rebuilt(self, twin: Twin) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            yield rebuild(twin, Path(place, "now.onnx"), AFTER_SEED)

    def changed(self, model: str, change: str, rows: int | None) -> Twin | None:
        """The twin of a variant; None if the change does not apply to the model."""
        twin = self.twin(model)
        if change == UNCHANGED:
            return twin
        if rows is not None:
            return Twin(model, add_load(twin.proto, rows))
        if change == BLOCK:
            proto = repeat_block(twin.proto, costs_of(self.baseline(model)))
        else:
            proto = decompose(twin.proto)
        return None if proto is None else Twin(model, proto)

    def twin(self, model: str) -> Twin:
        if model not in self._twins:
            self._twins[model] = twin_of(model)
        return self._twins[model]

    # -- references

    def model(self, name: str) -> RealModel:
        """Size and speed of a model, measured once."""
        for row in self._read("models"):
            if row["name"] == name:
                return RealModel(**row)  # type: ignore[arg-type]  # as it was written
        twin = self.twin(name)
        started = time.monotonic()
        with self.rebuilt(twin) as path:
            seconds = time.monotonic() - started
            rounds = duet(path, path, 1, None, MAX_SECONDS / 5)
        nodes = len(twin.proto.graph.node)
        found = RealModel(name, nodes, median_ms(rounds), round(seconds, 2))
        self._keep("models", asdict(found))
        return found

    def references(
        self, model: str, cores: int, changes: Sequence[str] = CHANGES[1:]
    ) -> list[Reference]:
        """The reference of each variant of a model on this number of cores, measured once."""
        kept = [Reference(**row) for row in self._read("references")]  # type: ignore[arg-type]  # as they were written
        known = {(each.model, each.cores, each.change): each for each in kept}
        found: list[Reference] = []
        for change in changes:
            reference = known.get((model, cores, change))
            if reference is None:
                reference = self.refer(model, cores, change, found)
                self._keep("references", asdict(reference))
                slower = "does not apply" if reference.ratio is None else f"{reference.ratio:.4f}"
                print(f"{model}, {cores} cores, {change}: {slower}", file=sys.stderr)
            found.append(reference)
        return found

    def refer(self, model: str, cores: int, change: str, others: Sequence[Reference]) -> Reference:
        if change in LOADS:
            return self.find_load(model, cores, change, others)
        twin = self.changed(model, change, None)
        if twin is None:
            return Reference(model, cores, change, None, None, None, None, 0, None)
        return self.measure(model, cores, change, twin, None)

    def find_load(
        self, model: str, cores: int, change: str, others: Sequence[Reference]
    ) -> Reference:
        """The reference of a load adjusted to the wanted slowdown, or of the last trial.

        The first trial is extrapolated from other loads of the same model.
        """
        wanted = LOADS[change]
        rows = first_rows(self.model(model).one_core_ms, wanted)
        for known in others:
            if known.rows is not None and known.ratio is not None:
                rows = next_rows(known.rows, known.ratio - 1.0, wanted)
        for _ in range(LOAD_TRIALS):
            twin = Twin(model, add_load(self.twin(model).proto, rows))
            reference = self.measure(model, cores, change, twin, rows)
            slower = (reference.ratio or 1.0) - 1.0
            if abs(slower - wanted) <= LOAD_PRECISION * wanted:
                break
            rows = next_rows(rows, slower, wanted)
        return reference

    def measure(
        self, model: str, cores: int, change: str, twin: Twin, rows: int | None
    ) -> Reference:
        seconds = max(MAX_REFERENCE_SECONDS, REFERENCE_SECONDS_A_MS * self.model(model).one_core_ms)
        with self.rebuilt(twin) as after:
            rounds = duet(self.baseline(model), after, cores, REFERENCE_PRECISION, seconds)
        ratio = ratio_of(rounds)
        bounds = (ratio.value, ratio.low, ratio.high)
        value, low, high = (None if each is None else round(each, 4) for each in bounds)
        return Reference(
            model, cores, change, rows, value, low, high, len(rounds), median_ms(rounds)
        )

    def _read(self, kind: str) -> list[dict[str, object]]:
        path = self.folder / f"{kind}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _keep(self, kind: str, row: Mapping[str, object]) -> None:
        with (self.folder / f"{kind}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def compare(
    setting: Setting, before: Path, after: Path, gate: Gate, *, trusts_plans: bool = True
) -> tuple[Compared, Sequence[DuetRound]]:
    """Judges the latency of one case as a check does; also returns the raw rounds."""
    started = time.monotonic()
    setup = Setup(policy=SamplingPolicy(max_seconds=MAX_SECONDS), stretch_seconds=STRETCH_SECONDS)
    pair, place = load_pair(before, after, setting.cores, setup)
    wanted = Wanted(lambda _: False, plans=True, trusts_plans=trusts_plans)
    ran = run_pair(pair, gate, place, wanted)
    seconds = time.monotonic() - started
    if not ran.rounds:
        passed = Verdict.PASSED.value
        same = (passed, passed, passed, round(seconds, 3), 0, 1.0, None, None)
        return Compared(setting, *same, how=How.PLAN.value), ()
    rounds = ran.rounds
    judged = judge_rounds(rounds, gate)
    metrics = judged.metrics
    verdict = CaseComparison(place.case, metrics, ()).verdict
    seconds = time.monotonic() - started
    named = {metric.name: metric for metric in metrics}
    p50, p95 = named["latency_p50"], named["latency_p95"]
    low, high = p50.interval or (None, None)
    ratio, low, high = (None if each is None else round(each, 4) for each in (p50.ratio, low, high))
    compared = Compared(
        setting,
        verdict.value,
        p50.verdict.value,
        p95.verdict.value,
        round(seconds, 3),
        len(rounds),
        ratio,
        low,
        high,
        judged.how.value,
    )
    return compared, rounds


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Ends a duet at a precision of its ratio; None: after the last round."""

    precision: float | None
    rounds: int = DUET_POLICY.max_rounds
    samples_needed: tuple[int, ...] = (DUET_POLICY.min_samples,)
    has_limits: bool = False

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        if self.precision is None:
            return False
        pairs = [(each.before.block, each.after.block) for each in rounds]
        ratio = duet_ratio(pairs, REFERENCE_CONFIDENCE)
        if ratio.low is None or ratio.high is None:
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
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return make_twin(open_model(folder / f"light_{name.removeprefix('light_')}.onnx"))


def costs_of(model: Path) -> dict[str, Cost]:
    """MACs and output shape of each node, by the name of its first output."""
    layers = Model.load(model, ProfileRequest(), Extensions()).static.layers
    return {each.id: Cost(each.macs or 0, each.output_shape) for each in layers}


def keep_rounds(path: Path, setting: Setting, rounds: Sequence[DuetRound]) -> None:
    """Appends the times of one comparison to an .npz file.

    It holds these arrays per comparison: the turns of each round, and of either side all times,
    switches and running times, -1 for what was not known of a turn.
    """
    blocks = {
        "before": [each.before.block for each in rounds],
        "after": [each.after.block for each in rounds],
    }
    with zipfile.ZipFile(path, "a") as archive:
        number = len({name.partition("|")[0] for name in archive.namelist()})
        parts = (setting.machine, f"{setting.cores} cores", setting.model, setting.change)
        name = f"{number:05}|{'|'.join(parts)}"
        arrays = {
            f"{side}_{kept}": [
                value
                for block in taken
                for value in getattr(block, kept) or (-1,) * len(block.times_ns)
            ]
            for side, taken in blocks.items()
            for kept in ("times_ns", "switches", "running_ns")
        }
        arrays["turns"] = [len(each.before.times_ns) for each in rounds]
        for kind, values in arrays.items():
            with archive.open(f"{name}|{kind}.npy", "w") as file:
                np.lib.format.write_array(file, np.array(values, np.int64))


def row_of(compared: Compared) -> dict[str, object]:
    row = asdict(compared)
    return {**row.pop("setting"), **row}


if __name__ == "__main__":
    sys.exit(main())
