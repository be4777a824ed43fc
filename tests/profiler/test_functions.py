"""Python functions: which of them another process can import, and those that run in this one."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.binding import parse_input_spec
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.measured_cases import importable_name, measure_function
from pytest_modelperf.profiler.records import CaseProfile, Outcome
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.sampling.setup import Setup
from tests.support import functions
from tests.support.known import known

SETUP = Setup(engine=BUILT_IN[CALLABLE_ENGINE], policy=SamplingPolicy(max_seconds=0.2))
LINE_OF_FAILURE = inspect.getsourcelines(functions.fail)[1] + 1


def test_a_function_of_a_module_is_named_by_it() -> None:
    assert importable_name(functions.work) == "tests.support.functions:work"
    assert importable_name(os.path.join) == f"{os.path.__name__}:join"


def test_local_functions_have_no_importable_name() -> None:
    def local() -> None: ...

    shadowed = functools.wraps(functions.work)(lambda: None)
    for function in (local, lambda: None, functools.partial(functions.work), shadowed):
        assert importable_name(function) is None


def test_a_function_that_only_exists_here_runs_in_this_process() -> None:
    seen: list[int] = []
    profile = measure_function(lambda: seen.append(os.getpid()), ProfileRequest(), SETUP)
    (case,) = profile.cases
    assert set(seen) == {os.getpid()}
    assert len(seen) >= case.latency.samples
    assert case.peak_rss_bytes is None
    assert "ran in this process" in known(case.measured).notes[-1]


def test_a_function_of_a_module_is_timed_with_what_a_test_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[float] = []

    def arange(end: float) -> npt.NDArray[np.float64]:
        calls.append(end)
        return np.ones(1)

    monkeypatch.setattr(np, "arange", arange)
    profile = measure_function(functions.work, ProfileRequest(), SETUP)
    assert len(calls) >= profile.cases[0].latency.samples
    assert profile.model.name == "tests.support.functions:work"


@pytest.mark.parametrize("function", [functions.work, "tests.support.functions:work"])
def test_the_profile_names_the_file_that_the_function_was_read_from(
    function: Callable[..., object] | str,
) -> None:
    profile = measure_function(function, ProfileRequest(), SETUP)
    assert profile.model.function_file == functions.__file__


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can pin")
@pytest.mark.parametrize("has_cores", [True, False])
def test_this_process_is_pinned_only_if_cores_are_asked_for(*, has_cores: bool) -> None:
    before = os.sched_getaffinity(0)
    during: list[set[int]] = []
    request = ProfileRequest(has_cores=has_cores)
    (case,) = measure_function(lambda: during.append(os.sched_getaffinity(0)), request, SETUP).cases
    assert {len(processors) for processors in during} == {1 if has_cores else len(before)}
    assert os.sched_getaffinity(0) == before
    assert (known(case.measured).processors is None) is not has_cores


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can pin")
def test_a_process_of_its_own_is_pinned_only_if_cores_are_asked_for() -> None:
    name = "tests.support.functions:require_all_processors"
    (case,) = measure_function(name, ProfileRequest(has_cores=False), SETUP).cases
    assert case.outcome is not Outcome.FAILED, case.reason
    assert case.measured is not None
    assert any("not pinned" in note for note in case.measured.notes)


def test_a_call_in_a_process_of_its_own_is_shallow() -> None:
    name = "tests.support.functions:require_shallow"
    (case,) = measure_function(name, ProfileRequest(), SETUP).cases
    assert case.outcome is not Outcome.FAILED, case.reason


def test_a_call_in_this_process_is_a_few_frames_below_its_caller() -> None:
    seen: set[int] = set()
    here = functions.depth()
    measure_function(lambda: seen.add(functions.depth()), ProfileRequest(), SETUP)
    # The lambda is one of them. Versions of Python differ by a few.
    assert seen <= set(range(here, here + 10))


def test_a_call_in_this_process_runs_in_the_thread_of_its_caller() -> None:
    seen: set[int] = set()
    measure_function(lambda: seen.add(threading.get_ident()), ProfileRequest(), SETUP)
    assert seen == {threading.get_ident()}


def test_a_function_may_run_an_event_loop_while_another_one_runs() -> None:
    async def step() -> None:
        await asyncio.sleep(0)

    async def measured() -> CaseProfile:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        profile = measure_function(lambda: asyncio.run(step()), ProfileRequest(), SETUP)
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is loop
        return profile.cases[0]

    case = asyncio.run(measured())
    assert case.outcome is not Outcome.FAILED, case.reason


def test_an_interrupt_ends_the_measurement_at_once() -> None:
    calls: list[int] = []

    def interrupted() -> None:
        calls.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_function(interrupted, ProfileRequest(), SETUP)
    assert calls == [1]


def test_an_exception_is_the_failure_of_its_case() -> None:
    def fail() -> None:
        raise RuntimeError("no luck")

    (case,) = measure_function(fail, ProfileRequest(), SETUP).cases
    assert case.outcome is Outcome.FAILED
    assert "RuntimeError: no luck" in case.reason
    with pytest.raises(UsageError, match="b1-c1 has no measurement"):
        _ = case.latency


@pytest.mark.parametrize("function", [functions.fail, "tests.support.functions:fail"])
def test_a_failure_has_the_traceback_of_the_function_and_no_frames_of_ours(
    function: Callable[..., object] | str,
) -> None:
    (case,) = measure_function(function, ProfileRequest(), SETUP).cases
    summary, *trace = case.reason.splitlines()
    assert summary == "in round 1 (warm up): RuntimeError: no luck today"
    assert trace[0] == "Traceback (most recent call last):"
    assert [line for line in trace if line.startswith("  File")] == [
        f'  File "{functions.__file__}", line {LINE_OF_FAILURE}, in fail'
    ]
    assert "raise RuntimeError" in trace[2]


def test_a_text_reaches_a_function_as_a_text() -> None:
    seen: list[object] = []
    inputs = (parse_input_spec("text:str::Well, hello"), parse_input_spec("several:str:2:a,b"))
    measure_function(
        lambda text, several: seen.append((text, several.tolist())),
        ProfileRequest(inputs=inputs),
        SETUP,
    )
    assert seen[0] == ("Well, hello", ["a", "b"])


def test_a_function_has_no_graph_to_count() -> None:
    (case,) = measure_function("tests.support.functions:work", ProfileRequest(), SETUP).cases
    assert case.latency.samples >= 1
    with pytest.raises(UsageError, match="has no graph"):
        _ = case.static


def test_a_function_has_no_named_dimensions() -> None:
    with pytest.raises(UsageError, match="Leave sizes of dimensions out"):
        measure_function(functions.work, ProfileRequest(dims={"seq": (4,)}), SETUP)


def test_older_objects_are_frozen_only_during_the_measurement() -> None:
    seen = []
    was_frozen = gc.get_freeze_count()
    gc.unfreeze()
    try:
        measure_function(lambda: seen.append(gc.get_freeze_count()), ProfileRequest(), SETUP)
        assert min(seen) > 0
        assert gc.get_freeze_count() == 0
    finally:
        if was_frozen:
            gc.freeze()


def test_objects_frozen_by_others_stay_frozen() -> None:
    gc.freeze()
    measure_function(lambda: None, ProfileRequest(), SETUP)
    assert gc.get_freeze_count() > 0
