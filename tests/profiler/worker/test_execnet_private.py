"""The private members of execnet that this package uses are still there and do what they did."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import execnet
import pytest

from pytest_modelperf.profiler.worker.execnet_private import (
    Processes,
    close_connection,
    cut_off,
    forget_group,
    group_of,
)
from pytest_modelperf.systems.trees import TREES


def test_this_execnet_has_the_private_members_that_end_a_worker() -> None:
    group = execnet.Group()
    opened = group.makegateway("popen")
    channel = opened.remote_exec("channel.receive()")
    cut_off(opened)
    with pytest.raises(EOFError):
        channel.receive(timeout=60.0)
    group.terminate(timeout=60.0)
    close_connection(opened)
    connection: Any = opened._io
    assert connection.popen.stdin.closed
    assert connection.popen.stdout.closed


def test_a_group_of_execnet_that_is_forgotten_is_freed() -> None:
    group = execnet.Group()
    freed = weakref.ref(group)
    group.terminate()
    forget_group(group)
    del group
    gc.collect()
    assert freed() is None


def test_a_process_of_execnet_begins_in_a_session_of_its_own() -> None:
    """Ctrl-C of a terminal ends all processes of the session, each with a traceback."""
    group = group_of(Processes(TREES.popen_options()))
    opened = group.makegateway(f"popen//python={sys.executable}")
    told = "import os; channel.send((os.getpid(), os.getsid(0)))"
    pid, session = opened.remote_exec(told).receive(60.0)
    group.terminate(timeout=60.0)
    assert pid == session


def test_a_process_of_execnet_keeps_its_main_thread_for_the_agent() -> None:
    group = group_of(Processes(TREES.popen_options()))
    opened = group.makegateway("popen")
    told = """
import threading
from __main__ import modelperf_host
ran_in = [threading.current_thread(), modelperf_host.run(threading.current_thread)]
channel.send([thread is threading.main_thread() for thread in ran_in])
"""
    ran_in = opened.remote_exec(told).receive(60.0)
    group.terminate(timeout=60.0)
    assert ran_in == [False, True]


def test_a_process_can_be_ended_before_it_has_said_anything() -> None:
    processes = Processes(TREES.popen_options())
    silent = processes.Popen([sys.executable, "-c", "input()"], processes.PIPE, processes.PIPE)
    processes.kill()
    with silent:
        assert silent.wait(60.0) != 0


def test_nothing_is_written_to_a_process_after_its_end() -> None:
    """The garbage collector writes what is left, and Python 3.14 tells of the broken pipe."""
    processes = Processes(TREES.popen_options())
    process = processes.Popen([sys.executable, "-c", ""], processes.PIPE, processes.PIPE)
    with process:
        process.wait(60.0)
        assert process.stdin is not None
        process.stdin.write(b"not read")
        processes.end()
        assert process.stdin.closed
