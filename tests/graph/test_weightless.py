"""Models without their weights, and without the names that people gave."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph.binding import evaluate
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.weightless import (
    Weightless,
    leave_weights_out,
    make_anonymous,
    write_weightless,
)
from pytest_modelperf.graph.weights.notes import DeadSlices, Statistics
from pytest_modelperf.graph.weights.numbers import NumberType
from pytest_modelperf.graph.weights.program import PIECE
from pytest_modelperf.graph.weights.run_plan import (
    MODEL_FILE,
    PROGRAM_FILE,
    WEIGHTS_FILE,
    DrawnInput,
    RunModel,
    RunPlan,
    describe_input,
    draw_inputs,
    draw_weights,
    note_for_program,
    write_run,
)
from tests.graph.twin_models import MODELS, convolutions, nested, trained, transformer
from tests.support.graph_models import parse, random_floats
from tests.support.known import known
from tests.support.onnx_text import tensor_of


def _share(folder: Path, model: onnx.ModelProto | Path, *inputs: DrawnInput) -> Weightless:
    """A folder with the model, its weights drawn."""
    source = model if isinstance(model, Path) else model.SerializeToString()
    shared = leave_weights_out(open_model(source))
    write_weightless(shared, folder / MODEL_FILE)
    run = RunModel(
        file=MODEL_FILE, weights_file=WEIGHTS_FILE, weights=shared.weights, inputs=tuple(inputs)
    )
    plan = RunPlan(
        cores=1, providers=("CPUExecutionProvider",), options={}, config={}, models=(run,)
    )
    write_run(plan, folder)
    draw_weights(run, folder)
    return shared


def _redraw(dtype: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An input drawn by its note."""
    note = describe_input("x", dtype, array, 1, {}, "it")
    return draw_inputs(RunModel(file="", weights_file="", weights=(), inputs=(note,)))["x"]


def _plan(model: Path, folder: Path) -> Counter[str]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return Counter(node.op_type for node in optimized.graph.node)


def _weights(model: Path) -> dict[str, npt.NDArray[Any]]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(model).graph.initializer}


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_the_engine_makes_the_same_plan(kind: str, tmp_path: Path) -> None:
    source = MODELS[kind]()
    onnx.save(source, tmp_path / "original.onnx")
    _share(tmp_path, source)
    plan = _plan(tmp_path / "original.onnx", tmp_path)
    assert _plan(tmp_path / MODEL_FILE, tmp_path) == plan


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_no_trained_value_is_in_a_file(kind: str, tmp_path: Path) -> None:
    source = MODELS[kind]()
    _share(tmp_path, source)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for stored in walk_stored(source):
        tensor = stored.tensor
        is_integer = tensor.data_type in {TensorProto.INT64, TensorProto.BOOL}
        if tensor.raw_data and not is_integer and len(set(tensor.raw_data)) > 9:
            data = tensor.raw_data
            pairs = (data[i : i + 8] for i in range(0, min(len(data), 800) - 8, 8))
            assert not any(pair in files for pair in pairs), stored.name


def test_small_weights_are_drawn_too(tmp_path: Path) -> None:
    """Statistics of two numbers would reveal both: so they have two digits."""
    bias = np.array([0.123456, -0.654321], np.float32)
    model = parse(
        "g (float[N, 4] x) => (float[N, 2] y) { y = Gemm (x, w, b) }",
        {"w": trained(4, 2), "b": bias},
    )
    _share(tmp_path, model)
    drawn = _weights(tmp_path / MODEL_FILE)["b"]
    assert not set(map(float, drawn)) & set(map(float, bias))
    assert not (tmp_path / MODEL_FILE).read_bytes().count(bias.tobytes()[:4])


def test_constants_masks_scales_and_sizes_stay(tmp_path: Path) -> None:
    kept = {
        "causal": np.triu(np.full((40, 40), -np.inf, np.float32), 1),
        "ones": np.ones(900, np.float32),
        "half": np.array(0.51234, np.float32),
        "scales": np.array([1, 1, 2.5, 2.5], np.float32),
        "shape": np.array([40, 40]),
    }
    model = parse(
        """g (float[1, 1, 16, 16] x) => (float[1, 1, 40, 40] y) {
            r = Resize (x, , scales)
            m = Add (r, causal)
            h = Mul (m, half)
            a = ReduceSum <keepdims = 0> (ones)
            s = Add (h, a)
            f = Reshape (s, shape)
            y = Add (s, f)
        }""",
        kept,
    )
    _share(tmp_path, model)
    for name, value in _weights(tmp_path / MODEL_FILE).items():
        np.testing.assert_array_equal(value, kept[name])


def test_the_drawn_weights_have_the_statistics_of_the_original_ones(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    uneven = np.where(random.random((300, 400)) < 0.3, 0, trained(300, 400)).astype(np.float32)
    uneven[random.random((300, 400)) < 0.01] = 1e-40
    bits = np.clip(random.normal(3, 30, (400, 500)), -128, 127).astype(np.int8)
    # One of two is zero.
    grouped = trained(500, 64)
    grouped[::2] = 0
    dead = trained(64, 300)
    dead[:, 7:47] = 1e-40
    dead[:8, 9] = 0
    model = parse(
        """g (float[N, 300] x) => (float[N, 300] y) {
            m = MatMul (x, uneven)  c = Cast <to = 1> (bits)
            n = MatMul (m, c)  o = MatMul (n, grouped)  y = MatMul (o, dead)
        }""",
        {"uneven": uneven, "bits": bits, "grouped": grouped, "dead": dead},
    )
    _share(tmp_path, model)
    drawn = _weights(tmp_path / MODEL_FILE)
    tiny = np.finfo(np.float32).tiny
    for name, old in (("uneven", uneven), ("bits", bits), ("grouped", grouped), ("dead", dead)):
        new = drawn[name]
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        assert (new == 0).sum() == (old == 0).sum()
        assert new.std() == pytest.approx(old.std(), rel=0.05)
        is_small = [abs(each.astype(float)) < tiny for each in (old, new)]
        assert is_small[0].sum() == is_small[1].sum()
        assert is_small[0].all(axis=0).sum() == is_small[1].all(axis=0).sum()


def test_a_type_that_numpy_lacks_has_the_share_of_its_dead_channels() -> None:
    note = Statistics(0, 1, -4, 4, subnormals=300, dead=DeadSlices(0, 15, 0))
    number = NumberType("bfloat16")
    codes = known(note_for_program(note, number, (30, 20), 1).codes)
    numbers = number.decode(np.array(codes, np.uint16))
    assert np.count_nonzero(abs(numbers) < number.smallest_normal) == len(codes) // 2


def test_equal_weights_are_drawn_equal_and_others_are_not(tmp_path: Path) -> None:
    shared = trained(64, 64)
    model = parse(
        """g (float[N, 64] x) => (float[N, 64] y) {
            a = MatMul (x, u)  b = MatMul (a, v)  y = MatMul (b, w)
        }""",
        {"u": shared, "v": shared, "w": trained(64, 64, seed=1)},
    )
    _share(tmp_path, model)
    drawn = _weights(tmp_path / MODEL_FILE)
    np.testing.assert_array_equal(drawn["u"], drawn["v"])
    assert (drawn["u"] != drawn["w"]).any()


def test_a_weight_longer_than_a_piece_is_drawn_to_its_end(tmp_path: Path) -> None:
    elements = PIECE + 3
    model = parse(
        f"g (float[{elements}] x) => (float[{elements}] y) {{ y = Mul (x, w) }}",
        {"w": trained(elements)},
    )
    shared = _share(tmp_path, model)
    assert (tmp_path / WEIGHTS_FILE).stat().st_size == 4 * elements == shared.weight_bytes
    assert _weights(tmp_path / MODEL_FILE)["w"][-3:].all()


def test_the_program_draws_the_same_weights_without_this_package(tmp_path: Path) -> None:
    """Isolated, and from another folder: it imports numpy and onnxruntime alone."""
    ids = describe_input("c", "bool", np.ones((), np.bool_), 1, {}, "it")
    x = describe_input("x", "float32", random_floats(2, 40), 2, {}, "it")
    _share(tmp_path, nested(), ids, x)
    drawn = (tmp_path / WEIGHTS_FILE).read_bytes()
    (tmp_path / WEIGHTS_FILE).unlink()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in (MODEL_FILE, PROGRAM_FILE, "run.json"):
        shutil.copy(tmp_path / name, moved)
    program = str(moved / PROGRAM_FILE)
    code = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(['onnx', 'pytest_modelperf']));"
        f"sys.argv[1:] = ['0.01']; runpy.run_path({program!r}, run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert ran.returncode == 0, ran.stderr
    assert (moved / WEIGHTS_FILE).read_bytes() == drawn
    versions, line = ran.stdout.splitlines()
    assert f"onnxruntime {ort.__version__}, numpy {np.__version__}" in versions
    assert line.startswith(f"{MODEL_FILE}: median ")
    assert not list(moved.glob("*.part"))


def test_texts_are_replaced_equal_ones_alike(tmp_path: Path) -> None:
    model = parse("g (string[N] x) => (int64[N] y) { y = ai.onnx.ml.LabelEncoder (x) }")
    model.opset_import.add(domain="ai.onnx.ml", version=2)
    (node,) = model.graph.node
    node.attribute.extend(
        [
            helper.make_attribute("keys_strings", ["secret", "confidential"]),
            helper.make_attribute("values_int64s", [1, 2]),
        ]
    )
    shared = _share(tmp_path, model)
    words = np.array(["confidential", "unknown"], object)
    (given,) = draw_inputs(
        RunModel(
            file="",
            weights_file="",
            weights=(),
            inputs=(describe_input("x", "string", words, 1, shared.texts, "it"),),
        )
    ).values()
    session = ort.InferenceSession(str(tmp_path / MODEL_FILE))
    assert list(session.run(None, {"x": given})[0]) == [2, -1]
    assert b"secret" not in (tmp_path / MODEL_FILE).read_bytes()


def test_labels_and_patterns_of_all_operators_are_replaced(tmp_path: Path) -> None:
    model = parse(
        """g (string[N] x) => (int64[N] y, bool[N] z) {
            y = ai.onnx.ml.LabelEncoder <classes_strings = ["secret", "other"]> (x)
            z = RegexFullMatch <pattern = "secret.*"> (x)
        }"""
    )
    model.opset_import[0].version = 20
    model.opset_import.add(domain="ai.onnx.ml", version=1)
    shared = _share(tmp_path, model)
    assert b"secret" not in (tmp_path / MODEL_FILE).read_bytes()
    label = np.array([shared.texts["secret"]], object)
    session = ort.InferenceSession(str(tmp_path / MODEL_FILE))
    assert [list(each) for each in session.run(None, {"x": label})] == [[0], [False]]


def test_the_numbers_of_trees_are_drawn_with_a_note() -> None:
    node = helper.make_node(
        "LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=[0.125, 0.375, 0.75]
    )
    trees = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["z"], domain="ai.onnx.ml", nodes_values=[0.625, 0.875]
    )
    model = parse("g (float[N, 3] x) => (float[N, 1] y) { y = Identity (x) }")
    del model.graph.node[:]
    model.graph.node.extend([node, trees])
    shared = leave_weights_out(open_model(model))
    linear, tree = (node.attribute[0].floats for node in shared.proto.graph.node)
    assert len(linear) == 3
    assert not {*linear, *tree} & {0.125, 0.375, 0.75, 0.625, 0.875}
    assert any("trees" in doubt for doubt in shared.doubts)


def test_constants_of_graphs_are_outside_of_the_model(tmp_path: Path) -> None:
    shared = _share(tmp_path, nested())
    assert [n.op_type for n in shared.proto.graph.node if n.op_type == "Constant"] == []
    assert len((tmp_path / MODEL_FILE).read_bytes()) < len(nested().SerializeToString())


def test_a_changed_model_in_memory_keeps_the_weights_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "original.onnx"
    onnx.save(transformer(), path)
    file = open_model(path)
    changed = onnx.ModelProto()
    changed.CopyFrom(file.proto)
    changed.graph.node[-1].op_type = "Sub"
    shared = leave_weights_out(replace(file, proto=changed))
    assert shared.proto.graph.node[-1].op_type == "Sub"
    assert shared.weights == leave_weights_out(file).weights


def test_weights_in_external_data_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "original.onnx"
    onnx.save(convolutions(), path, save_as_external_data=True, location="own.data")
    folder = tmp_path / "shared"
    folder.mkdir()
    shared = _share(folder, path)
    assert b"own.data" not in (folder / MODEL_FILE).read_bytes()
    assert shared.weights == leave_weights_out(open_model(convolutions())).weights


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("int64", np.arange(5)),
        ("float32", np.array(0.3, np.float32)),
        ("float32", np.ones((3, 4), np.float32)),
        ("bool", np.array([True, False])),
        ("int32", np.array([[7, -1]], np.int32)),
    ],
)
def test_small_integers_single_numbers_and_constants_of_inputs_are_exact(
    dtype: str, array: npt.NDArray[Any]
) -> None:
    drawn = _redraw(dtype, array)
    np.testing.assert_array_equal(drawn, array)
    assert drawn.dtype == array.dtype


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_drawn_inputs_begin_where_the_tensors_of_engines_begin(dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, (3, 211)).astype(dtype)
    drawn = [_redraw(dtype, array) for _ in range(5)]
    assert [each.__array_interface__["data"][0] % 64 for each in drawn] == [0] * 5


def test_ids_are_drawn_within_their_range() -> None:
    ids = np.random.default_rng(0).integers(5, 900, (4, 700))
    drawn = _redraw("int64", ids)
    assert (drawn.min(), drawn.max()) >= (ids.min(), 0)
    assert drawn.max() <= ids.max()
    assert (drawn.shape, drawn.dtype) == (ids.shape, ids.dtype)
    assert len(np.unique(drawn)) > 300


def test_a_rare_value_counts_as_often_as_it_comes() -> None:
    array = np.full(400, 2.0, np.float32)
    array[-4:] = 5.0
    note = describe_input("x", "float32", array, 1, {}, "it")
    assert known(note.numbers).std == pytest.approx(array.std(), rel=0.1)


def test_an_empty_input_is_drawn_empty() -> None:
    assert _redraw("float32", np.zeros((1, 0, 8), np.float32)).shape == (1, 0, 8)


def test_an_input_of_a_type_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(ModelError, match="'x' of it is bfloat16, which numpy lacks"):
        describe_input("x", "bfloat16", np.zeros(3, np.uint16), 1, {}, "it")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    shared = leave_weights_out(open_model(convolutions()))
    with pytest.raises(OutputError, match=r"cannot write .*missing"):
        write_weightless(shared, tmp_path / "missing" / MODEL_FILE)


def test_every_note_is_one_readable_line(tmp_path: Path) -> None:
    shared = _share(tmp_path, convolutions())
    text = (tmp_path / "run.json").read_text()
    assert json.loads(text)["models"][0]["weights"][0]["type"] == "float32"
    assert len([line for line in text.splitlines() if '"stream"' in line]) == len(shared.weights)


def test_a_name_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    name = "x\u2028\x85x"
    _share(tmp_path, convolutions(), describe_input(name, "float32", np.ones(2), 1, {}, "it"))
    plan = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in plan["models"][0]["inputs"]] == [name]


def test_numbers_of_few_bits_are_drawn_with_their_packing(tmp_path: Path) -> None:
    import ml_dtypes

    values = np.random.default_rng(0).integers(-8, 8, (65, 33)).astype(ml_dtypes.int4)
    model = parse(
        """g (float[N, 65] x) => (float[N, 33] y) {
            w = DequantizeLinear (q, s)  y = MatMul (x, w)
        }""",
        {"s": np.array(0.1, np.float32)},
        opset=21,
    )
    model.ir_version = 10
    model.graph.initializer.append(tensor_of(values, "q"))
    _share(tmp_path, model)
    assert (tmp_path / WEIGHTS_FILE).stat().st_size == -(-65 * 33 // 2)
    ort.InferenceSession(str(tmp_path / MODEL_FILE))


_TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_}


def _outputs(model: ModelProto) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.RandomState(0)
    feeds = {}
    for info in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 2 for dim in info.shape]
        dtype = _TYPES[info.type.removeprefix("tensor(").removesuffix(")")]
        feeds[info.name] = (
            random.standard_normal(shape).astype(dtype) if shape else np.array(1, bool)
        )
    outputs: list[Any] = session.run(None, feeds)
    return outputs


def _texts(message: Message) -> Iterator[str]:
    """Every text of a message that a user may have chosen."""
    skipped = {"op_type", "domain"} if isinstance(message, NodeProto) else set()
    is_attribute = isinstance(message, onnx.AttributeProto)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _texts(inner)
        elif field.name not in skipped and not (is_attribute and field.name == "name"):
            for text in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(text, str):
                    yield text


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_an_anonymous_model_computes_the_same(kind: str) -> None:
    model = MODELS[kind]()
    renamed = make_anonymous(model)
    for old, new in zip(_outputs(model), _outputs(renamed.proto), strict=True):
        np.testing.assert_array_equal(old, new)
    assert list(renamed.values) >= [info.name for info in model.graph.input]


def _named_everywhere() -> ModelProto:
    """A model with a name of its own in each place that can have one."""
    model = parse(
        """secret_graph (float[secret_batch, 4] secret_in) => (float[secret_batch, 4] secret_out)
        <float[secret_batch, 4] secret_mid> {
            secret_mid = MatMul (secret_in, secret_weight)
            secret_out = secret.domain.secret_function <secret_alpha = 2.0> (secret_mid)
        }""",
        {"secret_weight": trained(4, 4)},
    )
    model.doc_string = model.graph.doc_string = "secret text"
    model.producer_name, model.domain = "secret tool", "secret.org"
    model.metadata_props.add(key="secret_key", value="secret value")
    model.graph.input[0].type.denotation = "secret_denotation"
    model.graph.input[0].type.tensor_type.shape.dim[1].denotation = "secret_axis"
    annotation = model.graph.quantization_annotation.add(tensor_name="secret_mid")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="secret_weight")
    for node in model.graph.node:
        node.name, node.doc_string = f"secret/{node.op_type}", "secret text"
    factor = helper.make_node("Constant", [], ["secret_f"])
    factor.attribute.add(
        name="value_float", ref_attr_name="secret_alpha", type=onnx.AttributeProto.FLOAT
    )
    inner = helper.make_node("Mul", ["secret_a", "secret_f"], ["secret_r"], name="secret_node")
    function = helper.make_function(
        "secret.domain",
        "secret_function",
        ["secret_a"],
        ["secret_r"],
        [factor, inner],
        [helper.make_opsetid("", 17)],
        ["secret_alpha"],
    )
    function.doc_string = "secret text"
    model.functions.append(function)
    model.opset_import.add(domain="secret.domain", version=1)
    model.opset_import.add(domain="secret.unused", version=1)
    return model


def test_no_name_is_left_in_any_place() -> None:
    model = _named_everywhere()
    before = model.SerializeToString()
    assert sum("secret" in text for text in _texts(model)) > 15
    renamed = make_anonymous(model)
    assert model.SerializeToString() == before
    assert b"secret" not in renamed.proto.SerializeToString()
    assert [text for text in _texts(renamed.proto) if "secret" in text] == []
    np.testing.assert_array_equal(_outputs(model)[0], _outputs(renamed.proto)[0])
    assert [renamed.values[name] for name in ("secret_in", "secret_out")] == ["x0", "y0"]
    assert renamed.dims == {"secret_batch": "d0"}


def _with_dims(*dims: str) -> ModelProto:
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        shape.dim.add(dim_param=dim)
    return model


def _dims(model: ModelProto) -> list[str]:
    return [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]


@given(
    st.lists(st.sampled_from(["past", "seq", "width_0"]), min_size=1, max_size=3),
    st.lists(st.integers(1, 90), min_size=3, max_size=3),
)
def test_an_expression_of_dimensions_keeps_its_value(names: list[str], sizes: list[int]) -> None:
    text = " + ".join(f"2*{name}" for name in names)
    renamed = make_anonymous(_with_dims("past", "seq", "width_0", text))
    old = dict(zip(["past", "seq", "width_0"], sizes, strict=True))
    new = {renamed.dims[name]: size for name, size in old.items()}
    assert evaluate(_dims(renamed.proto)[3], new) == evaluate(text, old)


@pytest.mark.parametrize("dim", ["unk__12", "Relu_x.1", "secret name", "größe", "2"])
def test_a_name_that_is_not_an_expression_is_renamed_as_a_whole(dim: str) -> None:
    renamed = make_anonymous(_with_dims(dim))
    assert _dims(renamed.proto) == ["d0"]
    assert renamed.dims[dim] == "d0"


def test_equal_names_stay_equal_and_others_stay_others() -> None:
    renamed = make_anonymous(_with_dims("a", "b", "a"))
    first, second, third = _dims(renamed.proto)
    assert first == third != second


@pytest.mark.parametrize("field", ["domain", "overload"])
def test_functions_of_one_name_stay_two(field: str) -> None:
    model = _named_everywhere()
    other = FunctionProto()
    other.CopyFrom(model.functions[0])
    setattr(other, field, "another.secret")
    other.node[1].op_type = "Add"
    model.functions.append(other)
    model.opset_import.add(domain="another.secret", version=1)
    setattr(model.graph.node[1], field, "another.secret")
    renamed = make_anonymous(model).proto
    assert b"secret" not in renamed.SerializeToString()
    first, second = renamed.functions
    assert (first.domain, first.name) != (second.domain, second.name)
    if field == "domain":
        np.testing.assert_array_equal(_outputs(model)[0], _outputs(renamed)[0])
    else:
        assert first.name != second.name
        assert renamed.graph.node[1].op_type == second.name
