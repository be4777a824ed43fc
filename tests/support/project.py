"""Writers of models, tests and tables for the folder of a run of the plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.small_models import ones, parse

# Names of files and functions of ours, and the machinery of exceptions.
INTERNALS = ("*pytest_modelperf/*", "*Traceback*", "*During handling*", "*direct cause*")
STATIC = ("--modelperf", "--modelperf-static-only")
# 3 x 5 multiply-accumulates for each row of the input.
DENSE = "g (float[N,3] x) => (float[N,{width}] y) {{ [dense] y = MatMul(x, w) }}"
LINEAR = "g (float[N,seq,3] x) => (float[N,seq,5] y) { [linear] y = MatMul(x, w) }"


def write_dense(path: Path, width: int = 5) -> Path:
    """A model of `3 * width` weights, with that number of multiply-accumulates for each row."""
    model = parse(DENSE.format(width=width), weights={"w": ones(3, width)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def write_linear(path: Path) -> Path:
    """A model with the dimensions `N` and `seq`, of 15 multiply-accumulates for each place."""
    model = parse(LINEAR, weights={"w": ones(3, 5)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def write_table(run: pytest.Pytester, text: str) -> None:
    """Write the content of `[tool.modelperf]` and its tables."""
    run.makepyprojecttoml(dedent(text))


def run_tests(run: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run the tests of one file."""
    run.makepyfile(source)
    return run.runpytest_inprocess(*options)


def assert_ended(result: pytest.RunResult, *lines: str, **outcomes: int) -> pytest.RunResult:
    """Return a run that ended with these outcomes and shows these lines, in this order."""
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(lines)
    return result


def collected(run: pytest.Pytester, *arguments: str) -> list[str]:
    """The ids of the tests that such a run would run, in that order."""
    result = run.runpytest_inprocess(*STATIC, "--collect-only", "-q", *arguments)
    assert result.ret == pytest.ExitCode.OK
    return [line for line in result.outlines if "::" in line]


def assert_says_no_internals(result: pytest.RunResult) -> None:
    """Assert that the user need not read the frames and the files of the plugin."""
    for pattern in INTERNALS:
        result.stdout.no_fnmatch_line(pattern)
        result.stderr.no_fnmatch_line(pattern)


def assert_usage_error(result: pytest.RunResult, *lines: str) -> None:
    """Assert that a run ended before its tests, and says why in lines of its own."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(lines)
    assert_says_no_internals(result)


def between(lines: Sequence[str], first: str, last: str) -> str:
    """The lines after the one that holds `first`, up to the one that holds `last`."""
    begin = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines) if last in line and i > begin)
    return "\n".join(lines[begin + 1 : end])


def read_json(path: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return content
