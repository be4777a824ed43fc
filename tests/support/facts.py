"""Facts of models, engines and recordings of which a test gives only what matters to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from pytest_modelperf.baselines.records import Fidelity, Provenance
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import ModelFacts


def make_model(  # noqa: PLR0913, PLR0917  # each is one fact
    name: str,
    path: str | None = None,
    sha256: str | None = None,
    size_bytes: int | None = None,
    opsets: Mapping[str, int] | None = None,
    producer: str = "",
    total_bytes: int | None = None,
) -> ModelFacts:
    return ModelFacts(
        name=name,
        path=path,
        sha256=sha256,
        size_bytes=size_bytes,
        total_bytes=total_bytes,
        opsets=opsets or {},
        producer=producer,
    )


def make_engine(
    name: str,
    version: str | None = None,
    options: Mapping[str, str] | None = None,
    providers: tuple[str, ...] = (),
    python: str | None = None,
) -> EngineFacts:
    return EngineFacts(
        name=name, version=version, python=python, options=options or {}, providers=providers
    )


def make_provenance(
    date: dt.date, packages: Mapping[str, str] | None = None, machine: str | None = None
) -> Provenance:
    return Provenance(date=date, machine=machine, packages=packages or {})


def make_kind(op_type: str, count: int, *, ms: float | None = None) -> LayerType:
    """`count` layers of one operator that cost nothing but time."""
    return LayerType(
        op_type=op_type,
        domain="",
        count=count,
        macs=0,
        elementwise_ops=0,
        backward_macs=0,
        params=0,
        weight_bytes=0,
        output_bytes=0,
        ns=None if ms is None else ms * 1e6,
    )


def make_fidelity(ratio: float, low: float, high: float, rounds: int = 9) -> Fidelity:
    """The fidelity of a twin that is trusted."""
    return Fidelity(
        ratio=ratio,
        interval=(low, high),
        rounds=rounds,
        has_same_plan=None,
        is_trusted=True,
        reason=None,
    )
