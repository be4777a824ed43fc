"""Binding gives every dimension one size, or says which is missing and what to type."""

from __future__ import annotations

import warnings

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, UsageError
from pytest_modelperf.graph.binding import (
    BatchDim,
    Binding,
    BoundInputs,
    DeclaredInput,
    Dim,
    InputSpec,
    bind_inputs,
    evaluate,
    find_batch,
    open_dims,
    parse_dim,
    parse_input_spec,
)
from pytest_modelperf.graph.load import declared_inputs
from tests.support.graph_models import load, parse, shapes, zeros


def _x(*dims: Dim, name: str = "x", dtype: str | None = "float32") -> DeclaredInput:
    return DeclaredInput(name, dtype, dims)


def _bind(*inputs: DeclaredInput, binding: Binding | None = None) -> BoundInputs:
    return bind_inputs(inputs, binding or Binding(), "m.onnx")


def _spec(text: str) -> Binding:
    return Binding(inputs=(parse_input_spec(text),))


# -- which dimension is the batch


@pytest.mark.parametrize("name", ["batch", "batch_size", "N", "Batch_Size", "None", "bs"])
def test_a_name_that_means_the_batch_is_the_batch_on_any_axis(name: str) -> None:
    found = find_batch([_x("seq", name, 8), _x("seq", name, name="y")])
    assert found == BatchDim(name, (("x", 1), ("y", 1)), None)


def _axes(*places: str) -> tuple[tuple[str, int], ...]:
    """Places by their text: `x0 y1`."""
    return tuple((place[0], int(place[1])) for place in places)


BATCHES: dict[str, tuple[list[DeclaredInput], BatchDim | None]] = {
    "a leading symbol":
        ([_x("k", 3), _x("k", "seq", name="y")], BatchDim("k", _axes("x0", "y0"), None)),
    "the leading symbol that most inputs have":
        ([_x("a", 3), _x("b", 3, name="y"), _x("b", 4, name="z")],
         BatchDim("b", _axes("y0", "z0"), None)),
    "not a numbered symbol that is further back too":
        ([_x("s10", 3), _x("s10", name="d"), _x("s86", 2, name="e"), _x(2, "s86", name="p")],
         BatchDim("s10", _axes("x0", "d0"), None)),
    "that of the tokens for a mask, although torch numbers it apart":
        ([_x("s10", "s21"), _x("s86", "s12", name="m"), _x("s10", 2, "s51", 16, name="p")],
         BatchDim("s10", _axes("x0", "p0", "m0"), None)),
    "not a shared symbol that does not lead": ([_x(1, "seq"), _x(2, "seq", name="y")], None),
    "unnamed leading dimensions":
        ([_x(None, 3), _x(7, name="y"), _x(None, name="z")],
         BatchDim(None, _axes("x0", "z0"), None)),
    "fixed if all inputs share a leading size":
        ([_x(4, 3), _x(4, name="y")], BatchDim(None, _axes("x0", "y0"), 4)),
    "none if the inputs share nothing": ([_x(4, 3), _x(5, name="y")], None),
    "none of a scalar and an unknown rank": ([_x(), DeclaredInput("y", None, None)], None),
    "none without inputs": ([], None),
    "not hidden by scalars and unknown ranks":
        ([_x(), DeclaredInput("y", None, None), _x(2, 3, name="z")],
         BatchDim(None, _axes("z0"), 2)),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "batch"), BATCHES.values(), ids=BATCHES)
def test_the_batch_is(inputs: list[DeclaredInput], batch: BatchDim | None) -> None:
    assert find_batch(inputs) == batch


def test_leading_symbols_that_are_mere_numbers_are_one_batch() -> None:
    inputs = [_x("unk__1", 3), _x("unk__2", "unk__3", name="y"), _x(7, "unk__4", name="z")]
    assert find_batch(inputs) == BatchDim("unk__1", (("x", 0), ("y", 0)), None)
    assert open_dims(inputs, Binding(), "m").keys() == {"unk__3", "unk__4"}


@pytest.mark.parametrize(("dims", "leading"), [({}, 8), ({"unk__2": 5}, 5)])
def test_numbered_batches_follow_the_batch_size_unless_one_is_given(
    dims: dict[str, int], leading: int
) -> None:
    inputs = (_x("unk__1", 3), _x("unk__2", 4, name="y"))
    bound = _bind(*inputs, binding=Binding(batch_size=8, dims=dims))
    assert bound.shapes == {"x": (8, 3), "y": (leading, 4)}


@pytest.mark.parametrize(
    ("dims", "batch"),
    [((3, "H", "W"), 1), ((3, 320, 320), 1), ((3, "S", 8), 3), ((3, 224), 3), ((4, "H", "W"), 4)],
)
def test_the_channels_of_an_image_are_not_taken_for_a_batch(
    dims: tuple[int | str, ...], batch: int
) -> None:
    bound = _bind(_x(*dims), binding=Binding(dims={d: 64 for d in dims if isinstance(d, str)}))
    assert bound.batch_size == batch


def test_a_symbol_is_left_open_if_another_one_is_named_as_the_batch() -> None:
    assert open_dims([_x("batch", 3), _x("unk__2", 4, name="y")], Binding(), "m")


@pytest.mark.parametrize(
    ("data", "state", "name"),
    [
        (("N", "seq"), (2, "N", 64), "N"),
        (("N", "seq"), (2, None, 64), "N"),
        ((None, None), (2, None, 64), None),
        ((1, 576), (2, 1, 64), None),
    ],
)
def test_the_batch_of_a_state_goes_with_that_of_the_data(
    data: tuple[Dim, ...], state: tuple[Dim, ...], name: str | None
) -> None:
    inputs = [_x(*data), DeclaredInput("h", "float32", state, batch_axis=1)]
    found = find_batch(inputs)
    assert found is not None
    assert (found.name, found.places) == (name, (("x", 0), ("h", 1)))
    dims = {"seq": 5} if "seq" in data else {} if 1 in data else {"x.1": 5}
    bound = bind_inputs(inputs, Binding(8, dims), "m.onnx")
    assert bound.shapes["h"] == (2, 8, 64)


def test_a_state_with_another_batch_than_the_data_is_left_alone() -> None:
    inputs = [_x("frames", 576), DeclaredInput("h", "float32", (1, 1, 128), batch_axis=1)]
    assert bind_inputs(inputs, Binding(8), "m.onnx").shapes["h"] == (1, 1, 128)


def test_open_dimensions_are_listed_with_their_places() -> None:
    inputs = [_x("N", "seq"), _x("N", None, name="y"), _x("seq", "seq + 1", name="z")]
    places = open_dims(inputs, Binding(), "m.onnx")
    assert places == {"seq": (("x", 1), ("z", 0)), "y.1": (("y", 1),)}
    assert open_dims(inputs, Binding(dims={"seq": 2, "y.1": 3}), "m.onnx") == {}


def test_an_input_that_has_a_stored_value_need_not_be_given() -> None:
    """IR 3 listed weights among the inputs: they are neither a batch nor to be bound."""
    model = parse(
        "g (float[N, 4] x, float[4, 5] w) => (float[N, 5] y) { y = MatMul (x, w) }",
        {"w": zeros(4, 5)},
    )
    assert [i.name for i in declared_inputs(model)] == ["x"]
    assert shapes(load(model, Binding(3)), "y") == [(3, 5)]


# -- the batch size


BOUND: dict[str, tuple[list[DeclaredInput], Binding, dict[str, tuple[int, ...]], bool]] = {
    "the batch is one if none is given": ([_x("N", 3)], Binding(), {"x": (1, 3)}, False),
    "a fixed batch stays if none is given": ([_x(4, 3)], Binding(), {"x": (4, 3)}, False),
    "every place of the batch gets its size":
        ([_x("N", "N", 3), _x(2, "N", name="y")], Binding(8), {"x": (8, 8, 3), "y": (2, 8)}, False),
    "the fixed size does not rebind": ([_x(4, 3)], Binding(4), {"x": (4, 3)}, False),
    "another size than the fixed one rebinds": ([_x(4, 3)], Binding(8), {"x": (8, 3)}, True),
    "a symbolic batch never rebinds": ([_x("N", 3)], Binding(8), {"x": (8, 3)}, False),
    "an unnamed batch never rebinds": ([_x(None, 3)], Binding(8), {"x": (8, 3)}, False),
    "equal names get equal sizes":
        ([_x("N", "seq"), _x("seq", "N", name="y")], Binding(2, {"seq": 7}),
         {"x": (2, 7), "y": (7, 2)}, False),
    "a given size of an expression wins":
        ([_x("N", "seq", "seq+1")], Binding(dims={"seq": 4, "seq+1": 9}), {"x": (1, 4, 9)}, False),
    "an unnamed dimension is called by its place":
        ([_x("N", None)], Binding(dims={"x.1": 5}), {"x": (1, 5)}, False),
    "a whole input gives a shape to one of unknown rank":
        ([DeclaredInput("x", None, None)], _spec("x:f32:2x3"), {"x": (2, 3)}, False),
    "a whole input overrides a fixed dimension and rebinds":
        ([_x(1, 3, 224)], _spec("x:f32:1x3x64"), {"x": (1, 3, 64)}, True),
    "the whole of a fixed input as it is does not rebind":
        ([_x(1, 3)], _spec("x:f32:1x3"), {"x": (1, 3)}, False),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "binding", "shapes", "rebound"), BOUND.values(), ids=BOUND)
def test_inputs_are_bound(
    inputs: list[DeclaredInput],
    binding: Binding,
    shapes: dict[str, tuple[int, ...]],
    rebound: bool,  # noqa: FBT001  # a column of the table
) -> None:
    bound = _bind(*inputs, binding=binding)
    assert (bound.shapes, bound.rebound) == (shapes, rebound)


def test_a_bound_model_names_its_batch() -> None:
    bound = _bind(_x("N", 3))
    assert (bound.batch_size, bound.dims) == (1, {"N": 1})
    assert _bind(_x(4, 3)).batch_size == 4


REFUSED: dict[str, tuple[list[DeclaredInput], Binding, str]] = {
    "a batch that the model does not have":
        ([_x(4, 3), _x(5, name="y")], Binding(2),
         r"no batch dimension.*x \(4x3\), y \(5\).*inputs name:"),
    "a batch without inputs": ([], Binding(2), "no inputs"),
    "two sizes for the batch":
        ([_x("N", 3)], Binding(2, {"N": 3}), r"given as 2 and as 3.*once"),
    "two sizes for an unnamed batch":
        ([_x(None, 3)], Binding(2, {"x.0": 3}), "given as 2 and as 3"),
    "a batch and a whole input of another":
        ([_x("N", 3)], replace(_spec("x:f32:3x3"), batch_size=2), "given as 2 and as 3"),
    "a missing size, with dimension, place and option":
        ([_x("N", "seq"), _x("seq", None, name="y")], Binding(),
         (r"m\.onnx has dimensions without a size: 'seq' \(in x\[1\], y\[0\]\); 'y\.1' "
          r"\(in y\[1\]\)\. Give seq=SIZE, y\.1=SIZE")),
    "a mistyped dimension, with the nearest and all":
        ([_x("N", "seq")], Binding(dims={"sek": 4}), r"'sek'.*Did you mean 'seq'\?.*N, seq"),
    "a dimension of a model that has none": ([_x(1, 2)], Binding(dims={"seq": 4}), "It has none"),
    "a negative size": ([_x(1, -1, 3)], Binding(), "negative dimension"),
    "an enormous size": ([_x(1, 2**41)], Binding(), "Is a dimension mistyped"),
    "sizes that overflow": ([_x(2**62, 2**62)], Binding(), "Is a dimension mistyped"),
    "enormous sizes that the user gives":
        ([_x("N", "seq")], Binding(10**9, {"seq": 10**9}), "mistyped"),
    "an enormous number that an expression would make slowly":
        ([_x("N", "seq", "*".join(["seq"] * 40))], Binding(dims={"seq": 2**40}), "mistyped"),
    "a whole input that contradicts a dimension":
        ([_x("N", "seq")], replace(_spec("x:f32:2x9"), dims={"seq": 8}),
         r"'seq'.*given as 8.*'x' \(2x9\) makes it 9"),
    "a whole input with two sizes for a name":
        ([_x("a", "a")], _spec("x:f32:2x3"), r"'a'.*given as 2.*makes it 3"),
    # The shape of one and the value of the other are not an input of the model.
    "an input that is given twice":
        ([_x("N", dtype="int64")],
         Binding(inputs=(parse_input_spec("x:i64:2:4"), parse_input_spec("x:i64:3"))),
         r"'x' of .* is given 2 times\. Give it once"),
    "a whole input of another rank":
        ([_x("N", 3)], _spec("x:f32:1x3x4"), r"has 2 dimensions \(Nx3\).*1x3x4.*has 3"),
    "a whole input of another type":
        ([_x("N", 3)], _spec("x:i64:1x3"), "is float32, not int64"),
    "an input that the model does not have, with the nearest":
        ([_x("N", name="image")], _spec("imag:f32:1"), r"no input 'imag'.*Did you mean 'image'\?"),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "binding", "message"), REFUSED.values(), ids=REFUSED)
def test_a_binding_is_refused(inputs: list[DeclaredInput], binding: Binding, message: str) -> None:
    with pytest.raises(BindingError, match=message):
        _bind(*inputs, binding=binding)


def test_the_batch_may_be_given_as_a_dimension() -> None:
    assert _bind(_x("N", 3), binding=Binding(dims={"N": 6})).batch_size == 6
    assert _bind(_x("N", 3), binding=Binding(6, {"N": 6})).batch_size == 6
    assert _bind(_x(None, 3), binding=Binding(dims={"x.0": 6})).batch_size == 6


# -- named dimensions


@pytest.mark.parametrize(
    ("expression", "size"),
    [("past + 1", 6), ("past+seq", 8), ("2*past", 10), ("seq - 1", 2), ("seq // 2", 1),
     ("(past + seq) * 2", 16), ("7", 7)],
)  # fmt: skip
def test_an_expression_follows_from_its_names(expression: str, size: int) -> None:
    bound = _bind(
        _x("N", "past", "seq"),
        _x("N", expression, name="y"),
        binding=Binding(dims={"past": 5, "seq": 3}),
    )
    assert bound.shapes["y"] == (1, size)


@pytest.mark.parametrize(
    "expression",
    ["past.total", "2**99999", "f(1)", "'a'*99", "seq +", "seq // 0", "[1]", "True", "x" * 300,
     "-" * 190 + "1", "1.5", "a\0b", "lambda: 1"],
)  # fmt: skip
def test_a_text_that_is_not_an_expression_is_a_name_that_needs_a_value(expression: str) -> None:
    inputs = (_x("N", "seq"), _x("N", expression, name="y"))
    bound = _bind(*inputs, binding=Binding(dims={"seq": 4, expression: 9}))
    assert bound.shapes["y"] == (1, 9)
    with pytest.raises(BindingError, match="=SIZE"):
        _bind(*inputs, binding=Binding(dims={"seq": 4}))


@pytest.mark.parametrize("name", ["1if", "2is", "0x1or"])
def test_a_name_that_looks_like_a_slip_in_code_warns_of_nothing(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert evaluate(f"{name} x", {"x": 1}) is None
        assert evaluate(f"{name} 3", {"x": 1}) is None
    assert not caught


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        (Binding(0), "batch size of 0"),
        (Binding(-1), "batch size of -1"),
        (Binding(dims={"seq": -1}), "'seq' cannot be -1"),
        (Binding(dims={"seq": -5}), "'seq' cannot be -5"),
        (Binding(dims={"N": 0}), "'N' cannot be 0: give 1 or more"),
    ],
)
def test_a_size_of_nothing_is_refused(binding: Binding, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _bind(_x("N", "seq"), binding=binding)


def test_a_terminal_escape_in_a_name_is_shown_escaped() -> None:
    with pytest.raises(BindingError) as caught:
        _bind(_x("N", "s\x1b[2J"), _x("N", 1, name="a\nb"))
    assert "\x1b" not in str(caught.value)
    with pytest.raises(BindingError) as caught:
        _bind(_x("N", name="a\nb"), binding=_spec("q:f32:1"))
    assert "\n" not in str(caught.value)


# -- impossible sizes


def test_a_cache_may_be_empty() -> None:
    """A decoder starts without a past."""
    bound = _bind(_x("N", "past", 16), binding=Binding(2, {"past": 0}))
    assert bound.shapes["x"] == (2, 0, 16)


# -- whole inputs


def test_a_whole_input_gives_its_names_their_sizes() -> None:
    bound = _bind(_x("N", "seq"), _x("N", "seq", name="y"), binding=_spec("x:f32:2x9"))
    assert bound.shapes == {"x": (2, 9), "y": (2, 9)}
    assert (bound.batch_size, bound.dims["seq"]) == (2, 9)


def test_only_inputs_with_a_value_have_one() -> None:
    assert _bind(_x("N", 3), binding=_spec("x:f32:1x3:7")).values["x"].value == (7.0,)
    assert _bind(_x("N", 3), binding=_spec("x:f32:1x3")).values == {}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("ids:i64:1x64", InputSpec("ids", "int64", (1, 64))),
        ("input:0:f32:1x3x224x224", InputSpec("input:0", "float32", (1, 3, 224, 224))),
        ("a/b:1:f16:2:0.5", InputSpec("a/b:1", "float16", (2,), (0.5,))),
        ("x:f32::3", InputSpec("x", "float32", (), (3.0,))),
        ("x:f32:", InputSpec("x", "float32", ())),
        ("x:bfloat16:4", InputSpec("x", "bfloat16", (4,))),
        ("x:bf16:4", InputSpec("x", "bfloat16", (4,))),
        ("x:bool:2:0,1", InputSpec("x", "bool", (2,), (0.0, 1.0))),
        ("x:u8:2:-1", InputSpec("x", "uint8", (2,), (-1.0,))),
        ("downsample_ratio:f32:-1:0.25", InputSpec("downsample_ratio", "float32", (1,), (0.25,))),
        ("x:i64:-1:3,4", InputSpec("x", "int64", (2,), (3.0, 4.0))),
        ("x:str::Well, well: a=b", InputSpec("x", "string", (), texts=("Well, well: a=b",))),
        ("x:str:1:20261126", InputSpec("x", "string", (1,), texts=("20261126",))),
        ("x:str:2:a,b", InputSpec("x", "string", (2,), texts=("a", "b"))),
        ("x:str:2:a", InputSpec("x", "string", (2,), texts=("a",))),
        ("x:str:-1:a,b", InputSpec("x", "string", (2,), texts=("a", "b"))),
        ("x:str:1:", InputSpec("x", "string", (1,), texts=("",))),
        ("name with space:f32:1", InputSpec("name with space", "float32", (1,))),
    ],
)
def test_an_input_is_read_from_its_text(text: str, spec: InputSpec) -> None:
    assert parse_input_spec(text) == spec


@pytest.mark.parametrize(
    "text",
    ["", "x", "x:f32", ":f32:1", "x:float:1", "x:f32:1,2", "x:f32:1x", "x:f32:-1", "x:f32:axb",
     "x:f32:-1x2:1,2", "x:f32:2x-1:1,2", "x:f32:-2:1",
     "x:f33:1", "x:f32:1x2 ", "x:f32:1x³", "x:f32:" + "9" * 5000],
)  # fmt: skip
def test_an_input_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match=r"name:dtype:shape.*ids:i64:1x64"):
        parse_input_spec(text)


def test_a_value_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'one'.*not a number"):
        parse_input_spec("x:f32:1:one")
    with pytest.raises(UsageError, match="has 4 elements, but 2 values"):
        parse_input_spec("x:f32:2x2:1,2")
    with pytest.raises(UsageError, match="has 3 elements, but 2 values"):
        parse_input_spec("x:str:3:a,b")


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=":\n"), min_size=1),
    st.sampled_from(["f16", "f32", "f64", "i8", "i64", "u8", "float8e4m3fn", "bool", "string"]),
    st.lists(st.integers(0, 9999), max_size=5),
)  # fmt: skip
def test_any_name_type_and_shape_survives_its_text(name: str, dtype: str, dims: list[int]) -> None:
    spec = parse_input_spec(f"{name}:{dtype}:{'x'.join(map(str, dims))}")
    assert (spec.name, spec.shape, spec.value) == (name, tuple(dims), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seq=64", ("seq", 64)),
        (" seq = 64 ", ("seq", 64)),
        ("a=b=3", ("a=b", 3)),
        ("x.1=0", ("x.1", 0)),
    ],
)
def test_a_dimension_is_read_from_its_text(text: str, expected: tuple[str, int]) -> None:
    assert parse_dim(text) == expected


@pytest.mark.parametrize(
    "text", ["", "seq", "=3", "seq=", "seq=a", "seq=-1", "seq=1.5", "seq=²", "seq=" + "9" * 5000]
)
def test_a_dimension_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match="name=size"):
        parse_dim(text)


# -- laws

_DIMS = st.integers(1, 9) | st.sampled_from(["N", "seq", "past", "past + 1"]) | st.none()


@st.composite
def _declared(draw: st.DrawFn) -> tuple[DeclaredInput, ...]:
    return tuple(
        DeclaredInput(f"x{index}", "float32", tuple(draw(st.lists(_DIMS, max_size=4))))
        for index in range(draw(st.integers(1, 4)))
    )


def _everything(inputs: tuple[DeclaredInput, ...], size: int) -> dict[str, int]:
    """A size for whatever has no size of its own."""
    names = {
        dim if dim is not None else f"{i.name}.{axis}"
        for i in inputs
        for axis, dim in enumerate(i.dims or ())
        if not isinstance(dim, int)
    }
    batch = find_batch(inputs)
    places = [] if batch is None or batch.name else [f"{n}.{axis}" for n, axis in batch.places]
    return {name: size for name in names if name not in places}


@given(_declared(), st.integers(1, 9))
def test_a_binding_leaves_nothing_unknown_and_is_consistent(
    inputs: tuple[DeclaredInput, ...], size: int
) -> None:
    bound = _bind(*inputs, binding=Binding(dims=_everything(inputs, size)))
    sizes: dict[str, set[int]] = {}
    for declared in inputs:
        shape = bound.shapes[declared.name]
        assert shape is not None
        assert declared.dims is not None
        assert len(shape) == len(declared.dims)
        for dim, bound_dim in zip(declared.dims, shape, strict=True):
            assert bound_dim >= 1
            if isinstance(dim, str):
                sizes.setdefault(dim, set()).add(bound_dim)
            elif dim is not None and not bound.rebound:
                assert bound_dim == dim
    assert all(len(each) == 1 for each in sizes.values())


@given(_declared(), st.integers(1, 9))
def test_binding_what_is_bound_changes_nothing(
    inputs: tuple[DeclaredInput, ...], size: int
) -> None:
    once = _bind(*inputs, binding=Binding(dims=_everything(inputs, size)))
    fixed = tuple(DeclaredInput(i.name, i.dtype, once.shapes[i.name]) for i in inputs)
    whole = tuple(
        InputSpec(i.name, "float32", shape) for i in inputs if (shape := once.shapes[i.name])
    )

    assert _bind(*fixed).shapes == once.shapes
    assert _bind(*inputs, binding=Binding(inputs=whole)).shapes == once.shapes


# -- sizes that the model fixes elsewhere


def test_a_size_that_the_model_fixes_elsewhere_need_not_be_given() -> None:
    known = replace(_x(1, "head"), known=(("head", 16),))
    assert _bind(known, _x("head", name="y")).shapes == {"x": (1, 16), "y": (16,)}
    assert _bind(known, binding=Binding(dims={"head": 8})).shapes == {"x": (1, 8)}


def test_inputs_that_disagree_on_a_size_leave_it_to_the_user() -> None:
    one, other = (
        replace(_x(1, "head", name=n), known=(("head", s),)) for n, s in (("x", 1), ("y", 2))
    )
    with pytest.raises(BindingError, match="'head'"):
        _bind(one, other)


_GENAI = """
    agraph (
        float[batch, past, 32] query, {cache}[batch, 2, past, head] past_key,
        {cache}[batch, 2, past, head] past_value, int32[batch] lens, int32[1] total
    ) => (float[batch, past, {width}] y)
    <float[batch, past, {width}] mixed>
    {{
        mixed, key, value = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
            (query, , , past_key, past_value, lens, total)
        y = Identity(mixed)
    }}
"""


@pytest.mark.parametrize(
    ("cache", "width", "known"),
    [("float", 64, 16), ("float16", 64, 16), ("float", 62, None), ("uint8", 64, None)],
)
def test_the_size_of_a_head_follows_from_the_attention_that_reads_the_cache(
    cache: str, width: int, known: int | None
) -> None:
    inputs = declared_inputs(parse(_GENAI.format(cache=cache, width=width)))
    expected = () if known is None else (("head", known),)
    assert {each.name: each.known for each in inputs} == {
        "query": (), "past_key": expected, "past_value": expected, "lens": (), "total": (),
    }  # fmt: skip
