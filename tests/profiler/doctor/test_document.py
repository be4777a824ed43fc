"""Checkups as JSON."""

from __future__ import annotations

import json
import math

import msgspec
from msgspec.structs import replace

from pytest_modelperf.profiler.doctor.checkup import LEVEL, POWER
from pytest_modelperf.profiler.doctor.page import doctor_overview
from pytest_modelperf.profiler.doctor.records import CHECKUPS, Checkup, Checkups, Outlook
from pytest_modelperf.profiler.doctor.text import render_checkups
from pytest_modelperf.profiler.machine.pages import REMEDY
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.stats.records import LatencySpread, Ratio
from tests.support.profiles import ENGINE, MACHINE

CHECKUP = Checkup(
    model="a model",
    engine=ENGINE,
    cores=1,
    processors=(0,),
    seconds=1.0,
    median_ns=1.5e6,
    ratio=Ratio(1.0, 0.9, 1.1),
    spread=LatencySpread(inferences=0.01, sessions=0.02),
    noise=(Noise(wall_ns=7), Noise(wall_ns=8)),
    level=LEVEL,
    power=POWER,
    outlook=(Outlook(rounds=6, seconds=1.0, change=0.03),),
)


def test_the_json_of_a_checkup_has_its_figures() -> None:
    document = json.loads(CHECKUPS.dump(Checkups(MACHINE, (CHECKUP,))))
    assert (document["schema"], document["machine"]["key"]) == (1, MACHINE.key)
    (checkup,) = document["checkups"]
    assert (checkup["rounds"], checkup["p50_ms"]) == (2, 1.5)
    assert checkup["ratio"] == {"value": 1.0, "interval": [0.9, 1.1]}
    assert checkup["spread"] == {"inferences": 0.01, "sessions": 0.02}
    assert checkup["outlook"] == [{"rounds": 6, "seconds": 1.0, "detectable": 0.03}]
    assert [noise["wall_ns"] for noise in checkup["noise"]] == [7, 8]


def test_the_json_of_a_checkup_has_null_for_what_is_no_number() -> None:
    unknown = replace(
        CHECKUP,
        ratio=Ratio(1.0, None, None),
        spread=LatencySpread(inferences=math.nan, sessions=0.0),
        outlook=(Outlook(rounds=6, seconds=1.0, change=math.inf),),
    )
    (checkup,) = json.loads(CHECKUPS.dump(Checkups(MACHINE, (unknown,))))["checkups"]
    assert checkup["ratio"]["interval"] is None
    assert checkup["spread"] == {"inferences": None, "sessions": 0.0}
    assert checkup["outlook"][0]["detectable"] is None


def test_a_page_of_too_few_rounds_calls_no_machine_noisy() -> None:
    for change, headline in (
        (0.03, "fit to measure"),
        (0.5, "noisy"),
        (math.inf, "too few rounds to tell"),
    ):
        looks = (Outlook(rounds=6, seconds=1.0, change=change),)
        overview = doctor_overview(MACHINE, (replace(CHECKUP, outlook=looks),))
        assert overview.headline == headline


def test_a_table_of_what_would_be_seen_has_no_endless_figure() -> None:
    looks = (Outlook(rounds=3, seconds=1.0, change=math.inf), *CHECKUP.outlook)
    text = render_checkups(MACHINE, (replace(CHECKUP, outlook=looks),), TextStyle(80))
    assert [line.split() for line in text.splitlines() if "3.0 %" in line][-1] == [
        "1",
        "none",
        "3.0",
        "%",
    ]


def test_the_json_of_a_checkup_is_read_back_by_its_type() -> None:
    text = CHECKUPS.dump(Checkups(MACHINE, (CHECKUP, replace(CHECKUP, processors=None))))
    found = msgspec.json.decode(text, type=CHECKUPS.json_type)
    assert json.loads(msgspec.json.encode(found)) == json.loads(text)


def test_the_doctor_says_how_to_ask_for_huge_pages_where_weights_lack_them() -> None:
    for lacks in (True, False):
        checkup = replace(CHECKUP, lacks_huge_pages=lacks)
        assert (REMEDY in render_checkups(MACHINE, (checkup,), TextStyle())) == lacks


def test_the_doctor_says_what_is_odd_about_the_clocks() -> None:
    checkups = [replace(CHECKUP, notes=("the clock ticks every 4.000 ms",))] * 2
    assert render_checkups(MACHINE, checkups, TextStyle()).count("note: the clock ticks") == 1
    (first, _) = json.loads(CHECKUPS.dump(Checkups(MACHINE, tuple(checkups))))["checkups"]
    assert first["notes"] == ["the clock ticks every 4.000 ms"]
