"""The command line shows commands with sizes that work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given

from pytest_modelperf.sizing.finding import (
    render_arguments,
    render_command,
    render_table,
    with_sizes,
)
from pytest_modelperf.sizing.records import FoundInput, FoundSize, FoundSizes
from pytest_modelperf.spec.declaring import path_key
from tests.sizing.test_finding import TWO_BRANCHES
from tests.support.command import Result, run
from tests.support.graph_models import zeros
from tests.support.small_models import parse

MODEL = "g (float[N,S] x) => (float[N,2] y) { y = MatMul(x, w) }"
QUICK = ("--max-seconds", "0.3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        onnx.save(parse(MODEL, weights={"w": zeros(6, 2)}), "m.onnx")
        rated = {"wide": zeros(512, 4), "narrow": zeros(256, 4)}
        onnx.save(parse(TWO_BRANCHES, weights=rated), "rated.onnx")
        yield tmp_path


def _pasted(result: Result) -> list[str]:
    """The words of the command in an error, without the program."""
    assert result.exit_code == 2
    (line,) = [line for line in result.err.splitlines() if line.startswith("  modelperf ")]
    return shlex.split(line)[1:]


@pytest.mark.parametrize(
    "typed",
    [
        ("profile", "m.onnx", *QUICK),
        ("profile", "rated.onnx", *QUICK),
        ("profile", "rated.onnx", "--dim", "S=512", "--static"),
        ("profile", "m.onnx", "--static", "--batch", "1,8"),
        ("compare", "m.onnx", "m.onnx", "--static"),
        ("shapes", "m.onnx", "--batch", "2"),
        ("shapes", "m.onnx", "--dim", "S=5"),
    ],
)
def test_a_pasted_command_runs(typed: tuple[str, ...]) -> None:
    pasted = _pasted(run(*typed))
    assert pasted[0] == typed[0]
    assert run(*pasted).exit_code == 0


def test_an_error_says_where_the_sizes_come_from() -> None:
    assert "S=6 in x[1]: MatMul 'y' takes 6 features" in run("profile", "m.onnx", *QUICK).err


def test_sizes_that_ran_are_distinguished_from_those_that_only_fit() -> None:
    assert "One inference ran with these sizes" in run("profile", "m.onnx").err
    assert "These sizes fit by shapes" in run("profile", "m.onnx", "--static").err


def test_guessed_sizes_are_run_and_shown() -> None:
    result = run("profile", "m.onnx", "--static", "--guess", "--json", "-")
    assert result.exit_code == 0
    assert result.out.startswith("{")
    assert result.err == "guessed: modelperf profile m.onnx --static --json - --dim S=6\n"


def test_a_guess_changes_nothing_if_all_sizes_are_known() -> None:
    typed = ("shapes", "m.onnx", "--dim", "S=6")
    assert run(*typed, "--guess") == run(*typed)


def test_a_model_that_nothing_fits_says_what_was_tried() -> None:
    torn = "g (float[N,S] x) => (float[N,2] y, float[N,2] z) { y = MatMul(x, w) z = MatMul(x, v) }"
    onnx.save(parse(torn, weights={"w": zeros(4, 2), "v": zeros(6, 2)}), "torn.onnx")
    for typed in (["shapes", "torn.onnx"], ["shapes", "torn.onnx", "--guess"]):
        result = run(*typed)
        assert (result.exit_code, result.out) == (2, "")
        assert "Give --dim S=SIZE" in result.err
        assert "did not fit. The last one: " in result.err


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
