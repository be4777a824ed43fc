"""Checkups as the data that the scripts of a page draw: a case for each number of cores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_modelperf.profiler.doctor.records import Checkup
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.profiler.shown.page_data import LABELS, model_entry, side_entry, whole_page
from pytest_modelperf.profiler.shown.page_latency import (
    Entry,
    RanFigures,
    latency_entry,
    round_entries,
)
from pytest_modelperf.text.words import count_of

_NAMES = ("first session", "second session")


def checkups_data(checkups: Sequence[Checkup], tolerance: float) -> Entry:
    engine = checkups[0].engine.label
    sides = [side_entry(label, name, engine) for label, name in zip(LABELS, _NAMES, strict=True)]
    model = model_entry(
        checkups[0].model,
        sides=sides,
        points=[[] for _ in sides],
        cases=[_case_entry(checkup) for checkup in checkups],
    )
    return {**whole_page([model]), "tolerance": tolerance}


def _case_entry(checkup: Checkup) -> Entry:
    told = [RanFigures(latency=each.latency, rounds=each.rounds) for each in checkup.sessions]
    processors = len(checkup.processors or ()) or checkup.cores
    ratio = checkup.ratio
    return {
        "id": f"c{checkup.cores}",
        "name": count_of(checkup.cores, "core"),
        "word": "",
        "batch": told[0].latency.batch_size,
        "latency": [latency_entry(each) for each in told],
        "rounds": [round_entries(each) for each in told],
        "ratios": checkup.ratios,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "outlook": [
            {"rounds": look.rounds, "seconds": look.seconds, "change": look.change}
            for look in checkup.outlook
            if math.isfinite(look.change)
        ],
        "noise": [_noise_entry(noise, processors) for noise in checkup.noise],
    }


def _noise_entry(noise: Noise, processors: int) -> Entry:
    """Shares of the time of a round; null where the platform does not tell."""

    def share(ns: int | None, of: int) -> float | None:
        return None if ns is None or not noise.wall_ns else max(ns, 0) / (noise.wall_ns * of)

    return {
        "others": share(noise.others_ns, processors),
        "stolen": share(noise.stolen_ns, processors),
        "throttled": share(noise.throttled_ns, 1),
        "switches": noise.involuntary_switches,
    }
