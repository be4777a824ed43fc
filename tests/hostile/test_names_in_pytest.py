"""One hostile name in every place of a model and its file, through a run of pytest on GitHub."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.hostile import reports
from tests.hostile.named_models import NAMES, named_model
from tests.hostile.test_names import as_file
from tests.support.project import STATIC, assert_ended

REPORTS = ("json", "markdown", "html", "benchmark-json")
# Files with such names are named by tests: in an address of a test they would be patterns.
TEST = """
    @pytest.mark.perf_case(model={model!r})
    @pytest.mark.perf_budget(params=1)
    def test_{number}():
        pass
"""
# And dimensions by tables, whose cases are called after them.
TABLE = """
    [tool.modelperf.models."plain/m{number}.onnx"]
    dims = {{ {dim} = [2, 3] }}
"""
CASES = 3 * len(NAMES)


@pytest.fixture
def project(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(run.path / "summary.md"))
    tests, tables = ["    import pytest\n"], ["    [tool.pytest.ini_options]"]
    for number, name in enumerate(NAMES.values()):
        tests.append(TEST.format(model=hostile_path(name), number=number))
        dim = (
            json.dumps(f"{name}N")
            .replace("\x7f", "\\u007f")
            .replace("\\udb40\\udc41", "\\U000e0041")
        )
        tables.append(TABLE.format(number=number, dim=dim))
    run.makepyfile("".join(tests))
    run.makepyprojecttoml("\n".join(tables))
    return run


def hostile_path(name: str) -> str:
    return f"models/{as_file(name)}.onnx"


def write_models(folder: Path, width: int) -> None:
    for number, name in enumerate(NAMES.values()):
        for path in (folder / hostile_path(name), folder / "plain" / f"m{number}.onnx"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(named_model(name, width=width).SerializeToString())


@pytest.mark.slow
def test_a_run_obeys_no_name(project: pytest.Pytester) -> None:
    folder = project.path
    write_models(folder, width=5)
    project.runpytest_inprocess(*STATIC, "--modelperf-update-baseline").assert_outcomes(
        passed=CASES - len(NAMES), failed=len(NAMES)
    )
    write_models(folder, width=6)
    options = [f"--modelperf-{each}={each}.txt" for each in REPORTS]
    result = project.runpytest_inprocess(*STATIC, *options, "--junitxml=junit.xml", "-v")
    result.assert_outcomes(failed=CASES)

    lines = [*result.outlines, *result.errlines]
    annotations = [line for line in lines if line.startswith("::")]
    reports.check_terminal("\n".join(line for line in lines if line not in annotations))
    check_annotations(annotations)
    texts = {each: (folder / f"{each}.txt").read_text("utf-8") for each in REPORTS}
    for name in NAMES.values():
        reports.check_json(texts["json"], as_file(name))
    reports.check_trace(texts["benchmark-json"])
    reports.check_markdown(texts["markdown"])
    reports.check_markdown((folder / "summary.md").read_text("utf-8"))
    reports.check_page(texts["html"])
    found = ET.parse(folder / "junit.xml").getroot().iter("property")  # noqa: S314  # our own
    assert {p.get("name") for p in found} >= {"modelperf.verdict", "modelperf.case"}
    check_commands(texts["markdown"])
    check_folders(folder / "baselines")


def check_annotations(lines: list[str]) -> None:
    """Each is one command of the runner, with the properties that we gave it."""
    assert list(reports.runner_commands("\n".join(lines))) == lines
    for line in lines:
        kind, properties, _ = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line).groups()  # type: ignore[union-attr]  # a mismatch fails here too
        names = [part.partition("=")[0] for part in properties.split(",")]
        assert (kind, names[-1]) == ("error", "title")
        assert set(names) <= {"file", "line", "title"}


def check_commands(markdown: str) -> None:
    """The advice to type: one command of ours, whatever the names in it."""
    blocks = re.findall(r"```+console\n(.*?)\n```", markdown)
    assert len(blocks) == CASES
    for block in blocks:
        *first, test = shlex.split(block)
        assert first == ["pytest", "--modelperf", "--modelperf-update-baseline"]
        assert not test.startswith(("-", "@"))


def check_folders(baselines: Path) -> None:
    """Assert that the folder of baselines has one folder for each model, and nothing else."""
    found = list(baselines.rglob("model.json"))
    assert len(found) == 2 * len(NAMES)
    assert all(path.parent.parent == baselines for path in found)


@pytest.mark.parametrize("name", ["-x.onnx", "@x.onnx"])
def test_the_name_of_a_model_is_not_an_option_of_the_advised_command(
    run: pytest.Pytester, name: str
) -> None:
    (run.path / name).write_bytes(named_model("m").SerializeToString())
    run.makepyprojecttoml(f"""
        [tool.pytest.ini_options]
        [tool.modelperf.models."{name}"]
        dims = {{mN = 1}}
    """)
    result = run.runpytest_inprocess(*STATIC, "--modelperf-strict")
    (line,) = [line for line in result.outlines if line.strip().startswith("record: pytest ")]
    assert shlex.split(line)[-1] == f"./{name}::b1-c1"


@pytest.mark.parametrize("options", [("-v", "-rA"), ("-q",), ("--collect-only", "-q")])
def test_a_line_break_in_the_name_of_a_file_begins_no_line_of_the_log(
    run: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Pytest prints ids as they are, and a runner obeys the line `::error::told`."""
    file = run.path / "mo\n::error::told" / "x\n::warning::told.onnx"
    file.parent.mkdir()
    file.write_bytes(named_model("m").SerializeToString())
    run.makepyprojecttoml("""
        [tool.pytest.ini_options]
        [tool.modelperf.models."**/x*.onnx"]
        dims = {mN = 1}
    """)
    result = run.runpytest_inprocess(*STATIC, "--modelperf-strict", *options)
    lines = [line for line in (*result.outlines, *result.errlines) if "told" in line]
    shown = r"mo\n\x3a:error::told/x\n\x3a:warning::told.onnx::b1-c1"
    assert any(shown in line for line in lines)
    assert not any(line.startswith("::") for line in lines)
    reports.check_terminal("\n".join(lines))


def test_a_line_break_begins_no_line_of_the_log_without_profiling_either(
    run: pytest.Pytester,
) -> None:
    file = run.path / "mo\ntold" / "x\ntold.onnx"
    file.parent.mkdir()
    file.write_bytes(named_model("m").SerializeToString())
    result = run.runpytest_inprocess("-v", str(file))
    assert_ended(result, r"mo\ntold/x\ntold.onnx::cases SKIPPED*", skipped=1)
    result.stdout.no_re_match_line("^told")
