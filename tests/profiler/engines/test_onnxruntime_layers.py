"""ONNX Runtime's own kernels, mapped back to the nodes of real models and of small ones."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest

from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import needs_copy, nodes_by_name, write_runnable
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.plans.plan import read_plan
from pytest_modelperf.profiler.counting.count import profile_graph
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.layers import attribute
from pytest_modelperf.profiler.measurements import Kernel, KernelRun, LayerTime, RowKind
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from tests.support.graph_models import parse, random_floats
from tests.support.light_models import light_model

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class _Profiled:
    """Return the layers of a model after a few profiled inferences."""

    layers: tuple[StaticLayer, ...]
    times: tuple[LayerTime, ...]
    kernels: Mapping[str, Mapping[str, Any]]
    plan: bytes | None
    peak_bytes: int | None

    def row(self, layer: str) -> LayerTime:
        """The row that a layer has a time in."""
        (row,) = (t for t in self.times if t.layer is not None and self.layers[t.layer].id == layer)
        return row

    def fused(self, layer: str) -> set[str]:
        return {self.layers[index].id for index in self.row(layer).fused}

    @property
    def kinds(self) -> set[RowKind]:
        """The kinds of rows that kernels have a time in."""
        return {time.kind for time in self.times} - {RowKind.OVERHEAD}

    @property
    def covered(self) -> set[str]:
        indexes = {t.layer for t in self.times if t.layer is not None}
        indexes |= {index for t in self.times for index in t.fused}
        return {self.layers[index].id for index in indexes}

    @property
    def ids(self) -> set[str]:
        return {layer.id for layer in self.layers}


def _profile(  # noqa: PLR0913  # a model, and how it is run
    path: Path,
    inputs: Arrays,
    folder: Path,
    *,
    options: Mapping[str, str] | None = None,
    binding: Binding | None = None,
    runs: int = 3,
) -> _Profiled:
    bound = load_model(open_model(path), binding)
    ref = ModelLocation(str(path), None)
    if needs_copy(bound):
        write_runnable(bound, folder / "copy.onnx")
        ref = ModelLocation(str(folder / "copy.onnx"), str(path.parent))
    work = folder / "work"
    work.mkdir()
    session = engine.load_profiled(ref, 1, options or {}, str(work))
    infer = session.prepare(inputs, {name: str(value.dtype) for name, value in inputs.items()})
    for _ in range(runs + 1):
        infer()
    report = session.report(runs)
    session.close()
    assert list(work.iterdir()) == []

    kernels = [Kernel(**{**k, "self_ns": tuple(k["self_ns"])}) for k in report["kernels"]]
    assert {len(kernel.self_ns) for kernel in kernels} == {runs}
    run = KernelRun(kernels=tuple(kernels), run_ns=(1e6,) * runs, plan=report["plan"])
    layers = profile_graph(bound.graph).layers
    plan = None if run.plan is None else read_plan(run.plan)
    times = attribute(run, plan, bound.graph, layers, 1e6, nodes_by_name(bound)).times
    assert sum(time.ns for time in times) == pytest.approx(1e6, rel=1e-9)
    by_name = {kernel["name"]: kernel for kernel in report["kernels"]}
    return _Profiled(layers, times, by_name, report["plan"], report["peak_bytes"])


def _save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


# -- real models


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet", "densenet121"])
def test_every_kernel_of_a_real_model_is_a_layer_or_a_change_of_layout(
    name: str, tmp_path: Path
) -> None:
    path = light_model(name)
    (tensor,) = (
        i for i in open_model(path).proto.graph.input if len(i.type.tensor_type.shape.dim) == 4
    )
    profiled = _profile(path, {tensor.name: random_floats(1, 3, 224, 224)}, tmp_path)

    others = {t.kernel for t in profiled.times if t.kind in (RowKind.LAYOUT, RowKind.OTHER)}
    assert others <= {"ReorderInput", "ReorderOutput"}
    assert profiled.covered == profiled.ids
    # The weights are not in the plan.
    assert profiled.plan is not None
    assert len(profiled.plan) < 300_000
    assert profiled.peak_bytes is None or profiled.peak_bytes > 4 * 3 * 224 * 224


def test_a_residual_addition_is_fused_into_the_convolution_before_it(tmp_path: Path) -> None:
    """The kernel is called after the normalization, and its output has no name of the model's."""
    path = light_model("resnet50")
    profiled = _profile(path, {"gpu_0/data_0": random_floats(1, 3, 224, 224)}, tmp_path, runs=1)
    assert profiled.fused("r10") == {"r11", "r14", "r15"}
    assert profiled.fused("r12") == {"r13"}
    assert profiled.row("r10").precision == "float32"
    assert profiled.row("r10").provider == "CPUExecutionProvider"


# -- fusion

_ENCODER = """g (float[1, 16, 64] x, float[1, 1, 1, 16] mask) => (float[1, 16, 64] y) <
    int64[4] heads = {0, 0, 4, 16}, int64[3] flat = {0, 0, 64},
    float four = {4.0}, float one = {1.0}, float half = {0.5}, float root = {1.4142135}
> {
    q0 = MatMul (x, wq)
    q1 = Add (q0, b)
    q2 = Reshape (q1, heads)
    q3 = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul (x, wk)
    k1 = Add (k0, b)
    k2 = Reshape (k1, heads)
    k3 = Transpose <perm = [0, 2, 3, 1]> (k2)
    s0 = MatMul (q3, k3)
    s1 = Div (s0, four)
    s2 = Add (s1, mask)
    p = Softmax <axis = -1> (s2)
    v0 = MatMul (x, wv)
    v1 = Add (v0, b)
    v2 = Reshape (v1, heads)
    v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
    c0 = MatMul (p, v3)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c2 = Reshape (c1, flat)
    o0 = MatMul (c2, wo)
    o1 = Add (o0, b)
    r1 = Add (o1, x)
    n1 = LayerNormalization <axis = -1> (r1, b, b)
    f0 = MatMul (n1, w1)
    f1 = Add (f0, b1)
    t0 = Div (f1, root)
    t1 = Erf (t0)
    t2 = Add (t1, one)
    t3 = Mul (f1, t2)
    a = Mul (t3, half)
    f2 = MatMul (a, w2)
    f3 = Add (f2, b)
    r2 = Add (f3, n1)
    y = LayerNormalization <axis = -1> (r2, b, b)
}"""


def _encoder() -> onnx.ModelProto:
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (64, 64))
    shapes |= {"w1": (64, 256), "w2": (256, 64), "b": (64,), "b1": (256,)}  # type: ignore[dict-item]  # vectors too
    weights = {name: random_floats(*shape) for name, shape in shapes.items()}
    return parse(_ENCODER, weights, opset=17)


def test_the_fusions_of_a_transformer_are_reported(tmp_path: Path) -> None:
    inputs = {"x": random_floats(1, 16, 64), "mask": np.zeros((1, 1, 1, 16), np.float32)}
    profiled = _profile(_save(_encoder(), tmp_path), inputs, tmp_path)

    assert profiled.covered == profiled.ids
    # Reshapes that were put in for a fused Gemm are part of it.
    assert profiled.kinds == {RowKind.LAYER}
    assert {"r1"} <= profiled.fused("n1")
    assert {"r2"} <= profiled.fused("y")
    # A GELU is none of its layers: the Erf is most of it.
    assert profiled.fused("t1") == {"t0", "t2", "t3", "a"}
    assert profiled.fused("s0") == {"s1"}


def test_without_optimizations_each_node_is_a_kernel(tmp_path: Path) -> None:
    """The user's options hold for the profiled session too."""
    inputs = {"x": random_floats(1, 16, 64), "mask": np.zeros((1, 1, 1, 16), np.float32)}
    options = {"graph_optimization_level": "none"}
    profiled = _profile(_save(_encoder(), tmp_path), inputs, tmp_path, options=options)
    assert {t.layer for t in profiled.times[:-1]} == set(range(len(profiled.layers)))
    assert all(time.fused == () for time in profiled.times)


def test_a_quantized_model_says_where_it_computes_in_integers(tmp_path: Path) -> None:
    model = parse("""g (float[1, 8, 16, 16] x) => (y)
        <float s = {0.02}, uint8 z = {128}, int8 i = {0}> {
        xq = QuantizeLinear (x, s, z)
        xd = DequantizeLinear (xq, s, z)
        wd = DequantizeLinear (w, s, i)
        c = Conv <pads = [1, 1, 1, 1]> (xd, wd)
        cq = QuantizeLinear (c, s, z)
        cd = DequantizeLinear (cq, s, z)
        a = Add (cd, xd)
        aq = QuantizeLinear (a, s, z)
        y = DequantizeLinear (aq, s, z)
    }""")  # fmt: skip
    weight = np.random.default_rng(0).integers(-99, 99, (8, 8, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    profiled = _profile(_save(model, tmp_path), {"x": random_floats(1, 8, 16, 16)}, tmp_path)

    assert profiled.row("c").precision == "uint8"
    assert "cq" in profiled.fused("c")
    assert "aq" in profiled.fused("a")
    assert profiled.row("xq").precision == "float32"
    assert RowKind.OTHER not in profiled.kinds
    assert profiled.covered == profiled.ids


def test_quantized_convolutions_are_distinguished(tmp_path: Path) -> None:
    """The runtime moves them to channels-last and gives them new names."""
    model = parse("""g (float[1, 16, 16, 16] x) => (y)
        <float s = {0.02}, uint8 z = {128}, int8 i = {0}> {
        xq = QuantizeLinear (x, s, z)
        xd = DequantizeLinear (xq, s, z)
        vd = DequantizeLinear (v, s, i)
        [one] a = Conv <pads = [1, 1, 1, 1]> (xd, vd)
        aq = QuantizeLinear (a, s, z)
        ad = DequantizeLinear (aq, s, z)
        wd = DequantizeLinear (w, s, i)
        [two] b = Conv <pads = [1, 1, 1, 1]> (ad, wd)
        bq = QuantizeLinear (b, s, z)
        y = DequantizeLinear (bq, s, z)
    }""")  # fmt: skip
    random = np.random.default_rng(0)
    for name in ("v", "w"):
        weight = random.integers(-99, 99, (16, 16, 3, 3)).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    profiled = _profile(_save(model, tmp_path), {"x": random_floats(1, 16, 16, 16)}, tmp_path)

    assert profiled.fused("a") == {"xd", "aq"}
    assert profiled.fused("b") == {"ad", "bq"}


def test_operators_that_the_runtime_takes_apart_keep_their_time(tmp_path: Path) -> None:
    """HardSwish and Mish are functions to it: several kernels, none with a name."""
    model = parse("g (float[64] x) => (y) { h = HardSwish (x)  y = Mish (h) }")
    profiled = _profile(_save(model, tmp_path), {"x": random_floats(64)}, tmp_path)
    assert {t.layer for t in profiled.times if t.kind is RowKind.LAYER} == {0, 1}
    assert profiled.kinds == {RowKind.LAYER}


def test_a_model_with_external_data_is_profiled_from_a_copy(tmp_path: Path) -> None:
    model = parse(
        "g (float[2, 64] x) => (y) { m = MatMul (x, w)  y = Sin (m) }", {"w": random_floats(64, 64)}
    )
    (tmp_path / "in/sub").mkdir(parents=True)
    path = tmp_path / "in/model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="sub/w.bin", size_threshold=0)
    profiled = _profile(path, {"x": random_floats(2, 64)}, tmp_path)
    assert profiled.covered == {"m", "y"}


def test_the_names_of_the_kernels_are_used_if_no_plan_can_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that compiles a part of the graph refuses to save what it made of it."""
    opened = ort.InferenceSession

    def refuse(model: Any, session_options: Any, **more: Any) -> Any:  # noqa: ANN401  # any of theirs
        if session_options.optimized_model_filepath:
            raise RuntimeError("Unable to serialize model as it contains compiled nodes")
        return opened(model, session_options, **more)

    # Such a provider is part of no package that tests could install.
    monkeypatch.setattr(ort, "InferenceSession", refuse)
    path = _save(parse("g (float[64] x) => (y) { h = Relu (x)  y = Sin (h) }"), tmp_path)
    profiled = _profile(path, {"x": random_floats(64)}, tmp_path)
    assert profiled.plan is None
    assert profiled.covered == {"h", "y"}


# -- control flow

_LOOP = """g (float[4] x, bool c) => (y, s) {
    n = Constant <value = int64 {3}> ()
    k = Constant <value = bool {1}> ()
    l = Loop (n, k, x) <body = b (int64 i, bool ci, float[4] a) => (co, o) {
        co = Identity (ci)
        q = Sin (a)
        o = Relu (q)
    }>
    y = If (c) <
        then_branch = t () => (u) { q = Sin (l)  u = Cos (q) },
        else_branch = e () => (v) { q = Cos (l)  v = Sin (q) }
    >
    s0, s = Scan <num_scan_inputs = 1, body = r (float acc, float row) => (float o1, float o2) {
        o1 = Add (acc, row)
        o2 = Tanh (o1)
    }> (zero, x)
}"""


def test_nodes_of_bodies_have_their_own_time_and_number_of_calls(tmp_path: Path) -> None:
    inputs = {"x": random_floats(4), "c": np.ones((), bool)}
    profiled = _profile(
        _save(parse(_LOOP, {"zero": np.zeros((), np.float32)}), tmp_path), inputs, tmp_path
    )

    calls = {name: kernel["calls"] for name, kernel in profiled.kernels.items()}
    assert {name: calls[name] for name in ("l", "o", "y", "u", "s0", "o1", "o2")} == {
        "l": 1, "o": 3, "y": 1, "u": 1, "s0": 1, "o1": 4, "o2": 4,
    }  # fmt: skip
    assert profiled.kinds == {RowKind.LAYER}
    assert profiled.covered == profiled.ids


# -- shapes


def test_a_run_reports_the_shapes_of_every_call(tmp_path: Path) -> None:
    model = parse("""g (float[6] x) => (y) {
        i = NonZero (x)
        n = Constant <value = int64 {2}> ()
        k = Constant <value = bool {1}> ()
        e = Constant <value = int64[1] {3}> ()
        w = Constant <value = float {0}> ()
        g = Expand (w, e)
        y = Loop (n, k, g) <body = b (int64 t, bool ci, float[M] a) => (co, o) {
            co = Identity (ci)
            o = Concat <axis = 0> (a, x)
        }>
    }""")
    for node in model.graph.node:
        node.name = node.output[0]
    for node in model.graph.node[-1].attribute[0].g.node:
        node.name = f"in/{node.output[0]}"
    x = np.array([0, 1, 0, 2, 3, 0], np.float32)
    seen = engine.observe_shapes(
        ModelLocation(str(_save(model, tmp_path)), None),
        {},
        {"x": x},
        {"x": "float32"},
        str(tmp_path),
    )

    calls = {entry["name"]: entry["calls"] for entry in seen}
    assert calls["i"] == [[[1, 3]]]
    assert calls["in/o"] == [[[9]], [[15]]]
    assert calls["y"] == [[[15]]]
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


# -- profiles


def _event(kind: str, name: str, start: int, duration: int, **args: object) -> dict[str, Any]:
    return {"cat": kind, "tid": 1, "name": name, "ts": start, "dur": duration, "args": args}


def _node(name: str, start: int, duration: int, **args: object) -> dict[str, Any]:
    args = {"op_name": name.capitalize(), "node_index": "0", **args}
    return _event("Node", f"{name}_kernel_time", start, duration, **args)


def _graph(start: int) -> dict[str, Any]:
    return _event("Session", "SequentialExecutor::Execute", start, 1)


def _model_run() -> dict[str, Any]:
    return _event("Session", "model_run", 0, 1)


def _write(path: Path, events: Sequence[Mapping[str, Any]], end: str = "\n]") -> Path:
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + end)
    return path


def _self_us(path: Path, runs: int, **limit: int) -> dict[str, list[float]]:
    profile = engine._Profile(runs, **limit)
    profile.read(path)
    return {k["name"]: [ns / 1000 for ns in k["self_ns"]] for k in profile.kernels()}


def test_self_time_leaves_out_what_ran_inside_of_a_kernel(tmp_path: Path) -> None:
    """A Loop of two trips whose body has an If with one node: all whole, each with half added."""
    events = [
        _node("before", 0, 9),
        _node("sin", 21, 3), _node("mul", 26, 4), _graph(26), _node("if", 25, 10), _graph(20),
        _node("sin", 41, 5), _node("mul", 46, 4), _graph(46), _node("if", 45, 10), _graph(40),
        _node("loop", 10, 60),
        _node("after", 75, 2),
        _graph(0), _model_run(),
    ]  # fmt: skip
    assert _self_us(_write(tmp_path / "p.json", events), 1) == {
        "before": [9.5], "sin": [9.0], "mul": [9.0], "if": [12.0],
        "loop": [60.5 - 3.5 - 5.5 - 10.5 - 10.5], "after": [2.5],
    }  # fmt: skip


def test_kernels_on_another_thread_are_not_inside(tmp_path: Path) -> None:
    events = [
        {**_node("other", 12, 5), "tid": 2},
        _node("sin", 11, 5), _graph(11), _node("if", 10, 20),
        _graph(0), _model_run(),
    ]  # fmt: skip
    assert _self_us(_write(tmp_path / "p.json", events), 1)["if"] == [15.0]


def test_only_the_last_runs_count_and_a_kernel_that_did_not_run_took_nothing(
    tmp_path: Path,
) -> None:
    events = []
    for run, duration in enumerate((900, 1, 2, 3)):
        events.append(_node("relu", 0, duration))
        if run == 2:
            events.append(_node("rare", 5, 7))
        events += [_graph(0), _model_run()]
    assert _self_us(_write(tmp_path / "p.json", events), 3) == {
        "relu": [1.5, 2.5, 3.5],
        "rare": [0.0, 7.5, 0.0],
    }


def test_kernels_of_one_name_are_distinguished_by_their_number(tmp_path: Path) -> None:
    events = [_node("r", 0, 1, node_index="4"), _node("r", 5, 2, node_index="7"), _model_run()]
    profile = engine._Profile(1)
    profile.read(_write(tmp_path / "p.json", events))
    assert [kernel["self_ns"] for kernel in profile.kernels()] == [[1500.0], [2500.0]]


@pytest.mark.parametrize(
    ("inputs", "outputs", "precision"),
    [
        (["float", "int64"], ["float"], "float32"),
        (["double"], ["double"], "float64"),
        (["float16", "float16"], ["float16"], "float16"),
        (["uint8", "float", "uint8", "int8"], ["uint8"], "uint8"),
        # Where and Gather by an index: the bytes they move count.
        (["bool", "float16", "float16"], ["float16"], "float16"),
        (["int64", "int64"], ["int64"], "int64"),
        ([], ["float"], "float32"),
        ([], [], None),
    ],
)
def test_the_precision_of_a_kernel_is_that_of_what_it_computes_with(
    inputs: list[str], outputs: list[str], precision: str | None
) -> None:
    args = {
        "input_type_shape": [{name: [1]} for name in inputs],
        "output_type_shape": [{name: [1]} for name in outputs],
    }
    assert engine._precision(args) == precision


@pytest.mark.parametrize("end", [",", ',\n{"cat" : "Node","pi', ""])
def test_a_profile_that_was_cut_off_is_an_error_as_of_a_full_disk(tmp_path: Path, end: str) -> None:
    path = _write(tmp_path / "p.json", [_node("r", 0, 1), _model_run()], end)
    with pytest.raises(OSError, match="profile file is incomplete") as caught:
        engine._Profile(1).read(path)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("text", [None, "", "[\n"])
def test_a_profile_that_is_empty_or_not_there_is_the_same_error(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "p.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OSError, match="profile file is incomplete"):
        engine._Profile(1).read(path)


def test_a_line_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('[\n{"cat" : "Node","name" :"a"b"},\n' + json.dumps(_model_run()) + "\n]")
    with pytest.raises(ValueError, match="not JSON, perhaps because of a name"):
        engine._Profile(1).read(path)


def test_a_full_profile_has_fewer_runs_and_lacks_the_first(tmp_path: Path) -> None:
    """Eight events and then no more: two runs are whole, of the third a part."""
    events = [_node("r", 0, 900), _node("s", 0, 1), _model_run()]
    events += [_node("r", 0, 1), _node("s", 0, 1), _model_run(), _node("r", 0, 1), _node("s", 0, 1)]
    path = _write(tmp_path / "p.json", events)
    assert _self_us(path, 5, max_events=8) == {"r": [1.5], "s": [1.5]}

    short = _write(tmp_path / "q.json", [events[0], events[2], *[events[0]] * 6])
    with pytest.raises(ValueError, match="holds 8 events, and two inferences"):
        _self_us(short, 5, max_events=8)


def test_a_profile_with_too_few_runs_that_is_not_full_is_incomplete(tmp_path: Path) -> None:
    path = _write(tmp_path / "p.json", [_node("r", 0, 1), _model_run()])
    with pytest.raises(OSError, match="profile file is incomplete"):
        _self_us(path, 2)


_FULL_DISK = """
import errno, resource, signal, sys
import numpy as np
from pytest_modelperf.profiler.engines import onnxruntime as engine
from pytest_modelperf.profiler.worker.sessions import ModelLocation

model, folder = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = engine.load_profiled(ModelLocation(model, None), 1, {}, folder)
infer = session.prepare({"x": np.ones(64, np.float32)}, {"x": "float32"})
for _ in range(20):
    infer()
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    session.report(20)
except OSError as error:
    sys.exit(10 if error.errno == errno.ENOSPC else 11)
"""


def test_a_disk_that_takes_no_more_is_noticed(tmp_path: Path) -> None:
    """The runtime itself says nothing: its file just ends."""
    path = _save(parse("g (float[64] x) => (y) { h = Relu (x)  y = Sin (h) }"), tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([sys.executable, "-c", _FULL_DISK, str(path), str(work)], check=False)
    assert done.returncode == 10
    assert list(work.iterdir()) == []


def test_tensors_of_a_model_that_is_given_texts_are_read(tmp_path: Path) -> None:
    """The runtime makes no values of texts, so they are given as arrays."""
    graph = """g (string[2] words, float[2] x) => (bool[2] same, float[2] y, string[2] z) {
        k = Constant <value_strings = ["a"]> ()
        same = Equal (words, k)
        y = Neg (x)
        z = Identity (words)
    }"""
    path = tmp_path / "m.onnx"
    onnx.save(parse(graph, opset=19), str(path))
    inputs = {"words": np.array(["a", "b"], object), "x": np.array([1, 2], np.float32)}

    def read(*names: str) -> Arrays:
        dtypes = {"words": "string", "x": "float32"}
        return engine.read_tensors(ModelLocation(str(path), None), 1, {}, inputs, dtypes, names)

    found = read("same", "y")
    assert {name: array.tolist() for name, array in found.items()} == {
        "same": [True, False],
        "y": [-1.0, -2.0],
    }
    with pytest.raises(ValueError, match="the tensor 'z' is no array of numbers"):
        read("z")
