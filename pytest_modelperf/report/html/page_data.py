"""Profiles, comparisons, sweeps, what-ifs and runs as the data that the scripts of a page draw.

What is in it is said where it is made: numbers are plain, times in ms, and a number that is not
known is null. Every list of a model that is about its sides has A, what was before, and then B.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_modelperf.measurements import Measurement, SideRun
from pytest_modelperf.outcomes import CaseOutcome, RunReport
from pytest_modelperf.records import Case, CaseProfile, LayerType, Outcome, Profile
from pytest_modelperf.report.figures import LATENCY
from pytest_modelperf.report.html.latency_data import (
    Entry,
    RanFigures,
    change_entry,
    engine_name,
    latency_entry,
    point_entry,
    round_entries,
    spread_of,
)
from pytest_modelperf.report.html.layer_data import (
    comparison_layers,
    comparison_types,
    profile_layers,
    profile_types,
)
from pytest_modelperf.report.html.whatif_data import whatif_entry
from pytest_modelperf.report.model_names import name_models
from pytest_modelperf.report.outcome_names import name_outcomes
from pytest_modelperf.report.run_lines import rank_case, rank_outcome
from pytest_modelperf.report.verdict_lines import verdict_word
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.sweeps import Sweep, SweepPoint, SweepSide
from pytest_modelperf.variants import WhatIf, WhatIfCase
from pytest_modelperf.verdicts import CaseComparison, Comparison

_P50 = f"{LATENCY}p50"
_P95 = f"{LATENCY}p95"
_LABELS = ("A", "B")


def profile_data(profile: Profile) -> Entry:
    engines = [case.measured.engine for case in profile.cases if case.measured is not None]
    model = _model_entry(
        profile.model.name,
        sides=[_side_entry("", profile.model.name, engine_name(engines[0]) if engines else "")],
        points=[
            [
                point_entry(
                    case.case.id, case.case, _told_alone(case.measured), reason=_no_time(case)
                )
                for case in profile.cases
                if case.measured is not None or case.outcome is not Outcome.STATIC
            ]
        ],
        cases=[_profile_case(case) for case in profile.cases],
    )
    return _page([model])


def comparison_data(comparison: Comparison) -> Entry:
    engines = comparison.engines or ("",)
    names = name_models((comparison.before, comparison.after))
    sides = [
        _side_entry(label, name, _engine(runs) or engine)
        for label, name, runs, engine in zip(
            _LABELS,
            names,
            ([case.before for case in comparison.cases], [case.after for case in comparison.cases]),
            (engines[0], engines[-1]),
            strict=True,
        )
    ]
    return _page([_compared_model(" → ".join(names), sides, _compared(comparison))])


def run_data(report: RunReport) -> Entry:
    """A model for each baseline, or for each path where there is none, as they came."""
    groups: dict[tuple[str | None, str], list[tuple[CaseOutcome, str]]] = {}
    for pair in zip(report.outcomes, name_outcomes(report.outcomes), strict=True):
        model, baseline = pair[0].model, pair[0].baseline
        key = (baseline, (model.path or model.name) if baseline is None else "")
        groups.setdefault(key, []).append(pair)
    named = list(groups.values())
    names = name_models([pairs[0][0].model for pairs in named])
    ranks = [min(rank_outcome(outcome) for outcome, _ in pairs) for pairs in named]
    worst = ranks.index(min(ranks)) if ranks else 0
    return _page([_tested_model(*each) for each in zip(names, named, strict=True)], worst)


def sweep_data(sweep: Sweep) -> Entry:
    is_one = len(sweep.sides) == 1
    names = name_models([side.model for side in sweep.sides])
    model = _model_entry(
        " → ".join(names),
        sides=[
            _side_entry(
                "" if is_one else label,
                name,
                "" if side.engine is None else engine_name(side.engine),
            )
            for label, name, side in zip(_LABELS, names, sweep.sides, strict=False)
        ],
        points=[_sweep_points(side) for side in sweep.sides],
        changes={c.id: change_entry(c.latency, c.throughput) for c in sweep.changes},
        cases=_cases_at_best(sweep),
        threshold_ms=sweep.threshold_ms,
    )
    return _page([model])


def whatif_data(whatif: WhatIf) -> Entry:
    name = whatif.model.name
    engine = "" if whatif.engine is None else engine_name(whatif.engine)
    model = _model_entry(
        name,
        sides=[_side_entry("", name, engine)],
        points=[[]],
        cases=[_tried_case(case) for case in whatif.cases],
    )
    return _page([model])


def _page(models: Sequence[Entry], start: int = 0) -> Entry:
    """All models, and which of them the page opens on."""
    return {"models": models, "start": start}


# -- models


def _model_entry(  # noqa: PLR0913  # one for each thing that there is to know of it
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
    return {
        "name": name,
        "start": start,
        "sides": sides,
        "threshold_ms": threshold_ms,
        "points": points,
        "changes": changes or {},
        "cases": cases,
    }


def _side_entry(label: str, name: str, engine: str) -> Entry:
    return {"label": label, "name": name, "engine": engine}


def _engine(runs: Iterable[SideRun | None]) -> str:
    return next((engine_name(run.engine) for run in runs if run is not None), "")


# -- a profile


def _profile_case(case: CaseProfile) -> Entry:
    told = _told_alone(case.measured)
    is_static = case.measured is not None or case.outcome is Outcome.STATIC
    return _case_entry(
        case.case.id,
        case.case.id,
        case.case,
        word="" if is_static else case.outcome.value,
        told=[told],
        types=profile_types(case),
        layers=profile_layers(case),
    )


def _case_entry(  # noqa: PLR0913  # one for each thing that there is to know of it
    case_id: str,
    name: str,
    case: Case,
    *,
    word: str,
    told: Sequence[RanFigures | None],
    types: Sequence[Entry],
    layers: Sequence[Entry],
) -> Entry:
    return {
        "id": case_id,
        "name": name,
        "batch": case.batch_size,
        "cores": case.cores,
        "word": word,
        "latency": [latency_entry(side) for side in told],
        "rounds": [round_entries(side) for side in told],
        "types": types,
        "layers": layers,
    }


def _told_alone(measured: Measurement | None) -> RanFigures | None:
    if measured is None:
        return None
    return RanFigures(latency=measured.latency, rounds=tuple(map(spread_of, measured.rounds)))


def _no_time(case: CaseProfile) -> str | None:
    return None if case.measured is not None else f"{case.outcome.value}: {case.reason}"


# -- comparisons, alone or in a run


@dataclass(frozen=True, slots=True)
class _Shown:
    """A comparison as it is shown: under which id and name, and what was told of it alone."""

    id: str
    name: str
    word: str
    compared: CaseComparison
    alone: RanFigures | None = None
    counted: Mapping[str, LayerType] | None = None

    @property
    def told(self) -> tuple[RanFigures | None, RanFigures | None]:
        return _told(self.compared.before), _told(self.compared.after) or self.alone

    @property
    def has_before(self) -> bool:
        """Whether anything is known of the side before."""
        case = self.compared
        return (
            case.before is not None
            or any(change.before is not None for change in case.layer_types)
            or any(metric.before is not None for metric in case.metrics)
        )

    @property
    def change(self) -> Entry | None:
        """The ratios that the table of the case shows."""
        median, p95 = self._ratio(_P50), self._ratio(_P95)
        return None if median is None else change_entry(median, p95=p95)

    def _ratio(self, name: str) -> Ratio | None:
        found = (m for m in self.compared.metrics if m.name == name and m.limit is None)
        metric = next(found, None)
        if metric is None or metric.ratio is None:
            return None
        return Ratio(metric.ratio, *(metric.interval or (None, None)))

    def points(self) -> tuple[Entry | None, Entry | None]:
        case = self.compared
        before, after = (
            None
            if told is None and case.failure is None
            else point_entry(self.id, case.case, told, reason=None if told else case.failure)
            for told in self.told
        )
        return before, after


def _compared(comparison: Comparison) -> list[_Shown]:
    return [_Shown(case.id, case.id, verdict_word(case), case) for case in comparison.cases]


def _told(run: SideRun | None) -> RanFigures | None:
    return None if run is None else RanFigures(latency=run.latency, rounds=run.rounds)


def _compared_model(name: str, sides: Sequence[Entry], shown: Sequence[_Shown]) -> Entry:
    """A model with as many sides as are given; of one, it is the one of now."""
    count = len(sides)
    points = [each.points()[-count:] for each in shown]
    found = [[p for p in side if p is not None] for side in zip(*points, strict=True)]
    changes = {each.id: each.change for each in shown}
    worst = min(shown, key=lambda each: rank_case(each.word, each.compared), default=None)
    return _model_entry(
        name,
        sides=sides,
        points=found or [[] for _ in sides],
        changes={key: change for key, change in changes.items() if change is not None},
        cases=[_compared_case(each, count) for each in shown],
        start=None if worst is None else worst.id,
    )


def _compared_case(each: _Shown, sides: int) -> Entry:
    return _case_entry(
        each.id,
        each.name,
        each.compared.case,
        word=each.word,
        told=each.told[-sides:],
        types=comparison_types(each.compared, sides, each.counted),
        layers=comparison_layers(each.compared) if sides > 1 else [],
    )


def _tested_model(model: str, named: Sequence[tuple[CaseOutcome, str]]) -> Entry:
    shown = []
    times = Counter[str]()
    for outcome, name in named:
        case_id = outcome.comparison.id
        times[case_id] += 1
        # Several tests may have the same case of one model.
        own_id = case_id if times[case_id] == 1 else f"{case_id} ({times[case_id]})"
        alone = None if outcome.latency is None else RanFigures(latency=outcome.latency)
        counted = None if outcome.static is None else outcome.static.layer_types
        shown.append(_Shown(own_id, name, outcome.word, outcome.comparison, alone, counted))
    engine = next((outcome.engine for outcome, _ in named if outcome.engine), "")
    now = _side_entry("", model, engine)
    if not any(each.has_before for each in shown):
        return _compared_model(model, [now], shown)
    before = _engine(each.compared.before for each in shown)
    sides = [_side_entry("A", "before", before), {**now, "label": "B"}]
    return _compared_model(model, sides, shown)


# -- a sweep


def _sweep_points(side: SweepSide) -> list[Entry]:
    return [_sweep_point(point) for point in side.points]


def _sweep_point(point: SweepPoint) -> Entry:
    told = None if point.latency is None else RanFigures(latency=point.latency, rounds=point.rounds)
    return point_entry(
        point.id,
        point.configuration.case,
        told,
        streams=point.configuration.streams,
        throughput=point.throughput,
        reason=point.reason,
    )


def _cases_at_best(sweep: Sweep) -> list[Entry]:
    """What was taken of layers, where the sweep found the best."""
    if sweep.comparison is not None:
        return [_compared_case(each, 2) for each in _compared(sweep.comparison)]
    return [] if sweep.profile is None else [_profile_case(case) for case in sweep.profile.cases]


# -- a what-if


def _tried_case(case: WhatIfCase) -> Entry:
    entry = _case_entry(case.id, case.id, case.case, word="", told=[None], types=[], layers=[])
    return {**entry, "whatif": whatif_entry(case)}
