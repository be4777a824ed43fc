"""A setting that is defined once, with its fields, is there in every face.

A copy of the package gets a definition of a setting that there is not, and each face is asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_modelperf
from tests.support.checkout import ROOT

DEFINITION = """
PAUSE_SECONDS = Setting(
    "pause_seconds",
    "seconds",
    "rest for so many seconds before each case",
    places=(*RUN, *MODEL, Place.COMMAND),
    metavar="S",
    unit="seconds",
    usual="no rest",
    command="pause",
)
"""
# The three files that a setting of a run and of its models touches: where, and what.
EDITS = {
    "spec/run_definitions.py": ("STATIC_ONLY = Setting(", DEFINITION + "STATIC_ONLY = Setting("),
    "spec/sources.py": ("    static_only: bool\n", (
        "    pause_seconds: float | None\n    static_only: bool\n"
    )),
    "spec/case_spec.py": ("    max_seconds: float | None = None\n", (
        "    max_seconds: float | None = None\n    pause_seconds: float | None = None\n"
    )),
}  # fmt: skip
ASKS = """
import json
from pathlib import Path

import click
from click.testing import CliRunner
from settings_page import tables
from typed_words import module_text

from pytest_modelperf.cli.options import takes_records
from pytest_modelperf.cli.parameters import setting_option
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.declaring import read_spec
from pytest_modelperf.spec.run_definitions import PAUSE_SECONDS
from pytest_modelperf.spec.sources import read_settings
from pytest_modelperf.spec.sources import table_schema


@click.command()
@setting_option(PAUSE_SECONDS)
@takes_records(spec=CaseSpec)
def command(spec):
    click.echo(spec.pause_seconds)


table = {"pause_seconds": 3, "models": {"m": {"pause_seconds": 4}}}
settings = read_settings(Path("/project"), {}, {}, table)
schema = table_schema()["properties"]
print(json.dumps({
    "run": settings.pause_seconds,
    "model": settings.for_model(settings.spec_for("m")).pause_seconds,
    "call": read_spec({"model": print, "pause_seconds": 5}, "modelperf", Path).pause_seconds,
    "command": CliRunner().invoke(command, ["--pause", "6"]).output,
    "help": CliRunner().invoke(command, ["--help"]).output,
    "schema": schema["pause_seconds"],
    "schema of a model": schema["models"]["additionalProperties"]["properties"]["pause_seconds"],
    "page": [line for text in tables().values() for line in text.splitlines() if "pause" in line],
    "types": [line for line in module_text().splitlines() if "pause" in line],
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package that has one setting more."""
    folder = tmp_path_factory.mktemp("more")
    source = Path(pytest_modelperf.__file__).parent
    shutil.copytree(
        source, folder / "pytest_modelperf", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, (before, after) in EDITS.items():
        path = folder / "pytest_modelperf" / name
        text = path.read_text("utf-8")
        assert text.count(before) == 1, name
        path.write_text(text.replace(before, after), "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(ROOT / "docs/schemas")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugin = ("-p", "pytest_modelperf.plugin", "-p", "no:cacheprovider")
    return run_python(folder, "-m", "pytest", *plugin, *arguments)


def test_tables_calls_commands_schema_page_and_types_have_it(folder: Path) -> None:
    done = run_python(folder, "-c", ASKS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    values = [found[name] for name in ("run", "model", "call", "command")]
    assert values == [3.0, 4.0, 5.0, "6.0\n"]
    help_text = " ".join(found["help"].split())
    assert "--pause S Rest for so many seconds before each case. [default: no rest]" in help_text
    description = "Rest for so many seconds before each case, in seconds. Default: no rest."
    assert found["schema"] == found["schema of a model"]
    assert found["schema"] == {"description": description, "type": "number", "exclusiveMinimum": 0}
    of_run, of_model = found["page"]
    cells = ("`--modelperf-pause-seconds S`", "`pause_seconds`", "no rest",
             "rest for so many seconds before each case")  # fmt: skip
    assert of_run == f"|{'|'.join(cells)}|"
    assert of_model.endswith(
        ", `pause_seconds`|as in the run||as the [option](#options) of this name|"
    )
    assert found["types"] == ["    pause_seconds: float | None"]


def test_the_help_of_pytest_has_the_option_and_the_ini_key(folder: Path) -> None:
    done = run_pytest(folder, "--help")
    assert "--modelperf-pause-seconds=S" in done.stdout
    assert "modelperf_pause_seconds (string)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--modelperf-pause-seconds=soon",), "--modelperf-pause-seconds"),
        (("-o", "modelperf_pause_seconds=soon"), "the ini key modelperf_pause_seconds"),
    ],
)
def test_a_run_refuses_a_wrong_value_of_it(
    folder: Path, arguments: tuple[str, ...], place: str
) -> None:
    done = run_pytest(folder, "--modelperf", *arguments)
    wrong = "takes seconds above 0 and within a year, such as 10, not 'soon'."
    assert done.stderr.strip() == f"ERROR: {place} {wrong}"


@pytest.mark.slow
def test_a_marker_takes_it(folder: Path) -> None:
    test = folder / "test_marked.py"
    test.write_text(
        "import math, pytest\n"
        "@pytest.mark.perf_case(math.sqrt, pause_seconds='soon')\n"
        "def test_one(): pass\n"
    )
    done = run_pytest(folder, "--modelperf", "--collect-only", test.name)
    wrong = "takes seconds above 0 and within a year, such as 10, not 'soon'."
    assert f"@pytest.mark.perf_case: pause_seconds {wrong}" in done.stdout
