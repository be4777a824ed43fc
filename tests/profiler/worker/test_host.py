"""A thread that runs work for another one: results, errors and interrupts reach who asked."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator

import pytest

from pytest_modelperf.profiler.worker.inline import MainThread


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Interrupts are raised, which a shell switches off for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_work_runs_in_the_thread_that_serves_and_the_job_beside_it() -> None:
    host = MainThread()

    def job() -> tuple[int, int]:
        return threading.get_ident(), host.run(threading.get_ident)

    beside, here = host.serve(job)
    assert here == threading.get_ident()
    assert beside != here


def test_an_error_of_the_work_is_raised_where_its_result_is_asked_for() -> None:
    host = MainThread()

    def fail() -> None:
        raise ValueError("no luck")

    def job() -> str:
        with pytest.raises(ValueError, match="no luck"):
            host.run(fail)
        return "went on"

    assert host.serve(job) == "went on"


def test_an_error_of_the_job_is_raised_by_the_thread_that_serves() -> None:
    def job() -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        MainThread().serve(job)


def test_an_interrupt_ends_the_work_and_the_job() -> None:
    host = MainThread()
    done: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def job() -> None:
        host.run(interrupted)
        done.append("job")

    with pytest.raises(KeyboardInterrupt):
        host.serve(job)
    assert not done


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_between_two_pieces_of_work_ends_the_job_at_the_next() -> None:
    host = MainThread()
    done: list[str] = []

    def job() -> None:
        _thread.interrupt_main()
        # The main thread takes it before or as it looks for this work.
        host.run(lambda: None)
        host.run(lambda: None)
        done.append("job")

    with pytest.raises(KeyboardInterrupt):
        host.serve(job)
    assert not done
