"""The inputs of each inference follow from how many tokens came before and how many are new."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from examples.generating.make_decoder import DecoderShape, make_decoder
from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.binding import Binding, DeclaredInput, InputSpec, bind_inputs
from pytest_modelperf.graph.inference_inputs import StateInputs, TokenSpan, state_inputs
from pytest_modelperf.graph.load import declared_inputs, declared_outputs, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.state import Count, InputAxis, LengthInput, State, StatePair, find_state
from pytest_modelperf.graph.structure import GenerationPhase, Phase

_IDS = DeclaredInput("ids", "int64", ("batch", "seq"))
_PAST = DeclaredInput("past", "float32", ("batch", 2, "old_len", 8))
_GROWING = State((StatePair("past", "present", 2),), (InputAxis("ids", 1),))
_STATIC = State((StatePair("past", "present"),), (InputAxis("ids", 1),))


def _inputs(
    state: State, *more: DeclaredInput, before: int = 5, new: int = 1, **dims: int
) -> StateInputs:
    span = TokenSpan(before, new, capacity=12)
    return state_inputs(state, (_IDS, _PAST, *more), span, batch_size=2, dims=dims)


def _values(found: StateInputs) -> Mapping[str, tuple[float, ...] | None]:
    return {spec.name: spec.value for spec in found.values}


@pytest.mark.parametrize(
    ("before", "new", "dims"), [(0, 7, {"seq": 7, "old_len": 0}), (7, 1, {"seq": 1, "old_len": 7})]
)
def test_tokens_are_new_and_the_past_is_before(before: int, new: int, dims: object) -> None:
    assert _inputs(_GROWING, before=before, new=new).dims == dims


def test_a_nameless_dimension_is_called_by_its_place() -> None:
    past = DeclaredInput("past", "float32", ("batch", 2, None, 8))
    found = state_inputs(_GROWING, (_IDS, past), TokenSpan(5, 1, 12), batch_size=2)
    assert found.dims == {"seq": 1, "past.2": 5}


def test_an_open_static_cache_has_room_for_all_tokens_unless_its_size_is_given() -> None:
    assert _inputs(_STATIC).dims == {"seq": 1, "old_len": 12}
    assert _inputs(_STATIC, old_len=99).dims == {"seq": 1}


def test_one_dimension_of_two_sizes_is_refused() -> None:
    past = DeclaredInput("past", "float32", ("batch", 2, "seq", 8))
    with pytest.raises(BindingError, match=r"'seq' of the input 'past' has to be 5.*Export"):
        state_inputs(_GROWING, (_IDS, past), TokenSpan(5, 1, 12), batch_size=2)


def test_a_size_that_contradicts_the_tokens_is_refused() -> None:
    with pytest.raises(BindingError, match=r"has to be 1 .* is given as 3\. Leave its size out"):
        _inputs(_GROWING, seq=3)


_LOW = -10_000.0
MASKS: dict[str, tuple[State, DeclaredInput, int, int, InputSpec]] = {
    "all tokens are shown":
        (_GROWING, DeclaredInput("mask", "int64", ("batch", "old_len + seq")), 5, 1,
         InputSpec("mask", "int64", (2, 6), (1.0,))),
    "what is still empty in a static cache is hidden":
        (_STATIC, DeclaredInput("mask", "int64", (1, 12)), 5, 1,
         InputSpec("mask", "int64", (1, 12), (1.0,) * 6 + (0.0,) * 6)),
    "a row for each token is causal":
        (_GROWING, DeclaredInput("mask", "float32", (1, 1, "seq", "total")), 1, 3,
         InputSpec("mask", "float32", (1, 1, 3, 4),
                   (0.0, 0.0, _LOW, _LOW, 0.0, 0.0, 0.0, _LOW, 0.0, 0.0, 0.0, 0.0))),
    "a mask of the new tokens alone shows them":
        (_GROWING, DeclaredInput("mask", "bool", ("batch", "seq")), 5, 2,
         InputSpec("mask", "bool", (2, 2), (1.0,))),
}  # fmt: skip


@pytest.mark.parametrize(("of", "mask", "before", "new", "spec"), MASKS.values(), ids=MASKS)
def test_a_mask(of: State, mask: DeclaredInput, before: int, new: int, spec: InputSpec) -> None:
    axis = len(mask.dims or ()) - 1
    state = State(of.pairs, of.tokens, masks=(InputAxis("mask", axis),))
    assert _inputs(state, mask, before=before, new=new).values == (spec,)


def test_a_mask_without_room_for_all_tokens_is_refused() -> None:
    mask = DeclaredInput("mask", "int64", (1, 12))
    state = State(_STATIC.pairs, _STATIC.tokens, masks=(InputAxis("mask", 1),))
    with pytest.raises(BindingError, match="has room for 12 tokens, but the inference sees 13"):
        _inputs(state, mask, before=12)


@pytest.mark.parametrize(
    ("dims", "values"), [(("batch", "seq"), (5.0, 6.0) * 2), (("seq",), (5.0, 6.0)), ((), (5.0,))]
)
def test_positions_go_on_from_the_tokens_before(
    dims: tuple[str, ...], values: tuple[float, ...]
) -> None:
    state = State(_GROWING.pairs, _GROWING.tokens, positions=("pos",))
    found = _inputs(state, DeclaredInput("pos", "int64", dims), new=2)
    assert _values(found) == {"pos": values}


@pytest.mark.parametrize(
    ("counts", "value"), [(Count.BEFORE, 5), (Count.TOTAL, 8), (Count.LAST, 7), (Count.NEW, 3)]
)
def test_lengths_count_tokens(counts: Count, value: int) -> None:
    state = State(_GROWING.pairs, _GROWING.tokens, lengths=(LengthInput("n", counts),))
    found = _inputs(state, DeclaredInput("n", "int32", ("batch",)), new=3)
    assert found.values == (InputSpec("n", "int32", (2,), (float(value),)),)


@pytest.mark.parametrize(("before", "value"), [(0, 0.0), (5, 1.0)])
def test_the_branch_with_a_past_is_taken_if_there_is_one(before: int, value: float) -> None:
    state = State(_GROWING.pairs, _GROWING.tokens, branch="use")
    found = _inputs(state, DeclaredInput("use", "bool", (1,)), before=before)
    assert found.values == (InputSpec("use", "bool", (1,), (value,)),)


def test_a_state_that_counts_begins_with_the_tokens_before() -> None:
    lens = DeclaredInput("processed_lens", "int64", ("batch",))
    state = State((StatePair("processed_lens", "new_processed_lens"),), _GROWING.tokens)
    assert _values(_inputs(state, lens)) == {"processed_lens": (5.0,)}


def test_an_input_with_a_dimension_without_a_size_is_left_to_the_binding() -> None:
    mask = DeclaredInput("mask", "int64", ("batch", "rows", "total"))
    state = State(_GROWING.pairs, _GROWING.tokens, masks=(InputAxis("mask", 2),))

    found = _inputs(state, mask)

    assert found.values == ()
    assert "rows" not in found.dims


def test_a_cache_that_grows_although_it_is_declared_not_to_is_refused() -> None:
    proto = make_decoder()
    for output in proto.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            if "+" in dim.dim_param:
                dim.dim_param = "past_sequence_length"
    binding = Binding(phase=GenerationPhase(Phase.STEP, prompt=8, generate=4))

    with pytest.raises(BindingError) as caught:
        load_model(open_model(proto), binding)

    assert (
        "the output 'present.0.key' of the given model is 1x2x13x8 and the input "
        "'past_key_values.0.key' is 1x2x12x8, but it declares the same dimensions"
    ) in str(caught.value)


def _feed(
    proto: onnx.ModelProto, state: State, span: TokenSpan, ids: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[np.generic]]:
    declared = declared_inputs(proto)
    made = state_inputs(state, declared, span, batch_size=1)
    bound = bind_inputs(declared, Binding(1, made.dims, made.values), "decoder")
    feed: dict[str, npt.NDArray[np.generic]] = {}
    for each in declared:
        shape = bound.shapes[each.name]
        assert shape is not None
        values = bound.values.get(each.name)
        if values is not None:
            feed[each.name] = np.resize(np.array(values.value), shape).astype(each.dtype)
        else:
            feed[each.name] = np.zeros(shape, each.dtype)
    feed["input_ids"] = ids[None, span.before : span.before + span.new]
    return feed


@pytest.mark.parametrize("capacity", [None, 16], ids=["growing", "static"])
def test_steps_compute_what_one_inference_on_all_tokens_does(capacity: int | None) -> None:
    """Masks, positions and the axis of the cache are right: the last logits are the same."""
    proto = make_decoder(DecoderShape(capacity=capacity))
    state = find_state(declared_inputs(proto), declared_outputs(proto))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    ids = np.random.default_rng(0).integers(0, 64, 9)

    def infer(
        span: TokenSpan, past: Mapping[str, npt.NDArray[np.generic]]
    ) -> dict[str, npt.NDArray[np.float32]]:
        feed = _feed(proto, state, span, ids)
        assert {name: feed[name].shape for name in past} == {n: a.shape for n, a in past.items()}
        return dict(zip(names, session.run(None, {**feed, **past}), strict=True))

    whole = infer(TokenSpan(0, 9, 16), {})["logits"][:, -1]
    found = infer(TokenSpan(0, 4, 16), {})
    for before in range(4, 9):
        past = {pair.past: found[pair.present] for pair in state.pairs}
        found = infer(TokenSpan(before, 1, 16), past)

    np.testing.assert_allclose(found["logits"][:, -1], whole, atol=1e-5)
