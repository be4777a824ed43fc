"""The steps of docs/tracing.md and docs/trace-programs.md run, and print what the pages show."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_modelperf.cli import main
from pytest_modelperf.tracing.frames.tables import COLUMNS
from tests.support.checkout import ROOT
from tests.support.light_models import light_model
from tests.support.runtimes import unless_1_23
from tests.tracing.pythons import SEARCH_PATH, environment, hooked

pytestmark = pytest.mark.slow

PROGRAMS = (ROOT / "docs" / "trace-programs.md").read_text(encoding="utf-8")
CODE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
# Both pages work in one folder, one after the other.
PAGE = CODE + PROGRAMS
ENTRY = re.compile(
    r"```(?P<language>python|console)\n(?P<code>.*?)```\n"
    r"(?:\n<!-- (?P<kind>output|measured) -->\n```text\n(?P<shown>.*?)```\n)?",
    re.DOTALL,
)
# With it no column is left out, however long its numbers are.
COLUMNS_OF_TERMINAL = "150"
# Below the folder of the page.
HOOKED = Path("environment")
RULE = re.compile(r"^─+$")


@dataclass(frozen=True, slots=True)
class Step:
    """A block of code of the page, what the page shows below it, and what it printed."""

    code: str
    is_exact: bool
    shown: str | None
    printed: str


def run_step(language: str, code: str, names: dict[str, object]) -> str:
    title = re.match(r"# (\w+\.py)\n", code)
    if title is not None:
        Path(title[1]).write_text(code, encoding="utf-8")
        return ""
    if language == "console":
        return "".join(map(run_command, code.splitlines()))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)  # noqa: S102  # our own page
    return printed.getvalue()


def run_command(line: str) -> str:
    prompt, *words = shlex.split(line)
    assert prompt == "$"
    if "--hook" in words:
        # Into an environment of its own, and not into that of the tests.
        assert words == ["modelperf", "trace", "--hook", "install"]
        hooked(HOOKED)
        return ""
    if words[0] == "modelperf":
        arguments = [sys.executable if word == "python" else word for word in words[1:]]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout
    return run_program(words)


def run_program(words: list[str]) -> str:
    """Return the output of a program in the Python in which the page has installed the hook."""
    variable, python, program = words
    name, value = variable.split("=")
    assert python == "python"
    Path(value).unlink()
    ended = subprocess.run(
        [HOOKED / "bin" / "python", program],
        env=environment(**{name: value}),
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    assert Path(value).exists()
    return ended.stdout


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """The page from its beginning to its end, in a folder with the model that it speaks of."""
    folder = tmp_path_factory.mktemp("tracing")
    (folder / "models").mkdir()
    shutil.copy(light_model("squeezenet"), folder / "models/squeezenet.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", COLUMNS_OF_TERMINAL)
        patch.setenv("PYTHONPATH", SEARCH_PATH)
        return list(run_page())


def run_page() -> Iterator[Step]:
    names: dict[str, object] = {}
    for found in ENTRY.finditer(PAGE):
        printed = run_step(found["language"], found["code"], names)
        yield Step(found["code"], found["kind"] == "output", found["shown"], printed.lstrip("\n"))


def test_every_block_of_text_belongs_to_a_step(steps: list[Step]) -> None:
    assert len([step for step in steps if step.shown]) == PAGE.count("```text\n") > 5
    assert len(steps) == PAGE.count("```python\n") + PAGE.count("```console\n")


def test_the_page_shows_the_output_of_each_step(steps: list[Step]) -> None:
    for step in steps:
        if step.printed and "--json" not in step.code:
            assert step.shown, step.code


def test_the_shown_output_is_the_printed_one_except_for_measured_figures(steps: list[Step]) -> None:
    for step in steps:
        if step.shown and step.is_exact:
            assert without_figures(step.shown) == without_figures(step.printed)


@unless_1_23("has no memory in a profile")
def test_measured_output_has_the_layout_shown(steps: list[Step]) -> None:
    """Which rows there are may depend on the times, and so on the machine."""
    for step in steps:
        if step.shown and not step.is_exact:
            assert layout(step.shown) == layout(step.printed)


def test_every_column_of_a_frame_is_explained() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", CODE.partition("## The frames")[2], re.MULTILINE)
    explained = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert sorted(explained) == sorted(COLUMNS)


def without_figures(text: str) -> list[str]:
    """The lines, with every figure that a machine decides as `#`, however wide it is."""
    lines = [re.sub(r"\d[\d,]*\.\d+(?:e[+-]\d+)?|\d[\d,]{2,}", "#", x) for x in text.splitlines()]
    return ["─" if RULE.match(line) else " ".join(line.split()) for line in lines]


def layout(text: str) -> list[str]:
    """The titles as they are; of each row below a rule only that it is there."""
    found: list[str] = []
    is_below = False
    for line in without_figures(text):
        is_below = bool(line) and (is_below or line == "─")
        found.append("─" if is_below else line)
    return found
