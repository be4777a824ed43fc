"""Stations: real processes of pytest that serve one test up to the call of `check`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.programs import sides
from pytest_modelperf.programs.sides import TestMissingError
from pytest_modelperf.programs.station.calls import ProcessorWait
from tests.programs.conftest import Project
from tests.support.known import known

_SECOND = 1_000_000_000


def test_a_call_is_split_into_sessions_labels_and_the_rest(project: Project) -> None:
    station = project.reach("""
import pytest_modelperf

def test_it(modelperf):
    session = ort.InferenceSession("model.onnx")

    def read(rows):
        with pytest_modelperf.label("prepare"):
            x = np.ones((rows, 3), np.float32)
            session.run(None, {"x": x})
        return session.run(None, {"x": x})

    modelperf.check(read, 2)
""")
    turns = station.call(3, 60 * _SECOND)
    assert len(turns) == 3
    for turn in turns:
        assert turn.sessions["model.onnx"].calls == 2
        assert turn.labels["prepare"].calls == 1
        assert turn.rest_ns + turn.sessions["model.onnx"].ns == turn.wall_ns
        assert turn.labels["prepare"].ns < turn.rest_ns
        assert turn.cpu_ns <= turn.rest_ns + 1_000_000
    # One call is made even if its time is over.
    assert len(station.call(3, 0)) == 1


def test_fixtures_classes_and_parameters_are_set_up_and_torn_down(project: Project) -> None:
    project.write(
        {
            "conftest.py": """
                import pathlib, pytest

                def pytest_addoption(parser):
                    parser.addoption("--rows", type=int, default=1)

                @pytest.fixture(scope="session")
                def rows(pytestconfig, request):
                    request.addfinalizer(lambda: pathlib.Path("torn_down").touch())
                    return pytestconfig.getoption("--rows")
            """,
            "test_program.py": """
                import pytest

                class TestReading:
                    @pytest.fixture(scope="class", autouse=True)
                    def factor(self):
                        type(self).factor = 10

                    @pytest.mark.parametrize("more", [1, 2], ids=["a::b", "c"])
                    def test_it(self, modelperf, rows, more, tmp_path):
                        assert tmp_path.is_dir()
                        modelperf.check(lambda: rows * self.factor + more)
            """,
        }
    )
    station = project.start("TestReading::test_it[a::b]", options={"rows": 7})
    assert station.wait_reached().kind == "function"
    assert pickle.loads(station.result()) == 71  # noqa: S301  # of our own station
    station.end()
    assert (project.worktree / "torn_down").exists()
    assert not (project.worktree / ".pytest_cache").exists()


def test_a_unittest_case_with_an_injected_fixture(project: Project) -> None:
    source = """
import pytest, unittest

class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def inject(self, modelperf):
        self.modelperf = modelperf

    def setUp(self):
        self.value = 3

    def test_it(self):
        self.modelperf.check(lambda more: self.value + more, more=4)
    """
    station = project.reach(source, "TestCase::test_it")
    assert pickle.loads(station.result()) == 7  # noqa: S301  # of our own station


def test_coroutines_run_in_one_loop_and_generators_to_their_end(project: Project) -> None:
    text = """
import asyncio

loops = set()

async def wait(n):
    await asyncio.sleep(0)
    loops.add(id(asyncio.get_running_loop()))
    return n, len(loops)

def count(n):
    yield from range(n)

async def count_later(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i

def test_coroutine(modelperf):
    modelperf.check(lambda n: wait(n), each=[(1,), (2,)])

def test_generator(modelperf):
    modelperf.check(count, 3)

def test_async_generator(modelperf):
    modelperf.check(count_later, 4)

def test_running(modelperf):
    async def main():
        await modelperf.check(wait, 5)
    asyncio.run(main())

def test_forgotten(modelperf):
    async def main():
        modelperf.check(wait, 5)
    asyncio.run(main())
"""
    station = project.reach(text, "test_coroutine")
    (turn,) = station.call(1, 0)
    assert len(turn.each_ns) == 2
    assert pickle.loads(station.result()) == [(1, 1), (2, 1)]  # noqa: S301
    for test, items in (("test_generator", 3), ("test_async_generator", 4)):
        station = project.reach(text, test)
        (turn,) = station.call(1, 0)
        assert turn.items == items
        assert known(turn.first_ns) <= turn.wall_ns
        assert pickle.loads(station.result()) == list(range(items))  # noqa: S301
    station = project.reach(text, "test_running")
    assert pickle.loads(station.result()) == (5, 1)  # noqa: S301
    with pytest.raises(MeasureError, match=r"write: await modelperf\.check"):
        project.start("test_forgotten").wait_reached()


def test_the_watched_work_names_models_options_and_inputs(project: Project) -> None:
    station = project.reach("""
def test_it(modelperf):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    kept = ort.InferenceSession("model.onnx", options)
    data = open("model.onnx", "rb").read()

    def read():
        kept.run(None, {"x": [[1.0, 2.0, 3.0]]})
        value = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), np.float32))
        kept.run_with_ort_values(None, {"x": value})
        binding = kept.io_binding()
        binding.bind_cpu_input("x", np.ones((4, 3), np.float32))
        binding.bind_output("y")
        kept.run_with_iobinding(binding)
        made = ort.InferenceSession(data)
        made.run(None, {"x": np.ones((1, 3), np.float32)})

    modelperf.check(read)
""")
    watched = station.watch()
    assert watched.next_work is None
    kept, made = sorted(watched.work.sessions, key=lambda each: -each.calls)
    assert kept.model == "model.onnx"
    assert kept.made == 0
    assert kept.options["intra_op_num_threads"] == "2"
    assert kept.options["session.intra_op.allow_spinning"] == "0"
    assert [each.inputs for each in kept.inferences] == [
        ("x: 1x3 list",),
        ("x: 2x3 float32",),
        ("x: 4x3 float32",),
    ]
    assert made.made == made.calls == 1
    # The file and its bytes are the same model.
    assert kept.sha256 == made.sha256
    assert watched.models[made.model].read_bytes() == watched.models["model.onnx"].read_bytes()


def test_the_numbers_among_the_inputs_are_known_by_their_values(project: Project) -> None:
    station = project.reach("""
import onnx
from onnx import parser

TEXT = "g (float[n, 3] x, int64 rate, float[1] scale) => (float[n, 3] y) { y = Mul (x, scale) }"
MODEL = '<ir_version: 8, opset_import: ["" : 17]> ' + TEXT
onnx.save(parser.parse_model(MODEL), "rate.onnx")

def test_it(modelperf):
    session = ort.InferenceSession("rate.onnx")
    feed = {"x": np.ones((2, 3), np.float32), "rate": np.array(16000), "scale": np.float32([0.5])}
    value = ort.OrtValue.ortvalue_from_numpy
    values = {name: value(np.asarray(each)) for name, each in feed.items()}

    def read():
        session.run(None, feed)
        session.run_with_ort_values(None, values)

    modelperf.check(read)
""")
    assert station.watch().numbers["rate.onnx"] == {"rate": 16000.0, "scale": 0.5}


def test_a_cache_shows_as_other_work_of_the_next_call(project: Project) -> None:
    station = project.reach("""
def test_it(modelperf):
    session = ort.InferenceSession("model.onnx")
    calls = []

    def read():
        calls.append(1)
        if len(calls) <= 3:
            session.run(None, {"x": np.ones((1, 3), np.float32)})

    modelperf.check(read)
""")
    watched = station.watch()
    assert watched.work.inferences == 1
    assert known(watched.next_work).inferences == 0


def test_inferences_before_the_first_item_count_if_their_order_is_fixed(project: Project) -> None:
    text = """
import threading

session = ort.InferenceSession("model.onnx")

def infer(rows):
    return session.run(None, {"x": np.ones((rows, 3), np.float32)})

def stream(rows):
    infer(rows)
    for _ in range(rows):
        yield infer(rows)

async def later(rows):
    for each in list(stream(rows)):
        yield each

def ahead(rows):
    thread = threading.Thread(target=infer, args=(rows,))
    thread.start()
    yield from stream(rows)
    thread.join()

def test_stream(modelperf):
    modelperf.check(stream, each=[(2,), (3,)])

def test_later(modelperf):
    modelperf.check(later, 3)

def test_ahead(modelperf):
    modelperf.check(ahead, 3)

def test_list(modelperf):
    modelperf.check(lambda: list(stream(3)))
"""
    counts = {"test_stream": 4, "test_later": 4, "test_ahead": None, "test_list": None}
    for test, count in counts.items():
        watched = project.reach(text, test).watch()
        assert watched.work.first_item_inferences == count
        assert watched.next_work is None


def test_an_inference_that_ends_later_counts_until_its_callback(project: Project) -> None:
    station = project.reach("""
import threading

def test_it(modelperf):
    session = ort.InferenceSession("model.onnx")

    def read():
        done = threading.Event()
        feed = {"x": np.ones((1, 3), np.float32)}
        session.run_async(None, feed, lambda *_: done.set(), None)
        done.wait()

    modelperf.check(read)
""")
    (turn,) = station.call(1, 0)
    assert turn.sessions["model.onnx"].calls == 1
    assert turn.waited_ns is None
    (session,) = station.watch().work.sessions
    assert [each.inputs for each in session.inferences] == [("x: 1x3 float32",)]


def test_waits_of_the_calling_thread_count_if_only_it_runs_sessions(project: Project) -> None:
    """It may wait for the processor on which another thread runs the session."""
    station = project.reach("""
import threading

def test_it(modelperf):
    session = ort.InferenceSession("model.onnx")
    runs = 0

    def run():
        session.run(None, {"x": np.ones((1, 3), np.float32)})

    def read():
        nonlocal runs
        runs += 1
        if runs % 2:
            return run()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    modelperf.check(read)
""")
    turns = station.call(2, 60 * _SECOND)
    is_known = ProcessorWait().is_known
    assert sorted(turn.waited_ns is not None for turn in turns) == [False, is_known]
    assert all((turn.waited_ns is None) == (turn.rest_waited_ns is None) for turn in turns)


def test_a_profile_names_the_functions_of_the_project(project: Project) -> None:
    station = project.reach(
        """
from prepare import prepare

def test_it(modelperf):
    modelperf.check(prepare, 3)
""",
        **{
            "prepare.py": """
                def prepare(n):
                    return [one(i) for i in range(n)]

                def one(i):
                    return sum(range(20_000))
            """
        },
    )
    profile = station.profile(2)
    by_place = {each.place: each for each in profile.functions}
    assert by_place["prepare.py:one"].calls == 3
    assert by_place["prepare.py:one"].file == "prepare.py"
    assert profile.root is not None
    assert profile.root.place == "prepare.py:prepare"
    assert profile.root.ns >= sum(each.ns for each in profile.root.inner)
    assert not any("station" in (each.file or "") for each in profile.functions)


def test_places_have_no_locals_and_no_addresses(project: Project) -> None:
    """Both sides must have the same place for the same function."""
    station = project.reach("""
def test_it(modelperf):
    def outer():
        def inner():
            return object.__new__(object)
        return inner()
    modelperf.check(outer)
""")
    places = {each.place for each in station.profile(1).functions}
    assert "built-in method __new__ of type object" in places
    assert not any("<locals>" in place or " at 0x" in place for place in places)


def test_only_files_of_the_tree_count_as_read(project: Project) -> None:
    station = project.reach(
        """
import onnxruntime as ort
from prepare import text

def test_it(modelperf, tmp_path):
    session = ort.InferenceSession("model.onnx")
    (tmp_path / "own.txt").write_text(text())
    (tmp_path / "own.txt").read_text()
    modelperf.check(text)
""",
        **{"prepare.py": "def text():\n    return open('data/a.txt').read()", "data/a.txt": "a"},
    )
    seen = station.seen()
    assert set(seen.files) == {"test_program.py", "prepare.py", "data/a.txt"}
    assert "onnxruntime" in seen.distributions
    (model,) = seen.models
    assert (model.name, model.path) == ("model.onnx", "model.onnx")
    assert model.sha256 is not None


def test_a_model_that_the_process_writes_has_no_place(project: Project) -> None:
    """Each run makes it again, so a later run need not find the same file there."""
    station = project.reach("""
from pathlib import Path

def test_it(modelperf):
    Path("made.onnx").write_bytes(Path("model.onnx").read_bytes())
    session = ort.InferenceSession("made.onnx")
    modelperf.check(session.run, None, {"x": np.ones((1, 3), np.float32)})
""")
    (model,) = station.seen().models
    assert (model.name, model.path) == ("made.onnx", None)
    assert model.sha256 is not None


def test_the_script_of_another_process_was_read(project: Project) -> None:
    station = project.reach(
        """
import subprocess, sys

def test_it(modelperf):
    def read(word):
        return subprocess.run([sys.executable, "-u", "child.py", word], cwd="tool", check=True)

    modelperf.check(read, "test_program.py")
""",
        **{"tool/child.py": "", "tool/test_program.py": ""},
    )
    assert set(station.seen().files) == {"test_program.py", "tool/child.py"}


def test_results_of_both_sides_are_compared(project: Project) -> None:
    text = """
        import numpy as np
        from value import VALUE

        def test_it(modelperf):
            modelperf.check(
                lambda: {"boxes": [np.array([1.0, VALUE])]},
                outputs=lambda before, after: abs(before["boxes"][0] - after["boxes"][0]).max() < 1,
            )
    """
    project.write(
        {"test_program.py": text, "value.py": "VALUE = 2.000001"},
        older={"test_program.py": text, "value.py": "VALUE = 2.0"},
    )
    before, after = project.start(side="before"), project.start()
    before.wait_reached()
    after.wait_reached()
    other = before.result()
    assert "['boxes'][0] differs in 1 of 2 values, at [1]" in known(after.compare(other, "=="))
    assert after.compare(other, "allclose") is None
    assert after.compare(other, "given") is None


@pytest.mark.parametrize("way", ["path", "hook", "paths"])
def test_the_older_side_imports_its_own_tree(project: Project, way: str) -> None:
    """A source folder on the import path, one that an editable install finds, one that is given."""
    text = "import package\n\ndef test_it(modelperf):\n    modelperf.check(package.where)\n"
    module = "def where():\n    return {!r}\n"
    hook = """
        import sys
        from importlib.machinery import PathFinder

        class Editable:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "package":
                    return PathFinder.find_spec(name, [{!r}])
        sys.meta_path.append(Editable)
    """
    source = str(project.worktree / "src")
    conftest = hook.format(source) if way == "hook" else ""
    files = {"test_program.py": text, "conftest.py": conftest}
    project.write(
        {**files, "src/package/__init__.py": module.format("now")},
        older={**files, "src/package/__init__.py": module.format("before")},
    )
    station = project.start(
        side="before",
        sys_path=(source,) if way == "path" else (),
        paths=("src",) if way == "paths" else (),
    )
    reached = station.wait_reached()
    assert pickle.loads(station.result()) == "before"  # noqa: S301
    assert reached.source == str(project.older / "src" / "package" / "__init__.py")
    assert reached.of_worktree == ()


def test_files_of_the_work_tree_that_the_older_side_reads_are_named(project: Project) -> None:
    path = project.worktree / "model.onnx"
    text = (
        f"def test_it(modelperf):\n    modelperf.check(lambda: open({str(path)!r}, 'rb').read())\n"
    )
    project.write({"test_program.py": text})
    assert project.start(side="before").wait_reached().of_worktree == (str(path),)


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("test_failing", "(?s)did not reach modelperf.check in the work tree.*assert 1 == 2"),
        ("test_skipped", "the test was skipped: not here"),
        ("test_raising", "(?s)failed in the work tree.*in read.*ValueError: no such page"),
        ("test_ended", "ended without calling modelperf.check"),
        ("test_model", r"uses modelperf\(model\) before it checks a program"),
        ("test_broken", "(?s)ended with 3.*last words"),
    ],
)
def test_a_test_that_does_not_reach_the_call_says_why(
    project: Project, test: str, reason: str
) -> None:
    project.write(
        {
            "test_program.py": """
                import os, pytest

                def read():
                    raise ValueError("no such page")

                def test_failing(modelperf):
                    assert 1 == 2

                @pytest.mark.skip("not here")
                def test_skipped(modelperf):
                    modelperf.check(int)

                def test_raising(modelperf):
                    modelperf.check(read)

                def test_ended(modelperf):
                    pass

                def test_model(modelperf):
                    modelperf("model.onnx")

                def test_broken(modelperf):
                    os.write(2, b"last words\\n")
                    os._exit(3)
            """
        }
    )
    with pytest.raises(MeasureError, match=reason) as caught:
        project.start(test, options={"capture": "no"}).wait_reached()
    assert caught.value.side == "after"


@pytest.mark.parametrize(
    "test", ["test_none", "test_several", "test_several[3]", "missing.py::test_it"]
)
def test_a_test_that_a_side_lacks_is_missing_there(project: Project, test: str) -> None:
    """A name without its parameters is not the test of any of them."""
    project.write(
        {
            "test_program.py": """
                import pytest

                @pytest.mark.parametrize("n", [1, 2])
                def test_several(modelperf, n):
                    modelperf.check(int)
            """
        }
    )
    with pytest.raises(TestMissingError, match="does not exist in the older version") as caught:
        project.start(test, "before").wait_reached()
    assert caught.value.side == "before"


def test_an_import_error_of_the_test_file_is_not_reported_as_a_missing_test(
    project: Project,
) -> None:
    project.write({"test_program.py": "import no_such_module\n"})
    with pytest.raises(MeasureError, match="no_such_module"):
        project.start().wait_reached()


def test_an_error_in_a_later_call_is_answered_and_the_station_goes_on(project: Project) -> None:
    station = project.reach("""
def test_it(modelperf):
    calls = []

    def read():
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("third")

    modelperf.check(read)
""")
    with pytest.raises(MeasureError, match="ValueError: third"):
        station.call(1, 0)
    assert len(station.call(1, 0)) == 1


def test_a_station_that_ends_before_it_gets_its_test_leaves_nothing_open(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(_command: object, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401  # any
        process = subprocess.Popen([sys.executable, "-c", ""], **options)
        started.append(process)
        process.wait()
        return process

    monkeypatch.setattr(sides, "subprocess", SimpleNamespace(Popen=start, PIPE=subprocess.PIPE))
    project.write({"test_program.py": "def test_it(modelperf): modelperf.check(int)\n"})
    with pytest.raises(MeasureError, match="test_it in the work tree ended with 0"):
        project.start()
    (process,) = started
    assert known(process.stdin).closed
    assert known(process.stdout).closed
