"""Numbers survive their text, and no name can make a terminal do anything."""

from __future__ import annotations

import math
import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    change_decimals,
    exact_number,
    format_bytes,
    format_confidence,
    format_count,
    format_ms,
    format_shape,
    format_share,
    ms_decimals,
    parse_count,
)
from pytest_modelperf.text.words import shorten_list


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1"), (999, "999"), (1000, "1.000 k"), (1234, "1.234 k"),
        (12_345, "12.35 k"), (999_949, "999.9 k"), (999_999, "1.000 M"),
        (4_089_184_256, "4.089 G"), (25_610_152, "25.61 M"), (10**15, "1.000 P"),
        (10**18, "1.000 E"), (-1234, "-1.234 k"),
    ],
)  # fmt: skip
def test_a_count_has_four_digits_and_a_decimal_prefix(value: int, text: str) -> None:
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("ns", "decimals"),
    [
        (0, 3), (5_000_000, 3), (12_345, 3), (10_000, 3), (9_876, 4), (-3_500, 4), (460, 5),
        (46, 6), (0.4, 6),
    ],
)  # fmt: skip
def test_a_small_change_has_two_digits(ns: float, decimals: int) -> None:
    assert change_decimals(ns) == decimals


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (0.95, "95 %"), (0.982, "98.2 %"), (0.9985, "99.85 %"), (0.9999, "99.99 %"),
        (0.99995, "99.995 %"), (1 - 2.3e-6, "99.9998 %"),
        (1 - 1e-12, "99.9999999999 %"), (1, "100 %"),
    ],
)  # fmt: skip
def test_only_a_certain_confidence_is_100_percent(level: float, text: str) -> None:
    """A run of many cases has an error level of its own for each of their figures."""
    assert format_confidence(level) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"), (512, "512 B"), (999, "999 B"), (1024, "1.000 KiB"),
        (102_222_848, "97.49 MiB"), (2**30 - 1, "1.000 GiB"), (2**31, "2.000 GiB"),
    ],
)  # fmt: skip
def test_a_size_has_four_digits_and_a_binary_prefix(value: int, text: str) -> None:
    assert format_bytes(value) == text


def test_an_unknown_figure_is_a_question_mark_and_never_a_number() -> None:
    assert format_count(None) == format_bytes(None) == format_shape(None) == "?"
    assert format_share(None, 3) == format_share(3, None) == "?"


def test_a_share_of_nothing_is_nothing() -> None:
    assert format_share(0, 0) == "0.0 %"
    assert format_share(1, 3) == "33.3 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (123_456_789.0, "123456789"), (-2.0**63, "-9223372036854775808"), (0.1, "0.1"),
        (1e300, "1e+300"), (float("nan"), "nan"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_a_whole_number_keeps_all_of_its_digits(value: float, text: str) -> None:
    assert exact_number(value) == text


def test_a_shape_shows_each_dimension() -> None:
    assert format_shape((1, 3, None, 224)) == "1x3x?x224"
    assert format_shape(()) == "scalar"


@given(st.integers(0, 10**21))
def test_a_count_survives_its_text_to_four_digits(value: int) -> None:
    assert parse_count(format_count(value)) == pytest.approx(value, rel=5.1e-4)


@given(st.integers(0, 10**21), st.integers(0, 10**21))
def test_a_larger_count_never_reads_smaller(a: int, b: int) -> None:
    low, high = sorted((a, b))

    assert parse_count(format_count(low)) <= parse_count(format_count(high))


@given(st.integers(1000, 10**21))
def test_a_count_never_takes_more_than_four_digits(value: int) -> None:
    digits = sum(char.isdigit() for char in format_count(value))

    assert digits == 4 or value >= 10**22


@given(st.integers(1024, 2**70 - 1))
def test_a_size_never_shows_a_thousand_of_a_unit_that_has_a_larger_one(value: int) -> None:
    number, unit = format_bytes(value).split()

    assert unit == "EiB" or float(number) < 1024


@pytest.mark.parametrize(
    ("text", "value"),
    [("4.1G", 4_100_000_000), ("26M", 26_000_000), ("512", 512), (" 1.5 k ", 1500), ("2K", 2000),
     (".5M", 500_000), ("0", 0)],
)  # fmt: skip
def test_a_count_is_read_as_users_write_it(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "G", "-1", "1e9", "1 GB", "1,5G", "1..5", "4.1g", "\u0661"])
def test_a_text_that_is_not_a_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layer1/conv", "layer1/conv"),
        ("Größe 层 ñ", "Größe 层 ñ"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x00", r"\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\ufeffbom", r"\ufeffbom"),
        ("::error file=a::b", r"\x3a:error file=a::b"),
        ("a ::Set-Output name=b::c", r"a \x3a:Set-Output name=b::c"),
        ("a##[group]b ##vso[c]", r"a#\x23[group]b #\x23vso[c]"),
        ("a.onnx::b1-c1::errors ## [c]", "a.onnx::b1-c1::errors ## [c]"),
    ],
)
def test_characters_that_a_terminal_could_obey_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_lone_surrogate_can_be_written() -> None:
    """Paths that are not UTF-8 hold them: Python cannot print one."""
    assert printable("a\udc80b").encode("utf-8")


@given(st.text(st.characters(), max_size=40))
def test_shown_text_has_no_control_characters_and_does_not_change_again(text: str) -> None:
    shown = printable(text)

    assert not any(unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" for char in shown)
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40))
def test_a_plain_name_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_the_first_of_a_long_list_are_named_and_the_others_counted() -> None:
    assert shorten_list([], 2) == ""
    assert shorten_list(["a", "b"], 2) == "a, b"
    assert shorten_list(["a", "b", *"c" * 1000], 2) == "a, b and 1,000 more"


def test_a_time_beyond_the_largest_float_is_unknown() -> None:
    assert format_ms(math.inf) == format_ms(None)
    assert ms_decimals(math.inf) == 0
    assert format_ms(1.7e308).isdigit()
