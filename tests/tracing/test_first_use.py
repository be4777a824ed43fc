"""A callback on the first use of the runtime is called once, and is gone then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from pytest_modelperf.profiler.engines.onnxruntime_methods import FirstUse
from pytest_modelperf.tracing.program_trace import Trace, trace
from tests.support.traced_models import CPU, FEED, open_plain, options


@pytest.fixture(autouse=True)
def methods() -> Iterator[dict[str, Any]]:
    """The methods of the class, which must be the same in the end."""
    before = dict(vars(ort.InferenceSession))
    yield before
    assert dict(vars(ort.InferenceSession)) == before


class Uses:
    """Counts how often it is called, and begins a profile if it is given one."""

    def __init__(self, begun: Trace | None = None) -> None:
        self.count = 0
        self._begun = begun

    def __call__(self) -> None:
        self.count += 1
        if self._begun is not None:
            self._begun.__enter__()


def inferences(p: Trace) -> int:
    return sum(event.name == "inference" for event in p.events())


@pytest.mark.parametrize("first", ["session", "inference"])
def test_the_first_use_is_recorded_itself(model: Path, first: str) -> None:
    session = open_plain(model)
    p = trace()
    uses = Uses(p)
    FirstUse(uses).begin()
    assert uses.count == 0
    if first == "session":
        session = open_plain(model)
    for _ in range(3):
        session.run(None, FEED)
    p.__exit__(None, None, None)
    assert (uses.count, inferences(p)) == (1, 3)
    assert (p.notes == ()) == (first == "session")


def test_if_nothing_begins_the_methods_are_the_original_ones(
    model: Path, methods: dict[str, Any]
) -> None:
    uses = Uses()
    FirstUse(uses).begin()
    assert dict(vars(ort.InferenceSession)) != methods
    open_plain(model)
    assert dict(vars(ort.InferenceSession)) == methods
    open_plain(model).run(None, FEED)
    assert uses.count == 1


def test_threads_that_come_first_together_wait_until_it_has_begun(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_plain(model)
    p = trace()
    uses = Uses(p)
    goes_on, come = threading.Event(), threading.Semaphore(0)

    def begin() -> None:
        assert goes_on.wait(60)
        uses()

    waiting = FirstUse(begin)
    waiting.begin()
    is_in_place = waiting._methods.is_in_place

    def arrive(name: str) -> bool:
        found = is_in_place(name)
        come.release()
        return found

    monkeypatch.setattr(waiting._methods, "is_in_place", arrive)
    workers = [threading.Thread(target=session.run, args=(None, FEED)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert come.acquire(timeout=60)
    assert all(worker.is_alive() for worker in workers)
    goes_on.set()
    for worker in workers:
        worker.join()
    p.__exit__(None, None, None)
    assert uses.count == 1
    assert inferences(p) == 4


def test_a_wrapper_added_meanwhile_is_called_once_for_each_call(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_plain(model)
    p = trace()
    waiting = FirstUse(Uses(p))
    waiting.begin()
    ours = ort.InferenceSession.run
    called = []

    def run(*arguments: Any) -> Any:  # noqa: ANN401  # as the runtime has it
        called.append(arguments)
        return ours(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ort.InferenceSession, "run", run)
        for _ in range(3):
            session.run(None, FEED)
        p.__exit__(None, None, None)
    waiting.put_back()
    assert len(called) == 3
    # The first was on its way already.
    assert inferences(p) == 2


def test_a_profile_that_begins_meanwhile_gets_each_inference_once(model: Path) -> None:
    uses = Uses()
    FirstUse(uses).begin()
    with trace() as p:
        session = p.session(model, options(), providers=CPU)
        session.run(None, FEED)
    assert (uses.count, inferences(p)) == (0, 1)
