"""Models in 8-bit integers: they run on both engines, and the quantizer's limits are reported.

The quantizer has a process of its own if a test is about that, or could suffer without it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from pytest_modelperf.errors import MeasureError, ModelError
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.engines import onnxruntime_quantizer
from pytest_modelperf.profiler.engines.source import ModuleSource
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.worker.client import Meanwhile, ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.inline import InlineWorker, work_inline
from pytest_modelperf.profiler.worker.starter import Channel
from pytest_modelperf.whatif.pruned import read_products, write_stored
from pytest_modelperf.whatif.quantizing import QuantizationForm, StartWorker, quantize
from tests.support.graph_models import parse, random_floats
from tests.support.light_models import light_model
from tests.support.runtimes import IS_OF_PYTHON_3_10, NO_CONV_INTEGER

FORMS: tuple[QuantizationForm, ...] = ("dynamic", "static")

# More trips than there is time for, in which nothing comes back to Python.
ENDLESS = """
    g (float[4,4] x) => (float[4,4] y) {
        m = MatMul(x, w)
        y = Loop(trips, , m) <
            body = b (int64 i, bool c, float[4,4] a) => (bool d, float[4,4] e) {
                d = Identity(c)
                e = Relu(a)
            }
        >
    }
"""

# Appended to the quantizer.
CANNOT_PREPARE = """
def quant_pre_process(*_, **__):
    raise RuntimeError("no\x1b shapes\\nand a stack")
"""
# In place of the quantizer.
TELLING_ITS_INPUTS = """
def quantize_file(source, target, form, feeds, folder, *, is_large):
    texts = [f"x={feed['x'][0]:g}, mask={feed['mask'][0]}" for feed in feeds]
    raise ValueError("; ".join(texts))
"""
CRASHING = """
import os, signal

def quantize_file(source, target, form, feeds, folder, *, is_large):
    for path in (target, target + ".data", os.path.join(folder, "prepared.onnx")):
        open(path, "w").close()
    os.kill(os.getpid(), signal.SIGSEGV)
"""
COMPUTING = """
import signal

def quantize_file(*_, **__):
    calls, answer = [], signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, lambda *signals: calls.append(answer(*signals)))
    while len(calls) < 3:
        pass
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    raise ValueError("said it several times")
"""


def convolutions() -> onnx.ModelProto:
    return parse(
        """g (float[1,3,16,16] x) => (float[1,10] y) {
            c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1, b1)
            r = Relu(c)
            d = Conv<kernel_shape = [3, 3], strides = [2, 2]>(r, w2)
            s = Relu(d)
            p = GlobalAveragePool(s)
            f = Flatten(p)
            y = Gemm<transB = 1>(f, w3, b3)
        }""",
        {
            "w1": random_floats(16, 3, 3, 3) / np.float32(5),
            "b1": random_floats(16, seed=1),
            "w2": random_floats(16, 16, 3, 3, seed=2) / np.float32(12),
            "w3": random_floats(10, 16, seed=3),
            "b3": random_floats(10, seed=4),
        },
    )


def transformer() -> onnx.ModelProto:
    """A block of attention and its perceptron, with one weight that is shared, and no names."""
    weights = {
        name: random_floats(*shape, seed=seed) / np.float32(6)
        for seed, (name, shape) in enumerate(
            {"wq": (32, 32), "wv": (32, 32), "up": (32, 64), "down": (64, 32)}.items()
        )
    }
    weights |= {name: np.ones(32, np.float32) for name in ("gamma", "beta")}
    return parse(
        """g (float[N,8,32] x) => (float[N,8,32] y) {
            n = LayerNormalization(x, gamma, beta)
            q = MatMul(n, wq)
            k = MatMul(x, wq)
            v = MatMul(n, wv)
            t = Transpose<perm = [0, 2, 1]>(k)
            s = MatMul(q, t)
            p = Softmax(s)
            a = MatMul(p, v)
            h = Add(a, x)
            u = MatMul(h, up)
            r = Relu(u)
            d = MatMul(r, down)
            y = Add(d, h)
        }""",
        weights,
    )


MODELS = {"convolutions": (convolutions, (1, 3, 16, 16)), "transformer": (transformer, (2, 8, 32))}


def feeds(*shape: int) -> list[dict[str, Feed]]:
    return [{"x": Feed("float32", random_floats(*shape, seed=seed))} for seed in range(3)]


def save(folder: Path, model: onnx.ModelProto, **options: Any) -> Path:  # noqa: ANN401  # onnx's
    source = folder / "source"
    source.mkdir()
    onnx.save(model, source / "model.onnx", **options)
    return source / "model.onnx"


def quantize_saved(
    folder: Path,
    model: onnx.ModelProto,
    form: QuantizationForm = "dynamic",
    given: Sequence[Mapping[str, Feed]] = (),
    **options: Any,  # noqa: ANN401  # those of `quantize`
) -> tuple[str, ...]:
    """Return the messages about the model that is quantized to `target.onnx`."""
    return quantize(save(folder, model), folder / "target.onnx", form, given, **options)


def process(worker: type[ProcessWorker]) -> StartWorker:
    return lambda setup, cores: worker(WorkerRequest(cores=cores, limit_s=setup.limit_s))


def arrays(feed: Mapping[str, Feed]) -> dict[str, npt.NDArray[Any]]:
    return {name: each.array for name, each in feed.items()}


def run(path: Path, feed: Mapping[str, Feed]) -> npt.NDArray[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return np.asarray(ort.InferenceSession(str(path), options).run(None, arrays(feed))[0])


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.fixture
def inline() -> Iterator[StartWorker]:
    """Starts no process for the quantizer."""
    yield lambda _, cores: work_inline(cores)
    # What it starts with.
    ort.set_default_logger_severity(2)


def code(text: str) -> ModuleSource:
    """Another quantizer."""
    return ModuleSource(text, "quantizer.py")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_a_quantized_model_answers_on_both_engines_about_as_the_model_does(
    tmp_path: Path, kind: str, form: QuantizationForm
) -> None:
    ov = pytest.importorskip("openvino", reason="needs the extra openvino")
    if (kind, form) == ("convolutions", "dynamic") and IS_OF_PYTHON_3_10:
        pytest.skip(f"ONNX Runtime 1.23 {NO_CONV_INTEGER}")
    make, shape = MODELS[kind]
    source, target = save(tmp_path, make()), tmp_path / "target.onnx"
    given = feeds(*shape)
    quantize(source, target, form, given)
    expected = run(source, given[0])
    compiled = ov.Core().compile_model(str(target), "CPU", {"INFERENCE_NUM_THREADS": 1})
    for found in (run(target, given[0]), compiled(arrays(given[0]))[0]):
        assert found.shape == expected.shape
        assert 0 < np.abs(found - expected).max() < 0.2 * np.abs(expected).max()
    integers = [
        tensor.name
        for tensor in onnx.load(target).graph.initializer
        if tensor.data_type == TensorProto.INT8 and len(tensor.dims) > 1
    ]
    assert len(integers) == {"convolutions": 3, "transformer": 4}[kind]


def test_products_that_stay_in_floats_are_reported(tmp_path: Path, inline: StartWorker) -> None:
    source, target = save(tmp_path, transformer()), tmp_path / "target.onnx"
    given = feeds(2, 8, 32)
    notes = quantize(source, target, "dynamic", given, start=inline)
    assert notes == ("2 of 7 products stay in floats: 2 MatMul",)
    assert operators(target)["MatMulInteger"] == 5
    notes = quantize(source, target, "static", given, start=inline)
    assert notes == ()
    assert operators(target)["MatMulInteger"] == 0
    assert read_products(target).of_integers == 7


def test_quantizing_leaves_no_files_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in a log nor in the folders: the quantizer writes a file next to the model."""
    source, target = save(tmp_path, transformer()), tmp_path / "target.onnx"
    for form in FORMS:
        quantize(source, target, form, feeds(2, 8, 32))
    assert [p.name for p in source.parent.iterdir()] == ["model.onnx"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "target.onnx"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", FORMS)
def test_weights_in_external_data_are_quantized_into_external_data(
    tmp_path: Path, inline: StartWorker, form: QuantizationForm
) -> None:
    source = save(
        tmp_path, transformer(), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    target, given = tmp_path / "target.onnx", feeds(2, 8, 32)
    for _ in range(2):
        # Over itself too: it does not grow.
        quantize(source, target, form, given, start=inline)
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {"source", "target.onnx", "target.onnx.data"}
    assert (tmp_path / "target.onnx.data").stat().st_size < 40_000
    expected = run(source, given[0])
    assert np.abs(run(target, given[0]) - expected).max() < 0.2 * np.abs(expected).max()


def test_a_model_of_an_old_opset_without_weights_is_converted_with_a_note(
    tmp_path: Path, inline: StartWorker
) -> None:
    source, target = tmp_path / "stored.onnx", tmp_path / "target.onnx"
    write_stored(load_model(open_model(light_model("squeezenet"))), source)
    notes = quantize(source, target, "dynamic", [], start=inline)
    assert notes == ("converted from opset 9 to 11, which the quantizer needs",)
    assert operators(target)["ConvInteger"] == 26


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_that_nodes_compute_is_quantized(
    tmp_path: Path, inline: StartWorker, form: QuantizationForm
) -> None:
    model = parse(
        """g (float[1,16] x) => (float[1,10] y) {
            w = Reshape(stored, shape)
            y = Gemm<transB = 1>(x, w, b)
        }""",
        {
            "stored": random_floats(160) / np.float32(4),
            "shape": np.array([10, 16]),
            "b": random_floats(10, seed=1),
        },
    )
    # Models of other tools declare this of everything between their nodes.
    model.graph.value_info.append(
        onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, (10, 16))
    )
    source, target = save(tmp_path, model), tmp_path / "target.onnx"
    given = feeds(1, 16)
    quantize(source, target, form, given, start=inline)
    expected = run(source, given[0])
    assert np.abs(run(target, given[0]) - expected).max() < 0.1 * np.abs(expected).max()


def test_a_model_of_integers_is_not_quantized_again(tmp_path: Path, inline: StartWorker) -> None:
    source, once = save(tmp_path, convolutions()), tmp_path / "once.onnx"
    given = feeds(1, 3, 16, 16)
    quantize(source, once, "static", given, start=inline)
    for form in FORMS:
        with pytest.raises(ModelError, match=f"{form} INT8: nothing is left to quantize, the 3"):
            quantize(once, tmp_path / "twice.onnx", form, given, start=inline)


def test_a_model_without_products_says_so(tmp_path: Path) -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match="the model has no convolution and no matrix product"):
        quantize_saved(tmp_path, model)


def test_a_model_that_the_quantizer_leaves_as_it_is_says_what_it_has(
    tmp_path: Path, inline: StartWorker
) -> None:
    text = """g (float[5,1,4] x) => (float[5,1,1,4] h) { h = GRU<hidden_size = 4>(x, w, r) }"""
    model = parse(text, {"w": random_floats(1, 12, 4), "r": random_floats(1, 12, 4)})
    with pytest.raises(ModelError, match=r"leaves all products of the model in floats: 1 GRU\."):
        quantize_saved(tmp_path, model, start=inline)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_an_exception_of_the_quantizer_is_shown_in_one_line(tmp_path: Path) -> None:
    message = r"^static INT8: ONNX Runtime's quantizer failed: ValueError: No data is collected\.$"
    with pytest.raises(MeasureError, match=message):
        quantize_saved(tmp_path, convolutions(), "static")
    assert not (tmp_path / "target.onnx").exists()


def test_a_model_that_cannot_be_prepared_is_quantized_as_it_is(
    tmp_path: Path, inline: StartWorker
) -> None:
    text = Path(onnxruntime_quantizer.__file__).read_text("utf-8")
    options = {"code": code(text + CANNOT_PREPARE), "start": inline}
    notes = quantize_saved(tmp_path, convolutions(), "static", feeds(1, 3, 16, 16), **options)
    assert notes == (r"not prepared for quantization: RuntimeError: no\x1b shapes",)
    assert read_products(tmp_path / "target.onnx").of_integers == 3
    assert [p.name for p in (tmp_path / "source").iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("form", FORMS)
def test_a_quantizer_that_cannot_be_loaded_is_reported_as_one_that_fails(
    tmp_path: Path, inline: StartWorker, form: QuantizationForm
) -> None:
    unloadable = code("import no_such_runtime")
    with pytest.raises(MeasureError) as failed:
        quantize_saved(tmp_path, convolutions(), form, code=unloadable, start=inline)
    assert str(failed.value) == (
        f"{form} INT8: ONNX Runtime's quantizer failed: ModuleNotFoundError: No module named "
        "'no_such_runtime'."
    )


def test_an_input_that_is_the_same_in_all_inferences_is_sent_once(tmp_path: Path) -> None:
    """Each inference has it; of all others each has its own."""
    sent = []

    class Noting(InlineWorker):
        def ask(self, command: str, *steps: Any, **more: Any) -> object:  # noqa: ANN401  # the worker's interface
            sent.extend([sorted(more["inputs"])] if command == "inputs" else [])
            return super().ask(command, *steps, **more)

    mask = Feed("int64", np.array([7]))
    given = [
        {"x": Feed("float32", np.array([seed], np.float32)), "mask": mask} for seed in range(3)
    ]
    options = {"code": code(TELLING_ITS_INPUTS), "start": lambda *_: nullcontext(Noting(tmp_path))}
    with pytest.raises(MeasureError, match=r"ValueError: x=0, mask=7; x=1, mask=7; x=2, mask=7\.$"):
        quantize_saved(tmp_path, convolutions(), "static", given, **options)
    assert sent == [["mask", "x"], ["x"], ["x"]]


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="this Python cannot see how a child ended")
def test_a_quantizer_that_crashes_is_reported_with_its_last_output_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with pytest.raises(MeasureError) as failed:
        quantize_saved(tmp_path, convolutions(), code=code(CRASHING))
    notes = str(failed.value)
    assert notes.startswith(
        "dynamic INT8: the worker was killed by SIGSEGV (segmentation fault) in ONNX Runtime's "
        "quantizer. Its last output:\nFatal Python error: Segmentation fault\n"
    )
    assert notes.endswith("in quantize_file")
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_a_calibration_without_end_is_ended_after_the_limit(tmp_path: Path) -> None:
    class PatientWorker(ProcessWorker):
        def ask(
            self,
            command: str,
            step: str,
            limit_s: float | None = None,
            meanwhile: Meanwhile | None = None,
            **arguments: object,
        ) -> object:
            # A machine that stops for a while is not what this is about.
            patient_s = 60.0 if command == "inputs" else limit_s
            return super().ask(command, step, patient_s, meanwhile, **arguments)

    model = parse(ENDLESS, {"w": random_floats(4, 4), "trips": np.array(1 << 62)})
    options = {"limit_s": 1.0, "start": process(PatientWorker)}
    with pytest.raises(MeasureError) as failed:
        quantize_saved(tmp_path, model, "static", feeds(4, 4), **options)
    notes = str(failed.value)
    assert notes.startswith("static INT8: no answer for 1 s ")
    assert "quantizer" in notes
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_a_quantizer_that_computes_in_python_is_not_silent(tmp_path: Path) -> None:
    """It goes on until it gave word three times that it does; then it says so.

    On a machine that stops for a while, it may have given word before that.
    """
    heard: list[object] = []

    @dataclass
    class Hearing:
        channel: Any

        def __getattr__(self, name: str) -> object:
            return getattr(self.channel, name)

        def receive(self, limit_s: float) -> object:
            heard.append(self.channel.receive(limit_s))
            return heard[-1]

    class HearingWorker(ProcessWorker):
        @property
        def _channel(self) -> Channel:
            return cast("Channel", Hearing(super()._channel))

    with pytest.raises(MeasureError, match=r"ValueError: said it several times\.$"):
        quantize_saved(tmp_path, convolutions(), code=code(COMPUTING), start=process(HearingWorker))
    assert heard.count(None) >= 3


def test_the_kind_of_a_product_is_recognized_by_its_nodes(tmp_path: Path) -> None:
    model = parse(
        """g (float[2,2] x, float[2,2] v, bool c) => (float[2,2] y) {
            q = QuantizeLinear(x, s)
            d = DequantizeLinear(q, s)
            w = DequantizeLinear(b, s)
            m = MatMul(d, w)
            n = MatMul(m, w)
            y = If(c) <
                then_branch = t () => (float[2,2] e) { e = Einsum<equation = "ij,jk->ik">(n, v) },
                else_branch = f () => (float[2,2] g) { g = Identity(n) }
            >
        }""",
        {"s": np.array(1, np.float32), "b": np.ones((2, 2), np.uint8)},
    )
    found = read_products(save(tmp_path, model))
    assert (found.of_integers, found.of_floats) == (1, {"MatMul": 1, "Einsum": 1})
    assert (found.opset, found.is_large) == (18, False)
