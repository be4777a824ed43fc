"""Checkups as JSON and as a report."""

from __future__ import annotations

import json
import math

import msgspec
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.profiler.doctor.checkup import LEVEL, POWER
from pytest_modelperf.profiler.doctor.records import CHECKUPS, Checkup, Checkups, Outlook
from pytest_modelperf.profiler.doctor.report import checkup_report
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Noise
from pytest_modelperf.profiler.shown.facts import describe_machine_line
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.model import Code, Paragraph, Section
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.records import LatencySpread, Ratio
from tests.support.markup import Markup
from tests.support.profiles import ENGINE, MACHINE
from tests.support.report_parts import tables_of

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
    ratios=(1.0, 1.0),
)


def shown(*checkups: Checkup, machine: MachineFacts = MACHINE, width: int | None = None) -> str:
    return render_report(checkup_report(machine, checkups), TextStyle(width))


def test_the_json_of_a_checkup_has_its_figures() -> None:
    document = json.loads(CHECKUPS.dump(Checkups(MACHINE, (CHECKUP,))))
    assert (document["schema"], document["machine"]["key"]) == (1, MACHINE.key)
    (checkup,) = document["checkups"]
    assert (checkup["rounds"], checkup["p50_ms"]) == (2, 1.5)
    assert checkup["ratio"] == {"value": 1.0, "interval": [0.9, 1.1]}
    assert checkup["spread"] == {"inferences": 0.01, "sessions": 0.02}
    assert checkup["outlook"] == [{"rounds": 6, "seconds": 1.0, "detectable": 0.03}]
    assert [noise["wall_ns"] for noise in checkup["noise"]] == [7, 8]


def test_the_json_of_a_checkup_has_null_for_nan_and_infinity() -> None:
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
        report = checkup_report(MACHINE, (replace(CHECKUP, outlook=looks),))
        assert report.headline == headline


def test_a_page_begins_with_the_noisiest_core_count_its_worst_cause_and_what_to_type() -> None:
    noise = Noise(wall_ns=10**9, others_ns=10**9, throttled_ns=2 * 10**8)
    noisy = replace(
        CHECKUP,
        cores=2,
        processors=(0, 1),
        noise=(noise,) * 2,
        outlook=(Outlook(rounds=6, seconds=10.0, change=0.06),),
    )
    first, second, machine = checkup_report(
        replace(MACHINE, governor="powersave"), (CHECKUP, noisy)
    ).findings
    assert (first.word, first.title) == ("noisy", "2 cores")
    assert isinstance(first.blocks[0], Paragraph)
    assert first.blocks[0].lines[0].text.startswith("other processes took 50 %")
    assert _commands(first) == [
        "pytest --modelperf --modelperf-tolerance p50=0.06",
        "modelperf doctor --cores 2 --max-seconds 40",
    ]
    assert (second.word, _commands(second)) == ("fit to measure", ["pytest --modelperf"])
    assert _commands(machine) == ["sudo cpupower frequency-set -g performance"]


def _commands(finding: Section) -> list[str]:
    return [block.text for block in finding.blocks if isinstance(block, Code)]


def test_a_table_of_what_would_be_seen_has_no_endless_figure() -> None:
    looks = (Outlook(rounds=3, seconds=1.0, change=math.inf), *CHECKUP.outlook)
    rows = tables_of(checkup_report(MACHINE, (replace(CHECKUP, outlook=looks),)))[1].rows
    assert rows == (("3", "none"), ("6", "3.0 % in 1.0 s"))


def test_a_report_begins_with_the_answer_and_ends_with_what_to_do() -> None:
    two = replace(CHECKUP, cores=2, outlook=(Outlook(rounds=6, seconds=1.0, change=0.08),))
    machine = replace(MACHINE, governor="powersave")
    assert shown(CHECKUP, two, machine=machine, width=80) == snapshot("""\
1 core: fit to measure. A slowdown of 3.0 % or more is seen in 1.0 s
2 cores: noisy. A slowdown must be 8.0 % to be seen in 1.0 s; one of 3.0 % would
  mostly be missed

machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni, governor powersave; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended
a model ran against itself: two sessions in turn, so that any difference is
  noise

noise
cores     ms  rounds   took  difference    95 % interval  within ±  between ±
─────────────────────────────────────────────────────────────────────────────
    1  1.500       2  1.0 s      +0.0 %  −10.0 … +10.0 %     1.0 %      2.0 %
    2  1.500       2  1.0 s      +0.0 %  −10.0 … +10.0 %     1.0 %      2.0 %
difference: the second session against the first, paired by turns
±: standard deviation within a session, and between the medians of sessions

the slowdown that a comparison would see
rounds          1 core         2 cores
──────────────────────────────────────
     6  3.0 % in 1.0 s  8.0 % in 1.0 s
seen 90 times in 100, with 1 false alarm in 100 comparisons

What to do
the governor powersave changes the clock with the load: set it to performance
  (sudo cpupower frequency-set -g performance)
this is a shared or virtual machine (container in a virtual machine): compare
  versions in one run, never times of different days
a case of 2 cores leaves none for the rest of the system: measure with one core
  less if you can
on 2 cores allow more than 3.0 %, or give each case more time (--max-seconds)
""")


def test_the_json_of_a_checkup_is_read_back_by_its_type() -> None:
    text = CHECKUPS.dump(Checkups(MACHINE, (CHECKUP, replace(CHECKUP, processors=None))))
    found = msgspec.json.decode(text, type=CHECKUPS.json_type)
    assert json.loads(msgspec.json.encode(found)) == json.loads(text)


def test_the_page_has_the_rounds_of_each_number_of_cores() -> None:
    noise = Noise(wall_ns=100, others_ns=20, stolen_ns=0, involuntary_switches=3)
    # Others can seem to take less than nothing, because their time comes in ticks.
    calm = replace(noise, others_ns=-1)
    rounds = (noise, Noise(wall_ns=0), calm)
    checkup = replace(CHECKUP, noise=rounds, ratios=(1.01, 0.98, 1.0))
    report = checkup_report(MACHINE, (checkup, replace(checkup, cores=2, processors=(0, 1))))
    page = Markup(render_page(report)).text
    one, two = ("1 +1.0 % 20 % 0.0 % ? 3", "1 +1.0 % 10 % 0.0 % ? 3")
    others = "2 \N{MINUS SIGN}2.0 % ? ? ? ? 3 +0.0 % 0.0 % 0.0 % ? 3"
    assert page.index(f"{one} {others}") < page.index(f"{two} {others}")
    assert "this is a shared or virtual machine" in page
    assert page.index(describe_machine_line(MACHINE)) < page.index("Overview")
    assert "round by round" not in render_report(report, TextStyle(None))


def test_the_doctor_says_what_is_odd_about_the_clocks() -> None:
    checkups = [replace(CHECKUP, notes=("the clock ticks every 4.000 ms",))] * 2
    assert shown(*checkups).count("note: the clock ticks") == 1
    (first, _) = json.loads(CHECKUPS.dump(Checkups(MACHINE, tuple(checkups))))["checkups"]
    assert first["notes"] == ["the clock ticks every 4.000 ms"]


def test_the_csv_has_the_figures_of_each_number_of_cores() -> None:
    infinite = replace(CHECKUP, outlook=(Outlook(rounds=3, seconds=1.0, change=math.inf),))
    report = checkup_report(MACHINE, (CHECKUP, infinite))
    assert render_csv(report) == snapshot("""\
cores,p50_ms,rounds,seconds,ratio,ratio_low,ratio_high,spread_inferences,spread_sessions,detectable,growth_bytes_per_inference
1,1.5,2,1.0,1.0,0.9,1.1,0.01,0.02,0.03,
1,1.5,2,1.0,1.0,0.9,1.1,0.01,0.02,,
""")
