"""The report of the totals of a trace: a section for each session, at any width."""

from __future__ import annotations

import pytest

from pytest_modelperf.report.model import On
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.text.words import display_width
from pytest_modelperf.tracing.report import TraceView, trace_report
from pytest_modelperf.tracing.totals import Grouping, InferenceTimes, OperatorTime, TraceSummary

VIEW = TraceView(Grouping.OPERATOR, None)


def summary_of(name: str, samples: int = 12) -> TraceSummary:
    times = [1_000_000 + 1000 * index for index in range(samples)]
    inferences = InferenceTimes(
        name="inference", latency=summarize([times], batch_size=1), median_ns=1_005_500
    )
    operator = OperatorTime(
        name="conv",
        op_type="Conv",
        provider="CPUExecutionProvider",
        precision="float32",
        calls=samples,
        total_ns=9_000_000,
        min_ns=700_000,
        max_ns=800_000,
    )
    return TraceSummary(
        name=name,
        inferences=(inferences,),
        operators=(operator,),
        inference_ns=sum(times),
        between_ns=3_000_000,
        peak_bytes=None,
    )


def test_each_of_several_sessions_has_its_tables_below_its_name() -> None:
    names = ["encoder.onnx", "decoder.onnx"]
    report = trace_report([summary_of(name) for name in names], ["it ended early"], VIEW)
    text = render_report(report, TextStyle())
    assert [text.count(f"\n{name}  12 runs of operators\n") for name in names] == [1, 1]
    assert text.count("\nby operator\n") == 2
    assert text.endswith("\nnote: it ended early\n")


@pytest.mark.parametrize("width", [40, 60, 80, None])
def test_no_width_leaves_out_a_figure_of_the_inferences(width: int | None) -> None:
    text = render_report(trace_report([summary_of("net.onnx", 600)], (), VIEW), TextStyle(width))
    inferences, _, _ = text.partition("by operator")
    heads = [line.split()[1:] for line in inferences.splitlines() if line.startswith("ms ")]
    figures = ["count", "min", "mean", "median", "p90", "p95", "p97", "p99", "p99.9", "max"]
    assert [figure for head in heads for figure in head] == figures
    assert width is None or max(map(display_width, inferences.splitlines())) <= width


def test_a_page_opens_with_the_time_of_an_inference_and_where_most_of_it_goes() -> None:
    report = trace_report([summary_of("net.onnx")], (), VIEW)
    assert [line.text for line in report.opening if line.on is On.PAGE] == [
        "net.onnx: inference 1.006 ms, the median of 12; most time in conv (Conv), 100.0 %"
    ]


def test_without_a_whole_inference_it_says_so() -> None:
    text = render_report(
        trace_report(
            [
                TraceSummary(
                    name="net.onnx",
                    inferences=(),
                    operators=summary_of("net.onnx").operators,
                    inference_ns=0,
                    between_ns=None,
                    peak_bytes=2048,
                )
            ],
            (),
            VIEW,
        ),
        TextStyle(),
    )
    assert text.startswith("net.onnx  12 runs of operators  peak memory 2.000 KiB\n")
    assert "the trace has no complete inference" in text
