"""The records of a station: a process that has reached the call of a test, and what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from pytest_modelperf.files.documents import Count, DurationNs, Positive

# The environment of the side before that has the recorded versions of distributions.
RECORDED_ENVIRONMENT = "recorded"

# The root of a tree of calls if the program is called in several places.
CALL_PLACE = "call"

Side: TypeAlias = Literal["before", "after"]


class Spent(Struct, frozen=True, kw_only=True):
    """The time that a call spent in one place, and how often it went there."""

    calls: Count
    ns: DurationNs


class Turn(Struct, frozen=True, kw_only=True):
    """One timed call.

    `wall_ns` is all of its time and `rest_ns` its time outside of every session. `waited_ns` and
    `rest_waited_ns` are how long the calling thread waited for a processor in each; None if the
    system does not tell. `cpu_ns` is the processor time of the calling thread outside of sessions.
    `sessions` are by `SessionWork.model`, `labels` by name and without the sessions inside. A
    generator has `items`, and the time to the first one. `each_ns` are the times of the inputs of a
    workload.
    """

    wall_ns: DurationNs
    rest_ns: DurationNs
    cpu_ns: DurationNs
    waited_ns: DurationNs | None = None
    rest_waited_ns: DurationNs | None = None
    sessions: Mapping[str, Spent] = {}
    labels: Mapping[str, Spent] = {}
    first_ns: DurationNs | None = None
    items: Count | None = None
    each_ns: tuple[DurationNs, ...] = ()


class FunctionTime(Struct, frozen=True, kw_only=True):
    """The calls of one function in a profiled call, and the time of its own.

    `place` is `reader.py:prepare`, or the name of a built-in function. `file` is its path relative
    to the tree of its side, if it lies there.
    """

    place: str
    file: str | None
    line: Count
    calls: Count
    own_ns: DurationNs
    total_ns: DurationNs


class CallNode(Struct, frozen=True, kw_only=True):
    """A function in the tree of calls, with the time that it took there."""

    place: str
    ns: DurationNs
    calls: Count
    inner: tuple[CallNode, ...] = ()


class CallProfile(Struct, frozen=True, kw_only=True):
    """What cProfile saw of some calls, per call."""

    functions: tuple[FunctionTime, ...]
    root: CallNode | None = None


class Reached(Struct, frozen=True, kw_only=True):
    """A station has reached the call: its own facts.

    `source` is the file that defines the function, as this side imported it. `start_ns` is the time
    from the start of the process to the call. `of_worktree` are the files of the work tree that the
    side of an older commit has read: it should read its own.
    """

    function: str
    source: str | None
    kind: Literal["function", "coroutine", "generator", "async generator"]
    inputs: Positive
    start_ns: DurationNs
    of_worktree: tuple[str, ...] = ()
