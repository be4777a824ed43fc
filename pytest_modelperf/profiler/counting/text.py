"""The cost of operators on strings and tokens: one MOV for each string, whatever its length.

Strings have no size before a run. Where the cost *is* their length, it cannot be told at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_modelperf.graph.structure import BITS, Node
from pytest_modelperf.profiler.counting.cost import ADD, CMP, MOV, MUL, Cost, Counter
from pytest_modelperf.profiler.counting.elementwise import MOD
from pytest_modelperf.profiler.counting.per_element import (
    elementwise,
    per_input_element,
    per_output_element,
)

# Longer n-grams are no real text, but a file made to take forever.
MAX_GRAM = 1024


def count_tf_idf(node: Node) -> Cost:
    """Every n-gram of every row is looked up token by token; each output is moved or weighted.

    With s tokens skipped, a row of L tokens has L - (n - 1) * (s + 1) n-grams; single tokens
    skip nothing.
    """
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
    """Each position of the text is compared with the last n - 1 tokens; scores are moved."""
    compared = node.input(0).size * max(0, node.attr_int("ngram_size", 1) - 1)
    return elementwise(compared * CMP + node.input(1).size * MOV)


def count_ngram_hash(node: Node, *, head_offsets: int = 4) -> Cost:
    """Tokens are multiplied by constants and joined by xor; each hash is a modulus of that."""
    orders = node.attr_int("max_ngram_size", 2)
    offset = ADD if node.optional_input(head_offsets) is not None else 0
    mixed = node.input(0).size * (orders * MUL + (orders - 1) * CMP)
    return elementwise(mixed + node.output().size * (MOD + offset))


def count_murmur_hash(node: Node) -> Cost:
    """MurmurHash3_x86_32 of each number: 11 operations for every four bytes, 9 to finish.

    https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp: a rotation is two shifts
    and an or. A string counts as one word.
    """
    words = max(1, BITS.get(node.input(0).dtype or "", 32) // 32)
    body = 3 * MUL + ADD + 7 * CMP
    finish = 2 * MUL + 7 * CMP
    return elementwise(node.input(0).size * (words * body + finish))


COUNTERS: Mapping[str, Counter] = {
    "StringConcat": per_output_element(MOV),
    "StringNormalizer": per_input_element(MOV),
    "StringSplit": per_input_element(MOV),
    "TfIdfVectorizer": count_tf_idf,
    "com.microsoft::MurmurHash3": count_murmur_hash,
    "com.microsoft::NGramHashMapping": count_ngram_hash,
    "com.microsoft::NGramRepeatBlock": count_ngram_repeat_block,
    "com.microsoft::VarlenNGramHashMapping": partial(count_ngram_hash, head_offsets=5),
}

_SEARCH = "its decoder runs until the tokens that it makes say stop"

UNTELLABLE: Mapping[str, str] = {
    "ImageDecoder": "its cost depends on the format and the bytes of the encoded image",
    "RegexFullMatch": "its cost depends on the pattern and the length of the strings",
    "com.microsoft::BeamSearch": _SEARCH,
    "com.microsoft::BifurcationDetector": "its cost depends on where the tokens first differ",
    "com.microsoft::GreedySearch": _SEARCH,
    "com.microsoft::Sampling": _SEARCH,
    "com.microsoft::SpeculativePrefixCommit": "its cost depends on where the tokens first differ",
    "com.microsoft::Tokenizer": "its cost depends on the pattern and the length of the strings",
    "com.microsoft::WhisperBeamSearch": _SEARCH,
}
