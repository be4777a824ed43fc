"""What is printed to be typed is read back as the text that it stands for."""

from __future__ import annotations

import ast
import sys

from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.text.words import quoted_text, toml_key

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_the_same_in_toml_and_in_python(text: str) -> None:
    assert ast.literal_eval(quoted_text(text)) == text
    assert tomllib.loads(f"key = {quoted_text(text)}") == {"key": text}
    assert tomllib.loads(f"{toml_key(text)} = 1") == {text: 1}
