"""Strings and tokens: one MOV for each string of any length.

Strings have no size before a run. If the cost *is* their length, it cannot be counted at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_modelperf.graph.operators.cost import ADD, CMP, MOV, MUL, Cost
from pytest_modelperf.graph.operators.elementwise import MOD
from pytest_modelperf.graph.operators.operator import (
    MAKES,
    ONE,
    ZERO,
    Demand,
    DemandRule,
    Operator,
    elementwise,
    per_input,
    per_output,
    sized,
    worded,
)
from pytest_modelperf.graph.shape_rules import (
    Dim,
    Outputs,
    OutputType,
    dim,
    dtype_of,
    has_input,
    int_of,
    like,
    outputs,
    product,
    shape_of,
    stated_size,
    total,
)
from pytest_modelperf.graph.structure import BITS, Node, Shape

# Longer n-grams do not come from real text, but from a file made to take forever.
MAX_GRAM = 1024


def count_tf_idf(node: Node) -> Cost:
    """Count a look-up of every n-gram token by token, and a move or product for each output."""
    # With s tokens skipped, a row of L tokens has L - (n - 1) * (s + 1) n-grams. Single tokens do
    # not skip.
    x = node.input(0)
    length = x.dims[-1] if x.rank else 1
    skips = node.attr_int("max_skip_count", 0)
    shortest, longest = node.attr_int("min_gram_length", 1), node.attr_int("max_gram_length", 1)
    if not 0 < shortest <= longest <= MAX_GRAM or not 0 <= skips <= MAX_GRAM:
        raise ValueError(f"n-grams of {shortest} to {longest} tokens that skip {skips}")
    lookups = 0
    for n in range(shortest, longest + 1):
        for skipped in range(skips + 1 if n > 1 else 1):
            lookups += n * max(0, length - (n - 1) * (skipped + 1))
    rows = x.size // length if length else 0
    per_output = MOV if node.attr_str("mode", "TF") == "TF" else MUL
    return elementwise(rows * lookups * CMP + node.output().size * per_output)


def count_ngram_repeat_block(node: Node) -> Cost:
    """Count comparisons of each position with the last n - 1 tokens, and moves of the scores."""
    compared = node.input(0).size * max(0, node.attr_int("ngram_size", 1) - 1)
    return elementwise(compared * CMP + node.input(1).size * MOV)


def count_ngram_hash(node: Node, *, head_offsets: int = 4) -> Cost:
    """Count products of tokens and constants, their xor, and a modulus of that for each hash."""
    orders = node.attr_int("max_ngram_size", 2)
    offset = ADD if has_input(node, head_offsets) else 0
    mixed = node.input(0).size * (orders * MUL + (orders - 1) * CMP)
    return elementwise(mixed + node.output().size * (MOD + offset))


def count_murmur_hash(node: Node) -> Cost:
    """Count MurmurHash3_x86_32 of each number: 11 operations for every four bytes, 9 to finish."""
    # https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp: a rotation is two shifts
    # and an or. A string counts as one word.
    words = max(1, BITS.get(node.input(0).dtype or "", 32) // 32)
    body = 3 * MUL + ADD + 7 * CMP
    finish = 2 * MUL + 7 * CMP
    return elementwise(node.input(0).size * (words * body + finish))


_PATTERN = "its cost depends on the pattern and the length of the strings"
_DIFFERENCE = "its cost depends on where the tokens first differ"
_SEARCH = "its decoder runs until the tokens that it makes say stop"


def shape_murmur_hash(node: Node) -> Outputs:
    return outputs("uint32" if node.attr_int("positive", 1) else "int32", shape_of(node, 0))


def shape_tokenizer(node: Node) -> Outputs:
    """Return the number of tokens of the longest string for each string."""
    shape = shape_of(node, 0)
    return outputs("string", None if shape is None else (*shape, None))


def shape_bifurcation(node: Node) -> Outputs:
    merged: Shape | None = (None,) if has_input(node, 3) else shape_of(node, 1)
    return outputs("int64", merged, shape_of(node, 2))


def _ngram_order(node: Node) -> Dim:
    return total(stated_size(node, "max_ngram_size"), -1)


def shape_ngram_hash(node: Node) -> Outputs:
    ids, order, dtype = shape_of(node, 0), _ngram_order(node), dtype_of(node, 0)
    heads = product(order, stated_size(node, "n_head_per_ngram"))
    batch, length = dim(ids, 0), dim(ids, 1)
    return outputs(dtype, (batch, length, heads), (batch, order))


def shape_varlen_ngram_hash(node: Node) -> Outputs:
    order, dtype = _ngram_order(node), dtype_of(node, 0)
    heads = product(order, stated_size(node, "n_head_per_ngram"))
    batch = total(dim(shape_of(node, 3), 0), -1)
    return (
        OutputType(dtype, (dim(shape_of(node, 0), 0), heads)),
        OutputType(dtype, (batch, order)),
        OutputType("int32", (batch, order)),
        OutputType(dtype, (batch, node.attr_int("state_update_capacity", 0), order)),
    )


def shape_speculative_prefix_commit(node: Node) -> Outputs:
    """Return a length for each request, with a vector of predictions as one request."""
    predicted = shape_of(node, 0)
    batch = 1 if predicted is not None and len(predicted) == 1 else dim(predicted, 0)
    return (OutputType("int32", (batch,)), *like(3, 4)(node))


def shape_search(node: Node) -> Outputs:
    """Return generated tokens, padded to the maximal length, and the last filtered logits."""
    batch = dim(shape_of(node, 0), 0)
    vocabulary = node.attr_int("vocab_size", -1)
    logits = (batch, vocabulary if vocabulary > 0 else None)
    return OutputType("int32", (batch, int_of(node, 1))), OutputType("float32", logits)


def shape_beam_search(node: Node) -> Outputs:
    """Return generated tokens, each sequence's score, and scores of the vocabulary at each step."""
    # Whisper's variant also returns the attention to the audio and the probability of no speech;
    # their shapes depend on its decoder.
    prompt, longest, returned = shape_of(node, 0), int_of(node, 1), int_of(node, 4)
    batch, vocabulary = dim(prompt, 0), node.attr_int("vocab_size", -1)
    steps = None
    if longest is not None and dim(prompt, 1) is not None:
        steps = total(longest, product(-1, dim(prompt, 1)))
    scores = (steps, batch, int_of(node, 3), vocabulary if vocabulary > 0 else None)
    penalty = next((index for index in (5, 6) if has_input(node, index)), None)
    dtype = "float32" if penalty is None else dtype_of(node, penalty)
    return (
        OutputType("int32", (batch, returned, longest)),
        OutputType(dtype, (batch, returned)),
        OutputType(dtype, scores),
        OutputType("float32", None),
        OutputType("float32", (batch,)),
    )


# How many tokens a search makes, unless the user sets it.
_NEW_TOKENS = 16


def _longest_text(node: Node, _: int) -> Demand:
    """Ask for the length of the decoder's prompt, if it has one, and some new tokens."""
    is_decoder = node.op_type != "WhisperBeamSearch" and node.attr_int("model_type", 0) == 0
    prompt = dim(shape_of(node, 0 if is_decoder else 10), 1) or 1
    return Demand(low=1, value=prompt + _NEW_TOKENS, decides=worded(node, MAKES))


# The longest and shortest text, penalties, and masks of words and of the prompt.
_SEARCH_INPUTS: Mapping[int, Demand | DemandRule] = {
    1: _longest_text, 2: ZERO, 3: ONE, 4: ONE, 5: ONE, 6: ONE,
}  # fmt: skip
# The same, after the numbers of beams and of returned texts.
_BEAM_INPUTS: Mapping[int, Demand | DemandRule] = {
    1: _longest_text, 2: ZERO, 3: sized("how many beams {} keeps", 4),
    4: Demand(low=1, value=1), 5: ONE, 6: ONE, 7: ONE, 8: ONE, 9: ONE, 11: ZERO,
}  # fmt: skip


OPERATORS: Mapping[str, Operator] = {
    "ImageDecoder": Operator(
        uncounted="its cost depends on the format and the bytes of the encoded image"
    ),
    "RegexFullMatch": Operator(uncounted=_PATTERN),
    "StringConcat": Operator(per_output(MOV)),
    "StringNormalizer": Operator(per_input(MOV)),
    "StringSplit": Operator(per_input(MOV)),
    "TfIdfVectorizer": Operator(count_tf_idf),
    "com.microsoft::BeamSearch": Operator(
        shapes=shape_beam_search, demands=_BEAM_INPUTS, uncounted=_SEARCH,
    ),
    "com.microsoft::BifurcationDetector": Operator(shapes=shape_bifurcation, uncounted=_DIFFERENCE),
    "com.microsoft::GreedySearch": Operator(
        shapes=shape_search, demands=_SEARCH_INPUTS, uncounted=_SEARCH,
    ),
    "com.microsoft::MurmurHash3": Operator(count_murmur_hash, shape_murmur_hash),
    "com.microsoft::NGramHashMapping": Operator(count_ngram_hash, shape_ngram_hash),
    "com.microsoft::NGramRepeatBlock": Operator(count_ngram_repeat_block, like(1)),
    "com.microsoft::Sampling": Operator(
        shapes=shape_search, demands=_SEARCH_INPUTS, uncounted=_SEARCH,
    ),
    "com.microsoft::SpeculativePrefixCommit": Operator(
        shapes=shape_speculative_prefix_commit, uncounted=_DIFFERENCE,
    ),
    "com.microsoft::Tokenizer": Operator(shapes=shape_tokenizer, uncounted=_PATTERN),
    "com.microsoft::VarlenNGramHashMapping": Operator(
        partial(count_ngram_hash, head_offsets=5), shape_varlen_ngram_hash,
    ),
    "com.microsoft::WhisperBeamSearch": Operator(
        shapes=shape_beam_search, demands={**_BEAM_INPUTS, 12: ZERO, 14: ONE}, uncounted=_SEARCH,
    ),
}  # fmt: skip
