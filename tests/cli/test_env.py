"""`modelperf env`, and the options that have a model run in an environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_modelperf.environments.store import NOTE, environments_folder, make_environment
from pytest_modelperf.files.store import FOLDER_VARIABLE
from tests.support.command import refusal, run
from tests.support.installers import FakeInstaller
from tests.support.project import write_dense

# 2026-01-31 12:00 UTC.
USED = 1769860800


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, and a cache with the names of the tests' index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, "cache")
    # Wide enough for any path of a temporary folder, which is shown in a sentence.
    monkeypatch.setenv("COLUMNS", "1000")
    write_dense(tmp_path / "dense.onnx")
    return tmp_path


def make(*requirements: str) -> Path:
    """The folder of an environment, whose size and last use are always the same."""
    made = make_environment(
        requirements, installer=FakeInstaller(), folder=environments_folder()
    ).folder
    (made / "large").write_bytes(bytes(1 << 20))
    os.utime(made / NOTE, (USED, USED))
    return made


def test_there_are_no_kept_profiles_at_first() -> None:
    nothing = f"no environment is kept in {environments_folder()}\n"
    assert run("env").out == nothing
    empty = f"nothing to remove in {environments_folder()}\n"
    assert run("env", "--prune", "all").out == empty + nothing


def test_environments_are_listed() -> None:
    make("engine<2")
    make("onnxruntime==1.18.0")
    lines = [line.rstrip() for line in run("env").out.splitlines()]
    assert lines[0].startswith("2 environments, 2.0")
    assert sorted(line.split("  ")[0] for line in lines[4:]) == [
        "engine==1.1",
        "onnxruntime==1.18.0",
    ]
    assert all("fake" in line and "2026-01-31 12:00 UTC" in line for line in lines[4:])


@pytest.mark.parametrize("width", ["80", "160"])
def test_the_list_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    make("engine>=1,<2", "onnxruntime>=1.18,<1.19", "numpy>=1,<2")
    assert max(map(len, run("env").out.splitlines())) <= int(width)


def test_a_folder_that_is_none_is_listed_with_what_removes_it() -> None:
    (make("engine==1.0") / NOTE).write_text("{")
    out = run("env").out
    assert "environment.json, line 1" in " ".join(out.split())
    assert "modelperf env --prune all" in " ".join(out.split())


def test_old_environments_are_removed_and_young_ones_stay() -> None:
    make("engine==1.0")
    out = run("env", "--prune", "1d").out
    assert out.startswith("removed 1 environment, 1.0")
    assert out.endswith(f"no environment is kept in {environments_folder()}\n")
    os.utime(make("engine==1.0") / NOTE)
    out = run("env", "--prune", "12h").out
    assert out.startswith(f"nothing to remove in {environments_folder()}\n1 environment, ")


def test_the_json_has_what_was_removed() -> None:
    make("engine==1.0")
    document = json.loads(run("env", "--prune", "all", "--json", "-").out)
    assert document["environments"] == []
    assert [each["requirements"] for each in document["removed"]] == [["engine==1.0"]]


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1w", "all "])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    assert f"--prune takes an age such as 30d or 12h, or all; not {age!r}" in refusal(
        "env", f"--prune={age}"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("compare", "--python-a", "python3", "--requirement-a", "engine==1.0"),
            "--python-a and --requirement-a both say which Python runs a model: leave one of",
        ),
        (
            ("compare", "--static", "--requirement-b", "engine==1.0"),
            "--requirement-b needs a run of the models: leave out --static or --requirement-b",
        ),
        (
            ("profile", "--static", "--requirement", "engine==1.0"),
            "leave out --static or --requirement",
        ),
        (
            ("profile", "--gateway", "ssh=host", "--requirement", "engine==1.0"),
            "leave out --gateway or --requirement",
        ),
        (("profile", "--requirement", "engine 1.0"), "the requirement 'engine 1.0' cannot be read"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: tuple[str, ...], message: str
) -> None:
    command, *options = arguments
    models = ("dense.onnx", "dense.onnx") if command == "compare" else ("dense.onnx",)
    result = run(command, *models, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.err.split())
    assert not Path("cache").exists()


def test_a_cache_in_a_folder_with_a_space_can_be_used(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(project / "my cache"))
    make("onnxruntime==1.22.0")
    options = ("--requirement", "onnxruntime==1.22", "--max-seconds", "0.1")
    result = run("profile", "dense.onnx", *options)
    assert result.exit_code == 0, result.err


def test_an_environment_that_cannot_be_made_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "uv").write_text("#!/bin/sh\necho 'no engine like that'\nexit 1\n")
    (project / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(project), prepend=":")
    result = run("compare", "dense.onnx", "dense.onnx", "--requirement-a", "engine==9")
    assert result.exit_code == 3
    assert result.err.splitlines()[0] == "making an environment with engine==9 by uv"
    assert "uv failed:\n  no engine like that" in result.err
