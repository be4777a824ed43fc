"""How right verdicts on workloads are: alarms of unchanged models, and slower members named.

Encoders and convolutions run on workloads of two to six sizes, equally often or very unequally. An
unchanged model is compared with itself with other weights. Each model has a product that works on
what the largest input has beyond the second largest. In a slower one this product is wider, so only
the largest member takes longer, by about 10 %, which is timed without the package.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from bare_sessions import start_session, time_ratio
from draft import Array, Draft, Shape
from expected import Expectation, expect_none, expect_share
from kept import keep_row, read_records, read_rows, rounded
from measuring import Program
from onnx import ModelProto
from results import Result, Rows
from shown import count_of, grouped, median_of, table

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


def measure(options: argparse.Namespace) -> Rows:
    plan = [(UNCHANGED, at) for at in range(options.unchanged)]
    plan += [(SLOWER, at) for at in range(options.slower)]
    kept = read_records(read_rows(options.folder, "checks"), Check)
    made = {(check.kind, check.number): check for check in kept}
    for kind, number in plan:
        if (kind, number) not in made:
            made[kind, number] = run(kind, number, options.folder)
            keep_row(options.folder, "checks", made[kind, number])
    return {"checks": [made[each] for each in plan]}


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
    ratio = rounded(None if largest is None else largest.ratio)
    return Check(
        kind, load.name, number, round(truth, 4), case.verdict.value, tuple(worse), load.largest,
        ratio, case.rounds, seconds,
    )  # fmt: skip


def plant(load: Load, number: int, before: Path, after: Path) -> float:
    """Write a model whose largest member is some 10 % slower; returns how much it is."""
    width, truth = _FIRST_WIDTH, 1.0
    feed = {"x": make_input(load.model, max(load.sizes))}
    for _ in range(MOST):
        onnx.save(make_model(load, seed=number, width=width), after)
        truth = time_ratio((start_session(before), start_session(after)), feed, _TRUTH_SECONDS)
        if WANTED[0] <= truth <= WANTED[1]:
            break
        width = next_width(width, truth)
    return truth


def next_width(width: int, truth: float) -> int:
    """The width of a product that takes a tenth, by what one of this width takes."""
    wanted = round(width * 0.1 / max(truth - 1.0, 0.0125))
    return max(_NARROW + 1, min(wanted, _WIDEST))


# -- the models


def make_input(model: str, size: int) -> Array:
    shape = (1, size, _WIDTH) if model == "encoder" else (1, 8, size, size)
    return np.random.default_rng(size).standard_normal(shape).astype(np.float32)


def make_model(load: Load, *, seed: int, width: int = _NARROW) -> ModelProto:
    """A model with drawn weights; its product of what only the largest has is so wide."""
    is_encoder = load.model == "encoder"
    draft, last = _Member(seed), "x"
    for _ in range(3):
        last = draft.attend(last) if is_encoder else draft.convolve(last)
    last = draft.work_beyond(last, sorted(load.sizes)[-2], width, is_encoder=is_encoder)
    shape: Shape = ["batch", 8, "size", "size"]
    if is_encoder:
        shape = ["batch", "size", _WIDTH]
    return draft.model(last, shape)


class _Member(Draft):
    def product(self, x: str, before: int, after: int) -> str:
        return self.add("MatMul", x, self.drawn(before, after, scale=before**-0.5))

    def attend(self, x: str) -> str:
        turned = self.add("Transpose", self.product(x, _WIDTH, _WIDTH), perm=[0, 2, 1])
        shares = self.add("Softmax", self.add("MatMul", x, turned), axis=-1)
        mixed = self.add("MatMul", shares, x)
        wide = self.add("Relu", self.product(mixed, _WIDTH, 2 * _WIDTH))
        return self.product(wide, 2 * _WIDTH, _WIDTH)

    def convolve(self, x: str) -> str:
        weight = self.drawn(8, 8, 3, 3, scale=8**-0.5)
        return self.add("Relu", self.add("Conv", x, weight, pads=[1, 1, 1, 1]))

    def work_beyond(self, x: str, size: int, width: int, *, is_encoder: bool) -> str:
        """A product of the rows beyond a size, whose sum is added to the output."""
        axis = 1 if is_encoder else 2
        found = self.add("Slice", x, *map(self.numbers, (size, 1 << 30, axis)))
        if not is_encoder:
            found = self.add("Transpose", found, perm=[0, 2, 3, 1])
        found = self.product(found, _WIDTH if is_encoder else 8, width)
        return self.add("Add", x, self.add("ReduceSum", found, keepdims=0))


# -- what is shown


def tables(result: Result) -> dict[str, str]:
    columns = {
        "workload": lambda here: here[0].load,
        "alarms": lambda here: count_of(check.is_alarm for check in _same(here)),
        "unchanged passed": lambda here: count_of(
            check.verdict == Verdict.PASSED for check in _same(here)
        ),
        "slower member named": lambda here: count_of(check.is_named for check in _slower(here)),
        "time": lambda here: f"{median_of(check.seconds for check in here)} s",
    }
    by_load = grouped(result.read("checks", Check), lambda check: check.load).values()
    return {"workloads": table(by_load, columns)}


def _same(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.kind == UNCHANGED]


def _slower(checks: Sequence[Check]) -> list[Check]:
    """Those in which a member is as much slower as was wanted."""
    return [c for c in checks if c.kind == SLOWER and WANTED[0] <= c.truth <= WANTED[1]]


def expectations(result: Result) -> tuple[Expectation, ...]:
    checks = result.read("checks", Check)
    slower = _slower(checks)
    alarms = (check.is_alarm for check in _same(checks))
    others = (bool(set(check.worse) - {check.largest}) for check in slower)
    return (
        expect_none("unchanged workloads called slower", alarms, "0"),
        expect_share(
            "members that are 10 % slower and named", (c.is_named for c in slower), LEAST_NAMED
        ),
        expect_none("other members named as well", others, "0"),
    )


if __name__ == "__main__":
    program = Program("workloads", __doc__, tables, expectations)
    program.number("--unchanged", 100, "comparisons of equal models")
    program.number("--slower", 60, "comparisons with a slower member")
    sys.exit(program.run(measure))
