"""What-ifs made by hand, as if models had run: nothing in them depends on a machine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile
from pytest_modelperf.profiler.measurements import LayerTime, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.page import PageStyle, TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import (
    BASELINE,
    Level,
    Variant,
    VariantKind,
    WhatIf,
    WhatIfCase,
)
from pytest_modelperf.whatif.report import WhatIfView, whatif_report
from tests.support.facts import make_model
from tests.support.known import known
from tests.support.profiles import ENGINE, MACHINE, NS_PER_MS, make_measurement

CONFIDENCE = 0.99
OVERHEAD = RowKind.OVERHEAD.value
DIFFERENCE = OutputChange(name="logits", max_absolute=0.25, max_relative=0.031, cosine=0.998765)
FAILURE = "INT8 static needs an operator that this engine does not have: QLinearConv"
NOTE = "the times of its layers are those of kernels that ran profiled"
# Each runs inside the kernel of the layer before it.
FUSED = frozenset({"Relu"})
_OPERATORS = ("Conv", "Relu", "Conv", "Add", "MatMul", "Softmax")
PRUNED, INT8 = VariantKind.PRUNED, VariantKind.QUANTIZED


def make_layer(index: int, op_type: str | None = None, name: str | None = None) -> StaticLayer:
    op_type = op_type or _OPERATORS[index % len(_OPERATORS)]
    name = name or f"stage{index}/{op_type.lower()}"
    is_heavy = op_type in {"Conv", "MatMul"}
    return StaticLayer(
        id=f"{name}_output_0",
        name=name,
        op_type=op_type,
        domain="",
        weight=f"{name}.weight" if is_heavy else None,
        precision="float32",
        macs=1_000_000 if is_heavy else 0,
        elementwise_ops=100,
        backward_macs=None,
        params=2_000 if is_heavy else 0,
        weight_bytes=8_000 if is_heavy else 0,
        output_bytes=400,
        input_shape=(1, 8, 8, 8),
        output_shape=(1, 8, 8, 8),
    )


def make_layers(count: int = 12) -> tuple[StaticLayer, ...]:
    return tuple(make_layer(index) for index in range(count))


def make_baseline(layers: Sequence[StaticLayer], case: Case, ms: float) -> CaseProfile:
    """It ran: every layer but a fused one has a time, and a tenth of all is that of none."""
    heads = [index for index, layer in enumerate(layers) if layer.op_type not in FUSED]
    weights = [1.0 + index % 5 for index in heads]
    times = [
        LayerTime(
            kind=RowKind.LAYER,
            kernel=layers[index].name,
            ns=0.9 * ms * NS_PER_MS * weight / sum(weights),
            layer=index,
            fused=(index + 1,) if _is_followed_by_fused(layers, index) else (),
            provider="CPUExecutionProvider",
            precision="float32",
        )
        for index, weight in zip(heads, weights, strict=True)
    ]
    overhead = LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=0.1 * ms * NS_PER_MS)
    counted = StaticProfile(
        layers=tuple(layers),
        params=sum(layer.params for layer in layers),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        peak_activation_bytes=4_096,
    )
    measurement = make_measurement(ms, case.batch_size)
    return CaseProfile(case, counted, replace(measurement, layer_times=(*times, overhead)))


def _is_followed_by_fused(layers: Sequence[StaticLayer], index: int) -> bool:
    return index + 1 < len(layers) and layers[index + 1].op_type in FUSED


def make_level(
    baseline: CaseProfile,
    variant: Variant | None = None,
    factors: Mapping[str, float] | None = None,
    **others: Any,  # noqa: ANN401  # the fields of a level, whatever they are
) -> Level:
    """A level whose layers take `factors` times as long, by operator, as those of the baseline."""
    factors = factors or {}
    layers = {
        row.static.id: row.ms * factors.get(row.qualified_op, 1.0)
        for row in baseline.layers
        if row.static is not None and row.ms is not None
    }
    types = {
        op: kind.ms * factors.get(op, 1.0)
        for op, kind in baseline.layer_types.items()
        if kind.ms is not None
    }
    ms, before = sum(types.values()), baseline.latency.p50_ms
    fields: dict[str, Any] = {
        "title": BASELINE if variant is None else variant.title,
        "variant": variant,
        "ms": ms,
        "speedup": None if variant is None else make_speedup(known(before) / ms),
        "macs": baseline.static.macs,
        "params": baseline.static.params,
        "size_bytes": 48_000,
        "zeros": 0.0,
        "layer_types": types,
        "layers": layers,
        "rounds": 6,
    }
    return Level(**(fields | others))


def make_speedup(value: float, half_width: float | None = 0.02) -> Ratio:
    if half_width is None:
        return Ratio(value, None, None)
    return Ratio(value, value * (1 - half_width), value * (1 + half_width))


def make_case(
    layers: Sequence[StaticLayer] | None = None, case: Case | None = None, ms: float = 6.7
) -> WhatIfCase:
    """Levels of every kind: faster and slower, not shown, estimated, failed, partly outside."""
    layers = layers or make_layers()
    case = case or Case(1, 1)
    baseline = make_baseline(layers, case, ms)
    outside = tuple(layer.id for layer in layers if layer.op_type == "Softmax")

    def level(variant: Variant | None, factors: dict[str, float], **others: object) -> Level:
        return make_level(baseline, variant, factors, **others)

    return WhatIfCase(
        case=case,
        baseline=baseline,
        levels=(
            level(None, {}),
            level(Variant(PRUNED, 0.5), {"Conv": 1.01}, zeros=0.5),
            level(
                Variant(PRUNED, 0.7), {"Conv": 0.7, "MatMul": 0.8},
                title="Pruned 0.7 (estimate)", is_estimate=True, zeros=0.7,
                speedup=make_speedup(1.21, None), size_bytes=None, rounds=None,
            ),
            level(Variant(PRUNED, 0.9), {"Conv": 0.4, "MatMul": 0.5}, zeros=0.9, outside=outside),
            level(
                Variant(INT8, form="dynamic"), {"Conv": 1.3, "MatMul": 0.9},
                outputs=(DIFFERENCE,), notes=(NOTE,),
            ),
            Level(title="INT8 static", variant=Variant(INT8, form="static"), failure=FAILURE),
        ),
    )  # fmt: skip


def make_whatif(*cases: WhatIfCase, name: str = "encoder.onnx") -> WhatIf:
    return WhatIf(
        model=make_model(name, f"models/{name}", "ab" * 32, 48_000, {"ai.onnx": 21}),
        machine=MACHINE,
        engine=ENGINE,
        cases=cases or (make_case(),),
        confidence=CONFIDENCE,
        seconds=61.24,
    )


def render_whatif(
    whatif: WhatIf, view: WhatIfView | None = None, style: PageStyle | None = None
) -> str:
    return render_report(whatif_report(whatif, view or WhatIfView()), style or TextStyle())


def render_whatif_page(whatif: WhatIf, made: dt.datetime | None = None) -> str:
    return render_page(whatif_report(whatif, WhatIfView(), made))


def render_whatif_csv(whatif: WhatIf) -> str:
    return render_csv(whatif_report(whatif, WhatIfView()))
