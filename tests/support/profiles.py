"""Measured profiles made by hand, as if a model had run: nothing in them depends on a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import (
    Block,
    LayerTime,
    Measurement,
    Noise,
    Round,
    RowKind,
)
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.stats.records import PERCENTS, Latency, Percentile
from tests.support.facts import make_engine
from tests.support.known import known
from tests.support.small_models import ones, parse

NS_PER_MS = 1_000_000
CONFIDENCE = 0.99
# Samples that a percentile takes at that confidence.
NEEDED = {50.0: 11, 90.0: 64, 95.0: 130, 97.0: 219, 99.0: 662, 99.9: 6636}
MACHINE = MachineFacts(
    cpu="AMD EPYC 9R14",
    microarchitecture="zen4",
    instruction_sets=("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni"),
    physical_cores=2,
    logical_cores=2,
    usable_cores=2,
    memory_bytes=24 << 30,
    governor="performance",
    virtualization="container in a virtual machine",
    system="Linux",
    architecture="x86_64",
    packages={"onnxruntime": "1.31.1"},
)
ENGINE = make_engine(
    "onnxruntime",
    "1.31.1",
    {"graph_optimization_level": "extended"},
    ("CPUExecutionProvider",),
)
PROVIDER = "CPUExecutionProvider"
CLASSIFIER = """
    g (float[N,3,32,32] image) => (float[N,10] logits) {
        [stem_convolution] c = Conv<pads=[1,1,1,1]>(image, kernel, bias)
        [stem_relu] r = Relu(c)
        [pool] p = GlobalAveragePool(r)
        [flatten] f = Flatten(p)
        [classifier] logits = Gemm(f, matrix, offset)
    }
"""


def quiet(wall_ns: int, **spent: int | None) -> Noise:
    """Negligible noise except for the given fields."""
    figures: dict[str, int | None] = {
        "cpu_ns": wall_ns,
        "involuntary_switches": 1,
        "others_ns": 0,
        "stolen_ns": 0,
        "throttled_ns": 0,
    }
    return Noise(wall_ns=wall_ns, **(figures | spent))


def make_round(  # noqa: PLR0913  # each is one thing that a round has
    times_ns: Sequence[int],
    *,
    load_ms: float = 21.3,
    first_ms: float = 9.4,
    warmup_runs: int = 8,
    is_steady: bool = True,
    noise: Mapping[str, int | None] | None = None,
) -> Round:
    return Round(
        load_ns=round(load_ms * NS_PER_MS),
        first_ns=round(first_ms * NS_PER_MS),
        warmup_runs=warmup_runs,
        is_steady=is_steady,
        block=Block(times_ns=tuple(times_ns), noise=quiet(sum(times_ns), **(noise or {}))),
    )


def make_rounds(
    median_ms: float, rounds: int = 6, samples: int = 40, tail: float = 0.2
) -> tuple[Round, ...]:
    """Rounds whose times are around a median, with a tail to the slow side, always the same."""
    steps = np.linspace(-1.0, 1.0, samples)
    shape = 0.01 * steps + tail * np.maximum(0.0, steps) ** 20
    made = []
    for index in range(rounds):
        shift = 0.004 * (index % 3 - 1)
        times = np.rint(median_ms * NS_PER_MS * (1 + shift + shape)).astype(np.int64)
        made.append(make_round(times.tolist()))
    return tuple(made)


def make_latency(
    rounds: Sequence[Round], batch_size: int = 1, half_width: float | None = 0.006
) -> Latency:
    """Estimates from the rounds; each interval has `half_width`, and is wider above."""
    times = np.concatenate([np.asarray(r.times_ns) for r in rounds])
    percentiles = []
    for percent in PERCENTS:
        needed = NEEDED[percent]
        value = float(np.percentile(times, percent)) if len(times) >= needed else None
        has_interval = value is not None and half_width is not None
        percentiles.append(
            Percentile(
                percent=percent,
                needed=needed,
                value_ns=value,
                low_ns=value * (1 - half_width / 2) if has_interval else None,  # type: ignore[operator]  # both are there
                high_ns=value * (1 + half_width) if has_interval else None,  # type: ignore[operator]  # both are there
            )
        )
    return Latency(
        batch_size=batch_size,
        confidence=CONFIDENCE,
        percentiles=tuple(percentiles),
        samples=len(times),
        rounds=len(rounds),
        min_ns=int(times.min()),
        max_ns=int(times.max()),
        mean_ns=float(times.mean()),
    )


def make_measurement(
    median_ms: float = 6.708,
    batch_size: int = 1,
    *,
    rounds: Sequence[Round] | None = None,
    half_width: float | None = 0.006,
    processors: tuple[int, ...] | None = (1,),
) -> Measurement:
    made = tuple(make_rounds(median_ms) if rounds is None else rounds)
    return Measurement(
        engine=ENGINE,
        rounds=made,
        latency=make_latency(made, batch_size, half_width),
        seconds=3.5,
        processors=processors,
        peak_rss_bytes=113 << 20,
        engine_peak_bytes=5 << 20,
    )


def with_layer_times(
    measurement: Measurement, shares: Sequence[tuple[float, LayerTime]]
) -> Measurement:
    """The measurement with layer times that are such shares of its median."""
    median_ns = known(measurement.latency.percentile(50.0).value_ns)
    return replace(
        measurement,
        layer_times=tuple(replace(time, ns=share * median_ns) for share, time in shares),
    )


def _with_doubts(measurement: Measurement) -> Measurement:
    """The times of kernels are sure to 0.2 % of the latency."""
    doubt_ns = 0.002 * measurement.latency.median_ns
    times = tuple(
        time if time.kind is RowKind.OVERHEAD else replace(time, doubts_ns=(doubt_ns,))
        for time in measurement.layer_times or ()
    )
    return replace(measurement, layer_times=times)


def kernel_time(kernel: str, layer: int | None, *fused: int, **facts: str) -> LayerTime:
    """A kernel at one layer, for others too; of none, it reorders memory."""
    kind = RowKind.LAYOUT if layer is None else RowKind.LAYER
    precision = facts.get("precision", "float32")
    provider = facts.get("provider", PROVIDER)
    return LayerTime(
        kind=kind,
        kernel=kernel,
        ns=0.0,
        layer=layer,
        fused=fused,
        provider=provider,
        precision=precision,
    )


OVERHEAD = LayerTime(kind=RowKind.OVERHEAD, kernel="", ns=0.0)
# The classifier: the Relu runs inside the convolution, the Flatten costs next to nothing.
SHARES = (
    (0.90, kernel_time("c_nchwc", 0, 1)),
    (0.02, kernel_time("p_nchwc", 2)),
    (0.0005, kernel_time("flatten", 3)),
    (0.0195, kernel_time("classifier", 4)),
    (0.04, kernel_time("ReorderInput", None)),
    (0.02, OVERHEAD),
)


def static_classifier(batch_sizes: tuple[int, ...] = (1,)) -> Profile:
    """The classifier with its counts."""
    weights = {
        "kernel": ones(16, 3, 3, 3),
        "bias": ones(16),
        "matrix": ones(16, 10),
        "offset": ones(10),
    }
    made = profile_model(
        parse(CLASSIFIER, weights=weights), ProfileRequest(batch_sizes=batch_sizes)
    )
    # The size of a file and its producer differ with versions of the packages that write it.
    model = replace(
        made.model,
        name="classifier.onnx",
        path="classifier.onnx",
        sha256=None,
        size_bytes=2875,
        total_bytes=2875,
    )
    return replace(made, model=model, machine=MACHINE)


def measured_classifier(half_width: float | None = 0.006) -> Profile:
    """One case that ran, with everything that a run measures."""
    profile = static_classifier()
    measurement = _with_doubts(with_layer_times(make_measurement(half_width=half_width), SHARES))
    return replace(profile, cases=(replace(profile.cases[0], measured=measurement),))


def measured_cases() -> Profile:
    """Two batch sizes by two core counts, and two more that were not measured."""
    profile = static_classifier((1, 8))
    small, large = (case.counted for case in profile.cases)
    cases = []
    for batch_size, counted, median_ms in ((1, small, 0.1234), (8, large, 0.9871)):
        for cores in (1, 2):
            measurement = make_measurement(
                median_ms / cores**0.8,
                batch_size,
                processors=tuple(range(2 - cores, 2)),
                half_width=0.006 * cores,
            )
            measurement = with_layer_times(measurement, SHARES)
            cases.append(CaseProfile(Case(batch_size, cores), counted, measurement))
    skipped = CaseProfile(Case(1, 8), small, None, Outcome.SKIPPED, "the machine has 2 processors")
    failed = CaseProfile(
        Case(64, 2), large, None, Outcome.FAILED, "the worker was ended by SIGKILL in round 3"
    )
    return replace(profile, cases=(*cases, skipped, failed))


def measured_function() -> Profile:
    """A Python function: it ran, and has no graph."""
    profile = static_classifier()
    model = replace(profile.model, name="my.module:infer", path=None, size_bytes=0, opsets={})
    engine = make_engine("callable")
    measurement = replace(make_measurement(0.0105), engine=engine, engine_peak_bytes=None)
    return replace(profile, model=model, cases=(CaseProfile(Case(1, 1), None, measurement),))
