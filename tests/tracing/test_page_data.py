"""The data of the page of a trace: rows of threads, spans inside of spans, and what they share."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.tracing.page_data import TracePage, trace_data
from pytest_modelperf.tracing.records import Category, Event, Span
from tests.support.recorded_spans import MS, recorded_spans


def page_of(*events: Event, most: int = 1000) -> TracePage:
    page = TracePage("trace.json", most)
    for event in events:
        page.add(event)
    return page


def test_a_row_has_the_spans_of_a_thread_with_their_depth_and_own_time() -> None:
    main, loader = trace_data(page_of(*recorded_spans(2)))["trace"]["rows"]
    assert (main["title"], loader["title"]) == ("python · MainThread", "python · loader")
    assert main["depth"] == [0, 1, 1, 1] * 2
    assert [ns // MS for ns in main["own"]] == [3, 5, 1, 1] * 2
    assert [ns // MS for ns in main["start"]] == [0, 1, 6, 8, 20, 21, 26, 28]


def test_spans_of_one_operator_share_their_facts() -> None:
    page = page_of(*recorded_spans(50))
    labels = [content["label"] for content in page.contents()]
    assert labels == ["inference", "Conv", "Relu", "Gemm", "read data"]
    kinds = [content["kind"] for content in page.contents()]
    assert kinds == ["beside", "convolution", "elementwise", "product", "beside"]
    facts = page.contents()[1]["facts"]
    # Facts that differ in each run are left out.
    assert facts == {
        "name": "stem", "category": "operator", "session": "small.onnx", "op_type": "Conv",
    }  # fmt: skip


def test_a_long_trace_has_its_first_spans_and_their_end() -> None:
    page = page_of(*recorded_spans(50), most=5)
    assert page.left_out == 50 * 4 + 1 - 5
    assert sum(len(row["start"]) for row in page.rows()) == 5
    assert page.end_ns == 30 * MS
    assert trace_data(page_of())["trace"] == {"rows": [], "contents": [], "end": 1}


TIMES = st.tuples(st.integers(0, 50), st.integers(0, 20))


@given(st.lists(TIMES, max_size=30))
def test_spans_of_one_depth_never_overlap(times: list[tuple[int, int]]) -> None:
    """The page looks for a span at a time by halving its lane."""
    spans = [
        Span(name="a", category=Category.OPERATOR, start_ns=start, duration_ns=took)
        for start, took in times
    ]
    lanes: dict[int, list[tuple[int, int]]] = {}
    for row in page_of(*spans).rows():
        for start, took, depth in zip(row["start"], row["duration"], row["depth"], strict=True):
            lanes.setdefault(depth, []).append((start, start + took))
    for lane in lanes.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(lane))
