"""A profile as JSON: everything that was counted and measured, raw samples included.

The types have the keys of the document in their order; `docs/json.md` says what each means.
`document_reader` makes a profile of them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_modelperf.files.documents import (
    Count,
    DurationMs,
    DurationNs,
    Figure,
    Number,
    Positive,
)
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import Measurement, Noise, Round
from pytest_modelperf.profiler.records import (
    CaseProfile,
    GenerationFigures,
    ModelFacts,
    Outcome,
    Profile,
)
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    LatencyJson,
    LayerJson,
    LayerTypeJson,
    MachineJson,
    Sum,
    TotalsJson,
    all_null,
    engine_to_json,
    latency_to_json,
    layer_to_json,
    layer_type_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, Json, copy_fields, dump_document, ms
from pytest_modelperf.stats.records import Percentile

# A time of a clock in ns, with room for a day before the end of 64 bits.
Moment: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]


class OutcomeJson(Enum):
    """The outcome of a case."""

    MEASURED = "measured"
    STATIC = Outcome.STATIC.value
    SKIPPED = Outcome.SKIPPED.value
    FAILED = Outcome.FAILED.value


class StartsJson(Struct, frozen=True, kw_only=True):
    """The start times of the parts of a round, by the clock of the worker."""

    load_ns: Moment = field(name="load")
    first_ns: Moment = field(name="first")
    warmup_ns: Moment | None = field(name="warmup", default=None)
    warmup_end_ns: Moment | None = field(name="warmup_end", default=None)
    block_ns: Moment = field(name="block")


class RoundJson(Struct, frozen=True, kw_only=True):
    """One round, with all of its samples."""

    load_ms: DurationMs
    first_ms: DurationMs
    warmup_runs: Count
    is_steady: bool
    noise: Noise
    first_step: Count | None = None
    begun_ns: StartsJson | None = None
    times_ns: Annotated[tuple[DurationNs, ...], Meta(min_length=1)]


class IntervalJson(Struct, frozen=True):
    """A figure with its interval."""

    value: Figure
    interval: tuple[Figure, Figure]


class TokenJson(Struct, frozen=True):
    """The time of a step."""

    p50: DurationMs | None
    p95: DurationMs | None


class MacsJson(Struct, frozen=True):
    """The MACs of the first step and of the last."""

    first: Sum | None
    last: Sum | None


class GenerationJson(Struct, frozen=True, kw_only=True):
    """The figures of a phase of a generation; those of the other phase are null."""

    ttft_ms: DurationMs | None = None
    token_ms: TokenJson | None = None
    growth_ns_per_token: IntervalJson | None = None
    tokens_per_second: Number | None = None
    cache_bytes_per_token: Count | None
    macs: MacsJson | None


class StaticJson(TotalsJson, frozen=True, kw_only=True):
    """The counts of a case."""

    uncounted_ops: Mapping[str, Count] | None
    coverage: Figure | None = None
    notes: tuple[str, ...]


class CaseJson(Struct, frozen=True, kw_only=True):
    """A case. The type of its roofline is in `roofline.document`, which this room cannot see."""

    id: str
    batch_size: Positive
    cores: Positive
    dims: Mapping[str, Count]
    given_dims: Mapping[str, Count] | None = None
    phase: Phase | None = None
    prompt: Count | None = None
    generate: Count | None = None
    generation: GenerationJson | None = None
    outcome: OutcomeJson
    reason: str | None
    engine: EngineJson
    processors: tuple[Count, ...] | None
    seconds: Number | None
    notes: tuple[str, ...]
    static: StaticJson
    latency: LatencyJson
    load_ms: DurationMs | None = None
    first_load_ms: DurationMs | None = None
    first_inference_ms: DurationMs | None = None
    peak_rss_bytes: Count | None
    engine_peak_bytes: Count | None
    layer_types: tuple[LayerTypeJson, ...] = ()
    layers: tuple[LayerJson, ...]
    roofline: Any = None
    raw: Annotated[tuple[RoundJson, ...], Meta(min_length=1)] | None


class ProfileJson(Struct, frozen=True, kw_only=True):
    """The document of a profile."""

    schema: int
    model: ModelFacts
    machine: MachineJson | None
    cases: tuple[CaseJson, ...]


# The keys that are figures of the measurement itself.
_RUN = (
    *("processors", "seconds", "notes", "load_ms", "first_load_ms", "first_inference_ms"),
    *("peak_rss_bytes", "engine_peak_bytes"),
)


def dump_profile(profile: Profile, rooflines: Mapping[str, Json] | None = None) -> str:
    """The profile as JSON text; `rooflines` has the roofline of a case by its id, as JSON."""
    return dump_document(profile_to_json(profile, rooflines))


def profile_to_json(profile: Profile, rooflines: Mapping[str, Json] | None = None) -> ProfileJson:
    known = rooflines or {}
    return ProfileJson(
        schema=SCHEMA,
        model=profile.model,
        machine=machine_to_json(profile.machine),
        cases=tuple(_case(case, known.get(case.case.id)) for case in profile.cases),
    )


def _case(case: CaseProfile, roofline: Json) -> CaseJson:
    asked, run, generation = case.case, case.measured, case.generation
    phase = asked.phase
    return copy_fields(
        CaseJson,
        asked,
        dims=dict(asked.dims),
        given_dims=None if asked.given_dims is None else dict(asked.given_dims),
        phase=None if phase is None else phase.phase,
        prompt=None if phase is None else phase.prompt,
        generate=None if phase is None else phase.generate,
        generation=None if generation is None else generation_to_json(generation),
        outcome=OutcomeJson.MEASURED if run is not None else OutcomeJson(case.outcome.value),
        reason=case.reason if run is None else None,
        static=_static(case.counted),
        layer_types=tuple(map(layer_type_to_json, case.layer_types.values())),
        layers=tuple(map(layer_to_json, case.layers)),
        roofline=roofline,
        engine=engine_to_json(None if run is None else run.engine),
        latency=latency_to_json(None if run is None else run.latency),
        raw=None if run is None else tuple(map(_round, run.rounds)),
        **({**dict.fromkeys(_RUN), "notes": ()} if run is None else _figures(run)),
    )


def _figures(run: Measurement) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _RUN}


def generation_to_json(found: GenerationFigures) -> GenerationJson:
    """The figures of a phase; `macs` is null where nothing was counted."""
    has_tokens = found.token_p50 is not None and found.token_p95 is not None
    counts = (found.cache_bytes, found.first_macs, found.last_macs)
    return GenerationJson(
        ttft_ms=_ms_of(found.ttft),
        token_ms=TokenJson(_ms_of(found.token_p50), _ms_of(found.token_p95))
        if has_tokens
        else None,
        growth_ns_per_token=None
        if found.growth is None
        else IntervalJson(found.growth.ns_per_step, (found.growth.low, found.growth.high)),
        tokens_per_second=found.tokens_per_second,
        cache_bytes_per_token=found.cache_bytes,
        macs=None if counts == (None, None, None) else MacsJson(found.first_macs, found.last_macs),
    )


def _ms_of(percentile: Percentile | None) -> float | None:
    return None if percentile is None else ms(percentile.value_ns)


def _static(static: StaticProfile | None) -> StaticJson:
    if static is None:
        return replace(all_null(StaticJson), notes=())
    uncounted: dict[str, int] = {}
    for entry in static.uncounted:
        uncounted[entry.op_type] = uncounted.get(entry.op_type, 0) + entry.count
    return copy_fields(StaticJson, static, uncounted_ops=uncounted)


def _round(made: Round) -> RoundJson:
    return copy_fields(
        RoundJson,
        made,
        load_ms=ms(made.load_ns),
        first_ms=ms(made.first_ns),
        noise=made.block.noise,
        first_step=made.block.first_step,
        begun_ns=_begun(made),
    )


def _begun(made: Round) -> StartsJson | None:
    """The start times of the parts of a round, if they were kept."""
    starts = made.starts
    if starts is None or made.block.start_ns is None:
        return None
    return copy_fields(StartsJson, starts, block_ns=made.block.start_ns)
