"""What an upgrade of ONNX Runtime does to one model, and how long it takes to find the release.

    python benchmarks/upgrade.py [--max-seconds 20] [--versions 1.20.1,1.32.0]

The model is a chain of depthwise and pointwise convolutions, which this program makes. Each version
runs in an environment of its own as a duet with the first one. Then a bisect looks for the release
since which the model is slower, among twelve releases, and `modelperf reduce` for the kernels that
make it slower, whose `repro.py` runs on both releases. Environments are made where they are not
kept yet, which needs a package index.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import results
from onnx import TensorProto, helper, numpy_helper
from reduce import MOST_SECONDS, Reduced, run_reduce
from results import Expectation, Result, Start, conclude, markdown

from pytest_modelperf.bisect.records import Bisect, RangeKind, Version, VersionRange
from pytest_modelperf.bisect.request import BisectRequest
from pytest_modelperf.bisect.search import SearchRule
from pytest_modelperf.comparing.by_running import Details
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.request import CompareRequest
from pytest_modelperf.environments.store import make_environment
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.model_request import ModelRun
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.records import rounds_within

PACKAGE = "onnxruntime"
VERSIONS = ("1.20.1", "1.23.2", "1.26.0", "1.30.0", "1.32.0")
BISECTED = (
    "1.21.0", "1.22.0", "1.23.0", "1.24.1", "1.25.0", "1.26.0", "1.27.0", "1.28.0", "1.29.0",
    "1.30.0", "1.31.0", "1.32.0",
)  # fmt: skip
# Smaller than usual: what changed here is a few percent.
TOLERANCE = 0.01
BISECT_SECONDS = 180
KEPT_SECONDS = 0.1
MOST_KERNELS = 3
_CHANNELS, _SIDE, _BLOCKS, _DEPTHWISE = 256, 14, 10, 3


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One version against the first one."""

    version: str
    p50_ms: float
    ratio: float
    low: float
    high: float
    confidence: float
    verdict: str
    rounds: int
    found_seconds: float


@dataclass(frozen=True, slots=True)
class Halving:
    """A bisect: its answer, and how long it took, with the environments that it made and without.

    `last_good` and `first_bad` are None if both ends are not shown to differ.
    """

    versions: int
    steps: int
    verdict: str
    last_good: str | None
    first_bad: str | None
    seconds: float
    environment_seconds: float


def write_chain(path: Path) -> None:
    """Blocks of three depthwise 3x3 and one pointwise convolution at 1x256x14x14."""
    rng = np.random.default_rng(0)
    nodes, weights, previous = [], [], "x"
    shapes = {"depthwise": (_CHANNELS, 1, 3, 3), "pointwise": (_CHANNELS, _CHANNELS, 1, 1)}
    for place, name in enumerate([*["depthwise"] * _DEPTHWISE, "pointwise"] * _BLOCKS):
        shape = shapes[name]
        scale = np.sqrt(1.0 / np.prod(shape[1:]))
        weight = (scale * rng.standard_normal(shape)).astype(np.float32)
        made = f"{name}{place}"
        weights.append(numpy_helper.from_array(weight, f"{made}_w"))
        nodes.append(
            helper.make_node(
                "Conv",
                [previous, f"{made}_w"],
                [made],
                made,
                pads=[shape[2] // 2] * 4,
                group=_CHANNELS // shape[1],
            )
        )
        previous = made
    sizes = [1, _CHANNELS, _SIDE, _SIDE]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, sizes)],
        weights,
    )
    opsets = (helper.make_opsetid("", 17),)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def measure_upgrades(model: str, versions: Sequence[str], setup: Setup) -> Iterator[Upgrade]:
    """Each version but the first, compared with that."""
    first, *others = (ModelRun(model, setup, (f"{PACKAGE}=={name}",)) for name in versions)
    for each in (first, *others):
        make_environment(each.requirements)
    for name, side in zip(versions[1:], others, strict=True):
        begun = time.monotonic()
        make_environment(side.requirements)
        yield _compare(name, first, side, time.monotonic() - begun)


def _compare(name: str, first: ModelRun, side: ModelRun, found_seconds: float) -> Upgrade:
    gate = Gate(
        tolerances=Tolerances(shares=((50.0, TOLERANCE),)),
        rounds=rounds_within(side.setup.policy.max_seconds),
    )
    asked = CompareRequest(
        before=first, after=side, request=ProfileRequest(), gate=gate, details=Details.NEVER
    )
    (case,) = asked.run(Extensions()).cases
    if case.failure is not None:
        raise SystemExit(f"{name}: {case.failure}")
    metric = next(each for each in case.metrics if each.name == "latency_p50")
    low, high = metric.interval or (0.0, float("inf"))
    return Upgrade(
        version=name,
        p50_ms=metric.after or 0.0,
        ratio=metric.ratio or 1.0,
        low=low,
        high=high,
        confidence=metric.confidence or 0.0,
        verdict=metric.verdict.value,
        rounds=case.rounds or 0,
        found_seconds=found_seconds,
    )


def measure_bisect(model: str, versions: Sequence[str], setup: Setup) -> Halving:
    spent = 0.0

    def run_duet(duet: CompareRequest, watch: Watch) -> Comparison:
        """Adds up the time that it takes to find or make the environments."""
        nonlocal spent
        begun = time.monotonic()
        for each in (duet.before, duet.after):
            make_environment(each.requirements)
        spent += time.monotonic() - begun
        return duet.run(Extensions(), watch)

    asked = BisectRequest(
        model=model,
        request=ProfileRequest(),
        range=VersionRange(RangeKind.RELEASES, tuple(map(_version, versions))),
        setup=setup,
        rule=SearchRule(tolerance=TOLERANCE),
        package=PACKAGE,
    )
    found = asked.run(Extensions(), run_duet=run_duet)
    return _halving(found, spent)


def _halving(found: Bisect, environment_seconds: float) -> Halving:
    pairs = [(each.last_good.name, each.first_bad.name) for each in found.search.regressions]
    last_good, first_bad = pairs[0] if pairs else (None, None)
    return Halving(
        versions=len(found.range.versions),
        steps=len(found.search.steps),
        verdict="failed" if found.verdict is None else found.verdict.value,
        last_good=last_good,
        first_bad=first_bad,
        seconds=found.seconds,
        environment_seconds=environment_seconds,
    )


def measure_reduction(model: Path, found: Halving) -> Reduced | None:
    """The kernels that the bisected release made slower; None where it found none."""
    if found.last_good is None or found.first_bad is None:
        return None
    releases = f"{PACKAGE}=={found.last_good}", f"{PACKAGE}=={found.first_bad}"
    return run_reduce("chain", "an upgrade", model, model, frozenset({"Conv"}), releases)


def _version(name: str) -> Version:
    return Version(name, f"{PACKAGE} {name}")


def tables(result: Result) -> dict[str, str]:
    first = result.rows["model"][0]["first"]
    lines = []
    for row in result.rows["upgrades"]:
        each = Upgrade(**row)
        low, high = (f"{100 * (bound - 1):+.1f}" for bound in (each.low, each.high))
        lines.append(
            (
                f"{first} → {each.version}",
                f"{each.p50_ms:.3f} ms",
                f"{100 * (each.ratio - 1):+.1f} %",
                f"{low} … {high} %",
                each.verdict,
                str(each.rounds),
            )
        )
    titles = ("onnxruntime", "p50", "change", "interval", "verdict", "rounds")
    upgrades = (
        f"{markdown(titles, lines, 'lrrrlr')}\n\n"
        f"A chain of {_DEPTHWISE * _BLOCKS} depthwise and {_BLOCKS} pointwise convolutions on one "
        f"core; {100 * TOLERANCE:g} % is allowed."
    )
    (row,) = result.rows["bisect"]
    found = Halving(**row)
    answer = "the ends are not shown to differ"
    if found.first_bad is not None:
        answer = f"slower since {found.first_bad}, not yet in {found.last_good}"
    halving = markdown(
        ("bisect", "answer", "steps", "time", "of which environments"),
        [
            (
                f"{found.versions} releases",
                answer,
                str(found.steps),
                f"{found.seconds:.0f} s",
                f"{found.environment_seconds:.0f} s",
            )
        ],
        "llrrr",
    )
    return {
        "upgrade": upgrades,
        "upgrade bisect": halving,
        "upgrade reduction": _reduction_table(result),
        "upgrade short": _sentence(result),
    }


def _reduction_table(result: Result) -> str:
    lines = [
        (
            row["verdict"],
            "" if row["kernels"] is None else str(row["kernels"]),
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "" if row["repro"] is None else f"{row['repro']:.2f}",
            f"{row['seconds']:.0f} s",
        )
        for row in result.rows["reduction"]
    ]
    titles = ("the whole", "kernels of both models", "ratio", "repro.py", "time")
    return markdown(titles, lines, "lrrrr")


def _sentence(result: Result) -> str:
    last, (row,) = Upgrade(**result.rows["upgrades"][-1]), result.rows["bisect"]
    found = Halving(**row)
    low, high = (f"{100 * (bound - 1):+.1f}" for bound in (last.low, last.high))
    text = (
        f"From onnxruntime {result.rows['model'][0]['first']} to {last.version} a chain of "
        f"convolutions takes {100 * (last.ratio - 1):+.1f} % ({low} … {high} %): {last.verdict}."
    )
    if found.first_bad is None:
        return text
    text = f"{text} `modelperf bisect` finds {found.first_bad} in {found.seconds:.0f} s."
    reduced = next(iter(result.rows["reduction"]), None)
    if reduced is None or reduced["ratio"] is None:
        return text
    return (
        f"{text} `modelperf reduce` shows it with {reduced['kernels'] // 2} of the "
        f"{(_DEPTHWISE + 1) * _BLOCKS} convolutions, which takes {reduced['ratio']:.2f} times as "
        "long."
    )


def expectations(result: Result) -> tuple[Expectation, ...]:
    (row,) = result.rows["bisect"]
    found = Halving(**row)
    slowest = max(each["found_seconds"] for each in result.rows["upgrades"])
    reduced = next(iter(result.rows["reduction"]), None)
    return (
        Expectation(
            f"a bisect of {found.versions} releases",
            f"at most {BISECT_SECONDS} s",
            f"{found.seconds:.0f} s",
            found.seconds <= BISECT_SECONDS,
        ),
        Expectation(
            "an environment that is kept is found",
            f"in at most {KEPT_SECONDS:g} s",
            f"{slowest:.2f} s",
            slowest <= KEPT_SECONDS,
        ),
        Expectation(
            "kernels of a model that still show the slowdown",
            f"at most {MOST_KERNELS}, in at most {MOST_SECONDS:g} s",
            "no release was found"
            if reduced is None
            else f"{(reduced['kernels'] or 0) // 2} in {reduced['seconds']:.0f} s",
            None if reduced is None else _is_small(reduced),
        ),
        Expectation(
            "the program of the reduced model",
            "calls the later release slower",
            "" if reduced is None or reduced["repro"] is None else f"{reduced['repro']:.2f}",
            None if reduced is None else (reduced["repro"] or 0.0) > 1.0,
        ),
    )


def _is_small(reduced: results.Row) -> bool:
    kernels = reduced["kernels"]
    is_soon: bool = reduced["seconds"] <= MOST_SECONDS
    return kernels is not None and kernels <= 2 * MOST_KERNELS and is_soon


def main() -> int:
    parser = results.parser(__doc__)
    parser.add_argument("--max-seconds", type=float, default=20.0, help="of the rounds of a duet")
    parser.add_argument("--versions", default=",".join(VERSIONS), help="each against the first")
    parser.add_argument("--bisected", default=",".join(BISECTED), help="the releases to bisect")
    arguments = parser.parse_args()
    seconds: float = arguments.max_seconds
    versions: list[str] = arguments.versions.split(",")
    bisected: list[str] = arguments.bisected.split(",")
    if len(versions) < 2 or len(bisected) < 2:
        parser.error("--versions and --bisected take two versions or more")
    start = Start.now("upgrade")
    setup = Setup(policy=SamplingPolicy(max_seconds=seconds))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chain.onnx")
        write_chain(path)
        upgrades = [asdict(each) for each in measure_upgrades(str(path), versions, setup)]
        halving = measure_bisect(str(path), bisected, setup)
        reduced = measure_reduction(path, halving)
    rows = {
        "model": [{"first": versions[0]}],
        "upgrades": upgrades,
        "bisect": [asdict(halving)],
        "reduction": [] if reduced is None else [asdict(reduced)],
    }
    return conclude(start.finish(rows), tables, expectations, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
