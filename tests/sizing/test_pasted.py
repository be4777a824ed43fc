"""Found sizes are ready to paste: they are read again as they were found."""

from __future__ import annotations

import shlex
import sys
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from pytest_modelperf.sizing.pasted import (
    render_arguments,
    render_command,
    render_table,
    with_sizes,
)
from pytest_modelperf.sizing.records import FoundInput, FoundSize, FoundSizes
from pytest_modelperf.spec.declaring import path_key

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12
)
FOUND = st.builds(
    FoundSizes,
    model=st.just("m.onnx"),
    dims=st.dictionaries(NAMES, st.integers(0, 9999), max_size=3).map(
        lambda sizes: tuple(FoundSize(n, size, ("x[1]",), "why") for n, size in sizes.items())
    ),
    inputs=st.lists(NAMES, max_size=2).map(
        lambda names: tuple(FoundInput(n, f"{n}:int64::16000", "why") for n in names)
    ),
)


@given(FOUND)
def test_a_shell_reads_the_command_as_it_was_meant(found: FoundSizes) -> None:
    typed = ["profile", "a model.onnx", "--json", "-"]
    words = shlex.split(render_command(found, typed))
    assert words[:5] == ["modelperf", *typed]
    assert tuple(words[1:]) == with_sizes(found, typed)
    assert [word for option, word in pairwise(words) if option == "--dim"] == [
        f"{name}={size}" for name, size in found.sizes.items()
    ]


@given(FOUND, NAMES)
def test_toml_reads_the_table_as_it_was_meant(found: FoundSizes, path: str) -> None:
    models = tomllib.loads(render_table(found, path))["tool"]["modelperf"]["models"]
    table = models[path_key(path)]
    assert table.get("dims", {}) == found.sizes
    assert tuple(table.get("inputs", ())) == found.input_texts


@given(FOUND)
def test_python_reads_the_arguments_as_they_were_meant(found: FoundSizes) -> None:
    given_words = eval(f"dict({render_arguments(found)})", {"__builtins__": {"dict": dict}})  # noqa: S307  # what is tested is Python
    assert given_words.get("dims", {}) == found.sizes
    assert tuple(given_words.get("inputs", ())) == found.input_texts


def test_other_sizes_of_a_found_dimension_go() -> None:
    found = FoundSizes("m.onnx", (FoundSize("seq", 64, ("x[1]",), "why"),))
    typed = ["profile", "m.onnx", "--dim", "seq=7", "--dim=seq=8", "--dim", "h=3", "--", "-m.onnx"]
    assert with_sizes(found, typed) == (
        "profile", "m.onnx", "--dim", "h=3", "--dim", "seq=64", "--", "-m.onnx",
    )  # fmt: skip
