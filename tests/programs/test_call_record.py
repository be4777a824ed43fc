"""The time of a call: what sessions cover together, and what labels have of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.programs.station.calls import (
    CallRecord,
    CallSpan,
    Covered,
    ProcessorWait,
)

_SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


@given(_SPANS, st.integers(0, 40), st.integers(0, 40))
def test_covered_time_counts_each_moment_once(
    spans: list[tuple[int, int]], start: int, length: int
) -> None:
    covered = Covered(spans)
    moments = {moment for begin, end in spans for moment in range(begin, end)}
    assert covered.total_ns == len(moments)
    stop = start + length
    assert covered.between(start, stop) == len(moments & set(range(start, stop)))


def test_inner_labels_and_sessions_do_not_count_for_the_outer_label() -> None:
    record = CallRecord(ProcessorWait())
    with record.label("outer"):
        with record.label("inner"):
            pass
        record.spans.append(CallSpan("model.onnx", 0, 0))
    inner, outer = record.labels
    outer.start_ns, outer.end_ns = 0, 100
    inner.start_ns, inner.end_ns = 10, 40
    # Half of this session is inside of the inner label.
    sessions = Covered([(30, 50)])
    assert inner.own_ns(sessions) == 20
    assert outer.own_ns(sessions) == 60


def test_the_rest_is_the_time_outside_of_sessions_that_overlap() -> None:
    record = CallRecord(ProcessorWait())
    record._begun, record._ended = (0, 0, 100), (0, 50, 200)
    # One began before the call, in another thread.
    record.spans = [CallSpan("a", 90, 120), CallSpan("a", 110, 130), CallSpan("b", 180, 190)]
    turn = record.turn()
    assert (turn.wall_ns, turn.rest_ns) == (100, 60)
    assert (turn.sessions["a"].calls, turn.sessions["a"].ns) == (2, 50)
