"""`MODELPERF_TRACE` traces a program that is not changed, and costs nothing if it is not set."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tracing.pythons import Python
from tests.tracing.validity import read_valid_trace

PROGRAM = """\
import os, sys
import numpy as np
import onnxruntime as ort
assert type(ort.__spec__.loader).__name__ == "SourceFileLoader"
session = ort.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones((2, 8), np.float32)})
os.chdir("/")
"""
START_INNER = "import subprocess, sys\nsubprocess.run([sys.executable, 'inner.py'], check=True)\n"


def run(
    python: Python, folder: Path, program: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return python.run(folder, "-W", "error", "program.py", **variables)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_program_is_traced_however_it_ends(hooked_python: Python, model: Path, end: str) -> None:
    done = run(hooked_python, model.parent, PROGRAM + end, MODELPERF_TRACE="trace.json")
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1)
    assert ("ValueError" in done.stderr) == ("ValueError" in end)
    trace = read_valid_trace((model.parent / "trace.json").read_text(encoding="ascii"))
    assert [span.name for span in trace.spans] == [*("small.onnx", "inference", "product", "sine")]


def test_a_program_may_look_for_the_runtime_before_it_imports_it(
    hooked_python: Python, model: Path
) -> None:
    """Libraries do so to see whether it is installed."""
    look = "import importlib.util\nassert importlib.util.find_spec('onnxruntime') is not None\n"
    done = run(hooked_python, model.parent, look + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    trace = read_valid_trace((model.parent / "trace.json").read_text(encoding="ascii"))
    assert len(trace.of("inference")) == 1


def test_without_the_variable_nothing_of_ours_is_loaded(hooked_python: Python, model: Path) -> None:
    check = "assert not any('modelperf' in name for name in sys.modules), 'loaded'\n"
    done = run(hooked_python, model.parent, PROGRAM + check)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_without_the_variable_or_the_runtime_leaves_no_file(
    hooked_python: Python, model: Path
) -> None:
    away = "import os\ndel os.environ['MODELPERF_TRACE']\n"
    done = run(hooked_python, model.parent, away + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (model.parent / "trace.json").exists()
    check = "import sys\nassert 'numpy' not in sys.modules and 'onnxruntime' not in sys.modules\n"
    done = run(hooked_python, model.parent, check, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (model.parent / "trace.json").exists()


def test_a_process_that_the_program_starts_has_a_file_of_its_own(
    hooked_python: Python, model: Path
) -> None:
    (model.parent / "inner.py").write_text(PROGRAM)
    done = run(hooked_python, model.parent, START_INNER + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    files = sorted(model.parent.glob("trace*.json"))
    assert len(files) == 2
    assert files[1].name == "trace.json"
    for file in files:
        trace = read_valid_trace(file.read_text(encoding="ascii"))
        assert len(trace.of("inference")) == 1


def test_a_process_that_imports_the_runtime_and_runs_nothing_has_no_file(
    hooked_python: Python, model: Path
) -> None:
    (model.parent / "inner.py").write_text("import onnxruntime")
    done = run(hooked_python, model.parent, START_INNER + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [file.name for file in model.parent.glob("trace*")] == ["trace.json"]


def test_a_file_that_cannot_be_written_leaves_the_program_alone(
    hooked_python: Python, model: Path
) -> None:
    done = run(
        hooked_python, model.parent, PROGRAM + "print('done')", MODELPERF_TRACE="no/trace.json"
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("MODELPERF_TRACE: cannot write ")


def test_standard_output_is_left_to_the_program(hooked_python: Python, model: Path) -> None:
    done = run(hooked_python, model.parent, PROGRAM + "print('done')", MODELPERF_TRACE="-")
    error = "MODELPERF_TRACE: it takes a file: standard output is the program's own.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", error)
    assert not (model.parent / "-").exists()


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("import pytest_modelperf\n" + PROGRAM, ["small.onnx", "inference", "product", "sine"]),
        (PROGRAM.replace("session.run", "import pytest_modelperf\nsession.run"), ["inference"]),
    ],
    ids=["before the session", "after the session"],
)
def test_without_the_hook_recording_begins_where_the_package_is_imported(
    plain_python: Python, model: Path, before: str, names: list[str]
) -> None:
    done = run(plain_python, model.parent, before, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    trace = read_valid_trace((model.parent / "trace.json").read_text(encoding="ascii"))
    assert [span.name for span in trace.spans] == names


def test_without_the_hook_and_the_package_nothing_is_recorded(
    plain_python: Python, model: Path
) -> None:
    done = run(plain_python, model.parent, PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (model.parent / "trace.json").exists()


@pytest.mark.slow
def test_without_the_hook_a_run_of_pytest_is_recorded(plain_python: Python, model: Path) -> None:
    body = PROGRAM.partition("os.chdir")[0].replace("\n", "\n    ")
    (model.parent / "test_model.py").write_text(f"def test_it():\n    {body}\n")
    options = ("-p", "no:cacheprovider", "test_model.py")
    done = plain_python.run(model.parent, "-m", "pytest", *options, MODELPERF_TRACE="trace.json")
    assert done.returncode == 0, done.stdout
    trace = read_valid_trace((model.parent / "trace.json").read_text(encoding="ascii"))
    assert len(trace.of("inference")) == 1


def test_a_traced_run_of_pytest_that_takes_warnings_for_errors_is_as_ever(
    hooked_python: Python, tmp_path: Path
) -> None:
    options = ("-p", "no:cacheprovider", "-W", "error::pytest.PytestAssertRewriteWarning")
    done = hooked_python.run(tmp_path, "-m", "pytest", *options, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (pytest.ExitCode.NO_TESTS_COLLECTED, "")


def test_a_python_that_uses_no_runtime_loads_no_more_than_it_needs(
    tmp_path: Path, hooked_python: Python
) -> None:
    (tmp_path / "look.py").write_text(
        "import sys\nprint(*(name for name in sys.modules if 'modelperf' in name))\n"
    )
    done = hooked_python.run(tmp_path, "look.py", MODELPERF_TRACE="trace.json")
    assert done.stdout.split() == [
        "pytest_modelperf.tracing",
        "pytest_modelperf.tracing.first_import",
        "pytest_modelperf.tracing.autostart",
        "pytest_modelperf",
    ]
