"""Data frames have what the spans of a trace say, in signed numbers, whatever was recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.tracing.files.opening import read_stored_profile
from pytest_modelperf.tracing.frames import Frames
from pytest_modelperf.tracing.frames.tables import events_of, make_rows
from pytest_modelperf.tracing.records import Argument, Category, Counter, Event, Span, ThreadName
from tests.support.known import known
from tests.support.profiles import measured_cases, measured_classifier, measured_function
from tests.support.small_models import ones, parse

DERIVED: Sequence[Callable[[Frames], pd.DataFrame]] = (
    Frames.frame, Frames.inferences, Frames.executions, Frames.operators, Frames.operator_calls,
    Frames.layers, Frames.summary,
)  # fmt: skip
PRINTED: Sequence[Callable[[Frames], None]] = (
    Frames.print_inferences, Frames.print_executions, Frames.print_operators,
    Frames.print_operator_calls, Frames.print_layers, Frames.print_summary,
)  # fmt: skip
PERCENTILES = {50.0: "median", 90.0: "p90", 95.0: "p95", 97.0: "p97", 99.0: "p99", 99.9: "p99.9"}
FEW = settings(max_examples=30)
EVIL = "a\x1b[31m\n\u202eb"


def span(name: str, category: Category, start_ns: int, duration_ns: int, **facts: Any) -> Span:  # noqa: ANN401  # any field
    return Span(name=name, category=category, start_ns=start_ns, duration_ns=duration_ns, **facts)


def operator(name: str, start_ns: int, duration_ns: int, **facts: Any) -> Span:  # noqa: ANN401  # any field
    details: dict[str, Argument] = {
        "op_type": name.rstrip("0123456789"),
        **facts.pop("arguments", {}),
    }
    return span(name, Category.OPERATOR, start_ns, duration_ns, arguments=details, **facts)


def recording() -> Iterator[Event]:
    """Two inferences below a label and one outside; a loop runs another operator inside."""
    yield ThreadName(name="main", process=1, thread=7)
    yield operator("Conv1", 10, 30, id=3, parent=2, operator_index=0, process=1, thread=7)
    yield operator("Relu1", 55, 10, id=5, parent=4, operator_index=2, process=1, thread=7)
    yield operator(
        "Loop1", 50, 20, id=4, parent=2, operator_index=1, process=1, thread=7, self_ns=10
    )
    yield Counter(name="memory", at_ns=60, values={"bytes": 4.0})
    yield span("inference", Category.INFERENCE, 5, 80, id=2, parent=1, process=1, thread=7)
    yield operator("Conv1", 105, 50, id=7, parent=6, operator_index=0, process=1, thread=7)
    yield span("inference", Category.INFERENCE, 100, 60, id=6, parent=1, process=1, thread=7)
    yield span("warm up", Category.LABEL, 0, 170, id=1, process=1, thread=7)
    yield span("inference", Category.INFERENCE, 200, 40, id=8, process=1, thread=8)


@st.composite
def trees(draw: st.DrawFn) -> list[Event]:
    """Inferences one after another, each with operators that run one after another, or inside."""
    spans: list[Event] = []
    ids = iter(range(1, 1000))
    clock = 0

    def grow(start_ns: int, parent: int, inference: Span | None, depth: int) -> int:
        nonlocal clock
        clock = start_ns + draw(st.integers(0, 5))
        begun, own = clock, next(ids)
        inside = 0
        for _ in range(draw(st.integers(0, 3 - depth))):
            inside += grow(clock, own, inference, depth + 1)
        clock += draw(st.integers(0, 40))
        name, duration_ns = draw(st.sampled_from(("Add1", "Mul1", "If1"))), clock - begun
        spans.append(
            operator(name, begun, duration_ns, id=own, parent=parent, self_ns=duration_ns - inside)
        )
        return duration_ns

    for _ in range(draw(st.integers(0, 4))):
        own, begun = next(ids), clock
        for _ in range(draw(st.integers(0, 3))):
            grow(clock, own, None, 0)
        clock += draw(st.integers(0, 20))
        thread = draw(st.integers(1, 3))
        spans.append(
            span("inference", Category.INFERENCE, begun, clock - begun, id=own, thread=thread)
        )
    return spans


def durations(draws: Sequence[int]) -> list[Event]:
    return [
        span("inference", Category.INFERENCE, 0, ns, id=index) for index, ns in enumerate(draws, 1)
    ]


# -- columns and types


@pytest.mark.parametrize("derive", DERIVED)
def test_columns_have_signed_numbers_of_64_bits_and_the_same_types_if_nothing_is_recorded(
    derive: Callable[[Frames], pd.DataFrame],
) -> None:
    nothing, something = derive(Frames()), derive(Frames(recording()))
    assert len(nothing) == 0
    assert len(something) > 0
    assert nothing.dtypes.to_dict() == something.dtypes.to_dict()
    assert {str(dtype) for dtype in something.dtypes} <= {"int64", "Int64", "float64", "string"}


def test_failed_inferences_are_reported_and_count_in_no_figure() -> None:
    error: dict[str, Argument] = {"error": "InvalidArgument"}
    frames = Frames(
        [
            *recording(),
            span("inference", Category.INFERENCE, 300, 5, id=9, parent=10, arguments=error),
            operator("Conv1", 301, 2, id=11, parent=9, operator_index=0),
            span("body", Category.LABEL, 290, 40, id=10, arguments={"error": "KeyError"}),
        ]
    )
    assert frames.summary(by=())["count"].tolist() == [3]
    assert frames.operators()["count"].tolist() == [2, 1, 1]
    assert frames.layers()["calls"].sum() == 4
    # The program ended this label, and its time is what it took.
    assert frames.summary("name", "label")["count"].tolist() == [1, 1]
    for found in (frames.inferences(), frames.executions()):
        assert found["error"].fillna("").tolist() == ["InvalidArgument", "", "", ""]
    calls = frames.where("error", "InvalidArgument").operator_calls()
    assert calls["span_id"].tolist() == [11]


def test_the_columns_are_those_that_others_know() -> None:
    assert fill(" ".join(Frames().frame().columns), 90) == snapshot("""\
parent_span_id span_id start end cat name process.id thread.id thread.name operator_index
dur self inference_id session label error op_type provider precision layer kernel
input_shape output_shape fused macs params\
""")


def test_a_span_is_a_row_with_its_facts() -> None:
    rows = Frames(recording()).frame().set_index("span_id")
    assert dict(rows.loc[4].dropna()) == snapshot(
        {
            "parent_span_id": np.int64(2),
            "start": np.int64(50),
            "end": np.int64(70),
            "cat": "operator",
            "name": "Loop1",
            "process.id": np.int64(1),
            "thread.id": np.int64(7),
            "thread.name": "main",
            "operator_index": np.int64(1),
            "dur": np.int64(20),
            "self": np.int64(10),
            "inference_id": np.int64(2),
            "label": "warm up",
            "op_type": "Loop",
        }
    )
    assert rows.loc[3, "self"] == rows.loc[3, "dur"] == 30


def test_rows_are_in_the_order_of_time_with_the_enclosing_span_first() -> None:
    spans = [
        span("inference", Category.INFERENCE, 10, 40, id=3, parent=1),
        operator("Add1", 10, 40, id=4, parent=3),
        operator("Mul1", 8, 1, id=2, parent=1),
        span("label", Category.LABEL, 8, 60, id=1),
    ]
    assert Frames(spans).frame()["span_id"].tolist() == [1, 2, 3, 4]


def test_a_changed_frame_changes_no_other() -> None:
    frames = Frames(recording())
    changed = frames.frame()
    changed["dur"] = -1
    assert (frames.frame()["dur"] > 0).all()


def test_a_count_that_needs_more_than_64_bits_is_missing() -> None:
    counts = {"macs": 1 << 63, "params": (1 << 63) - 1}
    row = Frames([operator("Conv1", 0, 1, id=1, arguments=counts)]).frame().iloc[0]
    assert row["macs"] is pd.NA
    assert row["params"] == (1 << 63) - 1


# -- what a span ran inside of


def test_a_span_knows_its_label_its_inference_and_its_session() -> None:
    rows = Frames(recording()).frame().set_index("span_id")
    assert rows["label"].fillna("-").to_dict() == {**dict.fromkeys(range(1, 8), "warm up"), 8: "-"}
    assert rows["inference_id"].fillna(0).to_dict() == {
        1: 0, 2: 2, 3: 2, 4: 2, 5: 2, 6: 6, 7: 6, 8: 8,
    }  # fmt: skip
    assert rows["session"].isna().all()


def test_the_nearest_label_counts() -> None:
    spans = (
        span("outer", Category.LABEL, 0, 100, id=1),
        span("inner", Category.LABEL, 10, 50, id=2, parent=1),
        span("inference", Category.INFERENCE, 20, 5, id=3, parent=2),
        span("inference", Category.INFERENCE, 70, 5, id=4, parent=1),
    )
    assert Frames(spans).inferences()["label"].tolist() == ["inner", "outer"]


def test_operators_belong_to_the_session_of_their_inference() -> None:
    spans = (
        span("a.onnx", Category.SESSION, 0, 5, id=1),
        span("inference", Category.INFERENCE, 10, 5, id=2, arguments={"session": "a.onnx"}),
        operator("Add1", 11, 2, id=3, parent=2),
        span("inference", Category.INFERENCE, 20, 5, id=4, arguments={"session": "b.onnx"}),
        operator("Add1", 21, 2, id=5, parent=4),
    )
    rows = Frames(spans).frame()
    assert rows["session"].tolist() == ["a.onnx"] * 3 + ["b.onnx"] * 2
    assert Frames(spans).layers()["session"].tolist() == ["a.onnx", "b.onnx"]


def test_without_that_it_is_the_session_around() -> None:
    spans = (
        span("whole", Category.SESSION, 0, 50, id=9),
        span("inference", Category.INFERENCE, 10, 5, id=2, parent=9),
        operator("Add1", 11, 2, id=3, parent=2),
    )
    assert Frames(spans).frame()["session"].tolist() == ["whole"] * 3


def test_spans_with_each_other_as_parent_are_inside_no_inference() -> None:
    circle = [operator("Add1", 0, 5, id=1, parent=2), operator("Mul1", 0, 5, id=2, parent=1)]
    assert Frames(circle).operator_calls()["inference_id"].isna().all()


@FEW
@given(trees())
def test_each_operator_is_of_the_inference_that_its_parents_lead_to(events: list[Event]) -> None:
    spans = {event.id: event for event in events if isinstance(event, Span)}

    def inference_of(one: Span) -> int:
        while one.category is not Category.INFERENCE:
            one = spans[known(one.parent)]
        return one.id

    calls = Frames(events).operator_calls()
    assert dict(zip(calls["span_id"], calls["inference_id"], strict=True)) == {
        id_: inference_of(one) for id_, one in spans.items() if one.category is Category.OPERATOR
    }


@FEW
@given(trees())
def test_self_times_of_an_inference_sum_to_no_more_than_it_took(events: list[Event]) -> None:
    frames = Frames(events)
    took = frames.inferences().set_index("span_id")["dur"]
    sums = frames.operator_calls().groupby("inference_id")["self"].sum()
    assert all(total <= took[inference] for inference, total in sums.items())
    rows = frames.frame()
    assert (rows["dur"] >= rows["self"]).all()
    assert (rows["self"] >= 0).all()
    assert (rows["end"] - rows["start"] == rows["dur"]).all()


# -- filters

CHOICES = (("cat", "operator"), ("name", "Add1"), ("thread.id", 2), ("op_type", None))


@FEW
@given(trees(), st.sampled_from(CHOICES), st.sampled_from(CHOICES))
def test_filters_compose_in_any_order(
    events: list[Event], one: tuple[str, object], other: tuple[str, object]
) -> None:
    frames = Frames(events)
    both = frames.where(*one).where(*other).frame()
    pd.testing.assert_frame_equal(both, frames.where(*other).where(*one).frame())
    slow = [
        row["span_id"]
        for _, row in frames.frame().iterrows()
        if all(_is(row[column], value) for column, value in (one, other))
    ]
    assert both["span_id"].tolist() == slow


def _is(found: object, wanted: object) -> bool:
    return found is pd.NA if wanted is None else found is not pd.NA and found == wanted


def test_a_filter_leaves_what_spans_ran_inside_of() -> None:
    calls = Frames(recording()).where("cat", Category.OPERATOR).where("label", "warm up")
    assert calls.operator_calls()["inference_id"].tolist() == [2, 2, 2, 6]
    assert len(calls.inferences()) == 0


def test_a_value_of_another_type_is_that_of_no_row() -> None:
    frames = Frames(recording())
    assert len(frames.where("thread.id", "main").frame()) == 0
    assert len(frames.where("operator_index", "Conv").frame()) == 0
    assert len(frames.where("name", 7).frame()) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda frames: frames.where("opp_type", 1),
        lambda frames: frames.operators(by="opp_type"),
        lambda frames: frames.summary(by=("opp_type",)),
        lambda frames: frames.summary(by="opp_type"),
    ],
)
def test_a_column_that_is_not_there_is_named_with_the_nearest(
    ask: Callable[[Frames], object],
) -> None:
    with pytest.raises(UsageError, match=r"no column 'opp_type'\. Did you mean 'op_type'\? There"):
        ask(Frames())


# -- operators and layers


def test_operators_add_up_their_self_times_the_most_first() -> None:
    found = Frames(recording()).operators()
    assert [list(found.columns), *found.to_numpy().tolist()] == snapshot(
        [
            ["name", "op_type", "average", "count", "total", "share"],
            ["Conv1", "Conv", 40.0, 2, 80, 0.8],
            ["Loop1", "Loop", 10.0, 1, 10, 0.1],
            ["Relu1", "Relu", 10.0, 1, 10, 0.1],
        ]
    )


def test_operators_can_be_grouped_and_sorted_by_any_column() -> None:
    frames = Frames(recording())
    by_type = frames.operators(by="op_type", sort="op_type")
    assert by_type["op_type"].tolist() == ["Conv", "Loop", "Relu"]
    assert frames.operators(by="inference_id", sort="count")["inference_id"].tolist() == [2, 6]


@FEW
@given(trees())
def test_operators_and_their_calls_have_the_same_figures(events: list[Event]) -> None:
    calls, found = Frames(events).operator_calls(), Frames(events).operators()
    assert found["count"].sum() == len(calls)
    assert found["total"].sum() == calls["self"].sum()
    assert found["average"].to_numpy() == pytest.approx(found["total"] / found["count"])
    for name, total in zip(found["name"], found["total"], strict=True):
        assert total == calls[calls["name"] == name]["self"].sum()


def test_a_layer_has_its_time_in_one_inference() -> None:
    """Two inferences ran: its time is the mean of both, with that of all its kernels."""
    spans = (
        span("inference", Category.INFERENCE, 0, 100, id=1),
        operator("Reorder1", 0, 10, id=2, parent=1, operator_index=0),
        operator("conv_a", 10, 50, id=3, parent=1, operator_index=1, arguments={"layer": "c"}),
        operator("conv_b", 60, 20, id=4, parent=1, operator_index=2, arguments={"layer": "c"}),
        span("inference", Category.INFERENCE, 100, 100, id=5),
        operator("Reorder1", 110, 10, id=6, parent=5, operator_index=0),
        operator("conv_a", 120, 70, id=7, parent=5, operator_index=1, arguments={"layer": "c"}),
    )
    columns = ["layer", "name", "time", "share", "calls"]
    assert Frames(spans).layers()[columns].fillna("-").to_numpy().tolist() == [
        ["-", "Reorder1", 10.0, 0.125, 2],
        ["c", "conv_a", 70.0, 0.875, 3],
    ]
    assert Frames(spans).layers(sort="time")["layer"].tolist()[0] == "c"


@pytest.mark.slow
@FEW
@given(trees())
def test_layers_add_up_to_what_operators_take_of_an_inference(events: list[Event]) -> None:
    frames = Frames(events)
    calls = frames.operator_calls()
    inferences = max(1, calls["inference_id"].nunique())
    assert frames.layers()["time"].sum() == pytest.approx(calls["self"].sum() / inferences)
    assert frames.layers()["calls"].sum() == len(calls)


# -- summary


@FEW
@given(
    st.one_of(
        st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20),
        st.integers(50, 700).map(lambda count: [7 * index % 1013 for index in range(count)]),
    )
)
def test_a_summary_is_what_numpy_says_of_the_same_numbers(times: list[int]) -> None:
    (found,) = Frames(durations(times)).summary().to_dict("records")
    assert (found["count"], found["min"], found["max"]) == (len(times), min(times), max(times))
    assert found["mean"] == pytest.approx(np.mean(times))
    for percent, name in PERCENTILES.items():
        if percent == 50.0 or len(times) >= needed_samples(percent):
            assert found[name] == pytest.approx(np.percentile(times, percent))
        else:
            assert np.isnan(found[name])


@pytest.mark.parametrize(("percent", "name"), [(90.0, "p90"), (95.0, "p95")])
def test_a_percentile_appears_with_the_last_sample_that_it_needs(percent: float, name: str) -> None:
    needed = needed_samples(percent)
    assert np.isnan(Frames(durations([5] * (needed - 1))).summary()[name][0])
    assert Frames(durations([5] * needed)).summary()[name][0] == 5.0


def test_four_inferences_have_a_median_and_the_samples_that_percentiles_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Frames(durations([1_584_494, 1_824_769, 2_111_363, 3_027_309])).print_summary()
    assert capsys.readouterr().out == snapshot("""\

durations of each inference, in ms
name       count    min    max   mean  median   p90    p95    p97    p99   p99.9
────────────────────────────────────────────────────────────────────────────────
inference      4  1.584  3.027  2.137   1.968  (64)  (130)  (219)  (662)  (6636)
(n): it takes n samples to tell
""")


def test_an_execution_is_its_total_its_run_and_the_wait_between() -> None:
    found = Frames(recording()).executions()
    assert found["label"].fillna("-").tolist() == ["warm up", "warm up", "-"]
    # The third has no operators that were recorded.
    figures = found[["span_id", "execution", "total", "run", "wait"]].astype("Int64").fillna(-1)
    assert figures.to_numpy().tolist() == [
        [2, 0, 80, 50, 30],
        [6, 1, 60, 50, 10],
        [8, 2, 40, -1, -1],
    ]


def test_operators_that_run_at_once_count_once_and_no_wait_is_less_than_nothing() -> None:
    """Sums of durations would run for longer than the inference took."""
    spans = [
        span("inference", Category.INFERENCE, 100, 60, id=1),
        operator("Conv1", 110, 40, id=2, parent=1, thread=1),
        operator("Relu1", 105, 30, id=3, parent=1, thread=2),
        # It is said to end after its inference.
        operator("Add1", 155, 30, id=4, parent=1, thread=3),
    ]
    (found,) = Frames(spans).executions().to_dict("records")
    assert (found["total"], found["run"], found["wait"]) == (60, 50, 10)


@pytest.mark.slow
@FEW
@given(trees())
def test_run_and_wait_are_the_whole_of_an_execution(events: list[Event]) -> None:
    frames = Frames(events)
    found = frames.executions()
    ran = frames.frame()
    assert found["span_id"].tolist() == frames.inferences()["span_id"].tolist()
    for row in found.to_dict("records"):
        inside = ran[(ran["cat"] == "operator") & (ran["inference_id"] == row["span_id"])]
        if not len(inside):
            assert pd.isna(row["run"])
            continue
        moments = set[int]()
        for begin, end in zip(inside["start"], inside["end"], strict=True):
            moments |= set(range(begin, end))
        assert row["run"] == len(moments)
        assert row["wait"] == row["total"] - row["run"] >= 0


def test_a_difference_of_times_can_be_less_than_nothing() -> None:
    """Unsigned numbers would show the smaller minus the larger as 18446744073709551609."""
    frames = Frames(durations([3, 4]))
    assert (frames.frame()["dur"] - 10).tolist() == [-6, -7]
    assert (frames.summary()["min"] - 10).tolist() == [-7]


def test_a_summary_can_be_of_any_category_and_by_any_columns() -> None:
    frames = Frames(recording())
    by_label = frames.summary(by=("label",))
    assert frames.summary(by="label").equals(by_label)
    assert by_label[["label", "count"]].fillna("-").to_numpy().tolist() == [
        ["warm up", 2],
        ["-", 1],
    ]
    assert frames.summary(by=())["count"].tolist() == [3]
    by_type = frames.summary(by=("op_type",), cat="operator")
    largest = dict(zip(by_type["op_type"], by_type["max"], strict=True))
    assert largest == {"Conv": 50, "Loop": 20, "Relu": 10}


def test_a_category_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no category 'operators'\. There are: label, session"):
        Frames().summary(cat="operators")


# -- printed


def test_the_printed_tables(capsys: pytest.CaptureFixture[str]) -> None:
    frames = Frames(recording())
    for show in PRINTED:
        show(frames)
    assert capsys.readouterr().out == snapshot("""\

inferences, in ms
label    name       thread     start       dur
──────────────────────────────────────────────
warm up  inference  main    0.000005  0.000080
warm up  inference  main    0.000100  0.000060
         inference  8       0.000200  0.000040

executions, in ms
label    execution  thread     total       run      wait
────────────────────────────────────────────────────────
warm up          0  main    0.000080  0.000050  0.000030
warm up          1  main    0.000060  0.000050  0.000010
                 2  8       0.000040

operators by op_type, in ms
op_type   average  count     total   share
──────────────────────────────────────────
Conv     0.000040      2  0.000080  80.0 %
Loop     0.000010      1  0.000010  10.0 %
Relu     0.000010      1  0.000010  10.0 %

operator calls, in ms
inference_id  operator_index  name   op_type  thread     start       dur      self
──────────────────────────────────────────────────────────────────────────────────
           2               0  Conv1  Conv     main    0.000010  0.000030  0.000030
           2               1  Loop1  Loop     main    0.000050  0.000020  0.000010
           2               2  Relu1  Relu     main    0.000055  0.000010  0.000010
           6               0  Conv1  Conv     main    0.000105  0.000050  0.000050

layers, in ms of one inference
layer  op_type      time   share  calls
───────────────────────────────────────
Conv1  Conv     0.000040  80.0 %      2
Loop1  Loop     0.000005  10.0 %      1
Relu1  Relu     0.000005  10.0 %      1

durations of each inference, in ms
name       count       min       max      mean    median   p90    p95    p97    p99   p99.9
───────────────────────────────────────────────────────────────────────────────────────────
inference      3  0.000040  0.000080  0.000060  0.000060  (64)  (130)  (219)  (662)  (6636)
(n): it takes n samples to tell
""")


@pytest.mark.parametrize("show", PRINTED)
@pytest.mark.parametrize("columns", [80, 1000])
def test_printed_tables_are_as_wide_as_the_terminal_and_safe(
    show: Callable[[Frames], None],
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    hostile = {"session": EVIL * 9, "op_type": EVIL, "fused": [EVIL] * 20, "output_shape": "1x2"}
    show(
        Frames(
            [
                span(EVIL * 9, Category.INFERENCE, 0, 9, id=1, arguments=hostile),
                span(EVIL * 9, Category.OPERATOR, 0, 9, id=2, parent=1, arguments=hostile),
            ]
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= min(columns, 160)
    assert any("\\x1b" in line or "…" in line for line in lines)


def test_rows_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Frames(recording()).print_operator_calls(top=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "3 more: top=None shows all"
    assert len(lines) == 6


# -- stored profiles


def store(profile: Profile, folder: Path) -> Path:
    file = folder / "profile.json"
    file.write_text(dump_profile(profile))
    return file


def test_the_inferences_of_a_stored_profile_are_its_raw_rounds(tmp_path: Path) -> None:
    profile = measured_cases()
    frames = Frames.read(store(profile, tmp_path))
    rounds = {
        case.case.id: [ns for made in case.measured.rounds for ns in made.times_ns]
        for case in profile.cases
        if case.measured is not None
    }
    assert len(rounds) == 4
    found = frames.where("name", "inference").inferences()
    assert {session: times["dur"].tolist() for session, times in found.groupby("session")} == rounds
    assert frames.notes == (
        "b1-c8: skipped, the machine has 2 processors",
        "b64-c2: failed, the worker was ended by SIGKILL in round 3",
    )


def test_the_summary_of_a_stored_profile_is_what_it_says_of_its_latency(tmp_path: Path) -> None:
    profile = measured_classifier()
    frames = Frames.read(store(profile, tmp_path)).where("name", "inference")
    latency = profile.cases[0].latency
    (found,) = frames.summary().to_dict("records")
    assert found["session"] == "b1-c1"
    assert (found["count"], found["min"]) == (latency.samples, latency.min_ns)
    for percent, name in PERCENTILES.items():
        expected = latency.percentile(percent).value_ns
        assert found[name] == pytest.approx(np.nan if expected is None else expected, nan_ok=True)


def test_the_layers_of_a_stored_profile_add_up_to_its_median(tmp_path: Path) -> None:
    profile = measured_cases()
    layers = Frames.read(store(profile, tmp_path)).layers()
    for case in profile.cases[:4]:
        own = layers[layers["session"] == case.case.id]
        assert own["time"].sum() == pytest.approx(case.latency.median_ns, abs=1)
        assert own["share"].sum() == pytest.approx(1.0)
    columns = ["layer", "name", "op_type", "macs", "fused", "kernel"]
    shown = layers[layers["session"] == "b8-c1"][columns].astype(object)
    assert shown.where(shown.notna(), None).to_numpy().tolist() == snapshot(
        [
            ["c", "stem_convolution", "Conv", 3538944, "r", "c_nchwc"],
            ["p", "pool", "GlobalAveragePool", 0, None, "p_nchwc"],
            ["f", "flatten", "Flatten", 0, None, "flatten"],
            ["logits", "classifier", "Gemm", 1280, None, "classifier"],
            [None, "ReorderInput", "layout", None, None, "ReorderInput"],
            [None, "runtime overhead", "runtime overhead", None, None, None],
        ]
    )


def test_the_layers_of_a_stored_profile_are_its_operators(tmp_path: Path) -> None:
    calls = Frames.read(store(measured_classifier(), tmp_path)).operator_calls()
    assert calls["label"].unique().tolist() == ["typical inference"]
    assert calls["operator_index"].tolist() == list(range(5))


def test_a_function_has_inferences_and_no_layers(tmp_path: Path) -> None:
    frames = Frames.read(store(measured_function(), tmp_path))
    assert len(frames.where("name", "inference").inferences()) == 240
    assert len(frames.layers()) == 0
    assert frames.notes == ("b1-c1: the engine reported no layer times",)


def test_the_spans_of_a_stored_profile_are_inside_their_parents(tmp_path: Path) -> None:
    events = list(read_stored_profile(store(measured_cases(), tmp_path)).events())
    spans = {event.id: event for event in events if isinstance(event, Span)}
    assert len(spans) == sum(isinstance(event, Span) for event in events)
    seen: set[int] = set()
    for one in spans.values():
        seen.add(one.id)
        if one.parent is not None:
            around = spans[one.parent]
            assert around.start_ns <= one.start_ns <= one.end_ns <= around.end_ns
            assert around.id in seen
    assert {one.category for one in spans.values() if one.parent is None} == {Category.SESSION}


def test_overhead_that_is_less_than_nothing_has_no_span(tmp_path: Path) -> None:
    file = store(measured_classifier(), tmp_path)
    document = json.loads(file.read_text())
    *_, overhead = document["cases"][0]["layers"]
    assert overhead["kind"] == "runtime overhead"
    overhead["ms"] = -0.001
    file.write_text(json.dumps(document))
    assert "runtime overhead" not in Frames.read(file).layers()["op_type"].tolist()
    assert (Frames.read(file).frame()["dur"] >= 0).all()


# -- invalid files


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "line 1: the file ends too early"),
        ('{"displayTimeUnit": "ms", "traceEvents": []}', "it is a trace"),
        ('{"schema": 1, "verdict": "passed", "before": {}}', "it is a comparison"),
        ('{"schema": 1, "sides": []}', "it is a sweep"),
        ('{"schema": 1, "model": 3}', "model: expected object, got int"),
        ('{"schema": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_another_file_is_refused_with_what_is_wrong(text: str, found: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=found) as raised:
        Frames.read(file)
    assert str(file) in str(raised.value)
    assert "modelperf profile MODEL" in str(raised.value)


@pytest.mark.parametrize(
    ("place", "value", "found"),
    [
        (("cases",), {}, "cases: expected array, got object"),
        (("cases", 0, "raw", 0), {}, r"cases\[0\]\.raw\[0\]: object missing required field"),
        (
            ("cases", 0, "layers", 0, "ms"),
            1e300,
            r"cases\[0\]\.layers\[0\]\.ms: expected float <= 86400000",
        ),
        (("cases", 0, "seconds"), None, r"cases\[0\]\.seconds: expected a value, found null"),
    ],
)
def test_a_wrong_value_of_a_stored_profile_is_refused_with_its_place(
    place: tuple[str | int, ...], value: object, found: str, tmp_path: Path
) -> None:
    file = store(measured_classifier(), tmp_path)
    document = json.loads(file.read_text())
    *around, key = place
    inner = document
    for part in around:
        inner = inner[part]
    inner[key] = value
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=found):
        Frames.read(file)


def test_a_profile_of_a_newer_version_is_refused_with_what_to_type(tmp_path: Path) -> None:
    file = tmp_path / "newer.json"
    file.write_text('{"schema": 2, "model": {}, "cases": []}')
    found = r"newer\.json, schema: this file has schema 2, .* `python -m pip install --upgrade"
    with pytest.raises(UsageError, match=found):
        Frames.read(file)


@pytest.mark.parametrize("text", ["", "  \n", "hello"])
def test_a_file_of_no_kind_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"other\.json"):
        Frames.read(file)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gone\.json: No such file"):
        Frames.read(tmp_path / "gone.json")


# -- the runtime's own profile


@pytest.fixture(scope="module")
def ort_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two operators was run three times."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path_factory.mktemp("ort") / "profile")
    options.log_severity_level = 3
    model = parse(
        "g (float[2,4] x) => (float[2,3] y) { [mul] h = MatMul(x, w) [tan] y = Tanh(h) }",
        weights={"w": ones(4, 3)},
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for _ in range(3):
        session.run(None, {"x": ones(2, 4)})
    return Path(session.end_profiling())


def test_a_profile_of_the_runtime_has_an_inference_for_each_run(ort_profile: Path) -> None:
    frames = Frames.read(ort_profile)
    inferences, calls = frames.inferences(), frames.operator_calls()
    assert len(inferences) == 3
    assert calls.groupby("inference_id").size().tolist() == [2, 2, 2]
    assert calls["operator_index"].tolist() == [0, 1] * 3
    assert set(calls["op_type"]) == {"MatMul", "Tanh"}
    assert set(calls["provider"]) == {"CPUExecutionProvider"}
    assert frames.layers()["calls"].tolist() == [3, 3]
    assert frames.summary()["count"].tolist() == [3]
    assert frames.notes == ()


def test_a_profile_that_a_viewer_saved_is_read_too(ort_profile: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    file.write_text(json.dumps({"traceEvents": json.loads(ort_profile.read_text())}))
    # The file is the session, and every column else is the same.
    pd.testing.assert_frame_equal(
        Frames.read(file).operator_calls().drop(columns="session"),
        Frames.read(ort_profile).operator_calls().drop(columns="session"),
    )


# -- without pandas


@pytest.mark.parametrize("ask", [Frames, lambda: Frames.read("profile.json")])
def test_without_pandas_the_error_says_how_to_install_it(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-modelperf\[pandas\]'"):
        ask()


def test_a_trace_has_its_charts_and_its_page() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    frames = Frames(recording(), ("something is missing",))
    (bars,) = frames.figure("operator types").to_dict()["data"]
    assert dict(zip(bars["customdata"], bars["x"], strict=True)) == {
        "Conv": 80 / 1e6, "Loop": 10 / 1e6, "Relu": 10 / 1e6,
    }  # fmt: skip
    assert frames.figure("operators").to_dict()["data"][0]["x"][0] == 80 / 1e6
    assert "something is missing" in frames.html()
    shown = known(frames._repr_html_())
    assert "<svg" in shown
    with pytest.raises(UsageError, match=r"no chart 'layer'\. Did you mean 'layers'"):
        frames.figure("layer")


def test_a_part_of_a_trace_shows_this_part_alone() -> None:
    shown = known(Frames(recording()).where("name", "Relu1")._repr_html_())
    assert "Relu" in shown
    assert "Conv" not in shown
    nothing = known(Frames()._repr_html_())
    assert "nothing was recorded" in nothing


def test_each_table_has_its_name() -> None:
    frames = Frames(recording())
    assert frames.frame("layers").equals(frames.layers())
    assert frames.frame("operator calls").equals(frames.operator_calls())
    with pytest.raises(UsageError, match="There are: spans, inferences"):
        frames.frame("kernels")


@given(st.data())
@FEW
def test_the_spans_of_a_frame_make_the_same_frame(data: st.DataObject) -> None:
    rows = Frames(data.draw(trees())).frame()
    pd.testing.assert_frame_equal(make_rows(events_of(rows)), rows)
