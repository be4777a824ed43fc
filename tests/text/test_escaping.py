"""Text for streams that cannot take every character."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import encodable, encoding_of, typeset


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("+10.8 … +12.8 %", "+10.8...+12.8 %"),
        ("a_long_na…", "a_long_na~"),
        ("1.20 ± 0.10 ms", "1.20 +-0.10 ms"),
        ("1.20 → 1.31", "1.20 ->1.31"),
        ("▁▂█", "128"),
        ("größe.onnx", "gr\\xf6\\xdfe.onnx"),
        ("模型", "\\u6a21\\u578b"),
    ],
)
def test_our_own_signs_become_plain_and_others_are_escaped(text: str, plain: str) -> None:
    assert encodable(text, "ascii") == plain
    assert encodable(text, "utf-8") == text


def test_characters_that_a_stream_can_take_stay() -> None:
    assert encodable("größe ± 1", "latin-1") == "größe ± 1"


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_printable_text_can_always_be_encoded(text: str, encoding: str) -> None:
    encodable(text, encoding).encode(encoding)


def test_a_page_for_ascii_keeps_its_lines_and_columns() -> None:
    page = TextStyle(encoding="ascii").page()
    columns = (Column("case", is_text=True), Column("interval"), Column("ms"))
    rows = (("b1", "-1.0 … +1.0 %", "9.2 ± 0.1"), ("b8", "+2.0 … +3.0 %", "88 ± 2"))
    page.table(Table("", columns, rows))
    assert page.text() == (
        "\n"
        "case       interval         ms\n"
        "------------------------------\n"
        "b1    -1.0...+1.0 %  9.2 +-0.1\n"
        "b8    +2.0...+3.0 %     88 +-2\n"
    )


def test_columns_are_aligned_next_to_a_name_that_the_stream_cannot_take() -> None:
    page = TextStyle(width=20, encoding="ascii").page()
    columns = (Column("layer", is_text=True, is_name=True), Column("±"))
    page.table(Table("", columns, (("größe", "1"), ("conv", "12"), ("größen.und.gewichte", "3"))))
    assert page.text() == (
        "\n"
        "layer             +-\n"
        "--------------------\n"
        "gr\\xf6\\xdfe        1\n"
        "conv              12\n"
        "gr\\xf6\\~gewichte   3\n"
    )


def test_a_stream_in_memory_takes_every_character() -> None:
    assert encoding_of(io.StringIO()) == "utf-8"
    assert encoding_of(io.TextIOWrapper(io.BytesIO(), encoding="latin-1")) == "latin-1"


def test_a_stream_that_can_write_them_gets_a_minus_sign_and_an_arrow() -> None:
    assert typeset("a -> b: -1.3 % (-2 … 0), block-3") == "a → b: −1.3 % (−2 … 0), block-3"
    assert typeset("a -> b: -1.3 %", "ascii") == "a -> b: -1.3 %"
