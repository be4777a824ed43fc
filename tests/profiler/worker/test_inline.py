"""A worker in this process: its behaviour if the system or the engine refuses something."""

from __future__ import annotations

import errno
from collections.abc import Collection

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.source import BUILT_IN, CALLABLE_ENGINE
from pytest_modelperf.profiler.worker.inline import work_inline
from pytest_modelperf.systems.process import OWN_PROCESS


def test_a_process_that_may_not_be_pinned_measures_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: Collection[int]) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(OWN_PROCESS, "use_processors", refuse)
    with work_inline(1) as worker:
        assert worker.processors is None
        assert worker.unpinned_because is not None


def test_an_option_that_the_engine_refuses_is_wrong_usage() -> None:
    with work_inline(1) as worker, pytest.raises(UsageError):
        worker.use_engine(BUILT_IN[CALLABLE_ENGINE], {"provider": "CPU"})
