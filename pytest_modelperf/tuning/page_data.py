"""A tuning as the data that the scripts of a page draw: each set of options with its interval."""

from __future__ import annotations

from pytest_modelperf.profiler.shown.page_data import (
    case_entry,
    model_entry,
    side_entry,
    whole_page,
)
from pytest_modelperf.profiler.shown.page_latency import Entry
from pytest_modelperf.tuning.records import Tried, TunedCase, Tuning


def tuning_data(tuning: Tuning) -> Entry:
    name = tuning.model.name
    engine = "" if tuning.engine is None else tuning.engine.label
    model = model_entry(
        name,
        sides=[side_entry("", name, engine)],
        points=[[]],
        cases=[_case_entry(tuning, case) for case in tuning.cases],
    )
    return whole_page([model])


def _case_entry(tuning: Tuning, case: TunedCase) -> Entry:
    entry = case_entry(case.id, case.id, case.case, word="", ran=[None], types=[], layers=[])
    winner = None if case.winner is None else case.winner.name
    return {
        **entry,
        "tuning": {
            "tried": [_tried_entry(each, winner) for each in case.fastest_first],
            "least_gain": tuning.least_gain,
        },
    }


def _tried_entry(tried: Tried, winner: str | None) -> Entry:
    speedup = tried.speedup
    return {
        "name": tried.name,
        "word": tried.word,
        "speedup": None if speedup is None else [speedup.value, speedup.low, speedup.high],
        "is_winner": tried.name == winner,
    }
