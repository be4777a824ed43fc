"""Reductions made by hand, as if kernels had run: nothing in them depends on a machine."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.comparing.changes import KernelCounts, PartChange
from pytest_modelperf.comparing.judged_case import side_run
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.reducing.records import (
    ReduceStep,
    Reduction,
    StepAnswer,
    UnitKernels,
    UnitSearch,
    WrittenPair,
)
from tests.support.comparisons import change, latency
from tests.support.profiles import ENGINE, make_measurement

SLOWER = Verdict.REGRESSED
UNITS = (
    UnitKernels(before=("Conv",), after=("Conv",), is_changed=False, longer_ns=0.0),
    UnitKernels(before=("Relu",), after=("Abs", "Add", "Mul"), is_changed=True, longer_ns=590_000),
    UnitKernels(before=("Relu",), after=("Abs", "Mul"), is_changed=True, longer_ns=120_000),
)


def figure(before: float, after: float, verdict: Verdict = SLOWER, width: float = 0.02) -> Metric:
    ratio = after / before
    made = latency("p50", before, after, verdict, (ratio - width, ratio + width))
    return replace(made, confidence=0.9991)


def make_reduction(*, is_upgrade: bool = False) -> Reduction:
    """A decomposed activation that was found in two steps, or one release against another."""
    engines = ENGINE, replace(ENGINE, version="2.0") if is_upgrade else ENGINE
    whole = figure(30.0, 31.2)
    sides = [side_run(replace(make_measurement(30.0), engine=each), (whole,)) for each in engines]
    parts = (
        ()
        if is_upgrade
        else (
            PartChange(
                kernels=KernelCounts(before=1, after=3),
                before_ns=560_000,
                after_ns=1_150_000,
                time=change(0.59),
                reasons=("1 Relu became 3 kernels (Abs, Add, Mul)",),
            ),
        )
    )
    comparison = CaseComparison(
        Case(8, 1), (whole,), (), before=sides[0], after=sides[1], parts=parts
    )
    steps = (
        ReduceStep(
            units=(2,),
            shown=StepAnswer.OPEN,
            allowed=0.02,
            metric=figure(0.1, 0.1, Verdict.INCONCLUSIVE),
        ),
        ReduceStep(
            units=(1,),
            shown=StepAnswer.SLOWER,
            allowed=0.02,
            metric=figure(0.56, 1.15),
            seconds=4.0,
        ),
    )
    return Reduction(
        before="old.onnx",
        after="new.onnx",
        comparison=comparison,
        tolerance=0.03,
        level=0.01,
        units=UNITS,
        search=UnitSearch(steps=steps, kept=(1,), is_smallest=True),
        written=WrittenPair(
            metric=figure(0.55, 1.2),
            sizes=(733, 1728),
            warnings=("weights with many zeros are drawn with the same share of them",),
        ),
        seconds=21.0,
    )


def nothing_slower() -> Reduction:
    """Two models of which the second is not slower."""
    whole = figure(30.0, 30.1, Verdict.PASSED)
    comparison = replace(make_reduction().comparison, metrics=(whole,), parts=())
    return replace(
        make_reduction(), comparison=comparison, units=(), search=None, written=None, seconds=9.0
    )
