"""A test run as the data that the scripts of a page draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_modelperf.comparing.page_data import (
    ShownComparison,
    compared_model,
    engine_of_runs,
)
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page_data import side_entry, whole_page
from pytest_modelperf.profiler.shown.page_latency import Entry, RanFigures
from pytest_modelperf.report.model import Choice
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport
from pytest_modelperf.testing.run_lines import rank_outcome


def run_data(report: RunReport) -> Entry:
    """A model for each baseline, or for each path without one, in the order of the outcomes."""
    groups: dict[int, list[tuple[CaseOutcome, str]]] = {}
    outcomes, choices = report.outcomes, choices_of(report)
    for choice, outcome, name in zip(choices, outcomes, name_outcomes(outcomes), strict=True):
        groups.setdefault(choice.model, []).append((outcome, name))
    named = list(groups.values())
    names = name_models([pairs[0][0].model for pairs in named])
    ranks = [min(rank_outcome(outcome) for outcome, _ in pairs) for pairs in named]
    worst = ranks.index(min(ranks)) if ranks else 0
    return whole_page([_tested_model(*each) for each in zip(names, named, strict=True)], worst)


def choices_of(report: RunReport) -> list[Choice]:
    """The place of the model and the case of each outcome in the data."""
    models: dict[tuple[str | None, str], int] = {}
    cases = Counter[int]()
    choices = []
    for outcome in report.outcomes:
        model, baseline = outcome.model, outcome.baseline
        key = (baseline, (model.path or model.name) if baseline is None else "")
        place = models.setdefault(key, len(models))
        choices.append(Choice(place, cases[place]))
        cases[place] += 1
    return choices


def _tested_model(model: str, named: Sequence[tuple[CaseOutcome, str]]) -> Entry:
    shown = []
    times = Counter[str]()
    for outcome, name in named:
        case_id = outcome.case_id
        times[case_id] += 1
        # Several tests may have the same case of one model.
        own_id = case_id if times[case_id] == 1 else f"{case_id} ({times[case_id]})"
        alone = None if outcome.latency is None else RanFigures(latency=outcome.latency)
        counted = None if outcome.static is None else outcome.static.layer_types
        shown.append(
            ShownComparison(own_id, name, outcome.word, outcome.comparison, alone, counted)
        )
    engine = next((outcome.engine for outcome, _ in named if outcome.engine), "")
    now = side_entry("", model, engine)
    if not any(each.has_before for each in shown):
        return compared_model(model, [now], shown)
    before = engine_of_runs(each.compared.before for each in shown)
    sides = [side_entry("A", "before", before), {**now, "label": "B"}]
    return compared_model(model, sides, shown)
