"""What README shows is what the commands print; of what is measured, how it is laid out."""

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


def measured_block(command: str) -> str:
    """The text block that README marks as what a command measured one day."""
    pattern = rf"<!-- measured: {re.escape(command)} -->\n```text\n(.*?)```\n<!-- end -->"
    found = re.search(pattern, README, re.DOTALL)
    assert found is not None, f"README marks nothing measured by {command!r}"
    return found[1]


def headings(text: str) -> dict[str, list[str]]:
    """The columns of every table by its title."""
    return {
        title: re.split(r"\s{2,}", columns.strip())
        for title, columns in re.findall(r"^(.+)\n(.+)\n─{9,}$", text, re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (
            "modelperf profile light_squeezenet.onnx --top 5",
            ["profile", str(light_model("squeezenet")), "--top", "5"],
        ),
        ("modelperf doctor", ["doctor"]),
    ],
)
def test_what_was_measured_is_laid_out_as_it_is_today(
    command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide, because how many columns fit depends on the figures."""
    monkeypatch.setenv("COLUMNS", "150")
    printed = CliRunner().invoke(main, [*arguments, "--max-seconds", "0.3"]).output
    shown, now = headings(measured_block(command)), headings(printed)
    assert shown
    assert list(shown) == list(now)
    for title, columns in shown.items():
        if title == "latency in ms" and columns != now[title]:
            # With few cases and no room each has a column, and each figure a row.
            body = measured_block(command).partition(f"{title}\n")[2]
            columns += [line.partition(" ")[0] for line in body.splitlines()[2:]]
            assert set(now[title]) <= set(columns)
        else:
            assert columns == now[title]


def test_the_budget_that_readme_writes_fails_as_it_says(pytester: pytest.Pytester) -> None:
    example = re.search(r"```python\n# test_squeezenet.py\n(.*?)```", README, re.DOTALL)
    assert example is not None
    pytester.makepyfile(test_squeezenet=example[1])
    result = pytester.runpytest_subprocess("--modelperf", "test_squeezenet.py")
    lines = re.search(r"test_squeezenet\.py\n\.\.\.\n(.*?)```", README, re.DOTALL)
    assert lines is not None
    result.stdout.fnmatch_lines(lines[1].replace("[", "[[]").splitlines())
    result.assert_outcomes(failed=1)
