"""`modelperf trace -- PROGRAM` traces every Python of the program, with nothing installed there."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.command import refusal
from tests.support.processes import wait_until
from tests.tracing.pythons import Python, environment
from tests.tracing.validity import read_valid_trace

pytestmark = pytest.mark.slow

PROGRAM = """\
import sys
import numpy as np
import onnxruntime as ort
session = ort.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones((2, 8), np.float32)})
"""
WAITING = """\
import pathlib, signal, sys, time
def end(number, frame):
    print("ended by", signal.Signals(number).name)
    sys.exit(7)
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, end)
pathlib.Path("ready").touch()
while True:
    time.sleep(0.01)
"""
NO_TRACE = (
    "modelperf trace: no trace was written: signal {} ended the program before it could write."
)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals that end a program, even if these tests run in the background or by nohup."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "pytest_modelperf", "trace", *map(str, arguments)]


def trace(
    folder: Path, *arguments: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def inferences(file: Path) -> int:
    return len(read_valid_trace(file.read_text(encoding="ascii")).of("inference"))


def traces(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("trace*"))


@pytest.fixture
def folder(model: Path) -> Path:
    """The folder with the model, and programs that run it."""
    (model.parent / "program.py").write_text(PROGRAM)
    ending = "print('out')\nprint('err', file=sys.stderr)\nsys.exit(int(sys.argv[1]))\n"
    (model.parent / "ending.py").write_text(PROGRAM + ending)
    return model.parent


@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_program_is_traced_and_its_exit_code_passed_on(
    folder: Path, plain_python: Python, code: int
) -> None:
    done = trace(folder, "--", plain_python.executable, "ending.py", str(code))
    assert (done.returncode, done.stdout) == (code, "out\n")
    assert done.stderr == (
        "err\nmodelperf trace: wrote trace.json; to sum it up: modelperf trace trace.json\n"
    )
    assert inferences(folder / "trace.json") == 1


def test_child_processes_are_traced_into_files_of_their_own(
    folder: Path, plain_python: Python
) -> None:
    child = "import subprocess\nsubprocess.run([sys.executable, 'program.py'], check=True)\n"
    (folder / "parent.py").write_text(PROGRAM * 2 + child)
    done = trace(folder, "-o", "here.json", "--", plain_python.executable, "parent.py")
    assert done.returncode == 0
    own, other = folder / "here.json", next(folder.glob("here-*.json"))
    assert f"wrote here.json, {other.name};" in done.stderr
    assert (inferences(own), inferences(other)) == (2, 1)


def test_the_trace_of_a_script_that_starts_one_python_has_the_requested_name(
    folder: Path, plain_python: Python
) -> None:
    script = f"{shlex.quote(str(plain_python.executable))} program.py; exit 4"
    done = trace(folder, "--", "sh", "-c", script)
    assert done.returncode == 4
    assert traces(folder) == ["trace.json"]


def test_traces_of_a_script_that_starts_several_pythons_do_not_replace_each_other(
    folder: Path, plain_python: Python
) -> None:
    python = shlex.quote(str(plain_python.executable))
    done = trace(folder, "--", "sh", "-c", f"{python} program.py; {python} program.py; exit 0")
    assert done.returncode == 0
    assert len(traces(folder)) == 2
    assert [inferences(folder / name) for name in traces(folder)] == [1, 1]


def test_a_program_sees_the_path_and_the_sitecustomize_that_it_would_see(
    folder: Path, plain_python: Python
) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "sitecustomize.py").write_text("import sys\nsys.own = 'ran'\n")
    (folder / "look.py").write_text(
        "import sitecustomize, sys\nprint(sys.own, sitecustomize.__file__, sys.path)\n"
    )
    path = os.pathsep.join([str(folder / "own"), environment()["PYTHONPATH"]])
    plain = plain_python.run(folder, "look.py", PYTHONPATH=path)
    assert plain.stdout.startswith("ran ")
    done = trace(folder, "--", plain_python.executable, "look.py", PYTHONPATH=path)
    assert done.stdout == plain.stdout


def test_without_a_sitecustomize_of_its_own_a_program_starts_silently(
    folder: Path, plain_python: Python
) -> None:
    (folder / "look.py").write_text("import sys\nprint(sys.path)\n")
    done = trace(folder, "--", plain_python.executable, "look.py")
    assert done.stdout == plain_python.run(folder, "look.py").stdout
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_command_reaches_the_program(
    folder: Path, plain_python: Python, number: signal.Signals
) -> None:
    (folder / "waiting.py").write_text(WAITING)
    process = subprocess.Popen(
        command("--", plain_python.executable, "waiting.py"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Without a terminal, as in a job of CI.
        start_new_session=True,
    )
    wait_until(lambda: process.poll() is not None or (folder / "ready").exists())
    assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate()
    assert (process.returncode, out) == (7, f"ended by {number.name}\n")


COUNTING = """\
import pathlib, signal, sys, time
taken = []
signal.signal(signal.SIGINT, lambda number, frame: taken.append(number))
pathlib.Path("ready").touch()
while not taken:
    time.sleep(0.01)
time.sleep(0.3)
sys.exit(len(taken))
"""


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_in_a_terminal_reaches_the_program_once(folder: Path, plain_python: Python) -> None:
    pty = pytest.importorskip("pty")
    (folder / "counting.py").write_text(COUNTING)
    arguments = command("--", plain_python.executable, "counting.py")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(arguments[0], arguments, environment())  # noqa: S606  # a shell would add itself
    wait_until(lambda: os.waitpid(process, os.WNOHANG) != (0, 0) or (folder / "ready").exists())
    os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 1


# An interrupt that comes as the trace is put in its place.
INTERRUPTED_AT_ITS_END = f"""\
import pathlib, signal
replace = pathlib.Path.replace
def interrupt(self, target):
    pathlib.Path.replace = replace
    signal.raise_signal(signal.SIGINT)
    return replace(self, target)
pathlib.Path.replace = interrupt
{PROGRAM}
print("done")
"""


@pytest.mark.usefixtures("default_signals")
def test_a_program_that_is_interrupted_as_it_ends_has_its_trace(
    folder: Path, plain_python: Python
) -> None:
    (folder / "ending.py").write_text(INTERRUPTED_AT_ITS_END)
    done = trace(folder, "--", plain_python.executable, "ending.py")
    assert (done.returncode, done.stdout) == (130, "done\n")
    assert traces(folder) == ["trace.json"]
    assert read_valid_trace((folder / "trace.json").read_text()).of("inference")
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("default_signals")
def test_a_program_that_an_interrupt_ends_has_its_trace_and_ends_as_without_it(
    folder: Path, plain_python: Python
) -> None:
    (folder / "ended.py").write_text(
        f"import atexit, signal\natexit.register(print, 'at the end')\n{PROGRAM}"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = trace(folder, "--", plain_python.executable, "ended.py")
    assert (done.returncode, done.stdout) == (130, "at the end\n")
    assert inferences(folder / "trace.json") == 1


@pytest.mark.usefixtures("default_signals")
def test_a_program_that_is_interrupted_twice_as_it_ends_has_no_trace(
    folder: Path, plain_python: Python
) -> None:
    twice = INTERRUPTED_AT_ITS_END.replace("    return", "    signal.raise_signal(2)\n    return")
    (folder / "ending.py").write_text(twice)
    done = trace(folder, "--", plain_python.executable, "ending.py")
    assert (done.returncode, done.stdout) == (130, "done\n")
    assert done.stderr.splitlines() == [
        "MODELPERF_TRACE: interrupted again, so this process writes no trace.",
        NO_TRACE.format(2),
    ]
    assert [path.name for path in folder.iterdir() if "trace" in path.name] == []


# Interrupts the import that begins the tracing.
AT_ITS_START = """\
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "pytest_modelperf.tracing.autostart":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
if os.environ.get('MODELPERF_TRACE'):
    sys.meta_path.insert(0, Finder())
"""


@pytest.mark.usefixtures("default_signals")
def test_a_program_that_is_interrupted_as_it_starts_ends_by_the_signal(
    folder: Path, plain_python: Python
) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "sitecustomize.py").write_text(AT_ITS_START)
    path = os.pathsep.join([str(folder / "own"), environment()["PYTHONPATH"]])
    done = trace(folder, "--", plain_python.executable, "program.py", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"{NO_TRACE.format(2)}\n"


def test_a_program_that_a_signal_ends_has_the_code_that_a_shell_gives(
    folder: Path, plain_python: Python
) -> None:
    (folder / "killed.py").write_text(PROGRAM + "import os\nos.kill(os.getpid(), 9)\n")
    done = trace(folder, "--", plain_python.executable, "killed.py")
    assert done.returncode == 137
    assert NO_TRACE.format(9) in done.stderr
    assert traces(folder) == []


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["no-such-program"], "cannot start no-such-program: No such file or directory"),
        (["./program.py"], "modelperf trace -- python ./program.py"),
        ([], "there is no program after --"),
    ],
)
def test_a_program_that_cannot_be_started_is_an_error(
    folder: Path, program: Sequence[str], said: str
) -> None:
    done = trace(folder, "--", *program)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_error_of_a_python_that_ignores_pythonpath_mentions_the_hook(
    folder: Path, plain_python: Python
) -> None:
    done = trace(folder, "--", plain_python.executable, "-I", "-c", "print('out')")
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert "-I, -E or -S" in done.stderr
    assert "modelperf trace --hook install" in done.stderr


def test_with_the_hook_an_isolated_python_is_traced(folder: Path, hooked_python: Python) -> None:
    # An isolated Python finds packages in its own site folder alone.
    places = environment()["PYTHONPATH"].split(os.pathsep)
    file = hooked_python.site_folder / "_places.pth"
    file.write_text("".join(f"{place}\n" for place in places))
    try:
        done = trace(folder, "--", hooked_python.executable, "-I", "program.py")
    finally:
        file.unlink()
    assert done.returncode == 0
    assert inferences(folder / "trace.json") == 1


def test_a_python_that_lacks_the_package_runs_as_ever_and_is_named(
    folder: Path, plain_python: Python
) -> None:
    # As if the command were installed elsewhere: this Python has another search path.
    script = f"PYTHONPATH=${{PYTHONPATH%%:*}} {shlex.quote(str(plain_python.executable))}"
    done = trace(folder, "--", "sh", "-c", f"{script} -c 'print(1)'")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert f"{plain_python.executable} cannot load pytest-modelperf" in done.stderr


def test_a_reason_of_several_lines_is_shown_in_one(folder: Path, plain_python: Python) -> None:
    package = folder / "broken" / "pytest_modelperf"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('half\\n\\nan install')")
    script = f"PYTHONPATH=${{PYTHONPATH%%:*}}:broken {shlex.quote(str(plain_python.executable))}"
    done = trace(folder, "--", "sh", "-c", f"{script} -c ''")
    assert "cannot load pytest-modelperf (half an install)" in done.stderr


def test_a_program_without_the_runtime_leaves_the_older_trace(
    folder: Path, plain_python: Python
) -> None:
    (folder / "trace.json").write_text("older")
    done = trace(folder, "--", plain_python.executable, "-c", "")
    assert done.returncode == 0
    assert "no trace was written: the program did not import onnxruntime" in done.stderr
    assert (folder / "trace.json").read_text() == "older"


def test_an_option_for_totals_sums_up_the_trace(folder: Path, plain_python: Python) -> None:
    options = ("-o", "here.json", "--by", "type", "--csv", "totals.csv")
    done = trace(folder, *options, "--", plain_python.executable, "ending.py", "5")
    assert done.returncode == 5
    assert done.stdout.startswith("out\nsmall.onnx  2 runs of operators")
    assert "MatMul" in (folder / "totals.csv").read_text()


def test_totals_that_cannot_be_made_leave_the_exit_code(folder: Path, plain_python: Python) -> None:
    (folder / "idle.py").write_text("import sys, onnxruntime\nsys.exit(6)\n")
    done = trace(folder, "--top", "3", "--", plain_python.executable, "idle.py")
    assert done.returncode == 6
    assert "no operator ran in it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either a FILE to sum up, a program to trace, or --hook"),
        (("file.json", "--", "true"), "give either a FILE to sum up"),
        (("--hook", "status", "--", "true"), "give either a FILE to sum up"),
        (("-o", "x.json", "file.json"), "-o names the trace of a program"),
        (("-o", "-", "--", "true"), "a trace takes a file"),
        (("-o", "no/x.json", "--", "true"), "there is no folder no"),
        (("-o", "x.json", "--csv", "x.json", "--", "true"), "would both write x.json"),
        (("--hook", "status", "--top", "3"), "--hook takes no other option"),
    ],
)
def test_contradictory_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal("trace", *arguments)
