"""A trace that was recorded is read again as what was recorded."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf import trace
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.tracing.chrome_trace import TraceWriter
from pytest_modelperf.tracing.files.opening import RecordedTrace, open_profile
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.frames import Frames
from pytest_modelperf.tracing.records import TRACE_HEAD, Category, Counter, Event, Span, ThreadName
from tests.support.command import run
from tests.support.ort_profiles import (
    NESTED,
    NESTED_INPUTS,
    WIDE,
    WIDE_INPUTS,
    check_nesting,
    record,
)
from tests.support.profiles import measured_cases
from tests.support.traced_models import CPU, FEED, options

ABOUT = {"schema": 1}


def write(path: Path, events: Sequence[Event], about: dict[str, object] | None = None) -> Path:
    text = io.StringIO()
    writer = TraceWriter(text)
    for event in events:
        writer.write(event)
    writer.finish(ABOUT if about is None else about)
    path.write_text(text.getvalue(), encoding="ascii")
    return path


def span(name: str, category: Category, start_ns: int, duration_ns: int, **known: Any) -> Span:  # noqa: ANN401  # any field
    known = {"process": 1, "thread": 7, **known}
    return Span(name=name, category=category, start_ns=start_ns, duration_ns=duration_ns, **known)


@pytest.fixture
def recorded(model: Path, tmp_path: Path) -> tuple[Any, Path]:
    """Labels, two sessions, a pause and two threads; with its trace."""
    file = tmp_path / "trace.json"
    with trace(file=file) as p:
        session, other = (p.session(model, options(), providers=CPU) for _ in "ab")
        with p.record("outer"), p.record("inner"):
            session.run(None, FEED)
        p.pause()
        session.run(None, FEED)
        p.resume()
        thread = Thread(target=other.run, args=(None, FEED), name="worker")
        thread.start()
        thread.join()
        other.run(None, FEED)
    return p, file


def test_a_recording_has_the_same_frames_when_it_is_read_from_its_file(
    recorded: tuple[Any, Path],
) -> None:
    p, file = recorded
    read = Frames.read(file)
    numbers = ["span_id", "parent_span_id", "inference_id"]
    pd.testing.assert_frame_equal(
        p.frame().drop(columns=numbers), read.frame().drop(columns=numbers)
    )
    # Spans have other numbers, of the same places.
    for name in numbers:
        pd.testing.assert_series_equal(places(p.frame(), name), places(read.frame(), name))
    assert read.notes == p.notes


def places(frame: pd.DataFrame, column: str) -> pd.Series:
    """The row of each span that a column names by its number."""
    rows = dict(zip(frame["span_id"], frame.index, strict=True))
    return frame[column].map(rows)


def test_the_command_leaves_out_what_failed_and_says_so(tmp_path: Path) -> None:
    def inference(start_ns: int, duration_ns: int, number: int, **arguments: Any) -> list[Span]:  # noqa: ANN401  # any
        session = {"session": "small.onnx"}
        whole = span("inference", Category.INFERENCE, start_ns, duration_ns, id=number)
        loop = span("loop", Category.OPERATOR, start_ns, 40, id=number + 1, parent=number)
        inner = span("add", Category.OPERATOR, start_ns, 20, id=number + 2, parent=number + 1)
        return [
            replace(whole, arguments={**session, **arguments}),
            *(replace(each, arguments=session) for each in (loop, inner)),
        ]

    events = [*inference(0, 100, 1), *inference(200, 50, 4, error="Fail"), *inference(300, 80, 7)]
    result = run("trace", str(write(tmp_path / "trace.json", events)), "--json", "-")
    found = json.loads(result.out)
    assert found["notes"] == ["1 inference raised an error: the totals leave out what failed."]
    (totals,) = found["traces"]
    assert totals["inferences"][0]["latency"]["samples"] == 2
    assert totals["inferences_ms"] == pytest.approx(180e-6)
    assert calls_of(totals) == {"loop": 2, "add": 2}


def test_the_command_sums_up_each_session_of_a_recording(recorded: tuple[Any, Path]) -> None:
    _, file = recorded
    result = run("trace", str(file), "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    found = {
        each["name"]: (each["inferences"][0]["latency"]["samples"], calls_of(each))
        for each in json.loads(result.out)["traces"]
    }
    assert found == snapshot(
        {
            "small.onnx": (1, {"product": 1, "sine": 1}),
            "small.onnx #2": (2, {"product": 2, "sine": 2}),
        }
    )
    by_layer = json.loads(run("trace", str(file), "--by", "layer", "--json", "-").out)
    assert calls_of(by_layer["traces"][0]) == {"h": 1, "y": 1}


def calls_of(trace: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["calls"] for each in trace["operators"]}


def test_the_time_of_the_recording_itself_is_not_an_operator(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file, operator_limit=1) as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(3):
            session.run(None, FEED)
    assert "its profile is written" in set(p.frame()["name"])
    assert list(p.layers()["layer"]) == ["h", "y"]
    (found,) = json.loads(run("trace", str(file), "--json", "-").out)["traces"]
    assert calls_of(found) == {"product": 1, "sine": 1}


@pytest.mark.parametrize(
    ("text", "inputs", "threads"), [(NESTED, NESTED_INPUTS, 1), (WIDE, WIDE_INPUTS, 2)]
)
def test_a_profile_that_was_made_a_trace_says_the_same(
    tmp_path: Path, text: str, inputs: dict[str, Any], threads: int
) -> None:
    path = record(tmp_path, text, inputs, intra=threads, is_parallel=threads > 1)
    trace = tmp_path / "trace.json"
    before = run("trace", str(path), "--chrome", str(trace))
    assert before.exit_code == 0
    assert run("trace", str(trace)).out == before.out
    events = list(OrtProfile(path))
    names = {each.id: each.name for each in events if isinstance(each, Span)}
    again = list(RecordedTrace(trace))
    check_nesting(again)
    inferences = {
        each.id for each in again if isinstance(each, Span) and each.category is Category.INFERENCE
    }
    assert len(inferences) == 3
    # Operators on threads of a pool too.
    assert all(
        each.parent in inferences or names[each.parent or 0]
        for each in again
        if isinstance(each, Span) and each.category is Category.OPERATOR
    )


# Characters that are shown as they are: all others are escaped.
_NAMES = st.text('ab Z0/"\\<&é中', min_size=1)
_ARGUMENTS = st.dictionaries(
    _NAMES.filter(lambda name: name not in ("operator_index", "self_ms")),
    st.one_of(
        st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), _NAMES, st.lists(_NAMES)
    ),
    max_size=3,
)


@settings(max_examples=100)
@given(
    gaps=st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**40)), max_size=8),
    arguments=_ARGUMENTS,
    name=_NAMES,
    index=st.none() | st.integers(0, 2**40),
    self_ns=st.none() | st.integers(0, 0),
)
def test_written_content_is_read_back(  # noqa: PLR0913, PLR0917  # a strategy each
    tmp_path_factory: pytest.TempPathFactory,
    gaps: list[tuple[int, int]],
    arguments: dict[str, Any],
    name: str,
    index: int | None,
    self_ns: int | None,
) -> None:
    events: list[Event] = [
        ThreadName(name=name, process=3),
        ThreadName(name=name, process=3, thread=9),
        Counter(name=name, at_ns=0, values={"peak_bytes": 5.0}, process=3),
    ]
    now_ns = 0
    for number, (gap_ns, duration_ns) in enumerate(gaps, 1):
        now_ns += gap_ns
        # None is the whole of it, in the file as in the record.
        own_ns = None if not duration_ns else self_ns
        events.append(
            span(
                name,
                Category.OPERATOR,
                now_ns,
                duration_ns,
                process=3,
                thread=9,
                id=number,
                self_ns=own_ns,
                operator_index=index,
                arguments=arguments,
            )
        )
        now_ns += duration_ns
    path = write(tmp_path_factory.getbasetemp() / "any.json", events, {"notes": [name]})
    trace = RecordedTrace(path)
    assert list(trace) == events
    assert trace.notes == (name,)


def test_the_work_of_a_pool_is_written_with_the_other_arguments(tmp_path: Path) -> None:
    operator = span("a", Category.OPERATOR, 0, 9, id=1, arguments={"op_type": "A"})
    path = write(tmp_path / "trace.json", [replace(operator, pool={"run_us": 5})])
    assert list(RecordedTrace(path)) == [replace(operator, arguments={"op_type": "A", "run_us": 5})]


def test_cases_of_a_profile_that_was_made_a_trace_stay_apart(tmp_path: Path) -> None:
    stored, made = tmp_path / "profile.json", tmp_path / "trace.json"
    stored.write_text(dump_profile(measured_cases()), "utf-8")
    assert run("trace", str(stored), "--chrome", str(made)).exit_code == 0
    layers = Frames.read(made).layers()
    assert layers["session"].nunique() == 4
    pd.testing.assert_frame_equal(layers, Frames.read(stored).layers())


def test_an_operator_on_a_pool_belongs_to_the_inference_that_ran_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trace.json",
        [
            span("alone", Category.INFERENCE, 0, 100, thread=1),
            span("a", Category.OPERATOR, 10, 10),
            span("one", Category.INFERENCE, 200, 100, thread=1),
            span("other", Category.INFERENCE, 200, 50, thread=2),
            span("b", Category.OPERATOR, 210, 10),
            span("c", Category.OPERATOR, 260, 10),
            span("late", Category.OPERATOR, 295, 10),
        ],
    )
    parents = {each.name: each.parent for each in RecordedTrace(path) if isinstance(each, Span)}
    assert (parents["a"], parents["b"], parents["c"], parents["late"]) == (1, None, 3, None)


def test_an_operator_on_a_pool_belongs_to_the_inference_of_its_session(tmp_path: Path) -> None:
    one, other = ({"session": name} for name in ("one.onnx", "other.onnx"))
    path = write(
        tmp_path / "trace.json",
        [
            span("one", Category.INFERENCE, 0, 100, thread=1, arguments=one),
            span("other", Category.INFERENCE, 0, 80, thread=2, arguments=other),
            span("a", Category.OPERATOR, 10, 10, arguments=one),
            span("b", Category.OPERATOR, 30, 10, arguments=other),
            span("c", Category.OPERATOR, 50, 10, arguments=one),
        ],
    )
    parents = {each.name: each.parent for each in RecordedTrace(path) if isinstance(each, Span)}
    assert (parents["a"], parents["b"], parents["c"]) == (1, 2, 1)


def test_a_second_session_around_a_thread_must_begin_before_the_first(tmp_path: Path) -> None:
    """If two begin together, a viewer would have the first one around the second."""
    made = [
        span("load", Category.LOAD, 6_000, 1_000),
        span("one", Category.SESSION, 2_000, 10_000),
        span("longer", Category.SESSION, 2_000, 20_000),
        span("around", Category.SESSION, 0, 20_000),
    ]
    trace = RecordedTrace(write(tmp_path / "trace.json", made))
    events = list(trace)
    assert [each.name for each in check_nesting(events)] == ["load", "one", "around"]
    assert trace.notes[0].startswith("1 of its events ")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"name":1,"ph":"X","pid":1}',
        '{"name":"a","ph":"X","pid":1,"tid":1,"ts":-1.0,"dur":1.0}',
        '{"name":"a","ph":"X","pid":1,"tid":1,"ts":1e30,"dur":1.0}',
        '{"name":"a","ph":"X","pid":1,"tid":1,"ts":NaN,"dur":1.0}',
        '{"name":"a","ph":"X","pid":1,"tid":1,"ts":1.0,"dur":1.0,"args":[' + "[" * 100_000,
    ],
)
def test_a_line_that_is_not_an_event_is_reported(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "trace.json", [span("a", Category.INFERENCE, 1, 2)])
    path.write_text(path.read_text().replace("\n],\n", f",\n{line}\n],\n"))
    trace = RecordedTrace(path)
    assert [each.name for each in trace if isinstance(each, Span)] == ["a"]
    assert trace.notes == ("1 of its events cannot be read, the first at line 4.",)


def test_values_that_we_do_not_write_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", [span("a", Category.OPERATOR, 1, 2)])
    odd = '"args":{"self_ms":9.5,"operator_index":-1,"macs":{"a":1},"op_type":"Conv","x":[1]}'
    path.write_text(path.read_text().replace('"dur":0.002', f'"dur":0.002,{odd}'))
    (found,) = RecordedTrace(path)
    assert isinstance(found, Span)
    assert (found.self_ns, found.operator_index, found.arguments) == (
        None,
        None,
        {"op_type": "Conv"},
    )


def test_a_trace_that_is_cut_anywhere_gives_what_is_there(
    recorded: tuple[Any, Path], tmp_path: Path
) -> None:
    _, file = recorded
    content = file.read_bytes()
    whole = len(list(RecordedTrace(file)))
    cut = tmp_path / "cut.json"
    for size in range(len(TRACE_HEAD), len(content) - 4, 97):
        cut.write_bytes(content[:size])
        trace = RecordedTrace(cut)
        assert len(list(trace)) <= whole
        assert trace.notes[0] == "the end of the file is missing."


def test_a_trace_of_rounds_is_refused_with_what_to_give(tmp_path: Path) -> None:
    path = write(tmp_path / "rounds.json", [], {"rounds": "They are shown where they ran."})
    with pytest.raises(UsageError, match=r"rounds\.json is a trace of rounds, .*--json F"):
        open_profile(path)
