"""A document of a profile read back into a profile.

Values that are computed from others (sums, shares, rates) are computed again, and not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.files.documents import ContradictionError, shortened
from pytest_modelperf.graph.phases import GenerationPhase
from pytest_modelperf.profiler.counting.records import (
    GenerationCounts,
    Sparsity,
    StaticLayer,
    StaticProfile,
    Uncounted,
)
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import (
    Block,
    EngineFacts,
    LayerTime,
    Measurement,
    Round,
    RoundStarts,
    RowKind,
)
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.document import (
    CaseJson,
    GenerationJson,
    OutcomeJson,
    ProfileJson,
    RoundJson,
    StaticJson,
)
from pytest_modelperf.profiler.shown.facts_document import (
    EngineJson,
    LatencyJson,
    LayerJson,
)
from pytest_modelperf.report.document import copy_fields
from pytest_modelperf.stats.records import PERCENTS, Latency, Percentile

T = TypeVar("T")

_NS_PER_MS = 1e6
# A document has the number of uncounted layers, and not the reason.
_NO_REASON = "the kept profile does not say"


def read_profile(document: ProfileJson) -> Profile:
    """The profile; ContradictionError where values of the document do not fit together."""
    if not document.cases:
        raise ContradictionError("cases", "expected at least one case, found an empty list")
    cases = [_case(case, f"cases[{index}]") for index, case in enumerate(document.cases)]
    machine = None if document.machine is None else copy_fields(MachineFacts, document.machine)
    return Profile(document.model, _sharing(cases), machine)


def _sharing(cases: Sequence[CaseProfile]) -> tuple[CaseProfile, ...]:
    """The cases, where equal counts are one record, as they were when they were made.

    A report shows it once.
    """
    made: list[CaseProfile] = []
    for case in cases:
        same = (other.counted for other in made if other.counted == case.counted)
        made.append(replace(case, counted=next(same, case.counted)))
    return tuple(made)


def _case(found: CaseJson, place: str) -> CaseProfile:
    case = _identity(found, place)
    counted = _static(found.static, found.layers, place)
    if counted is not None and found.generation is not None:
        counted = replace(counted, generation=_generation_counts(found.generation))
    if found.outcome is OutcomeJson.MEASURED:
        return CaseProfile(case, counted, _measurement(found, place))
    for index, row in enumerate(found.layers):
        if row.ms is not None:
            problem = "expected null in a case that did not run, found a time"
            raise ContradictionError(f"{place}.layers[{index}].ms", problem)
    reason = _known(found.reason, f"{place}.reason")
    return CaseProfile(case, counted, None, Outcome(found.outcome.value), reason)


def _identity(found: CaseJson, place: str) -> Case:
    given = None if found.given_dims is None else tuple(found.given_dims.items())
    case = Case(
        found.batch_size,
        found.cores,
        tuple(found.dims.items()),
        given_dims=given,
        phase=_phase(found, place),
    )
    if found.id == case.id:
        return case
    # The engine is in the id where a request had several of them.
    engine = found.id.removeprefix(f"{case.id}-")
    if engine in {"", found.id}:
        problem = f"a case of this batch size, cores and dims is {shortened(case.id)}"
        raise ContradictionError(f"{place}.id", problem)
    return replace(case, engine=engine)


def _phase(found: CaseJson, place: str) -> GenerationPhase | None:
    if found.phase is None:
        return None
    return GenerationPhase(
        found.phase,
        _known(found.prompt, f"{place}.prompt"),
        _known(found.generate, f"{place}.generate"),
    )


def _known(value: T | None, place: str) -> T:
    if value is None:
        raise ContradictionError(place, "expected a value, found null")
    return value


def _known_fields(found: Struct, place: str, *names: str) -> dict[str, Any]:
    """The values of these fields; ContradictionError where one is null."""
    return {name: _known(getattr(found, name), f"{place}.{name}") for name in names}


# -- the counts


def _static(static: StaticJson, rows: Sequence[LayerJson], case_place: str) -> StaticProfile | None:
    place = f"{case_place}.static"
    layers = tuple(
        _layer(row, f"{case_place}.layers[{index}]")
        for index, row in enumerate(rows)
        if row.kind is RowKind.LAYER
    )
    if static.macs is None:
        if layers:
            problem = "expected the MACs of a case that has layers, found null"
            raise ContradictionError(f"{place}.macs", problem)
        return None
    uncounted = _known(static.uncounted_ops, f"{place}.uncounted_ops")
    return StaticProfile(
        layers=layers,
        **_known_fields(static, place, "params", "weight_bytes"),
        peak_activation_bytes=static.peak_activation_bytes,
        uncounted=tuple(Uncounted(op, "", n, _NO_REASON) for op, n in uncounted.items()),
        notes=static.notes,
    )


def _generation_counts(found: GenerationJson) -> GenerationCounts | None:
    if found.macs is None:
        return None
    return GenerationCounts(
        cache_bytes=found.cache_bytes_per_token,
        first_macs=found.macs.first,
        last_macs=found.macs.last,
    )


def _layer(row: LayerJson, place: str) -> StaticLayer:
    # The precision is that of the kernel where the engine told it: a report shows one or the other.
    return copy_fields(
        StaticLayer,
        row,
        **_known_fields(row, place, "id", "name", "domain", "params", "weight_bytes"),
        weight_macs=0,
        attributes={},
        reads=None,
        writes=None,
        fed_by=None,
        sparsity=None if row.sparsity is None else copy_fields(Sparsity, row.sparsity),
    )


# -- the measurement


def _measurement(found: CaseJson, place: str) -> Measurement:
    times = tuple(_times(found.layers, place))
    return copy_fields(
        Measurement,
        found,
        engine=_engine(found.engine, f"{place}.engine"),
        rounds=tuple(map(_round, _known(found.raw, f"{place}.raw"))),
        latency=_latency(found.latency, found.batch_size, f"{place}.latency"),
        seconds=_known(found.seconds, f"{place}.seconds"),
        machine=None,
        layer_times=times or None,
        kernels=None,
    )


def _engine(engine: EngineJson, place: str) -> EngineFacts:
    known = _known_fields(engine, place, "name", "options", "providers")
    return copy_fields(EngineFacts, engine, **known)


def _latency(latency: LatencyJson, batch_size: int, place: str) -> Latency:
    needed = _known(latency.needed, f"{place}.needed")
    intervals = _known(latency.intervals_ms, f"{place}.intervals_ms")
    percentiles = [
        _percentile(percent, getattr(needed, key), getattr(latency, key), getattr(intervals, key))
        for percent, key in zip(PERCENTS, needed.__struct_fields__, strict=True)
    ]
    return Latency(
        batch_size=batch_size,
        percentiles=tuple(percentiles),
        **_known_fields(latency, place, "confidence", "samples", "rounds"),
        min_ns=round(_ns(_known(latency.min_ms, f"{place}.min_ms"))),
        max_ns=round(_ns(_known(latency.max_ms, f"{place}.max_ms"))),
        mean_ns=_ns(_known(latency.mean_ms, f"{place}.mean_ms")),
    )


def _percentile(
    percent: float, needed: int, value_ms: float | None, interval_ms: tuple[float, float] | None
) -> Percentile:
    return Percentile(
        percent=percent,
        needed=needed,
        value_ns=None if value_ms is None else _ns(value_ms),
        low_ns=None if interval_ms is None else _ns(interval_ms[0]),
        high_ns=None if interval_ms is None else _ns(interval_ms[1]),
    )


def _ns(ms: float) -> float:
    return ms * _NS_PER_MS


def _round(made: RoundJson) -> Round:
    block = Block(times_ns=made.times_ns, noise=made.noise, first_step=made.first_step)
    begun = made.begun_ns
    if begun is not None:
        # Only the first of a block is kept; each of the others followed at once.
        starts_ns = tuple(accumulate(made.times_ns, initial=begun.block_ns))[:-1]
        block = replace(block, starts_ns=starts_ns)
    return Round(
        load_ns=round(_ns(made.load_ms)),
        first_ns=round(_ns(made.first_ms)),
        warmup_runs=made.warmup_runs,
        is_steady=made.is_steady,
        block=block,
        starts=None if begun is None else copy_fields(RoundStarts, begun),
    )


def _times(rows: Sequence[LayerJson], case_place: str) -> Iterator[LayerTime]:
    """The times of the rows; a kernel's other layers are found by their ids and their `runs_in`."""
    layers = [row for row in rows if row.kind is RowKind.LAYER]
    indexes: dict[str | None, list[int]] = defaultdict(list)
    for index, row in enumerate(layers):
        indexes[row.id].append(index)
    index = 0
    for number, row in enumerate(rows):
        is_layer = row.kind is RowKind.LAYER
        place = f"{case_place}.layers[{number}].fused"
        if row.ms is not None:
            yield LayerTime(
                kind=row.kind,
                kernel=row.kernel or "",
                ns=_ns(row.ms),
                layer=index if is_layer else None,
                fused=tuple(
                    _index_of(name, row.id, indexes, layers, f"{place}[{i}]")
                    for i, name in enumerate(row.fused)
                ),
                provider=row.provider,
                precision=None if is_layer else row.precision,
                doubts_ns=() if row.interval_ms is None else (_ns(row.interval_ms[1] - row.ms),),
            )
        index += is_layer


def _index_of(
    name: str,
    kernel_of: str | None,
    indexes: Mapping[str | None, Sequence[int]],
    layers: Sequence[LayerJson],
    place: str,
) -> int:
    """The index of a layer that runs in the kernel of another one.

    Bodies of two loops may use one name; then the layer whose `runs_in` fits is meant.
    """
    found = indexes.get(name, ())
    if not found:
        raise ContradictionError(place, f'there is no layer "{shortened(name)}"')
    return next((i for i in found if layers[i].runs_in == kernel_of), found[0])
