"""README is short, and what it shows is laid out as the commands print it today."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest
from click.testing import CliRunner
from failing_build import MODEL, PICTURE, REPORT, Run, draw, plain, shown_lines, slow_down
from site_settings import read_settings

import pytest_modelperf
from pytest_modelperf.cli import main
from pytest_modelperf.text.version import SITE
from tests.support.checkout import ROOT
from tests.support.known import known
from tests.support.light_models import light_model
from tests.support.shown import assert_laid_out, block, headings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = "https://github.com/pytest-modelperf/pytest-modelperf"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BASELINES = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
STORED = REPORT.read_text(encoding="utf-8")
SHOWN = "".join(f"{plain(line)}\n" for line in shown_lines(STORED))
TIMES = "time by layer type, in ms"
# More would make a page slow to open.
MOST_PICTURE_BYTES = 60_000
# A reader who has not decided to use this reads no more.
MOST_LINES = 120
MOST_WORDS = 750


def code(first_line: str) -> str:
    """The code block that begins with a line."""
    found = re.search(rf"```\w+\n({re.escape(first_line)}\n.*?)```", README, re.DOTALL)
    assert found is not None, f"README has no block of code that begins with {first_line!r}"
    return found[1]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the model of README, where pytest finds our plugin and no other."""
    (pytester.path / "models").mkdir()
    shutil.copy(light_model("squeezenet"), pytester.path / MODEL)
    package = str(Path(pytest_modelperf.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", package, prepend=os.pathsep)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_modelperf.plugin -p no:cacheprovider")
    # Wide, because how many columns fit depends on the figures.
    monkeypatch.setenv("COLUMNS", "150")
    return pytester


@pytest.mark.slow
def test_a_first_run_and_a_recording_are_laid_out_as_the_pages_show(
    project: pytest.Pytester,
) -> None:
    quick = "--modelperf-max-seconds=1"
    first = project.runpytest_subprocess("--modelperf", quick, MODEL)
    first.stdout.fnmatch_lines(["squeezenet.onnx::b1-c1  new *", "1 new."])
    recorded = project.runpytest_subprocess(
        "--modelperf", "--modelperf-update-baseline", quick, MODEL
    )
    assert_laid_out(block(BASELINES, "measured", "recording"), recorded.stdout.str())
    recorded.stdout.fnmatch_lines(["wrote the baselines of models/squeezenet.onnx"])


@pytest.mark.slow
def test_the_failure_that_readme_shows_is_laid_out_as_today(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`modelperf compare` shows the same reasons and times, even if noise decides nothing.

    A column that noise hides today is shown all the same.
    """
    model = onnx.load(MODEL)
    slow_down(model)
    onnx.save(model, MODEL)
    assert op_counts(project.path / MODEL)["Elu"] == 1
    monkeypatch.setenv("COLUMNS", "150")
    arguments = ["compare", str(light_model("squeezenet")), MODEL, "--max-seconds", "1"]
    compared = CliRunner().invoke(main, arguments)
    assert compared.exit_code in {0, 1}, compared.output
    shown, now = headings(SHOWN), headings(compared.output)
    assert shown.keys() == {TIMES}
    if "too short to decide" in compared.output:
        # A machine that is busy enough times no layer within the second.
        now[TIMES] = now.pop("by layer type", now.get(TIMES, []))[:1]
    assert shown.keys() <= now.keys()
    for title, columns in shown.items():
        assert set(now[title]) - {"count"} <= set(columns)
    for line in (
        r"Elu +(0 → 1 +)?- ",
        r"why: ",
    ):
        for text in (SHOWN, compared.output):
            assert re.search(f"^{line}", text, re.MULTILINE), f"{line}\n{text}"
    for text in (SHOWN, compared.output):
        assert "1 Relu became Elu (first: n63)" in " ".join(text.split())
    assert re.search(r"^regressed: p50 latency \+\d", SHOWN, re.MULTILINE)


@pytest.mark.slow
def test_the_command_that_readme_shows_to_accept_is_the_printed_one(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change shows without a run: all of the model twice."""
    monkeypatch.setenv("COLUMNS", "80")
    static = ("--modelperf", "--modelperf-static-only", MODEL)
    project.runpytest_subprocess(*static, "--modelperf-update-baseline")
    model = onnx.load(MODEL)
    (conv,) = (node for node in model.graph.node if "n62" in (node.name, *node.output))
    again = model.graph.node.add()
    again.CopyFrom(conv)
    again.name, again.output[0] = "again", "again"
    onnx.save(model, MODEL)
    failing = project.runpytest_subprocess(*static)
    assert failing.ret == pytest.ExitCode.TESTS_FAILED
    accept = known(re.search(r"^accept: .*\n(?: .*\n)*", SHOWN, re.MULTILINE))
    assert accept[0] in failing.stdout.str() + "\n"


def op_counts(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def test_the_picture_is_drawn_from_what_is_stored() -> None:
    drawn = draw(STORED)
    assert PICTURE.read_text("utf-8") == drawn, "type: python docs/pictures/failing_build.py"
    assert f"]({PICTURE.relative_to(ROOT).as_posix()})" in README
    assert len(drawn.encode()) < MOST_PICTURE_BYTES


def test_the_picture_has_each_line_as_text_that_can_be_selected() -> None:
    """And asks no server for anything."""
    root = ET.fromstring(draw(STORED))  # noqa: S314  # our own
    rows = ["".join(row.itertext()) for row in root.iter("{http://www.w3.org/2000/svg}text")]
    assert rows == [f"$ pytest --modelperf {MODEL}", *filter(None, SHOWN.splitlines())]
    assert re.findall(r"https?://|url\(|@import", draw(STORED)) == ["http://"]


def test_layers_left_out_of_the_picture_leave_a_mark() -> None:
    stored = (
        "rootdir: a\n\n\x1b[31mmetric\x1b[0m  <x>\n───\nplatform 1\n  more\n\nplugins: b\n\n"
        "total 2\n"
    )
    lines = list(shown_lines(stored))
    assert list(map(plain, lines)) == ["⋮", "metric  <x>", "───", "⋮", "total 2"]
    assert lines[1] == (Run("metric", ("red",)), Run("  <x>"))
    assert '<tspan class="red">metric</tspan>  &lt;x&gt;</text>' in draw(stored)


def test_the_markers_of_readme_make_their_cases(project: pytest.Pytester) -> None:
    project.makepyfile(test_models=code("# test_models.py"))
    result = project.runpytest_subprocess("--modelperf", "--modelperf-static-only", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(
        [
            "test_models.py::test_squeezenet[[]b1-c1[]] NEW *",
            "test_models.py::test_squeezenet[[]b8-c1[]] NEW *",
        ]
    )


@pytest.mark.slow
def test_the_commands_of_readme_work_as_they_are_typed(project: pytest.Pytester) -> None:
    """In a folder without a model. The answers to `init` are yes, and models are only counted."""
    (project.path / MODEL).unlink()
    (project.path / "models").rmdir()
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    _, copied, *typed = [line for block in blocks for line in block.splitlines()]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["/bin/sh", "-ec", copied], env={**os.environ, "PATH": path}, check=True)
    assert (project.path / MODEL).read_bytes() == light_model("squeezenet").read_bytes()
    ends = []
    for program, *arguments in (shlex.split(line, comments=True) for line in typed):
        if program == "modelperf":
            done = CliRunner().invoke(main, [*arguments, "--yes", "--no-noise"])
            assert done.exit_code == 0, done.output
        else:
            ran = project.runpytest_subprocess(*arguments, "--modelperf-static-only")
            ran.assert_outcomes(passed=1)
            ends += [line for line in ran.outlines if re.fullmatch(r"1 \w+\.", line)]
    assert ends == ["1 recorded.", "1 passed."]


def test_no_link_of_readme_leads_to_a_file_on_pypi() -> None:
    """The links as the build rewrites them; tests of the site check the pages they lead to."""
    text = README
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"]
    for each in hooks["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"\]\((\S+?)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    for link in ("pictures/failing-build.svg", "ci/", "gallery/run.html"):
        assert f"{SITE}{link}" in links
    assert f"{REPOSITORY}/blob/main/LICENSE" in links


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    assert len(re.findall(r"\S*\w\S*", README)) <= MOST_WORDS


def test_the_groups_of_readme_are_those_of_the_site() -> None:
    settings = read_settings(ROOT / "mkdocs.yml")
    _, _, listed = README.partition("## Documentation\n")
    groups = re.findall(r"^- \*\*(.+?):\*\*((?:.+\n  )*.+)", listed, re.MULTILINE)
    assert [title for title, _ in groups] == [each.title for each in settings.sections]
    for (title, text), section in zip(groups, settings.sections, strict=True):
        linked = re.findall(r"\]\(docs/([\w-]+\.md)\)", text)
        assert linked, title
        assert set(linked) <= set(section.pages), title


def test_options_in_readme_are_known_to_pytest(project: pytest.Pytester) -> None:
    typed = set(re.findall(r"--modelperf[\w-]*", README))
    assert "--modelperf-strict" in typed
    printed = project.runpytest_subprocess("--help").stdout.str()
    assert typed <= set(re.findall(r"--modelperf[\w-]*", printed))
