"""Shared models of which a test gives only what matters to it."""

from __future__ import annotations

from typing import Any

from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.sharing.records import Likening, Share, SharedInput
from pytest_modelperf.stats.records import PERCENTS, Latency, LatencySpread, Percentile, Ratio
from tests.support.facts import make_engine


def make_share(**changes: Any) -> Share:  # noqa: ANN401  # any field
    facts: dict[str, Any] = {
        "model": "ranking.onnx",
        "producer": "pytorch 2.9",
        "opsets": {"ai.onnx": 17},
        "nodes": 95,
        "original_bytes": 3_000_000,
        "weight_bytes": 2_900_000,
        "case": Case(1, 2, given_dims=(("seq", 64),)),
        "inputs": (SharedInput(name="ids", dtype="int64", shape=(1, 64)),),
        "machine": MachineFacts(cpu="Example CPU", system="Linux", logical_cores=2),
        "checkup": _checkup(),
        "likening": make_likening(),
        "doubts": (),
        "files": {"model.onnx": b"graph", "run.py": b"program", "run.json": b"{}"},
    }
    return Share(**{**facts, **changes})


def make_likening(
    low: float | None = 0.995,
    high: float | None = 1.012,
    *,
    has_same_plan: bool | None = True,
    difference: str | None = None,
) -> Likening:
    return Likening(
        original=_latency(2_000_000),
        shared=_latency(2_006_000),
        ratio=Ratio(1.003, low, high),
        rounds=9,
        has_same_plan=has_same_plan,
        difference=difference,
    )


def _latency(median_ns: float) -> Latency:
    median = Percentile(
        percent=50.0,
        needed=5,
        value_ns=median_ns,
        low_ns=median_ns - 9000,
        high_ns=median_ns + 9000,
    )
    others = (Percentile(percent=p, needed=900) for p in PERCENTS[1:])
    return Latency(
        batch_size=1,
        confidence=0.95,
        percentiles=(median, *others),
        samples=900,
        rounds=9,
        min_ns=1_900_000,
        max_ns=2_900_000,
        mean_ns=median_ns,
    )


def _checkup() -> Checkup:
    return Checkup(
        model="a small convolutional network",
        engine=make_engine(
            "onnxruntime",
            "1.32.0",
            {"session.force_spinning_stop": "1"},
            ("CPUExecutionProvider",),
            "3.11.7",
        ),
        cores=2,
        processors=(0, 1),
        seconds=9.0,
        median_ns=500_000.0,
        ratio=Ratio(1.001, 0.99, 1.01),
        spread=LatencySpread(inferences=0.05, sessions=0.01),
        noise=(),
        level=0.01,
        power=0.9,
        outlook=(Outlook(rounds=4, seconds=8.0, change=0.025),),
        ratios=(),
    )
