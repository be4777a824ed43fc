"""A profile as the data that the scripts of a page draw, and the entries that every page has.

Numbers are plain, times are in ms, and an unknown number is null. A list about the sides of a model
has A (before) first, then B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.page_graph import case_picture
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    latency_entry,
    point_entry,
    round_entries,
    with_point_facts,
)
from pytest_modelperf.profiler.shown.page_layer_facts import with_layer_facts
from pytest_modelperf.profiler.shown.page_layers import (
    profile_layers,
    profile_types,
)
from pytest_modelperf.report.picture.entry import picture_entry
from pytest_modelperf.report.picture.records import Picture
from pytest_modelperf.stats.spread import spread_of_round

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
    """All models, and the one that the page opens on."""
    return {"models": models, "start": start}


# -- models


def model_entry(  # noqa: PLR0913  # one for each thing that there is to know of it
    name: str,
    *,
    sides: Sequence[Entry],
    points: Sequence[Sequence[Entry]],
    changes: Mapping[str, Entry] | None = None,
    cases: Sequence[Entry] = (),
    threshold_ms: float | None = None,
    start: str | None = None,
) -> Entry:
    """A model; `start` is the id of the case that the page opens on."""
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
    told = figures_alone(case.measured)
    is_static = case.measured is not None or case.outcome is Outcome.STATIC
    return case_entry(
        case.case.id,
        case.case.id,
        case.case,
        word="" if is_static else case.outcome.value,
        ran=[told],
        types=profile_types(case),
        layers=profile_layers(case),
        picture=case_picture(case),
    )


def case_entry(  # noqa: PLR0913  # one for each thing that there is to know of it
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
