"""A program in a repository: recorded, unchanged, and worse by the work of its call."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from pytest_modelperf.profiler.worker.lock import measuring_alone
from tests.support.project import assert_ended
from tests.support.repository import git
from tests.support.stored_programs import reader_repository

_TEST = """
    from reader import Reader

    def test_read(modelperf):
        modelperf.check(Reader("model.onnx").read, 4)
"""
_FAST = ("--modelperf", "--modelperf-max-seconds=2", "-p", "no:randomly")


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    reader_repository(pytester.path, monkeypatch, _TEST)
    return pytester


def _run(repository: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, object]]:
    result = repository.runpytest_subprocess(*_FAST, "--modelperf-json=run.json", *options)
    (case,) = json.loads((repository.path / "project" / "run.json").read_text("utf-8"))["cases"]
    return result, case


@pytest.mark.slow
def test_a_program_is_recorded_unchanged_and_worse_by_its_work(
    repository: pytest.Pytester,
) -> None:
    project = repository.path / "project"
    result, case = _run(repository)
    assert case["verdict"] == "new"
    result, case = _run(repository, "--modelperf-update-baseline")
    assert_ended(result, "*recorded 1 program: test_read.py++test_read*", passed=1)
    stored = json.loads((project / "baselines/test_read.py++test_read/program.json").read_text())
    assert set(stored["files"]) == {"reader.py", "test_read.py"}
    assert [model["path"] for model in stored["models"]] == ["model.onnx"]
    (session,) = stored["work"]["sessions"]
    assert session["inferences"] == [{"count": 1, "inputs": ["x: 4x3 float32"], "macs": 60}]

    result, case = _run(repository)
    result.assert_outcomes(passed=1)
    assert (case["verdict"], case["rounds"]) == ("unchanged", None)

    text = (project / "reader.py").read_text()
    (project / "reader.py").write_text(
        text.replace(
            "return self", "self.session = ort.InferenceSession(self.path)\n        return self"
        )
    )
    result, case = _run(repository)
    result.assert_outcomes(failed=1)
    assert case["verdict"] == "regressed"
    assert case["reasons"] == ["a call makes 1 session of model.onnx, and made 0 before"]
    # Uncommitted files cannot be recorded.
    result, case = _run(repository, "--modelperf-update-baseline")
    assert_ended(result, "*not committed: reader.py*--modelperf-uncommitted*", failed=1)


def test_a_wait_for_another_measurement_is_told(
    repository: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the time of the check leaves it out, as for a model."""
    with ThreadPoolExecutor(1) as elsewhere, ExitStack() as held:
        elsewhere.submit(held.enter_context, measuring_alone()).result()
        plain = time.sleep

        def sleep(seconds: float) -> None:
            if sys._getframe(1).f_globals["__name__"].startswith("filelock"):
                elsewhere.submit(held.close).result()
            else:
                plain(seconds)

        monkeypatch.setattr(time, "sleep", sleep)
        result = repository.runpytest_inprocess(*_FAST, "--modelperf-update-baseline")
    assert_ended(result, "*test_read: waiting for *to end measuring*", passed=1)


@pytest.mark.slow
def test_a_recorded_call_without_inferences_has_a_note(repository: pytest.Pytester) -> None:
    project = repository.path / "project"
    (project / "test_read.py").write_text(
        "import functools\nfrom reader import Reader\n\n"
        "def test_read(modelperf):\n"
        '    modelperf.check(functools.lru_cache(Reader("model.onnx").read), 4)\n'
    )
    result, _ = _run(repository, "--modelperf-update-baseline", "--modelperf-uncommitted")
    assert_ended(result, "note: a call runs no inference: a cache may answer it*", passed=1)


@pytest.mark.slow
def test_the_code_of_the_accepted_commit_runs_against_that_of_the_work_tree(
    repository: pytest.Pytester,
) -> None:
    """Each side imports its own tree, and the functions that grew are named."""
    project = repository.path / "project"
    text = (project / "reader.py").read_text()
    slow = text.replace(
        "return self", "sum(len(str(n)) for n in range(400_000))\n        return self"
    )
    (project / "reader.py").write_text(slow)
    (project / "test_read.py").write_text(
        (project / "test_read.py").read_text().replace("read, 4)", 'read, 4, against="HEAD")')
    )
    result, case = _run(repository, "--modelperf-max-seconds=60")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*accept: allow it with the `tolerance` of modelperf.check*")
    assert case["verdict"] == "regressed"
    reasons = case["reasons"]
    assert isinstance(reasons, list)
    assert any("reader.py:" in reason for reason in reasons)
    stages = case["stages"]
    assert isinstance(stages, list)
    judged = {stage["name"]: stage["judged"] for stage in stages}
    assert judged == {"model.onnx": False, "rest of the program": True}
    calls = case["calls"]
    assert isinstance(calls, list)
    # Python 3.10 does not know the class of a function.
    assert calls[0]["place"] in {"reader.py:Reader.read", "reader.py:read"}
    assert calls[0]["level"] == 0
    assert calls[0]["before"]["ms"] < calls[0]["after"]["ms"]
    new = {each["place"] for each in calls if each["before"] is None}
    assert "built-in method builtins.sum" in new


_EXPORTED = """
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, TensorProto
from reader import Reader

KERNELS = 2

@pytest.fixture
def model(tmp_path):
    weights = np.random.default_rng().normal(size=(3, 512)).astype(np.float32)
    names = ["h", *(f"h{n}" for n in range(KERNELS - 1)), "y"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    nodes += [helper.make_node("Erf", [a], [b]) for a, b in zip(names, names[1:])]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 512])],
        [numpy_helper.from_array(weights, "w")],
    )
    proto = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(proto, tmp_path / "exported.onnx")
    return str(tmp_path / "exported.onnx")

def test_read(modelperf, model):
    modelperf.check(Reader(model).read, 100, against="HEAD")
"""


@pytest.mark.slow
def test_a_changed_model_that_a_fixture_exports_is_compared_by_its_versions(
    repository: pytest.Pytester,
) -> None:
    """The files of both versions are in temporary folders of processes that have ended."""
    project = repository.path / "project"
    (project / "test_read.py").write_text(_EXPORTED)
    git(project, "commit", "--quiet", "--all", "--message", "Export the model")
    (project / "test_read.py").write_text(_EXPORTED.replace("KERNELS = 2", "KERNELS = 40"))
    _, case = _run(repository)
    reasons = case["reasons"]
    assert isinstance(reasons, list)
    assert any("Erf: 2 before, 40 now" in reason for reason in reasons), case


def test_a_second_program_in_a_test_is_refused(repository: pytest.Pytester) -> None:
    (repository.path / "project" / "test_read.py").write_text(
        "def test_read(modelperf):\n    modelperf.check(len, [1])\n    modelperf.check(len, [1])\n"
    )
    result = repository.runpytest_subprocess(*_FAST)
    assert_ended(
        result, "*checks a second program*each=*", "test_read.py::test_read *failed*", failed=1
    )
    result.stdout.no_fnmatch_line("*b1-c1*")


@pytest.mark.parametrize(
    ("each", "found"), [("['ab', 'c']", "a value of type str"), ("[]", "none"), ("7", "type int")]
)
def test_inputs_that_are_not_tuples_are_refused(
    repository: pytest.Pytester, each: str, found: str
) -> None:
    """The letters of a text would become arguments."""
    (repository.path / "project" / "test_read.py").write_text(
        f"def test_read(modelperf):\n    modelperf.check(len, each={each})\n"
    )
    result = repository.runpytest_subprocess(*_FAST)
    assert_ended(result, f"*each=[[](a,), (b,)[]], not *{found}*", failed=1)


_GENERATOR = """
import time

import pytest


def read(count):
    for number in range(count):
        time.sleep(0.002)
        yield number


@pytest.mark.perf_budget({budget})
def test_read(modelperf):
    modelperf.check({call})
"""


@pytest.mark.parametrize(
    ("budget", "call", "expected"),
    [
        pytest.param(
            "first_item_ms=1000, item_ms=0.5",
            "read, 3",
            "over budget: item *, limit 0.5000 ms*",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "item_ms=5",
            "len, [1]",
            "*item_ms is for generators*latency_ms*",
            marks=pytest.mark.slow,
        ),
        ("kernels=5", "read, 3", "*kernels is for models, and this is a program*"),
        ("max_ms={'nowhere': 5}", "read, 3", "*max_ms has no limit for this machine*"),
        ("install_bytes=1, distribution='numpy'", "read, 3", "*installed size * numpy, limit *"),
    ],
)
def test_a_program_is_held_against_budgets_of_its_own(
    repository: pytest.Pytester, budget: str, call: str, expected: str
) -> None:
    source = _GENERATOR.format(budget=budget, call=call)
    (repository.path / "project" / "test_read.py").write_text(source)
    assert_ended(repository.runpytest_subprocess(*_FAST), f"*{expected}", failed=1)


@pytest.mark.slow
def test_a_tail_gets_the_calls_that_it_needs(repository: pytest.Pytester) -> None:
    # The calls of the usual rounds are too few for the 95th percentile.
    source = _GENERATOR.format(budget="p95_ms=10_000", call="time.sleep, 0.03")
    (repository.path / "project" / "test_read.py").write_text(source)
    result = repository.runpytest_subprocess(*_FAST, "--modelperf-max-seconds=8")
    assert_ended(result, "*p95*", passed=1)
    result.stdout.no_fnmatch_line("*inconclusive*")
