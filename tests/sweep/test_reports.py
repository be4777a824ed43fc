"""The reports of a sweep: the content of the text, the JSON and the CSV, and their layout."""

from __future__ import annotations

import csv
import json
import math
import re
from io import StringIO
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.changes import LayerTypeChange, TimeChange
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.records import Case, Outcome
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.model import Code, On, Paragraph
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.sweep.records import SWEEP, Configuration, Sweep, SweepPoint, SweetSpot
from pytest_modelperf.sweep.report import SWEEP_COLUMNS, sweep_report
from pytest_modelperf.text.words import display_width
from tests.support.checkout import ROOT
from tests.support.documents import assert_read_back
from tests.support.facts import make_kind
from tests.support.known import known
from tests.support.profiles import ENGINE, measured_classifier
from tests.support.sweeps import make_configuration, make_point, make_side, make_sweep

DOCS = ROOT / "docs"
EVIL = "a\x1b[31mb\nc\u202ed"
TOO_FEW = "it wants 4 cores, and this machine offers 2. Ask for fewer with --cores."
KILLED = "the worker was ended by SIGKILL in round 3:\nit had 1.9 GiB of 2 GiB"
PLAIN = TextStyle()


def render_sweep(sweep: Sweep, style: TextStyle) -> str:
    return render_report(sweep_report(sweep, COMMAND_WORDING), style)


def render_sweep_csv(sweep: Sweep) -> str:
    return render_csv(sweep_report(sweep, COMMAND_WORDING))


def measured(factor: float = 1.0, *, half_width: float = 0.012) -> list[SweepPoint]:
    """Batches of 1 and 8 on up to 4 cores; those of 8 have too few samples for a p95."""
    points = []
    for batch, samples in ((8, 60), (1, 240)):
        for cores in (1, 2, 4):
            for streams in (1, 2):
                configuration = make_configuration(batch, cores, streams)
                median_ms = factor * 1.6 * batch**0.9 * streams**0.9 / cores**0.8
                points.append(
                    make_point(configuration, median_ms, half_width, samples)
                    if cores < 4
                    else SweepPoint(
                        configuration=configuration, outcome=Outcome.SKIPPED, reason=TOO_FEW
                    )
                )
    return points


def failed(point: SweepPoint, reason: str = KILLED) -> SweepPoint:
    return SweepPoint(configuration=point.configuration, outcome=Outcome.FAILED, reason=reason)


def one_model(threshold_ms: float | None = 6.0, half_width: float = 0.012) -> Sweep:
    side = make_side("encoder.onnx", measured(half_width=half_width), threshold_ms)
    return make_sweep(side, threshold_ms=threshold_ms)


def two_models(threshold_ms: float | None = 10.9) -> Sweep:
    """The one now is slower, and lost a configuration."""
    now = [failed(p) if p.id == "b8-c1-s2" else p for p in measured(1.118)]
    before = make_side("old.onnx", measured(), threshold_ms)
    return make_sweep(before, make_side("new.onnx", now, threshold_ms), threshold_ms=threshold_ms)


# -- text


def test_one_model_at_80_columns() -> None:
    assert render_sweep(one_model(), TextStyle(80)) == snapshot("""\
encoder.onnx: 2.808 KiB, opset 21
best: b1-c2-s2, 1.166 k items/s at 1.715 ms (within 6 ms)
may be within 6 ms or beyond: b8-c2 at 5.971 ms
a larger max-seconds makes time to separate more of them

latency and throughput
batch  cores  streams          p50 ms  p95 ms          items/s
─────────────────────────────────────────────────────────────────
    1      1        1   1.600 ± 1.2 %   1.744    625.0 ± 1.2 %
    1      1        2   2.986 ± 1.2 %   3.254    669.9 ± 1.2 %
    1      2        1  0.9190 ± 1.2 %   1.002  1.088 k ± 1.2 %
    1      2        2   1.715 ± 1.2 %   1.869  1.166 k ± 1.2 %  <
    8      1        1   10.40 ± 1.2 %   (130)    769.5 ± 1.2 %
    8      1        2   19.40 ± 1.2 %   (130)    824.7 ± 1.2 %
    8      2        1   5.971 ± 1.2 %   (130)  1.340 k ± 1.2 %  ?
    8      2        2   11.14 ± 1.2 %   (130)  1.436 k ± 1.2 %
±: the larger side of the 95 % interval
(n): it takes n samples to tell; a larger max-seconds makes time for more
< most items/s within 6 ms; ? may be within 6 ms or beyond

b1-c4, b1-c4-s2, b8-c4, b8-c4-s2: skipped: it wants 4 cores, and this machine
  offers 2. Ask for fewer with --cores.

scaling, all else as in the best, b1-c2-s2
more of     from      to              items/s  efficiency    everywhere
───────────────────────────────────────────────────────────────────────
batch x8    b1-c2-s2  b8-c2-s2  x1.23 ± 2.0 %              x1.23 … 1.23
cores x2    b1-c1-s2  b1-c2-s2  x1.74 ± 2.0 %        87 %  x1.74 … 1.74
streams x2  b1-c2     b1-c2-s2  x1.07 ± 2.0 %              x1.07 … 1.07
efficiency: the share of what there would be if all of the cores paid off
everywhere: the least and the most, whatever all else is

how: 48 rounds in 6 passes over 8 configurations in random order, each with a
     fresh session, 61.2 s; each interval holds its own figure with 95 %
     confidence
machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended
""")


def test_two_models_at_80_columns_have_a_table_each() -> None:
    text = render_sweep(two_models(), TextStyle(80))
    assert re.findall("^scaling of (.), all else as in the best, b8-c2$", text, re.MULTILINE) == [
        *("A", "B")
    ]
    assert text[: text.index("\nscaling of A")] == snapshot("""\
A  old.onnx: 2.808 KiB, opset 21
B  new.onnx: 2.808 KiB, opset 21
best for A: b8-c2, 1.340 k items/s at 5.971 ms (within 10.9 ms)
best for B: b8-c2, 1.198 k items/s at 6.676 ms (within 10.9 ms)
B against A at b8-c2: latency +11.8 % (+9.6 … +14.0 %), items/s −10.6 % (−12.3 …
  −8.8 %)

A: old.onnx
batch  cores  streams          p50 ms  p95 ms          items/s
─────────────────────────────────────────────────────────────────
    1      1        1   1.600 ± 1.2 %   1.744    625.0 ± 1.2 %
    1      1        2   2.986 ± 1.2 %   3.254    669.9 ± 1.2 %
    1      2        1  0.9190 ± 1.2 %   1.002  1.088 k ± 1.2 %
    1      2        2   1.715 ± 1.2 %   1.869  1.166 k ± 1.2 %
    8      1        1   10.40 ± 1.2 %   (130)    769.5 ± 1.2 %
    8      1        2   19.40 ± 1.2 %   (130)    824.7 ± 1.2 %
    8      2        1   5.971 ± 1.2 %   (130)  1.340 k ± 1.2 %  <
    8      2        2   11.14 ± 1.2 %   (130)  1.436 k ± 1.2 %

B: new.onnx
batch  cores  streams         p50 ms  p95 ms          items/s
────────────────────────────────────────────────────────────────
    1      1        1  1.789 ± 1.2 %   1.950    559.0 ± 1.2 %
    1      1        2  3.338 ± 1.2 %   3.638    599.2 ± 1.2 %
    1      2        1  1.027 ± 1.2 %   1.120    973.3 ± 1.2 %
    1      2        2  1.917 ± 1.2 %   2.090  1.043 k ± 1.2 %
    8      1        1  11.62 ± 1.2 %   (130)    688.3 ± 1.2 %
    8      2        1  6.676 ± 1.2 %   (130)  1.198 k ± 1.2 %  <
    8      2        2  12.46 ± 1.2 %   (130)  1.284 k ± 1.2 %
±: the larger side of the 95 % interval
(n): it takes n samples to tell; a larger max-seconds makes time for more
< most items/s within 10.9 ms

B over A
batch  cores  streams  latency        interval  items/s        interval
───────────────────────────────────────────────────────────────────────
    1      1        1  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    1      1        2  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    1      2        1  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    1      2        2  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    8      1        1  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    8      2        1  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
    8      2        2  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
interval: 95 %, of pairs of rounds

b1-c4, b1-c4-s2, b8-c4, b8-c4-s2: skipped: it wants 4 cores, and this machine
  offers 2. Ask for fewer with --cores.
B b8-c1-s2: failed: the worker was ended by SIGKILL in round 3:
  it had 1.9 GiB of 2 GiB
""")


def test_at_160_columns_the_change_has_both_medians() -> None:
    text = render_sweep(two_models(), TextStyle(160))
    _, _, changes = text.partition("\n\nB over A\n")
    assert "".join(changes.splitlines(keepends=True)[:3]) == snapshot("""\
batch  cores  streams  A p50 ms  B p50 ms  latency        interval  items/s        interval
───────────────────────────────────────────────────────────────────────────────────────────
    1      1        1     1.600     1.789  +11.8 %  +9.6 … +14.0 %  −10.6 %  −12.3 … −8.8 %
""")


def test_colour_adds_nothing_but_colour_and_marks_the_best() -> None:
    plain, coloured = (render_sweep(two_models(), TextStyle(80, color)) for color in (False, True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    best = [line for line in coloured.splitlines() if "<\x1b" in line]
    assert len(best) == 2
    assert all(line.startswith("\x1b[32m") for line in best)
    assert "\x1b" not in plain


@pytest.mark.parametrize("width", [80, 81, 100, 120, 157, 158, 159, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for sweep in (one_model(), two_models(), one_model(0.01)):
        lines = render_sweep(sweep, TextStyle(width)).splitlines()
        assert max(map(display_width, lines)) <= width


@pytest.mark.parametrize("width", [60, 80, 160])
def test_items_a_second_and_the_mark_of_the_best_are_shown_at_any_width(width: int) -> None:
    text = render_sweep(one_model(), TextStyle(width))
    assert re.search(r"%(  █+ *)?  <$", text, re.MULTILINE)


def spot_lines(sweep: Sweep) -> list[str]:
    """Return the lines of a text about the best, below the names of the models."""
    opening = sweep_report(sweep, COMMAND_WORDING).opening
    return [line.text for line in opening[len(sweep.sides) :] if line.on is On.TEXT]


def test_the_best_configuration_and_possible_ones_are_named() -> None:
    found = {
        "any latency will do": spot_lines(one_model(None)),
        "indistinguishable": spot_lines(one_model(None, half_width=0.2)),
        "within or beyond": spot_lines(one_model(0.92)),
        "none is within": spot_lines(one_model(0.5)),
    }
    assert found == snapshot(
        {
            "any latency will do": ["best: b8-c2-s2, 1.436 k items/s at 11.14 ms"],
            "indistinguishable": [
                "best: b8-c2-s2, 1.436 k items/s at 11.14 ms",
                "indistinguishable from it: b8-c2, b1-c2, b1-c2-s2",
                "a larger max-seconds makes time to separate more of them",
            ],
            "within or beyond": [
                "no configuration is surely within 0.92 ms; the quickest is b1-c2 at 0.9190 ms",
                "may be within 0.92 ms or beyond: b1-c2 at 0.9190 ms",
                "a larger max-seconds makes time to separate more of them",
            ],
            "none is within": [
                "no configuration is surely within 0.5 ms; the quickest is b1-c2 at 0.9190 ms"
            ],
        }
    )


def test_a_mean_is_not_called_a_median_if_the_table_has_none() -> None:
    point = make_point(Configuration(Case(1, 1)), 5.0)
    assert point.latency is not None
    few = tuple(
        replace(each, value_ns=None, low_ns=None, high_ns=None)
        for each in point.latency.percentiles
    )
    point = replace(point, latency=replace(point.latency, percentiles=few, mean_ns=5.1e6))
    sweep = make_sweep(make_side("few.onnx", [point], 1.0), threshold_ms=5.0)
    assert "(11)" in render_sweep(sweep, TextStyle(80))
    lines = spot_lines(sweep)
    assert lines[0].endswith("the quickest is b1-c1 with a mean of 5.100 ms")
    assert not any("at 5.100 ms" in line for line in lines)


def in_phase(phase: Phase, median_ms: float) -> SweepPoint:
    case = Case(1, 1, phase=GenerationPhase(phase, 16, 8))
    return make_point(Configuration(case), median_ms)


def test_a_prefill_is_not_the_quickest_if_steps_compete() -> None:
    points = [in_phase(Phase.PREFILL, 0.5), in_phase(Phase.STEP, 5.0)]
    sweep = make_sweep(make_side("decoder.onnx", points, 1.0), threshold_ms=1.0)
    (line,) = spot_lines(sweep)
    assert line.endswith("the quickest is b1-c1-prompt16-generate8-step at 5.000 ms")


def test_without_measured_steps_there_is_no_best() -> None:
    points = [in_phase(Phase.PREFILL, 0.5), failed(in_phase(Phase.STEP, 5.0))]
    sweep = make_sweep(make_side("decoder.onnx", points))
    assert spot_lines(sweep) == ["best: no step could be measured"]


def test_an_undecided_step_below_the_best_asks_for_no_more_time() -> None:
    sweep = one_model(10.45)
    (side,) = sweep.sides
    assert side.spot.undecided == ("b8-c1",)
    assert not any("--max-seconds" in line for line in spot_lines(sweep))


def test_without_measured_cases_there_is_no_best_and_no_table() -> None:
    points = [failed(p) for p in measured() if p.configuration.case.cores == 1]
    sweep = make_sweep(make_side("encoder.onnx", points))
    assert render_sweep(sweep, TextStyle(80)) == snapshot("""\
encoder.onnx: 2.808 KiB, opset 21

b1-c1, b1-c1-s2, b8-c1, b8-c1-s2: failed: the worker was ended by SIGKILL in
  round 3:
  it had 1.9 GiB of 2 GiB

machine linux-x86_64-zen4-2c: AMD EPYC 9R14, 2 cores, 24.00 GiB, avx2 avx512f
  avx512_vnni; container in a virtual machine
engine onnxruntime 1.31.1: CPUExecutionProvider,
  graph_optimization_level=extended
""")


def test_a_side_that_was_not_measured_says_so_next_to_one_that_was() -> None:
    points = measured()[:2]
    sweep = make_sweep(
        make_side("old.onnx", [failed(p) for p in points]), make_side("new.onnx", points)
    )
    text = render_sweep(sweep, TextStyle(80))
    assert "best for A: none could be measured\nbest for B: b8-c1-s2, " in text
    assert "A b8-c1, A b8-c1-s2: failed: the worker was ended" in text


def test_each_reason_is_shown_once_with_all_cases_that_have_it() -> None:
    text = render_sweep(two_models(), PLAIN)
    assert text.count(TOO_FEW) == 1
    assert "b1-c4, b1-c4-s2, b8-c4, b8-c4-s2: skipped: it wants 4 cores" in text
    assert "B b8-c1-s2: failed: the worker was ended by SIGKILL in round 3:\n" in text


def test_a_page_begins_with_every_configuration_that_is_missing_and_then_the_best() -> None:
    points = [failed(p) if p.configuration.case.batch_size == 8 else p for p in measured()]
    missing, best = sweep_report(make_sweep(make_side("a.onnx", points)), COMMAND_WORDING).findings
    assert (missing.word, missing.title) == ("failed", "8 configurations")
    (reasons,) = missing.blocks
    assert isinstance(reasons, Paragraph)
    assert [line.text for line in reasons.lines] == [
        f"b1-c4, b1-c4-s2: skipped: {TOO_FEW}",
        f"b8-c1, b8-c1-s2, b8-c2, b8-c2-s2, b8-c4, b8-c4-s2: failed: {KILLED}",
    ]
    assert (best.word, best.title) == ("best", "b1-c2-s2")
    assert [block.text for block in best.blocks if isinstance(block, Code)] == [
        "modelperf profile a.onnx --batch 1 --cores 2"
    ]


def test_dimensions_have_a_column_only_if_they_vary() -> None:
    points = [
        make_point(make_configuration(dims=(("seq", size),)), size / 10) for size in (64, 128)
    ]
    text = render_sweep(make_sweep(make_side("encoder.onnx", points)), TextStyle(80))
    assert re.search(r"^batch  cores  streams  dims  ", text, re.MULTILINE)
    assert re.search(r"^ +1 +1 +1  seq=128 ", text, re.MULTILINE)
    assert "dims" not in render_sweep(one_model(), PLAIN)


def test_a_scaling_of_two_configurations_has_no_range_of_gains() -> None:
    streams = [p for p in measured() if p.id in {"b1-c1", "b1-c1-s2"}]
    text = render_sweep(make_sweep(make_side("encoder.onnx", streams)), TextStyle(80))
    assert "streams x2  b1-c1  b1-c1-s2" in text
    assert "everywhere" not in text
    assert "efficiency" not in text


def test_an_unknown_interval_is_a_question_mark() -> None:
    point = make_point(make_configuration(), 5.0, None)
    text = render_sweep(make_sweep(make_side("encoder.onnx", [point])), PLAIN)
    assert re.search(r"^ +1 +1 +1  5\.000 ± \?   5\.450  200\.0 ± \?  <$", text, re.MULTILINE)


def test_an_interval_wider_than_its_value_says_no_more_than_that() -> None:
    point = make_point(make_configuration(), 5.0, 580.07)
    text = render_sweep(make_sweep(make_side("encoder.onnx", [point])), PLAIN)
    assert "5.000 ± >100 %   5.450  200.0 ± >100 %  <\n" in text


def test_engines_are_distinguished_if_they_differ() -> None:
    before, after = two_models().sides
    assert render_sweep(two_models(), PLAIN).count("engine onnxruntime") == 1
    older = replace(before, engine=replace(ENGINE, version="1.20.1"))
    text = render_sweep(make_sweep(older, after), PLAIN)
    assert "\nA: engine onnxruntime 1.20.1: " in text
    assert "\nB: engine onnxruntime 1.31.1: " in text


def evil_sweep() -> Sweep:
    point = make_point(make_configuration(dims=((EVIL, 3),)), 5.0)
    other = make_configuration(2, dims=((EVIL, 3),))
    lost = SweepPoint(configuration=other, outcome=Outcome.FAILED, reason=EVIL)
    side = make_side(EVIL, [point, lost])
    engine = replace(ENGINE, options={EVIL: EVIL})
    return replace(make_sweep(replace(side, engine=engine)), notes=(EVIL,))


def test_no_name_can_steer_a_terminal() -> None:
    for sweep in (evil_sweep(), make_sweep(*evil_sweep().sides * 2)):
        for text in (render_sweep(sweep, TextStyle(80)), render_sweep_csv(sweep)):
            assert all(char.isprintable() for line in text.split("\n") for char in line)
        assert SWEEP.dump(sweep).replace("\n", "").isprintable()


# -- the layers at the best


def type_change(op: str, before_ms: float, after_ms: float, share: float) -> LayerTypeChange:
    before, after = (make_kind(op, 3, ms=ms) for ms in (before_ms, after_ms))
    ns = (after_ms - before_ms) * 1e6
    time = TimeChange(ns=ns, low_ns=ns - 1e4, high_ns=ns + 1e4, share=share)
    return LayerTypeChange(op, before, after, time)


def compared(*metrics: Metric) -> Comparison:
    (before, after) = (side.model for side in two_models().sides)
    types = (type_change("Conv", 0.7, 0.79, 0.9), type_change("Relu", 0.2, 0.21, 0.1))
    case = CaseComparison(Case(1, 2), metrics, types, rounds=9, seconds=2.0)
    return Comparison(before, after, (case,), tolerance=0.03, confidence=0.99)


P50 = Metric(
    "latency_p50", 0.92, 1.03, Verdict.REGRESSED, interval=(1.102, 1.131), allowed=0.03,
    measured_ratio=1.118,
)  # fmt: skip


def test_the_comparison_at_the_best_is_a_line_and_its_layer_types() -> None:
    text = render_sweep(replace(two_models(), comparison=compared(P50)), TextStyle(80))
    _, _, rest = text.partition("\n\nat b1-c2")
    shown, _, _ = rest.partition("\n\nhow:")
    assert f"at b1-c2{shown}" == snapshot("""\
at b1-c2 regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed
  +3 %

time by layer type, in ms
layer type  count  before    now  change         interval  explains
──────────────────────────────────────────────────────────────────────
Conv            3   0.700  0.790  +0.090  +0.080 … +0.100      90 %  <
Relu            3   0.200  0.210  +0.010   0.000 … +0.020

total               0.900  1.000  +0.100\
""")


def test_the_line_always_has_the_change_of_the_latency() -> None:
    macs = Metric("macs", 100, 200, Verdict.REGRESSED, allowed=0.0)
    p50 = replace(P50, verdict=Verdict.PASSED, measured_ratio=1.002, interval=(0.999, 1.005))
    text = render_sweep(replace(two_models(), comparison=compared(macs, p50)), PLAIN)
    assert (
        "\nat b1-c2 regressed: MACs +100.0 %, allowed 0 %\n"
        "p50 latency +0.2 % (99 % interval −0.1 … +0.5 %), allowed +3 %\n"
    ) in text


def test_a_best_that_could_not_be_looked_at_closely_says_why() -> None:
    profile = measured_classifier()
    (case,) = profile.cases
    lost = replace(case, measured=None, outcome=Outcome.FAILED, reason=KILLED)
    text = render_sweep(replace(one_model(), profile=replace(profile, cases=(lost,))), PLAIN)
    lines = KILLED.splitlines()
    assert f"at {case.case.id}\nfailed: {lines[0]}\n  {lines[1]}\n" in text
    assert case.measured is not None
    untimed = replace(case.measured, layer_times=None, notes=("no layer times: it crashed",))
    found = replace(profile, cases=(replace(case, measured=untimed),))
    text = render_sweep(replace(one_model(), profile=found), PLAIN)
    assert f"at {case.case.id}\nnote: no layer times: it crashed\n" in text


def test_a_profile_at_the_best_is_its_layer_types() -> None:
    text = render_sweep(replace(one_model(), profile=measured_classifier()), TextStyle(80))
    assert "\nat b1-c1\n\nby layer type\nlayer type " in text
    assert re.search(r"^Conv +1 +[0-9.]+ +90\.0 % ", text, re.MULTILINE)


def test_only_the_best_of_all_layers_is_in_a_text() -> None:
    profile = measured_classifier()
    (case,) = profile.cases
    sweep = one_model()
    side = sweep.sides[0]
    best = side.point(known(side.spot.best)).configuration.case
    cases = (case, replace(case, case=best))
    text = render_sweep(replace(sweep, profile=replace(profile, cases=cases)), TextStyle(80))
    assert re.findall(r"^at (.+)$", text, re.MULTILINE) == [best.id]


# -- JSON


def loaded(sweep: Sweep) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SWEEP.dump(sweep))
    return document


def test_a_sweep_as_json() -> None:
    points = [make_point(make_configuration(1, cores), 2.0 / cores) for cores in (1, 2)]
    sweep = make_sweep(make_side("encoder.onnx", points, 1.5), threshold_ms=1.5)
    document = loaded(sweep)
    (side,) = document["sides"]
    for name in ("model", "engine"):
        assert side.pop(name)["name"]
    assert document.pop("machine")["key"] == "linux-x86_64-zen4-2c"
    first, _ = side["configurations"]
    assert first.pop("latency")["p50_ms"] == 2.0
    del side["configurations"][1]
    assert document == snapshot(
        {
            "schema": 1,
            "latency_threshold_ms": 1.5,
            "confidence": 0.95,
            "passes": 6,
            "seconds": 61.24,
            "sides": [
                {
                    "configurations": [
                        {
                            "id": "b1-c1",
                            "batch_size": 1,
                            "cores": 1,
                            "streams": 1,
                            "dims": {},
                            "phase": None,
                            "prompt": None,
                            "generate": None,
                            "outcome": "measured",
                            "reason": None,
                            "items_per_second": 500.0,
                            "interval": [495.0, 505.0],
                            "rounds": [
                                {
                                    "samples": 40, "min_ms": 1.8, "p5_ms": 1.9, "p25_ms": 1.96,
                                    "p50_ms": 2.0, "p75_ms": 2.02, "p95_ms": 2.18, "max_ms": 3.0,
                                }
                            ],
                        }
                    ],
                    "sweet_spot": {"best": "b1-c2", "equals": [], "undecided": []},
                    "scaling": [
                        {
                            "of": "cores", "base": "b1-c1", "id": "b1-c2", "factor": 2.0,
                            "gain": 2.0, "interval": [1.96, 2.04], "efficiency": 1.0,
                        }
                    ],
                }
            ],
            "changes": [],
            "profile": None,
            "comparison": None,
            "notes": [],
        }
    )  # fmt: skip


def test_json_has_null_for_what_was_not_measured_and_says_why() -> None:
    sides = loaded(two_models())["sides"]
    found = {each["id"]: each for each in sides[1]["configurations"]}
    lost, skipped, good = found["b8-c1-s2"], found["b1-c4"], found["b1-c1"]
    assert (lost["outcome"], lost["reason"]) == ("failed", KILLED)
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", TOO_FEW)
    assert (good["outcome"], good["reason"]) == ("measured", None)
    assert set(lost["latency"].values()) == {None}
    assert lost["items_per_second"] is lost["interval"] is None
    assert found["b8-c1"]["latency"]["p95_ms"] is None


def test_json_has_null_for_nan_and_infinity() -> None:
    point = replace(
        make_point(make_configuration(), 2.0, None), throughput=Ratio(math.inf, None, None)
    )
    (side,) = loaded(make_sweep(make_side("encoder.onnx", [point])))["sides"]
    (found,) = side["configurations"]
    assert found["items_per_second"] is found["interval"] is None
    assert found["latency"]["p50_ms"] == 2.0


def test_json_has_a_change_for_each_configuration_of_both() -> None:
    document = loaded(two_models())
    (before, after), changes = document["sides"], document["changes"]
    ids = [each["id"] for each in before["configurations"]]
    assert ids == [each["id"] for each in after["configurations"]]
    assert {each["id"] for each in changes} == {i for i in ids if "c4" not in i and i != "b8-c1-s2"}
    for each in changes:
        assert each["latency"]["ratio"] == pytest.approx(1.118)
        assert each["throughput"]["ratio"] == pytest.approx(1 / 1.118)
        low, high = each["latency"]["interval"]
        assert low < 1.118 < high
    assert loaded(one_model())["changes"] == []


def test_json_has_what_was_found_at_the_best_and_is_read_back_by_its_type() -> None:
    sweep = replace(two_models(), comparison=compared(P50), profile=measured_classifier())
    document = loaded(sweep)
    assert document["comparison"]["verdict"] == "regressed"
    assert document["profile"]["cases"][0]["id"] == "b1-c1"
    assert loaded(one_model())["comparison"] is loaded(one_model())["profile"] is None
    assert_read_back(SWEEP.dump(sweep), SWEEP)


def test_the_page_on_sweeps_names_every_column_of_the_csv() -> None:
    page = (DOCS / "sweep.md").read_text(encoding="utf-8")
    assert "have intervals in columns such as `p50_low_ms`" in " ".join(page.split())
    # The ends of an interval are columns of their own, named after the figure.
    figures = {re.sub("_(low|high)", "", name) for name in SWEEP_COLUMNS}
    assert {name for name in figures if f"`{name}`" not in page} == set()


# -- CSV


def rows_of(sweep: Sweep) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(render_sweep_csv(sweep))))


def test_csv_has_a_row_for_each_side_and_configuration() -> None:
    sweep = two_models()
    rows = rows_of(sweep)
    assert [(row["side"], row["configuration"]) for row in rows] == [
        (label, point.id)
        for label, side in zip("AB", sweep.sides, strict=True)
        for point in side.points
    ]
    (columns,) = {len(row) for row in csv.reader(StringIO(render_sweep_csv(sweep)))}
    assert columns == len(SWEEP_COLUMNS)
    lost = next(row for row in rows if row["outcome"] == "failed")
    assert lost["reason"].startswith("the worker was ended")
    assert {lost[name] for name in SWEEP_COLUMNS[SWEEP_COLUMNS.index("samples") :]} == {""}
    assert all(row["latency_ratio"] == "" for row in rows_of(one_model()))


def test_every_report_distinguishes_the_phases_of_a_generation() -> None:
    phases = [GenerationPhase(phase, 16, 8) for phase in (Phase.STEP, Phase.PREFILL)]
    points = [make_point(Configuration(Case(1, 1, phase=phase)), 2.0) for phase in phases]
    sweep = make_sweep(make_side("decoder.onnx", points, None), threshold_ms=None)
    rows = [(row["phase"], row["prompt"], row["generate"]) for row in rows_of(sweep)]
    assert rows == [("step", "16", "8"), ("prefill", "16", "8")]
    (side,) = json.loads(SWEEP.dump(sweep))["sides"]
    assert [each["phase"] for each in side["configurations"]] == ["step", "prefill"]
    assert side["sweet_spot"]["best"] == "b1-c1-prompt16-generate8-step"
    lines = [
        line for line in render_sweep(sweep, TextStyle(100)).splitlines() if " prompt16" in line
    ]
    assert ["prompt16-prefill" in line for line in lines] == [True, False]
    assert "prompt16-generate8-step" in lines[1]
    assert lines[1].endswith("<")


def test_the_first_rows_of_the_csv() -> None:
    points = [make_point(make_configuration(1, cores), 2.0 / cores) for cores in (1, 2)]
    sides = make_side("old.onnx", points, 1.5), make_side("new.onnx", points, 1.5)
    assert render_sweep_csv(make_sweep(*sides, threshold_ms=1.5)) == snapshot("""\
side,model,configuration,batch_size,cores,streams,dims,outcome,reason,sweet_spot,samples,rounds,p50_ms,p50_low_ms,p50_high_ms,p95_ms,p95_low_ms,p95_high_ms,items_per_second,items_per_second_low,items_per_second_high,latency_ratio,latency_ratio_low,latency_ratio_high,items_ratio,items_ratio_low,items_ratio_high,phase,prompt,generate
A,old.onnx,b1-c1,1,1,1,,measured,,,240,6,2.0,1.99,2.02,2.18,2.1691,2.2018,500.0,495.0,505.0,,,,,,,,,
A,old.onnx,b1-c2,1,2,1,,measured,,best,240,6,1.0,0.995,1.01,1.09,1.08455,1.1009,1000.0,990.0,1010.0,,,,,,,,,
B,new.onnx,b1-c1,1,1,1,,measured,,,240,6,2.0,1.99,2.02,2.18,2.1691,2.2018,500.0,495.0,505.0,1.0,0.98,1.02,1.0,0.98,1.02,,,
B,new.onnx,b1-c2,1,2,1,,measured,,best,240,6,1.0,0.995,1.01,1.09,1.08455,1.1009,1000.0,990.0,1010.0,1.0,0.98,1.02,1.0,0.98,1.02,,,
""")


def test_csv_names_the_role_of_a_configuration() -> None:
    sweep = one_model()
    (side,) = sweep.sides
    spot = SweetSpot(best="b1-c1", equals=("b1-c2",), undecided=("b8-c1",))
    rows = rows_of(replace(sweep, sides=(replace(side, spot=spot),)))
    roles = {row["configuration"]: row["sweet_spot"] for row in rows if row["sweet_spot"]}
    assert roles == {"b1-c1": "best", "b1-c2": "equal", "b8-c1": "undecided"}


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_csv_has_no_formula(start: str) -> None:
    formula = f"{start}1+1"
    point = make_point(make_configuration(dims=((formula, 3),)), 5.0)
    lost = failed(make_point(make_configuration(2), 5.0), formula)
    rows = rows_of(make_sweep(make_side(formula, [point, lost])))
    assert [row["model"] for row in rows] == [f"'{formula}"] * 2
    assert rows[0]["dims"] == f"'{formula}=3"
    assert rows[1]["reason"] == f"'{formula}"
