"""The hook: one file in an environment, by which MODELPERF_TRACE alone traces a program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_modelperf.errors import OutputError
from pytest_modelperf.text.version import __version__
from pytest_modelperf.tracing.hook import (
    HOOK_NAME,
    explain_no_hook,
    find_hook,
    install_hook,
    remove_hook,
)
from tests.tracing.pythons import Python
from tests.tracing.validity import read_valid_trace

PROGRAM = """\
import numpy as np
import onnxruntime as ort
session = ort.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones((2, 8), np.float32)})
"""


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python(tmp_path / "environment")


def hook(python: Python, folder: Path, action: str) -> str:
    done = python.run(folder, "-m", "pytest_modelperf", "trace", "--hook", action)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_a_hook_is_installed_used_and_removed(python: Python, model: Path) -> None:
    folder, file = model.parent, python.site_folder / HOOK_NAME
    (folder / "program.py").write_text(PROGRAM)
    assert hook(python, folder, "status").startswith(f"not installed: there is no {file}.")
    for _ in range(2):
        assert hook(python, folder, "install") == f"installed: {file}, version {__version__}\n"
    assert hook(python, folder, "status") == f"installed: {file}, version {__version__}\n"
    done = python.run(folder, "program.py", MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    trace = read_valid_trace((folder / "trace.json").read_text(encoding="ascii"))
    assert len(trace.of("inference")) == 1
    assert hook(python, folder, "remove") == "the hook is removed\n"
    assert hook(python, folder, "remove") == "there was no hook to remove\n"
    assert not file.exists()
    (folder / "trace.json").unlink()
    done = python.run(folder, "program.py", MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "trace.json").exists()


def test_an_environment_without_the_hook_gets_the_command_to_type(tmp_path: Path) -> None:
    missing = explain_no_hook(tmp_path)
    assert missing is not None
    assert "modelperf trace -- python program.py" in missing
    assert "modelperf trace --hook install" in missing
    install_hook(tmp_path)
    assert explain_no_hook(tmp_path) is None


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("file", ["", "trace.json"])
def test_a_hook_without_the_package_does_not_fail_and_prints_nothing(
    python: Python,
    tmp_path: Path,
    file: str,
    left: bool,  # noqa: FBT001  # whether the uninstaller left an empty folder
) -> None:
    install_hook(python.site_folder)
    if left:
        (python.site_folder / "pytest_modelperf" / "tracing").mkdir(parents=True)
    program = "import sys; print('onnxruntime' in sys.modules)"
    done = python.run(tmp_path, "-c", program, PYTHONPATH="", MODELPERF_TRACE=file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_without_the_variable_the_hook_loads_nothing(python: Python, tmp_path: Path) -> None:
    install_hook(python.site_folder)
    program = "import sys; print([name for name in sys.modules if 'modelperf' in name])"
    done = python.run(tmp_path, "-c", program)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_hook_of_another_version_is_reported_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / HOOK_NAME
    file.write_text("# pytest-modelperf 0.0.1: older\n")
    assert find_hook(tmp_path).version == "0.0.1"
    file.write_text("import os\n")
    assert find_hook(tmp_path).version is None
    assert install_hook(tmp_path).version == __version__
    assert [path.name for path in tmp_path.iterdir()] == [HOOK_NAME]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match=r"Permission denied.*`modelperf trace -- python"):
        install_hook(tmp_path)


def test_a_place_that_cannot_have_the_hook_is_an_error_with_its_path_or_advice(
    tmp_path: Path,
) -> None:
    (tmp_path / HOOK_NAME).mkdir()
    for act in (find_hook, install_hook, remove_hook):
        with pytest.raises(OutputError, match=HOOK_NAME):
            act(tmp_path)
    with pytest.raises(OutputError, match=r"modelperf trace -- python program\.py"):
        install_hook(tmp_path / "missing")
    assert not remove_hook(tmp_path / "missing")


def test_each_line_of_the_hook_is_a_comment_or_runs(tmp_path: Path) -> None:
    """Python takes any other line of such a file for a path."""
    lines = install_hook(tmp_path).path.read_text(encoding="ascii").splitlines()
    assert all(line.startswith(("#", "import ")) for line in lines)
    assert sum(line.startswith("import ") for line in lines) == 1
