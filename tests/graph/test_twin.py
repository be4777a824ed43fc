"""A twin has the graph of its model and none of its weights, and is refused if it is not one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.twin import (
    GROUP_KEY,
    LOCATION,
    TWIN_KEY,
    Twin,
    left_out,
    make_twin,
    read_twin,
    twin_bytes,
    write_twin_bytes,
)
from pytest_modelperf.graph.weights.notes import Indices, RunLengths, Statistics, format_note
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from tests.graph.twin_models import MODELS, convolutions, nested, quantized, trained, transformer
from tests.support.graph_models import parse, random_floats, save_model
from tests.support.light_models import LIGHT_MODELS, light_model


def _written(folder: Path, source: Path) -> Path:
    path = folder / "twin.onnx"
    write_twin_bytes(twin_bytes(make_twin(open_model(source))), path)
    return path


def _static(path: Path) -> StaticProfile:
    return profile_model(str(path), ProfileRequest()).cases[0].static


def _notes(model: onnx.ModelProto) -> dict[str, object]:
    return {weight.key: weight.note for weight in left_out(make_twin(open_model(model)))}


@pytest.mark.parametrize("name", sorted(LIGHT_MODELS))
def test_the_static_profile_of_a_light_models_twin_is_its_own(name: str, tmp_path: Path) -> None:
    twin = _written(tmp_path, light_model(name))
    profile = _static(twin)
    assert profile == _static(light_model(name))
    assert (profile.macs, profile.params) == LIGHT_MODELS[name]


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_a_twin_is_small_with_the_profile_of_its_model_and_the_same_bytes_each_time(
    kind: str, tmp_path: Path
) -> None:
    source = save_model(tmp_path, MODELS[kind]())
    data, written = twin_bytes(make_twin(open_model(source))), _written(tmp_path, source)
    assert data == twin_bytes(make_twin(open_model(source))) == twin_bytes(read_twin(written))
    assert len(data) < 8_000
    profile = _static(written)
    assert profile == _static(source)
    assert profile.params


def test_text_is_left_out_and_names_stay(tmp_path: Path) -> None:
    model = nested()
    text = "secret stack trace"
    model.doc_string = model.producer_name = model.graph.doc_string = text
    model.metadata_props.add(key="author", value=text)
    model.functions[0].doc_string = text
    for node in (*model.graph.node, *model.functions[0].node):
        node.name = f"node of {node.output[0]}"
        node.doc_string = text
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=text)
        for attribute in node.attribute:
            attribute.doc_string = text
    for info in (*model.graph.input, *model.graph.output):
        info.doc_string = text
    model.graph.initializer[0].doc_string = text
    twin = read_twin(_written(tmp_path, save_model(tmp_path, model)))

    assert text.encode() not in twin_bytes(twin)
    for plain, kept in zip(model.graph.node, twin.proto.graph.node, strict=True):
        assert (plain.name, plain.op_type) == (kept.name, kept.op_type)
        assert (plain.input, plain.output) == (kept.input, kept.output)
    assert twin.proto.opset_import == model.opset_import
    assert twin.proto.functions[0].name == "scaled"
    assert [p.key for p in twin.proto.metadata_props] == [TWIN_KEY]


def test_weights_are_left_out(tmp_path: Path) -> None:
    """In the graph, in a body, in Constant nodes of a function; a shared one once."""
    assert set(_notes(nested())) == {"w", "inner", "f", "l"}
    assert {type(note) for note in _notes(MODELS["sparse"]()).values()} == {Statistics, Indices}
    assert tmp_path.is_dir()


def test_values_that_control_an_engine_stay_exact() -> None:
    for model in (transformer(), convolutions(), quantized()):
        twin = make_twin(open_model(model))
        gone = {weight.key for weight in left_out(twin)}
        originals = {s.name: s.tensor for s in walk_stored(model)}
        for stored in walk_stored(twin.proto):
            if stored.name not in gone:
                assert stored.tensor == originals[stored.name]
        assert not gone & {"two", "eps", "positions", "axis", "root2", "zero", "six", "s", "z"}
    # A mask is described exactly, a bias of 32 bits by its range.
    assert isinstance(_notes(transformer())["causal"], RunLengths)
    assert isinstance(_notes(quantized())["b"], Statistics)


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        ("g (int64[{0}] x) => (int64[{0}] y) {{ y = Add (x, i) }}", 8192),
        ("g (float[9] x) => (float[{0}] y) {{ y = Gather (x, i) }}", 32 * 1024),
    ],
    ids=["64 KiB", "256 KiB of what decides the time"],
)
def test_integers_stay_up_to_a_size(graph: str, most: int) -> None:
    for count, expected in ((most, set()), (most + 1, {"i"})):
        values = np.random.RandomState(0).randint(0, 9, count)
        assert set(_notes(parse(graph.format(count), {"i": values}))) == expected


def test_text_and_the_tensors_of_other_operators_stay(tmp_path: Path) -> None:
    words = np.array([f"word {i}" for i in range(500)], object)
    model = parse("g (int64[N] x) => (string[N] y) { y = Gather (w, x) }", {"w": words})
    model.graph.node.append(
        helper.make_node(
            "Tree",
            ["x"],
            ["z"],
            domain="custom",
            splits=numpy_helper.from_array(random_floats(900)),
        )
    )
    twin = read_twin(_written(tmp_path, save_model(tmp_path, model)))
    assert numpy_helper.to_array(twin.proto.graph.initializer[0]).tolist() == words.tolist()
    assert twin.proto.graph.node[1] == model.graph.node[1]


def test_small_external_data_comes_into_the_twin_and_large_is_described(tmp_path: Path) -> None:
    model = convolutions()
    scales = numpy_helper.to_array(model.graph.initializer[1])
    plain = make_twin(open_model(model))
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "away").mkdir()
    twin = read_twin(_written(tmp_path / "away", path))
    assert {w.key: w.note for w in left_out(twin)} == {w.key: w.note for w in left_out(plain)}
    kept = {s.name: s.tensor for s in walk_stored(twin.proto)}
    np.testing.assert_array_equal(numpy_helper.to_array(kept["s"]), scales)


def test_external_data_of_another_size_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(convolutions(), str(path), save_as_external_data=True, size_threshold=0)
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = "100"
    with pytest.raises(ModelError, match="do not belong together"):
        make_twin(open_model(save_model(tmp_path, model)))


def test_packed_and_unpacked_typed_fields_are_described_alike() -> None:
    values = trained(40, 50)
    model = "g (float[N, 40] x) => (float[N, 50] y) { y = MatMul (x, w) }"
    raw, packed, unpacked = (parse(model) for _ in range(3))
    raw.graph.initializer.append(numpy_helper.from_array(values, "w"))
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [40, 50], values.reshape(-1).tolist())
    packed.graph.initializer.append(tensor)
    fields = b"".join(b"\x25" + value.tobytes() for value in values.reshape(-1))
    tensor.ClearField("float_data")
    single = tensor.SerializeToString() + fields
    # Parsing makes it packed again, so it is put into the bytes of the model.
    marker = TensorProto(name="marker")
    unpacked.graph.initializer.append(marker)
    graph = unpacked.graph.SerializeToString().replace(
        b"\x2a" + _varint(marker.ByteSize()) + marker.SerializeToString(),
        b"\x2a" + _varint(len(single)) + single,
    )
    unpacked.ClearField("graph")
    data = unpacked.SerializeToString() + b"\x3a" + _varint(len(graph)) + graph

    notes = [next(left_out(make_twin(open_model(m)))).note for m in (raw, packed, data)]
    assert notes[0] == notes[1] == notes[2]


def _varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _groups(model: onnx.ModelProto) -> dict[str, str]:
    return {weight.key: weight.group for weight in left_out(make_twin(open_model(model)))}


def test_equal_weights_are_one_group_in_bodies_and_constants_too() -> None:
    # `w` is in the graph, `inner` in a body, `f` and `l` are Constant nodes of a function.
    model = nested()
    assert _groups(model) == {"w": "w", "inner": "inner", "f": "w", "l": "l"}
    inner = next(s.tensor for s in walk_stored(model) if s.name == "inner")
    inner.raw_data = numpy_helper.from_array(trained(40, 40)).raw_data
    assert _groups(model) == {"w": "w", "inner": "w", "f": "w", "l": "l"}


def test_only_a_weight_that_has_an_equal_one_has_more_than_its_note() -> None:
    model = nested()
    found = {w.key: w for w in left_out(make_twin(open_model(model)))}
    for key, group in (("w", "1"), ("f", "1"), ("inner", None), ("l", None)):
        weight = found[key]
        expected = TensorProto(
            dims=weight.dims, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        if key in ("w", "inner"):
            expected.name = key
        expected.external_data.add(key="location", value=LOCATION)
        expected.metadata_props.add(key=TWIN_KEY, value=format_note(weight.note))
        if group:
            expected.metadata_props.add(key=GROUP_KEY, value=group)
        assert weight.tensor == expected


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {"nested", "quantized"}))
def test_the_twin_of_a_model_without_equal_weights_names_no_group(kind: str) -> None:
    twin = make_twin(open_model(MODELS[kind]()))
    assert GROUP_KEY.encode() not in twin_bytes(twin)
    assert all(weight.group == weight.key for weight in left_out(twin))


def test_an_older_twin_that_knows_no_groups_is_read(tmp_path: Path) -> None:
    twin = make_twin(open_model(nested()))
    for stored in walk_stored(twin.proto):
        for entry in [e for e in stored.tensor.metadata_props if e.key == GROUP_KEY]:
            stored.tensor.metadata_props.remove(entry)
    read = read_twin(save_model(tmp_path, twin.proto))
    assert {w.key: w.group for w in left_out(read)} == {k: k for k in ("w", "inner", "f", "l")}


def test_no_engine_runs_a_twin_by_mistake_and_it_has_no_twin(tmp_path: Path) -> None:
    twin = _written(tmp_path, save_model(tmp_path, convolutions()))
    with pytest.raises(Exception, match=LOCATION):
        ort.InferenceSession(str(twin), providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match=LOCATION):
        onnx.load(str(twin))
    with pytest.raises(ModelError, match="is a twin itself"):
        make_twin(open_model(twin))


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*twin\.onnx"):
        write_twin_bytes(
            twin_bytes(make_twin(open_model(nested()))), tmp_path / "nowhere" / "twin.onnx"
        )


def _changed(change: Callable[[onnx.ModelProto], None], folder: Path) -> Path:
    twin = make_twin(open_model(convolutions()))
    change(twin.proto)
    return save_model(folder, twin.proto, "twin.onnx")


def _weight(model: onnx.ModelProto) -> TensorProto:
    return next(t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL)


def _set_note(model: onnx.ModelProto, **values: object) -> None:
    entry = next(e for e in _weight(model).metadata_props if e.key == TWIN_KEY)
    entry.value = json.dumps(json.loads(entry.value) | values)


def _set_dims(model: onnx.ModelProto, *dims: int) -> None:
    tensor = _weight(model)
    del tensor.dims[:]
    tensor.dims.extend(dims)


def _drop_note(model: onnx.ModelProto) -> None:
    _weight(model).ClearField("metadata_props")


def _claim_much_in_all(model: onnx.ModelProto) -> None:
    for _ in range(200):
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(_weight(model))
        tensor.name += str(len(model.graph.initializer))
        del tensor.dims[:]
        tensor.dims.extend([1 << 28])


def _put_in_groups(model: onnx.ModelProto, groups: dict[str, str]) -> None:
    for tensor in model.graph.initializer:
        if tensor.name in groups:
            tensor.metadata_props.add(key=GROUP_KEY, value=groups[tensor.name])


def _in_two_groups(model: onnx.ModelProto) -> None:
    for number in "12":
        _put_in_groups(model, {"w1": number})


def _equal_of_two_types(model: onnx.ModelProto) -> None:
    _put_in_groups(model, {"b2": "1", "o2": "1"})
    next(t for t in model.graph.initializer if t.name == "o2").data_type = TensorProto.DOUBLE


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda m: m.ClearField("metadata_props"), "is not a twin"),
        (lambda m: setattr(m.metadata_props[0], "value", '{"schema": 2}'), "schema 2.*Update"),
        (lambda m: setattr(m.metadata_props[0], "value", '{"schema": "1"}'), "not a valid twin"),
        (lambda m: setattr(m.metadata_props[0], "value", "[" * 5000), "not a valid twin"),
        (_drop_note, "'w1' of .* has neither data nor statistics"),
        (lambda m: setattr(_weight(m).metadata_props[0], "value", "x"), "not valid in a twin"),
        (lambda m: _set_note(m, std=-1.0), "deviation is -1"),
        (lambda m: _set_note(m, zeros=10**9), "1,000,000,000 zeros"),
        (lambda m: _set_note(m, max=float("nan")), "malformed"),
        (lambda m: _set_dims(m, -1, 3), "negative dimension"),
        (lambda m: _set_dims(m, 1 << 40, 1 << 40), "claims the shape"),
        (lambda m: _set_dims(m, *[2] * 65), "65 dimensions"),
        (_claim_much_in_all, r"claim 200.* GiB"),
        (lambda m: setattr(_weight(m), "data_type", TensorProto.STRING), "cannot be drawn"),
        (lambda m: setattr(_weight(m), "data_type", 99), "does not know|cannot be drawn"),
        (_equal_of_two_types, "'o2' of .* in one group with 'b2', which has another type"),
        (lambda m: _put_in_groups(m, {"w1": "1", "w2": "1"}), "with 'w1', which has another shape"),
        (lambda m: _put_in_groups(m, {"b2": "7", "v2": "7"}), "with 'b2', which has another note"),
        (lambda m: _put_in_groups(m, {"w1": "first"}), r"its group is \['first'\], not one num"),
        (_in_two_groups, r"\['1', '2'\], not one number"),
    ],
)
def test_a_twin_that_cannot_be_one_is_refused_with_its_path(
    change: Callable[[onnx.ModelProto], None], wrong: str, tmp_path: Path
) -> None:
    path = _changed(change, tmp_path)
    with pytest.raises(ModelError, match=wrong) as caught:
        read_twin(path)
    assert str(path) in str(caught.value)


def test_a_twin_cannot_read_files_of_its_reader(tmp_path: Path) -> None:
    """Its weights are drawn or they are in it; none of them is in another file."""

    def point_elsewhere(model: onnx.ModelProto) -> None:
        _drop_note(model)
        _weight(model).external_data[0].value = "secret.bin"

    (tmp_path / "secret.bin").write_bytes(bytes(4 * 864))
    with pytest.raises(ModelError, match="neither data nor statistics"):
        read_twin(_changed(point_elsewhere, tmp_path))


def test_a_file_that_is_not_a_model_gets_the_usual_error(tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(twin_bytes(make_twin(open_model(convolutions())))[:-40])
    for name, wrong in (("cut.onnx", "not a complete|not an ONNX"), ("none.onnx", "no file")):
        with pytest.raises(ModelError, match=wrong):
            read_twin(tmp_path / name)


def test_a_file_too_large_for_a_twin_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "twin.onnx"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(ModelError, match="Was the model itself put in its place"):
        read_twin(path)


def test_sparse_indices_outside_of_their_weight_are_refused(tmp_path: Path) -> None:
    twin = make_twin(open_model(MODELS["sparse"]()))
    twin.proto.graph.sparse_initializer[0].dims[0] = 2
    with pytest.raises(ModelError, match="do not fit the shape"):
        read_twin(save_model(tmp_path, twin.proto))
    assert isinstance(twin, Twin)


@pytest.mark.parametrize("kind", ["nested", "sparse", "quantized", "transformer"])
def test_a_damaged_twin_is_rebuilt_or_refused_and_nothing_else(kind: str, tmp_path: Path) -> None:
    whole = twin_bytes(make_twin(open_model(MODELS[kind]())))
    path, became = tmp_path / "twin.onnx", set()
    for seed in range(150):
        generator = random.Random(seed)
        data = bytearray(whole)
        for _ in range(generator.choice((1, 1, 3))):
            start = generator.randrange(len(data))
            if generator.random() < 0.7:
                data[start] = generator.randrange(256)
            else:
                del data[start : start + generator.randrange(1, 9)]
        path.write_bytes(data)
        try:
            rebuild(read_twin(path), tmp_path / "rebuilt.onnx", max_bytes=1 << 24)
            became.add("rebuilt")
        except ModelError:
            became.add("refused")
    assert became == {"rebuilt", "refused"}
