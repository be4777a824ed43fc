"""The answers of a worker, the reports of its end, and that it leaves no process or file."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from pytest_modelperf.errors import EngineError, ExtensionError, MeasureError, UsageError
from pytest_modelperf.profiler.engines.source import EngineModule, compile_module, find_source
from pytest_modelperf.profiler.worker.client import SENT_MODULES, ProcessWorker, WorkerRequest
from pytest_modelperf.profiler.worker.gateway import (
    LOCAL,
    Interpreter,
)
from pytest_modelperf.profiler.worker.lock import describe_holder, measuring_alone
from pytest_modelperf.profiler.worker.starter import take_module
from tests.support.known import known
from tests.support.processes import children, ends, on_linux
from tests.support.ssh import HOST, put_in_place_of_ssh

FAULTY = EngineModule("faulty", "tests.support.faulty")


@contextmanager
def working(**options: str) -> Iterator[ProcessWorker]:
    """A worker with the faulty engine and a model loaded."""
    with ProcessWorker(WorkerRequest(limit_s=60.0)) as worker:
        worker.use_engine(FAULTY, options)
        worker.ask("inputs", "as the inputs were sent", inputs={})
        open_model(worker, options)
        yield worker


with_waitid = pytest.mark.skipif(
    not hasattr(os, "waitid"), reason="this system has no waitid, which shows how a child ended"
)


def open_model(worker: ProcessWorker, options: Mapping[str, str]) -> None:
    worker.ask(
        "open",
        "as the model was loaded",
        side="a",
        model="m.onnx",
        folder=None,
        threads=1,
        options=dict(options),
    )


def run_block(
    worker: ProcessWorker, count: int = 5, sides: tuple[str, ...] = ("a",)
) -> dict[str, Any]:
    answer: dict[str, Any] = worker.ask(
        "block", "in round 3", sides=list(sides), count=count, max_ns=10**12, seed=0
    )
    return answer


LOADED = """
import sys

def describe(options):
    return {"loaded": sorted(name for name in sys.modules if name.startswith("pytest_modelperf"))}
"""


def test_a_worker_has_of_this_package_what_was_sent_alone() -> None:
    with ProcessWorker(WorkerRequest(limit_s=60.0, paths=sys.path)) as worker:
        answer = worker.ask("engine", "as it loaded", source=LOADED, file="e.py", options={})
    assert answer["loaded"] == sorted(SENT_MODULES)


def test_each_inference_is_timed() -> None:
    with working() as worker:
        times = np.frombuffer(run_block(worker, 7)["times"]["a"], np.int64)
    assert len(times) == 7
    assert (times > 0).all()


def test_two_sides_take_turns() -> None:
    with working() as worker:
        worker.ask("open", "", side="b", model="m", folder=None, threads=1, options={})
        times = run_block(worker, 9, ("a", "b"))["times"]
    assert {side: len(np.frombuffer(t, np.int64)) for side, t in times.items()} == {"a": 9, "b": 9}


@dataclass
class TalkingChannel:
    """A channel whose other end answers every 0.9 s, by a clock that only this one has."""

    words: list[dict[str, Any] | None]
    sent: list[Any] = field(default_factory=list)

    def send(self, request: object) -> None:
        self.sent.append(request)

    def receive(self, limit_s: float) -> dict[str, Any] | None:
        if limit_s < 0.9:
            raise TimeoutError
        return self.words.pop(0)


@dataclass
class TalkingInterpreter:
    """An interpreter that already is a worker, and runs no process."""

    channel: TalkingChannel
    is_given_up: bool = False

    def give_up(self) -> None:
        self.is_given_up = True

    def end(self) -> None:
        pass


def talking(request: WorkerRequest, words: list[dict[str, Any] | None]) -> ProcessWorker:
    interpreter: Any = TalkingInterpreter(TalkingChannel(words))
    return ProcessWorker(request, interpreter=interpreter)


@pytest.mark.parametrize("limit_s", [1.0, 0.8])
def test_a_worker_is_waited_for_while_it_reports_and_not_in_silence(limit_s: float) -> None:
    worker = talking(WorkerRequest(limit_s=limit_s), [None, None, {"ok": "done"}])
    try:
        if limit_s > 0.9:
            assert worker.ask("quantize", "there") == "done"
        else:
            with pytest.raises(MeasureError, match=r"no answer for 0\.8 s there"):
                worker.ask("quantize", "there")
    finally:
        worker.end()


@on_linux
def test_a_worker_keeps_to_one_processor_per_core() -> None:
    with ProcessWorker(WorkerRequest(cores=1)) as worker:
        assert len(known(worker.processors)) == 1


@on_linux
def test_a_block_reports_its_noise() -> None:
    with working() as worker:
        noise = run_block(worker)["noise"]
    assert noise["wall_ns"] > 0
    for name in ("cpu_ns", "involuntary_switches", "stolen_ns"):
        assert noise[name] >= 0
    assert isinstance(noise["others_ns"], int)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"do": "signal", "signal": "SIGSEGV"},
            "was killed by SIGSEGV (segmentation fault) in round 3.",
        ),
        (
            {"do": "signal", "signal": "SIGKILL"},
            "was killed by SIGKILL (killed) in round 3. This mostly means that memory",
        ),
        ({"do": "signal", "signal": "SIGTERM"}, "was killed by SIGTERM (terminated) in round 3."),
        ({"do": "exit"}, "ended with status 7 in round 3"),
    ],
)
@with_waitid
def test_the_error_names_how_a_worker_ended_and_its_last_step(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(MeasureError) as error, working(at="2", **options) as worker:
        run_block(worker)
    assert said in str(error.value)


@with_waitid
def test_later_requests_also_report_why_a_worker_ended() -> None:
    with working(at="2", do="signal", signal="SIGKILL") as worker:
        with pytest.raises(MeasureError) as first:
            run_block(worker)
        with pytest.raises(MeasureError) as later:
            worker.ask("memory", "as its memory was asked for")
    said = f"the worker had already ended as its memory was asked for: {first.value}"
    assert str(later.value) == said


def test_the_last_words_of_a_worker_are_shown_and_cannot_steer_a_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = {"at": "2", "do": "print", "signal": "SIGSEGV"}
    with pytest.raises(MeasureError) as error, working(**options) as worker:
        run_block(worker)
    assert "a word from the engine\n\\x1b[31mand another\n" in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_is_silent_for_too_long_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    options = {"at": "2", "do": "hang", "note": str(note)}
    with pytest.raises(MeasureError) as error, working(**options) as worker:
        worker.ask("block", "in round 3", 0.2, sides=["a"], count=5, max_ns=10**12)
    assert str(error.value).startswith("no answer for 0.2 s in round 3")
    assert "allow more with a longer timeout" in str(error.value)
    assert ends(int(note.read_text()))


@on_linux
def test_a_worker_that_takes_nothing_in_is_ended(tmp_path: Path) -> None:
    """A pipe holds 64 KiB, so sending more waits until the worker reads."""
    note = tmp_path / "pid"
    inputs = {"x": ("uint8", "|u1", (1 << 24,), bytes(1 << 24))}
    with working(note=str(note)) as worker:
        os.kill(int(note.read_text()), signal.SIGSTOP)
        with pytest.raises(MeasureError, match=r"no answer for 0\.3 s"):
            worker.ask("inputs", "as the inputs were sent", 0.3, inputs=inputs)
    assert ends(int(note.read_text()))


@on_linux
def test_an_interpreter_that_says_nothing_is_ended(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    before = children()
    spec = f"popen//python={silent}"
    request = WorkerRequest(spec=spec, limit_s=0.5, least_start_limit_s=0.5)
    with (
        pytest.raises(MeasureError, match=r"it did not answer for 0\.5 s\. Is it a Python"),
        ProcessWorker(request),
    ):
        pass
    # It may be ended before it could have said who it is.
    assert all(map(ends, children() - before))


@on_linux
def test_a_program_that_is_not_an_interpreter_and_goes_on_is_ended(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho hello\nexec sleep 600\n")
    other.chmod(0o755)
    before = children()
    request = WorkerRequest(spec=f"popen//python={other}")
    with pytest.raises(MeasureError), ProcessWorker(request):
        pass
    assert all(map(ends, children() - before))


def test_a_lack_of_memory_is_reported_and_the_worker_lives_on() -> None:
    with working(at="2", do="grow") as worker:
        with pytest.raises(MeasureError, match="memory ran out in round 3: MemoryError"):
            run_block(worker)
        assert worker.ask("memory", "")["engine_peak_bytes"] == 4096


def test_an_exception_of_the_engine_is_one_clear_line() -> None:
    with pytest.raises(MeasureError) as error, working(at="2", do="fail") as worker:
        run_block(worker)
    assert str(error.value) == "in round 3: ValueError: the input does not fit"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import numpy\ndef describe(_): return {'version': numpy.int64(2)}", "numpy.int64"),
        ("def describe(_): raise SystemExit('not today')", "SystemExit: not today."),
        ("def describe(_): raise OSError('no \\udcff here')", r"OSError: no \udcff here"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_reported(source: str, said: str) -> None:
    with (
        pytest.raises(MeasureError, match=re.escape(said)),
        ProcessWorker(WorkerRequest(limit_s=60.0, paths=sys.path)) as worker,
    ):
        worker.ask("engine", "as it loaded", source=source, file="e.py", options={})


SUBCLASSES = """
import enum
import numpy

class Version(str):
    pass

class Level(str, enum.Enum):
    ALL = "all"

def describe(options):
    return {
        "version": Version("1.2"),
        "options": {Version("level"): Level.ALL},
        "providers": (Version("CPU"), numpy.str_("GPU")),
        "share": numpy.float64(0.5),
        "count": enum.IntEnum("Count", "ONE").ONE,
    }
"""


def test_an_engine_may_describe_itself_with_subclasses_of_plain_types() -> None:
    with ProcessWorker(WorkerRequest(limit_s=60.0, paths=sys.path)) as worker:
        answer = worker.ask("engine", "as it loaded", source=SUBCLASSES, file="e.py", options={})
    assert answer == {
        "version": "1.2",
        "options": {"level": "all"},
        "providers": ("CPU", "GPU"),
        "share": 0.5,
        "count": 1,
    }


def test_an_option_that_the_engine_does_not_know_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no option 'unknown'"), working(unknown="1"):
        pass


def test_an_engine_that_is_not_installed_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "lost_engine.py").write_text("import no_such_runtime\n")
    with pytest.MonkeyPatch.context() as patch, ProcessWorker(WorkerRequest()) as worker:
        patch.syspath_prepend(str(tmp_path))
        engine = EngineModule("lost", "lost_engine", "pip install lost")
        with pytest.raises(EngineError) as error:
            worker.use_engine(engine, {})
    message = str(error.value)
    assert "the engine 'lost' cannot run" in message
    assert "has no module 'no_such_runtime'. Install it there: pip install lost" in message
    assert sys.executable in message


def test_source_is_found_whatever_loads_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the package is installed, pytest itself loads its modules, to rewrite them."""
    spec = known(importlib.util.find_spec(FAULTY.module))
    assert spec.origin is not None
    spec.loader = None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    found = find_source(FAULTY.module)
    assert found.file == spec.origin
    assert found.text == Path(spec.origin).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spec", "is_compiled"), [("popen", True), ("popen//python=/old/bin/python", False)]
)
def test_only_a_worker_of_this_python_is_sent_what_it_compiled(
    spec: str, *, is_compiled: bool
) -> None:
    worker = talking(WorkerRequest(spec=spec), [{"ok": {}}])
    try:
        worker.use_engine(FAULTY, {})
    finally:
        worker.end()
    source = find_source(FAULTY.module)
    code = known(compile_module(FAULTY.module, source.file, source.file))
    sent = cast("TalkingChannel", worker._channel).sent
    assert sent[0]["code"] == (code if is_compiled else None)


def test_a_compiled_module_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, file = "modelperf_compiled", tmp_path / "engine.py"
    file.write_text("def fail(): raise ValueError\nnumber = 1")
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    code = compile_module(name, str(file), "<engine>")
    module = take_module(name, "number = 2", "<engine>", code)
    assert module.number == 1
    assert take_module(name, "number = 2", "<engine>").number == 2
    assert [*tmp_path.glob("__pycache__/engine.*.pyc")] or sys.dont_write_bytecode
    with pytest.raises(ValueError) as error:  # noqa: PT011  # where it comes from, not what
        module.fail()
    assert error.traceback[-1].frame.code.raw.co_filename == "<engine>"


def test_a_worker_says_what_is_wrong_with_a_source(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text("number =")
    assert compile_module("engine", str(file), "<engine>") is None


def test_an_engine_without_source_cannot_be_sent() -> None:
    with pytest.raises(ExtensionError, match="has no source file"):
        find_source("no_such_package.engine")


def test_a_source_with_bytes_that_are_not_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "latin_engine.py"
    file.write_bytes(b"number = 1\n\n\ntext = '\xe9'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ExtensionError, match=re.escape(str(file))):
        find_source("latin_engine")


@on_linux
def test_processes_that_a_worker_started_end_with_it(tmp_path: Path) -> None:
    note = tmp_path / "child"
    options = {"at": "1", "do": "spawn", "signal": "SIGKILL", "note": str(note)}
    with pytest.raises(MeasureError), working(**options) as worker:
        run_block(worker)
    assert ends(int(note.read_text()))


@on_linux
def test_an_error_on_our_side_ends_the_worker_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(KeyboardInterrupt), working(note=str(note)):
        raise KeyboardInterrupt
    assert ends(int(note.read_text()))


@on_linux
def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import os, signal\n"
        "from tests.profiler.worker.test_client import working\n"
        f"with working(note={str(note)!r}):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(note.read_text())
    assert ends(pid)


@on_linux
def test_the_peak_of_a_worker_is_its_own() -> None:
    """The peak does not include that of the process which started it."""
    ballast = np.ones(1 << 26)
    with working() as worker:
        peak = worker.ask("memory", "as its memory was asked for")["peak_rss_bytes"]
    assert 1 << 20 < peak < ballast.nbytes / 2


def test_the_files_of_a_worker_go_with_it() -> None:
    with working() as worker:
        folder = worker.folder
        assert folder.is_dir()
    assert not folder.exists()


def test_a_worker_needs_nothing_of_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its interpreter refuses to import the package, like one without an installation of it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.modules['pytest_modelperf'] = None\n"
        "sys.modules['pytest'] = None\n"
        "sys.modules['onnx'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    engine = EngineModule("onnxruntime", "pytest_modelperf.profiler.engines.onnxruntime")
    with ProcessWorker(WorkerRequest()) as worker:
        assert worker.use_engine(engine, {})["name"] == "onnxruntime"


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("nonsense", UsageError, "the gateway 'nonsense' cannot be read"),
        ("popen//python=/no/such/python", MeasureError, "no worker could be started through"),
        ("popen//python=/bin/false", MeasureError, "it ended at once. Is it a Python interpreter"),
    ],
)
def test_a_gateway_that_leads_nowhere_is_one_clear_error(
    spec: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said), ProcessWorker(WorkerRequest(spec=spec)):
        pass


def test_a_python_that_is_too_old_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.version_info = (3, 8, 18)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(MeasureError, match=r"a worker needs 3\.9 or newer\.$"),
        ProcessWorker(WorkerRequest()),
    ):
        pass


@pytest.mark.parametrize("spec", [HOST, f"command=env A=b '{sys.executable}'"])
def test_a_worker_of_another_machine_answers_until_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    put_in_place_of_ssh(tmp_path, monkeypatch)
    options = {"at": "6", "do": "exit"}
    with ProcessWorker(WorkerRequest(spec=spec)) as worker:
        assert not worker.is_local
        assert known(worker.machine).logical_cores is not None
        worker.use_engine(FAULTY, options)
        worker.ask("inputs", "as the inputs were sent", inputs={})
        open_model(worker, options)
        assert len(np.frombuffer(run_block(worker, 3)["times"]["a"], np.int64)) == 3
        with pytest.raises(MeasureError, match=r"connection to the worker was lost in round 3\. "):
            run_block(worker)


def test_a_host_that_ssh_does_not_reach_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_ssh(tmp_path, monkeypatch, "exit 255")
    with (
        pytest.raises(MeasureError, match=r"'ssh=another-host//.*' cannot be reached"),
        ProcessWorker(WorkerRequest(spec=HOST)),
    ):
        pass


def test_a_worker_behind_ssh_gets_its_files_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_ssh(tmp_path, monkeypatch)
    model = tmp_path / "m.onnx"
    model.write_bytes(os.urandom(5 << 20))
    weights = tmp_path / "data" / "w.bin"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    with ProcessWorker(WorkerRequest(spec=HOST)) as worker:
        sent = Path(worker.send_model(model, {"data/w.bin": weights}))
        assert sent.parent != tmp_path
        assert sent.read_bytes() == model.read_bytes()
        assert (sent.parent / "data" / "w.bin").read_bytes() == b"weights"
    assert not sent.exists()


PLACED = """
import os, threading

def describe(options):
    return {
        "main": threading.current_thread() is threading.main_thread(),
        "session": hasattr(os, "getsid") and os.getsid(0) - os.getpid(),
        "folder": os.getcwd(),
        "variable": os.environ.get("A"),
        "niceness": hasattr(os, "nice") and os.nice(0),
        "inputs": [os.read(0, 1), os.write(1, b"not a value")],
    }
"""


def test_a_worker_begins_where_its_gateway_says_and_apart_from_this_terminal(
    tmp_path: Path,
) -> None:
    """Ctrl-C of a terminal ends all processes of the session, each with a traceback."""
    folder = tmp_path / "new"
    spec = f"popen//chdir={folder}//env:A=b//nice=3"
    with ProcessWorker(WorkerRequest(spec=spec)) as worker:
        answer = worker.ask("engine", "as it loaded", source=PLACED, file="e.py", options={})
    assert answer.pop("main") is True
    assert answer.pop("session") == 0
    # These tests may run under `nice` themselves.
    assert answer.pop("niceness") == (hasattr(os, "nice") and min(os.nice(0) + 3, 19))
    assert answer == {"folder": str(folder), "variable": "b", "inputs": [b"", 11]}


def test_measurements_on_a_machine_wait_for_each_other(tmp_path: Path) -> None:
    waited: list[str] = []

    def refuse(holder: str) -> None:
        waited.append(holder)
        raise KeyboardInterrupt

    path = tmp_path / "lock"
    with (
        measuring_alone(path=path),
        pytest.raises(KeyboardInterrupt),
        measuring_alone(refuse, path),
    ):
        pass
    with measuring_alone(refuse, path):
        pass
    (holder,) = waited
    assert re.fullmatch(r"(process \d+|another process) to end measuring, 60 min at most", holder)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system lists who holds a lock")
def test_the_holder_of_the_lock_is_reported_and_the_wait_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    message = f"did not end within 0 s: process {os.getpid()} holds {path}. End it if it hangs, or "
    with (
        measuring_alone(path=path),
        pytest.raises(MeasureError, match=message),
        measuring_alone(path=path, longest_s=0),
    ):
        pass
    assert describe_holder(path) == "another process"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("folder", "Is a directory"), ("link", "it is a link"), ("file/lock", "File exists")],
)
def test_a_path_that_cannot_be_a_lock_is_reported(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with (
        pytest.raises(MeasureError, match=rf"cannot be taken at .*{name}: {reason}\. Set "),
        measuring_alone(path=tmp_path / name),
    ):
        pass


def test_a_worker_uses_an_interpreter_that_was_started_before(
    started: list[subprocess.Popen[bytes]],
) -> None:
    interpreter = Interpreter(LOCAL)
    with ProcessWorker(WorkerRequest(), interpreter=interpreter) as worker:
        assert worker.use_engine(FAULTY, {})
    assert started == [interpreter.process]
    assert interpreter.process.poll() is not None
