"""What README shows is what the commands print; of what is measured, how it is laid out."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import pytest_modelperf
from pytest_modelperf.cli import main
from pytest_modelperf.comparing.records import Verdict
from tests.support.checkout import ROOT
from tests.support.light_models import light_model
from tests.support.shown import assert_laid_out, block, headings

README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = "models/squeezenet.onnx"


def code(first_line: str) -> str:
    """The code block that begins with a line."""
    found = re.search(rf"```\w+\n({re.escape(first_line)}\n.*?)```", README, re.DOTALL)
    assert found is not None, f"README has no block of code that begins with {first_line!r}"
    return found[1]


def pieces(text: str) -> list[str]:
    """What stands between the lines of three dots, by which something was left out."""
    return [piece for piece in re.split(r"^\.\.\.\n", text, flags=re.MULTILINE) if piece]


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


# -- what is exact


def test_the_profile_that_readme_shows_is_the_one_that_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = "modelperf profile light_squeezenet.onnx --static"
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["profile", str(light_model("squeezenet")), "--static"]
    printed = CliRunner().invoke(main, arguments).output
    assert f"$ {command}\n" in README
    parts = pieces(block(README, "output", command))
    assert parts
    for part in parts:
        _, found, printed = printed.partition(part)
        assert found, f"README shows what is not printed:\n{part}"


def test_every_verdict_is_explained() -> None:
    explained = re.findall(r"^\| `([a-z ]+)` \| .+ \| (?:passes|fails)", README, re.MULTILINE)
    assert sorted(explained) == sorted(verdict.value for verdict in Verdict)


# -- from nought to a failing build


def test_the_runs_that_readme_shows_are_laid_out_as_today(project: pytest.Pytester) -> None:
    quick = "--modelperf-max-seconds=1"
    first = project.runpytest_subprocess("--modelperf", quick, MODEL)
    assert_laid_out(block(README, "measured", "first run"), first.stdout.str())
    first.stdout.fnmatch_lines(["squeezenet.onnx::b1-c1  new *", "1 new."])
    recorded = project.runpytest_subprocess(
        "--modelperf", "--modelperf-update-baseline", quick, MODEL
    )
    assert_laid_out(block(README, "measured", "recording"), recorded.stdout.str())
    recorded.stdout.fnmatch_lines(["wrote the baselines of models--squeezenet"])


def test_the_failure_that_readme_shows_is_laid_out_as_today(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`modelperf compare` shows the same tables, and shows them where noise decides nothing too.

    What noise hides has no table and no column today, so all that there is must be shown.
    """
    exec(code("# elu.py"), {})  # noqa: S102  # our own page
    assert op_counts(project.path / MODEL)["Elu"] == 1
    monkeypatch.setenv("COLUMNS", "150")
    arguments = ["compare", str(light_model("squeezenet")), MODEL, "--max-seconds", "1"]
    compared = CliRunner().invoke(main, arguments)
    assert compared.exit_code in {0, 1}, compared.output
    shown = block(README, "measured", "failing build")
    report, summary = shown.split("= model performance =")
    now = headings(compared.output)
    assert "time by layer type, in ms" in now
    assert set(now) <= set(headings(report))
    for title, columns in now.items():
        assert set(columns) <= set(headings(report)[title])
    for line in (
        r"Elu +0 -> 1 ",
        r"MACs +349.2 M +349.2 M +0 % .*passed$",
        r"why: 1 Elu added \(first: n63\)",
        r"why: Relu: 26 before, 25 now \(first: n63\)",
    ):
        for text in (report, compared.output):
            assert re.search(f"^{line}", text, re.MULTILINE), f"{line}\n{text}"
    assert re.search(r"^regressed: p50 latency \+\d", report, re.MULTILINE)
    assert re.search(r"^squeezenet.onnx::b1-c1 +regressed ", summary, re.MULTILINE)


def test_the_command_that_readme_shows_to_accept_is_the_one_that_is_told(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a change that needs no run to be seen: all of the model twice."""
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
    accept = re.search(
        r"^accept: .*\n(?: .*\n)*", block(README, "measured", "failing build"), re.MULTILINE
    )
    assert accept is not None
    assert accept[0] in failing.stdout.str() + "\n"


def op_counts(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


# -- three ways to write a test


def test_the_table_and_the_markers_of_readme_make_their_cases(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(code(f'[tool.modelperf.models."{MODEL}"]'))
    project.makepyfile(test_markers=code("# test_markers.py"))
    result = project.runpytest_subprocess("--modelperf", "--modelperf-static-only", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines_random(
        [
            "models/squeezenet.onnx::b1-c1 NEW *",
            "models/squeezenet.onnx::b8-c1 NEW *",
            "test_markers.py::test_squeezenet[[]b1-c1[]] NEW *",
            "test_markers.py::test_squeezenet[[]b8-c1[]] NEW *",
        ]
    )


def test_the_fixture_fails_as_readme_says(project: pytest.Pytester) -> None:
    project.makepyfile(test_fixture=code("# test_fixture.py"))
    result = project.runpytest_subprocess("--modelperf", "test_fixture.py")
    lines = re.search(r"test_fixture\.py\n\.\.\.\n(.*?)```", README, re.DOTALL)
    assert lines is not None
    result.stdout.fnmatch_lines(lines[1].replace("[", "[[]").splitlines())
    result.assert_outcomes(failed=1)


def test_what_is_typed_in_readme_is_known_to_pytest(project: pytest.Pytester) -> None:
    typed = set(re.findall(r"--modelperf[\w-]*", README))
    assert "--modelperf-strict" in typed
    told = project.runpytest_subprocess("--help").stdout.str()
    assert typed <= set(re.findall(r"--modelperf[\w-]*", told))
