"""Profile files of ONNX Runtime: recorded from small models, or written event by event."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.records import Category, Event, Span
from tests.support.small_models import parse

NESTED = """
main (float[4,4] x, int64 n, bool go) => (float[4,4] y) {
    a = Relu(x)
    b = Loop(n, go, a) <body = turn (int64 i, bool more, float[4,4] s) => (bool again, float[4,4] t)
    {
        again = Identity(more)
        m = MatMul(s, s)
        later = Cast<to = 9>(i)
        t = If(later) <then_branch = yes () => (float[4,4] u) { u = Exp(m) },
                     else_branch = no () => (float[4,4] v) { v = Tanh(m) }>
    }>
    y = Sigmoid(b)
}
"""
SCAN = """
main (float[4] s0, float[6,4] xs) => (float[4] sN, float[6,4] ys) {
    sN, ys = Scan<num_scan_inputs = 1,
        body = step (float[4] s, float[4] x) => (float[4] so, float[4] yo) {
        so = Add(s, x)
        w = Tanh(so)
        yo = Mul(w, x)
    }>(s0, xs)
}
"""
WIDE = """
main (float[32,32] x) => (float[32,32] y) {
    a = MatMul(x, x)
    b = Softmax(a)
    c = Sigmoid(a)
    d = MatMul(b, c)
    y = Add(d, x)
}
"""
NESTED_INPUTS = {
    "x": np.full((4, 4), 0.1, np.float32),
    "n": np.array(3),
    "go": np.ones((), np.bool_),
}
SCAN_INPUTS = {"s0": np.ones(4, np.float32), "xs": np.ones((6, 4), np.float32)}
WIDE_INPUTS = {"x": np.ones((32, 32), np.float32)}


def record(  # noqa: PLR0913  # one parameter per setting
    folder: Path,
    text: str,
    inputs: Mapping[str, Any],
    *,
    runs: int = 3,
    threads: int = 1,
    intra: int = 1,
    is_parallel: bool = False,
    names: Iterable[str] = (),
) -> Path:
    """The profile of some inferences on each of the threads."""
    model = parse(text, opset=17)
    _name_nodes(model.graph, "")
    for node, name in zip(model.graph.node, names, strict=False):
        node.name = name
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = intra
    if is_parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def infer() -> None:
        for _ in range(runs):
            session.run(None, dict(inputs))

    workers = [Thread(target=infer) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return Path(session.end_profiling())


def _name_nodes(graph: onnx.GraphProto, prefix: str) -> None:
    for node in graph.node:
        node.name = f"{prefix}{node.output[0]}"
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name_nodes(attribute.g, f"{node.name}/")


def kernel(
    name: str, ts: int, dur: int, tid: int = 1, more: Mapping[str, object] | None = None
) -> str:
    """A kernel's event as the runtime writes it, which does not look at what is in the name."""
    arguments = json.dumps({"op_name": "Relu", "provider": "CPUExecutionProvider", **(more or {})})
    return _line("Node", f"{name}_kernel_time", ts, dur, tid, arguments)


def graph_run(ts: int, dur: int, tid: int = 1) -> str:
    return _line("Session", "SequentialExecutor::Execute", ts, dur, tid)


def inference(ts: int, dur: int, tid: int = 1) -> str:
    return _line("Session", "model_run", ts, dur, tid)


def session_event(name: str, ts: int, dur: int, tid: int = 1) -> str:
    return _line("Session", name, ts, dur, tid)


def _line(kind: str, name: str, ts: int, dur: int, tid: int, arguments: str = "{}") -> str:  # noqa: PLR0913, PLR0917  # the parts of an event, in order
    return (
        f'{{"cat" : "{kind}","pid" :7,"tid" :{tid},"dur" :{dur},"ts" :{ts},"ph" : "X",'
        f'"name" :"{name}","args" : {arguments}}}'
    )


def write_profile(path: Path, lines: Iterable[str], end: str = "\n") -> Path:
    text = f",{end}".join(lines)
    path.write_bytes(f"[{end}{text}{end}]{end}".encode())
    return path


def read(path: Path) -> tuple[list[Span], tuple[str, ...]]:
    """The spans of a profile, which are checked to be nested, and its notes."""
    profile = OrtProfile(path)
    return check_nesting(list(profile)), profile.notes


def of(spans: Iterable[Span], category: Category) -> list[Span]:
    return [span for span in spans if span.category is category]


def check_nesting(events: Iterable[Event]) -> list[Span]:
    """The spans. Each is within its parent; on a thread, two are nested or do not overlap."""
    spans = [event for event in events if isinstance(event, Span)]
    known = {span.id: span for span in spans}
    assert len(known) == len(spans)
    assert min(known, default=1) > 0
    rows: dict[tuple[int, int], list[tuple[int, Span]]] = defaultdict(list)
    for place, span in enumerate(spans):
        rows[span.process, span.thread].append((place, span))
        assert span.start_ns >= 0
        assert 0 <= (span.duration_ns if span.self_ns is None else span.self_ns) <= span.duration_ns
        if span.parent is not None:
            parent = known[span.parent]
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
    for row in rows.values():
        # The order of a viewer: by start, and those that start together as they were written.
        open_spans: list[Span] = []
        for _, span in sorted(row, key=lambda entry: (entry[1].start_ns, entry[0])):
            while open_spans and open_spans[-1].end_ns <= span.start_ns:
                open_spans.pop()
            assert not open_spans or span.end_ns <= open_spans[-1].end_ns
            open_spans.append(span)
    return spans
