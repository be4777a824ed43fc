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


def test_the_comparison_that_readme_shows_is_laid_out_as_it_is_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What noise hides has no column today, so all that there is must be shown."""
    command = "modelperf compare light_squeezenet.onnx squeezenet_elu.onnx"
    example = re.search(r"```python\n# elu.py\n(.*?)```", README, re.DOTALL)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    exec(example[1], {})  # noqa: S102  # our own page
    arguments = ["compare", str(light_model("squeezenet")), "squeezenet_elu.onnx"]
    result = CliRunner().invoke(main, [*arguments, "--max-seconds", "1"])
    assert result.exit_code in {0, 1}, result.output
    block = measured_block(command)
    shown, now = headings(block), headings(result.output)
    assert "time by layer type, in ms" in now
    assert set(now) <= set(shown)
    for title, columns in now.items():
        assert set(columns) <= set(shown[title])
    for page in (block, result.output):
        assert re.search(r"^b1-c1 \w+: .*p\d\d latency", page, re.MULTILINE)
        assert re.search(r"^Elu +0 -> 1 ", page, re.MULTILINE)
        assert re.search(r"^MACs +349.2 M +349.2 M +0 % .*passed$", page, re.MULTILINE)
        assert re.search(r"^why: 1 Elu added", page, re.MULTILINE)
    assert "regressed" in block
