"""The process of a worker."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_modelperf.profiler.worker.inline import MainThread
from pytest_modelperf.profiler.worker.process import Meter


def test_the_group_counts_that_was_halted_longest_meanwhile(tmp_path: Path) -> None:
    """A group above it may have been halted for longer before."""
    own, above, no = (tmp_path / name for name in ("own", "above", "no"))
    own.write_text("throttled_usec 1\n")
    above.write_text("throttled_usec 900\n")
    meter = Meter((str(own), str(above), str(no)), None)
    before = meter.read()
    own.write_text("throttled_usec 51\n")
    above.write_text("throttled_usec 902\n")
    assert meter.since(before)["throttled_ns"] == 50_000


PRINTING = """
import sys
from pytest_modelperf.profiler.worker.process import redirect_output

redirect_output(sys.argv[1])
print("\\u2713 \\udc80")
"""


def test_a_model_prints_what_the_locale_has_no_characters_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", PRINTING, str(log)]
    subprocess.run(command, env={**os.environ, **ascii_only}, check=True)
    assert log.read_text("utf-8") == "\u2713 \\udc80\n"


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Interrupts are raised, which a shell switches off for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_work_runs_in_the_thread_that_serves_and_the_job_in_another() -> None:
    host = MainThread()

    def job() -> tuple[int, int]:
        return threading.get_ident(), host.run(threading.get_ident)

    job_thread, work_thread = host.serve(job)
    assert work_thread == threading.get_ident()
    assert job_thread != work_thread


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
