"""Strings and tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.graph.operators.cost import ADD, CMP, MOV, MUL
from pytest_modelperf.graph.operators.elementwise import MOD
from tests.graph.operators.nodes import node, ops, unknown


def test_a_string_is_a_move_however_long_it_is() -> None:
    assert ops(node("StringConcat", [(3, 1), (4,)], [(3, 4)], "string")) == 12 * MOV
    for op in ("StringNormalizer", "StringSplit"):
        assert ops(node(op, [(3, 4)], [unknown()], "string")) == 12 * MOV


@given(
    length=st.integers(1, 12),
    shortest=st.integers(1, 4),
    longer=st.integers(0, 2),
    skips=st.integers(0, 3),
)
def test_every_n_gram_is_looked_up(length: int, shortest: int, longer: int, skips: int) -> None:
    """The slow version starts an n-gram at each token and takes it if it fits the row."""
    tokens = 0
    for n in range(shortest, shortest + longer + 1):
        for skipped in range(skips + 1):
            if n == 1 and skipped:
                continue
            for start in range(length):
                if start + (n - 1) * (skipped + 1) < length:
                    tokens += n
    call = node(
        "TfIdfVectorizer", [(2, length)], [(2, 50)], min_gram_length=shortest,
        max_gram_length=shortest + longer, max_skip_count=skips, mode="TF",
    )  # fmt: skip
    assert ops(call) == 2 * tokens * CMP + 100 * MOV


def test_inverse_frequencies_are_multiplied() -> None:
    grams: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    call = node("TfIdfVectorizer", [(9,)], [(50,)], mode="TFIDF", **grams)
    assert ops(call) == 9 * CMP + 50 * MUL


def test_repeated_n_grams_are_searched_in_the_text() -> None:
    inputs = [(2, 20), (2, 1000)]
    call = node("com.microsoft::NGramRepeatBlock", inputs, [(2, 1000)], ngram_size=3)
    assert ops(call) == 40 * 2 * CMP + 2000 * MOV


@pytest.mark.parametrize(
    ("op", "offsets"), [("NGramHashMapping", 4), ("VarlenNGramHashMapping", 5)]
)
def test_hashes_take_a_modulus_each(op: str, offsets: int) -> None:
    inputs = [(2, 10), (3,), (8,)] + [None] * (offsets - 3)
    plain = node("com.microsoft::" + op, inputs, [(2, 10, 8)], max_ngram_size=3)
    assert ops(plain) == 20 * (3 * MUL + 2 * CMP) + 160 * MOD
    moved = node("com.microsoft::" + op, [*inputs, (8,)], [(2, 10, 8)], max_ngram_size=3)
    assert ops(moved) == ops(plain) + 160 * ADD


def test_a_hash_reads_four_bytes_at_a_time() -> None:
    def hashed(dtype: str) -> int:
        return ops(node("com.microsoft::MurmurHash3", [(5,)], [(5,)], dtype))

    assert hashed("int32") == 5 * 20
    assert hashed("int64") - hashed("int32") == 5 * 11
    assert hashed("string") == hashed("int32")
