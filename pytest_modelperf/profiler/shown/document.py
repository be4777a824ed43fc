"""A profile for other programs: as JSON with raw samples, and as figures of its nodes.

The JSON is read back. Model Explorer and Netron show the figures at the nodes of a graph.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import ContradictionError, shortened
from pytest_modelperf.graph.structure import GenerationPhase
from pytest_modelperf.profiler.counting.records import (
    STATIC,
    GenerationCounts,
    MemberCounts,
    StaticLayer,
    StaticProfile,
    Uncounted,
)
from pytest_modelperf.profiler.inputs.mixture import draw_pass
from pytest_modelperf.profiler.measurements import (
    LATENCY,
    ROUND,
    STARTS,
    LayerTime,
    Measurement,
    Round,
    RoundStarts,
    RowKind,
)
from pytest_modelperf.profiler.records import (
    CASE,
    PROFILE,
    Case,
    CaseMember,
    CaseProfile,
    CaseState,
    Outcome,
    Profile,
)
from pytest_modelperf.profiler.rows import LAYER, LayerRow
from pytest_modelperf.report.document import Json, dump_document
from pytest_modelperf.stats.records import PERCENTS, Latency, Members, Percentile


def dump_profile(profile: Profile, rooflines: Mapping[str, Json] | None = None) -> str:
    """Return the profile as JSON text.

    `rooflines` has the rooflines of cases by their ids, as JSON.
    """
    return dump_document(profile_document(profile, rooflines))


def profile_document(
    profile: Profile, rooflines: Mapping[str, Json] | None = None
) -> dict[str, Any]:
    known = rooflines or {}
    document = PROFILE.of(profile)
    for case in document["cases"]:
        case["roofline"] = known.get(case["id"])
    return document


# -- a document of a profile read back into a profile


T = TypeVar("T")
# A part of a document; its type is generated from its declaration.
Part: TypeAlias = Any

_NS_PER_MS = 1e6
# A document has the number of uncounted layers, but not the reason.
_NO_REASON = "the kept profile does not say"


def read_profile(document: Part) -> Profile:
    """Return the profile of an object of `PROFILE`.

    Raises ContradictionError if values of the document do not fit together.
    """
    if not document.cases:
        raise ContradictionError("cases", "expected at least one case, found an empty list")
    cases = [_case(case, f"cases[{index}]") for index, case in enumerate(document.cases)]
    return PROFILE.read(document, cases=_sharing(cases))


def _sharing(cases: Sequence[CaseProfile]) -> tuple[CaseProfile, ...]:
    """Return the cases with equal counts merged into one record, as they originally were.

    A report shows each record of counts once.
    """
    made: list[CaseProfile] = []
    for case in cases:
        same = (other.counted for other in made if other.counted == case.counted)
        made.append(replace(case, counted=next(same, case.counted)))
    return tuple(made)


def _case(found: Part, place: str) -> CaseProfile:
    case = _identity(found, place)
    counted = _static(found, place)
    if found.outcome is CaseState.MEASURED:
        return CaseProfile(case, counted, _measurement(found, place))
    for index, row in enumerate(found.layers):
        if row.ms is not None:
            problem = "expected null in a case that did not run, found a time"
            raise ContradictionError(f"{place}.layers[{index}].ms", problem)
    reason = _known(found.reason, f"{place}.reason")
    return CaseProfile(case, counted, None, Outcome(found.outcome.value), reason)


def _identity(found: Part, place: str) -> Case:
    phase = None
    if found.phase is not None:
        phase = CASE.read_part(GenerationPhase, "case.phase", found, place)
    case = CASE.read_part(
        Case,
        "case",
        found,
        place,
        dims=tuple(found.dims.items()),
        given_dims=None if found.given_dims is None else tuple(found.given_dims.items()),
        phase=phase,
        members=() if found.workload is None else tuple(map(_member, found.workload.members)),
    )
    if found.id == case.id:
        return case
    # The id includes the engine if the request had several.
    engine = found.id.removeprefix(f"{case.id}-")
    if engine in {"", found.id}:
        problem = f"a case of this batch size, cores and dims is {shortened(case.id)}"
        raise ContradictionError(f"{place}.id", problem)
    return replace(case, engine=engine)


def _member(found: Part) -> CaseMember:
    return CaseMember(found.name, found.weight, found.largest)


def _known(value: T | None, place: str) -> T:
    if value is None:
        raise ContradictionError(place, "expected a value, found null")
    return value


# -- the counts


def _static(case: Part, case_place: str) -> StaticProfile | None:
    place, found = f"{case_place}.static", case.static
    layers = tuple(
        _layer(row, f"{case_place}.layers[{index}]")
        for index, row in enumerate(case.layers)
        if row.kind is RowKind.LAYER
    )
    if found.macs is None:
        if layers:
            problem = "expected the MACs of a case that has layers, found null"
            raise ContradictionError(f"{place}.macs", problem)
        return None
    uncounted = _known(found.uncounted_ops, f"{place}.uncounted_ops")
    return STATIC.read(
        found,
        place,
        layers=layers,
        uncounted=tuple(Uncounted(op, "", n, _NO_REASON) for op, n in uncounted.items()),
        generation=_generation_counts(case.generation),
        members=()
        if case.workload is None
        else tuple(
            MemberCounts(name=each.name, weight=each.weight, macs=each.macs)
            for each in case.workload.members
        ),
    )


def _generation_counts(found: Part) -> GenerationCounts | None:
    if found is None or found.macs is None:
        return None
    return GenerationCounts(
        cache_bytes=found.cache_bytes_per_token,
        first_macs=found.macs.first,
        last_macs=found.macs.last,
    )


def _layer(row: Part, place: str) -> StaticLayer:
    # The precision is that of the kernel if the engine reported it. A report shows only one of
    # both.
    known = {"op_type": row.op_type, "precision": row.precision}
    return LAYER.read_part(StaticLayer, "static", row, place, **known)


# -- the measurement


def _measurement(found: Part, place: str) -> Measurement:
    times = tuple(_times(found.layers, place))
    rounds = _known(found.raw, f"{place}.raw")
    return CASE.read_part(
        Measurement,
        "measured",
        found,
        place,
        rounds=tuple(
            _with_members(_round(made, f"{place}.raw[{index}]"), found.workload)
            for index, made in enumerate(rounds)
        ),
        latency=_latency(found.latency, found.batch_size, f"{place}.latency"),
        layer_times=times or None,
        streams=found.streams or 1,
        notes=found.notes,
    )


def _latency(found: Part, batch_size: int, place: str) -> Latency:
    needed = _known(found.needed, f"{place}.needed")
    intervals = _known(found.intervals_ms, f"{place}.intervals_ms")
    percentiles = [
        _percentile(percent, getattr(needed, key), getattr(found, key), getattr(intervals, key))
        for percent, key in zip(PERCENTS, needed.__struct_fields__, strict=True)
    ]
    return LATENCY.read(found, place, batch_size=batch_size, percentiles=tuple(percentiles))


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


def _round(found: Part, place: str) -> Round:
    made, begun = ROUND.read(found, place), found.begun_ns
    if begun is None:
        return made
    # Only the start of a block is stored. Each further inference started when the previous one
    # ended.
    starts_ns = tuple(accumulate(made.times_ns, initial=begun.block))[:-1]
    return replace(
        made,
        block=replace(made.block, starts_ns=starts_ns),
        starts=STARTS.read_part(RoundStarts, "starts", begun, f"{place}.begun_ns"),
    )


def _with_members(made: Round, workload: Part) -> Round:
    """Return the round with its members, which follow from their weights and the first step."""
    first = made.block.first_step
    if workload is None or first is None:
        return made
    members = Members(
        tuple(each.name for each in workload.members),
        tuple(each.weight for each in workload.members),
    )
    mix = draw_pass(members).turned(first, len(made.times_ns))
    return replace(made, block=replace(made.block, mix=mix))


def _times(rows: Sequence[Part], case_place: str) -> Iterator[LayerTime]:
    """Yield the times of the rows.

    The other layers of a kernel are found by their ids and their `runs_in`.
    """
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
    layers: Sequence[Part],
    place: str,
) -> int:
    """Return the index of a layer that runs in the kernel of another one.

    The bodies of two loops may use the same name. Then it is the layer whose `runs_in` fits.
    """
    found = indexes.get(name, ())
    if not found:
        raise ContradictionError(place, f'there is no layer "{shortened(name)}"')
    return next((i for i in found if layers[i].runs_in == kernel_of), found[0])


# -- the figures of nodes


_DECIMALS = 6
# The colours from small to large values, as stops of Model Explorer.
_GRADIENT = (
    {"stop": 0.0, "bgColor": "#f5f6f7"},
    {"stop": 0.5, "bgColor": "#f3b8a8"},
    {"stop": 1.0, "bgColor": "#d1483c"},
)


def dump_node_data(profile: Profile) -> str:
    """Return node data for Model Explorer: the ms of each node, or its MACs if nothing ran.

    A node that runs in the kernel of another one has no value: the time of the kernel is at the
    other node.
    """
    case, rows = _chosen(profile)
    is_timed = any(row.ms is not None for row in rows)
    values = {
        row.static.name or row.static.id: row.ms if is_timed else row.static.macs
        for row in rows
        if row.static is not None
    }
    data = {
        "name": f"modelperf {case.case.id}: {'ms' if is_timed else 'MACs'}",
        "results": {
            name: {"value": round(value, _DECIMALS)}
            for name, value in values.items()
            if value is not None
        },
        "gradient": _GRADIENT,
    }
    return json.dumps(data, indent=2) + "\n"


def node_notes(profile: Profile) -> Mapping[str, Mapping[str, str]]:
    """Return notes on each node by the id of its layer: `modelperf.ms`, `modelperf.share` etc."""
    case, rows = _chosen(profile)
    total_ns = sum(row.ns or 0.0 for row in rows)
    names = {row.static.id: row.static.name or row.static.id for row in rows if row.static}
    return {
        row.static.id: {
            "modelperf.case": case.case.id,
            **{f"modelperf.{key}": text for key, text in _texts(row, total_ns, names)},
        }
        for row in rows
        if row.static is not None
    }


def _texts(row: LayerRow, total_ns: float, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    layer = row.static
    if row.time is not None and row.ms is not None:
        yield "ms", f"{row.ms:.{_DECIMALS}f}"
        if total_ns:
            yield "share", f"{100 * row.time.ns / total_ns:.2f} %"
        yield "kernel", row.time.kernel
    if row.runs_in is not None:
        yield "runs_in", names.get(row.runs_in, row.runs_in)
    if layer is None:
        return
    figures = (("macs", layer.macs), ("params", layer.params), ("precision", row.precision))
    for key, value in figures:
        if value is not None:
            yield key, str(value)


def _chosen(profile: Profile) -> tuple[CaseProfile, tuple[LayerRow, ...]]:
    """Return the first case whose layers have times, or else the first case with layers."""
    cases = [case for case in profile.cases if case.counted is not None]
    if not cases:
        raise UsageError(
            f"{profile.model.name} has no nodes to write figures for: give an ONNX model."
        )
    case = next((c for c in cases if c.measured is not None and c.measured.layer_times), cases[0])
    return case, case.layers
