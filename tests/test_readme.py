"""What README shows is what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_modelperf.cli import main
from tests.light_models import light_model

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def shown(command: str) -> str:
    """The text block that README marks as the output of a command."""
    pattern = rf"<!-- output: {re.escape(command)} -->\n```text\n(.*?)```\n<!-- end -->"
    found = re.search(pattern, README, re.DOTALL)
    assert found is not None, f"README marks no output of {command!r}"
    return found[1]


def test_the_profile_that_readme_shows_is_the_one_that_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["profile", str(light_model("squeezenet")), "--static", "--top", "3"]
    printed = CliRunner().invoke(main, arguments).output
    assert shown("modelperf profile light_squeezenet.onnx --static --top 3") == printed


def test_the_budget_that_readme_writes_fails_as_it_says(pytester: pytest.Pytester) -> None:
    example = re.search(r"```python\n# test_squeezenet.py\n(.*?)```", README, re.DOTALL)
    assert example is not None
    pytester.makepyfile(test_squeezenet=example[1])
    result = pytester.runpytest_subprocess("--modelperf", "test_squeezenet.py")
    lines = re.search(r"test_squeezenet\.py\n\.\.\.\n(.*?)```", README, re.DOTALL)
    assert lines is not None
    result.stdout.fnmatch_lines(lines[1].replace("[", "[[]").splitlines())
    result.assert_outcomes(failed=1)
