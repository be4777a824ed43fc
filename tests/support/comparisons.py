"""Measured comparisons made by hand, one of each verdict: nothing in them depends on a machine."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.comparing.changes import (
    LayerChange,
    LayerTypeChange,
    OutputChange,
    TimeChange,
)
from pytest_modelperf.comparing.records import CaseComparison, Comparison, How, Metric, Verdict
from pytest_modelperf.profiler.counting.records import LayerType, StaticLayer
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.text.escaping import printable
from tests.support.facts import make_kind, make_model

NS_PER_MS = 1e6
PASSED, REGRESSED = Verdict.PASSED, Verdict.REGRESSED


def kind(op: str, count: int, ms: float | None) -> LayerType:
    return make_kind(op, count, ms=ms)


def change(ms: float, share: float | None = None, width: float = 0.09) -> TimeChange:
    return TimeChange(
        ns=ms * NS_PER_MS,
        low_ns=(ms - width) * NS_PER_MS,
        high_ns=(ms + width) * NS_PER_MS,
        share=share,
    )


def row(name: str, op: str, ms: float | None) -> LayerRow:
    layer = StaticLayer(
        id=name, name=name, op_type=op, domain="", weight=None, precision="float32", macs=0,
        elementwise_ops=0, backward_macs=0, params=0, weight_bytes=0, output_bytes=4,
        input_shape=(1,), output_shape=(1,),
    )  # fmt: skip
    if ms is None:
        return LayerRow(layer, runs_in="conv2")
    return LayerRow(layer, LayerTime(kind=RowKind.LAYER, kernel=name, ns=ms * NS_PER_MS, layer=0))


def latency(  # noqa: PLR0913, PLR0917  # each is one thing that a metric has
    percent: str,
    before: float,
    after: float,
    verdict: Verdict,
    interval: tuple[float, float],
    detectable: float = 0.012,
    *,
    gated: bool = True,
) -> Metric:
    return Metric(
        f"latency_{percent}", before, after, verdict, gated, interval, detectable,
        allowed=0.03 if gated else None,
    )  # fmt: skip


def exact(name: str, before: int, after: int, *, gated: bool = True) -> Metric:
    verdict = PASSED if after == before else REGRESSED
    return Metric(name, before, after, verdict, gated, allowed=0.0 if gated else None)


GRAPH = (
    exact("macs", 4_089_184_256, 4_089_184_256),
    exact("params", 25_610_152, 25_610_152),
    exact("activation_bytes", 88_000_000, 88_000_000, gated=False),
    exact("peak_activation_bytes", 9_633_792, 12_845_056, gated=False),
)
SLOWER = CaseComparison(
    Case(8, 2),
    (
        replace(
            latency("p50", 26.10, 29.18, REGRESSED, (1.102, 1.131)),
            reason="12 Conv+Relu fusions lost",
        ),
        latency("p95", 27.02, 30.26, REGRESSED, (1.091, 1.144)),
        latency("p90", 26.81, 29.77, REGRESSED, (1.09, 1.14), gated=False),
        *GRAPH,
    ),
    (
        LayerTypeChange(
            "Conv", kind("Conv", 53, 20.11), kind("Conv", 53, 22.40), change(2.29, 0.74)
        ),
        LayerTypeChange("Relu", kind("Relu", 49, None), kind("Relu", 49, 0.51), change(0.51, 0.17)),
        LayerTypeChange("Transpose", None, kind("Transpose", 4, 0.31), change(0.31, 0.10)),
        LayerTypeChange(
            "MatMul", kind("MatMul", 1, 1.20), kind("MatMul", 1, 1.19), change(-0.01, -0.003)
        ),
        LayerTypeChange("Add", kind("Add", 16, 2.21), kind("Add", 16, 2.22), change(0.01, 0.003)),
        LayerTypeChange(
            "layout", kind("layout", 0, 2.58), kind("layout", 0, 2.55), change(-0.03, -0.01)
        ),
    ),
    (
        ("12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %"),
        "4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %",
        "no ReorderOutput kernels put in by the engine any more, 2 before: -0.03 ms",
    ),
    (
        LayerChange(
            row("layer1.0/conv2", "Conv", 1.31),
            row("layer1.0/conv2", "Conv", 1.92),
            change(0.61, 0.2),
        ),
        LayerChange(
            row("layer1.0/relu", "Relu", None),
            row("layer1.0/relu", "Relu", 0.12),
            change(0.12, 0.04),
        ),
        LayerChange(None, row("layer4/Transpose", "Transpose", 0.11), change(0.11, 0.036)),
        LayerChange(row("layer4/Identity", "Identity", 0.02), None, change(-0.02, -0.006)),
    ),
    (OutputChange(name="logits", max_absolute=0.0, max_relative=0.0, cosine=1.0),),
    rounds=9,
    how=How.DUET,
    seconds=2.13,
)
OPEN = CaseComparison(
    Case(1, 1),
    (
        latency("p50", 3.304, 3.371, PASSED, (1.004, 1.029)),
        replace(
            latency("p95", 3.52, 3.66, Verdict.INCONCLUSIVE, (0.987, 1.095), 0.041),
            rounds_needed=50,
        ),
        *GRAPH,
    ),
    (
        LayerTypeChange("Conv", kind("Conv", 53, 2.511), kind("Conv", 53, 2.552), change(0.041)),
        LayerTypeChange(
            "layout", kind("layout", 0, 0.793), kind("layout", 0, 0.819), change(0.026)
        ),
    ),
    outputs=(
        OutputChange(name="logits", max_absolute=3.1e-05, max_relative=0.00042, cosine=0.9999999),
        OutputChange(name="boxes", difference="differ in shape: 1x100x4 before, 1x300x4 now"),
    ),
    notes=("the worker was not pinned to its processors",),
    rounds=35,
    how=How.DUET,
    seconds=10.02,
)
FASTER = CaseComparison(
    Case(4, 1),
    (latency("p50", 13.41, 12.29, Verdict.IMPROVED, (0.903, 0.93)), *GRAPH),
    (
        LayerTypeChange(
            "Conv", kind("Conv", 53, 12.01), kind("Conv", 53, 10.92), change(-1.09, 0.97)
        ),
        LayerTypeChange("Gemm", kind("Gemm", 1, 1.40), kind("Gemm", 1, 1.37), change(-0.03, 0.03)),
    ),
    (("12 Conv+Relu fusions won (first: layer1.0/conv2): -1.09 ms, 97 %"),),
    rounds=6,
    how=How.DUET,
    seconds=1.4,
)
SAME = CaseComparison(
    Case(1, 2), GRAPH, (), notes=("the same model, engine and options",), outcome=Verdict.UNCHANGED
)
BROKEN = CaseComparison(
    Case(64, 2),
    GRAPH[:2],
    (),
    failure="the worker was ended by SIGKILL in round 3:\nit had 1.9 GiB of 2 GiB",
)
BUDGET = CaseComparison(
    Case(8, 1),
    (
        Metric(
            "latency_p95", None, 14.21, Verdict.OVER_BUDGET, limit=12.0, after_interval=(13.8, 14.7)
        ),
    ),
    (),
    rounds=6,
    seconds=1.0,
)


def compared(*cases: CaseComparison) -> Comparison:
    before, after = (make_model(f"encoder{n}.onnx", None, None, 1) for n in ("", "2"))
    return Comparison(before, after, cases, 0.03, 0.99, ("onnxruntime 1.31.1",))


def with_names(name: str) -> Comparison:
    hostile = row(name, name, 1.0)
    case = replace(
        SLOWER,
        case=Case(8, 2, engine=name),
        layers=(LayerChange(hostile, hostile, change(1.0, 0.5)),),
        layer_types=(
            LayerTypeChange(name, kind(name, 1, 1.0), kind(name, 1, 2.0), change(1.0, 1.0)),
        ),
        reasons=(f"1 {printable(name)} added",),
        notes=(name,),
        failure=f"it said\n{name}",
        outputs=(
            OutputChange(name=name, difference=name),
            OutputChange(name=name, max_absolute=1.0),
        ),
    )
    model = make_model(name, None, None, 1)
    return Comparison(model, model, (case, SAME), 0.03, 0.99, (name,))
