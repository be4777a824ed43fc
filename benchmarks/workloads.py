"""How right verdicts on workloads are: alarms of unchanged models, and slower members named.

    python benchmarks/workloads.py                    100 unchanged and 60 slower, some 30 minutes
    python benchmarks/workloads.py --slower 20        fewer with a slower member
    python benchmarks/workloads.py --quick            two of each, less than a minute
    python benchmarks/workloads.py --folder f         keep what is found, and go on from it

Encoders and convolutions run on workloads of two to six sizes, equally often or very unequally. An
unchanged model is compared with itself with other weights. Each model has a product that works on
what the largest input has beyond the second largest. In a slower one this product is wider, so only
the largest member takes longer, by about 10 %. How much that is, is timed without the package:
sessions of both models run in turn. A comparison is one of `modelperf.api.compare` with the
tolerances that are usual.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import results
from kept_rows import keep_row, read_rows
from onnx import ModelProto, TensorProto, helper, numpy_helper
from results import Expectation, Result, Start, conclude, markdown

from pytest_modelperf import api
from pytest_modelperf.comparing.records import MEMBER, CaseComparison, Verdict

UNCHANGED, SLOWER = "unchanged", "one member slower"
LEAST_NAMED = 0.95
# A slower member outside of this is timed again with another product, and then left out.
WANTED, MOST = (1.08, 1.12), 6
_WIDTH = 96
_TRUTH_SECONDS, _MAX_SECONDS = 1.5, 10.0
_NARROW, _FIRST_WIDTH, _WIDEST = 1, 64, 4096


@dataclass(frozen=True, slots=True)
class Load:
    """A model and the members of its workload: the size of each, and how often it occurs."""

    model: str
    sizes: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def name(self) -> str:
        listed = zip(self.sizes, self.weights, strict=True)
        return f"{self.model}, {' '.join(f'{size}x{weight}' for size, weight in listed)}"

    @property
    def members(self) -> list[str | Mapping[str, object]]:
        return [
            {"dims": {"batch": 1, "size": size}, "weight": weight}
            for size, weight in zip(self.sizes, self.weights, strict=True)
        ]

    @property
    def largest(self) -> str:
        return f"size={max(self.sizes)}"


LOADS = (
    Load("encoder", (16, 128), (5, 1)),
    Load("encoder", (16, 32, 64, 128), (1, 1, 1, 1)),
    Load("encoder", (16, 32, 64, 96, 128, 192), (20, 10, 5, 3, 2, 1)),
    Load("convolution", (32, 64), (1, 1)),
    Load("convolution", (24, 40, 64), (12, 4, 1)),
)


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison: its verdict, the members that it called worse, and how much slower one is."""

    kind: str
    load: str
    number: int
    truth: float
    verdict: str
    worse: tuple[str, ...]
    largest: str
    ratio: float | None
    rounds: int | None
    seconds: float

    @property
    def is_alarm(self) -> bool:
        return self.verdict == Verdict.REGRESSED

    @property
    def is_named(self) -> bool:
        return self.largest in self.worse


def main() -> int:
    options = _options()
    start = Start.now("workloads")
    plan = [(UNCHANGED, at) for at in range(options.unchanged)]
    plan += [(SLOWER, at) for at in range(options.slower)]
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        made = {
            (check.kind, check.number): check for check in map(read, read_rows(folder, "checks"))
        }
        for kind, number in plan:
            if (kind, number) not in made:
                made[kind, number] = run(kind, number, folder)
                keep_row(folder, "checks", asdict(made[kind, number]))
    found = [made[each] for each in plan]
    result = start.finish({"checks": [asdict(each) for each in found]})
    return conclude(result, tables, expectations, options.json)


def run(kind: str, number: int, folder: Path) -> Check:
    """Make both models of a comparison, and compare them."""
    load = LOADS[number % len(LOADS)]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        before, after = Path(place, "before.onnx"), Path(place, "after.onnx")
        onnx.save(make_model(load, seed=number), before)
        truth = 1.0
        if kind == SLOWER:
            truth = plant(load, number, before, after)
        else:
            onnx.save(make_model(load, seed=number + 1000), after)
        started = time.monotonic()
        (case,) = api.compare(before, after, workload=load.members, max_seconds=_MAX_SECONDS).cases
        seconds = round(time.monotonic() - started, 2)
    return check_of(kind, load, number, truth, case, seconds)


def check_of(  # noqa: PLR0913, PLR0917  # one for each fact of a comparison
    kind: str, load: Load, number: int, truth: float, case: CaseComparison, seconds: float
) -> Check:
    metrics = [metric for metric in case.metrics if metric.name.startswith(MEMBER)]
    worse = [m.name.removeprefix(MEMBER) for m in metrics if m.verdict is Verdict.REGRESSED]
    largest = case.metric(f"{MEMBER}{load.largest}")
    return Check(
        kind,
        load.name,
        number,
        round(truth, 4),
        case.verdict.value,
        tuple(worse),
        load.largest,
        None if largest is None or largest.ratio is None else round(largest.ratio, 4),
        case.rounds,
        seconds,
    )


def plant(load: Load, number: int, before: Path, after: Path) -> float:
    """Write a model whose largest member is some 10 % slower; returns how much it is."""
    width, truth = _FIRST_WIDTH, 1.0
    for _ in range(MOST):
        onnx.save(make_model(load, seed=number, width=width), after)
        truth = time_ratio(load, before, after)
        if WANTED[0] <= truth <= WANTED[1]:
            break
        width = next_width(width, truth)
    return truth


def next_width(width: int, truth: float) -> int:
    """The width of a product that takes a tenth, by what one of this width takes."""
    wanted = round(width * 0.1 / max(truth - 1.0, 0.0125))
    return max(_NARROW + 1, min(wanted, _WIDEST))


def time_ratio(load: Load, before: Path, after: Path) -> float:
    """How many times as long the largest member takes, by sessions that run in turn."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    feed = {"x": make_input(load.model, max(load.sizes))}
    sessions = [ort.InferenceSession(str(path), options) for path in (before, after)]
    ratios: list[float] = []
    end = time.monotonic() + _TRUTH_SECONDS
    while time.monotonic() < end or len(ratios) < 5:
        times = []
        for session in sessions:
            begun = time.perf_counter_ns()
            session.run(None, feed)
            times.append(time.perf_counter_ns() - begun)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


# -- the models


def make_input(model: str, size: int) -> np.ndarray[Any, Any]:
    shape = (1, size, _WIDTH) if model == "encoder" else (1, 8, size, size)
    return np.random.default_rng(size).standard_normal(shape).astype(np.float32)


def make_model(load: Load, *, seed: int, width: int = _NARROW) -> ModelProto:
    """A model with drawn weights; its product of what only the largest has is so wide."""
    build = Builder(seed, load.model)
    for _ in range(3):
        if load.model == "encoder":
            build.attend()
        else:
            build.convolve()
    build.work_beyond(sorted(load.sizes)[-2], width)
    return build.model()


class Builder:
    """Nodes one after the other, each on the output of the one before."""

    def __init__(self, seed: int, model: str) -> None:
        self._random = np.random.default_rng(seed)
        self._is_encoder = model == "encoder"
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self._last = "x"

    def attend(self) -> None:
        here = self._last
        keys = self._add("MatMul", here, self._drawn(_WIDTH, _WIDTH))
        turned = self._add("Transpose", keys, perm=[0, 2, 1])
        shares = self._add("Softmax", self._add("MatMul", here, turned), axis=-1)
        mixed = self._add("MatMul", shares, here)
        wide = self._add("Relu", self._add("MatMul", mixed, self._drawn(_WIDTH, 2 * _WIDTH)))
        self._last = self._add("MatMul", wide, self._drawn(2 * _WIDTH, _WIDTH))

    def convolve(self) -> None:
        found = self._add("Conv", self._last, self._drawn(8, 8, 3, 3), pads=[1, 1, 1, 1])
        self._last = self._add("Relu", found)

    def work_beyond(self, size: int, width: int) -> None:
        """A product of the rows beyond a size, whose sum is added to the output."""
        axis = 1 if self._is_encoder else 2
        here = self._last
        bounds = [self._constant([value]) for value in (size, 1 << 30, axis)]
        found = self._add("Slice", here, *bounds)
        if not self._is_encoder:
            found = self._add("Transpose", found, perm=[0, 2, 3, 1])
        channels = _WIDTH if self._is_encoder else 8
        found = self._add("MatMul", found, self._drawn(channels, width))
        total = self._add("ReduceSum", found, keepdims=0)
        self._last = self._add("Add", here, total)

    def model(self) -> ModelProto:
        shape: list[str | int | None]
        shape = ["batch", "size", _WIDTH] if self._is_encoder else ["batch", 8, "size", "size"]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "workload",
            [value("x", TensorProto.FLOAT, shape)],
            [value(self._last, TensorProto.FLOAT, shape)],
            self._weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def _add(self, op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401  # of onnx
        name = f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def _drawn(self, *shape: int) -> str:
        values = self._random.standard_normal(shape) / np.sqrt(shape[0])
        return self._stored(values.astype(np.float32))

    def _constant(self, values: Sequence[int]) -> str:
        return self._stored(np.array(values, np.int64))

    def _stored(self, values: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name


# -- what is shown


def read(row: Mapping[str, Any]) -> Check:
    return Check(**{**row, "worse": tuple(row["worse"])})


def checks_of(result: Result) -> list[Check]:
    return [read(row) for row in result.rows["checks"]]


def tables(result: Result) -> dict[str, str]:
    checks = checks_of(result)
    lines = []
    for load in dict.fromkeys(check.load for check in checks):
        here = [check for check in checks if check.load == load]
        same = [check for check in here if check.kind == UNCHANGED]
        slower = _slower(here)
        lines.append(
            (
                load,
                f"{sum(check.is_alarm for check in same)} of {len(same)}",
                f"{sum(check.verdict == Verdict.PASSED for check in same)} of {len(same)}",
                f"{sum(check.is_named for check in slower)} of {len(slower)}",
                f"{statistics.median(check.seconds for check in here):.1f} s",
            )
        )
    header = ("workload", "alarms", "unchanged passed", "slower member named", "time")
    return {"workloads": markdown(header, lines)}


def _slower(checks: Sequence[Check]) -> list[Check]:
    """Those in which a member is as much slower as was wanted."""
    return [c for c in checks if c.kind == SLOWER and WANTED[0] <= c.truth <= WANTED[1]]


def expectations(result: Result) -> tuple[Expectation, ...]:
    checks = checks_of(result)
    same = [check for check in checks if check.kind == UNCHANGED]
    alarms = sum(check.is_alarm for check in same)
    slower = _slower(checks)
    named = sum(check.is_named for check in slower)
    others = sum(bool(set(check.worse) - {check.largest}) for check in slower)
    return (
        Expectation(
            "unchanged workloads called slower", "0", f"{alarms} of {len(same)}", not alarms
        ),
        Expectation(
            "members that are 10 % slower and named",
            f"at least {100 * LEAST_NAMED:g} %",
            f"{named} of {len(slower)}",
            named >= LEAST_NAMED * len(slower) if slower else None,
        ),
        Expectation("other members named as well", "0", f"{others} of {len(slower)}", not others),
    )


def _options() -> argparse.Namespace:
    parser = results.parser(__doc__)
    parser.add_argument("--unchanged", type=int, default=100, help="comparisons of equal models")
    parser.add_argument("--slower", type=int, default=60, help="comparisons with a slower member")
    parser.add_argument("--quick", action="store_true", help="two of each")
    parser.add_argument("--folder", type=Path, help="keep what is found here, and go on from it")
    options = parser.parse_args()
    if options.quick:
        options.unchanged = options.slower = 2
    return options


if __name__ == "__main__":
    sys.exit(main())
