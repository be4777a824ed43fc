"""The OpenVINO engine: what it returns, which options it takes, and which nodes a kernel is of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from pytest_modelperf.profiler.engines.source import BUILT_IN
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.client import ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.sessions import ModelLocation
from tests.support.light_models import light_model
from tests.support.small_models import ones, parse

pytest.importorskip("openvino", reason="needs the extra openvino")

from pytest_modelperf.profiler.engines import openvino as engine
from tests.support.known import known

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine

# Whether a processor computes in bfloat16 by default depends on the processor.
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}

PERCEPTRON = """
    g (float[N,8] x) => (float[N,4] y) {
        [first] m = MatMul(x, a)
        [offset] s = Add(m, b)
        [relu] r = Relu(s)
        [dropout] d = Dropout(r)
        [last] y = MatMul(d, c)
    }
"""
ATTENTION = """
    g (float[1,16,64] x) => (float[1,16,64] y) {
        [norm] n = LayerNormalization(x, gamma, beta)
        [q] qm = MatMul(n, wq)
        [q_offset] qa = Add(qm, offset)
        [k] km = MatMul(n, wk)
        [k_turned] kt = Transpose<perm=[0,2,1]>(km)
        [scores] s = MatMul(qa, kt)
        [probabilities] p = Softmax(s)
        [context] o = MatMul(p, n)
        [sum] y = Add(o, x)
    }
"""


def save(folder: Path, text: str, weights: Mapping[str, npt.NDArray[Any]] | None = None) -> str:
    path = folder / "model.onnx"
    onnx.save(parse(text, weights=weights), path)
    return str(path)


def perceptron(folder: Path) -> str:
    return save(folder, PERCEPTRON, {"a": ones(8, 8), "b": -ones(8), "c": ones(8, 4)})


def outputs(
    model: str,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: str | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> list[npt.NDArray[Any]]:
    """Return the outputs of one inference."""
    session = engine.load(ModelLocation(model, folder), 1, EXACT)
    infer = session.prepare(inputs, dtypes or {n: str(a.dtype) for n, a in inputs.items()})
    found = [np.array(values) for values in infer().values()]
    session.close()
    return found


def profiled(model: str, runs: int = 20, **inputs: npt.NDArray[Any]) -> list[dict[str, Any]]:
    """The kernels of a profiled session, as the worker asks for them."""
    session = engine.load_profiled(ModelLocation(model, None), 1, EXACT, "")
    infer = session.prepare(inputs, {n: str(a.dtype) for n, a in inputs.items()})
    for _ in range(runs + 3):
        infer()
    kernels: list[dict[str, Any]] = session.report(runs)["kernels"]
    session.close()
    return kernels


def originals(kernels: Sequence[Mapping[str, Any]], op_type: str) -> list[list[str]]:
    return [kernel["originals"] for kernel in kernels if kernel["op_type"] == op_type]


# -- inferences


def test_an_inference_returns_what_the_model_computes(tmp_path: Path) -> None:
    (y,) = outputs(perceptron(tmp_path), {"x": ones(2, 8)})
    np.testing.assert_array_equal(y, np.full((2, 4), 56.0))


def test_inputs_may_have_any_size_if_the_model_leaves_it_open(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    assert [outputs(model, {"x": ones(n, 8)})[0].shape for n in (1, 5)] == [(1, 4), (5, 4)]


def test_bits_of_a_type_that_numpy_lacks_are_taken_as_that_type(tmp_path: Path) -> None:
    model = save(tmp_path, "g (bfloat16[2] x) => (float[2] y) { y = Cast<to=1>(x) }")
    bits = np.array([0x3F80, 0xC000], np.uint16)
    (y,) = outputs(model, {"x": bits}, dtypes={"x": "bfloat16"})
    np.testing.assert_array_equal(y, [1.0, -2.0])


def test_a_type_that_the_runtime_lacks_is_refused(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    with pytest.raises(ValueError, match="no inputs of type float8e5m2fnuz"):
        outputs(model, {"x": np.zeros((1, 8), np.uint8)}, dtypes={"x": "float8e5m2fnuz"})


def test_external_data_may_be_in_another_folder(tmp_path: Path) -> None:
    weights, model = tmp_path / "weights", tmp_path / "model.onnx"
    weights.mkdir()
    proto = parse(PERCEPTRON, weights={"a": ones(8, 8), "b": -ones(8), "c": ones(8, 4)})
    onnx.save(
        proto,
        weights / "model.onnx",
        save_as_external_data=True,
        location="data.bin",
        size_threshold=0,
    )
    (weights / "model.onnx").rename(model)
    before = Path.cwd()
    (y,) = outputs(str(model), {"x": ones(2, 8)}, folder=str(weights))
    np.testing.assert_array_equal(y, np.full((2, 4), 56.0))
    assert Path.cwd() == before


def test_an_error_says_what_is_wrong_and_not_where_in_the_source_of_the_runtime(
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeError, match="Could not open the file") as failure:
        engine.load(ModelLocation(str(tmp_path / "none.onnx"), None), 1, {})
    assert "Exception from" not in str(failure.value)


# -- options


def test_an_engine_describes_itself() -> None:
    described = engine.describe(EXACT)
    assert described["name"] == "openvino"
    assert described["version"].split(".")[0].isdigit()
    assert described["options"] == {
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    assert described["providers"] == ["CPU"]


def test_threads_and_options_reach_the_runtime(tmp_path: Path) -> None:
    options = {"PERFORMANCE_HINT": "THROUGHPUT", "ENABLE_HYPER_THREADING": "YES", **EXACT}
    session = engine.load(ModelLocation(perceptron(tmp_path), None), 1, options)
    compiled = session._compiled
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert compiled.get_property("NUM_STREAMS") == 1
    assert str(compiled.get_property("PERFORMANCE_HINT")).endswith("THROUGHPUT")


def test_requests_that_run_at_once_have_a_stream_each() -> None:
    assert engine.stream_options(3, {}) == {"NUM_STREAMS": "3"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"device": "ABACUS"}, "no device 'ABACUS' here. There are: CPU"),
        ({"NO_SUCH": "1"}, "Unsupported property NO_SUCH"),
        ({"NO_SUCH": "1"}, "There are: device, .*INFERENCE_PRECISION_HINT.*PERFORMANCE_HINT"),
        ({"PERF_COUNT": "perhaps"}, "PERF_COUNT=perhaps for CPU: Wrong value perhaps"),
        ({"INFERENCE_NUM_THREADS": "2"}, "give a number from 1 to the cores of the case, here 1"),
    ],
)
def test_an_option_that_the_runtime_does_not_take_is_named(
    tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(engine.OptionError, match=expected):
        engine.load(ModelLocation(perceptron(tmp_path), None), 1, options)


def test_a_model_that_cannot_be_read_is_not_blamed_on_options(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Could not open"):
        engine.load(ModelLocation(str(tmp_path / "none.onnx"), None), 1, EXACT)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="pinning needs Linux")
def test_the_runtime_stays_on_the_processors_of_the_worker(tmp_path: Path) -> None:
    """It pins threads of its own, and those must not leave the processors that it was given."""
    model = perceptron(tmp_path)
    x = ones(1, 8)
    with ProcessWorker(WorkerRequest(cores=1)) as worker:
        threads = Path(f"/proc/{known(worker._interpreter).process.pid}/task")
        before = set(threads.iterdir())
        described = worker.use_engine(BUILT_IN["openvino"], EXACT)
        assert described["name"] == "openvino"
        sent = {"x": ("float32", "float32", x.shape, x.tobytes())}
        worker.ask("inputs", "as the inputs were sent", inputs=sent)
        loading: dict[str, Any] = {"model": model, "folder": None, "threads": 1}
        worker.ask("open", "as the model was loaded", side="a", options=EXACT, **loading)
        block = worker.ask("block", "in round 1", sides=["a"], count=3, max_ns=10**12, seed=0)
        assert len(np.frombuffer(block["times"]["a"], np.int64)) == 3
        started = set(threads.iterdir()) - before
        assert started
        for thread in started:
            assert os.sched_getaffinity(int(thread.name)) <= set(known(worker.processors))


# -- kernels


def test_a_kernel_represents_all_nodes_that_went_into_it(tmp_path: Path) -> None:
    """The runtime forgets the first MatMul, and calls the Relu by the name of the Dropout."""
    kernels = profiled(perceptron(tmp_path), x=ones(64, 8))
    names = [name for kernel in kernels for name in kernel["originals"] or ()]
    assert sorted(names) == sorted(["first", "offset", "relu", "last"])


@pytest.mark.parametrize(
    "name", ["first", "first/WithoutBiases", "first.0", "first.0.1", "first_m", "m"]
)
def test_a_node_is_found_by_what_the_runtime_makes_of_its_name(tmp_path: Path, name: str) -> None:
    assert engine._Nodes(perceptron(tmp_path)).find(name) == "first"


def test_a_kernel_named_after_a_dropout_is_the_node_before_it(tmp_path: Path) -> None:
    assert engine._Nodes(perceptron(tmp_path)).find("dropout") == "relu"


def test_metadata_of_a_node_is_not_read(tmp_path: Path) -> None:
    """The exporter of torch writes the source of each node, which is longer than 127 bytes."""
    model = onnx.load(perceptron(tmp_path))
    for node in model.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="x" * 200)
    path = str(tmp_path / "traced.onnx")
    onnx.save(model, path)
    assert engine._Nodes(path).find("first") == "first"


def test_nodes_that_have_the_same_name_are_found(tmp_path: Path) -> None:
    text = """
        g (float[2] x) => (float[2] y) {
            [a] r = Relu(x)
            [a] i = Identity(r)
            [b] d = Dropout(i)
            [b] y = Abs(d)
        }
    """
    nodes = engine._Nodes(save(tmp_path, text))
    assert (nodes.find("a"), nodes.find("b")) == ("a", "a")


@pytest.mark.parametrize("name", ["", "firstly", "first_s", "first_1", "MatMul_12", "x"])
def test_no_node_is_found_by_another_name(tmp_path: Path, name: str) -> None:
    assert engine._Nodes(perceptron(tmp_path)).find(name) is None


def test_nodes_of_a_kernel_come_in_the_order_of_the_model(tmp_path: Path) -> None:
    kernels = profiled(perceptron(tmp_path), x=ones(64, 8))
    order = ["first", "offset", "relu", "last"]
    for kernel in kernels:
        positions = [order.index(name) for name in kernel["originals"] or ()]
        assert positions == sorted(positions)


def test_a_step_that_the_runtime_named_itself_belongs_to_the_node_it_was_made_of(
    tmp_path: Path,
) -> None:
    """The runtime makes of a LayerNormalization an MVN of its own naming, a Multiply and an Add."""
    weights = {name: ones(64) for name in ("gamma", "beta", "offset")}
    weights |= {name: ones(64, 64) for name in ("wq", "wk")}
    kernels = profiled(save(tmp_path, ATTENTION, weights), x=ones(1, 16, 64))
    assert originals(kernels, "MVN") == [["norm"]]
    mapped = {name for kernel in kernels for name in kernel["originals"] or ()}
    assert mapped == {
        "norm", "q", "q_offset", "k", "k_turned", "scores", "probabilities", "context", "sum",
    }  # fmt: skip


def test_nodes_computed_once_at_the_start_belong_to_no_kernel(tmp_path: Path) -> None:
    text = """
        g (float[4,8] x) => (float[4,8] y) {
            [shape] s = Shape(x)
            [filled] f = ConstantOfShape(s)
            [scaled] w = Add(f, one)
            [product] y = Mul(x, w)
        }
    """
    kernels = profiled(save(tmp_path, text, {"one": ones(8)}), x=ones(4, 8))
    assert [kernel["originals"] for kernel in kernels if kernel["originals"]] == [["product"]]


def test_a_loop_is_one_kernel(tmp_path: Path) -> None:
    text = """
        g (float[8,8] x, int64 n) => (float[8,8] y) {
            [loop] y = Loop(n, , x) <
                body = b (int64 i, bool go, float[8,8] a) => (bool more, float[8,8] r) {
                    [again] more = Identity(go)
                    [inner] r = MatMul(a, a)
                }
            >
        }
    """
    kernels = profiled(save(tmp_path, text), x=ones(8, 8), n=np.array(3))
    assert ["loop"] in [kernel["originals"] for kernel in kernels]


def test_each_kernel_has_one_time_a_run_and_together_no_more_than_the_run_took(
    tmp_path: Path,
) -> None:
    session = engine.load_profiled(ModelLocation(perceptron(tmp_path), None), 1, EXACT, "")
    infer = session.prepare({"x": ones(4096, 8)}, {"x": "float32"})
    for _ in range(9):
        infer()
    report = session.report(6)
    times = np.array([kernel["self_ns"] for kernel in report["kernels"]])
    assert times.shape[1] == 6
    assert (times >= 0).all()
    assert (times.sum(axis=0) <= np.array(session._run_ns[-6:]) * (1 + 1e-9)).all()


def test_the_first_run_is_not_in_the_times(tmp_path: Path) -> None:
    """The runtime gives averages: of 500 µs at first, then 100 µs nine times, it gives 140 µs."""
    session = engine.load_profiled(ModelLocation(perceptron(tmp_path), None), 1, EXACT, "")
    session.prepare({"x": ones(1, 8)}, {"x": "float32"})
    names = [op.friendly_name for op in session._compiled.get_runtime_model().get_ordered_ops()]
    kernel = next(name for name in names if name in session._kernel_us())
    session._first_us = {kernel: 500}
    session._run_ns = [10**9] * 9
    assert session._steady_us(kernel, 140) == pytest.approx(100)


def test_the_precision_is_the_one_that_a_kernel_ran_in(tmp_path: Path) -> None:
    kernels = profiled(perceptron(tmp_path), x=ones(64, 8))
    assert {k["precision"] for k in kernels if k["originals"]} == {"float32"}
    assert {k["provider"] for k in kernels} == {"CPU"}


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_every_kernel_of_a_light_model_is_of_a_node_unless_it_changes_a_layout(
    tmp_path: Path, name: str
) -> None:
    model = onnx.load(light_model(name))
    for node in model.graph.node:
        node.name = node.output[0]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    (given,) = (i for i in model.graph.input if i.name not in _initializers(model))
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    kernels = profiled(str(path), runs=1, **{given.name: ones(*shape)})
    nodes = {node.name for node in model.graph.node}
    assert {k["op_type"] for k in kernels if not k["originals"]} <= {"Reorder"}
    assert {name for k in kernels for name in k["originals"] or ()} <= nodes
    contractions = {n.name for n in model.graph.node if n.op_type in ("Conv", "Gemm")}
    assert contractions <= {name for k in kernels for name in k["originals"] or ()}


def _initializers(model: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


def test_the_worker_gets_kernels_and_the_latency_of_a_plain_session(tmp_path: Path) -> None:
    agent = Agent()
    agent.use_engine(cast("Engine", engine))
    x = ones(4, 8)
    inputs = {"x": ("float32", "float32", x.shape, x.tobytes())}
    assert agent.handle({"command": "inputs", "inputs": inputs}) == {"ok": None}
    place = {"model": perceptron(tmp_path), "folder": None}
    setting = {"threads": 1, "options": EXACT}
    assert "ok" in agent.handle({"command": "open", "side": "a", **place, **setting})
    limits = {"warmup_ns": 10**12, "limits": [(4, None)]}
    models = [{**place, "feed": "", "beside": "a"}]
    answer = agent.handle({"command": "layers", "models": models, **setting, **limits})
    (answered,) = answer["ok"]
    assert len(answered["run_ns"]) == len(answered["plain_ns"]) == 4
    assert {len(kernel["self_ns"]) for kernel in answered["kernels"]} == {4}
