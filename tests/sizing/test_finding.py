"""Sizes are found by shapes and confirmed by a run; what cannot be found says what was tried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError, MisfitError, ModelPerfError
from pytest_modelperf.graph.binding import Binding, parse_input_spec
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.engines.source import EngineModule
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.sizing.candidates import Candidate, OpenDim, choices, choices_told
from pytest_modelperf.sizing.finding import Trials, find_sizes, sizes_for
from pytest_modelperf.sizing.records import FoundSizes
from tests.support.graph_models import parse, zeros

CONV = """g (float[N,3,H,W] x) => (float[N,4,a,b] y) {
    h = Conv<strides = [16, 16]>(x, v)
    y = Relu(h)
}"""
# Any number but 3 takes the other branch, whose weights have another size.
TWO_BRANCHES = """g (float[1,S] x, int64 rate) => (float[1,4] y) <int64 fast = {16000}> {
    is_fast = Equal(rate, fast)
    y = If(is_fast) <
        then_branch = t () => (float[1,4] a) { a = MatMul(x, wide) },
        else_branch = e () => (float[1,4] b) { b = MatMul(x, narrow) }
    >
}"""
# The state has its batch at the second axis, without a name, inside of a branch or not.
LSTM = """g (float[N,S,3] x, float[1,?,5] h) => (float[S,1,n,5] y) {
    t = Transpose<perm = [1, 0, 2]>(x)
    i = Identity(h)
    y = LSTM<hidden_size = 5>(t, w, r, , , i, i)
}"""
# The positions of 23 words are written down, as a trace leaves them.
TRACED = """g (int64[1,S] ids, int64[1,T] more) => (float[1,S,4] y) {
    e = Gather(words, ids)
    p = Gather(places, positions)
    a = Add(e, p)
    m = Gather(words, more)
    y = Add(a, m)
}"""
# The axis is lost to the search if the target of the Reshape is made of the input's own shape.
WIDE_WINDOW = """g (float[1,S] x) => (float[1,1,a] y) <int64[1] one = {1}> {
    shape = Shape(x)
    target = Concat<axis = 0>(one, shape)
    signal = Reshape(x, target)
    y = Conv(signal, w)
}"""
CACHE = """g (float[1,P,4] past, float[1,S,4] x, float[1,T,1] mask) => (float[1,a,4] y) {
    all = Concat<axis = 1>(past, x)
    y = Mul(all, mask)
}"""


# Its shape is computed from the length of the signal, as that of a detector of pitch.
PITCH = """g (float[1,S] sound) => (float[1,frames] y) <int64[1] hop = {256}, int64[1] one = {1}> {
    shape = Shape(sound)
    length = Gather<axis = 0>(shape, one)
    whole = Div(length, hop)
    frames = Max(whole, one)
    target = Concat<axis = 0>(one, frames)
    loudest = ReduceMax(sound, one)
    y = Expand(loudest, target)
}"""
POOLED = """g (float[N,S,4] x) => (float[N,a,4] y) <int64[1] one = {1}> {
    y = ReduceMean(x, one)
}"""


def _branches(rate: int = 16000) -> onnx.ModelProto:
    text = TWO_BRANCHES.replace("16000", f"{rate}")
    return parse(text, {"wide": zeros(512, 4), "narrow": zeros(256, 4)})


def _lstm() -> onnx.ModelProto:
    return parse(LSTM, {"w": zeros(1, 20, 3), "r": zeros(1, 20, 5)})


def _binding(found: FoundSizes, batch_size: int | None = None) -> Binding:
    return Binding(batch_size, found.sizes, tuple(map(parse_input_spec, found.input_texts)))


def _by_shapes(model: onnx.ModelProto, binding: Binding | None = None) -> FoundSizes:
    """Sizes found without a run, and without a limit of time."""
    found = find_sizes(open_model(model), binding, clock=lambda: 0.0)
    if found.is_found:
        load_model(open_model(model), _binding(found))
    return found


def test_images_get_a_usual_size_that_the_strides_divide() -> None:
    found = _by_shapes(parse(CONV, {"v": zeros(4, 3, 16, 16)}))
    assert found.sizes == {"H": 224, "W": 224}
    assert found.dims[0].places == ("x[2]",)
    assert "multiply to 16" in found.dims[0].reason


def test_a_signal_whose_output_would_have_one_element_is_made_longer() -> None:
    (size,) = find_sizes(parse(PITCH), setup=Setup()).dims
    assert (size.size, size.is_guess) == (64 * 256, True)
    assert size.reason == "y[1] has 64 elements then, and one or none at 64"


def test_an_output_that_no_size_makes_longer_leaves_the_usual_one() -> None:
    (size,) = find_sizes(parse(POOLED)).dims
    assert (size.size, size.reason, size.is_guess) == (64, "a usual size", True)


def test_a_larger_size_that_does_not_run_leaves_the_usual_one() -> None:
    """The sizes that the positions are stored for are not written down in a shape."""
    model = PITCH.replace(
        "loudest = ReduceMax(sound, one)",
        "place = Sub(length, one) rank = Gather(stored, place) "
        "loud = ReduceMax(sound, one) loudest = Mul(loud, rank)",
    )
    (size,) = find_sizes(parse(model, {"stored": zeros(100)}), setup=Setup()).dims
    assert size.size == 64


@pytest.mark.parametrize(
    ("channels", "stride", "size"),
    [("3", 16, 224), ("3", 80, 240), ("1,3", 80, 240), ("1,4", 2, 64)],
)
def test_images_are_recognized_by_their_channels(channels: str, stride: int, size: int) -> None:
    """Detectors of torchvision take images without a batch; diffusers take latents, not images."""
    image = "x" if "," in channels else "i"
    model = parse(
        f"""g (float[{channels},H,W] x) => (float[1,4,a,b] y) <int64[1] first = {{0}}> {{
            i = Unsqueeze(x, first)
            y = Conv<strides = [{stride}, {stride}]>({image}, v)
        }}""",
        {"v": zeros(4, int(channels[-1]), 1, 1)},
    )
    assert _by_shapes(model).sizes == {"H": size, "W": size}


@given(st.integers(1, 300))
def test_a_product_with_stored_weights_has_the_size_of_these(rows: int) -> None:
    model = parse("g (float[1,S] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": zeros(rows, 2)})
    found = _by_shapes(model)
    assert (found.sizes, found.tried) == ({"S": rows}, 1)


def test_the_size_at_the_other_input_of_an_operator_is_tried_next() -> None:
    words, places, positions = zeros(9, 4), zeros(99, 4), np.arange(23)[None]
    model = parse(TRACED, {"words": words, "places": places, "positions": positions})
    found = _by_shapes(model)
    assert (found.sizes, found.tried) == ({"S": 23, "T": 23}, 2)
    assert found.dims[1].reason == "Add 'y' has this size at another input"


def test_sizes_behind_strides_do_not_determine_the_size_of_an_input() -> None:
    dims = [OpenDim(name, (Candidate(224, ""),)) for name in ("H", "W")]
    chosen = next(choices(dims))
    misfit = MisfitError("", where="Concat 'c'", sizes=(28, 27))
    assert not list(choices_told(misfit, dims, chosen))


def test_an_operator_without_elements_determines_no_size() -> None:
    dims = [OpenDim("S", (Candidate(64, ""),))]
    found = choices_told(MisfitError("", where="Add 'a'", sizes=(64, 0)), dims, next(choices(dims)))
    assert {each["S"].size for each in found} == {64}


def test_a_mask_covers_the_cache_and_what_is_new() -> None:
    sizes = _by_shapes(parse(CACHE)).sizes
    assert sizes["T"] == sizes["P"] + sizes["S"]


def test_a_scalar_is_tried_with_the_constant_that_it_is_compared_with() -> None:
    found = _by_shapes(_branches())
    assert found.input_texts == ("rate:int64::16000",)
    assert found.sizes == {"S": 512}
    assert "compares it with 16000" in found.inputs[0].reason


def test_a_large_constant_keeps_all_of_its_digits() -> None:
    found = _by_shapes(_branches(123_456_789))
    assert found.input_texts == ("rate:int64::123456789",)
    assert found.sizes == {"S": 512}


def test_a_size_that_the_user_gave_chooses_the_value() -> None:
    model = open_model(_branches())
    with pytest.raises(ModelPerfError) as raised:
        load_model(model, Binding(dims={"S": 512}))
    found = sizes_for(raised.value, runs=False)
    assert found is not None
    assert (found.sizes, found.input_texts) == ({}, ("rate:int64::16000",))


def test_the_batch_of_a_state_is_not_open() -> None:
    model = _lstm()
    found = _by_shapes(model)
    assert set(found.sizes) == {"S"}
    bound = load_model(open_model(model), _binding(found, batch_size=8))
    assert {t.name: t.shape for t in bound.graph.inputs}["h"] == (1, 8, 5)


def test_a_found_choice_runs() -> None:
    for model in (_branches(), _lstm(), parse(CACHE)):
        assert find_sizes(open_model(model), setup=Setup()).has_run


def test_a_choice_that_fits_and_does_not_run_is_left() -> None:
    # The engine refuses another number of elements than 320; shapes alone do not show it.
    model = parse(
        """g (float[1,S] x, int64[1] n) => (float[m] y) <int64[1] all = {320}> {
            k = Mul(n, all)
            y = Reshape(x, k)
        }"""
    )
    found = find_sizes(open_model(model), setup=Setup(), clock=lambda: 0.0)
    assert found.has_run
    assert found.sizes == {"S": 320}
    assert found.tried > 1


def test_without_its_engine_a_choice_is_by_shapes_and_says_so() -> None:
    missing = replace(Setup(), engine=EngineModule("no_such_engine", "no.such_module"))
    found = find_sizes(open_model(_branches()), setup=missing)
    assert (found.is_found, found.has_run) == (True, False)
    assert found.not_run


def test_another_measurement_is_not_waited_for_long() -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        lock = measuring_alone()
        elsewhere.submit(lock.__enter__).result()
        trials = Trials(open_model(_branches()), Setup(), Extensions(), patience_s=0.0)
        with trials, pytest.raises(MeasureError, match="did not end within 0 s"):
            trials.start()
        elsewhere.submit(lock.__exit__, None, None, None).result()


def test_the_error_of_sizes_that_cannot_fit_says_what_was_tried() -> None:
    model = parse(
        """g (float[1,S] x) => (float[1,2] y, float[1,2] z) {
            y = MatMul(x, w)
            z = MatMul(x, v)
        }""",
        {"w": zeros(4, 2), "v": zeros(6, 2)},
    )
    found = _by_shapes(model)
    assert not found.is_found
    assert f"{found.tried} choices of sizes did not fit. The last one: " in str(found.error)
    assert "onnx.checker" not in str(found.error)


def test_a_model_without_open_sizes_that_does_not_run_says_nothing_of_sizes() -> None:
    model = parse("g (float[1,4] x) => (float[1,4] y) { y = custom.Unknown(x) }")
    found = find_sizes(open_model(model), setup=Setup())
    assert str(found.error).startswith("as the model was loaded: ")


def test_the_budget_ends_a_search() -> None:
    model = parse(
        "g (float[1,S] x) => (float[1,2] y) { a = MatMul(x, w)  y = MatMul(x, v) }",
        {"w": zeros(4, 2), "v": zeros(6, 2)},
    )
    seconds = count()
    found = find_sizes(open_model(model), budget_s=10, clock=lambda: next(seconds))
    # The clock is asked before each of them.
    assert 4 <= found.tried <= 14


def test_an_error_about_something_else_has_no_sizes() -> None:
    assert sizes_for(ModelPerfError("no file")) is None


def test_the_first_choices_of_many_dimensions_come_at_once() -> None:
    many = tuple(Candidate(size, "") for size in range(50))
    found = choices([OpenDim(f"d{at}", many) for at in range(40)])
    assert set(next(found)) == {f"d{at}" for at in range(40)}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_choice_comes_once_and_the_first_ones_together(lengths: list[int]) -> None:
    dims = [
        OpenDim(f"d{at}", tuple(Candidate(rank, "") for rank in range(length)))
        for at, length in enumerate(lengths)
    ]
    found = [tuple(each.size for each in choice.values()) for choice in choices(dims)]
    total = 1
    for length in lengths:
        total *= length
    assert len(found) == len(set(found)) == total
    together = found[: max(lengths)]
    assert all(
        a <= b for one, next_one in pairwise(together) for a, b in zip(one, next_one, strict=True)
    )


def test_a_size_below_a_window_does_not_fit() -> None:
    assert _by_shapes(parse(WIDE_WINDOW, {"w": zeros(1, 1, 100)})).sizes == {"S": 224}
