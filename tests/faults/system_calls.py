"""Processes that are killed at one of their system calls, and a writer of baselines that is.

The kernel stops a child at each of its system calls, whichever they are, as it does for a debugger
(ptrace), so that the kills lie between any two of them. Only Linux has this.

`python -m tests.faults.system_calls FOLDER` kills a writer at every call, for those plans of
`tests.support.baseline_writer` that write or remove every kind of file, and prints what became of
it: a line of JSON for each. As a plugin of pytest, which it is too, it does so with the run itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.records import UpdatePlan
from pytest_modelperf.baselines.store import BaselineStore
from tests.support.baseline_writer import NAME, SCENARIOS, Scenario, problem_of

# From sys/ptrace.h, the same for all processors.
_TRACE_ME, _NEXT_CALL, _SET_OPTIONS = 0, 24, 0x4200
_MARK_CALLS, _END_WITH_ME = 1, 1 << 20
_AT_A_CALL = signal.SIGTRAP | 0x80
_PLANS = ("new model", "model removed")
# The names of a writer's files until they are complete.
_UNFINISHED = re.compile(r"[0-9a-f]{8}(?=\.tmp$)|(?<=^\.removed-)[0-9a-f]{8}")


def is_killed_at(call: int, work: Callable[[], object]) -> bool:
    """Whether a child process was killed as it began system call number `call` of this work.

    It came to its end otherwise, with fewer calls.
    """
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    child = os.fork()
    if not child:
        status = 1
        try:
            if not ptrace(_TRACE_ME, 0, None, None):
                os.kill(os.getpid(), signal.SIGSTOP)
                work()
                status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    ptrace(_SET_OPTIONS, child, None, _MARK_CALLS | _END_WITH_ME)
    # It is stopped twice at each call, before it and after it.
    for stop in itertools.count(1):
        if not os.WIFSTOPPED(status):
            break
        ptrace(_NEXT_CALL, child, None, None)
        _, status = os.waitpid(child, 0)
        if stop == 2 * call - 1 and os.WIFSTOPPED(status):
            assert os.WSTOPSIG(status) == _AT_A_CALL
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 0, "the work failed, or the kernel does not let us trace it"
    return False


def state_of(root: Path) -> str:
    """Return a digest of a folder that does not depend on the names of unfinished files."""
    entries = []
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        name = "/".join(_UNFINISHED.sub("*", part) for part in parts)
        entries.append((name, path.read_bytes().hex() if path.is_file() else ""))
    return hashlib.sha256(json.dumps(sorted(entries)).encode()).hexdigest()


def states_of_kills(
    root: Path, folder: Path, work: Callable[[Path], object]
) -> tuple[int, list[Path]]:
    """How often work on copies of a folder was killed, and the different copies that it left."""
    seen: dict[str, Path] = {}
    for call in itertools.count(1):
        copy = folder / str(call)
        shutil.copytree(root, copy)
        is_killed = is_killed_at(call, partial(work, copy))
        if seen.setdefault(state_of(copy), copy) != copy:
            shutil.rmtree(copy)
        if not is_killed:
            return call - 1, list(seen.values())
    raise AssertionError


def kill_everywhere(scenario: Scenario, folder: Path) -> dict[str, object]:
    """How many kills there were, how many states they left, and what is wrong with any of these."""
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    if scenario.stored is not None:
        BaselineStore(before).apply(plan_update(None, scenario.stored))

    def write(root: Path) -> None:
        store = BaselineStore(root)
        store.apply(scenario.plan(store.read(NAME)))

    shutil.copytree(before, after)
    write(after)
    kills, states = states_of_kills(before, folder / "killed", write)
    problems = [problem_of(scenario, before, state, after) for state in states]
    return {"kills": kills, "states": len(states), "problems": [p for p in problems if p]}


def pytest_configure() -> None:
    """Have a run killed as it writes: it leaves its part of `baselines` in `killed`."""
    write = BaselineStore.apply

    def apply(store: BaselineStore, plan: UpdatePlan) -> UpdatePlan:
        folder = store.root.parent / "killed"
        kills, _ = states_of_kills(
            store.root, folder, lambda root: write(BaselineStore(root), plan)
        )
        (folder / "kills").write_text(str(kills))
        return write(store, plan)

    BaselineStore.apply = apply  # type: ignore[assignment]  # in the process of a test alone


def main(folder: str) -> None:
    for scenario in (each for each in SCENARIOS if each.name in _PLANS):
        outcome = kill_everywhere(scenario, Path(folder) / scenario.name)
        sys.stdout.write(json.dumps({"scenario": scenario.name, **outcome}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
