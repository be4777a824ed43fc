"""`MODELPERF_TRACE` traces a program that is not changed, and costs nothing where it is not set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_modelperf
from tests.tracing.validity import read_valid_trace

PACKAGE = Path(pytest_modelperf.__file__).parent
# In the sources, or where it was installed.
START = next(
    path
    for path in (PACKAGE / "tracing" / "start.pth", PACKAGE.parent / "pytest_modelperf_trace.pth")
    if path.exists()
)
PROGRAM = """\
import os, sys
import numpy as np
import onnxruntime as ort
assert type(ort.__spec__.loader).__name__ == "SourceFileLoader"
session = ort.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones((2, 8), np.float32)})
os.chdir("/")
"""
# What Python does with the file as it starts, where the package is installed.
AS_INSTALLED = f"""\
import site, runpy, sys
site.addpackage({str(START.parent)!r}, {START.name!r}, None)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(folder: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MODELPERF")},
        "PYTHONPATH": str(PACKAGE.parent),
        # The runtime's thread for it would have forked processes wait for ever as they exit.
        "ORT_DISABLE_TELEMETRY": "1",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", AS_INSTALLED, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_program_is_traced_however_it_ends(model: Path, end: str) -> None:
    done = run(model.parent, PROGRAM + end, MODELPERF_TRACE="trace.json")
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1)
    assert ("ValueError" in done.stderr) == ("ValueError" in end)
    trace = read_valid_trace((model.parent / "trace.json").read_text(encoding="ascii"))
    assert [span.name for span in trace.spans] == [*("small.onnx", "inference", "product", "sine")]


def test_without_the_variable_nothing_of_ours_is_loaded(model: Path) -> None:
    check = "assert not any('modelperf' in name for name in sys.modules), 'loaded'\n"
    done = run(model.parent, PROGRAM + check)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_takes_the_variable_away_in_time_is_not_traced(model: Path) -> None:
    away = "import os\ndel os.environ['MODELPERF_TRACE']\n"
    done = run(model.parent, away + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (model.parent / "trace.json").exists()


def test_a_program_without_the_runtime_leaves_no_file(model: Path) -> None:
    check = "import sys\nassert 'numpy' not in sys.modules and 'onnxruntime' not in sys.modules\n"
    done = run(model.parent, check, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (model.parent / "trace.json").exists()


def test_a_process_that_the_program_starts_has_a_file_of_its_own(model: Path) -> None:
    start = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {AS_INSTALLED!r}, "
    start += "'inner.py'], check=True)\n"
    (model.parent / "inner.py").write_text(PROGRAM)
    done = run(model.parent, start + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    files = sorted(model.parent.glob("trace*.json"))
    assert len(files) == 2
    assert files[1].name == "trace.json"
    for file in files:
        trace = read_valid_trace(file.read_text(encoding="ascii"))
        assert len(trace.of("inference")) == 1


def test_a_process_that_imports_the_runtime_and_runs_nothing_has_no_file(model: Path) -> None:
    start = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {AS_INSTALLED!r}, "
    start += "'inner.py'], check=True)\n"
    (model.parent / "inner.py").write_text("import onnxruntime")
    done = run(model.parent, start + PROGRAM, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [file.name for file in model.parent.glob("trace*")] == ["trace.json"]


def test_a_file_that_cannot_be_written_leaves_the_program_alone(model: Path) -> None:
    done = run(model.parent, PROGRAM + "print('done')", MODELPERF_TRACE="no/trace.json")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("MODELPERF_TRACE: cannot write ")


def test_standard_output_is_left_to_the_program(model: Path) -> None:
    done = run(model.parent, PROGRAM + "print('done')", MODELPERF_TRACE="-")
    told = "MODELPERF_TRACE: it takes a file: standard output is the program's own.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", told)
    assert not (model.parent / "-").exists()


def test_what_python_reads_as_it_starts_is_one_line() -> None:
    (line,) = START.read_text(encoding="ascii").splitlines()
    # A file of that kind may hold paths; only what begins so is run.
    assert line.startswith("import ")
