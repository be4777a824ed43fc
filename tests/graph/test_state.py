"""State is found by the conventions of exporters; else an error says how to name it."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given
from inline_snapshot import snapshot

from examples.generating.make_decoder import DecoderShape, make_decoder
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.binding import DeclaredInput, Dim
from pytest_modelperf.graph.load import declared_inputs, declared_outputs
from pytest_modelperf.graph.state import Count, InputAxis, LengthInput, State, StatePair, find_state

_LETTERS = {"i": "int64", "f": "float32", "b": "bool"}


def _declared(text: str) -> tuple[DeclaredInput, ...]:
    """Inputs or outputs, one a line: `i input_ids batch seq`, with `?` for a nameless dimension."""
    return tuple(
        DeclaredInput(name, _LETTERS[kind], tuple(map(_dim, dims)))
        for kind, name, *dims in filter(None, (line.split() for line in text.splitlines()))
    )


def _dim(text: str) -> Dim:
    if text == "?":
        return None
    return int(text) if text.isdigit() else text.replace("+", " + ")


def _state(inputs: str, outputs: str, named: Mapping[str, str] | None = None) -> State:
    return find_state(_declared(inputs), _declared(outputs), named, "m.onnx")


def _refusal(inputs: str, outputs: str, named: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        _state(inputs, outputs, named)
    return str(caught.value)


def test_a_decoder_of_optimum_has_caches_that_grow() -> None:
    state = _state(
        """
        i input_ids batch_size sequence_length
        i attention_mask batch_size past_sequence_length+sequence_length
        i position_ids batch_size sequence_length
        f past_key_values.0.key batch_size 2 past_sequence_length 16
        f past_key_values.0.value batch_size 2 past_sequence_length 16
        """,
        """
        f logits batch_size sequence_length 1000
        f present.0.key batch_size 2 past_sequence_length+sequence_length 16
        f present.0.value batch_size 2 past_sequence_length+sequence_length 16
        """,
    )
    assert state == snapshot(
        State(
            pairs=(
                StatePair(past="past_key_values.0.key", present="present.0.key", grows=2),
                StatePair(past="past_key_values.0.value", present="present.0.value", grows=2),
            ),
            tokens=(InputAxis(name="input_ids", axis=1),),
            masks=(InputAxis(name="attention_mask", axis=1),),
            positions=("position_ids",),
        )
    )


_CROSS = """
    i input_ids batch_size decoder_sequence_length
    i encoder_attention_mask batch_size encoder_sequence_length
    f past_key_values.0.decoder.key batch_size 4 past_decoder_sequence_length 16
    f past_key_values.0.encoder.key batch_size 4 encoder_sequence_length 16
"""
_GROWN = "f present.0.decoder.key batch_size 4 past_decoder_sequence_length+1 16"


def test_a_merged_decoder_has_a_branch_and_keeps_what_comes_from_the_encoder() -> None:
    state = _state(
        f"""
        {_CROSS}
        f encoder_hidden_states batch_size encoder_sequence_length 64
        b use_cache_branch 1
        """,
        f"""
        f logits batch_size decoder_sequence_length 1000
        {_GROWN}
        f present.0.encoder.key batch_size 4 encoder_sequence_length_out 16
        """,
    )

    assert state.branch == "use_cache_branch"
    assert [pair.past for pair in state.pairs] == ["past_key_values.0.decoder.key"]
    assert state.fixed == (
        "encoder_attention_mask",
        "past_key_values.0.encoder.key",
        "encoder_hidden_states",
    )
    assert state.has_prefill
    assert state.has_steps


def test_a_decoder_with_past_alone_has_steps_alone() -> None:
    state = _state(_CROSS, f"f logits batch_size 1 1000\n{_GROWN}")
    assert not state.has_prefill
    assert state.chunk == 1
    assert state.tokens == (InputAxis("input_ids", 1),)


def test_a_decoder_without_past_has_a_prefill_alone() -> None:
    state = _state("i input_ids batch seq", "f logits batch seq 9\nf present.0.key batch 4 seq 16")
    assert state.has_prefill
    assert not state.has_steps


def test_one_tensor_may_hold_keys_and_values() -> None:
    state = _state(
        """
        i input_ids batch_size seq_len
        i attention_mask batch_size total_seq_len
        f past_0 2 batch_size 4 past_seq_len 16
        """,
        "f logits batch_size seq_len 9\nf present_0 2 batch_size 4 total_seq_len 16",
    )
    assert state.pairs == (StatePair("past_0", "present_0", 3),)


def test_onnxruntime_genai_counts_tokens_in_lengths() -> None:
    state = _state(
        """
        i input_ids batch_size sequence_length
        i seqlens_k batch_size
        i total_sequence_length 1
        i past_sequence_length 1
        f past_key_self_0 batch_size 4 past_sequence_length 16
        f past_key_cross_0 batch_size 4 1500 16
        i cache_indirection batch_size beam_width max_sequence_length
        """,
        """
        f logits batch_size sequence_length 9
        f present_key_self_0 batch_size 4 total_sequence_length 16
        """,
    )
    assert state.lengths == (
        LengthInput("seqlens_k", Count.LAST),
        LengthInput("total_sequence_length", Count.TOTAL),
        LengthInput("past_sequence_length", Count.BEFORE),
    )
    assert state.fixed == ("past_key_cross_0", "cache_indirection")


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_k0", "present_k0"),
        ("past_key_values_key_cache_0", "key_cache_0"),
        ("past_key_values", "present_key_values"),
        ("past", "present"),
        ("k_cache_0", "new_k_cache_0"),
        ("k_cache.0", "k_cache_out.0"),
        ("past_key_values.3.key", "present.3.key"),
        ("past_kv", "present_kv"),
        ("kvCacheIn", "kvCacheOut"),
        ("att_cache", "r_att_cache"),
        ("h0", "hn"),
        ("h_0", "h_n"),
        ("state", "stateN"),
        ("state_in", "state_out"),
        ("input_states_1", "output_states_1"),
        ("cached_key_0", "new_cached_key_0"),
        ("cache_last_channel", "cache_last_channel_next"),
        ("initial_hidden", "final_hidden"),
        ("prev_frame", "frame"),
        ("past_key_values.0.conv_state", "present.0.conv_state"),
    ],
)
def test_names_that_differ_in_direction_are_a_pair(past: str, present: str) -> None:
    state = _state(
        f"f features batch time 40\nf {past} 2 batch 64",
        f"f logits batch time 9\nf {present} 2 batch 64",
    )
    assert state.pairs == (StatePair(past, present),)
    assert state.tokens == (InputAxis("features", 1),)


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("audio_in", "audio_out"),
        ("input", "output"),
        ("input_ids", "new_ids"),
        ("x", "y"),
        ("hidden_states", "output_hidden_states"),
        ("past_key", "present_value"),
    ],
)
def test_other_names_are_not_a_pair(past: str, present: str) -> None:
    refused = _refusal(f"f {past} 2 batch 64", f"f {present} 2 batch 64")
    assert "is not understood" in refused


@pytest.mark.parametrize(
    ("past", "present", "grows"),
    [
        ("batch 4 past 16", "batch 4 total 16", 2),
        ("batch 4 past 16", "batch 4 past+seq 16", 2),
        ("batch 4 ? 16", "batch 4 ? 16", 2),
        ("batch 4 past 16", "batch 4 ? 16", 2),
        ("batch 4 past 16", "? ? ? ?", 2),
        ("batch past 4 16", "batch Concat_dim_1 4 16", 1),
        ("batch heads past 16", "batch Add_dim_1 total 16", 2),
        ("batch 4 256 16", "batch 4 256 16", None),
        ("batch 4 max 16", "batch 4 max 16", None),
        ("batch 4 256 16", "? ? ? ?", None),
        ("2 batch 64", "2 ? 64", None),
        ("batch 32", "batch 32", None),
    ],
)
def test_the_axis_of_the_length_grows(past: str, present: str, grows: int | None) -> None:
    state = _state(
        f"i input_ids batch seq\nf past.0 {past}", f"f logits batch seq 9\nf present.0 {present}"
    )
    assert state.pairs[0].grows == grows


def test_a_present_without_a_shape_grows_if_the_past_is_open() -> None:
    inputs = _declared("i input_ids batch seq\nf past.0 batch 4 past 16")
    outputs = [DeclaredInput("present.0", None, None)]
    assert find_state(inputs, outputs).pairs == (StatePair("past.0", "present.0", 2),)


@pytest.mark.parametrize(
    ("given", "tokens", "chunk"),
    [
        ("i input_ids batch seq", "input_ids 1", None),
        ("f inputs_embeds batch seq 64", "inputs_embeds 1", None),
        ("f audio_signal batch 80 time", "audio_signal 2", None),
        ("f x time batch 80", "x 0", None),
        ("i input_ids ? ?", "input_ids 1", None),
        ("f x batch 45 80", "x 1", 45),
        ("i token batch 1", "token 1", 1),
        ("f x 1 1 80", "x 1", 1),
        ("f frame batch 80", "", 1),
    ],
)
def test_tokens_are_along_the_open_axis_or_are_a_chunk(
    given: str, tokens: str, chunk: int | None
) -> None:
    batch = "?" if "?" in given else "1" if given == "f x 1 1 80" else "batch"
    state = _state(f"{given}\nf h0 2 {batch} 64", f"f y 1 9\nf hn 2 {batch} 64")

    name, _, axis = tokens.partition(" ")
    assert state.tokens == ((InputAxis(name, int(axis)),) if name else ())
    assert state.chunk == chunk


@pytest.mark.parametrize(
    ("given", "dims", "chunk"),
    [
        ("f input ? ?", {"input.1": 576}, 576),
        ("f input batch samples", {"samples": 512}, 512),
        ("f input batch samples", {"batch": 2}, None),
        ("f input batch 45 80", {"batch": 2}, 45),
    ],
)
def test_a_size_that_is_given_for_the_tokens_is_that_of_a_window(
    given: str, dims: Mapping[str, int], chunk: int | None
) -> None:
    batch = "?" if "?" in given else "batch"
    declared = _declared(f"{given}\nf state 2 {batch} 64"), _declared(f"f stateN 2 {batch} 64")
    state = find_state(*declared, dims=dims)

    assert state.chunk == chunk
    assert state.is_window == (chunk in dims.values())


def test_inputs_of_the_same_length_as_the_tokens_are_tokens_too() -> None:
    state = _state(
        "i input_ids batch seq\ni type_ids batch seq\nf image batch 3 8 8\nf past batch 4 old 8",
        "f logits batch seq 9\nf present batch 4 new 8",
    )
    assert [each.name for each in state.tokens] == ["input_ids", "type_ids"]
    assert state.fixed == ("image",)


def test_named_pairs_come_before_what_the_names_say() -> None:
    state = _state(
        "f x batch time 40\nf a 2 batch 64\nf b 2 batch 64\nf memory_state batch 8",
        "f y batch time 9\nf p 2 batch 64\nf q 2 batch 64",
        {"a": "q", "b": "p", "memory_state": ""},
    )
    assert state.pairs == (StatePair("a", "q"), StatePair("b", "p"))
    assert state.fixed == ("memory_state",)


def test_an_input_declared_as_constant_needs_no_output() -> None:
    state = _state(
        "i ids batch seq\nf past.0 batch 4 old 8\nf past.1 batch 4 old 8",
        "f logits batch seq 9\nf present.0 batch 4 new 8\nf present.1 batch 4 new 8",
        {"past.1": ""},
    )
    assert state.pairs == (StatePair("past.0", "present.0", 2),)
    assert state.fixed == ("past.1",)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"stat": "y"}, "has no input 'stat'. Did you mean 'state'?"),
        ({"state": "z"}, "has no output 'z'"),
        ({"state": "y"}, "y [batch, time, 9] does not fit the input state [2, batch, 64]"),
        ({"state": "n"}, "is int64 and cannot become the input 'state', which is float32"),
        ({"state": "s", "other": "s"}, "the output 's' is named twice"),
    ],
)
def test_named_pairs_that_cannot_be_are_refused(named: Mapping[str, str], said: str) -> None:
    refused = _refusal(
        "f x batch time 40\nf state 2 batch 64\nf other 2 batch 64",
        "f y batch time 9\nf s 2 batch 64\ni n 2 batch 64",
        named,
    )
    assert said in refused


def test_the_error_lists_inputs_and_outputs_and_what_to_type() -> None:
    refused = _refusal("i input_ids batch seq\nf memory batch ? 16", "f logits batch seq 9")
    assert refused == (
        "the state of m.onnx is not understood: it hands on no state from one inference to the "
        "next. Name each input and the output that becomes this input at the next inference: "
        "PAST=PRESENT. Without an output, the input stays the same. A decoder that was exported "
        "without its cache has no state: export it with one.\n"
        "  inputs:  input_ids [batch, seq], memory [batch, ?, 16]\n"
        "  outputs: logits [batch, seq, 9]"
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        (
            "i ids b s\nf past.0 b 4 p 8\nf past.1 b 4 p 8", "f present.0 b 4 t 8",
            "the input 'past.1' has the name of state, but no output fits",
        ),
        (
            "i ids b s\nf past.0 b 4 p 8", "f present.0 b 4 t 8\nf present.1 b 4 t 8",
            "the output 'present.1' has the name of state, but no input fits",
        ),
        (
            "i ids b s\nf past.0 b 4 127 8", "f present.0 b 4 128 8",
            "present.0 [b, 4, 128, 8] does not fit the input past.0 [b, 4, 127, 8]",
        ),
        (
            "i ids b s\nf past.0 b x y 8", "f present.0 b v w 8", "along several axes",
        ),
        ("f past.0 b 4 p 8", "f present.0 b 4 t 8", "no input holds its tokens or frames"),
        ("f audio b 80 3000", "f present_key_cross_0 b 4 1500 16", "it hands on no state"),
    ],
)  # fmt: skip
def test_half_a_state_is_refused(inputs: str, outputs: str, said: str) -> None:
    assert said in _refusal(inputs, outputs)


@pytest.mark.slow
@given(
    layers=st.integers(1, 3),
    heads=st.sampled_from([(1, 1), (4, 2), (4, 4)]),
    capacity=st.none() | st.just(24),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_inputs_and_outputs_does_not_matter(
    layers: int, heads: tuple[int, int], capacity: int | None, order: object
) -> None:
    shape = DecoderShape(layers, 16, *heads, vocabulary=8, capacity=capacity)
    proto = make_decoder(shape)
    inputs, outputs = list(declared_inputs(proto)), list(declared_outputs(proto))
    found = find_state(inputs, outputs)
    order.shuffle(inputs)  # type: ignore[attr-defined]  # a Random of hypothesis
    order.shuffle(outputs)  # type: ignore[attr-defined]  # the same

    again = find_state(inputs, outputs)

    assert set(again.pairs) == set(found.pairs)
    assert len(found.pairs) == 2 * layers
    assert {pair.grows for pair in found.pairs} == {2 if capacity is None else None}
    assert (again.tokens, again.masks) == (found.tokens, found.masks)
