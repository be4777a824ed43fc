"""The texts of a test run: the failure of one test, the summary of all, and those for machines."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt
from msgspec.structs import replace

from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.changes import LayerTypeChange
from pytest_modelperf.comparing.findings import advise
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.records import COMPARISON, CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.profiler.measurements import SideRun
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.model import On
from pytest_modelperf.report.page import TextStyle, fold_command, wrap
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.testing.formats import (
    MAX_OF_A_KIND,
    dump_bencher_run,
    dump_benchmarks,
    github_annotations,
    junit_properties,
)
from pytest_modelperf.testing.outcome_names import name_outcomes
from pytest_modelperf.testing.outcomes import RUN, RunReport, Source
from pytest_modelperf.testing.report import (
    MAX_BYTES,
    MAX_LINES,
    dump_run,
    run_report,
    short_verdict,
)
from pytest_modelperf.testing.wording import FALSE_ALARMS, PYTHON_WORDING, describe_place
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import display_width
from tests.support.bencher import assert_is_bencher
from tests.support.comparisons import (
    BROKEN,
    BUDGET,
    FASTER,
    OPEN,
    SAME,
    SLOWER,
    change,
    compared,
    exact,
    kind,
)
from tests.support.documents import assert_read_back
from tests.support.facts import make_engine, make_model
from tests.support.known import known
from tests.support.profiles import MACHINE, make_latency, make_round
from tests.support.rendered import (
    render_comparison,
    render_outcome,
    render_run_markdown,
    render_summary,
)
from tests.support.report_parts import facts_of, tables_of
from tests.support.run_reports import (
    ALL,
    CALM,
    EVERYWHERE,
    FRESH,
    NEAR,
    STATIC,
    baseline,
    everything_named,
    many,
    outcome,
    plan,
    run,
)

MARKDOWN = MarkdownIt("commonmark").enable("table")


def failure(
    case: CaseComparison,
    width: int | None = 80,
    **facts: Any,  # noqa: ANN401  # any field of an outcome
) -> str:
    return render_outcome(outcome(case, **facts), TextStyle(width), verbosity=1)


def brief(
    case: CaseComparison,
    width: int | None = 80,
    **facts: Any,  # noqa: ANN401  # any field of an outcome
) -> str:
    return render_outcome(outcome(case, **facts), TextStyle(width))


def summary(*cases: CaseComparison, width: int | None = 80, verbosity: int = 0) -> str:
    report = run(*(outcome(case) for case in cases))
    return render_summary(report, TextStyle(width), verbosity=verbosity)


@pytest.mark.parametrize("width", [80, 160])
def test_a_regression_has_the_figures_of_a_comparison_and_says_how_to_accept_it(width: int) -> None:
    compared_text = render_comparison(compared(SLOWER), TextStyle(width), COMMAND_WORDING)
    _, _, figures = compared_text.split("\n\n", 2)
    head, body = failure(SLOWER, width=width).split("\n\n", 1)
    assert " ".join(head.split()) == (
        "regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %; "
        "also p95 latency"
    )
    shown, accept = body.split("accept: ")
    assert shown == figures
    assert shlex.split(accept.replace("\\\n", "")) == [
        "pytest", "--modelperf", "--modelperf-update-baseline", "models/encoder.onnx::b8-c2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "case", [SLOWER, BUDGET, EVERYWHERE, OPEN, BROKEN], ids=lambda case: case.verdict.value
)
def test_a_failure_is_read_in_a_few_lines(case: CaseComparison) -> None:
    shown = brief(case)
    assert len(shown.splitlines()) <= 22
    assert shown.startswith(failure(case).splitlines()[0])


def test_a_regression_begins_with_its_reasons_and_has_the_types_that_explain_it() -> None:
    assert brief(SLOWER) == snapshot("""\
regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %;
  also p95 latency
why: 12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %
why: 4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %
why: no ReorderOutput kernels put in by the engine any more, 2 before: −0.03 ms

metric         before       now   change         interval  allowed
─────────────────────────────────────────────────────────────────────────────
p50 latency  26.10 ms  29.18 ms  +11.8 %  +10.2 … +13.1 %     +3 %  regressed
p95 latency  27.02 ms  30.26 ms  +12.0 %   +9.1 … +14.4 %     +3 %  regressed

time by layer type, in ms
layer type     before    now  change       interval  explains
──────────────────────────────────────────────────────────────────────────
Conv            20.11  22.40   +2.29  +2.20 … +2.38      74 %  <
Relu                -   0.51   +0.51  +0.42 … +0.60      17 %  < was fused
Transpose           -   0.31   +0.31  +0.22 … +0.40      10 %  < new
3 other types    5.99   5.96   −0.03

-v also shows 4 figures, 3 layers and 2 notes
accept: pytest --modelperf --modelperf-update-baseline \\
   "models/encoder.onnx::b8-c2"
""")


def test_a_failure_of_one_figure_has_both_values_in_its_first_sentence() -> None:
    assert brief(OPEN) == snapshot("""\
inconclusive: p95 latency +4.0 % (99 % interval −1.3 … +9.5 %), allowed +3 %;
  3.520 ms before, 3.660 ms now
this run could see p95 latency +4.1 % or more: give more time with
  --modelperf-max-seconds 16

note: the worker was not pinned to its processors
-v also shows 4 figures and 2 notes
""")


def test_a_growth_from_zero_has_its_values_once() -> None:
    made = Metric("sessions_made", 0, 1, Verdict.REGRESSED, allowed=0.0)
    shown = brief(replace(SLOWER, metrics=(made,), reasons=(), layer_types=()))
    assert shown.splitlines()[0] == "regressed: sessions made 0 before, 1 now"


def test_a_brief_failure_counts_the_figures_that_it_leaves_out() -> None:
    shown = brief(EVERYWHERE)
    assert "peak memory" not in shown
    assert "\n-v also shows 1 figure and 1 note\n" in shown


def test_a_regression_against_stored_times_says_so() -> None:
    notes = ("the twin is not trusted",)
    shown = brief(replace(SLOWER, how=How.STORED, notes=notes))
    assert "how: 9 rounds against stored times" in shown
    assert "note: the twin is not trusted" in shown
    assert "note:" not in brief(replace(SLOWER, notes=notes))


def test_no_more_than_three_reasons_and_five_types_are_shown() -> None:
    ops = [f"Op{number}" for number in range(9)]
    types = tuple(
        LayerTypeChange(op, kind(op, 1, 1.0), kind(op, 1, 2.0), change(1.0, 0.1)) for op in ops
    )
    reasons = tuple(f"{op}: the same layer takes 2.00x as long" for op in ops)
    shown = brief(replace(SLOWER, layer_types=types, reasons=reasons))
    assert [op for op in ops if f"{op}: " in shown] == ops[:3]
    assert [op for op in ops if re.search(f"^{op} ", shown, re.MULTILINE)] == ops[:5]
    assert "\n4 other types " in shown
    assert "-v also shows 6 reasons, " in shown


def test_over_budget_names_the_limit_and_says_where_it_is_changed() -> None:
    shown = failure(BUDGET)
    assert shown == snapshot("""\
over budget: p95 latency 14.21 ms (99 % interval 13.80 … 14.70 ms), limit
  12.00 ms

metric            now          interval      allowed
─────────────────────────────────────────────────────────────────
p95 latency  14.21 ms  13.80 … 14.70 ms  <= 12.00 ms  over budget

how: 6 rounds, 1.0 s
budget: change it where it is set, in the test or in [tool.modelperf]; a new
        baseline does not affect it
""")
    assert "accept:" not in shown


def test_budgets_of_every_unit_with_a_regression_at_80_columns() -> None:
    assert failure(EVERYWHERE) == snapshot("""\
regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %;
  also p95 latency; also over budget: p99 latency, items/s, MACs

metric         before            now   change           allowed
────────────────────────────────────────────────────────────────────────────
p50 latency  26.10 ms       29.18 ms  +11.8 %              +3 %  regressed
p95 latency  27.02 ms       30.26 ms  +12.0 %              +3 %  regressed
p99 latency                 14.21 ms                <= 12.00 ms  over budget
items/s                        61.30                     >= 100  over budget
peak memory                 314.6 MB                <= 320.0 MB  passed
MACs                   4,100,000,001           <= 4,100,000,000  over budget

how: 6 rounds as a duet, 1.0 s
budget: change it where it is set, in the test or in [tool.modelperf]; a new
        baseline does not affect it
accept: pytest --modelperf --modelperf-update-baseline \\
   "models/encoder.onnx::b8-c1"
""")


def test_a_case_near_its_limit_says_that_the_limit_is_within_the_interval() -> None:
    assert failure(NEAR) == snapshot("""\
inconclusive: p50 latency 12.10 ms (99 % interval 11.80 … 12.50 ms), limit
  12.00 ms
the interval holds the limit of the p50 latency: give more time with
  --modelperf-max-seconds 13

metric            now          interval      allowed
──────────────────────────────────────────────────────────────────
p50 latency  12.10 ms  11.80 … 12.50 ms  <= 12.00 ms  inconclusive

how: 6 rounds, 1.0 s
""")


def test_no_run_of_more_than_ten_minutes_is_advised_but_what_else_helps() -> None:
    long = replace(OPEN, seconds=500.0)
    assert "".join(failure(long).splitlines(keepends=True)[2:5]) == snapshot("""\
this run could see p95 latency +4.1 % or more: too noisy to decide in a
  reasonable time: measure on a quieter machine (modelperf doctor shows how
  quiet this one is)
""")
    assert "tolerance" not in failure(replace(NEAR, seconds=900.0))


def test_no_more_time_is_advised_if_it_would_not_decide() -> None:
    near = replace(NEAR.metrics[0], after=12.001)
    shown = failure(replace(NEAR, metrics=(near,)), width=160)
    assert "for any run to decide: change the budget where it is set" in shown
    assert "max-seconds" not in shown
    level = replace(OPEN.metrics[1], measured_ratio=1.031, rounds_needed=None)
    shown = failure(replace(OPEN, metrics=(level,)), width=160)
    assert "for any run to decide: allow more with --modelperf-tolerance" in shown
    level = replace(OPEN.metrics[1], measured_ratio=1.04, rounds_needed=None)
    shown = failure(replace(OPEN, metrics=(level,)), width=160)
    assert "max-seconds" not in shown


def test_the_needed_time_is_a_number_only_if_every_open_figure_has_one() -> None:
    unknown = Metric("latency_p95", None, None, Verdict.INCONCLUSIVE, detectable=math.inf)
    shown = failure(replace(OPEN, metrics=(*OPEN.metrics, unknown)), width=160)
    assert "give more time with --modelperf-max-seconds\n" in shown


def test_a_comparison_with_stored_times_gets_no_advice_to_run_for_longer() -> None:
    stored = replace(OPEN, how=How.STORED)
    assert "".join(failure(stored).splitlines(keepends=True)[2:6]) == snapshot("""\
this run could see p95 latency +4.1 % or more: stored times show little: give
  the older model itself, or record the baseline again with pytest --modelperf
  --modelperf-update-baseline "models/encoder.onnx::b1-c1" when less else runs
  here, if noise is why its twin is not trusted
""")
    assert "max-seconds" not in failure(stored)
    step = summary(stored).partition("in at most 5 %.\n")[2]
    assert step == snapshot("""\
inconclusive: stored times show little: give the older model itself, or record
              the baseline again with pytest --modelperf
              --modelperf-update-baseline when less else runs here, if noise is
              why its twin is not trusted
""")
    both = summary(stored, OPEN)
    assert step in both
    assert "inconclusive: give more time with --modelperf-max-seconds 16\n" in both


def test_recording_again_repeats_the_options_that_were_typed() -> None:
    typed = ("--modelperf-baseline-dir=perf", "--modelperf-engine=openvino")
    report = run(outcome(replace(OPEN, how=How.STORED)), typed=typed)
    command = "pytest --modelperf --modelperf-update-baseline " + " ".join(typed)
    assert f"record the baseline again with {command} when" in render_summary(
        report, TextStyle(None)
    )


def test_every_report_names_the_options_of_pytest() -> None:
    """A tail that is not shown says how to wait for it."""
    tail = replace(OPEN.metrics[1], awaited=False, rounds_needed=40)
    worse = run(outcome(replace(SLOWER, metrics=(*SLOWER.metrics, tail))))
    option = "; --modelperf-tolerance p95=0.03 waits for it"
    assert any(text.endswith(option) for _, text in facts_of(run_report(worse)))
    assert option in render_run_markdown(worse)


def test_a_tolerance_that_is_to_be_typed_keeps_those_that_are_set() -> None:
    """Typed tolerances replace all others."""
    p50, p95, *others = OPEN.metrics
    p50, macs = replace(p50, allowed=0.05), replace(others[0], allowed=0.01)
    tail = replace(p95, awaited=False, allowed=0.1)
    load = Metric("load_ms", 9.0, 9.9, Verdict.INCONCLUSIVE, allowed=0.15, awaited=False)
    case = replace(OPEN, metrics=(p50, tail, load, macs, *others[1:]))
    lines = failure(case, width=160)
    assert "--modelperf-tolerance p50=0.05,p95=0.1,macs=0.01 waits for it" in lines
    assert "--modelperf-tolerance p50=0.05,load=0.15,macs=0.01 waits for it" in lines
    assert "--modelperf-tolerance p50=0.05,p95=0.1,macs=0.01 waits for it" in summary(
        case, width=160
    )


def test_more_rounds_than_usual_are_advised_with_the_time_that_allows_them() -> None:
    """Twice the rounds of a fast model take a second, and are made in twice the usual time only."""
    fast = replace(OPEN, metrics=(replace(OPEN.metrics[1], rounds_needed=70),), seconds=0.5)
    assert "give more time with --modelperf-max-seconds 20\n" in failure(fast, width=160)


def test_the_advice_of_a_case_is_that_of_the_summary() -> None:
    """Several have the longest time, and each advice once."""
    longer = replace(OPEN, case=Case(2, 1), seconds=20.0)
    noisy = replace(OPEN, case=Case(4, 1), seconds=500.0)
    for case in (OPEN, longer, noisy, NEAR):
        text = known(advise(case)).in_words(PYTHON_WORDING)
        assert text in failure(case, width=None)
        assert f"inconclusive: {text}\n" in summary(case, width=None)
    steps = summary(OPEN, longer, noisy, width=None).partition("in at most 5 %.\n")[2]
    assert steps == snapshot("""\
inconclusive: give more time with --modelperf-max-seconds 30
inconclusive: too noisy to decide in a reasonable time: measure on a quieter machine (modelperf doctor shows how quiet this one is)
""")  # noqa: E501  # a line is as long as its terminal


VALUES = (
    "the counts of the runs differ, but those of the graphs do not: values decide a branch, a trip "
    "count or a shape"
)


def test_counts_that_values_decide_get_the_tolerance_that_allows_them() -> None:
    """It is the largest of the summary, together with the tolerances that the user gave."""
    p50 = Metric("latency_p50", 9.0, 9.0, Verdict.PASSED, allowed=0.05)
    macs = Metric("macs", 1000, 1008, Verdict.INCONCLUSIVE, allowed=0.0, reason=VALUES)
    case = replace(OPEN, metrics=(p50, macs))
    fewer = replace(case, metrics=(p50, replace(macs, after=979)))
    text = "values decide how much it computes: allow a share with --modelperf-tolerance"
    assert failure(case, width=None).count(f"{text} macs=0.01,p50=0.05\n") == 1
    assert f"inconclusive: {text} macs=0.01,p50=0.05\n" in summary(case, width=None)
    assert f"inconclusive: {text} macs=0.03,p50=0.05\n" in summary(fewer, case, width=None)
    half = replace(case, metrics=(p50, replace(macs, after=500)))
    assert f"inconclusive: {text} macs=1,p50=0.05\n" in summary(half, width=None)
    for other in (replace(macs, before=None), replace(macs, after=0), replace(macs, reason=None)):
        assert "allow a share" not in failure(replace(case, metrics=(p50, other)))


def test_a_percentile_that_lacks_samples_says_how_many_and_for_how_long() -> None:
    """Its upper bound is unknown, so that no interval is shown next to its limit."""
    metric = Metric(
        "latency_p99", None, 5.6, Verdict.INCONCLUSIVE, limit=60.0, rounds_needed=18,
        samples_needed=1420,
    )  # fmt: skip
    timed = make_latency([make_round([5_600_000] * 710)])
    side = SideRun(
        engine=make_engine("onnxruntime", "1.31.1"),
        latency=timed,
        rounds=(),
        load_ms=1.0,
        first_inference_ms=6.0,
    )
    case = replace(NEAR, metrics=(metric,), rounds=9, seconds=4.6, after=side)
    rarer = replace(metric, name="latency_p99.9", after=None, samples_needed=6636, rounds_needed=85)
    both = failure(replace(case, metrics=(rarer, metric)), width=160)
    assert "".join(both.splitlines(keepends=True)[:2]) == snapshot("""\
inconclusive: too few samples for the p99.9 latency, limit 60.00 ms; also p99 latency
the p99.9 latency takes about 6,636 inferences, the p99 latency about 1,420, and 710 were timed: give more time with --modelperf-max-seconds 44
""")  # noqa: E501  # a line is as long as its terminal
    assert failure(case) == snapshot("""\
inconclusive: p99 latency 5.600 ms, limit 60.00 ms
the p99 latency takes about 1,420 inferences, and 710 were timed: give more time
  with --modelperf-max-seconds 10

metric            now      allowed
────────────────────────────────────────────────
p99 latency  5.600 ms  <= 60.00 ms  inconclusive

how: 9 rounds, 4.6 s
""")
    slow = failure(replace(case, metrics=(rarer,), seconds=460.0), width=160)
    assert "timing that many inferences would take too long: judge a percentile" in slow
    assert "quieter" not in slow


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.PASSED])
def test_memory_that_shrinks_is_reported(verdict: Verdict) -> None:
    """A growth below zero has no logarithm."""
    growth = Metric(
        "growth_bytes_per_inference", None, -50.0, verdict, limit=1000.0,
        after_interval=(-2100.0, 2000.0),
    )  # fmt: skip
    case = replace(NEAR, metrics=(growth,))
    assert "−0.05 KB" in failure(case)
    (table, *_) = tables_of(run_report(run(outcome(case), outcome(OPEN))))
    assert any("-0.05 KB" in cell for row in table.rows for cell in row)


def test_a_new_case_says_how_to_record_it() -> None:
    assert failure(FRESH) == snapshot("""\
new: there is no baseline of b2-c2
record: pytest --modelperf --modelperf-update-baseline \\
   "models/encoder.onnx::b2-c2"
""")


def test_a_case_that_could_not_be_measured_says_why_and_how_to_try_it_alone() -> None:
    assert failure(BROKEN) == snapshot("""\
failed: it could not be measured
the worker was ended by SIGKILL in round 3:
  it had 1.9 GiB of 2 GiB

metric   before      now  change
────────────────────────────────────────
MACs    4.089 G  4.089 G     0 %  passed
params  25.61 M  25.61 M     0 %  passed

try it alone: modelperf profile models/encoder.onnx --batch 64 --cores 2
""")


def test_the_advised_command_repeats_the_engine() -> None:
    words = ("--engine", "openvino", "--engine-option", "hint=a b")
    shown = failure(BROKEN, engine_options=words)
    assert "--cores 2 \\\n   --engine openvino --engine-option 'hint=a b'\n" in shown
    report = run(outcome(FRESH), unused=(("m", "b1-c1"),))
    report = replace(report, typed=("--modelperf-engine=openvino",))
    shown = render_summary(report, TextStyle(160))
    assert "--modelperf-update-baseline=new --modelperf-engine=openvino" in shown
    assert "--modelperf-prune --modelperf-engine=openvino removes them" in shown


def test_a_case_with_dimensions_has_no_command_that_would_run_another() -> None:
    assert "try it alone" not in failure(replace(BROKEN, case=Case(64, 2, (("seq", 8),))))
    assert "try it alone" not in failure(BROKEN, model=make_model("f", None, None, None))


def test_an_improved_case_needs_nothing_to_be_typed() -> None:
    shown = failure(FASTER)
    assert shown.splitlines()[0] == snapshot(
        "improved: p50 latency −8.4 % (99 % interval −9.7 … −7.0 %), allowed +3 %"
    )
    for case in (FASTER, OPEN):
        assert "accept:" not in failure(case)
    assert " --max-seconds" not in failure(OPEN)


def test_a_failure_that_a_new_baseline_would_not_change_has_no_command_to_record() -> None:
    judged = outcome(SLOWER, accept=None, advice="leave out an option")
    shown = render_outcome(judged, TextStyle(80))
    assert "accept: leave out an option" in shown
    assert "--modelperf-update-baseline" not in shown
    assert "accept: leave out an option" in render_run_markdown(run(judged))
    (line,) = github_annotations(run(judged))
    assert line.endswith("%0Aaccept: leave out an option")


def test_an_unchanged_case_says_so() -> None:
    assert failure(SAME) == snapshot("""\
unchanged

metric               before        now   change
───────────────────────────────────────────────────────
MACs                4.089 G    4.089 G      0 %  passed
params              25.61 M    25.61 M      0 %  passed
activations       83.92 MiB  83.92 MiB      0 %
peak activations  9.188 MiB  12.25 MiB  +33.3 %

note: the same model, engine and options
""")


def test_a_failure_names_its_case_if_its_test_does_not() -> None:
    shown = failure(SLOWER, test="tests/test_speed.py::test_both")
    assert "\ncase: b8-c2 of encoder.onnx\n" in shown
    assert "case:" not in failure(SLOWER, test="tests/test_speed.py::test_it[b8-c2]")


def test_a_budget_that_a_new_baseline_leaves_as_it_is_hides_no_command_that_helps() -> None:
    assert "accept: pytest" in failure(EVERYWHERE, width=160)
    assert "accept: pytest" in failure(replace(SLOWER, metrics=(exact("macs", 1, 2),)), width=160)


@pytest.mark.parametrize("width", [20, 40, 60, 80])
@pytest.mark.parametrize(
    "command",
    [
        'pytest --modelperf "tests/models/test_speed.py::test_a_long_name_of_one[b8-c2 it\'s]" -q',
        "pytest 'a path/with quotes/test_speed.py::test_name[x-b8-c2]' --modelperf \"b\"'c d'",
        "pytest tests/a/rather/long/path/without/any/quotes/test_speed.py -x",
    ],
)
def test_a_command_on_several_lines_is_one_for_a_shell(command: str, width: int) -> None:
    lines = fold_command("accept", command, width)
    assert max(map(len, lines)) <= width
    typed = "\n".join(lines).removeprefix("accept:").strip().removeprefix("\\\n")
    spoken = [
        subprocess.run(
            ["/bin/sh", "-c", f"set -- {text}\nprintf '%s\\n' \"$@\""],
            capture_output=True, text=True, check=True,
        ).stdout
        for text in (command, typed)
    ]  # fmt: skip
    assert spoken[0] == spoken[1]
    assert spoken[0].splitlines() == shlex.split(command)


@pytest.mark.parametrize(
    ("figure", "after", "limit", "first"),
    [
        ("macs", 4_100_000_001, 4.1e9, "MACs 4,100,000,001, limit 4,100,000,000"),
        ("macs", 5_000_000_000, 4.1e9, "MACs 5.000 G, limit 4.100 G"),
        ("size_bytes", 1_204_000_000, 100e6, "file size 1,204 MB, limit 100.0 MB"),
        # Rounded to 0.016 MB, the limit would be above the figure that is over it.
        ("size_bytes", 15_618, 15_617, "file size 15,618 B, limit 15,617 B"),
        ("peak_rss_bytes", 15_618, 15_617, "peak memory 15,618 B, limit 15,617 B"),
        ("cache_bytes_per_token", 15_618, 15_617, "cache/token 15,618 B, limit 15,617 B"),
    ],
)
def test_a_figure_that_reads_like_its_limit_is_written_out(
    figure: str, after: int, limit: float, first: str
) -> None:
    over = Metric(figure, None, after, Verdict.OVER_BUDGET, limit=limit)
    assert failure(replace(BUDGET, metrics=(over,))).splitlines()[0] == f"over budget: {first}"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (SLOWER, "regressed: p50 latency +11.8 %, allowed +3 %"),
        (BUDGET, "over budget: p95 latency 14.21 ms, limit 12.00 ms"),
        (BROKEN, "failed: the worker was ended by SIGKILL in round 3:"),
        (OPEN, "inconclusive: p95 latency +4.0 %, allowed +3 %"),
        (FRESH, "new: there is no baseline of b2-c2"),
        (SAME, "unchanged"),
    ],
)
def test_the_reason_in_one_line(case: CaseComparison, expected: str) -> None:
    assert short_verdict(outcome(case)) == expected


def test_colour_is_written_only_if_it_is_asked_for() -> None:
    made = outcome(SLOWER)
    assert "\x1b" not in render_outcome(made, TextStyle(80))
    colored = render_outcome(made, TextStyle(80, color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render_outcome(made, TextStyle(80))
    assert colored.startswith("\x1b[1;31mregressed")


@pytest.mark.parametrize(
    ("factors", "note"),
    [
        ((1.4,), "1 baseline takes 40 % longer than when it was recorded on such a machine."),
        ((1.4, 1.0, 1.54, None), "2 baselines take 40 to 54 % longer than when they were recorded"),
        ((1.25, 0.5, None), None),
    ],
)
def test_a_machine_that_is_much_slower_than_at_the_recording_is_reported(
    factors: Sequence[float | None], note: str | None
) -> None:
    outcomes = [
        outcome(replace(CALM, baseline_factor=factor), f"m{place}.onnx::b16-c1")
        for place, factor in enumerate(factors)
    ]
    shown = " ".join(render_summary(run(*outcomes), TextStyle(200)).split())
    assert (f"machine: {note}" in shown) if note else ("machine:" not in shown)


def test_a_summary_of_every_verdict_at_80_columns() -> None:
    assert summary(*ALL[:7], CALM) == snapshot("""\
linux-x86_64-zen4-2c, onnxruntime 1.31.1, 8 cases in 4.3 s

case                  verdict       decided by     p50 now   change
───────────────────────────────────────────────────────────────────
encoder.onnx::b8-c2   regressed                   29.18 ms  +11.8 %
encoder.onnx::b8-c1   over budget   p95 14.21 ms
encoder.onnx::b64-c2  failed
encoder.onnx::b1-c1   inconclusive  p95 +4.0 %    3.371 ms   +2.0 %
encoder.onnx::b2-c2   new
encoder.onnx::b4-c1   improved                    12.29 ms   −8.4 %
encoder.onnx::b16-c1  passed                      26.15 ms   +0.2 %
encoder.onnx::b1-c2   unchanged

1 regressed, 1 over budget, 1 failed, 1 inconclusive, 1 new, 1 improved, 1
  passed, 1 unchanged. False-alarm bound for this run: 1 %. A model exactly at
  its tolerance passes in at most 5 %.
regressed: each failure names the command that accepts it
inconclusive: give more time with --modelperf-max-seconds 16
new: record what is new with pytest --modelperf --modelperf-update-baseline=new
""")


def test_a_summary_at_160_columns_has_the_interval_the_tail_and_the_counts() -> None:
    _, _, heads, _, *rows = summary(SLOWER, OPEN, width=160).splitlines()
    assert "\n".join([heads, *rows[:2]]) == snapshot("""\
case                 verdict       decided by  p50 before   p50 now   change         interval       p95     MACs   params
encoder.onnx::b8-c2  regressed                   26.10 ms  29.18 ms  +11.8 %  +10.2 … +13.1 %  30.26 ms  4.089 G  25.61 M
encoder.onnx::b1-c1  inconclusive  p95 +4.0 %    3.304 ms  3.371 ms   +2.0 %    +0.4 … +2.9 %  3.660 ms  4.089 G  25.61 M\
""")  # noqa: E501  # a line is as long as its terminal


def test_a_quiet_summary_has_only_what_did_not_pass_or_was_not_done() -> None:
    assert summary(SLOWER, SAME, CALM, verbosity=-1) == snapshot("""\
case                 verdict    p50 before   p50 now   change         interval
──────────────────────────────────────────────────────────────────────────────
encoder.onnx::b8-c2  regressed    26.10 ms  29.18 ms  +11.8 %  +10.2 … +13.1 %

1 regressed, 1 passed, 1 unchanged. False-alarm bound for this run: 1 %. A model
  exactly at its tolerance passes in at most 5 %.
""")
    assert summary(SAME, verbosity=-1) == "1 unchanged.\n"
    report = run(outcome(SAME), notes=("nothing was pruned",))
    assert render_summary(report, TextStyle(80), verbosity=-1) == snapshot("""\
1 unchanged.

note: nothing was pruned
""")


def test_a_verbose_summary_has_the_notes_of_cases() -> None:
    assert "note: the same model, engine and options (encoder.onnx::b1-c2)" in summary(
        SAME, verbosity=1
    )
    assert "note:" not in summary(SAME)


def test_the_line_of_a_case_has_the_colour_of_its_verdict() -> None:
    shown = render_summary(run(outcome(SLOWER), outcome(OPEN)), TextStyle(80, color=True))
    assert re.search(r"\x1b\[31mencoder.onnx::b8-c2 ", shown)
    assert re.search(r"\x1b\[33mencoder.onnx::b1-c1 ", shown)


def test_the_passed_ones_of_many_cases_are_summed_up() -> None:
    shown = render_summary(
        run(*many(1_979), outcome(CALM), outcome(SLOWER), outcome(OPEN)), TextStyle(80)
    )
    assert "\n\n1,980 passed and unchanged cases are not shown: -v lists them\n\n" in shown
    assert "\n1 regressed, 1 inconclusive, 1 passed, 1,979 unchanged. " in shown
    assert shown.count("encoder.onnx::") == 2


def test_few_cases_are_all_shown_and_so_are_many_if_asked_for() -> None:
    few, more = run(*many(MAX_LINES)), run(*many(MAX_LINES + 1))
    assert render_summary(few, TextStyle(80)).count(".onnx::") == MAX_LINES
    assert render_summary(more, TextStyle(80)).count(".onnx::") == 0
    assert render_summary(more, TextStyle(80), verbosity=1).count("\nm") == MAX_LINES + 1
    report = run(*many(MAX_LINES, OPEN), outcome(SAME))
    assert "1 unchanged case is not shown: -v lists it" in render_summary(report, TextStyle(80))


def test_the_bound_on_false_alarms_is_that_of_the_gates_and_shown_for_times_only() -> None:
    assert FALSE_ALARMS == RUN_LEVEL
    assert "False-alarm bound for this run: 1 %." in summary(CALM)
    assert "False-alarm" not in summary(SAME, FRESH)


def test_a_strict_run_says_why_what_is_new_or_unclear_failed() -> None:
    report = run(outcome(FRESH), outcome(OPEN))
    assert "--modelperf-strict" not in render_summary(report, TextStyle())
    strict = render_summary(replace(report, is_strict=True), TextStyle())
    assert strict.count("--modelperf-strict fails such a case") == 2


def test_a_new_case_whose_failure_is_expected_is_to_be_recorded_too() -> None:
    shown = render_summary(run(outcome(FRESH, is_xfailed=True), is_strict=True), TextStyle(80))
    assert "1 xfailed." in shown
    assert "new: record what is new with pytest --modelperf " in shown


def test_baselines_without_a_test_are_named_and_so_is_the_way_to_remove_them() -> None:
    report = run(outcome(SAME), unused=tuple((f"models--+m{n}", "b1-c1") for n in range(7)))
    shown = render_summary(report, TextStyle(200))
    assert (
        "unused baselines: models/M0.onnx::b1-c1, models/M1.onnx::b1-c1, models/M2.onnx::b1-c1, "
        "models/M3.onnx::b1-c1, models/M4.onnx::b1-c1 and 2 more; "
        "pytest --modelperf --modelperf-prune removes them\n"
    ) in shown
    assert "unused" not in render_summary(run(outcome(SAME), unused=None), TextStyle(160))


def test_a_line_says_which_figure_decided_if_it_is_not_the_median() -> None:
    heavier = replace(SLOWER, metrics=(exact("macs", 1, 2),))
    assert re.search(r"regressed +MACs \+100.0 %", summary(heavier))
    assert re.search(r"regressed +26", summary(SLOWER))


# INT8: much faster, because of what also makes it load for longer.
LOADS_LONGER = replace(
    SLOWER,
    metrics=(
        Metric("latency_p50", 10.0, 6.51, Verdict.IMPROVED, allowed=0.03, interval=(0.64, 0.66)),
        Metric("load_ms", 2.0, 7.2, Verdict.REGRESSED, allowed=0.15, interval=(3.4, 3.8)),
    ),
    reasons=("all 64 Conv with other params (first: c): -3.39 ms, 97 %",),
)


def test_an_overview_shows_the_figure_that_failed_without_the_reason_of_another() -> None:
    report = run(outcome(LOADS_LONGER), outcome(SAME))
    overview = run_report(report)
    assert overview.headline.endswith("; worst: encoder.onnx::b8-c2 load +260.0 %, allowed +15 %")
    (cases, *_) = tables_of(overview)
    decided = [column.title for column in cases.columns].index("decided by")
    assert [row[decided] for row in cases.rows] == ["load +260.0 %", ""]
    for width in (80, 100, 160):
        assert re.search(r"regressed +load \+260.0 %", summary(LOADS_LONGER, width=width))
    assert "| regressed | load +260.0 % |" in render_run_markdown(report)
    (table, *_) = tables_of(comparison_report(compared(LOADS_LONGER, SAME), COMMAND_WORDING))
    assert table.rows[0][1:3] == ("regressed", "load +260.0 %")


def test_an_overview_has_the_reason_of_a_case_that_could_not_be_measured() -> None:
    first = known(BROKEN.failure).splitlines()[0]
    assert first in render_run_markdown(run(outcome(BROKEN), outcome(SAME))).partition("<pre>")[0]
    pages = (
        run_report(run(outcome(BROKEN), outcome(SAME))),
        comparison_report(compared(BROKEN, SAME), COMMAND_WORDING),
    )
    for report in pages:
        rows = [row for table in tables_of(report) for row in table.rows]
        assert any(row[1:3] == ("failed", first) for row in rows)
    assert first not in summary(BROKEN, SAME)


def test_a_change_that_made_nothing_worse_is_not_called_why() -> None:
    for case, word in ((LOADS_LONGER, "change"), (SLOWER, "why")):
        first = case.reasons[0].partition(" (first")[0]
        report = run(outcome(case))
        assert f"{word}: {first}" in failure(case)
        assert f"{word}: {first}" in "".join(github_annotations(report))
        assert (word, case.reasons[0]) in facts_of(run_report(report))


def test_a_run_without_cases_or_plans_says_nothing() -> None:
    assert not render_summary(RunReport(outcomes=()), TextStyle(80))


def test_the_place_names_every_machine_and_engine_once() -> None:
    other = replace(MACHINE, architecture="aarch64")
    report = run(
        outcome(SAME),
        outcome(SAME, engine="openvino 2026.0"),
        outcome(SAME, machine=other),
        seconds=131.2,
    )
    assert describe_place(report) == (
        "linux-x86_64-zen4-2c, linux-aarch64-zen4-2c, onnxruntime 1.31.1, openvino 2026.0, "
        "3 cases in 2 min 11 s"
    )


def test_a_page_describes_every_machine_once() -> None:
    other = replace(MACHINE, architecture="aarch64", instruction_sets=("neon", "asimd", "i8mm"))
    report = run_report(run(outcome(SAME), outcome(SAME), outcome(SAME, machine=other)))
    texts = [line.text for line in report.opening if line.on is On.PAGE]
    machines = [text for text in texts if text.startswith("machine ")]
    assert len(machines) == 2
    assert "avx2 avx512f avx512_vnni" in machines[0]
    assert "asimd i8mm" in machines[1]


def test_plans_come_first_and_then_whether_they_were_written() -> None:
    recording = BaselineRecording(name="encoder", model=make_model("e", None, None, 1), cases=())
    report = run(outcome(FRESH, recording=recording), plans=(plan("encoder"),), is_written=True)
    assert render_summary(report, TextStyle(80)) == snapshot("""\
linux-x86_64-zen4-2c, onnxruntime 1.31.1, 1 case in 4.3 s

encoder.onnx
case   what           before     after   change
───────────────────────────────────────────────
b8-c2  MACs                -   4.089 G      new
       p50 latency  26.10 ms  29.18 ms  +11.8 %
b1-c1: not measured now

wrote the baselines of encoder.onnx

case                 verdict      MACs   params
───────────────────────────────────────────────
encoder.onnx::b2-c2  recorded  4.089 G  25.61 M

1 recorded.
""")


def test_a_plan_that_was_not_written_says_so_and_one_that_removes_says_what() -> None:
    gone = plan("old", before=baseline("old"), removes=True)
    report = run(outcome(SAME), plans=(gone, plan("encoder")))
    assert "\nnothing was written\n" in render_summary(report, TextStyle(80))
    written = render_summary(replace(report, is_written=True), TextStyle(80))
    assert "\nwrote the baselines of encoder.onnx; removed those of old.onnx\n" in written
    same = replace(plan("encoder"), before=replace(baseline("encoder"), twin=b"new"), changes=())
    empty = run(outcome(SAME), plans=(same,), is_written=True)
    assert "baselines already up to date" in render_summary(empty, TextStyle(80))


def test_the_first_of_many_plans_are_shown_unless_all_are_asked_for() -> None:
    report = run(outcome(SAME), plans=tuple(plan(f"model{n}") for n in range(50)))
    shown = render_summary(report, TextStyle(80))
    assert "30 more baselines change: -v lists how" in shown
    assert shown.count("p50 latency") == 20
    assert render_summary(report, TextStyle(80), verbosity=1).count("p50 latency") == 50
    assert "p50 latency" not in render_summary(report, TextStyle(80), verbosity=-1)


def test_names_are_as_short_as_is_unique() -> None:
    tests = (
        "models/encoder.onnx::b1-c1",
        "a/decoder.onnx::b1-c1",
        "b/decoder.onnx::b1-c1",
        "tests/test_speed.py::test_head[b1-c1]",
        "tests/test_speed.py::test_tail[a/b-b1-c1]",
        "tests/test_more.py::test_same[b1-c1]",
        "tests/test_speed.py::test_same[b1-c1]",
        "tests/test_speed.py::TestAll::test_plain",
    )
    case = replace(SAME, case=Case(1, 1))
    assert name_outcomes([outcome(case, test) for test in tests]) == (
        "encoder.onnx::b1-c1",
        "a/decoder.onnx::b1-c1",
        "b/decoder.onnx::b1-c1",
        "test_head[b1-c1]",
        "test_tail[a/b-b1-c1]",
        "test_more.py::test_same[b1-c1]",
        "test_speed.py::test_same[b1-c1]",
        "test_plain b1-c1",
    )


def test_several_cases_of_one_test_are_distinguished_by_case_then_by_model() -> None:
    test = "tests/test_pair.py::test_pair"
    other = make_model("decoder.onnx", None, None, 1)
    one, two = replace(SAME, case=Case(1, 1)), replace(SAME, case=Case(2, 1))
    made = [outcome(one, test), outcome(two, test), outcome(one, test, model=other)]
    assert name_outcomes(made) == (
        "test_pair b1-c1 encoder.onnx",
        "test_pair b2-c1",
        "test_pair b1-c1 decoder.onnx",
    )


def test_a_file_whose_name_has_the_separator_is_named_whole() -> None:
    path = "models/a::b[c].onnx"
    case = replace(SLOWER, case=Case(8, 2))
    made = outcome(
        case, f"{path}::b8-c2", model=make_model(path, f"/project/{path}", "ab" * 32, 97)
    )
    assert name_outcomes([made]) == ("a::b[c].onnx::b8-c2",)


def test_files_of_one_name_are_distinguished_in_all_of_their_cases() -> None:
    one, two = replace(SAME, case=Case(1, 1)), replace(SAME, case=Case(2, 1))
    assert name_outcomes(
        [
            outcome(one, "a/model.onnx::b1-c1"),
            outcome(two, "a/model.onnx::b2-c1"),
            outcome(one, "b/model.onnx::b1-c1"),
        ]
    ) == ("a/model.onnx::b1-c1", "a/model.onnx::b2-c1", "b/model.onnx::b1-c1")
    models = [make_model("model.onnx", f"{folder}/model.onnx", None, 1) for folder in "ab"]
    assert name_outcomes([outcome(one, "test_both", model=model) for model in models]) == (
        "test_both b1-c1 a/model.onnx",
        "test_both b1-c1 b/model.onnx",
    )


@given(st.lists(st.text("ab/:[]-", max_size=12), max_size=6, unique=True))
def test_two_tests_never_share_a_name(tests: Sequence[str]) -> None:
    names = name_outcomes([outcome(SAME, f"t.py::{test}") for test in tests])
    assert len(set(names)) == len(tests)


@given(st.text(max_size=60), st.integers(10, 40), st.integers(0, 6))
@example("\N{CJK UNIFIED IDEOGRAPH-4E00}" * 40, 11, 3)
def test_a_wrapped_text_fits_and_loses_nothing(text: str, width: int, indent: int) -> None:
    lines = wrap(text, width, indent)
    assert all(display_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


NAMES = st.text(max_size=25) | st.text(
    "\N{CJK UNIFIED IDEOGRAPH-4E00}\u0301 a::\n%|`<", max_size=40
)
EVIL = "a|b`c`<script>::x,y:%0A\r\n::error::z @someone #12 [l](http://evil.test) \x1b[31m\u202e"


@settings(max_examples=40)
@given(NAMES, st.sampled_from([80, 100, 160]), st.integers(-1, 1))
@example(EVIL, 80, 0)
@example("\N{CJK UNIFIED IDEOGRAPH-4E00}" * 90, 80, 1)
@example("x" * 300, 80, 1)
def test_no_line_is_wider_than_the_terminal(name: str, width: int, verbosity: int) -> None:
    report, style = everything_named(name), TextStyle(width)
    texts = [render_outcome(made, style) for made in report.outcomes]
    texts.append(render_summary(report, style, verbosity=verbosity))
    for text in texts:
        assert max(map(display_width, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_verdict_and_no_column_of_a_failure_is_lost(width: int) -> None:
    for case in ALL:
        shown = failure(case, width=width)
        assert max(map(display_width, shown.splitlines())) <= width
        assert "left out" not in shown
        for metric in case.metrics:
            assert not metric.gated or metric.verdict.value in shown


@settings(max_examples=40)
@given(NAMES)
@example(EVIL)
def test_no_text_has_characters_that_a_terminal_obeys(name: str) -> None:
    report = everything_named(name)
    texts = [render_outcome(made, TextStyle(None)) for made in report.outcomes]
    texts += [render_summary(report, TextStyle(None), verbosity=1)]
    texts += [short_verdict(made) for made in report.outcomes]
    for text in texts:
        assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert all("\n" not in short_verdict(made) for made in report.outcomes)


def test_a_run_as_markdown() -> None:
    report = run(outcome(BUDGET), outcome(SAME), outcome(BROKEN), notes=("a note",))
    assert render_run_markdown(report) == snapshot("""\
### Model performance: 1 of 3 over budget, 1 failed, 1 unchanged; worst: encoder.onnx::b8-c1 p95 latency 14.21 ms, limit 12.00 ms

- linux-x86&#95;64-zen4-2c, onnxruntime 1.31.1, 3 cases in 4.3 s

| case | verdict | decided by | p95 | MACs | params | budgets |
| --- | --- | --- | ---: | ---: | ---: | --- |
| <code>encoder.onnx::b8-c1</code> | over budget | p95 14.21 ms | 14.21 ms | 4.089 G | 25.61 M | p95 latency 14.21 ms &#60;= 12.00 ms: over budget |
| <code>encoder.onnx::b64-c2</code> | failed | the worker was ended by SIGKILL in round 3: |  | 4.089 G | 25.61 M |  |
| <code>encoder.onnx::b1-c2</code> | unchanged |  |  | 4.089 G | 25.61 M |  |

**1 over budget, 1 failed, 1 unchanged. False-alarm bound for this run: 1 %. A model exactly at its tolerance passes in at most 5 %.**

**encoder.onnx::b8-c1 over budget: p95 latency 14.21 ms (99 % interval 13.80 … 14.70 ms), limit 12.00 ms**

| metric | now | interval | allowed |  |
| --- | ---: | ---: | ---: | --- |
| p95 latency | 14.21 ms | 13.80 … 14.70 ms | &#60;= 12.00 ms | over budget |

<details><summary>Details</summary>

- how: 6 rounds, 1.0 s
- budget: change it where it is set, in the test or in &#91;tool.modelperf&#93;; a new baseline does not affect it

</details>

**encoder.onnx::b64-c2 failed: it could not be measured**

<pre>the worker was ended by SIGKILL in round 3:<br>it had 1.9 GiB of 2 GiB</pre>

| metric | before | now | change |  |
| --- | ---: | ---: | ---: | --- |
| MACs | 4.089 G | 4.089 G | 0 % | passed |
| params | 25.61 M | 25.61 M | 0 % | passed |

- note: a note
""")  # noqa: E501  # a line is as long as its terminal


def test_a_failed_regression_in_markdown_has_the_command_to_copy() -> None:
    shown = render_run_markdown(run(outcome(SLOWER, accept="pytest `x` ```` @me http://a.b")))
    fences = [token for token in MARKDOWN.parse(shown) if token.type == "fence"]
    assert [token.content for token in fences] == ["pytest `x` ```` @me http://a.b\n"]


@pytest.mark.slow
@settings(max_examples=40)
@given(NAMES)
@example(EVIL)
def test_markdown_obeys_no_name(name: str) -> None:
    tokens = MARKDOWN.parse(render_run_markdown(everything_named(name)))
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"link_open", "image", "em_open", "code_inline", "code_block"}
    html = [t.content for t in (*tokens, *inline) if t.type.startswith("html")]
    tags = set(re.findall(r"<[^>]*>", " ".join(html)))
    ours = ("code", "details", "summary", "pre")
    assert tags <= {f"<{slash}{tag}>" for tag in ours for slash in ("", "/")} | {"<br>"}
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in {"td_open", "th_open"}]
    plain = MARKDOWN.parse(render_run_markdown(everything_named("a")))
    assert len(rows) == sum(token.type == "tr_open" for token in plain)
    assert len(cells) == sum(token.type in {"td_open", "th_open"} for token in plain)


def test_markdown_folds_the_passed_ones_of_many_cases() -> None:
    shown = render_run_markdown(run(*many(60), outcome(SLOWER)))
    assert shown[: shown.index("False-alarm")].count("\n| <code>") == 1
    assert "<details><summary>60 cases that passed or are unchanged</summary>" in shown


@pytest.mark.slow
def test_markdown_stays_below_what_a_summary_may_have_and_says_what_it_left_out() -> None:
    named = [replace(SLOWER, case=Case(n, 2)) for n in range(1, 700)]
    shown = render_run_markdown(run(*many(3_000), *map(outcome, named)))
    assert 0.9 * MAX_BYTES < len(shown.encode()) <= MAX_BYTES
    assert shown.count("<details>") == shown.count("</details>")
    assert shown.rstrip().endswith("The JSON of the run has everything._")
    long = [outcome(SLOWER, f"{'x' * 900}{n}.onnx::b8-c2") for n in range(2_000)]
    shown = render_run_markdown(run(*long))
    assert len(shown.encode()) <= MAX_BYTES
    assert "more rows are not shown." in shown


COMMAND = re.compile(r"::(error|warning|notice) ([^\n]*?)::([^\n]*)")


def read_command(line: str) -> dict[str, str]:
    """Read a line as the runner does: properties end with the next `::`, the rest is data."""
    found = known(COMMAND.fullmatch(line))
    given = dict(part.split("=", 1) for part in found[2].split(","))
    read = {
        key: value.replace("%2C", ",").replace("%3A", ":").replace("%0A", "\n").replace("%0D", "\r")
        for key, value in given.items()
    }
    data = found[3].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return {"kind": found[1], **{k: v.replace("%25", "%") for k, v in read.items()}, "text": data}


def test_annotations_have_the_line_of_the_test_and_the_worst_comes_first() -> None:
    report = run(*(outcome(case) for case in (FRESH, OPEN, BROKEN, SAME, BUDGET, SLOWER)))
    assert "\n".join(github_annotations(report)) == snapshot("""\
::error file=tests/test_speed.py,line=12,title=encoder.onnx%3A%3Ab8-c2 regressed::regressed: p50 latency +11.8 %25 (99 %25 interval +10.2 … +13.1 %25), allowed +3 %25; also p95 latency%0Awhy: 12 Conv+Relu fusions lost (first: layer1.0/conv2): +2.80 ms, 91 %25%0Awhy: 4 Transpose added (first: layer4/Transpose): +0.31 ms, 10 %25%0Awhy: no ReorderOutput kernels put in by the engine any more, 2 before: -0.03 ms%0Aaccept: pytest --modelperf --modelperf-update-baseline "models/encoder.onnx::b8-c2"
::error file=tests/test_speed.py,line=12,title=encoder.onnx%3A%3Ab8-c1 over budget::over budget: p95 latency 14.21 ms (99 %25 interval 13.80 … 14.70 ms), limit 12.00 ms
::error file=tests/test_speed.py,line=12,title=encoder.onnx%3A%3Ab64-c2 failed::the worker was ended by SIGKILL in round 3:%0Ait had 1.9 GiB of 2 GiB
::warning file=tests/test_speed.py,line=12,title=encoder.onnx%3A%3Ab1-c1 inconclusive::inconclusive: p95 latency +4.0 %25 (99 %25 interval -1.3 … +9.5 %25), allowed +3 %25%0Athis run could see p95 latency +4.1 %25 or more: give more time with --modelperf-max-seconds 16
::notice file=tests/test_speed.py,line=12,title=encoder.onnx%3A%3Ab2-c2 new::new: there is no baseline of b2-c2\
""")  # noqa: E501  # a command is one line


def test_an_annotation_names_a_file_from_the_top_of_the_repository_and_its_line() -> None:
    (line,) = github_annotations(run(outcome(SLOWER)), "libs/part")
    assert line.startswith("::error file=libs/part/tests/test_speed.py,line=12,")
    above = outcome(SLOWER, source=Source(path="../shared/test_speed.py", line=1))
    (line,) = github_annotations(run(above), "libs/part")
    assert line.startswith("::error file=libs/shared/test_speed.py,line=1,")
    (line,) = github_annotations(run(outcome(SLOWER, line=None)))
    assert line.startswith("::error file=tests/test_speed.py,title=")


def test_a_failure_of_a_strict_run_is_an_error() -> None:
    report = run(outcome(FRESH), outcome(OPEN), outcome(CALM), is_strict=True)
    assert [read_command(line)["kind"] for line in github_annotations(report)] == ["error", "error"]


def test_the_last_annotation_that_github_shows_has_the_number_of_all() -> None:
    slow = [
        outcome(replace(SLOWER, metrics=(exact("macs", 100, 101 + n),)), f"m{n}.onnx::b8-c2")
        for n in range(25)
    ]
    lines = github_annotations(run(*slow, *many(10, OPEN)))
    kinds = [read_command(line)["kind"] for line in lines]
    assert kinds == ["error"] * MAX_OF_A_KIND + ["warning"] * MAX_OF_A_KIND
    assert read_command(lines[0])["title"].startswith("m24.onnx::b8-c2")
    assert read_command(lines[9])["text"].startswith("16 more cases")
    assert "more cases" not in lines[-1]


@given(NAMES)
@example(EVIL)
def test_an_annotation_is_one_command_with_any_name(name: str) -> None:
    report = everything_named(name)
    lines = github_annotations(report)
    assert len(lines) == len(report.outcomes)
    for line in lines:
        assert line.splitlines() == [line]
        found = read_command(line)
        assert set(found) == {"kind", "file", "line", "title", "text"}
        assert found["file"] == printable(name)
        assert found["line"] == "3"


def test_properties_of_a_case() -> None:
    made = outcome(SLOWER, load_ms=21.3, peak_rss_bytes=104_857_600)
    assert junit_properties(made) == snapshot(
        (
            ("modelperf.verdict", "regressed"),
            ("modelperf.case", "b8-c2"),
            ("modelperf.model", "encoder.onnx"),
            ("modelperf.batch_size", "8"),
            ("modelperf.cores", "2"),
            ("modelperf.engine", "onnxruntime 1.31.1"),
            ("modelperf.machine", "linux-x86_64-zen4-2c"),
            ("modelperf.how", "duet"),
            ("modelperf.latency_p50_ms", "29.18"),
            ("modelperf.latency_p95_ms", "30.26"),
            ("modelperf.latency_p90_ms", "29.77"),
            ("modelperf.latency_p50_change", "+0.1180"),
            ("modelperf.latency_p50_change_interval", "+0.1020 +0.1310"),
            ("modelperf.latency_p95_change", "+0.1199"),
            ("modelperf.latency_p95_change_interval", "+0.0910 +0.1440"),
            ("modelperf.latency_p90_change", "+0.1104"),
            ("modelperf.latency_p90_change_interval", "+0.0900 +0.1400"),
            ("modelperf.macs", "4089184256"),
            ("modelperf.params", "25610152"),
            ("modelperf.load_ms", "21.3"),
            ("modelperf.peak_rss_bytes", "104857600"),
            ("modelperf.seconds", "2.100"),
        )
    )


def test_a_time_with_a_budget_is_the_one_of_its_change_as_in_the_table() -> None:
    limited = Metric("latency_p50", None, 30.0, Verdict.PASSED, limit=50.0)
    case = replace(SLOWER, metrics=(*SLOWER.metrics, limited))
    assert ("modelperf.latency_p50_ms", "29.18") in junit_properties(outcome(case))
    assert "29.18 ms" in summary(case)


def test_a_case_that_was_not_judged_by_time_has_no_property_of_how() -> None:
    assert not [name for name, _ in junit_properties(outcome(SAME)) if name == "modelperf.how"]


@given(st.text())
@example(EVIL)
def test_properties_can_be_written_as_xml(name: str) -> None:
    made = outcome(SLOWER, engine=name, model=make_model(name, None, None, 1))
    root = ET.Element("properties")
    for key, value in junit_properties(made):
        ET.SubElement(root, "property", name=key, value=value)
    read = ET.fromstring(ET.tostring(root, encoding="utf-8"))  # noqa: S314  # our own text
    assert [(p.get("name"), p.get("value")) for p in read] == list(junit_properties(made))


def test_a_run_as_json() -> None:
    latency = make_latency([make_round([3_300_000] * 20), make_round([3_400_000] * 20)])
    report = run(
        outcome(SLOWER, latency=latency, load_ms=21.3),
        outcome(BROKEN, static=None),
        tolerance=0.03,
        plans=(plan("encoder"),),
        unused=(("old", "b1-c1"),),
        started=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc),
    )
    document = json.loads(dump_run(report))
    slower, broken = document.pop("cases")
    assert document.pop("machine")["key"] == MACHINE.key
    assert document == snapshot(
        {
            "schema": 1,
            "verdict": "regressed",
            "started": "2026-01-02T03:04:05+00:00",
            "seconds": 4.31,
            "tolerance": 0.03,
            "strict": False,
            "counts": {
                "passed": 0,
                "improved": 0,
                "regressed": 1,
                "over budget": 0,
                "inconclusive": 0,
                "new": 0,
                "unchanged": 0,
                "recorded": 0,
                "failed": 1,
                "xfailed": 0,
            },
            "baselines": {
                "changes": [
                    {
                        "baseline": "encoder",
                        "case": "b8-c2",
                        "machine": None,
                        "name": "macs",
                        "before": None,
                        "after": 4089184256,
                    },
                    {
                        "baseline": "encoder",
                        "case": "b8-c2",
                        "machine": None,
                        "name": "latency_p50_ns",
                        "before": 26100000.0,
                        "after": 29180000.0,
                    },
                ],
                "notes": ["b1-c1: not measured now"],
                "written": False,
                "unused": ["old: b1-c1"],
            },
            "notes": [],
            "errors": [],
        }
    )
    (same,) = json.loads(COMPARISON.dump(compared(SLOWER)))["cases"]
    del same["seconds"]
    assert {key: slower[key] for key in same} == same
    static, timed = slower.pop("static"), slower.pop("latency")
    assert (static["macs"], static["peak_activation_bytes"]) == (4089184256, 12845056)
    assert (timed["p50_ms"], timed["samples"], timed["rounds"]) == (3.35, 40, 2)
    assert timed["intervals_ms"]["p50_ms"] == [3.33995, 3.3701]
    assert timed["needed"]["p99_ms"] == 662
    assert {key: value for key, value in slower.items() if key not in same} == snapshot(
        {
            "test": "models/encoder.onnx::b8-c2",
            "source": {"path": "tests/test_speed.py", "line": 12},
            "model": {
                "name": "encoder.onnx",
                "path": "models/encoder.onnx",
                "function_file": None,
                "sha256": "abababababababababababababababababababababababababababababababab",
                "bytes": 97,
                "opsets": {},
                "producer": "",
                "total_bytes": None,
            },
            "batch_size": 8,
            "cores": 2,
            "engine": "onnxruntime 1.31.1",
            "machine": "linux-x86_64-zen4-2c",
            "seconds": 2.1,
            "confidence": 0.99,
            "generation": None,
            "load_ms": 21.3,
            "first_inference_ms": None,
            "peak_rss_bytes": None,
            "recorded": False,
            "accept": 'pytest --modelperf --modelperf-update-baseline "models/encoder.onnx::b8-c2"',
            "engine_change": None,
            "upgrade": False,
            "xfailed": False,
            "picture": [],
        }
    )
    assert (broken["verdict"], broken["static"], broken["latency"]) == (None, None, None)


def test_the_json_of_a_run_is_read_back_by_its_type() -> None:
    failed = run(outcome(BROKEN, static=None))
    for report in (everything_named(EVIL), failed, RunReport(outcomes=())):
        assert_read_back(dump_run(report), RUN)


def test_the_verdict_of_a_run_without_one_is_null() -> None:
    assert json.loads(dump_run(run(outcome(BROKEN))))["verdict"] is None
    assert json.loads(dump_run(run(outcome(BROKEN), outcome(SLOWER))))["verdict"] == "regressed"
    assert json.loads(dump_run(run(outcome(BROKEN), outcome(SAME))))["verdict"] == "inconclusive"
    assert json.loads(dump_run(RunReport(outcomes=())))["baselines"]["unused"] is None


def test_the_json_of_a_run_is_ascii_and_has_no_infinite_number() -> None:
    odd = replace(SLOWER.metrics[0], detectable=math.inf)
    report = replace(everything_named(EVIL), seconds=math.inf)
    endless = replace(report.outcomes[0], comparison=replace(SLOWER, metrics=(odd,)))
    text = dump_run(replace(report, outcomes=(endless,)))
    assert text.isascii()
    assert json.loads(text)["cases"][0]["metrics"][0]["detectable"] is None


TIMES = ((3_300_000, 3_310_000, 3_290_000), (3_400_000, 9_000_000))


def test_a_run_in_the_json_of_pytest_benchmark() -> None:
    report = run(outcome(SLOWER, times_ns=TIMES), outcome(SAME), outcome(CALM, times_ns=((),)))
    document = json.loads(dump_benchmarks(report, "1.2.3"))
    assert document["benchmarks"][0].pop("stats")["rounds"] == 5
    assert document == snapshot(
        {
            "machine_info": {
                "node": "linux-x86_64-zen4-2c",
                "processor": "AMD EPYC 9R14",
                "machine": "x86_64",
                "python_implementation": None,
                "python_version": None,
                "release": None,
                "system": "Linux",
                "cpu": {"brand_raw": "AMD EPYC 9R14", "count": 2},
            },
            "commit_info": {
                "id": "unversioned",
                "time": None,
                "author_time": None,
                "dirty": False,
                "project": None,
                "branch": "(unknown)",
            },
            "benchmarks": [
                {
                    "group": None,
                    "name": "encoder.onnx::b8-c2",
                    "fullname": "models/encoder.onnx::b8-c2",
                    "params": {"model": "encoder.onnx", "batch_size": 8, "cores": 2},
                    "param": "b8-c2",
                    "extra_info": {
                        "verdict": "regressed",
                        "engine": "onnxruntime 1.31.1",
                        "macs": 4089184256,
                        "params": 25610152,
                        "peak_rss_bytes": None,
                    },
                    "options": {},
                }
            ],
            "datetime": None,
            "version": "1.2.3",
        }
    )


def test_cases_and_models_of_one_test_are_benchmarks_of_their_own() -> None:
    test = "t.py::test_both"
    report = run(*(outcome(case, test, times_ns=TIMES) for case in (SLOWER, CALM)))
    found = json.loads(dump_benchmarks(report, "1"))["benchmarks"]
    assert [each["fullname"] for each in found] == [
        "t.py::test_both[b8-c2]",
        "t.py::test_both[b16-c1]",
    ]
    first = outcome(SLOWER, "t.py::test_both", times_ns=TIMES)
    other = replace(first, model=replace(first.model, name="decoder.onnx"))
    for before in (first, replace(first, times_ns=())):
        found = json.loads(dump_benchmarks(run(before, other), "1"))["benchmarks"]
        assert found[-1]["fullname"] == "t.py::test_both[b8-c2] decoder.onnx"


def test_a_run_in_the_format_of_bencher() -> None:
    latency = summarize([list(each) * 20 for each in TIMES], 8)
    metrics = tuple(replace(metric, confidence=0.99) for metric in SLOWER.metrics)
    slower = replace(SLOWER, metrics=metrics)
    measured = outcome(slower, latency=latency, load_ms=3.5, peak_rss_bytes=1000)
    failed = outcome(replace(SAME, failure="it crashed"))
    document = json.loads(dump_bencher_run(run(measured, failed)))
    assert_is_bencher(document)
    ((name, measures),) = document.items()
    assert name == "models/encoder.onnx::b8-c2"
    median = latency.percentile(50.0)
    assert measures["latency"] == {
        "value": median.value_ns,
        "lower_value": median.low_ns,
        "upper_value": median.high_ns,
    }
    ratio = next(metric for metric in SLOWER.metrics if metric.name == "latency_p50")
    low, high = known(ratio.interval)
    assert measures["latency-p50-ratio"] == {
        "value": ratio.ratio,
        "lower_value": low,
        "upper_value": high,
    }
    assert measures["load-ms"] == {"value": 3.5}
    assert measures["macs"] == {"value": STATIC.macs}
    assert "first-inference-ms" not in measures


def test_no_case_takes_the_name_of_another_in_bencher() -> None:
    test = "t.py::test_all"
    first, second = outcome(SLOWER, test), outcome(SLOWER, test)
    other = replace(second, model=replace(second.model, name="decoder.onnx"))
    document = json.loads(dump_bencher_run(run(first, other, second)))
    assert list(document) == [
        "t.py::test_all[b8-c2] encoder.onnx",
        "t.py::test_all[b8-c2] decoder.onnx",
        "t.py::test_all[b8-c2] encoder.onnx 2",
    ]


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=40))
def test_the_figures_are_those_of_pytest_benchmark(times: list[int]) -> None:
    stats = pytest.importorskip("pytest_benchmark.stats").Stats()
    for time in times:
        stats.update(time)
    report = run(outcome(SLOWER, times_ns=(tuple(times),)))
    (found,) = json.loads(dump_benchmarks(report, "1"))["benchmarks"]
    theirs = stats.as_dict()
    assert set(found["stats"]) == {*theirs, "iterations"}
    for key in ("min", "max", "mean", "stddev", "median", "iqr", "q1", "q3", "total"):
        assert found["stats"][key] == pytest.approx(theirs[key] / 1e9, rel=1e-9)
    for key in ("ld15iqr", "hd15iqr"):
        assert found["stats"][key] == theirs[key] / 1e9
    assert found["stats"]["ops"] == pytest.approx(theirs["ops"] * 1e9)
    assert found["stats"]["rounds"] == theirs["rounds"]
    assert found["stats"]["iqr_outliers"] == theirs["iqr_outliers"]


def test_outliers_are_counted_as_pytest_benchmark_does() -> None:
    stats = pytest.importorskip("pytest_benchmark.stats").Stats()
    times = (100, 101, 99, 102, 98, 100, 250, 30, 101)
    for time in times:
        stats.update(time)
    (found,) = json.loads(dump_benchmarks(run(outcome(SLOWER, times_ns=(times,))), "1"))[
        "benchmarks"
    ]
    assert found["stats"]["outliers"] == stats.outliers == "2;2"


@pytest.mark.slow
def test_pytest_benchmark_compares_two_of_our_files(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    slower = tuple(tuple(2 * time for time in made) for made in TIMES)
    for name, times in (("before", TIMES), ("after", slower)):
        report = run(outcome(SLOWER, times_ns=times), outcome(CALM, times_ns=times))
        (tmp_path / f"{name}.json").write_text(dump_benchmarks(report, "1"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "before.json", "after.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if "encoder.onnx::b8-c2" in line]
    assert len(lines) == 2
    assert any("(2.00)" in line for line in lines)
