"""A trace records what runs while it is active, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import pytest_modelperf
from pytest_modelperf import trace
from pytest_modelperf.errors import OutputError, UsageError
from pytest_modelperf.profiler.engines.onnxruntime_sessions import SessionWatch
from pytest_modelperf.profiler.engines.session_facts import WatchedSession
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.frames import Frames
from pytest_modelperf.tracing.operators import MAX_SHAPES, is_filled_up, join_facts
from pytest_modelperf.tracing.program_trace import Trace, TraceWarning
from pytest_modelperf.tracing.recorder import Recorder
from pytest_modelperf.tracing.recording import Recording
from pytest_modelperf.tracing.records import Argument, Category, Counter, Span
from pytest_modelperf.tracing.spool import RUN_RECORDS
from tests.support.full_disk import room_for
from tests.support.processes import on_linux
from tests.support.traced_models import CPU, FEED, open_plain, options
from tests.tracing.validity import Trace as ValidTrace
from tests.tracing.validity import read_valid_trace

METHODS = ("__init__", "run", "run_with_iobinding", "run_async", "end_profiling", "set_providers")


def spans_of(p: Trace, category: str) -> list[Span]:
    wanted = Category(category)
    return [e for e in p.events() if isinstance(e, Span) and e.category is wanted]


def read(path: Path) -> ValidTrace:
    return read_valid_trace(path.read_text(encoding="ascii"))


def names_by_parent(p: Trace) -> dict[str, list[str]]:
    spans = [event for event in p.events() if isinstance(event, Span)]
    names = {span.id: span.name for span in spans}
    found: dict[str, list[str]] = {}
    for span in spans:
        parent = "" if span.parent is None else names[span.parent]
        found.setdefault(parent, []).append(span.name)
    return found


# -- what is recorded


class SafeText(str):
    """A text that stays what it is, as Django marks those that need no escaping."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


def test_a_label_may_be_of_a_class_of_its_own() -> None:
    with trace() as p, p.record(SafeText("shown")):
        pass
    assert [span.name for span in spans_of(p, "label")] == ["shown"]


def test_a_trace_has_sessions_labels_inferences_and_operators_each_inside_of_the_other(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file) as p:
        with p.record("set up"):
            session = p.session(str(model), options(), providers=CPU)
        with p.record("outer"), p.record("inner"):
            session.run(None, FEED)
    read_back = read(file)
    shown = [(span.depth, span.category, span.name) for span in read_back.spans]
    assert shown == [
        (0, "label", "set up"),
        (1, "session", "small.onnx"),
        (0, "label", "outer"),
        (1, "label", "inner"),
        (2, "inference", "inference"),
        (3, "operator", "product"),
        (3, "operator", "sine"),
    ]
    assert read_back.thread_names == {threading.get_native_id(): "MainThread"}
    assert names_by_parent(p)["inner"] == ["inference"]
    assert names_by_parent(p)["inference"] == ["product", "sine"]
    product, sine = spans_of(p, "operator")
    known = {
        "op_type": "MatMul", "provider": "CPUExecutionProvider", "precision": "float32",
        "input_shape": "2x8", "output_shape": "2x4", "layer": "h", "macs": 64, "params": 32,
    }  # fmt: skip
    assert {key: product.arguments[key] for key in known} == known
    assert (product.operator_index, sine.operator_index) == (0, 1)
    assert sine.arguments["layer"] == "y"


def test_layers_are_known_at_any_number_of_shapes(model: Path) -> None:
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        for batch in range(1, MAX_SHAPES + 2):
            session.run(None, {"x": np.ones((batch, 8), np.float32)})
        bound = session.io_binding()
        bound.bind_cpu_input("x", FEED["x"])
        bound.bind_output("y")
        session.run_with_iobinding(bound)
    assert p.layers()["layer"].tolist() == ["h", "y"]
    products = [span.arguments for span in spans_of(p, "operator") if span.name == "product"]
    counted = [32 * batch for batch in range(1, MAX_SHAPES + 1)]
    assert [product.get("macs") for product in products] == [*counted, None, 64]
    assert [
        (product["output_shape"], product["params"], product.get("macs"))
        for product in products[-3:]
    ] == [
        (f"{MAX_SHAPES}x4", 32, 32 * MAX_SHAPES),
        (f"{MAX_SHAPES + 1}x4", 32, None),
        ("2x4", 32, 64),
    ]
    assert p.notes == (
        f"small.onnx: operators have MACs at the first {MAX_SHAPES} sets of shapes only",
    )


def test_the_layers_that_a_kernel_fuses_are_named() -> None:
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    with trace() as p:
        session = p.session(light / "light_squeezenet.onnx", options(), providers=CPU)
        put = session.get_inputs()[0]
        session.run(None, {put.name: np.zeros(put.shape, np.float32)})
    operators = spans_of(p, "operator")
    assert any("Relu" in str(span.arguments.get("fused")) for span in operators)
    # Wherever it runs, whole blocks or not, its last layer has 1000 channels.
    assert "1x1000x13x13" in {span.arguments.get("output_shape") for span in operators}
    counted = sum(int(str(span.arguments.get("macs") or 0)) for span in operators)
    assert counted == 349_151_936
    assert p.notes == ()


@pytest.mark.parametrize(
    ("kernel", "model", "is_it"),
    [
        ("1x1008x13x13", "1x1000x13x13", True),
        ("1x16x13x13", "1x1x13x13", True),
        ("1x1000x13x13", "1x1000x13x13", False),
        # Intermediate results of the layer.
        ("1x1016x13x13", "1x1000x13x13", False),
        ("2x1008x13x13", "1x1000x13x13", False),
        ("1x1008x13", "1x1000x13x13", False),
        ("1x992x13x13", "1x1000x13x13", False),
        ("1x8", "1x?", False),
        ("", "None", False),
    ],
)
def test_a_shape_is_filled_up_by_a_few_channels(kernel: str, model: str, is_it: bool) -> None:  # noqa: FBT001  # a case
    assert is_filled_up(kernel, model) is is_it


def test_shapes_are_those_of_the_model_if_a_kernel_fills_up_channels() -> None:
    kernel: dict[str, Argument] = {
        "op_type": "Conv",
        "input_shape": "2x8x4x4",
        "output_shape": "2x8x4x4",
    }
    model: dict[str, Argument] = {
        "layer": "c",
        "input_shape": "9x8x4x4",
        "output_shape": "2x3x4x4",
        "macs": 7,
    }
    assert list(join_facts(kernel, model).items()) == [
        ("layer", "c"),
        ("input_shape", "2x8x4x4"),
        ("output_shape", "2x3x4x4"),
        ("macs", 7),
        ("op_type", "Conv"),
        ("kernel_output_shape", "2x8x4x4"),
    ]
    assert join_facts(kernel, {}) == kernel


@pytest.mark.parametrize("source", ["path", "bytes", "message"])
def test_a_model_can_be_given_in_any_form(model: Path, source: str) -> None:
    given = {"path": model, "bytes": model.read_bytes(), "message": onnx.load(model)}[source]
    with trace() as p:
        p.session(given, options(), providers=CPU).run(None, FEED)
    assert [span.arguments.get("macs") for span in spans_of(p, "operator")] == [64, 0]


def test_every_way_to_run_a_session_is_recorded(model: Path) -> None:
    with trace() as p:
        session = ort.InferenceSession(str(model), options(intra_op_num_threads=2), providers=CPU)
        session.run(None, FEED)
        session.run(input_feed=FEED, output_names=["y"])
        value = ort.OrtValue.ortvalue_from_numpy(FEED["x"])
        session.run_with_ort_values(["y"], {"x": value})
        binding = session.io_binding()
        binding.bind_cpu_input("x", FEED["x"])
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        ended = threading.Event()
        session.run_async(["y"], FEED, lambda *_: ended.set(), None)
        assert ended.wait(60)
    inferences = spans_of(p, "inference")
    assert [span.arguments["method"] for span in inferences] == [
        *("run", "run", "run_with_ort_values", "run_with_iobinding", "run_async")
    ]
    operators = spans_of(p, "operator")
    parents = [span.parent for span in operators]
    assert parents == [span.id for span in inferences for _ in range(2)]
    for span in operators:
        (around,) = [each for each in inferences if each.id == span.parent]
        assert around.thread == span.thread
        assert around.start_ns <= span.start_ns
        assert span.end_ns <= around.end_ns


def run_list(session: ort.InferenceSession) -> None:
    session.run(None, {"x": FEED["x"].tolist()})


def run_list_of_arrays(session: ort.InferenceSession) -> None:
    session.run(None, {"x": list(FEED["x"])})


def run_value(session: ort.InferenceSession) -> None:
    session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(FEED["x"])})


def run_bound_array(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", FEED["x"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)


def run_bound_value(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(FEED["x"]))
    binding.bind_output("y")
    session.run_with_iobinding(binding)


def run_bound_memory(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    array = FEED["x"]
    binding.bind_input("x", "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("y")
    session.run_with_iobinding(binding)


@pytest.mark.parametrize(
    "run",
    [run_list, run_list_of_arrays, run_value, run_bound_array, run_bound_value, run_bound_memory],
)
def test_macs_are_counted_for_every_way_to_give_inputs(
    model: Path, run: Callable[[ort.InferenceSession], None]
) -> None:
    with trace() as p:
        run(ort.InferenceSession(str(model), options(), providers=CPU))
    assert p.notes == ()
    assert [span.arguments.get("macs") for span in spans_of(p, "operator")] == [64, 0]
    (inference,) = spans_of(p, "inference")
    assert inference.arguments["input_shape"] == "2x8"


def test_inferences_of_unknown_input_shapes_are_reported_without_macs(model: Path) -> None:
    def record() -> None:
        with trace():
            session = ort.InferenceSession(str(model), options(), providers=CPU)
            session.run(None, FEED)
            binding = session.io_binding()
            # Not by the method of the class that is recorded.
            binding._iobinding.bind_input("x", FEED["x"])
            binding.bind_output("y")
            session.run_with_iobinding(binding)

    with pytest.warns(TraceWarning, match="1 of its 2 inferences lack MACs and layers"):
        record()


def test_an_inference_that_waited_begins_after_what_ran_on_its_thread(tmp_path: Path) -> None:
    """The callback of the first one runs a session on the thread of the pool."""
    recorder = Recorder(tmp_path, frozenset({Category.INFERENCE}), clock=lambda: 0)
    session = WatchedSession(file_name="small.onnx")
    recorder.on_inference(session, "run_async", 0, 10, None, None, has_waited=True)
    recorder.on_inference(session, "run", 12, 20, None, None)
    recorder.on_inference(session, "run_async", 1, 30, None, None, has_waited=True)
    events = list(Recording(recorder).events())
    recorder.spool.close()
    assert [event.start_ns for event in events if isinstance(event, Span)] == [0, 12, 20]


def test_wrong_options_of_a_session_are_refused_as_without_a_trace(model: Path) -> None:
    def create() -> str:
        with pytest.raises(TypeError) as error:
            ort.InferenceSession(str(model), CPU)
        return str(error.value)

    expected = create()
    with trace():
        assert create() == expected


def test_inferences_that_wait_in_a_queue_begin_one_after_the_other(model: Path) -> None:
    """The thread of the pool is held by the callback of the first until the others were asked."""
    asked, ended = threading.Event(), threading.Semaphore(0)

    def first_ended(*_: object) -> None:
        asked.wait(60)
        ended.release()

    with trace() as p:
        session = ort.InferenceSession(str(model), options(intra_op_num_threads=2), providers=CPU)
        session.run_async(["y"], FEED, first_ended, None)
        with p.record("asking"):
            for _ in range(3):
                session.run_async(["y"], FEED, lambda *_: ended.release(), None)
        asked.set()
        for _ in range(4):
            assert ended.acquire(timeout=60)
    (asking,), (_, *queued) = spans_of(p, "label"), spans_of(p, "inference")
    assert len(queued) == 3
    for before, span in pairwise([asking, *queued]):
        assert before.end_ns <= span.start_ns
    assert len(spans_of(p, "operator")) == 8
    assert p.notes == ()


def test_the_memory_of_the_process_is_counted_and_that_of_the_runtime_if_it_reports_any(
    model: Path, tmp_path: Path
) -> None:
    given = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "theirs"))
    plain = ort.InferenceSession(str(model), given, providers=CPU)
    plain.run(None, FEED)
    has_memory = "mem_in_use_peak" in Path(plain.end_profiling()).read_text(encoding="utf-8")
    with trace() as p:
        p.session(model, options(), providers=CPU).run(None, FEED)
    counters = [event for event in p.events() if isinstance(event, Counter)]
    values = {counter.name: counter.values for counter in counters}
    assert values["memory of the process"]["resident_bytes"] > 1_000_000
    assert ("peak_bytes" in values.get("memory of small.onnx", {})) == has_memory


def test_without_the_category_no_session_is_profiled(model: Path) -> None:
    with trace(categories=("inference",)) as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        assert not session.get_session_options().enable_profiling
    assert len(spans_of(p, "inference")) == 1
    assert spans_of(p, "operator") == []


def test_sessions_of_the_same_file_have_names_of_their_own(model: Path) -> None:
    with trace() as p:
        for _ in range(2):
            p.session(model, options(), providers=CPU).run(None, FEED)
    names = [span.arguments["session"] for span in spans_of(p, "inference")]
    assert names == ["small.onnx", "small.onnx #2"]
    assert [span.name for span in spans_of(p, "session")] == names


# -- pauses


def test_a_pause_records_nothing_and_is_a_gap_on_the_clock(
    model: Path,
) -> None:
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        paused_ns = time.perf_counter_ns()
        p.pause()
        p.pause()
        session.run(None, FEED)
        with p.record("unseen"):
            p.session(model, options(), providers=CPU)
            p.resume()
        p.resume()
        resumed_ns = time.perf_counter_ns()
        session.run(None, FEED)
    first, second = spans_of(p, "inference")
    assert second.start_ns - first.end_ns >= resumed_ns - paused_ns
    assert [span.parent for span in spans_of(p, "operator")] == [first.id] * 2 + [second.id] * 2
    assert spans_of(p, "label") == []
    assert len(spans_of(p, "session")) == 1


def test_a_full_disk_loses_spans_and_not_the_program(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, frozenset({Category.INFERENCE}), clock=lambda: 0)
    session = WatchedSession(file_name="small.onnx")
    with room_for(1000):
        for number in range(RUN_RECORDS + 1):
            recorder.on_inference(session, "run", number, number + 1, None, None)
    recording = Recording(recorder)
    spans = [event for event in recording.events() if isinstance(event, Span)]
    recorder.spool.close()
    assert len(spans) < RUN_RECORDS
    (note,) = recording.found
    assert note.is_loss


# -- threads


def test_labels_belong_to_the_thread_that_opened_them(model: Path, tmp_path: Path) -> None:
    threads = 4
    together = threading.Barrier(threads)
    file = tmp_path / "trace.json"
    with trace(file=file) as p:
        session = p.session(model, options(), providers=CPU)

        def work(number: int) -> None:
            for step in range(5):
                with p.record(f"thread {number}"):
                    together.wait()
                    with p.record(f"step {step}"):
                        session.run(None, FEED)

        workers = [threading.Thread(target=work, args=(n,), name=f"w{n}") for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    read_back = read(file)
    for number in range(threads):
        outer = [span for span in read_back.spans if span.name == f"thread {number}"]
        assert len(outer) == 5
        (thread,) = {span.thread for span in outer}
        assert read_back.thread_names[thread] == f"w{number}"
        own = [span for span in read_back.spans if span.thread == thread]
        assert [span.depth for span in own] == [0, 1, 2, 3, 3] * 5
    assert p.notes == ()


def test_labels_that_do_not_nest_still_make_a_valid_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"

    async def work(p: Trace) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with p.record("first"):
                await begun.wait()
            ended.set()

        async def second() -> None:
            with p.record("second"):
                begun.set()
                await ended.wait()

        await asyncio.gather(first(), second())

    with trace(file=file) as p:
        asyncio.run(work(p))
    read_back = read(file)
    first, second = read_back.named("first"), read_back.named("second")
    assert first.start_ns <= second.start_ns <= first.end_ns <= second.end_ns
    assert read_back.thread_names[second.thread] == "MainThread: second"


def test_an_inference_has_the_label_of_its_own_task(model: Path) -> None:
    """Two tasks of asyncio take turns on one thread; the label of the other is opened later."""

    async def work(p: Trace) -> None:
        session = p.session(model, options(), providers=CPU)
        begun, ended = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with p.record("first"):
                await begun.wait()
                session.run(None, FEED)
            ended.set()

        async def second() -> None:
            with p.record("second"):
                begun.set()
                await ended.wait()
                with p.record("inner"):
                    session.run(None, FEED)

        await asyncio.gather(first(), second())

    with trace(categories=("inference",)) as p:
        asyncio.run(work(p))
    found = names_by_parent(p)
    assert (found["first"], found["second"]) == (["inference"], ["inner"])
    assert found["inner"] == ["inference"]


def test_a_file_has_the_labels_of_tasks_that_take_turns(model: Path, tmp_path: Path) -> None:
    """Each task runs while the labels of the others are open; one task has no label."""
    file = tmp_path / "trace.json"

    async def work(p: Trace) -> None:
        session = p.session(model, options(), providers=CPU)

        async def labelled(name: str, turns: int) -> None:
            with p.record(name):
                await plain(turns)

        async def plain(turns: int) -> None:
            for _ in range(turns):
                session.run(None, FEED)
                await asyncio.sleep(0)

        await asyncio.gather(labelled("long", 4), labelled("short", 1), labelled("b", 4), plain(2))

    with trace(file=file) as p:
        asyncio.run(work(p))
    recorded, read_back = (
        [
            sorted(zip(frame["start"], frame["label"].fillna("-"), strict=True))
            for category in ("inference", "operator")
            for frame in [frames.where("cat", category).frame()]
        ]
        for frames in (p.frames(), Frames.read(file))
    )
    labels = [label for _, label in recorded[0]]
    assert {name: labels.count(name) for name in labels} == {"long": 4, "short": 1, "b": 4, "-": 2}
    assert read_back == recorded


def test_labels_of_a_thread_that_goes_on_end_with_the_recording(
    model: Path, tmp_path: Path
) -> None:
    file, has_run, is_over = tmp_path / "trace.json", threading.Event(), threading.Event()

    def work(p: Trace) -> None:
        session = p.session(model, options(), providers=CPU)
        with p.record("outer"), p.record("inner"):
            session.run(None, FEED)
            has_run.set()
            is_over.wait()

    with trace(file=file, categories=("inference",)) as p:
        thread = threading.Thread(target=work, args=(p,))
        thread.start()
        has_run.wait()
    is_over.set()
    thread.join()
    found = names_by_parent(p)
    assert (found["outer"], found["inner"]) == (["inner"], ["inference"])
    assert Frames.read(file).inferences()["label"].tolist() == ["inner"]
    assert Frames.read(file).notes == ()


def test_a_label_may_be_closed_by_another_thread(model: Path, tmp_path: Path) -> None:
    """The threads of a pool step through such a generator."""
    file = tmp_path / "trace.json"

    def steps(p: Trace) -> Iterator[None]:
        with p.record("outer"):
            yield

    with trace(file=file, categories=("inference",)) as p:
        session = p.session(model, options(), providers=CPU)
        generator = steps(p)
        next(generator)
        session.run(None, FEED)
        thread = threading.Thread(target=list, args=(generator,))
        thread.start()
        thread.join()
        session.run(None, FEED)
    read_back = read(file)
    assert read_back.thread_names[read_back.named("outer").thread] == "MainThread: outer"
    assert names_by_parent(p)["outer"] == ["inference"]


# -- how it ends


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_file_is_complete_when_the_body_raises(
    model: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    file = tmp_path / "trace.json"

    def work() -> None:
        with trace(file=file) as p:
            session = p.session(model, options(), providers=CPU)
            with p.record("broken"):
                session.run(None, FEED)
                raise error("mine")

    with pytest.raises(error, match="mine"):
        work()
    read_back = read(file)
    assert read_back.named("broken").arguments == {"error": error.__name__}
    assert [span.name for span in read_back.of("operator")] == ["product", "sine"]


def test_an_inference_that_fails_is_recorded_and_its_error_passes(model: Path) -> None:
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        with pytest.raises(Exception, match="Invalid rank"):
            session.run(None, {"x": np.ones(3, np.float32)})
        with pytest.raises(ValueError, match="Required inputs"):
            session.run(None, {})
        session.run(None, FEED)
    inferences = spans_of(p, "inference")
    assert [span.arguments.get("error") for span in inferences] == [
        *("InvalidArgument", "ValueError", None)
    ]
    assert {span.parent for span in spans_of(p, "operator")} == {inferences[-1].id}


def test_the_classes_are_as_they_were_afterwards() -> None:
    before = [getattr(ort.InferenceSession, name) for name in METHODS]
    own, bindings = set(vars(ort.InferenceSession)), dict(vars(ort.IOBinding))
    with trace():
        assert [getattr(ort.InferenceSession, name) for name in METHODS] != before
        assert dict(vars(ort.IOBinding)) != bindings
    assert [getattr(ort.InferenceSession, name) for name in METHODS] == before
    assert set(vars(ort.InferenceSession)) == own
    assert dict(vars(ort.IOBinding)) == bindings


def test_a_wrapper_added_meanwhile_stays(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    with trace() as p:
        wrapped = ort.InferenceSession.run

        def theirs_too(*arguments: object) -> object:
            calls.append(arguments)
            return wrapped(*arguments)

        monkeypatch.setattr(ort.InferenceSession, "run", theirs_too)
        theirs = ort.InferenceSession.run
    assert ort.InferenceSession.run is theirs
    open_plain(model).run(None, FEED)
    assert len(calls) == 1
    assert spans_of(p, "inference") == []


def test_options_of_the_program_are_as_they_were(model: Path) -> None:
    given = options(log_severity_level=2)
    names = ("enable_profiling", "profile_file_prefix", "optimized_model_filepath")
    before = [getattr(given, name) for name in names]
    with trace() as p:
        for _ in range(2):
            p.session(model, given, providers=CPU).run(None, FEED)
    assert [getattr(given, name) for name in names] == before
    assert given.log_severity_level == 2
    assert len(spans_of(p, "operator")) == 4


def test_threads_that_share_options_have_a_profile_for_each_session(model: Path) -> None:
    given = options()
    begin = threading.Barrier(4)

    def work() -> None:
        begin.wait()
        for _ in range(10):
            session = ort.InferenceSession(str(model), given, providers=CPU)
            session.run(None, FEED)

    with trace() as p:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert p.notes == ()
    assert len(spans_of(p, "operator")) == 80


def test_sessions_of_one_model_in_memory_keep_it_once(model: Path, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, frozenset({Category.OPERATOR}))
    watch = SessionWatch(recorder, None)
    watch.begin()
    try:
        for data in (model.read_bytes(), model.read_bytes()):
            ort.InferenceSession(data, options(), providers=CPU).run(None, FEED)
    finally:
        watch.end()
    recording = Recording(recorder)
    first, second = (session.model for session in watch.sessions)
    assert first == second
    spans = [each for each in recording.events() if isinstance(each, Span)]
    recorder.spool.close()
    layers = [each.arguments["layer"] for each in spans if each.category is Category.OPERATOR]
    assert layers == ["h", "y"] * 2


def test_the_program_is_not_warned_of_a_saved_plan(
    model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ort.SessionOptions()
    with trace() as p:
        for _ in range(2):
            p.session(model, given, providers=CPU).run(None, FEED)
    assert capfd.readouterr() == ("", "")


def test_a_plan_that_the_program_saves_is_left_alone(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "theirs.onnx"
    with trace() as p:
        given = options(optimized_model_filepath=str(path))
        p.session(model, given, providers=CPU).run(None, FEED)
    assert [node.name for node in onnx.load(path).graph.node] == ["product", "sine"]
    assert len(spans_of(p, "operator")) == 2


def test_a_model_that_is_missing_is_refused_without_a_word_on_a_profile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with trace(), pytest.raises(Exception, match="File doesn't exist"):
        ort.InferenceSession(str(tmp_path / "missing.onnx"), providers=CPU)
    assert capfd.readouterr() == ("", "")


def test_a_model_that_is_refused_is_refused_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(Exception, match="Protobuf parsing failed") as plain:
        open_plain(path)
    with trace() as p, pytest.raises(Exception, match="Protobuf parsing failed") as traced:
        open_plain(path)
    assert type(traced.value) is type(plain.value)
    assert spans_of(p, "session") == []


# -- sessions and the profile


def test_inferences_of_an_older_session_are_recorded(model: Path) -> None:
    session = open_plain(model)
    with trace() as p:
        session.run(None, FEED)
    assert [span.arguments["session"] for span in spans_of(p, "inference")] == ["small.onnx"]
    assert spans_of(p, "operator") == []
    assert p.notes == (
        "small.onnx: no operators are shown, for it was created before the profile began.",
    )


def test_a_session_may_be_gone_before_the_profile_ends(model: Path) -> None:
    with trace() as p:
        p.session(model, options(), providers=CPU).run(None, FEED)
        gc.collect()
    assert len(spans_of(p, "operator")) == 2


def test_a_session_outlives_the_profile_and_does_not_see_it(model: Path) -> None:
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        assert session.end_profiling() == ""
        session.run(None, FEED)
    found = list(p.events())
    assert len(spans_of(p, "operator")) == 4
    session.run(None, FEED)
    assert session.end_profiling() == ""
    assert list(p.events()) == found


def test_a_profile_of_the_program_stays_its_own_and_is_read(model: Path, tmp_path: Path) -> None:
    given = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "theirs"))
    with trace() as p:
        session = p.session(model, given, providers=CPU)
        session.run(None, FEED)
        path = Path(session.end_profiling())
    assert path.name.startswith("theirs")
    assert path.is_file()
    assert len(spans_of(p, "operator")) == 2


def test_setting_providers_again_ends_the_operators(model: Path) -> None:
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        session.set_providers(CPU)
        session.run(None, FEED)
    assert len(spans_of(p, "inference")) == 2
    assert len(spans_of(p, "operator")) == 2
    assert any("its providers were set again" in note for note in p.notes)


def fork() -> int:
    with warnings.catch_warnings():
        # Python warns of forks of processes that have threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def test_a_forked_process_records_nothing(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file) as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        child = fork()
        if child == 0:
            try:
                with p.record("in the child"):
                    pass
                p.__exit__(None, None, None)
                is_unwrapped = "_creating" not in ort.InferenceSession.__init__.__qualname__
                os._exit(0 if is_unwrapped and not file.exists() else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        session.run(None, FEED)
    assert len(read(file).of("inference")) == 2
    assert read(file).of("label") == []


def test_a_forked_process_does_no_harm_to_what_is_recorded(model: Path, tmp_path: Path) -> None:
    """It may hold the last of a session, whose profile both have open, or wait for a lock."""
    file = tmp_path / "trace.json"
    with trace(file=file) as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
        with p._begun()._lock:
            child = fork()
            if child == 0:
                try:
                    p.pause()
                    session.run(None, FEED)
                    del session
                    os._exit(0)
                finally:
                    os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        session.run(None, FEED)
    assert len(read(file).of("inference")) == 2
    assert len(read(file).of("operator")) == 4
    assert p.notes == ()


def test_operators_are_those_of_the_first_inferences(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file, operator_limit=3) as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(8):
            session.run(None, FEED)
        # The count of another session starts at zero.
        p.session(model, options(), providers=CPU).run(None, FEED)
    read_back = read(file)
    assert len(read_back.of("inference")) == 9
    inferences = spans_of(p, "inference")
    with_operators = [span.parent for span in spans_of(p, "operator")]
    assert with_operators == [span.id for span in (*inferences[:3], inferences[8]) for _ in "ab"]
    assert p.notes == (
        "small.onnx: the operators of 3 of its 8 inferences are shown: operator_limit is 3.",
    )
    assert read_back.about["notes"] == list(p.notes)


def test_the_wait_for_a_profile_is_reported(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file, operator_limit=1) as p, p.record("outer"):
        session = p.session(model, options(), providers=CPU)
        for _ in range(2):
            session.run(None, FEED)
    read_back = read(file)
    written = read_back.named("its profile is written")
    first, second = read_back.of("inference")
    assert (written.category, written.depth) == ("recording", 1)
    assert first.end_ns <= written.start_ns <= written.end_ns <= second.start_ns


def test_without_a_limit_all_operators_are_recorded(model: Path) -> None:
    with trace(operator_limit=None) as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(5):
            session.run(None, FEED)
    assert len(spans_of(p, "operator")) == 10


def test_a_session_that_is_profiled_no_more_keeps_no_events(model: Path) -> None:
    """The limit is for events that the runtime would keep until the end."""
    with trace(operator_limit=2) as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(2):
            session.run(None, FEED)
        (folder,) = p._begun().folder.glob("session-*")
        (written,) = folder.glob("profile*.json")
        size = written.stat().st_size
        for _ in range(50):
            session.run(None, FEED)
    assert size > 1000
    assert len(spans_of(p, "operator")) == 4


def test_the_limit_counts_the_calls_of_all_threads(model: Path) -> None:
    threads, calls, limit = 4, 50, 20
    together = threading.Barrier(threads)
    with trace(operator_limit=limit) as p:
        session = p.session(model, options(), providers=CPU)

        def work() -> None:
            together.wait()
            for _ in range(calls):
                session.run(None, FEED)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(spans_of(p, "inference")) == threads * calls
    # Operators that ran as it was reached may be in the profile or not.
    shown = len({span.parent for span in spans_of(p, "operator")})
    assert limit - threads < shown < limit + threads
    assert "operator_limit is 20" in p.notes[0]


def test_no_thread_begins_an_inference_in_a_profile_that_is_being_ended(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[threading.Thread] = []
    end_profiling = ort.InferenceSession.end_profiling

    def work(session: ort.InferenceSession) -> None:
        for _ in range(50):
            session.run(None, FEED)

    def end(session: ort.InferenceSession) -> str:
        if not others:
            others.append(threading.Thread(target=work, args=(session,)))
            others[0].start()
            # Time for all of its inferences; it waits after the first.
            others[0].join(0.2)
        path: str = end_profiling(session)
        return path

    monkeypatch.setattr(ort.InferenceSession, "end_profiling", end)
    with trace(operator_limit=2) as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(2):
            session.run(None, FEED)
        others[0].join()
    assert len(spans_of(p, "inference")) == 52
    assert len({span.parent for span in spans_of(p, "operator")}) <= 3


def test_the_rest_of_a_profile_that_is_cut_off_is_shown_and_the_loss_reported(
    model: Path, tmp_path: Path
) -> None:
    given = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "theirs"))

    file = tmp_path / "trace.json"

    def work() -> Trace:
        with trace(file=file) as p:
            session = p.session(model, given, providers=CPU)
            for _ in range(3):
                session.run(None, FEED)
            path = Path(session.end_profiling())
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            path.write_text("".join(lines[:-2]), encoding="utf-8")
        return p

    with pytest.warns(TraceWarning, match="end of the file"):
        p = work()
    assert p.notes
    assert read(file).about["notes"] == list(p.notes)
    assert len(read(file).of("inference")) == 3
    assert len(read(file).of("operator")) == 4


def test_no_name_can_break_the_trace(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    evil = 'a\x1b[31m\n\u202e"},{b\ud800'
    with trace(file=file) as p, p.record(evil):
        p.session(model, options(), providers=CPU).run(None, FEED)
    assert read(file).of("label")[0].name == printable(evil)


# -- as data frames


def test_the_frames_are_those_of_the_recording(model: Path) -> None:
    pytest.importorskip("pandas")
    with trace(format="frame") as p:
        session = p.session(model, options(), providers=CPU)
        for _ in range(3):
            session.run(None, FEED)
    assert len(p.frame()) == 1 + 3 * 3
    assert len(p.inferences()) == 3
    assert len(p.operator_calls()) == 6
    assert set(p.operators()["name"]) == {"product", "sine"}
    assert p.frames() is p.frames()
    assert len(p.where("name", "sine").frame()) == 3


# -- what cannot be asked


def test_there_is_one_profile_at_a_time(model: Path) -> None:
    with trace() as p:
        with pytest.raises(UsageError, match="another trace is being recorded"), trace():
            pass
        p.session(model, options(), providers=CPU).run(None, FEED)
    assert len(spans_of(p, "inference")) == 1
    with pytest.raises(UsageError, match="recorded already"), p:
        pass
    with trace():
        pass


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"format": "html"}, "format is 'html': it can be 'chrome' or 'frame'."),
        ({"format": "frame", "file": "t.json"}, "format='frame' writes no file"),
        ({"categories": ("kernel",)}, "they can be 'inference' and 'operator'"),
        ({"categories": "operator"}, "as in categories="),
        ({"categories": None}, "categories are None: they can be 'inference' and 'operator'"),
        ({"categories": [["operator"]]}, "they can be 'inference' and 'operator'"),
        ({"file": 5}, "file is 5: it takes a path, such as 'trace.json'."),
        ({"operator_limit": "5"}, "operator_limit is '5': it can be 1 or more"),
        ({"operator_limit": 2.5}, "operator_limit is 2.5: it can be 1 or more"),
        ({"file": "-"}, "a trace takes a file: standard output is the program's own."),
        ({"operator_limit": 0}, "operator_limit is 0: it can be 1 or more, or None for no limit."),
    ],
)
def test_contradictory_arguments_are_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        trace(**asked)  # type: ignore[arg-type]  # that is what is tested


def test_a_file_that_cannot_be_written_is_reported_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*there is no folder"):
        trace(file=tmp_path / "no" / "trace.json").__enter__()
    with trace():
        pass


def test_a_recording_is_read_after_its_end() -> None:
    with trace() as p, pytest.raises(UsageError, match="has not ended"):
        p.events()
    with pytest.raises(UsageError, match="has not begun"):
        trace().pause()


def test_the_package_gives_it_lazily() -> None:
    assert pytest_modelperf.trace is trace
    with pytest.raises(AttributeError, match="no attribute 'traces'"):
        pytest_modelperf.traces  # noqa: B018  # type: ignore[attr-defined]  # it is not there


# -- other engines


def test_a_function_is_recorded_as_a_session() -> None:
    def double(x: object) -> object:
        return x

    with trace() as p:
        session = p.session(double, engine="callable")
        assert session.run(None, FEED) is not None
    (inference,) = spans_of(p, "inference")
    assert inference.arguments["input_shape"] == "2x8"
    with pytest.raises(UsageError, match="no engine 'tensorrt'"), trace() as other:
        other.session(double, engine="tensorrt")


def test_openvino_is_recorded_inference_by_inference(model: Path) -> None:
    pytest.importorskip("openvino")
    with trace() as p:
        session = p.session(model, engine="openvino")
        (output,) = session.run(None, FEED)
        (same,) = session.run(["y"], FEED)
    expected = np.sin(np.full((2, 4), 8.0))
    np.testing.assert_allclose(output, expected, rtol=1e-2)
    np.testing.assert_array_equal(output, same)
    assert len(spans_of(p, "inference")) == 2
    assert len(p.notes) == 1


DAEMON = """
import os, sys
from pathlib import Path
import numpy as np
import onnxruntime as ort
from pytest_modelperf import trace

OURS = {"statm", "recorded", ".held-by-pytest-modelperf"}
with trace(file=sys.argv[2]) as p:
    session = ort.InferenceSession(sys.argv[1])
    # ONNX Runtime waits half a minute at the end if its own are closed as well.
    for path in list(Path("/proc/self/fd").iterdir()):
        if path.is_symlink() and os.readlink(path).rpartition("/")[2] in OURS:
            os.close(int(path.name))
    session.run(None, {"x": np.zeros((2, 8), np.float32)})
p.discard()
print(*Path(os.environ["TMPDIR"]).glob("modelperf-*"))
"""


@pytest.mark.slow
@on_linux
def test_a_program_that_closes_all_files_ends_with_a_warning(model: Path, tmp_path: Path) -> None:
    file, temporary = tmp_path / "trace.json", tmp_path / "temporary"
    temporary.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON, str(model), str(file)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TraceWarning" in ended.stderr
    assert "spans and counters are missing" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ended.stdout.strip()
    assert read(file).spans == ()
