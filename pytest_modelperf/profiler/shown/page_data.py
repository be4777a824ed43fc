"""Make the data of a profile that the scripts of a page draw: entries, facts, graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.profiler.fusion import is_layout, kernels_of_case
from pytest_modelperf.profiler.measurements import GraphKernel, Measurement, RowKind
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    latency_entry,
    point_entry,
    round_entries,
    with_point_facts,
)
from pytest_modelperf.profiler.shown.page_layers import (
    profile_layers,
    profile_types,
    with_layer_facts,
)
from pytest_modelperf.report.picture.drawn import picture_entry, render_svg
from pytest_modelperf.report.picture.records import Box, Picture
from pytest_modelperf.stats.records import spread_of_round

_NS_PER_MS = 1e6
UNKNOWN_EDGES = (
    "This case was stored without the connections of its kernels, so their graph cannot be drawn."
)

# The key of a row: the index of its layer, or its kind and the operator of its kernels.
RowKey = int | tuple[RowKind, str]


def render_profile_svg(profile: Profile) -> str:
    """Return the picture of the first case that has one.

    If no case has one, the picture shows why the first case has none.
    """
    pictures = [(case, case_picture(case)) for case in profile.cases]
    case, picture = next((each for each in pictures if each[1].boxes), pictures[0])
    facts = [case.case.id]
    if case.measured is not None:
        facts.append(f"median {case.measured.latency.median_ns / _NS_PER_MS:.4g} ms")
        facts.append(case.measured.engine.label)
    return render_svg(picture, profile.model.name, ", ".join(facts))


def case_picture(case: CaseProfile) -> Picture:
    kernels, layers = kernels_of_case(case), case.layers
    if not kernels:
        return Picture((), reason=UNKNOWN_EDGES if layers else "")
    rows = row_indexes(layers)
    has_times = any(kernel.ns is not None for kernel in kernels)
    boxes = []
    for kernel in kernels:
        # A layer without a time has the row with its own index.
        at = rows.get(row_key(kernel), kernel.layer)
        row = None if at is None else layers[at]
        boxes.append(
            Box(
                op_type=kernel.op_type,
                name=name_of(row) or kernel.op_type,
                inputs=kernel.inputs,
                values=(kernel_ms(kernel) if has_times else _macs_of(row),),
                row=at,
                is_layout=is_layout(kernel.op_type, kernel.kind),
            )
        )
    return Picture(tuple(boxes), unit="ms" if has_times else "MACs")


def row_key(kernel: GraphKernel) -> RowKey:
    """Return the key of the row that has the time of a kernel."""
    return (kernel.kind, kernel.op_type) if kernel.layer is None else kernel.layer


def row_indexes(rows: Sequence[LayerRow | None]) -> Mapping[RowKey, int]:
    """Return the index of each row that has a time, by its key."""
    found: dict[RowKey, int] = {}
    for at, row in enumerate(rows):
        if row is not None and row.time is not None:
            time = row.time
            found[(time.kind, time.kernel) if time.layer is None else time.layer] = at
    return found


def name_of(row: LayerRow | None) -> str | None:
    """Return the name of a row's layer, or None if the row has no layer."""
    return None if row is None or row.static is None else row.static.name or row.static.id


def kernel_ms(kernel: GraphKernel | None) -> float | None:
    return None if kernel is None or kernel.ns is None else kernel.ns / _NS_PER_MS


def _macs_of(row: LayerRow | None) -> float | None:
    layers = () if row is None else row.layers
    known = [layer.macs for layer in layers if layer.macs is not None]
    return float(sum(known)) if known else None


# -- a profile as the data that the scripts of a page draw


LABELS = ("A", "B")


def profile_data(profile: Profile) -> Entry:
    engines = [case.measured.engine for case in profile.cases if case.measured is not None]
    model = model_entry(
        profile.model.name,
        sides=[side_entry("", profile.model.name, engines[0].label if engines else "")],
        points=[
            [
                point_entry(
                    case.case.id, case.case, figures_alone(case.measured), reason=_no_time(case)
                )
                for case in profile.cases
                if case.measured is not None or case.outcome is not Outcome.STATIC
            ]
        ],
        cases=[profile_case(case) for case in profile.cases],
    )
    return whole_page([model])


def whole_page(models: Sequence[Entry], start: int = 0) -> Entry:
    """Return the data of a page: all models, and the index of the one that it opens on."""
    return {"models": models, "start": start}


# -- models


def model_entry(  # noqa: PLR0913  # one argument for each fact of a model
    name: str,
    *,
    sides: Sequence[Entry],
    points: Sequence[Sequence[Entry]],
    changes: Mapping[str, Entry] | None = None,
    cases: Sequence[Entry] = (),
    threshold_ms: float | None = None,
    start: str | None = None,
) -> Entry:
    """Return the entry of a model.

    `start` is the id of the case that the page opens on.
    """
    return with_point_facts(
        {
            "name": name,
            "start": start,
            "sides": sides,
            "threshold_ms": threshold_ms,
            "points": points,
            "changes": changes or {},
            "cases": cases,
        }
    )


def side_entry(label: str, name: str, engine: str) -> Entry:
    return {"label": label, "name": name, "engine": engine}


# -- a profile


def profile_case(case: CaseProfile) -> Entry:
    figures = figures_alone(case.measured)
    is_static = case.measured is not None or case.outcome is Outcome.STATIC
    return case_entry(
        case.case.id,
        case.case.id,
        case.case,
        word="" if is_static else case.outcome.value,
        ran=[figures],
        types=profile_types(case),
        layers=profile_layers(case),
        picture=case_picture(case),
    )


def case_entry(  # noqa: PLR0913  # one argument for each fact of a case
    case_id: str,
    name: str,
    case: Case,
    *,
    word: str,
    ran: Sequence[RanFigures | None],
    types: Sequence[Entry],
    layers: Sequence[Entry],
    picture: Picture | None = None,
) -> Entry:
    return with_layer_facts(
        {
            "id": case_id,
            "name": name,
            "batch": case.batch_size,
            "cores": case.cores,
            "word": word,
            "latency": [latency_entry(side) for side in ran],
            "rounds": [round_entries(side) for side in ran],
            "types": types,
            "layers": layers,
            "graph": None if picture is None else picture_entry(picture),
        }
    )


def figures_alone(measured: Measurement | None) -> RanFigures | None:
    if measured is None:
        return None
    rounds = tuple(spread_of_round(made.times_ns) for made in measured.rounds)
    return RanFigures(latency=measured.latency, rounds=rounds)


def _no_time(case: CaseProfile) -> str | None:
    return None if case.measured is not None else f"{case.outcome.value}: {case.reason}"
