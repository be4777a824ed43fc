"""The arguments of the fixture and of the markers, as types: written by `make schemas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Literal, TypedDict


class CaseWords(TypedDict, total=False):
    """The arguments of `perf_case` besides the model, and of a call of the fixture."""

    fixture: str | None
    make: str | Callable[[], object] | None
    batch_size: int | Sequence[int] | None
    cores: int | Sequence[int] | None
    dims: Mapping[str, int | Sequence[int]] | Sequence[Mapping[str, int]] | None
    inputs: str | Sequence[str] | None
    prompt: int | Sequence[int] | None
    generate: int | Sequence[int] | None
    phase: Literal["prefill", "step"] | Sequence[Literal["prefill", "step"]] | None
    state: Mapping[str, str] | None
    input_file: str | PathLike[str] | None
    workload: str | PathLike[str] | Sequence[object] | Mapping[str, object] | None
    baseline: str | None
    machine: str | Sequence[str] | None
    tolerance: float | str | Mapping[str, float | str] | None
    measure: Literal["changed", "always"] | None
    output_sketch: bool | None
    max_seconds: float | None
    warmup_seconds: float | None
    min_seconds: float | None
    engine: str | None
    engine_options: Mapping[str, object] | None
    gateway: str | None


class BudgetWords(TypedDict, total=False):
    """The arguments of `perf_budget`."""

    latency_ms: float | str | Mapping[str, float | str]
    p50_ms: float | str | Mapping[str, float | str]
    p90_ms: float | str | Mapping[str, float | str]
    p95_ms: float | str | Mapping[str, float | str]
    p97_ms: float | str | Mapping[str, float | str]
    p99_ms: float | str | Mapping[str, float | str]
    p99_9_ms: float | str | Mapping[str, float | str]
    max_ms: float | str | Mapping[str, float | str]
    deadline_ms: float | str | Mapping[str, float | str]
    real_time_factor: float | str | Mapping[str, float | str]
    items_per_second: float | str | Mapping[str, float | str]
    ttft_ms: float | str | Mapping[str, float | str]
    token_ms: float | str | Mapping[str, float | str]
    tokens_per_second: float | str | Mapping[str, float | str]
    cache_bytes_per_token: float | str | Mapping[str, float | str]
    first_item_ms: float | str | Mapping[str, float | str]
    item_ms: float | str | Mapping[str, float | str]
    load_ms: float | str | Mapping[str, float | str]
    first_inference_ms: float | str | Mapping[str, float | str]
    peak_memory_mb: float | str | Mapping[str, float | str]
    growth_kb_per_inference: float | str | Mapping[str, float | str]
    macs: float | str | Mapping[str, float | str]
    flops: float | str | Mapping[str, float | str]
    params: float | str | Mapping[str, float | str]
    size_mb: float | str | Mapping[str, float | str]
    kernels: float | str | Mapping[str, float | str]
    install_bytes: float | str | Mapping[str, float | str]
    speedup: float | str | Mapping[str, float | str]
    drift: float | str | Mapping[str, float | str]
    improved_beyond: float | str | Mapping[str, float | str]
    misses: float | str
    audio_seconds: float | str
    frame_rate: float | str
    distribution: float | str
    over: float | str
