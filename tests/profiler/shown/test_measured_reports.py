"""Reports of a measurement: the figures, how sure they are, and what disturbed them."""

# ruff: noqa: E501  # what a wide terminal shows is wider than code

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Measurement, Progress
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.shown.facts import (
    describe_machine_line,
    doubt_lines,
    unmeasured_reasons,
)
from pytest_modelperf.profiler.shown.progress import progress_line
from pytest_modelperf.profiler.shown.report import profile_report
from pytest_modelperf.profiler.shown.tables.cases import layer_type_time_table
from pytest_modelperf.profiler.shown.tables.layer_columns import (
    ALL_COLUMNS,
    MEASURED_COLUMNS,
    sort_layers,
)
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.report.model import Tone
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.text.units import format_ms, format_rate, ms_decimals
from pytest_modelperf.text.words import display_width
from tests.support.facts import make_engine
from tests.support.profiles import (
    MACHINE,
    SHARES,
    kernel_time,
    make_measurement,
    make_round,
    make_rounds,
    measured_cases,
    measured_classifier,
    measured_function,
    static_classifier,
    with_layer_times,
)
from tests.support.rendered import render_profile, render_profile_csv

PLAIN = TextStyle()
BY_TIME = LayerView(MEASURED_COLUMNS, sort="ms", top=20)
IN_ORDER = LayerView(MEASURED_COLUMNS)


@pytest.mark.parametrize("sort", ["ms", "gmacs", "params"])
@pytest.mark.parametrize("width", [80, 120])
def test_the_column_that_rows_are_sorted_by_is_not_left_out(sort: str, width: int) -> None:
    view = LayerView(tuple(ALL_COLUMNS), sort=sort)
    text = render_profile(measured_classifier(), view, TextStyle(width))
    _, table = text.split(f"by layer, sorted by {sort}\n")
    assert ALL_COLUMNS[sort].title in re.split(r"  +", table.splitlines()[0])
    assert "columns left out" in table


EVIL = "a\x1b[31m\n\u202eb"
MS = 1_000_000


def one_case(measurement: Measurement, case_id: Case | None = None) -> Profile:
    profile = static_classifier()
    made = CaseProfile(case_id or Case(1, 1), profile.cases[0].counted, measurement)
    return replace(profile, cases=(made,))


def doubts(measurement: Measurement) -> list[str]:
    return doubt_lines(one_case(measurement).cases)


def noisy(
    spent: Mapping[str, int | None], processors: tuple[int, ...] | None = (1,)
) -> Measurement:
    """Ten rounds of 100 ms, in each of which so much was spent."""
    rounds = [make_round([5 * MS] * 20, noise=spent) for _ in range(10)]
    return make_measurement(rounds=rounds, processors=processors)


def test_a_measured_case_at_80_columns() -> None:
    assert render_profile(measured_classifier(), BY_TIME, TextStyle(80)) == snapshot("""\
classifier.onnx: 2.808 KiB, opset 21
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended

performance
case   batch  cores   ms per batch  items/s  load ms  first ms  peak memory
───────────────────────────────────────────────────────────────────────────
b1-c1      1      1  6.708 ± 0.6 %    149.1    21.30     9.400    113.0 MiB
ms per batch: the median ± its 99 % interval
load, first: a session's creation and first inference, medians over rounds

latency in ms
case             b1-c1
──────────────────────
samples       240 in 6
p50      6.708 ± 0.6 %
p90      6.790 ± 0.6 %
p95      6.962 ± 0.6 %
p97      7.262 ± 0.6 %
p99              (662)
p99.9           (6636)
min              6.614
max              8.144
mean             6.759
± is the larger side of the 99 % interval
samples in rounds, each with a fresh session
(n): it takes n samples to tell; a larger max-seconds makes time for more

batch size               1
MACs               442.5 k
elementwise ops    49.23 k  an exp counts 32, an add 1
FLOPs              934.3 k  2 x MACs + elementwise
backward MACs      442.7 k  100.0 % of the MACs, in one training step
params                 618  2.414 KiB
activations      128.2 KiB  peak 128.0 KiB
layers                   5  100.0 % counted

by layer type
layer type         count     ms   share     MACs  GMAC/s  params
────────────────────────────────────────────────────────────────
Conv                   1  6.037  90.0 %  442.4 k   0.073     448
layout                    0.268   4.0 %
GlobalAveragePool      1  0.134   2.0 %        0               0
runtime overhead          0.134   2.0 %
Gemm                   1  0.131   1.9 %      160   0.001     170
Flatten                1  0.003   0.1 %        0               0
Relu                   1                       0               0

total                  5  6.708          442.5 k   0.066     618
no ms: it runs in the kernels of other layers, or not at all

by layer, sorted by ms
name             type                ms      ±    share  GMAC/s  fused
────────────────────────────────────────────────────────────────────────────────
stem_co…olution  Conv             6.037  0.2 %   90.0 %   0.073  + Relu
ReorderInput     layout           0.268  5.0 %    4.0 %
pool             GlobalA…agePool  0.134   10 %    2.0 %
(no kernel)      runtime…verhead  0.134           2.0 %
classifier       Gemm             0.131   10 %    1.9 %   0.001
flatten          Flatten          0.003  400 %    0.1 %
stem_relu        Relu                                            in stem…olution

total                             6.708         100.0 %   0.066
""")


def in_brief(profile: Profile, width: int | None) -> str:
    return render_report(profile_report(profile), TextStyle(width), has_details=False)


def test_several_cases_in_brief_at_80_columns() -> None:
    assert in_brief(measured_cases(), 80) == snapshot("""\
classifier.onnx: 2.808 KiB, opset 21
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended

performance
case   batch  cores     ms per batch  items/s  load ms  first ms  peak memory
─────────────────────────────────────────────────────────────────────────────
b1-c1      1      1   0.1234 ± 0.6 %  8.104 k    21.30     9.400    113.0 MiB
b1-c2      1      2  0.07087 ± 1.2 %  14.11 k    21.30     9.400    113.0 MiB
b8-c1      8      1   0.9871 ± 0.6 %  8.105 k    21.30     9.400    113.0 MiB
b8-c2      8      2   0.5669 ± 1.2 %  14.11 k    21.30     9.400    113.0 MiB
ms per batch: the median ± its 99 % interval
load, first: a session's creation and first inference, medians over rounds

b1-c8: skipped: the machine has 2 processors
b64-c2: failed: the worker was ended by SIGKILL in round 3

interval: b1-c2 ± 1.2 %, b8-c2 ± 1.2 %, wider than 1 %; max-seconds 6 may narrow
  it

the 5 most expensive layer types of each case, by ms
case   layer type         count       ms   share
────────────────────────────────────────────────────────────────────────────────
b1-c1  Conv                   1   0.1111  90.0 %  ██████████████████████████████
       layout                     0.0049   4.0 %  █
       GlobalAveragePool      1   0.0025   2.0 %  █
       runtime overhead           0.0025   2.0 %  █
       Gemm                   1   0.0024   2.0 %  █
b1-c2  Conv                   1  0.06379  90.0 %  ██████████████████████████████
       layout                    0.00283   4.0 %  █
       GlobalAveragePool      1  0.00142   2.0 %  █
       runtime overhead          0.00142   2.0 %  █
       Gemm                   1  0.00138   1.9 %  █
b8-c1  Conv                   1   0.8884  90.0 %  ██████████████████████████████
       layout                     0.0395   4.0 %  █
       GlobalAveragePool      1   0.0197   2.0 %  █
       runtime overhead           0.0197   2.0 %  █
       Gemm                   1   0.0192   1.9 %  █
b8-c2  Conv                   1   0.5102  90.0 %  ██████████████████████████████
       layout                     0.0227   4.0 %  █
       GlobalAveragePool      1   0.0113   2.0 %  █
       runtime overhead           0.0113   2.0 %  █
       Gemm                   1   0.0111   1.9 %  █

-v shows the percentiles, counts and layers of each case
""")


def test_several_cases_in_brief_at_160_columns() -> None:
    text = in_brief(measured_cases(), 160)
    assert text[text.index("performance") : text.index("b1-c2  Conv")] == snapshot("""\
performance
case   batch  cores     ms per batch  items/s  load ms  first ms  peak memory   p95 ms
──────────────────────────────────────────────────────────────────────────────────────
b1-c1      1      1   0.1234 ± 0.6 %  8.104 k    21.30     9.400    113.0 MiB   0.1281
b1-c2      1      2  0.07087 ± 1.2 %  14.11 k    21.30     9.400    113.0 MiB  0.07356
b8-c1      8      1   0.9871 ± 0.6 %  8.105 k    21.30     9.400    113.0 MiB    1.025
b8-c2      8      2   0.5669 ± 1.2 %  14.11 k    21.30     9.400    113.0 MiB   0.5884
ms per batch: the median ± its 99 % interval
load, first: a session's creation and first inference, medians over rounds

b1-c8: skipped: the machine has 2 processors
b64-c2: failed: the worker was ended by SIGKILL in round 3

interval: b1-c2 ± 1.2 %, b8-c2 ± 1.2 %, wider than 1 %; max-seconds 6 may narrow it

the 5 most expensive layer types of each case, by ms
case   layer type         count       ms   share
──────────────────────────────────────────────────────────────────────────────────────────
b1-c1  Conv                   1   0.1111  90.0 %  ████████████████████████████████████████
       layout                     0.0049   4.0 %  ██
       GlobalAveragePool      1   0.0025   2.0 %  █
       runtime overhead           0.0025   2.0 %  █
       Gemm                   1   0.0024   2.0 %  █
""")


def test_a_case_alone_and_a_pipe_have_everything() -> None:
    """Only a terminal draws bars, and leaves out the details of several cases."""
    alone = measured_classifier()
    assert in_brief(alone, 80) == render_profile(alone, LayerView(MEASURED_COLUMNS), TextStyle(80))
    assert "█" not in in_brief(measured_cases(), None)
    assert "p95 ms" not in in_brief(measured_cases(), None)
    assert "█" not in render_report(
        profile_report(measured_cases()), TextStyle(160, encoding="ascii")
    )


def test_static_cases_in_brief_have_their_types_by_flops() -> None:
    shown = in_brief(static_classifier((1, 8)), 80)
    assert "the 5 most expensive layer types of each case, by FLOPs" in shown
    assert re.search(r"^b8-c1 +Conv +1 +7\.209 M +96\.5 %", shown, re.MULTILINE)


def test_a_figure_that_takes_more_samples_has_its_legend_in_the_table_of_cases() -> None:
    few = make_measurement(rounds=[make_round([5 * MS])])
    shown = in_brief(replace(one_case(few), cases=one_case(few).cases * 2), 80)
    assert "(11)" in shown
    assert shown.count("(n): it takes n samples to tell") == 1


def test_a_measured_case_at_160_columns_in_graph_order() -> None:
    text = render_profile(measured_classifier(), IN_ORDER, TextStyle(160))
    assert text[text.index("by layer type") :] == snapshot("""\
by layer type
layer type         count     ms   share                                               MACs  GMAC/s  params
──────────────────────────────────────────────────────────────────────────────────────────────────────────
Conv                   1  6.037  90.0 %  ████████████████████████████████████████  442.4 k   0.073     448
layout                    0.268   4.0 %  ██
GlobalAveragePool      1  0.134   2.0 %  █                                               0               0
runtime overhead          0.134   2.0 %  █
Gemm                   1  0.131   1.9 %  █                                             160   0.001     170
Flatten                1  0.003   0.1 %                                                  0               0
Relu                   1                                                                 0               0

total                  5  6.708                                                    442.5 k   0.066     618
no ms: it runs in the kernels of other layers, or not at all

by layer, in graph order
name              type                  ms      ±    share     MACs  GMAC/s  fused                output      params     memory  input
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
stem_convolution  Conv               6.037  0.2 %   90.0 %  442.4 k   0.073  + Relu               1x16x32x32     448  65.75 KiB  1x3x32x32
stem_relu         Relu                                            0          in stem_convolution  1x16x32x32       0  64.00 KiB  1x16x32x32
pool              GlobalAveragePool  0.134   10 %    2.0 %        0                               1x16x1x1         0       64 B  1x16x32x32
flatten           Flatten            0.003  400 %    0.1 %        0                               1x16             0       64 B  1x16x1x1
classifier        Gemm               0.131   10 %    1.9 %      160   0.001                       1x10           170      720 B  1x16
ReorderInput      layout             0.268  5.0 %    4.0 %
(no kernel)       runtime overhead   0.134           2.0 %

total                                6.708         100.0 %  442.5 k   0.066                                      618  130.6 KiB
""")


def test_the_performance_of_several_cases_at_80_columns() -> None:
    text = render_profile(measured_cases(), BY_TIME, TextStyle(80))
    assert text[text.index("latency") : text.index("\nb1-c1\n")] == snapshot("""\
latency in ms
case              b1-c1            b1-c2           b8-c1           b8-c2
────────────────────────────────────────────────────────────────────────
samples        240 in 6         240 in 6        240 in 6        240 in 6
p50      0.1234 ± 0.6 %  0.07087 ± 1.2 %  0.9871 ± 0.6 %  0.5669 ± 1.2 %
p90      0.1249 ± 0.6 %  0.07174 ± 1.2 %  0.9991 ± 0.6 %  0.5738 ± 1.2 %
p95      0.1281 ± 0.6 %  0.07356 ± 1.2 %   1.025 ± 0.6 %  0.5884 ± 1.2 %
p97      0.1336 ± 0.6 %  0.07673 ± 1.2 %   1.069 ± 0.6 %  0.6138 ± 1.2 %
p99               (662)            (662)           (662)           (662)
p99.9            (6636)           (6636)          (6636)          (6636)
min              0.1217          0.06988          0.9733          0.5590
max              0.1498          0.08604           1.198          0.6883
mean             0.1243          0.07141          0.9946          0.5712
± is the larger side of the 99 % interval
samples in rounds, each with a fresh session
(n): it takes n samples to tell; a larger max-seconds makes time for more

interval: b1-c2 ± 1.2 %, b8-c2 ± 1.2 %, wider than 1 %; max-seconds 6 may narrow
  it
""")


def test_the_performance_of_several_cases_at_160_columns() -> None:
    text = render_profile(measured_cases(), BY_TIME, TextStyle(160))
    assert text[text.index("latency") : text.index("\nb1-c1\n")] == snapshot("""\
latency in ms
case    samples              p50              p90              p95              p97    p99   p99.9      min      max     mean
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
b1-c1  240 in 6   0.1234 ± 0.6 %   0.1249 ± 0.6 %   0.1281 ± 0.6 %   0.1336 ± 0.6 %  (662)  (6636)   0.1217   0.1498   0.1243
b1-c2  240 in 6  0.07087 ± 1.2 %  0.07174 ± 1.2 %  0.07356 ± 1.2 %  0.07673 ± 1.2 %  (662)  (6636)  0.06988  0.08604  0.07141
b8-c1  240 in 6   0.9871 ± 0.6 %   0.9991 ± 0.6 %    1.025 ± 0.6 %    1.069 ± 0.6 %  (662)  (6636)   0.9733    1.198   0.9946
b8-c2  240 in 6   0.5669 ± 1.2 %   0.5738 ± 1.2 %   0.5884 ± 1.2 %   0.6138 ± 1.2 %  (662)  (6636)   0.5590   0.6883   0.5712
± is the larger side of the 99 % interval
samples in rounds, each with a fresh session
(n): it takes n samples to tell; a larger max-seconds makes time for more

interval: b1-c2 ± 1.2 %, b8-c2 ± 1.2 %, wider than 1 %; max-seconds 6 may narrow it
""")


def test_a_function_is_measured_and_has_nothing_to_count() -> None:
    assert render_profile(measured_function(), BY_TIME, PLAIN) == snapshot("""\
my.module:infer
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f avx512_vnni; container in a virtual machine
engine callable

performance
case   batch  cores     ms per batch  items/s  load ms  first ms  peak memory
─────────────────────────────────────────────────────────────────────────────
b1-c1      1      1  0.01050 ± 0.6 %  95.24 k    21.30     9.400    113.0 MiB
ms per batch: the median ± its 99 % interval
load, first: a session's creation and first inference, medians over rounds

latency in ms
case    samples              p50              p90              p95              p97    p99   p99.9      min      max     mean
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
b1-c1  240 in 6  0.01050 ± 0.6 %  0.01063 ± 0.6 %  0.01090 ± 0.6 %  0.01137 ± 0.6 %  (662)  (6636)  0.01035  0.01275  0.01058
± is the larger side of the 99 % interval
samples in rounds, each with a fresh session
(n): it takes n samples to tell; a larger max-seconds makes time for more
""")


# -- laws of the whole page


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 120, 160])
@pytest.mark.parametrize("columns", [MEASURED_COLUMNS, tuple(ALL_COLUMNS)])
def test_no_line_is_wider_than_the_terminal(width: int, columns: tuple[str, ...]) -> None:
    long_id = Case(1, 1, (("sequence_length_of_the_decoder", 128),))
    noise = noisy({"stolen_ns": 20 * MS, "others_ns": 60 * MS, "throttled_ns": 30 * MS})
    long_profile = one_case(replace(noise, notes=("x" * 200, "word " * 50)), long_id)
    for profile in (measured_cases(), long_profile, measured_function()):
        text = render_profile(profile, LayerView(columns), TextStyle(width))
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_no_number_is_cut(width: int) -> None:
    whole = set(render_profile(measured_cases(), BY_TIME, PLAIN).split())
    # Figures that are shown only if there is no room for intervals are taken from them.
    for line in render_profile(measured_cases(), BY_TIME, TextStyle(width)).splitlines():
        for word in line.split() if "left out" not in line else ():
            assert "…" in word or re.fullmatch("─+|█+", word) or word in whole


def test_columns_that_were_asked_for_are_not_left_out_in_silence() -> None:
    view = LayerView(("name", "type", "ms", "kernel", "fused", "macs", "params", "output"))
    assert "left out" in render_profile(measured_classifier(), view, TextStyle(60))


def test_counts_are_shown_once_for_each_graph() -> None:
    text = render_profile(measured_cases(), BY_TIME, PLAIN)
    assert text.count("backward MACs") == 2
    assert text.count("by layer type") == 4
    headings = [line for line in text.splitlines() if re.fullmatch(r"b\d+-c\d+", line)]
    assert headings == ["b1-c1", "b1-c2", "b8-c1", "b8-c2"]


def test_without_layer_times_the_tables_are_those_of_a_static_profile() -> None:
    static = replace(static_classifier(), machine=None)
    measured = replace(static, cases=(replace(static.cases[0], measured=make_measurement()),))
    counted = render_profile(static, LayerView(sort="macs"), TextStyle(80))
    text = render_profile(measured, BY_TIME, TextStyle(80))
    tables = counted[counted.index("\n\nbatch size") :]
    assert text.endswith(tables)
    assert "GMAC/s" not in text


def test_a_profile_whose_cases_all_failed_says_why_and_what_is_known_of_the_graph() -> None:
    profile = static_classifier()
    failed = replace(profile.cases[0], outcome=Outcome.FAILED, reason="first line\nsecond line")
    text = render_profile(replace(profile, cases=(failed,)), BY_TIME, PLAIN)
    assert "\n\nb1-c1: failed: first line\n  second line\n" in text
    assert "latency" not in text
    assert "backward MACs" in text


def failed_at(profile: Profile, cores: int, reason: str) -> CaseProfile:
    case = replace(profile.cases[0].case, cores=cores)
    return replace(profile.cases[0], case=case, outcome=Outcome.FAILED, reason=reason)


def test_the_same_reason_of_several_cases_is_shown_once_with_all_of_them() -> None:
    profile = static_classifier()
    cases = [failed_at(profile, 1, "no room"), failed_at(profile, 2, "no room")]
    other = failed_at(profile, 4, "no time")
    assert unmeasured_reasons([*cases, other]) == [
        "b1-c1, b1-c2: failed: no room",
        "b1-c4: failed: no time",
    ]


def test_the_page_of_a_profile_that_failed_opens_with_what_failed() -> None:
    profile = static_classifier()
    cases = (failed_at(profile, 1, "no room\nfor it"), failed_at(profile, 2, "no room\nfor it"))
    overview = profile_report(replace(profile, cases=cases))
    assert (overview.headline, overview.tone) == ("2 of 2 cases failed: no room", Tone.BAD)
    assert {each.tiles[0].tone for each in overview.tiles} == {Tone.BAD}
    assert {each.tiles[0].value for each in overview.tiles} == {"failed"}
    some = profile_report(replace(profile, cases=(*profile.cases, *cases)))
    assert some.headline == "2 of 3 cases failed: no room"
    one = profile_report(replace(profile, cases=cases[:1]))
    assert one.headline == "failed: no room"
    whole = profile_report(profile)
    assert (whole.headline, whole.tone) == ("", Tone.PLAIN)


def test_no_text_in_a_measurement_can_steer_a_terminal() -> None:
    engine = make_engine(EVIL, EVIL, {EVIL: EVIL}, (EVIL,))
    kernels = [
        (0.5, kernel_time(EVIL, 0, 1, provider=EVIL, precision=EVIL)),
        (0.5, kernel_time(EVIL, None)),
    ]
    measurement = replace(
        with_layer_times(make_measurement(half_width=0.1), kernels), engine=engine, notes=(EVIL,)
    )
    profile = one_case(measurement, Case(1, 1, ((EVIL, 3),)))
    failed = CaseProfile(Case(2, 1, ((EVIL, 3),)), None, None, Outcome.FAILED, EVIL)
    machine = replace(MACHINE, cpu=EVIL, virtualization=EVIL)
    profile = replace(profile, cases=(*profile.cases, failed), machine=machine)
    every = LayerView(tuple(ALL_COLUMNS))
    for text in (
        render_profile(profile, every, PLAIN),
        render_profile_csv(profile, tuple(ALL_COLUMNS)),
    ):
        assert all(char.isprintable() or char == "\n" for char in text)
        assert r"a\x1b[31m" in text


# -- the layers


def rows_of(text: str, title: str) -> list[list[str]]:
    """The cells of a table, its total last."""
    lines = text[text.index(f"\n{title}") + 1 :].splitlines()[3:]
    end = next(i for i, line in enumerate(lines) if line.startswith("total"))
    return [re.split(" {2,}", line.strip()) for line in lines[: end + 1] if line]


@pytest.mark.parametrize("title", ["by layer type", "by layer, sorted by ms"])
def test_the_times_shown_add_up_to_the_median(title: str) -> None:
    profile = measured_classifier()
    *rows, total = rows_of(render_profile(profile, BY_TIME, PLAIN), title)
    shown = [float(cell) for row in rows for cell in row[1:4] if re.fullmatch(r"\d+\.\d{3}", cell)]
    assert len(shown) == 6
    whole = next(float(cell) for cell in total if re.fullmatch(r"\d+\.\d{3}", cell))
    assert whole == pytest.approx(profile.cases[0].latency.p50_ms, abs=0.0005)
    assert sum(shown) == pytest.approx(whole, abs=0.0005 * len(shown))


def test_layers_by_time_begin_with_the_longest_and_end_with_those_of_other_kernels() -> None:
    rows = sort_layers(measured_classifier().cases[0].layers, "ms")
    times = [row.ns for row in rows]
    assert times[-1] is None
    known = [ns for ns in times if ns is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == len(times) - 1


def test_the_first_of_many_fused_operators_are_named_and_the_rest_counted() -> None:
    times = [(1.0, kernel_time("all", 0, 1, 2, 3, 4))]
    profile = one_case(with_layer_times(make_measurement(), times))
    text = render_profile(profile, LayerView(("name", "fused")), PLAIN)
    assert "+ Relu, GlobalAveragePool, Flatten, 1 more" in text


def test_provider_and_precision_have_a_column_only_if_they_vary() -> None:
    def titles(**facts: str) -> str:
        # The second kernel that multiplies is that of the Gemm.
        changed = [
            (share, kernel_time("classifier", 4, **facts) if time.layer == 4 else time)
            for share, time in SHARES
        ]
        profile = one_case(with_layer_times(make_measurement(), changed))
        text = render_profile(profile, BY_TIME, PLAIN)
        return next(line for line in text.splitlines() if line.startswith("name "))

    assert not re.search("provider|precision", titles())
    assert re.search("GMAC/s  provider +fused", titles(provider="CUDAExecutionProvider"))
    assert re.search("GMAC/s  precision +fused", titles(precision="int8"))


def test_a_rate_is_that_of_the_macs_in_the_time_of_their_layer() -> None:
    case = measured_classifier().cases[0]
    row = case.layers[0]
    assert row.static is not None
    assert row.static.macs is not None
    assert row.ms is not None
    gmacs = ALL_COLUMNS["gmacs"].read(row)
    assert gmacs == pytest.approx(row.static.macs / row.ms / 1e6)
    total = ALL_COLUMNS["gmacs"].total
    assert total is not None
    assert case.latency.p50_ms is not None
    assert total(case) == pytest.approx(case.static.macs / case.latency.p50_ms / 1e6)


def test_csv_has_every_row_of_every_case_and_its_times_add_up_to_the_median() -> None:
    profile = measured_cases()
    rows = list(csv.DictReader(StringIO(render_profile_csv(profile, MEASURED_COLUMNS))))
    for case in profile.cases:
        of_case = [row for row in rows if row["case"] == case.case.id]
        assert len(of_case) == len(case.layers)
        known = [float(row["ms"]) for row in of_case if row["ms"]]
        if case.measured is None:
            assert known == []
        else:
            assert math.isclose(sum(known), case.latency.p50_ms or 0.0)
    assert {row["type"] for row in rows} >= {"Conv", "layout", "runtime overhead"}
    assert "ms%" not in rows[0]


def test_the_usual_csv_says_in_which_kernel_a_layer_runs() -> None:
    rows = csv.DictReader(StringIO(render_profile_csv(measured_classifier(), MEASURED_COLUMNS)))
    conv, relu, *_ = rows
    assert (conv["id"], conv["fused"], conv["runs-in"]) == ("c", "r", "")
    assert (relu["id"], relu["ms"], relu["runs-in"]) == ("r", "", "c")
    (title, *_) = render_profile_csv(measured_classifier(), (*MEASURED_COLUMNS, "id")).splitlines()
    assert title.split(",").count("id") == 1


def test_csv_names_layers_by_their_ids() -> None:
    text = render_profile_csv(
        measured_classifier(), ("id", "fused", "runs-in", "kernel", "provider")
    )
    rows = [row[1:] for row in csv.reader(StringIO(text))]
    assert rows[1:3] == [["c", "r", "", "c_nchwc", "CPUExecutionProvider"], ["r", "", "c", "", ""]]


# -- how sure it is


def test_a_quiet_measurement_leaves_no_doubt() -> None:
    assert doubts(make_measurement()) == []


def test_facts_that_the_platform_lacks_do_not_count_as_noise() -> None:
    unknown = dict.fromkeys(
        ("involuntary_switches", "others_ns", "stolen_ns", "throttled_ns"), None
    )
    assert doubts(noisy(unknown, processors=None)) == []


@pytest.mark.parametrize(
    ("spent", "note"),
    [
        (
            {"stolen_ns": 4 * MS},
            "the hypervisor took 4.0 % of its processors; use a machine that is not shared",
        ),
        (
            {"throttled_ns": 2 * MS},
            "its CPU quota halted it for 2.0 % of the time; give the container more CPU, or measure on fewer cores",
        ),
        (
            {"others_ns": 30 * MS},
            "other processes took 30 % of its processors; stop other programs",
        ),
        (
            {"involuntary_switches": 24},
            "it was interrupted 240 times a second; stop other programs",
        ),
        (
            {"others_ns": 30 * MS, "involuntary_switches": 24},
            "other processes took 30 % of its processors, it was interrupted 240 times a second; stop other programs",
        ),
        ({"stolen_ns": 1 * MS}, None),
        ({"throttled_ns": 1 * MS}, None),
        ({"others_ns": 4 * MS}, None),
        # One tick of the clock more, and one less.
        ({"others_ns": -10 * MS}, None),
        ({"involuntary_switches": 9}, None),
    ],
)
def test_noise_that_matters_is_shown_with_what_to_do(
    spent: Mapping[str, int], note: str | None
) -> None:
    assert doubts(noisy(spent)) == ([] if note is None else [f"noise: b1-c1: {note}"])


def test_the_share_of_noise_is_that_of_all_processors_of_the_case() -> None:
    (one,) = doubts(noisy({"stolen_ns": 8 * MS}))
    (two,) = doubts(noisy({"stolen_ns": 8 * MS}, processors=(0, 1)))
    assert "took 8.0 % of" in one
    assert "took 4.0 % of" in two


def test_a_few_interruptions_of_a_short_measurement_do_not_make_a_rate() -> None:
    rounds = [make_round([10_000] * 40, noise={"involuntary_switches": 5}) for _ in range(6)]
    assert doubts(make_measurement(rounds=rounds)) == []


def test_an_interval_that_is_too_wide_is_shown_with_the_time_that_it_needs() -> None:
    assert doubts(make_measurement(half_width=0.03)) == snapshot(
        ["interval: b1-c1 ± 3.0 %, wider than 1 %; max-seconds 32 may narrow it"]
    )
    assert doubts(make_measurement(half_width=0.3)) == snapshot(
        ["interval: b1-c1 ± 30 %, wider than 1 %; measure when less else runs here"]
    )
    assert doubts(make_measurement(half_width=0.0099)) == []


def test_one_round_has_no_interval_and_says_so() -> None:
    measurement = make_measurement(rounds=make_rounds(5.0, rounds=1), half_width=None)
    assert doubts(measurement) == snapshot(
        ["interval: none for b1-c1, too few rounds; a larger max-seconds makes time for more"]
    )
    assert "±" not in render_profile(one_case(measurement), BY_TIME, PLAIN)


def test_a_warm_up_that_did_not_settle_is_reported() -> None:
    rounds = list(make_rounds(5.0))
    rounds[:4] = [replace(r, is_steady=False, warmup_runs=50) for r in rounds[:4]]
    assert doubts(make_measurement(rounds=rounds)) == snapshot(
        ["unsteady: b1-c1: in 4 of 6 rounds times still changed after a warm-up of 50 inferences"]
    )


def test_a_note_on_all_cases_is_shown_once_and_one_on_some_names_them() -> None:
    shared, own = "it could not be pinned", "the engine warned"
    cases = [
        replace(case, measured=replace(case.measured, notes=(shared, own) if first else (shared,)))
        for first, case in zip((True, False), measured_cases().cases[::2], strict=False)
        if case.measured
    ]
    notes = [line for line in doubt_lines(cases) if line.startswith("note")]
    assert notes == [f"note: {shared}", f"note: b1-c1: {own}"]


# -- the machine


@pytest.mark.parametrize(
    ("machine", "line"),
    [
        (MachineFacts(), "machine unknown-unknown-unknown"),
        (
            MACHINE,
            "machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f avx512_vnni; container in a virtual machine",
        ),
        (
            replace(
                MACHINE,
                physical_cores=32,
                logical_cores=64,
                usable_cores=4,
                memory_limit_bytes=1 << 33,
                governor="powersave",
                virtualization=None,
            ),
            "machine linux-x86_64-zen4-4c: AMD EPYC 9R14, 32 cores, 64 processors, 4 of them usable, 8.000 GiB of 24.00 GiB, avx2 avx512f avx512_vnni, governor powersave",
        ),
        (
            replace(MACHINE, logical_cores=4, quota_cores=1.5, usable_cores=1),
            "machine linux-x86_64-zen4-1c: AMD EPYC 9R14, 2 cores, 4 processors, a quota of 1.5 CPUs, 24.00 GiB, avx2 avx512f avx512_vnni; container in a virtual machine",
        ),
        (
            MachineFacts(
                cpu="Neoverse-V2",
                instruction_sets=("neon", "asimd", "dotprod", "sve", "sve2"),
                logical_cores=1,
            ),
            "machine unknown-unknown-neoverse-v2: Neoverse-V2, 1 core, asimd dotprod sve2",
        ),
    ],
)
def test_the_machine_in_a_line(machine: MachineFacts, line: str) -> None:
    assert describe_machine_line(machine) == line


# -- progress

STANDING = Progress(
    case_id="b8-c2",
    case_number=2,
    cases=4,
    step="measuring",
    round=7,
    estimate_ns=26_103_000,
    half_width=0.013,
    seconds_left=4.2,
)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (STANDING, "[2/4] b8-c2  measuring, round 7  26.10 ms ± 1.3 %  at most 4 s left"),
        (
            replace(STANDING, half_width=None, seconds_left=75),
            "[2/4] b8-c2  measuring, round 7  26.10 ms  at most 1 min 15 s left",
        ),
        (
            Progress(case_id="b1-c1", case_number=1, cases=1, step="starting"),
            "[1/1] b1-c1  starting",
        ),
    ],
)
def test_progress_in_a_line(progress: Progress, line: str) -> None:
    assert progress_line(progress, 80) == line


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (STANDING, None),
        (replace(STANDING, least_seconds=1.2), None),
        (
            replace(STANDING, least_seconds=21.7, seconds_left=58.3),
            "its rounds are slow: they take 22 to 58 s",
        ),
        (replace(STANDING, step="waiting for process 7"), "waiting for process 7"),
    ],
)
def test_long_silent_steps_are_announced(progress: Progress, text: str | None) -> None:
    assert progress.announcement == text


def test_in_a_narrow_terminal_progress_keeps_the_time_left_longest() -> None:
    lines = [progress_line(STANDING, width) for width in (60, 40, 30, 20, 8, 0)]
    assert lines == snapshot(
        [
            "[2/4] b8-c2  26.10 ms ± 1.3 %  at most 4 s left",
            "[2/4] b8-c2  at most 4 s left",
            "[2/4] b8-c2  at most 4 s left",
            "[2/4] b8-c2",
            "[2/4] b…",
            "",
        ]
    )


@given(st.text(), st.text(), st.integers(0, 120))
def test_progress_is_one_printable_line_of_the_terminals_width(
    case_id: str, step: str, width: int
) -> None:
    line = progress_line(replace(STANDING, case_id=case_id, step=step), width)
    assert display_width(line) <= width
    assert line.isprintable()


# -- numbers


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (6_708_123, "6.708"),
        (26_104_000, "26.10"),
        (999_960_000, "1000"),
        (1_234_567_890, "1235"),
        (12_345_678_900, "12346"),
        (10_512, "0.01051"),
        (123, "0.000123"),
        (0, "0"),
        (None, "?"),
    ],
)
def test_a_time_in_ms_has_four_digits_and_none_below_a_ns(ns: float | None, text: str) -> None:
    assert format_ms(ns) == text


@given(st.floats(1_000, 1e12))
def test_four_digits_of_a_time_are_within_a_two_thousandth(ns: float) -> None:
    assert float(format_ms(ns)) * 1e6 == pytest.approx(ns, rel=1 / 2000)
    assert float(format_ms(ns, ms_decimals(ns))) == float(format_ms(ns))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (61.308, "61.31"),
        (999.96, "1000"),
        (1204.4, "1.204 k"),
        (0.0734, "0.073"),
        (0, "0"),
        (None, "?"),
    ],
)
def test_a_rate_has_four_digits_and_three_decimals_at_most(value: float | None, text: str) -> None:
    assert format_rate(value) == text


def test_params_of_measured_layers_that_share_a_weight_are_explained() -> None:
    case = measured_classifier().cases[0]
    assert case.counted is not None
    shared = replace(case, counted=replace(case.counted, params=448))

    note = "params: the layers add up to 618, the model has 448: "

    assert note in layer_type_time_table(shared).caption
    assert note not in layer_type_time_table(case).caption
