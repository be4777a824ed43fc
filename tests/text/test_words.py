"""Words and their width on a terminal."""

from __future__ import annotations

import pytest

from pytest_modelperf.text.words import display_width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("conv", 4),
        ("größe", 5),
        ("gro\u0308\u00dfe", 5),
        ("模型", 4),
        # Thai, with two marks above its first letter.
        ("ที่", 1),
        # Hindi, with a mark above and a vowel beside it.
        ("\u0939\u093f\u0902", 2),
        # The Korean word for a model, as syllables and in parts.
        ("모델", 4),
        ("\u1106\u1169\u1103\u1166\u11af", 4),
    ],
)
def test_the_width_of_a_text_counts_what_takes_a_column(text: str, columns: int) -> None:
    assert display_width(text) == columns
