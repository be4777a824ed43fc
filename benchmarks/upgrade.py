"""What an upgrade of ONNX Runtime does to one model, and how long it takes to find the release.

The model is a chain of depthwise and pointwise convolutions. Each version
runs in an environment of its own as a duet with the first one. Then a bisect looks for the release
since which the model is slower, among twelve releases, and `modelperf reduce` for the kernels that
make it slower, whose `repro.py` runs on both releases. Environments that are not kept yet
are made, which needs a package index.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from commands import run_modelperf, run_process, with_sources
from draft import Draft
from expected import Expectation, expect_most
from measuring import Program
from results import Result, Rows
from shown import percent, table

from pytest_modelperf.bisect.records import RangeKind, Version, VersionRange
from pytest_modelperf.bisect.request import BisectRequest
from pytest_modelperf.bisect.search import SearchRule
from pytest_modelperf.environments.store import make_environment
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup

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
# Of a reduction: the tolerance of p50, and its limit.
REDUCTION_TOLERANCE, MOST_SECONDS = 0.003, 60.0
_RATIO = re.compile(r"ratio ([\d.]+)")
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

    @property
    def interval_text(self) -> str:
        low, high = (f"{100 * (bound - 1):+.1f}" for bound in (self.low, self.high))
        return f"{low} … {high} %"


@dataclass(frozen=True, slots=True)
class Halving:
    """A bisect: its answer, and how long it took.

    `last_good` and `first_bad` are None if both ends are not shown to differ.
    """

    versions: int
    steps: int
    verdict: str
    last_good: str | None
    first_bad: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction.

    `repro` is the ratio that the program of its folder prints. The figures are None if nothing was
    written.
    """

    verdict: str
    kernels: int | None
    ratio: float | None
    repro: float | None
    seconds: float


def measure(options: argparse.Namespace) -> Rows:
    setup = Setup(policy=SamplingPolicy(max_seconds=options.max_seconds))
    path = options.folder / "chain.onnx"
    onnx.save(make_chain(), path)
    halving = measure_bisect(str(path), options.bisected, setup)
    reduced = measure_reduction(path, halving)
    return {
        "model": [{"first": options.versions[0]}],
        "upgrades": list(measure_upgrades(path, options.versions, options.max_seconds)),
        "bisect": [halving],
        "reduction": [] if reduced is None else [reduced],
    }


def make_chain() -> onnx.ModelProto:
    """Blocks of three depthwise 3x3 and one pointwise convolution at 1x256x14x14."""
    draft, last = Draft(), "x"
    shapes = [(_CHANNELS, 1, 3, 3)] * _DEPTHWISE + [(_CHANNELS, _CHANNELS, 1, 1)]
    for shape in shapes * _BLOCKS:
        _, inputs, width, _ = shape
        weight = draft.drawn(*shape, scale=(inputs * width**2) ** -0.5)
        pads, group = [width // 2] * 4, _CHANNELS // inputs
        last = draft.add("Conv", last, weight, pads=pads, group=group)
    return draft.model(last, [1, _CHANNELS, _SIDE, _SIDE])


def measure_upgrades(model: Path, versions: Sequence[str], max_seconds: float) -> Iterator[Upgrade]:
    """Each version but the first, compared with that."""
    first, *others = (f"{PACKAGE}=={name}" for name in versions)
    limits = (f"--tolerance=p50={TOLERANCE:g}", f"--max-seconds={max_seconds:g}")
    for requirement in (first, *others):
        make_environment([requirement])
    for name, requirement in zip(versions[1:], others, strict=True):
        begun = time.monotonic()
        make_environment([requirement])
        found_seconds = time.monotonic() - begun
        sides = (f"--requirement-a={first}", f"--requirement-b={requirement}")
        ran = run_modelperf("compare", model, model, options=(*limits, *sides))
        if not ran.p50:
            raise SystemExit(f"{name}: {ran.output}")
        p50 = ran.p50
        low, high = p50["interval"] or (0.0, float("inf"))
        yield Upgrade(
            name, p50["after"], p50["ratio"], low, high, p50["confidence"] or 0.0, p50["verdict"],
            ran.case()["rounds"], found_seconds,
        )  # fmt: skip


def measure_bisect(model: str, versions: Sequence[str], setup: Setup) -> Halving:
    named = tuple(Version(name, f"{PACKAGE} {name}") for name in versions)
    asked = BisectRequest(
        model=model,
        request=ProfileRequest(),
        range=VersionRange(RangeKind.RELEASES, named),
        setup=setup,
        rule=SearchRule(tolerance=TOLERANCE),
        package=PACKAGE,
    )
    found = asked.run(Extensions())
    pairs = [(each.last_good.name, each.first_bad.name) for each in found.search.regressions]
    last_good, first_bad = pairs[0] if pairs else (None, None)
    verdict = "failed" if found.verdict is None else found.verdict.value
    steps = len(found.search.steps)
    return Halving(len(versions), steps, verdict, last_good, first_bad, found.seconds)


def measure_reduction(model: Path, found: Halving) -> Reduced | None:
    """The kernels that the bisected release made slower; None if it found none."""
    if found.last_good is None or found.first_bad is None:
        return None
    releases = [f"{PACKAGE}=={name}" for name in (found.last_good, found.first_bad)]
    target = model.with_name("reduced")
    shutil.rmtree(target, ignore_errors=True)
    sides = zip("ab", releases, strict=True)
    options = (
        "--batch=1", f"--tolerance={REDUCTION_TOLERANCE:g}", f"--max-seconds={MOST_SECONDS:g}",
        f"--output={target}", *(f"--requirement-{side}={release}" for side, release in sides),
    )  # fmt: skip
    ran = run_modelperf("reduce", model, model, options=options)
    if ran.document is None:
        raise RuntimeError(ran.output)
    verdict, written = ran.document["verdict"], ran.document["written"]
    if written is None:
        return Reduced(verdict, None, None, None, ran.seconds)
    older, newer = (str(make_environment([release]).python) for release in releases)
    command = [newer, str(target / "repro.py"), older]
    printed = run_process(command, target, environment=with_sources()).output
    kernels, ratio = sum(written["kernels"].values()), written["figure"]["ratio"]
    return Reduced(verdict, kernels, ratio, float(_RATIO.findall(printed)[-1]), ran.seconds)


def tables(result: Result) -> dict[str, str]:
    first = result.rows["model"][0]["first"]
    columns = {
        "onnxruntime": lambda each: f"{first} → {each.version}",
        "p50": lambda each: f"{each.p50_ms:.3f} ms",
        "change": lambda each: percent(each.ratio),
        "interval": lambda each: each.interval_text,
        "verdict": lambda each: each.verdict,
        "rounds": lambda each: each.rounds,
    }
    upgrades = table(result.read("upgrades", Upgrade), columns, "lrrrlr")
    return {"upgrade": upgrades, "upgrade short": _sentence(result)}


def _sentence(result: Result) -> str:
    last, (found,) = result.read("upgrades", Upgrade)[-1], result.read("bisect", Halving)
    text = (
        f"From onnxruntime {result.rows['model'][0]['first']} to {last.version} a chain of "
        f"convolutions takes {percent(last.ratio)} ({last.interval_text}): {last.verdict}."
    )
    if found.first_bad is None:
        return text
    text = f"{text} `modelperf bisect` finds {found.first_bad} in {found.seconds:.0f} s."
    reduced = _reduced_in(result)
    if reduced is None or reduced.kernels is None or reduced.ratio is None:
        return text
    return (
        f"{text} `modelperf reduce` shows it with {reduced.kernels // 2} of the "
        f"{(_DEPTHWISE + 1) * _BLOCKS} convolutions, which takes {reduced.ratio:.2f} times as "
        "long."
    )


def _reduced_in(result: Result) -> Reduced | None:
    return next(iter(result.read("reduction", Reduced)), None)


def expectations(result: Result) -> tuple[Expectation, ...]:
    (found,) = result.read("bisect", Halving)
    slowest = max(each.found_seconds for each in result.read("upgrades", Upgrade))
    reduced = _reduced_in(result)
    small, slower, kernels, repro = None, None, "no release was found", ""
    if reduced is not None:
        count = (reduced.kernels or 0) // 2
        kernels = f"{count} in {reduced.seconds:.0f} s"
        small = 0 < count <= MOST_KERNELS and reduced.seconds <= MOST_SECONDS
        slower = (reduced.repro or 0.0) > 1.0
        repro = "" if reduced.repro is None else f"{reduced.repro:.2f}"
    limit = f"at most {MOST_KERNELS}, in at most {MOST_SECONDS:g} s"
    what = "kernels of a model that still show the slowdown"
    program = "the program of the reduced model"
    return (
        expect_most(f"a bisect of {found.versions} releases", found.seconds, BISECT_SECONDS),
        expect_most("an environment that is kept is found", slowest, KEPT_SECONDS, digits=2),
        Expectation(what, limit, kernels, small),
        Expectation(program, "calls the later release slower", repro, slower),
    )


if __name__ == "__main__":
    program = Program("upgrade", __doc__, tables, expectations)
    program.number("--max-seconds", 20.0, "of the rounds of a duet")
    program.parser.add_argument("--versions", nargs="+", default=VERSIONS, help="the first is old")
    program.parser.add_argument("--bisected", nargs="+", default=BISECTED, help="from good to bad")
    sys.exit(program.run(measure))
