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
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.units import format_ms, signed_percent
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
    return {
        **whole_page([model]),
        "tolerance": tolerance,
        "detectable": _detectable(checkups, tolerance),
    }


def _detectable(checkups: Sequence[Checkup], tolerance: float) -> str:
    """What a comparison would see, as a sentence."""
    cases = []
    for each in checkups:
        looks = [look for look in each.outlook if math.isfinite(look.change)]
        if looks:
            name, seconds = count_of(each.cores, "core"), format_ms(looks[-1].seconds * 1e6)
            cases.append(f"{name}: {100 * looks[-1].change:.1f} % in {seconds} s.")
    rule = (
        "The smallest slowdown that a comparison would see, by the time that it takes. "
        f"Dashed: {100 * tolerance:g} %, the usual tolerance."
    )
    return " ".join((rule, *cases))


def _duet(ratio: Ratio) -> str:
    """How the sessions of one model differed, as a sentence."""
    low, high = ratio.low, ratio.high
    bounds = "" if low is None or high is None else f" ({_signed(low)} … {_signed(high)})"
    return (
        "How much longer the second session took in each round. Both run the same model, so "
        f"without noise every point would be at 0. Together: {_signed(ratio.value)}{bounds}."
    )


def _disturbances(rounds: Sequence[Noise]) -> str:
    """What took the processors of the sessions, as a sentence."""
    known = [each.involuntary_switches for each in rounds]
    switches = [each for each in known if each is not None]
    text = "How much of their processors others took in each round, as a share of its time."
    if not switches:
        return text
    return f"{text} Interrupted {min(switches)} to {max(switches)} times a round."


def _signed(ratio: float) -> str:
    return signed_percent(ratio - 1.0).replace("-", "\N{MINUS SIGN}")


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
        "hints": {"duet": _duet(ratio), "disturbances": _disturbances(checkup.noise)},
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
