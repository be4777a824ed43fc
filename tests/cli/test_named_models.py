"""Models that a command names by a function or by an address, and what becomes of errors."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from pytest_modelperf.cli.parameters import find_model, origin_of, table_line
from pytest_modelperf.errors import UsageError
from pytest_modelperf.obtaining.origins import OriginKind
from tests.support.command import refusal, run
from tests.support.project import write_dense

EXPORT = """\
from pathlib import Path

def dense():
    print("exporting")
    return Path("dense.onnx").read_bytes()

def wide():
    return "wide.onnx"

def broken():
    raise ValueError("no checkpoint")

def nothing():
    return None
"""
DIGEST = sha256(b"").hexdigest()


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of its own name, whose functions return models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_dense(tmp_path / "dense.onnx")
    write_dense(tmp_path / "wide.onnx", width=7)
    (tmp_path / f"{module(tmp_path)}.py").write_text(EXPORT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def module(folder: Path) -> str:
    """A name that no other test has imported."""
    return f"export_{sha256(str(folder).encode()).hexdigest()[:8]}"


def test_a_function_is_profiled_by_the_model_that_it_returns(project: Path) -> None:
    done = run("profile", f"{module(project)}:dense", "--static", "--json", "-")
    assert done.exit_code == 0, done.err
    # The output of the function does not belong to the document.
    assert json.loads(done.out)["model"]["name"] == "dense.onnx"
    assert "exporting" in done.err


def test_a_model_of_an_earlier_run_is_used_again_and_says_so(project: Path) -> None:
    command = ("profile", f"{module(project)}:dense", "--static")
    first, second = run(*command), run(*command)
    assert "exporting" in first.err
    assert "exporting" not in second.err
    assert "reusing the model of an earlier run" in second.err
    assert first.out == second.out


def test_functions_are_compared_with_files_and_with_each_other(project: Path) -> None:
    wide = f"{module(project)}:wide"
    done = run("compare", "dense.onnx", wide, "--static")
    assert done.exit_code == 1
    assert "dense.onnx → wide.onnx: regressed" in done.out
    assert run("compare", wide, wide, "--static").exit_code == 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "broken made no model: ValueError: no checkpoint\n  File"),
        ("nothing", "nothing() returned nothing; expected the path"),
        ("absent", "there is no absent in"),
    ],
)
@pytest.mark.parametrize("command", ["profile", "init"])
def test_a_function_without_a_model_is_an_error_of_the_user(
    project: Path, command: str, function: str, message: str
) -> None:
    assert message in refusal(command, f"{module(project)}:{function}")


def test_an_address_without_a_digest_is_not_fetched() -> None:
    assert "has no digest" in refusal("profile", "https://localhost/dense.onnx", "--static")


def test_a_callable_that_is_measured_is_not_called_for_a_model(project: Path) -> None:
    done = run(
        "profile", f"{module(project)}:broken", "--engine", "callable", "--max-seconds", "0.1"
    )
    assert "no checkpoint" in done.out + done.err
    assert "made no model" not in done.err


def test_a_path_stays_as_it_is(project: Path) -> None:
    assert find_model("dense.onnx") == "dense.onnx"
    assert origin_of("C:\\models\\dense.onnx") is None
    (project / "a:b").touch()
    assert origin_of("a:b") is None


def test_the_table_of_a_model_says_where_it_comes_from() -> None:
    function, address = origin_of("a.b:c"), origin_of(f"https://host/m.onnx#sha256={DIGEST}")
    assert function is not None
    assert address is not None
    assert (function.kind, address.kind) == (OriginKind.FUNCTION, OriginKind.URL)
    assert table_line(function) == 'make = "a.b:c"'
    assert table_line(address) == f'url = "https://host/m.onnx#sha256={DIGEST}"'


def test_init_writes_the_table_of_a_function(project: Path) -> None:
    name = f"{module(project)}:dense"
    command = ("init", name, "--yes", "--ci", "none", "--no-noise")
    done = run(*command)
    assert done.exit_code == 0, done.err
    assert (project / "pyproject.toml").read_text() == (
        f'[tool.modelperf.models.dense]\nmake = "{name}"\n'
    )
    assert "nothing to change\n" in run(*command).out


def test_a_program_loads_files_and_no_functions(project: Path) -> None:
    assert "is not a file: leave one out" in refusal(
        "init", f"{module(project)}:dense", "--from", "--", "true"
    )


def test_an_error_of_the_user_keeps_its_cause(project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_model(f"{module(project)}:broken")
    assert isinstance(caught.value.__cause__, ValueError)
