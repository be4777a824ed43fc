"""`MODELPERF_TRACE` traces the processes that a program forks, each into a file of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tracing.pythons import SEARCH_PATH, Python
from tests.tracing.test_autostart import run
from tests.tracing.validity import Trace, read_valid_trace

pytestmark = pytest.mark.slow

# Each process that runs the model prints its number, and how often it does.
PROGRAM = """\
import gc, multiprocessing, os, signal, sys, warnings
import numpy as np
import onnxruntime as ort
# Python warns of forks of processes that have threads.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
forked = multiprocessing.get_context("fork")

def opened():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession("small.onnx", options, providers=["CPUExecutionProvider"])

def work(count, session=None):
    session = session or opened()
    for _ in range(count):
        session.run(None, {"x": np.ones((2, 8), np.float32)})
    report(count)

def report(count):
    os.write(1, f"{os.getpid()} {count}\\n".encode())

def fork(call, *arguments, end=lambda: sys.exit(0)):
    child = os.fork()
    if child == 0:
        call(*arguments)
        end()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""
PROCESS = """\
process = forked.Process(target=work, args=(2,))
process.start()
process.join()
assert process.exitcode == 0
"""
FAILING = """\
def fail():
    work(2)
    sys.stderr = None
    raise ValueError

process = forked.Process(target=fail)
process.start()
process.join()
assert process.exitcode == 1
"""
POOL = """\
pool = forked.Pool(2)
pool.map(work, [1, 2, 3], chunksize=1)
pool.close()
pool.join()
"""
EXECUTOR = """\
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2, mp_context=forked) as executor:
    list(executor.map(work, [1, 2, 3]))
"""
PLAIN = "assert fork(work, 2) == 0\n"
# A module that makes its sessions again in each process does so before multiprocessing is set up.
AT_ONCE = """\
os.register_at_fork(after_in_child=lambda: work(2))
process = forked.Process(target=report, args=(0,))
process.start()
process.join()
"""


def counts(printed: str) -> dict[int, int]:
    """How often each process ran the model, by what it printed."""
    found: dict[int, int] = {}
    for line in printed.splitlines():
        process, count = line.split()
        found[int(process)] = found.get(int(process), 0) + int(count)
    return found


def read_traces(folder: Path) -> dict[str, Trace]:
    return {
        file.name: read_valid_trace(file.read_text(encoding="ascii"))
        for file in folder.glob("trace*")
    }


def run_traced(
    python: Python, model: Path, program: str, before: str = PROGRAM
) -> tuple[str, dict[str, Trace]]:
    """Return the output of the program, and its traces, the only files that it leaves."""
    temporary = model.parent / "temporary"
    temporary.mkdir()
    done = run(
        python, model.parent, before + program, MODELPERF_TRACE="trace.json", TMPDIR=str(temporary)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(temporary.glob("modelperf*")) == []
    return done.stdout, read_traces(model.parent)


@pytest.mark.parametrize(
    "program", [PROCESS, FAILING, POOL, EXECUTOR, PLAIN, AT_ONCE], ids=lambda text: text[:12]
)
def test_each_process_that_is_forked_has_a_file_of_its_own(
    hooked_python: Python, model: Path, program: str
) -> None:
    printed, traces = run_traced(hooked_python, model, f"work(3)\n{program}")
    expected = counts(printed)
    (own,) = [process for process in expected if f"trace-{process}.json" not in traces]
    assert len(expected) > 1
    assert len(traces) == len(expected)
    for process, count in expected.items():
        trace = traces["trace.json" if process == own else f"trace-{process}.json"]
        assert len(trace.of("inference")) == count
        assert len(trace.of("operator")) == 2 * count
        assert "notes" not in trace.about


def test_a_process_that_is_forked_and_runs_nothing_leaves_no_file(
    hooked_python: Python, model: Path
) -> None:
    program = "session = opened()\nassert fork(report, 0) == 0\n" + POOL.replace("work", "report")
    _, traces = run_traced(hooked_python, model, program)
    assert list(traces) == ["trace.json"]


def test_a_session_that_a_fork_inherits_stays_whole_in_the_parent(
    hooked_python: Python, model: Path
) -> None:
    """The profile of a session is one open file, which both processes could write."""
    program = """\
session = opened()
work(2, session)
assert fork(work, 3, session) == 0
def let_go():
    global session
    gc.collect()
    work(4, session)
    assert session.end_profiling() == "", "the runtime went on with the profile"
    del session
process = forked.Process(target=let_go)
process.start()
process.join()
assert process.exitcode == 0
work(5, session)
"""
    printed, traces = run_traced(hooked_python, model, program)
    (own, _, _) = expected = counts(printed)
    (trace,) = [traces.pop("trace.json")]
    assert expected[own] == len(trace.of("inference")) == 7
    assert len(trace.of("operator")) == 14
    assert "notes" not in trace.about


def test_inferences_of_an_inherited_session_are_recorded(
    hooked_python: Python, model: Path
) -> None:
    printed, traces = run_traced(
        hooked_python, model, "session = opened()\nassert fork(work, 3, session) == 0\n"
    )
    (process,) = counts(printed)
    trace = traces[f"trace-{process}.json"]
    assert [span.name for span in trace.spans] == ["inference"] * 3
    (note,) = trace.about["notes"]
    assert note.startswith("small.onnx: no operators ")


@pytest.mark.parametrize("first", ["work(2)", "report(0)"])
def test_forked_processes_fork_others(hooked_python: Python, model: Path, first: str) -> None:
    outer = f"def outer():\n    {first}\n    assert fork(work, 3) == 0\n    report(0)\n"
    printed, traces = run_traced(
        hooked_python, model, f"{outer}\nassert fork(outer) == 0\nwork(1)\n"
    )
    sizes = sorted(len(trace.of("inference")) for trace in traces.values())
    assert sizes == sorted(count for count in counts(printed).values() if count)


def test_the_runtime_may_be_imported_in_the_forked_process_alone(
    hooked_python: Python, model: Path
) -> None:
    late = PROGRAM.replace("import onnxruntime as ort\n", "")
    imported = "def load(count):\n    global ort\n    import onnxruntime as ort\n    work(count)\n"
    program = imported + POOL.replace("work", "load") + "assert fork(load, 7) == 0\n"
    printed, traces = run_traced(hooked_python, model, program, late)
    expected = {f"trace-{process}.json": count for process, count in counts(printed).items()}
    assert {name: len(trace.of("inference")) for name, trace in traces.items()} == expected


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_process_started_by_spawn_or_forkserver_has_a_file_of_its_own(
    hooked_python: Python, model: Path, method: str
) -> None:
    (model.parent / "worker.py").write_text(PROGRAM)
    program = f"""\
import sys
sys.path.insert(0, "")
import multiprocessing, worker
context = multiprocessing.get_context({method!r})
if __name__ == "__main__":
    calls = (worker.work, 2), (worker.report, 0)
    processes = [context.Process(target=call, args=(count,)) for call, count in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""
    path = f"{model.parent}{os.pathsep}{SEARCH_PATH}"
    done = run(hooked_python, model.parent, program, MODELPERF_TRACE="trace.json", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    (ran,) = [process for process, count in counts(done.stdout).items() if count]
    traces = read_traces(model.parent)
    assert sorted(traces) == sorted(["trace.json", f"trace-{ran}.json"])
    assert len(traces[f"trace-{ran}.json"].of("inference")) == 2


@pytest.mark.parametrize("end", ["signal.SIGKILL", "signal.SIGTERM"])
def test_a_process_that_is_killed_leaves_no_trace(
    hooked_python: Python, model: Path, end: str
) -> None:
    killed = f"assert fork(work, 2, end=lambda: os.kill(os.getpid(), {end})) == -{end}\nwork(1)\n"
    done = run(hooked_python, model.parent, PROGRAM + killed, MODELPERF_TRACE="trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    child, _ = counts(done.stdout)
    traces = read_traces(model.parent)
    assert f"trace-{child}.json" not in traces
    (trace,) = traces.values()
    assert len(trace.of("inference")) == 1


def test_a_forked_process_waits_for_no_thread_of_the_other(
    hooked_python: Python, model: Path
) -> None:
    """A thread of it seems to have begun or recorded something at that very moment."""
    program = """\
from pytest_modelperf.tracing.program_trace import Trace
session = opened()
with Trace._switch, Trace._active._begun()._lock, Trace._active._watch._lock:
    child = os.fork()
    if child == 0:
        work(1, session)
        work(2)
        sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    printed, traces = run_traced(hooked_python, model, program)
    (process,) = counts(printed)
    assert len(traces[f"trace-{process}.json"].of("inference")) == 3


def test_a_program_may_end_the_trace_of_those_that_it_forks(
    hooked_python: Python, model: Path
) -> None:
    program = "work(1)\ndel os.environ['MODELPERF_TRACE']\nassert fork(work, 2) == 0\n"
    _, traces = run_traced(hooked_python, model, program)
    assert list(traces) == ["trace.json"]


def test_a_file_that_cannot_be_written_is_reported_once(hooked_python: Python, model: Path) -> None:
    program = PROGRAM + "assert fork(work, 1) == 0\nassert fork(work, 1) == 0\n"
    done = run(hooked_python, model.parent, program, MODELPERF_TRACE="no/trace.json")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1


def test_a_profile_that_a_forked_process_begins_itself_is_its_own(
    hooked_python: Python, model: Path
) -> None:
    program = """\
from pytest_modelperf import trace
def recorded():
    with trace(file="inner.json") as p:
        work(2)
    assert len([event for event in p.events() if event.name == "inference"]) == 2
assert fork(recorded) == 0
"""
    _, traces = run_traced(hooked_python, model, program)
    assert list(traces) == ["trace.json"]
    inner = read_valid_trace((model.parent / "inner.json").read_text(encoding="ascii"))
    assert len(inner.of("inference")) == 2
