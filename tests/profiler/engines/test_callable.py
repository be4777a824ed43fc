"""The callable engine: which function it finds, what it calls it with, and what it refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from pytest_modelperf.profiler.engines import callable as engine
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.client import ProcessWorker, WorkerRequest

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine

MODULE = "functions_to_time"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SOURCE = """
import os

threads_at_import = os.environ.get("OMP_NUM_THREADS")
calls = []

def run(**inputs):
    calls.append(inputs)

async def coroutine():
    pass

def generator():
    yield 1

async def async_generator():
    yield 1

class Model:
    def infer(self, **inputs):
        calls.append(inputs)

class AsyncModel:
    async def __call__(self):
        pass

model = Model()
async_model = AsyncModel()
weight = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a module of functions; what loading one changes is undone."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, MODULE, None)  # only to be undone
    del sys.modules[MODULE]
    for name in THREADS:
        monkeypatch.setenv(name, "17")
    return tmp_path


def make_agent() -> Agent:
    agent = Agent()
    agent.use_engine(cast("Engine", engine))
    return agent


def ask(agent: Agent, command: str, **arguments: object) -> Mapping[str, Any]:
    return agent.handle({"command": command, **arguments})


def opened(model: object, inputs: Mapping[str, npt.NDArray[Any]], threads: int = 1) -> Agent:
    """An agent that has loaded the function."""
    agent = make_agent()
    sent = {
        name: (str(array.dtype), str(array.dtype), array.shape, array.tobytes())
        for name, array in inputs.items()
    }
    assert ask(agent, "inputs", inputs=sent) == {"ok": None}
    answer = ask(agent, "open", side="a", model=model, folder=None, threads=threads, options={})
    assert "ok" in answer, answer
    return agent


def refusal(model: object) -> str:
    agent = make_agent()
    answer = ask(agent, "open", side="a", model=model, folder=None, threads=1, options={})
    assert answer["error"]["kind"] == "option", answer
    return str(answer["error"]["message"])


def run_twice(agent: Agent) -> None:
    assert "ok" in ask(agent, "block", sides=["a"], count=2, max_ns=10**12)


def test_a_function_gets_the_inputs_as_keyword_arguments_in_every_run(module: Path) -> None:
    ids = np.array([[1, 2, 3]])
    run_twice(opened(f"{MODULE}:run", {"ids": ids}))
    found = sys.modules[MODULE]
    assert found.__file__ == str(module / f"{MODULE}.py")
    assert [list(call) for call in found.calls] == [["ids"], ["ids"]]
    np.testing.assert_array_equal(found.calls[0]["ids"], ids)


def test_a_function_without_inputs_gets_none(module: Path) -> None:
    del module
    run_twice(opened(f"{MODULE}:run", {}))
    assert sys.modules[MODULE].calls == [{}, {}]


def test_a_method_of_an_instance_can_be_named(module: Path) -> None:
    del module
    run_twice(opened(f"{MODULE}:model.infer", {}))
    assert sys.modules[MODULE].calls == [{}, {}]


def test_a_function_given_as_an_object_is_called_itself_and_sets_no_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in THREADS:
        monkeypatch.setenv(name, "17")
    calls: list[int] = []
    run_twice(opened(lambda: calls.append(1), {}))
    assert calls == [1, 1]
    assert {os.environ[name] for name in THREADS} == {"17"}


def test_libraries_get_the_number_of_threads_before_the_module_is_imported(
    module: Path,
) -> None:
    del module
    opened(f"{MODULE}:run", {}, threads=3)
    assert sys.modules[MODULE].threads_at_import == "3"
    assert {os.environ[name] for name in THREADS} == {"3"}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (MODULE, "Write it as package.module:function"),
        (f"{MODULE}:", "Write it as package.module:function"),
        ("no_such_module:run", "no module 'no_such_module'"),
        (f"{MODULE}.deeper:run", f"no module '{MODULE}.deeper'"),
        (f"{MODULE}:walk", "Functions there: async_generator, coroutine, generator, run."),
        (f"{MODULE}:model.walk", "Functions there: infer."),
        (f"{MODULE}:weight", "is a int, which cannot be called"),
        (f"{MODULE}:Model", "package.module:instance.method"),
        (f"{MODULE}:coroutine", "asyncio.run"),
        (f"{MODULE}:async_model", "asyncio.run"),
        (f"{MODULE}:generator", "is a generator function"),
        (f"{MODULE}:async_generator", "is a generator function"),
    ],
)
def test_a_reference_without_a_function_is_refused(
    module: Path, reference: str, expected: str
) -> None:
    del module
    message = refusal(reference)
    assert expected in message
    assert repr(reference) in message


def test_a_module_that_the_function_needs_is_missing_by_its_own_name(module: Path) -> None:
    (module / f"{MODULE}.py").write_text("import no_such_dependency")
    agent = make_agent()
    answer = ask(agent, "open", side="a", model=f"{MODULE}:run", folder=None, threads=1, options={})
    assert answer["error"]["kind"] == "missing"
    assert answer["error"]["name"] == "no_such_dependency"


def test_a_function_has_no_layers_and_no_shapes() -> None:
    assert not hasattr(engine, "load_profiled")
    assert not hasattr(engine, "observe_shapes")


def test_any_option_is_refused() -> None:
    assert engine.describe({}) == {
        "name": "callable",
        "version": None,
        "options": {},
        "providers": [],
    }
    with pytest.raises(engine.OptionError, match="takes no options, and provider was given"):
        engine.describe({"provider": "CPU"})


def test_a_function_is_timed_in_a_process_of_its_own(module: Path) -> None:
    with ProcessWorker(WorkerRequest(cores=1, paths=(str(module),))) as worker:
        worker.use_engine(BUILT_IN[CALLABLE_ENGINE], {})
        worker.ask("inputs", "as the inputs were sent", inputs={})
        loading: dict[str, Any] = {
            "model": f"{MODULE}:run",
            "folder": None,
            "threads": 1,
            "options": {},
        }
        worker.ask("open", "as the function was loaded", side="a", **loading)
        block = worker.ask("block", "in round 1", sides=["a"], count=3, max_ns=10**12, seed=0)
        assert len(np.frombuffer(block["times"]["a"], np.int64)) == 3
    assert MODULE not in sys.modules
