"""Words of messages: their width on a terminal, cut names, and texts that a user types."""

from __future__ import annotations

import ast
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.text.words import (
    cut_end,
    cut_middle,
    cut_names,
    display_width,
    quoted_text,
    toml_key,
)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("conv", 4),
        ("größe", 5),
        ("gro\u0308\u00dfe", 5),
        ("模型", 4),
        # Thai, with two marks above its first letter.
        ("ที่", 1),
        # Hindi, with a mark above and a vowel after it.
        ("\u0939\u093f\u0902", 2),
        # The Korean word for a model, as syllables and in parts.
        ("모델", 4),
        ("\u1106\u1169\u1103\u1166\u11af", 4),
    ],
)
def test_the_width_of_a_text_counts_what_takes_a_column(text: str, columns: int) -> None:
    assert display_width(text) == columns


YOLO = [f"/model.22/cv{branch}.0/cv{branch}.0.{at}/conv/Conv" for branch in (2, 3) for at in (0, 1)]
VARIABLES = [f"model_{layer}_BiasAdd_ReadVariableOp" for layer in ("conv2d", "dense", "logits")]
# Different ends around a middle that is the only difference.
BLOCKS = [f"encoder.layers.attention.{at}.self.projection.MatMul" for at in range(12)]


@pytest.mark.parametrize("names", [YOLO, VARIABLES, BLOCKS])
@pytest.mark.parametrize("width", [14, 16, 20, 24, 30])
def test_different_names_of_a_list_never_look_the_same(names: list[str], width: int) -> None:
    shown = cut_names(names, width)

    assert len(set(shown.values())) == len(names)
    assert all(display_width(text) <= width for text in shown.values())


@given(st.text(st.characters(exclude_characters="…")), st.integers(3, 40))
def test_a_text_without_its_middle_keeps_both_ends_and_has_that_many_characters(
    text: str, most: int
) -> None:
    cut = cut_middle(text, most)
    if len(text) <= most:
        assert cut == text
    else:
        head, _, tail = cut.partition("…")
        assert len(cut) == most
        assert text.startswith(head)
        assert text.endswith(tail)


def test_a_name_without_a_double_is_cut_in_the_middle() -> None:
    shown = cut_names(["first.block.conv.weight", "other.thing.norm.biases"], 13)

    assert list(shown.values()) == ["first.…weight", "other.…biases"]


def test_names_are_cut_where_they_are_alike() -> None:
    assert list(cut_names(VARIABLES, 24).values()) == [
        "model_conv2…adVariableOp",
        "model_dense…adVariableOp",
        "model_logit…adVariableOp",
    ]
    assert list(cut_names(YOLO, 16).values()) == [
        "…2.0.0/conv/Conv",
        "…2.0.1/conv/Conv",
        "…3.0.0/conv/Conv",
        "…3.0.1/conv/Conv",
    ]


def test_names_that_differ_between_their_ends_are_shown_around_the_difference() -> None:
    assert list(cut_names(BLOCKS[:2], 16).values()) == ["…ention.0.self.…", "…ention.1.self.…"]


def test_names_of_wide_characters_keep_both_ends() -> None:
    names = ["日本語日本語甲日本語", "日本語日本語乙日本語"]

    assert list(cut_names(names, 14).values()) == ["日本…甲日本語", "日本…乙日本語"]


def test_one_name_in_two_rows_does_not_count_as_double() -> None:
    assert cut_names(["a_long_name", "a_long_name"], 7) == {"a_long_name": "a_l…ame"}


def test_names_that_fit_stay_as_they_are() -> None:
    assert cut_names(["short", "", "exactly ten"], 11) == {
        name: name for name in ("short", "", "exactly ten")
    }


@given(
    st.lists(st.text("ab/☃漢", min_size=1, max_size=30), max_size=12, unique=True),
    st.integers(4, 20),
)
def test_nothing_is_wider_than_the_width(names: list[str], width: int) -> None:
    shown = cut_names(names, width)

    assert list(shown) == names
    assert all(display_width(text) <= width for text in shown.values())
    assert all(display_width(cut_end(name, width)) <= width for name in names)


@given(st.text("xyz", min_size=60, max_size=60), st.integers(0, 59), st.integers(8, 30))
def test_a_single_difference_is_shown_wherever_it_is(name: str, place: int, width: int) -> None:
    other = f"{name[:place]}-{name[place + 1 :]}"

    shown = cut_names([name, other], width)

    assert shown[name] != shown[other]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_the_same_in_toml_and_in_python(text: str) -> None:
    assert ast.literal_eval(quoted_text(text)) == text
    assert tomllib.loads(f"key = {quoted_text(text)}") == {"key": text}
    assert tomllib.loads(f"{toml_key(text)} = 1") == {text: 1}
