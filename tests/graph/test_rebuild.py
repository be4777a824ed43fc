"""A rebuilt model runs as the one that its twin was made of: the same plan, the same shapes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pytest_modelperf.errors import ModelError, OutputError
from pytest_modelperf.graph.model_bytes import WEIGHT_KEY
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import REBUILT_KEY, rebuild
from pytest_modelperf.graph.stored_tensors import walk_stored
from pytest_modelperf.graph.twin import (
    TWIN_KEY,
    Twin,
    left_out,
    make_twin,
    read_twin,
    twin_bytes,
    write_twin_bytes,
)
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from tests.graph.twin_models import MODELS, convolutions, nested, quantized, trained, transformer
from tests.support.full_disk import room_for
from tests.support.graph_models import parse, random_floats, save_model
from tests.support.light_models import light_model

_SIZES = {"float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_}


def _rebuilt(folder: Path, source: Path, seed: int = 0, **options: int) -> Path:
    write_twin_bytes(twin_bytes(make_twin(open_model(source))), folder / "twin.onnx")
    return rebuild(read_twin(folder / "twin.onnx"), folder / "rebuilt.onnx", seed, **options)


class _Run:
    """A model run once: its outputs, and the operators of the plan that ONNX Runtime made."""

    def __init__(self, path: Path, folder: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        optimized = folder / "optimized.onnx"
        options.optimized_model_filepath = str(optimized)
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.plan = Counter(_operators(onnx.load(str(optimized)).graph))
        random = np.random.RandomState(0)
        self.outputs: list[npt.NDArray[Any]] = session.run(
            None,
            {
                info.name: random.randn(
                    *(dim if isinstance(dim, int) else 2 for dim in info.shape)
                ).astype(_SIZES[info.type.removeprefix("tensor(").removesuffix(")")])
                if info.shape
                else np.array(1, np.bool_)
                for info in session.get_inputs()
            },
        )


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield f"{node.domain}::{node.op_type}"
        for attribute in node.attribute:
            yield from _operators(attribute.g)


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_a_rebuilt_model_has_the_plan_the_shapes_and_the_types(kind: str, tmp_path: Path) -> None:
    source = save_model(tmp_path, MODELS[kind]())
    rebuilt = _rebuilt(tmp_path, source)
    before, after = _Run(source, tmp_path), _Run(rebuilt, tmp_path)

    assert after.plan == before.plan
    for old, new in zip(before.outputs, after.outputs, strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        assert np.isfinite(new).all()
        assert new.std() == pytest.approx(old.std(), rel=0.9)
    assert profile_model(str(rebuilt), ProfileRequest()).cases[0].static == (
        profile_model(str(source), ProfileRequest()).cases[0].static
    )
    onnx.checker.check_model(onnx.load(str(rebuilt)))


def test_the_plans_that_depend_on_constants_are_kept(tmp_path: Path) -> None:
    """The fusions are there at all: without them the test above would hold of nothing."""
    plan = _Run(_rebuilt(tmp_path, save_model(tmp_path, transformer())), tmp_path).plan
    assert plan["::LayerNormalization"] == 1
    assert {"com.microsoft::BiasGelu", "com.microsoft::Gelu"} & set(plan)
    assert "::Erf" not in plan
    plan = _Run(_rebuilt(tmp_path, save_model(tmp_path, quantized())), tmp_path).plan
    assert plan["::QLinearConv"] + plan["com.microsoft::QLinearConv"] == 1


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_light_model_is_rebuilt_as_it_is(name: str, tmp_path: Path) -> None:
    rebuilt = onnx.load(str(_rebuilt(tmp_path, light_model(name))))
    source = onnx.load(str(light_model(name)))
    assert [n.op_type for n in rebuilt.graph.node] == [n.op_type for n in source.graph.node]
    assert list(rebuilt.graph.initializer) == list(source.graph.initializer)


def test_the_same_seed_gives_the_same_model_and_another_gives_another(tmp_path: Path) -> None:
    source = save_model(tmp_path, nested())
    first, again, other = (_rebuilt(tmp_path, source, seed).read_bytes() for seed in (3, 3, 4))
    assert first == again != other
    assert len(first) == len(other)
    model = onnx.load_model_from_string(first)
    assert {entry.key for entry in model.metadata_props} == {REBUILT_KEY}
    assert TWIN_KEY not in str(model)


def test_the_drawn_weights_have_what_the_twin_kept_of_them(tmp_path: Path) -> None:
    source = convolutions()
    rebuilt = onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, source))))
    for old, new in zip(source.graph.initializer, rebuilt.graph.initializer, strict=True):
        before, after = numpy_helper.to_array(old), numpy_helper.to_array(new)
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        assert np.count_nonzero(before) == np.count_nonzero(after)
        # A quarter of the deviation: the smallest of them has 512 elements.
        assert after.mean() == pytest.approx(before.mean(), abs=0.25 * float(before.std()))
        # The variances are skewed: what is drawn of them deviates less.
        assert after.std() <= 1.3 * before.std()
        if new.name != "v2":
            assert after.std() >= 0.7 * before.std()
        assert before.min() - 1e-4 <= after.min()
        assert after.max() <= before.max() + 1e-4
    variance = next(t for t in rebuilt.graph.initializer if t.name == "v2")
    assert numpy_helper.to_array(variance).min() > 0


def test_activations_stay_in_a_normal_range_through_fifty_layers(tmp_path: Path) -> None:
    """Residual blocks of normalized convolutions with the statistics of a trained network."""
    random = np.random.RandomState(0)
    weights: dict[str, npt.NDArray[Any]] = {}
    lines, x = [], "x"
    for i in range(25):
        weights[f"a{i}"] = (random.randn(64, 64, 3, 3) * 0.03).astype(np.float32)
        weights[f"b{i}"] = (random.randn(64, 64, 1, 1) * 0.1).astype(np.float32)
        for part in ("a", "b"):
            weights[f"s{part}{i}"] = np.abs(random.randn(64) * 0.2 + 0.5).astype(np.float32)
            weights[f"o{part}{i}"] = (random.randn(64) * 0.2).astype(np.float32)
            weights[f"m{part}{i}"] = (random.randn(64) * 0.3).astype(np.float32)
            weights[f"v{part}{i}"] = np.exp(random.randn(64)).astype(np.float32)
        lines.append(
            f"""ca{i} = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> ({x}, a{i})
            na{i} = BatchNormalization (ca{i}, sa{i}, oa{i}, ma{i}, va{i})
            ra{i} = Relu (na{i})
            cb{i} = Conv (ra{i}, b{i})
            nb{i} = BatchNormalization (cb{i}, sb{i}, ob{i}, mb{i}, vb{i})
            t{i} = Add (nb{i}, {x})
            y{i} = Relu (t{i})"""
        )
        x = f"y{i}"
    model = parse(
        f"g (float[N, 64, 12, 12] x) => (float[N, 64, 12, 12] {x}) {{ {' '.join(lines)} }}", weights
    )
    # Variances of networks are as large: the notes of 64 of them are shorter than they are.
    source = save_model(tmp_path, model)
    outputs = _Run(_rebuilt(tmp_path, source), tmp_path).outputs[0]
    expected = _Run(source, tmp_path).outputs[0]
    nonzero = np.abs(outputs[outputs != 0])
    assert np.isfinite(outputs).all()
    assert nonzero.size > 0.05 * outputs.size
    assert nonzero.min() > 1e-30
    assert 0.01 < outputs.std() / expected.std() < 100


def test_the_places_of_a_sparse_weight_are_sorted_and_none_comes_twice(tmp_path: Path) -> None:
    for kind in ("sparse", "sparse, places in coordinates"):
        rebuilt = onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, MODELS[kind]()))))
        indices = numpy_helper.to_array(rebuilt.graph.sparse_initializer[0].indices)
        places = indices @ [300, 1] if indices.ndim == 2 else indices
        assert places.size == 9000
        assert (np.diff(places) > 0).all()
        assert places[0] >= 0
        assert places[-1] < 200 * 300


def _stored_bytes(model: onnx.ModelProto) -> dict[str, bytes]:
    return {stored.name: stored.tensor.raw_data for stored in walk_stored(model)}


def test_equal_weights_stay_equal_in_bodies_constants_and_external_files(tmp_path: Path) -> None:
    source = nested()
    inner = next(s.tensor for s in walk_stored(source) if s.name == "inner")
    for options in ({}, {"max_file_bytes": 10_000}):
        before = _stored_bytes(source)
        # onnx reads the files next to the model into it.
        after = _stored_bytes(
            onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, source), **options)))
        )
        assert before["w"] == before["f"] != before["inner"]
        assert after["w"] == after["f"] != after["inner"]
    inner.raw_data = before["w"]
    after = _stored_bytes(onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, source)))))
    assert after["w"] == after["f"] == after["inner"]


def test_equal_sparse_weights_stay_equal(tmp_path: Path) -> None:
    source = MODELS["sparse, places in coordinates"]()
    twice = source.graph.sparse_initializer.add()
    twice.CopyFrom(source.graph.sparse_initializer[0])
    twice.values.name = "again"
    rebuilt = onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, source))))
    first, second = rebuilt.graph.sparse_initializer
    assert first.values.raw_data == second.values.raw_data
    assert first.indices.raw_data == second.indices.raw_data


def test_a_weight_without_an_equal_one_is_drawn_as_if_no_other_had_one(tmp_path: Path) -> None:
    model = nested()
    before = _stored_bytes(onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, model)))))
    model.functions[0].node[0].attribute[0].t.CopyFrom(
        numpy_helper.from_array(trained(40, 40, seed=9))
    )
    after = _stored_bytes(onnx.load(str(_rebuilt(tmp_path, save_model(tmp_path, model)))))
    assert [name for name in before if before[name] != after[name]] == ["f"]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([(20, 30), (30, 20)]), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_exactly_the_equal_weights_of_one_shape_are_drawn_equal(
    weights: list[tuple[int, tuple[int, int], bool]],
) -> None:
    """The contents are the same numbers in another order, so all notes are equal."""
    numbers = random_floats(600)
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    for i, (content, dims, is_constant) in enumerate(weights):
        tensor = numpy_helper.from_array(np.roll(numbers, content).reshape(dims), f"w{i}")
        if is_constant:
            model.graph.node.append(helper.make_node("Constant", [], [f"w{i}"], value=tensor))
        else:
            model.graph.initializer.append(tensor)
    with tempfile.TemporaryDirectory() as folder:
        path = rebuild(make_twin(open_model(model)), Path(folder) / "rebuilt.onnx")
        drawn = _stored_bytes(onnx.load(str(path)))
    for i, (content, dims, _) in enumerate(weights):
        for j, (other, other_dims, _) in enumerate(weights):
            is_equal = drawn[f"w{i}"] == drawn[f"w{j}"]
            assert is_equal == ((content, dims) == (other, other_dims))


def test_a_model_too_large_for_one_file_has_external_weights(tmp_path: Path) -> None:
    source = save_model(tmp_path, nested())
    plain = onnx.load(str(_rebuilt(tmp_path, source)))
    small = _rebuilt(tmp_path, source, max_file_bytes=20_000)

    assert sorted(p.name for p in tmp_path.glob("rebuilt*")) == [
        "rebuilt.onnx", "rebuilt.onnx.data",
    ]  # fmt: skip
    split = onnx.load(str(small), load_external_data=False)
    outside = {
        s.name: {e.key: e.value for e in s.tensor.external_data}
        for s in walk_stored(split)
        if s.tensor.data_location == TensorProto.EXTERNAL
    }
    # Tensors inside nodes cannot be external.
    assert set(outside) == {"w", "inner"}
    assert all(entries["location"] == "rebuilt.onnx.data" for entries in outside.values())
    assert [int(entries["offset"]) % 4096 for entries in outside.values()] == [0, 0]
    # The weights are the same ones in any place.
    assert onnx.load(str(small)).graph.initializer[0].raw_data == (
        plain.graph.initializer[0].raw_data
    )
    assert np.isfinite(_Run(small, tmp_path).outputs[0]).all()


def test_more_than_is_allowed_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = save_model(tmp_path, convolutions())
    with pytest.raises(ModelError, match=r"would have .* KiB; 9\.766 KiB are allowed"):
        _rebuilt(tmp_path, source, max_bytes=10_000)
    assert not list(tmp_path.glob("rebuilt*"))


def test_more_than_the_disk_has_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OutputError, match="are free"):
        _rebuilt(tmp_path, save_model(tmp_path, convolutions()))
    assert not list(tmp_path.glob("rebuilt*"))


def test_a_disk_that_fills_up_leaves_no_half_model(tmp_path: Path) -> None:
    source = save_model(tmp_path, convolutions())
    with room_for(1000), pytest.raises(OutputError, match="File too large"):
        _rebuilt(tmp_path, source, max_file_bytes=5000)
    assert not list(tmp_path.glob("rebuilt*"))


def test_a_twin_is_not_changed_by_rebuilding_it(tmp_path: Path) -> None:
    twin = make_twin(open_model(nested()))
    before = twin.proto.SerializeToString(deterministic=True)
    rebuild(twin, tmp_path / "a.onnx", 0)
    rebuild(twin, tmp_path / "b.onnx", 0, max_file_bytes=1000)
    assert twin.proto.SerializeToString(deterministic=True) == before


def test_a_name_that_looks_like_our_notes_does_no_harm(tmp_path: Path) -> None:
    model = parse(
        "g (float[N, 40] x) => (float[N, 40] y) { y = MatMul (x, w) }", {"w": trained(40, 40)}
    )
    model.graph.initializer[0].name = model.graph.node[0].input[1] = WEIGHT_KEY
    model.graph.initializer.append(
        numpy_helper.from_array(np.array(1, np.float32), f"{WEIGHT_KEY} 2")
    )
    rebuilt = _rebuilt(tmp_path, save_model(tmp_path, model))
    assert np.isfinite(_Run(rebuilt, tmp_path).outputs[0]).all()


def test_two_constants_without_a_name_are_not_the_same() -> None:
    nodes = [
        helper.make_node("Constant", [], [], value=numpy_helper.from_array(trained(40, 40)))
        for _ in range(2)
    ]
    model = nested()
    model.functions[0].node.extend(nodes)
    weights = [w.key for w in left_out(make_twin(open_model(model)))]
    assert len(set(weights)) == len(weights) == 6
    assert isinstance(make_twin(open_model(model)), Twin)
