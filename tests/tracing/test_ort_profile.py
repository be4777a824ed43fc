"""Reading profiles of ONNX Runtime: real ones, those of older versions, and broken ones."""

from __future__ import annotations

import json
import random
from collections import Counter as Tally
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import UsageError
from pytest_modelperf.tracing.files import ort_profile_file
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.files.ort_profile_file import ProfileFile
from pytest_modelperf.tracing.records import Category, Counter, Span, ThreadName
from tests.support.ort_profiles import (
    NESTED,
    NESTED_INPUTS,
    SCAN,
    SCAN_INPUTS,
    WIDE,
    WIDE_INPUTS,
    check_nesting,
    graph_run,
    inference,
    kernel,
    of,
    read,
    record,
    session_event,
    write_profile,
)


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("nested"), NESTED, NESTED_INPUTS)


def _parents(spans: list[Span], name: str) -> Tally[str]:
    known = {span.id: span.name for span in spans}
    return Tally(known[s.parent] for s in spans if s.name == name and s.parent is not None)


def test_operators_of_bodies_are_inside_of_the_operators_that_run_them(nested: Path) -> None:
    spans, notes = read(nested)
    assert notes == ()
    assert len(of(spans, Category.INFERENCE)) == 3
    # Three turns of the Loop in each of three inferences; the If takes another branch in the first.
    assert _parents(spans, "b/m") == {"b": 9}
    assert _parents(spans, "b/t") == {"b": 9}
    assert _parents(spans, "b/t/v") == {"b/t": 3}
    assert _parents(spans, "b/t/u") == {"b/t": 6}
    assert _parents(spans, "b") == {"inference": 3}
    assert _parents(spans, "inference") == {nested.name: 3}


def test_spans_add_up_and_are_in_the_order_of_what_is_around_them(nested: Path) -> None:
    spans, _ = read(nested)
    inferences, operators = of(spans, Category.INFERENCE), of(spans, Category.OPERATOR)
    # Self times of an inference and its operators are its duration.
    total_ns = sum(s.duration_ns if s.self_ns is None else s.self_ns for s in operators)
    between_ns = sum(s.self_ns or 0 for s in inferences)
    assert total_ns + between_ns == sum(s.duration_ns for s in inferences)
    # Indexes count from 0 in each inference, with a Loop before its body.
    indexes = Tally(s.operator_index for s in operators)
    assert indexes == dict.fromkeys(range(len(operators) // 3), 3)
    known = {span.id: span for span in operators}
    inner = [span for span in operators if span.parent in known]
    assert inner
    assert all((known[s.parent or 0].operator_index or 0) < (s.operator_index or 0) for s in inner)
    # A span is written before those inside of it.
    places = {span.id: place for place, span in enumerate(spans)}
    assert all(places[span.parent or 0] < places[span.id] for span in operators)
    # The end of the session is known last; it begins before everything else.
    session = spans[-1]
    assert session.category is Category.SESSION
    assert session.start_ns < min(span.start_ns for span in spans[:-1])


def test_operators_have_their_facts(nested: Path) -> None:
    spans, _ = read(nested)
    facts = next(span for span in spans if span.name == "b/m").arguments
    assert facts["op_type"] == "MatMul"
    assert facts["provider"] == "CPUExecutionProvider"
    assert facts["precision"] == "float32"
    assert facts["inputs"] == ("float32 4x4", "float32 4x4")
    assert (facts["input_shape"], facts["output_shape"]) == ("4x4", "4x4")
    assert facts["output_bytes"] == 64


def test_memory_in_use_and_threads_are_events_of_their_own(tmp_path: Path) -> None:
    more = {"mem_bytes_in_use": "64", "mem_in_use_peak": "128", "mem_arena_held": "1024"}
    path = write_profile(
        tmp_path / "p.json",
        [
            kernel("a", 1, 2, more=more),
            kernel("b", 5, 2, more=more),
            kernel("c", 9, 2, more={**more, "mem_in_use_peak": "256"}),
            inference(0, 20),
        ],
    )
    events = list(OrtProfile(path))
    counters = [event for event in events if isinstance(event, Counter)]
    # Only what changed.
    assert [(c.at_ns, dict(c.values)) for c in counters] == [
        (3500, {"in_use_bytes": 64, "peak_bytes": 128, "held_bytes": 1024}),
        (11500, {"in_use_bytes": 64, "peak_bytes": 256, "held_bytes": 1024}),
    ]
    names = [event for event in events if isinstance(event, ThreadName)]
    assert [(n.thread, n.name) for n in names] == [(None, "p.json"), (1, "inferences 1")]


def test_memory_is_in_the_order_of_its_clock(tmp_path: Path) -> None:
    """That is when a kernel ends: a Loop begins before its body, and ends after it."""
    peaks = [{"mem_in_use_peak": str(size)} for size in (64, 128, 256, 512)]
    path = write_profile(
        tmp_path / "p.json",
        [
            kernel("first", 2, 3, more=peaks[0]),
            kernel("body", 12, 3, more=peaks[1]),
            graph_run(11, 5),
            kernel("loop", 10, 8, more=peaks[2]),
            kernel("last", 20, 3, more=peaks[3]),
            inference(0, 30),
        ],
    )
    counters = [event for event in OrtProfile(path) if isinstance(event, Counter)]
    assert [(c.at_ns, c.values["peak_bytes"]) for c in counters] == [
        (5_500, 64),
        (15_500, 128),
        (18_500, 256),
        (23_500, 512),
    ]


def test_memory_that_is_not_a_number_is_left_out(tmp_path: Path) -> None:
    lines = [
        kernel("a", 1, 2, more={"mem_in_use_peak": True}),
        kernel("b", 4, 2, more={"mem_in_use_peak": 1}),
        inference(0, 9),
    ]
    counters = [
        event
        for event in OrtProfile(write_profile(tmp_path / "p.json", lines))
        if isinstance(event, Counter)
    ]
    assert [each.values for each in counters] == [{"peak_bytes": 1}]


def test_a_scan_is_without_the_time_of_its_body(tmp_path: Path) -> None:
    spans, notes = read(record(tmp_path, SCAN, SCAN_INPUTS, runs=2))
    assert notes == ()
    scans = [span for span in spans if span.arguments.get("op_type") == "Scan"]
    for scan in scans:
        inner = [span for span in spans if span.parent == scan.id]
        assert len(inner) == 18
        assert scan.self_ns == scan.duration_ns - sum(span.duration_ns for span in inner)
    assert len(scans) == 2


def test_threads_that_run_one_session_have_their_own_inferences(tmp_path: Path) -> None:
    spans, notes = read(record(tmp_path, NESTED, NESTED_INPUTS, runs=4, threads=3))
    assert notes == ()
    inferences = of(spans, Category.INFERENCE)
    assert sorted(Tally(span.thread for span in inferences).values()) == [4, 4, 4]
    assert len({span.arguments["operators"] for span in inferences}) == 1
    threads = {span.id: span.thread for span in inferences}
    top = [span for span in of(spans, Category.OPERATOR) if span.parent in threads]
    assert all(threads[span.parent or 0] == span.thread for span in top)


def test_operators_on_threads_of_a_pool_belong_to_the_inference_that_ran(tmp_path: Path) -> None:
    spans, notes = read(record(tmp_path, WIDE, WIDE_INPUTS, is_parallel=True, intra=2))
    assert notes == ()
    inferences = of(spans, Category.INFERENCE)
    assert [span.arguments["operators"] for span in inferences] == [5, 5, 5]
    inner = of(spans, Category.OPERATOR)
    assert all(span.parent in {span.id for span in inferences} for span in inner)
    assert "run_us" in (inner[0].pool or {})


def test_runs_of_an_operator_share_its_facts_however_the_pool_ran_them(tmp_path: Path) -> None:
    """The writer keeps the text of each object with facts: making it takes most of its time."""
    pools = [{"thread_scheduling_stats": {"main_thread": {"Run": str(us)}}} for us in (5, 6)]
    runs = [kernel("a", 1 + 10 * at, 5, more=pool) for at, pool in enumerate(pools)]
    spans, _ = read(write_profile(tmp_path / "p.json", [*runs, inference(0, 30)]))
    first, second = of(spans, Category.OPERATOR)
    assert (first.pool, second.pool) == ({"run_us": 5}, {"run_us": 6})
    assert first.arguments is second.arguments


def test_operators_on_a_pool_of_several_inferences_at_once_belong_to_none(tmp_path: Path) -> None:
    path = write_profile(
        tmp_path / "p.json",
        [
            kernel("both", 20, 5, tid=3),
            inference(0, 50, tid=1),
            kernel("one", 60, 5, tid=3),
            inference(10, 90, tid=2),
        ],
    )
    spans, notes = read(path)
    assert _parents(spans, "both") == {"p.json": 1}
    assert _parents(spans, "one") == {"inference": 1}
    assert len(notes) == 1
    assert notes[0].startswith("1 operator ran on threads of a pool while several")


def test_a_body_on_a_pool_belongs_to_the_inference_that_the_operator_around_it_does(
    tmp_path: Path,
) -> None:
    path = write_profile(
        tmp_path / "p.json",
        [
            kernel("first", 12, 8, tid=3),
            graph_run(11, 10, tid=3),
            # Here two inferences run, but only one did when the Loop began.
            kernel("second", 60, 10, tid=3),
            graph_run(58, 13, tid=3),
            kernel("loop", 10, 70, tid=3),
            inference(0, 100, tid=1),
            inference(50, 100, tid=2),
        ],
    )
    spans, notes = read(path)
    assert notes == ()
    assert _parents(spans, "first") == _parents(spans, "second") == {"loop": 1}
    assert _parents(spans, "loop") == {"inference": 1}
    (loop,) = (span for span in spans if span.name == "loop")
    assert (loop.duration_ns, loop.self_ns) == (70_500, 70_500 - 8_500 - 10_500)


def test_durations_have_the_half_microsecond_that_was_cut_off_if_there_is_room(
    tmp_path: Path,
) -> None:
    path = write_profile(
        tmp_path / "p.json",
        [kernel("a", 1, 2), kernel("b", 3, 0), kernel("c", 4, 1), inference(1, 4)],
    )
    spans, _ = read(path)
    found = {span.name: (span.start_ns, span.duration_ns) for span in spans}
    assert found["a"] == (1000, 2000)
    assert found["b"] == (3000, 500)
    assert found["c"] == (4000, 1500)
    assert found["inference"] == (1000, 4500)


def test_kernels_that_begin_in_one_microsecond_are_not_inside_of_each_other(tmp_path: Path) -> None:
    path = write_profile(
        tmp_path / "p.json",
        [kernel("a", 5, 0), kernel("b", 5, 0), kernel("c", 5, 3), inference(5, 9)],
    )
    spans, _ = read(path)
    assert all(_parents(spans, name) == {"inference": 1} for name in "abc")


def test_fences_of_versions_before_1_21_do_not_count_as_operators(tmp_path: Path) -> None:
    fences = [
        kernel("a", 5, 3).replace("_kernel_time", f"_fence_{when}") for when in ("before", "after")
    ]
    path = write_profile(
        tmp_path / "p.json", [fences[0], kernel("a", 5, 3), fences[1], inference(4, 9)]
    )
    spans, notes = read(path)
    assert notes == ()
    assert [span.name for span in of(spans, Category.OPERATOR)] == ["a"]


@pytest.mark.parametrize(
    "name",
    [
        'a "quoted" name', "back\\slash \\u12", 'ends in \\"\\', "two\nlines, \ttab",
        'looks_kernel_time","args" : {"op_name" : "X"}},', "größe 😀",
    ],
)  # fmt: skip
def test_names_that_older_versions_do_not_escape_are_read(tmp_path: Path, name: str) -> None:
    path = write_profile(
        tmp_path / "p.json", [kernel(name, 5, 3), kernel("b", 9, 3), inference(4, 9)]
    )
    spans, notes = read(path)
    assert notes == ()
    assert [span.name for span in of(spans, Category.OPERATOR)] == [name, "b"]


def test_names_are_read_as_this_version_writes_them(tmp_path: Path) -> None:
    names = ['a "quoted" name', "back\\slash\\n", "two\nlines, \ttab", "größe 😀"]
    spans, notes = read(record(tmp_path, WIDE, WIDE_INPUTS, runs=1, names=names))
    assert notes == ()
    assert {span.name for span in of(spans, Category.OPERATOR)} == {*names, "y"}


@pytest.mark.parametrize(
    "text",
    [
        '"ts" 5',
        *(f'"ts" :{value}' for value in ('"5"', "-1", "1e99", "null", "true", "NaN", "5.5", "[1]")),
    ],
)
def test_an_event_without_a_usable_time_is_reported_and_the_others_are_read(
    tmp_path: Path, text: str
) -> None:
    broken = kernel("a", 5, 3).replace('"ts" :5', text)
    path = write_profile(tmp_path / "p.json", [kernel("b", 1, 3), broken, inference(0, 9)])
    spans, notes = read(path)
    assert [span.name for span in of(spans, Category.OPERATOR)] == ["b"]
    assert notes == ("1 of its events cannot be read, the first at line 3.",)


@pytest.mark.parametrize("how", ["one line", "indented", "sorted", "object", "windows", "bom"])
def test_a_profile_that_was_saved_again_reads_the_same(
    nested: Path, tmp_path: Path, how: str
) -> None:
    text = nested.read_text(encoding="utf-8")
    events = json.loads(text)
    saved = {
        "one line": json.dumps(events),
        "indented": json.dumps(events, indent=4),
        "sorted": json.dumps(events, sort_keys=True),
        "object": json.dumps({"traceEvents": events, "otherData": {}}),
        "windows": text.replace("\n", "\r\n"),
        "bom": "\ufeff" + text,
    }[how]
    other = tmp_path / nested.name
    other.write_text(saved, encoding="utf-8", newline="")
    profile = OrtProfile(other)
    assert list(profile) == list(OrtProfile(nested))
    assert profile.notes == ()


def test_a_long_file_without_lines_is_read_in_pieces(nested: Path, tmp_path: Path) -> None:
    other = tmp_path / nested.name
    other.write_text(json.dumps(json.loads(nested.read_text(encoding="utf-8"))), encoding="utf-8")
    whole = list(ProfileFile(other).events())
    assert whole
    assert list(ProfileFile(other, chunk_characters=97).events()) == whole


@pytest.mark.parametrize("indent", [None, 1])
def test_a_profile_that_is_cut_anywhere_gives_what_is_there_and_says_that_its_end_is_missing(
    nested: Path, tmp_path: Path, indent: int | None
) -> None:
    content = nested.read_bytes()
    if indent is not None:
        content = json.dumps(json.loads(content), indent=indent).encode()
    whole = len(read(nested)[0])
    other = tmp_path / "cut.json"
    for size in random.Random(1).sample(range(1, len(content) - 3), 150):
        other.write_bytes(content[:size])
        spans, notes = read(other)
        assert any(note.startswith("the end of the file is missing") for note in notes)
        assert len(spans) <= whole


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_no_bytes_in_a_profile_end_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int
) -> None:
    lines = [kernel("a", 1, 2), graph_run(1, 5), kernel("b", 0, 7), inference(0, 9)]
    content = "[\n" + ",\n".join(lines) + "\n]\n"
    at = place % len(content)
    path = tmp_path_factory.mktemp("junk") / "p.json"
    path.write_bytes(content[:at].encode() + junk + content[at:].encode())
    try:
        events = list(OrtProfile(path))
    except UsageError:
        return
    check_nesting(events)


def test_operators_of_an_incomplete_inference_are_in_no_inference(tmp_path: Path) -> None:
    path = write_profile(
        tmp_path / "p.json",
        [kernel("a", 1, 2), inference(0, 9), kernel("a", 11, 2), kernel("b", 15, 2)],
    )
    spans, notes = read(path)
    assert _parents(spans, "a") == {"inference": 1, "p.json": 1}
    assert notes == ("2 operators ran in no inference whose end is in the profile.",)


def test_a_full_profile_is_reported(tmp_path: Path) -> None:
    lines = [kernel("a", 1, 2), inference(0, 9), kernel("a", 11, 2), kernel("b", 15, 2)]
    full = OrtProfile(write_profile(tmp_path / "full.json", lines), max_events=4)
    assert list(full)
    assert full.notes[0].startswith("ONNX Runtime writes no more than 4 events into a profile")
    other = OrtProfile(write_profile(tmp_path / "other.json", lines[:2]), max_events=4)
    assert list(other)
    assert other.notes == ()


def test_events_of_other_kinds_are_counted(tmp_path: Path) -> None:
    device = kernel("gemm", 1, 2).replace('"Node"', '"Kernel"')
    path = write_profile(
        tmp_path / "p.json",
        [session_event("session_initialization", 0, 5), session_event("odd", 6, 1), device, device],
    )
    spans, notes = read(path)
    assert [span.name for span in of(spans, Category.LOAD)] == ["session_initialization"]
    assert notes == (
        "not shown: 1 event of the kind 'odd'.",
        "not shown: 2 events of the kind 'Kernel'.",
    )


def _load(moment: int, duration: int, thread: int) -> str:
    return session_event("session_initialization", moment, duration, thread)


# At any time, on any thread and in any order: most of it cannot have happened.
_ANY_EVENT = st.one_of(
    [
        st.builds(make, st.integers(0, 40), st.integers(0, 40), st.integers(1, 3))
        # A profile has more kernels than anything else.
        for make in (partial(kernel, "k"), partial(kernel, "k"), graph_run, inference, _load)
    ]
)


@given(lines=st.lists(_ANY_EVENT, min_size=8, max_size=30))
def test_spans_are_nested_whatever_a_profile_says(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = write_profile(tmp_path_factory.getbasetemp() / "any.json", lines)
    spans, _ = read(path)
    assert len(of(spans, Category.OPERATOR)) == sum("_kernel_time" in line for line in lines)


# Values of JSON as they are written, most of them such as an event has there.
_TEXT = st.one_of(
    st.integers(0, 99).map(str),
    st.integers().map(str),
    st.sampled_from(
        ["null", "true", "5.0", "1e3", "-0.0", "NaN", "[1]", '"\\ud800"', '{"float":[1,null]}']
    ),
    st.text(max_size=4).map(json.dumps),
)


def _pairs(keys: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    pair = st.tuples(st.sampled_from(keys), _TEXT).map(lambda each: f'"{each[0]}" :{each[1]}')
    return st.lists(pair, max_size=3)


_ARGS = _pairs((*ort_profile_file.KernelTold.__struct_fields__, "mem_in_use_delta"))
_EVENT_TEXT = st.builds(
    lambda known, args, more, order: ",".join(
        order.sample(
            [
                *(f'"{key}" :{value}' for key, value in zip(("ts", "dur"), known, strict=True)),
                '"name" :"a_kernel_time"',
                '"tid" :7',
                *(f'"args" : {{{",".join(each)}}}' for each in args),
                *more,
            ],
            k=len(known) + 2 + len(args) + len(more),
        )
    ),
    st.tuples(_TEXT, st.integers(0, 99).map(str)),
    st.lists(_ARGS, max_size=2),
    _pairs(("cat", "pid", "name", "tid", "args", "ph")),
    st.randoms(use_true_random=False),
)


@given(_EVENT_TEXT, st.integers(min_value=0), st.binary(max_size=2), st.sampled_from([",", ""]))
def test_an_event_is_the_same_at_the_first_look_and_at_the_second(
    text: str, place: int, junk: bytes, end: str
) -> None:
    whole = f"{{{text}}}{end}".encode()
    at = place % len(whole)
    for line in (whole, whole[:at] + junk + whole[at + len(junk) // 2 :]):
        if b"\n" in line:
            continue
        found = ort_profile_file._event_in(line + b"\n")
        if found is not None:
            decoded = line.decode(errors="replace").rstrip(" \t\r,")
            assert found == ort_profile_file._from_object(json.loads(decoded, strict=False))


def test_lines_of_the_runtime_are_read_by_the_fast_path(nested: Path) -> None:
    lines = [line for line in nested.read_bytes().splitlines(keepends=True) if len(line) > 2]
    events = [ort_profile_file._event_in(line) for line in lines]
    assert len(events) > 50
    assert None not in events


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n ", "is empty"),
        (b"hello", "is not a profile of ONNX Runtime, which is an array of events: it starts with"),
        (b'{"schema": 1}', "it starts with '{\"schema\": 1}'"),
        (b"\x1b[31m", "it starts with"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        OrtProfile(path)
    assert said in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere.json: No such file"):
        OrtProfile(tmp_path / "nowhere.json")


def test_a_profile_can_be_read_twice(nested: Path) -> None:
    profile = OrtProfile(nested)
    assert list(profile) == list(profile)
