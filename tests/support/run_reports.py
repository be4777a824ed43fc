"""Outcomes and reports of test runs made by hand, one of each verdict."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineChange,
    BaselineRecording,
    ModelBaseline,
    StoredStatic,
    UpdatePlan,
)
from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange, OutputChange
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport, Source
from tests.support.comparisons import BROKEN, BUDGET, FASTER, OPEN, SAME, SLOWER, change, kind, row
from tests.support.facts import make_model
from tests.support.profiles import MACHINE

STATIC = StoredStatic(
    macs=4_089_184_256,
    elementwise_ops=12_000_000,
    backward_macs=8_000_000_000,
    effective_macs=None,
    params=25_610_152,
    scalar_params=None,
    weight_bytes=102_440_608,
    activation_bytes=88_000_000,
    knows_activations=True,
    peak_activation_bytes=12_845_056,
    uncounted_ops={},
    notes=(),
    layer_types={},
)
FRESH = CaseComparison(Case(2, 2), (), (), ("there is no baseline of b2-c2",), outcome=Verdict.NEW)
EVERYWHERE = replace(
    BUDGET,
    metrics=(
        *SLOWER.metrics[:2],
        replace(BUDGET.metrics[0], name="latency_p99"),
        Metric(
            "items_per_second",
            None,
            61.3,
            Verdict.OVER_BUDGET,
            limit=100.0,
            after_interval=(60.1, 62.4),
        ),
        Metric("peak_rss_bytes", None, 314_572_800, Verdict.PASSED, limit=320e6),
        Metric("macs", None, 4_100_000_001, Verdict.OVER_BUDGET, limit=4.1e9),
    ),
    how=How.DUET,
)
NEAR = replace(
    BUDGET,
    metrics=(
        Metric(
            "latency_p50", None, 12.1, Verdict.INCONCLUSIVE, limit=12.0, after_interval=(11.8, 12.5)
        ),
    ),
)
CALM = replace(SLOWER, case=Case(16, 1), metrics=(
    replace(SLOWER.metrics[0], verdict=Verdict.PASSED, after=26.15, interval=(0.994, 1.009)),
))  # fmt: skip
ALL = (SLOWER, OPEN, FASTER, SAME, BROKEN, BUDGET, FRESH, EVERYWHERE, NEAR, CALM)


def outcome(
    case: CaseComparison,
    test: str | None = None,
    line: int | None = 12,
    **facts: Any,  # noqa: ANN401  # any field of an outcome
) -> CaseOutcome:
    batch, cores = (int(part) for part in re.findall(r"[0-9]+", case.id)[:2])
    test = test or f"models/encoder.onnx::{case.id}"
    made = CaseOutcome(
        test=test,
        source=Source(path="tests/test_speed.py", line=line),
        model=make_model("encoder.onnx", "models/encoder.onnx", "ab" * 32, 97),
        cores=cores,
        batch_size=batch,
        comparison=case,
        engine="onnxruntime 1.31.1",
        static=STATIC,
        confidence=0.99,
        seconds=2.1,
        machine=MACHINE,
        accept=f'pytest --modelperf --modelperf-update-baseline "{test}"',
    )
    return replace(made, **facts)


def run(
    *outcomes: CaseOutcome,
    **facts: Any,  # noqa: ANN401  # any field of a report
) -> RunReport:
    return replace(RunReport(outcomes=outcomes, machine=MACHINE, seconds=4.31), **facts)


def many(count: int, case: CaseComparison = SAME) -> list[CaseOutcome]:
    return [outcome(case, f"models/m{n}.onnx::{case.id}") for n in range(count)]


def hostile(name: str) -> CaseComparison:
    """A case that has the name wherever a model or a test may put one."""
    layer = row(name, name, 1.0)
    return replace(
        SLOWER,
        case=Case(8, 2, engine=name),
        layers=(LayerChange(layer, layer, change(1.0, 0.5)),),
        layer_types=(
            LayerTypeChange(name, kind(name, 1, 1.0), kind(name, 1, 2.0), change(1.0, 1.0)),
        ),
        reasons=(f"1 {name} added",),
        notes=(name,),
        outputs=(OutputChange(name=name, difference=name), OutputChange(name=name, max_absolute=1)),
    )


def everything_named(name: str) -> RunReport:
    case = hostile(name)
    cases = (
        case,
        replace(case, metrics=(), failure=f"it said\n{name}"),
        replace(case, metrics=OPEN.metrics, failure=None),
        replace(case, metrics=BUDGET.metrics),
        replace(FRESH, reasons=(f"there is no baseline of {name}",)),
    )
    return RunReport(
        outcomes=tuple(
            replace(
                outcome(each, f"{name}.onnx::{name}{n}"),
                model=make_model(name, name, None, 1),
                source=Source(path=name, line=3),
                engine=name,
            )
            for n, each in enumerate(cases)
        ),
        plans=(replace(plan(name), notes=(name,)),),
        unused=((name, name),),
        notes=(name,),
    )


def baseline(name: str, *case_ids: str) -> Baseline:
    del case_ids
    model = ModelBaseline(model=make_model("encoder.onnx", None, None, 1), cases=())
    return Baseline(name=name, model=model, twin=name.encode())


def plan(name: str, *, before: Baseline | None = None, removes: bool = False) -> UpdatePlan:
    after = None if removes else replace(baseline(name), twin=b"new")
    return UpdatePlan(
        name=name,
        recording=BaselineRecording(name=name, model=make_model(name, None, None, 1), cases=()),
        removed=(),
        before=before,
        after=after,
        changes=(
            BaselineChange(case="b8-c2", name="macs", before=None, after=4_089_184_256),
            BaselineChange(case="b8-c2", name="latency_p50_ns", before=26.1e6, after=29.18e6),
        ),
        notes=("b1-c1: not measured now",),
    )
