"""The interfaces to a system, held against the one that the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pytest_modelperf.systems.files import FILES
from pytest_modelperf.systems.process import OWN_PROCESS
from pytest_modelperf.systems.trees import TREES
from tests.support.known import known

LOCKING = """
import os, sys
from pathlib import Path
from pytest_modelperf.systems.files import FILES
print(FILES.take_lock(FILES.open(Path(sys.argv[1]), os.O_RDWR)), flush=True)
input()
"""
# A child that ends when its own child does: its output stays open until both have ended.
WITH_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"])
print("begun", flush=True)
child.wait()
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **TREES.popen_options(),
    )


def first_line(process: subprocess.Popen[str]) -> str:
    return known(process.stdout).readline().strip()


def test_the_memory_of_a_process_is_known() -> None:
    peak, resident = OWN_PROCESS.peak_bytes(), OWN_PROCESS.resident_bytes()
    assert known(peak) > 1 << 20
    assert resident is None or resident > 1 << 20


def test_a_process_runs_where_it_is_put() -> None:
    before = OWN_PROCESS.allowed_processors()
    if before is None:
        # macOS pins no process.
        assert sys.platform == "darwin"
        return
    try:
        OWN_PROCESS.use_processors(before[-1:])
        assert OWN_PROCESS.allowed_processors() == before[-1:]
    finally:
        OWN_PROCESS.use_processors(before)
    assert OWN_PROCESS.allowed_processors() == before


def test_a_lock_is_free_when_its_process_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    handle = FILES.open(path, os.O_RDWR)
    with started(LOCKING, str(path)) as process:
        assert first_line(process) == "True"
        assert not FILES.take_lock(handle)
        TREES.tree_of(process.pid).kill()
        process.wait()
        assert FILES.take_lock(handle)
    os.close(handle)


def test_children_of_a_process_end_with_it() -> None:
    # The tree is known before the process starts anything.
    with started("input()\n" + WITH_CHILD) as process:
        tree = TREES.tree_of(process.pid)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert first_line(process) == "begun"
        tree.kill()
        # The end of the output: all writers have closed it.
        assert not known(process.stdout).read()


def test_a_paused_tree_waits_until_it_goes_on() -> None:
    if sys.platform != "linux":
        # Elsewhere a paused process would outlive a killed parent.
        return
    with started("import sys\nfor line in sys.stdin: print(line, end='', flush=True)") as process:
        assert process.stdin is not None
        tree = TREES.tree_of(process.pid)
        tree.pause()
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        tree.resume()
        process.stdin.write("on\n")
        process.stdin.flush()
        assert first_line(process) == "on"
        tree.pause()
        tree.kill()
