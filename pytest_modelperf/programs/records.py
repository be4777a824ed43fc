"""The records of a station, the process that has reached a test's call and measures it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from pytest_modelperf.files.documents import Count, DurationNs

# The environment with the recorded versions of distributions, for the side before.
RECORDED_ENVIRONMENT = "recorded"

# The root of a tree of calls if the program is called in several places.
CALL_PLACE = "call"

Side: TypeAlias = Literal["before", "after"]


class Spent(Struct, frozen=True, kw_only=True):
    """The time that a call spent in a session or a label, and how often it entered it."""

    calls: Count
    ns: DurationNs


class Turn(Struct, frozen=True, kw_only=True):
    """One timed call.

    `wall_ns` is its whole time and `rest_ns` its time outside of all sessions. `waited_ns` and
    `rest_waited_ns` are how long the calling thread waited for a processor in each, or None if the
    system does not report it. `cpu_ns` is the processor time of the calling thread outside of
    sessions. `sessions` are by `SessionWork.model`. `labels` are by name, without the sessions
    inside them. For a generator, `items` is the number of items and `first_ns` the time to the
    first one. For a workload, `each_ns` has the time of each input.
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
    """The calls of one function in a profiled call, and its own time.

    `place` is `reader.py:prepare`, or the name of a built-in function. `file` is its path relative
    to the tree of its side, or None if it is outside of that tree.
    """

    place: str
    file: str | None
    calls: Count
    own_ns: DurationNs


class CallNode(Struct, frozen=True, kw_only=True):
    """A function in the tree of calls, with the time that it took there."""

    place: str
    ns: DurationNs
    calls: Count
    inner: tuple[CallNode, ...] = ()


class CallProfile(Struct, frozen=True, kw_only=True):
    """The figures of cProfile on some calls, per call."""

    functions: tuple[FunctionTime, ...]
    root: CallNode | None = None


class Reached(Struct, frozen=True, kw_only=True):
    """The facts of a station that has reached the call.

    `source` is the file that defines the function, as this side imported it. `start_ns` is the time
    from the start of the process to the call. `of_worktree` are files of the work tree that the
    side of an older commit has read, although it should read its own.
    """

    source: str | None
    kind: Literal["function", "coroutine", "generator", "async generator"]
    start_ns: DurationNs
    of_worktree: tuple[str, ...] = ()
