"""A trace is one that viewers can read, and its spans are as long as what was measured."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.profiler.counting.records import StaticLayer, StaticProfile
from pytest_modelperf.profiler.measurements import (
    LayerTime,
    Measurement,
    Round,
    RoundStarts,
    RowKind,
)
from pytest_modelperf.profiler.records import Case, CaseProfile, Outcome, Profile
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.rounds import sample
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.chrome_trace import MAX_INFERENCES, dump_trace
from tests.support.command import run
from tests.support.fake_bench import FakeBench, FakeClock, steady
from tests.support.known import known
from tests.support.profiles import (
    make_measurement,
    make_round,
    make_rounds,
    measured_cases,
    measured_classifier,
    measured_function,
    static_classifier,
    with_layer_times,
)
from tests.support.small_models import ones, parse

EVIL = 'a\x1b[31m\n\u202e"},{b\ud800'
SAFE = printable(EVIL)
NS_PER_MS = 1_000_000
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


@dataclass(frozen=True, slots=True)
class Read:
    """A span as a viewer reads it; `depth` is how many are around it."""

    name: str
    category: str
    start_ns: int
    duration_ns: int
    depth: int
    arguments: Mapping[str, Any]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def read_ns(us: float) -> int:
    """The nanoseconds that Perfetto makes of it: the rest is cut off, not rounded."""
    return int(us * 1000.0)


def read_trace(text: str) -> dict[tuple[str, str], list[Read]]:
    """The spans by the names of their process and thread, or the reason that there are none."""
    assert text.isascii()
    document = json.loads(text, parse_constant=pytest.fail)
    assert list(document) == ["displayTimeUnit", "traceEvents", "otherData"]
    # In older versions of Perfetto "ns" changes what the numbers mean.
    assert document["displayTimeUnit"] == "ms"
    names: dict[tuple[str, int, int | None], Any] = {}
    events: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        if event["ph"] == "M":
            key, kind = METADATA[event["name"]]
            assert event.keys() == {"name", "ph", "pid", "args"} | event.keys() & {"tid"}
            assert ("tid" in event) == event["name"].startswith("thread")
            assert event["args"].keys() == {key}
            assert type(event["args"][key]) is kind
            place = (event["name"], event["pid"], event.get("tid"))
            assert place not in names
            names[place] = event["args"][key]
            continue
        assert event["ph"] == "X"
        assert event.keys() - {"args"} == {"name", "cat", "ph", "pid", "tid", "ts", "dur"}
        assert event["name"]
        assert all(text.isprintable() for text in texts(event))
        assert type(event["tid"]) is int
        assert event["tid"] not in (0, event["pid"])
        for key in ("ts", "dur"):
            assert type(event[key]) is float
            assert event[key] >= 0
        assert event.get("args") != {}
        assert None not in event.get("args", {}).values()
        events.setdefault((event["pid"], event["tid"]), []).append(event)
    of_threads = [place[1:] for place in names if place[0] == "thread_name"]
    assert of_threads == list(events)
    assert len({tid for _, tid in events}) == len(events)
    assert Counter(place[0] for place in names) == {
        name: len(events) if name.startswith("thread") else len({pid for pid, _ in events})
        for name in (METADATA if events else ())
    }
    assert all(shown.isprintable() for shown in texts([*names.values(), document["otherData"]]))
    return {
        (names["process_name", pid, None], names["thread_name", pid, tid]): nested(spans)
        for (pid, tid), spans in events.items()
    }


def nested(events: Iterable[Mapping[str, Any]]) -> list[Read]:
    """The spans of one thread, each of which is within another or outside of it."""
    spans: list[Read] = []
    around: list[Read] = []
    start_us = 0.0
    for event in events:
        assert event["ts"] >= start_us
        start_us = event["ts"]
        start_ns, duration_ns = read_ns(event["ts"]), read_ns(event["dur"])
        while around and start_ns >= around[-1].end_ns:
            around.pop()
        span = Read(
            event["name"], event["cat"], start_ns, duration_ns, len(around), event.get("args", {})
        )
        assert all(span.end_ns <= outer.end_ns for outer in around)
        spans.append(span)
        around.append(span)
    return spans


def texts(value: Any) -> list[str]:  # noqa: ANN401  # whatever is in JSON
    """All texts in a document."""
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def other_data(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)["otherData"]
    return data


def with_measurement(measurement: Measurement, counted: StaticProfile | None = None) -> Profile:
    profile = static_classifier()
    graph = profile.cases[0].counted if counted is None else counted
    return replace(profile, cases=(CaseProfile(Case(1, 1), graph, measurement),))


def rounds_of(text: str) -> list[Read]:
    ((_, spans),) = [item for item in read_trace(text).items() if item[0][1] == "rounds"]
    return spans


def layers_of(text: str) -> list[Read]:
    ((_, spans),) = [item for item in read_trace(text).items() if item[0][1] == "one inference"]
    return spans


# -- rounds


def check_rounds(spans: list[Read], rounds: Iterable[Round]) -> None:
    """Each round has its parts in turn, as long as measured, and the next begins where it ends."""
    left = iter(spans)
    start_ns = 0
    for number, made in enumerate(rounds, 1):
        whole = next(left)
        parts = [next(left) for _ in range(2 + len(made.times_ns))]
        assert (whole.name, whole.category) == (f"round {number}", "round")
        assert [part.name for part in parts[:2]] == ["load", "first inference"]
        assert {part.name for part in parts[2:]} <= {"inference"}
        durations = [made.load_ns, made.first_ns, *made.times_ns]
        assert [part.duration_ns for part in parts] == durations
        assert whole.duration_ns == sum(durations)
        assert whole.start_ns == start_ns
        for part in parts:
            assert part.start_ns == start_ns
            start_ns = part.end_ns
        assert whole.arguments == {
            "warmup_runs": made.warmup_runs,
            "is_steady": made.is_steady,
            "timed_runs": len(made.times_ns),
        }
    assert list(left) == []


def test_a_round_is_as_long_as_what_was_measured_of_it() -> None:
    rounds = (
        make_round([1001, 2003, 999], load_ms=1.000001, first_ms=0.5),
        make_round([7], warmup_runs=0, is_steady=False),
    )
    spans = rounds_of(dump_trace(with_measurement(make_measurement(rounds=rounds))))
    check_rounds(spans, rounds)
    assert [span.depth for span in spans] == [0, 1, 1, 1, 1, 1, 0, 1, 1, 1]


def test_the_trace_says_that_rounds_have_no_time_stamps() -> None:
    assert "was not kept" in other_data(dump_trace(measured_classifier()))["rounds"]


# -- rounds at the times they ran


def started_round(begun_ns: int, times_ns: Sequence[int], starts_ns: Sequence[int]) -> Round:
    """A round that loads for 1000 ns, and pauses before each of its parts."""
    made = make_round(times_ns, load_ms=0.001, first_ms=0.0005, warmup_runs=3)
    starts = RoundStarts(
        load_ns=begun_ns,
        first_ns=begun_ns + 2000,
        warmup_ns=begun_ns + 3500,
        warmup_end_ns=begun_ns + 4000,
    )
    block = replace(made.block, starts_ns=tuple(begun_ns + 5000 + ns for ns in starts_ns))
    return replace(made, starts=starts, block=block)


def test_rounds_are_at_the_times_they_ran() -> None:
    rounds = (started_round(7000, (10, 20), (0, 15)), started_round(90_000, (30,), (0,)))
    text = dump_trace(with_measurement(make_measurement(rounds=rounds)))
    shown = [(s.depth, s.name, s.start_ns, s.end_ns) for s in rounds_of(text)]
    assert shown == [
        (0, "round 1", 0, 5035),
        (1, "load", 0, 1000),
        (1, "first inference", 2000, 2500),
        (1, "warm-up", 3500, 4000),
        (1, "inference", 5000, 5010),
        (1, "inference", 5015, 5035),
        (0, "round 2", 83_000, 88_030),
        (1, "load", 83_000, 84_000),
        (1, "first inference", 85_000, 85_500),
        (1, "warm-up", 86_500, 87_000),
        (1, "inference", 88_000, 88_030),
    ]
    assert "where they ran" in other_data(text)["rounds"]


def test_both_sides_of_a_duet_are_on_one_clock() -> None:
    before = make_measurement(rounds=(started_round(1000, (10, 10), (0, 30)),))
    after = make_measurement(rounds=(started_round(1200, (10, 10), (10, 20)),))
    text = dump_trace(with_measurement(after), {"b1-c1": before})
    rows = read_trace(text)
    assert [row for _, row in rows] == ["rounds", "rounds of the other side"]
    now, other = (
        [(span.start_ns, span.end_ns) for span in spans if span.name == "inference"]
        for spans in rows.values()
    )
    assert (now, other) == ([(5210, 5220), (5220, 5230)], [(5000, 5010), (5030, 5040)])


@pytest.mark.parametrize("begun_ns", [0, 4000])
def test_clocks_that_do_not_agree_are_not_believed(begun_ns: int) -> None:
    """Clocks of two machines do not agree."""
    rounds = (started_round(7000, (10,), (0,)), started_round(begun_ns, (10,), (0,)))
    text = dump_trace(with_measurement(make_measurement(rounds=rounds)))
    check_rounds(rounds_of(text), rounds)
    assert "was not kept" in other_data(text)["rounds"]


def test_a_case_without_starts_is_named_with_one_that_has_them() -> None:
    profile = with_measurement(make_measurement(rounds=(started_round(7, (10,), (0,)),)))
    plain = replace(profile.cases[0], case=Case(2, 1), measured=make_measurement())
    text = dump_trace(replace(profile, cases=(profile.cases[0], plain)))
    assert other_data(text)["without_starts"] == ["b2-c1"]


def test_layers_are_below_the_first_round_of_their_case() -> None:
    profile = measured_classifier()
    measured = known(profile.cases[0].measured)
    early = with_measurement(make_measurement(rounds=(started_round(1000, (10,), (0,)),)))
    late = replace(measured, rounds=(started_round(51_000, (10,), (0,)),))
    cases = (*early.cases, replace(profile.cases[0], case=Case(2, 1), measured=late))
    rows = read_trace(dump_trace(replace(profile, cases=cases)))
    (inference,) = [spans[0] for (_, row), spans in rows.items() if row == "one inference"]
    assert inference.start_ns == 50_000


def test_sampled_rounds_keep_their_starts() -> None:
    """The clock of the fakes is right: their times do not overlap."""
    bench = FakeBench(FakeClock(), steady(20_000))
    policy = SamplingPolicy(max_rounds=2, max_seconds=1.0)
    rounds = sample(bench, policy, bench.clock, lambda _: None)
    text = dump_trace(with_measurement(make_measurement(rounds=rounds)))
    spans = rounds_of(text)
    assert "where they ran" in other_data(text)["rounds"]
    assert [span.name for span in spans[:4]] == ["round 1", "load", "first inference", "warm-up"]
    assert spans[3].arguments == {"runs": rounds[0].warmup_runs}
    assert spans[3].duration_ns == 20_000 * rounds[0].warmup_runs


# -- one inference


def test_the_layers_of_an_inference_are_in_the_order_of_the_graph() -> None:
    spans = layers_of(dump_trace(measured_classifier()))
    shown = [(s.depth, s.name, s.category, s.start_ns, s.duration_ns) for s in spans]
    assert shown == snapshot(
        [
            (0, "inference", "inference", 0, 6708000),
            (1, "stem_convolution", "operator", 0, 6037200),
            (1, "pool", "operator", 6037200, 134160),
            (1, "flatten", "operator", 6171360, 3354),
            (1, "classifier", "operator", 6174714, 130806),
            (1, "ReorderInput", "operator", 6305520, 268320),
            (1, "runtime overhead", "overhead", 6573840, 134160),
        ]
    )


def test_a_layer_has_what_is_known_of_it() -> None:
    profile = measured_classifier()
    latency = profile.cases[0].latency
    whole, first, *spans = layers_of(dump_trace(profile))
    assert whole.arguments == {
        "p50_ms": latency.p50_ms,
        "p95_ms": latency.p95_ms,
        "samples": 240,
        "rounds": 6,
    }
    assert {span.name: dict(span.arguments) for span in (first, *spans[-2:])} == snapshot(
        {
            "stem_convolution": {
                "kernel": "c_nchwc",
                "provider": "CPUExecutionProvider",
                "precision": "float32",
                "id": "c",
                "op_type": "Conv",
                "input_shape": "1x3x32x32",
                "output_shape": "1x16x32x32",
                "macs": 442368,
                "params": 448,
                "fused": ["stem_relu (Relu), id r"],
            },
            "ReorderInput": {
                "kernel": "ReorderInput",
                "provider": "CPUExecutionProvider",
                "precision": "float32",
                "kind": "layout",
            },
            "runtime overhead": {"kind": "runtime overhead"},
        }
    )


def test_the_layers_fill_the_latency() -> None:
    profile = measured_classifier()
    rows = [row for row in profile.cases[0].layers if row.ns is not None]
    whole, *layers = layers_of(dump_trace(profile))
    assert whole.duration_ns == profile.cases[0].latency.median_ns
    assert sum(layer.duration_ns for layer in layers) == whole.duration_ns
    assert layers[-1].end_ns == whole.end_ns
    for row, layer in zip(rows, layers, strict=True):
        assert layer.duration_ns == pytest.approx(row.ns, abs=1)


def test_thousands_of_layers_of_less_than_a_nanosecond_do_not_drift() -> None:
    layers = tuple(bare_layer(f"n{index}") for index in range(3000))
    times = [(0.3 / 1000, kernel(index)) for index in range(3000)]
    measurement = with_layer_times(make_measurement(0.001), times)
    whole, *spans = layers_of(dump_trace(with_measurement(measurement, bare_profile(layers))))
    assert whole.duration_ns == 1000
    assert len(spans) == 3000
    assert sum(span.duration_ns for span in spans) == 900


# -- what is not there


def test_each_measured_case_is_a_process_and_the_others_are_named() -> None:
    profile = measured_cases()
    text = dump_trace(profile)
    measured = [case for case in profile.cases if case.measured is not None]
    names = [f"classifier.onnx {case.case.id}" for case in measured]
    threads = ("rounds", "one inference")
    assert list(read_trace(text)) == [(name, thread) for name in names for thread in threads]
    assert other_data(text)["left_out"] == snapshot(
        [
            {"case": "b1-c8", "why": "skipped: the machine has 2 processors"},
            {"case": "b64-c2", "why": "failed: the worker was ended by SIGKILL in round 3"},
        ]
    )


def test_a_case_that_did_not_run_has_no_events() -> None:
    text = dump_trace(static_classifier())
    assert read_trace(text) == {}
    assert other_data(text)["left_out"] == snapshot(
        [{"case": "b1-c1", "why": "not measured: it was profiled without running it"}]
    )


def test_without_layer_times_there_are_the_rounds_alone() -> None:
    assert list(read_trace(dump_trace(measured_function()))) == [
        ("my.module:infer b1-c1", "rounds")
    ]


def test_unknown_facts_of_a_layer_are_left_out() -> None:
    layer = bare_layer("x")
    measurement = with_layer_times(make_measurement(), [(1.0, kernel(0))])
    text = dump_trace(with_measurement(measurement, bare_profile((layer,))))
    assert layers_of(text)[1].arguments == {"id": "x", "op_type": "Op", "params": 0}


def test_a_layer_that_has_no_time_has_no_span() -> None:
    for ns in (math.nan, math.inf, -1.0):
        layers = (bare_layer("broken"), bare_layer("fine"), bare_layer("idle"))
        measurement = with_layer_times(make_measurement(), [(1.0, kernel(1))])
        times = (replace(kernel(0), ns=ns), *known(measurement.layer_times))
        odd = replace(measurement, layer_times=times)
        spans = layers_of(dump_trace(with_measurement(odd, bare_profile(layers))))
        assert [span.name for span in spans] == ["inference", "fine"]


# -- names and size


def test_no_name_can_break_the_trace() -> None:
    profile = measured_classifier()
    counted = profile.cases[0].static
    evil = tuple(
        replace(layer, id=EVIL, name=EVIL, op_type=EVIL, domain=EVIL, precision=EVIL)
        for layer in counted.layers
    )
    measured = known(profile.cases[0].measured)
    assert measured.layer_times is not None
    times = tuple(
        replace(time, kernel=EVIL, provider=EVIL, precision=EVIL) for time in measured.layer_times
    )
    measured = replace(
        measured, layer_times=times, engine=replace(measured.engine, name=EVIL, version=EVIL)
    )
    case = Case(1, 1, ((EVIL, 2),), EVIL)
    made = CaseProfile(case, replace(counted, layers=evil), measured)
    failed = CaseProfile(case, None, None, Outcome.FAILED, EVIL)
    text = dump_trace(
        replace(profile, model=replace(profile.model, name=EVIL), cases=(made, failed))
    )
    assert set(read_trace(text)) == {
        (f"{SAFE} b1-c1-{SAFE}2-{SAFE}", thread) for thread in ("rounds", "one inference")
    }
    first = layers_of(text)[1]
    assert (first.name, first.arguments["fused"]) == (SAFE, [f"{SAFE} ({SAFE}::{SAFE})"])
    assert {first.arguments[key] for key in ("id", "kernel", "provider", "precision")} == {SAFE}
    assert other_data(text)["left_out"][0]["why"] == f"failed: {SAFE}"


def bare_layer(name: str) -> StaticLayer:
    """A layer of which nothing is known."""
    return StaticLayer(
        id=name,
        name="",
        op_type="Op",
        domain="",
        weight=None,
        precision=None,
        macs=None,
        elementwise_ops=None,
        backward_macs=None,
        params=0,
        weight_bytes=0,
        output_bytes=None,
        input_shape=None,
        output_shape=None,
    )


def bare_profile(layers: tuple[StaticLayer, ...]) -> StaticProfile:
    return StaticProfile(layers, params=0, weight_bytes=0, peak_activation_bytes=None)


def kernel(layer: int) -> LayerTime:
    """The time of a kernel without other facts."""
    return LayerTime(kind=RowKind.LAYER, kernel="", ns=0.0, layer=layer)


def test_a_long_measurement_is_thinned_and_loses_no_time() -> None:
    rounds = make_rounds(1.234567, rounds=100, samples=400)
    text = dump_trace(with_measurement(make_measurement(rounds=rounds)))
    assert len(text) < 2_500_000
    spans = rounds_of(text)
    timed = [span for span in spans if span.name == "4 inferences"]
    assert len(timed) == MAX_INFERENCES
    assert sum(span.duration_ns for span in timed) == sum(sum(made.times_ns) for made in rounds)
    assert timed[0].arguments == {
        "runs": 4,
        "shortest_ms": rounds[0].times_ns[0] / NS_PER_MS,
        "longest_ms": rounds[0].times_ns[3] / NS_PER_MS,
    }
    assert other_data(text)["merged"] == snapshot(
        {"b1-c1": "4 inferences in a row are one span, from the first to the last of them"}
    )


def test_events_up_to_the_limit_are_all_kept() -> None:
    rounds = (make_round([1000] * (MAX_INFERENCES - 1)), make_round([1000]))
    text = dump_trace(with_measurement(make_measurement(rounds=rounds)))
    assert sum(span.name == "inference" for span in rounds_of(text)) == MAX_INFERENCES
    assert "merged" not in other_data(text)
    more = (*rounds, make_round([1000]))
    thinned = rounds_of(dump_trace(with_measurement(make_measurement(rounds=more))))
    names = Counter(span.name for span in thinned if span.category == "inference")
    # The remainder of a round is an inference by itself.
    assert names == {"first inference": 3, "2 inferences": MAX_INFERENCES // 2 - 1, "inference": 3}


# -- odd profiles


TIMES_NS = st.integers(0, 10**13)
TEXTS = st.text(max_size=8)


@st.composite
def odd_rounds(draw: st.DrawFn) -> tuple[Round, ...]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        times_ns = draw(st.lists(TIMES_NS, min_size=1, max_size=5))
        steady = draw(st.booleans())
        plain = make_round(times_ns, warmup_runs=draw(st.integers(0, 9)), is_steady=steady)
        made.append(replace(plain, load_ns=draw(TIMES_NS), first_ns=draw(TIMES_NS)))
    return tuple(made)


@st.composite
def odd_cases(draw: st.DrawFn, number: int) -> CaseProfile:
    case = Case(number, 1)
    counted = None
    if draw(st.booleans()):
        layers = [
            replace(
                bare_layer(draw(TEXTS)),
                name=draw(TEXTS),
                macs=draw(st.none() | st.integers(0, 1 << 70)),
                input_shape=draw(
                    st.none() | st.tuples() | st.tuples(st.none(), st.integers(0, 1 << 40))
                ),
            )
            for _ in range(draw(st.integers(0, 5)))
        ]
        counted = bare_profile(tuple(layers))
    if draw(st.booleans()):
        return CaseProfile(case, counted, None, draw(st.sampled_from(Outcome)), draw(TEXTS))
    measurement = make_measurement(rounds=draw(odd_rounds()))
    if draw(st.booleans()):
        indexes = range(0 if counted is None else len(counted.layers))
        times = [
            LayerTime(
                kind=draw(st.sampled_from(RowKind)),
                kernel=draw(TEXTS),
                ns=draw(st.floats(-1, 1e12) | st.sampled_from([math.nan, math.inf])),
                layer=index,
                fused=tuple(indexes[:1]) if draw(st.booleans()) else (),
                provider=draw(st.none() | TEXTS),
                precision=draw(st.none() | TEXTS),
            )
            for index in [*indexes, None, None]
            if draw(st.booleans())
        ]
        measurement = replace(measurement, layer_times=tuple(times))
    return CaseProfile(case, counted, measurement)


@st.composite
def odd_profiles(draw: st.DrawFn) -> Profile:
    cases = [draw(odd_cases(number)) for number in range(draw(st.integers(0, 3)))]
    plain = static_classifier()
    model = replace(plain.model, name=draw(TEXTS))
    machine = draw(st.sampled_from([None, plain.machine]))
    return replace(plain, model=model, machine=machine, cases=tuple(cases))


@given(odd_profiles())
def test_every_profile_is_a_trace_that_can_be_read(profile: Profile) -> None:
    text = dump_trace(profile)
    threads = list(read_trace(text).items())
    measured = [case for case in profile.cases if case.measured is not None]
    ran = [spans for (_, name), spans in threads if name == "rounds"]
    for case, spans in zip(measured, ran, strict=True):
        check_rounds(spans, known(case.measured).rounds)
    by_layer = [
        (case, [row for row in case.layers if row.ns is not None and 0 <= row.ns < math.inf])
        for case in measured
    ]
    layered = [spans for (_, name), spans in threads if name == "one inference"]
    timed = [(case, rows) for case, rows in by_layer if rows]
    for (case, rows), (whole, *layers) in zip(timed, layered, strict=True):
        sum_ns = sum(row.ns or 0.0 for row in rows)
        assert whole.duration_ns >= round(case.latency.median_ns)
        assert len(layers) == len(rows)
        assert sum(layer.duration_ns for layer in layers) == pytest.approx(sum_ns, abs=1)
    left_out = [case.case.id for case in profile.cases if case.measured is None]
    assert [entry["case"] for entry in other_data(text).get("left_out", [])] == left_out


# -- the command


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    made = parse(
        "g (float[N,8] x) => (float[N,4] y) { [mul] h = MatMul(x, w) [relu] y = Relu(h) }",
        weights={"w": ones(8, 4)},
    )
    Path("m.onnx").write_bytes(made.SerializeToString())
    return "m.onnx"


QUICK = ("--max-seconds", "0.2")


def test_the_command_writes_the_trace_of_what_it_measured(model: str) -> None:
    result = run("profile", model, *QUICK, "--trace", "t.json", "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    (case,) = json.loads(result.out)["cases"]
    text = Path("t.json").read_text(encoding="utf-8")
    timed = [span for span in rounds_of(text) if span.depth == 1 and span.name == "inference"]
    assert [span.duration_ns for span in timed] == [ns for r in case["raw"] for ns in r["times_ns"]]
    ids = [span.arguments.get("id") for span in layers_of(text)]
    assert {"h", "y"} >= {id_ for id_ in ids if id_ is not None} >= {"h"}


def test_the_trace_can_go_to_standard_output_alone(model: str) -> None:
    result = run("profile", model, *QUICK, "--trace", "-")
    assert (result.exit_code, result.err) == (0, "")
    assert [thread for _, thread in read_trace(result.out)] == ["rounds", "one inference"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--trace", "-", "--json", "-"],
            "only one of --json and --trace can go to standard output: give a file for the others.",
        ),
        (
            ["--trace", "-", "--csv", "-"],
            "only one of --csv and --trace can go to standard output: give a file for the others.",
        ),
        (
            ["--trace", "t.json", "--static"],
            "--trace needs a run of the model: leave out --static or --trace.",
        ),
        (
            ["--trace", "no/such/t.json"],
            (
                "--trace: cannot write no/such/t.json: there is no folder no/such. Make it with "
                "mkdir -p no/such, or give another place."
            ),
        ),
    ],
)
def test_an_output_that_cannot_be_written_is_reported_before_anything_runs(
    model: str, arguments: list[str], message: str
) -> None:
    assert run("profile", model, *arguments) == (2, "", f"Error: {message}\n")
    assert not Path("t.json").exists()
