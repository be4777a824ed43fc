"""The records of a station, the process that measures a test's call, and the messages about them.

A message is one record, written to a pipe as its length and its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from pytest_modelperf.baselines.program import CallWork
from pytest_modelperf.files.documents import Count, Digest, DurationNs

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
    system does not report it or a session ran in another thread. `cpu_ns` is the processor time of
    the calling thread outside of sessions. `sessions` are by `SessionWork.model`. `labels` are by
    name, without the sessions inside them. For a generator, `items` is the number of items and
    `first_ns` the time to the first one. For a workload, `each_ns` has the time of each input.
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
    side of an older commit has read in place of its own.
    """

    source: str | None
    kind: Literal["function", "coroutine", "generator", "async generator"]
    start_ns: DurationNs
    of_worktree: tuple[str, ...] = ()


_LENGTH_BYTES = 8
_Message = TypeVar("_Message")


class StationPlace(Struct, frozen=True, kw_only=True):
    """The place of a station: the test that it runs, in which tree, and how.

    `tree` is the top folder of this side, and `worktree` that of the work tree. `test` is the id of
    the test, with the path of its file relative to the top folder, and `folder` is the working
    folder relative to it. `sys_path` is that of the parent, or None if the station runs another
    Python. `paths` are import paths relative to the top folder that go first. `cores` are the
    processors to run on. `scratch` is a folder for the temporary files and the cache of pytest, and
    for models in memory. `at` describes the version of the side after, for messages.
    """

    side: Side
    tree: str
    worktree: str
    test: str
    folder: str = "."
    python: str
    options: Mapping[str, object]
    sys_path: tuple[str, ...] | None
    paths: tuple[str, ...] = ()
    cores: tuple[int, ...] | None = None
    scratch: str
    at: str = "in the work tree"


class Begin(Struct, frozen=True, kw_only=True):
    """The first message. `started_ns` is when the process was started, by `monotonic_ns`."""

    place: StationPlace
    started_ns: int


# -- orders


class TimeCalls(Struct, frozen=True, tag=True):
    """Time at least one and up to `count` calls. No call begins after `max_ns`."""

    count: int
    max_ns: int


class Watch(Struct, frozen=True, tag=True):
    """Watch the work of two calls."""


class ProfileCalls(Struct, frozen=True, tag=True):
    """Run some calls under cProfile."""

    calls: int


class GiveSeen(Struct, frozen=True, tag=True):
    """List what the process has read."""


class GiveResult(Struct, frozen=True, tag=True):
    """Return the pickled result of a call."""


class CompareResult(Struct, frozen=True, tag=True):
    """Compare the result of a call with that of the other side, which was pickled.

    `way` is `==` or `allclose`, or `given` for the function that the test passes.
    """

    other: bytes
    way: str


class End(Struct, frozen=True, tag=True):
    """Skip the rest of the test."""


Order: TypeAlias = TimeCalls | Watch | ProfileCalls | GiveSeen | GiveResult | CompareResult | End


# -- answers


class ModelPlace(Struct, frozen=True, kw_only=True):
    """The source of a model: its file, or for a model in memory a copy of it and its digest.

    A copy is temporary, and so is a file that the process wrote, because each run makes it again.
    `numbers` are the inputs of the watched call that are single numbers.
    """

    path: str | None
    sha256: Digest | None = None
    is_temporary: bool = False
    numbers: Mapping[str, float] = {}


class IsReached(Struct, frozen=True, tag=True):
    """The test has reached the call."""

    reached: Reached


class IsMissing(Struct, frozen=True, tag=True):
    """The test does not exist in this tree."""

    reason: str


class NotReached(Struct, frozen=True, tag=True):
    """The test ended without reaching the call."""

    reason: str


class Failed(Struct, frozen=True, tag=True):
    """The function of the test raised an error, or the order cannot be carried out."""

    reason: str


class TimedTurns(Struct, frozen=True, tag=True):
    """The timed calls, and the peak memory of the process by then, if that is known."""

    turns: tuple[Turn, ...]
    peak_bytes: Count | None


class Watched(Struct, frozen=True, tag=True):
    """The work of a call, and that of the next one if it differs."""

    work: CallWork
    next_work: CallWork | None
    models: Mapping[str, ModelPlace]


class ProfiledCalls(Struct, frozen=True, tag=True):
    """The profile of the calls."""

    profile: CallProfile


class SeenHere(Struct, frozen=True, tag=True):
    """The files, distributions and models that the process read. The parent digests the models."""

    files: Mapping[str, Digest]
    distributions: Mapping[str, str]
    models: Mapping[str, ModelPlace]
    python: str


class Result(Struct, frozen=True, tag=True):
    """The result of a call."""

    pickled: bytes


class Compared(Struct, frozen=True, tag=True):
    """A sentence on how the results differ, or None if they are equal."""

    difference: str | None


Answer: TypeAlias = (
    IsReached
    | IsMissing
    | NotReached
    | Failed
    | TimedTurns
    | Watched
    | ProfiledCalls
    | SeenHere
    | Result
    | Compared
)


def write_message(stream: IO[bytes], message: Struct) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
BEGINNINGS = msgspec.msgpack.Decoder(Begin)


def read_message(stream: IO[bytes], decoder: msgspec.msgpack.Decoder[_Message]) -> _Message | None:
    """Return the next message, or None at the end of the stream."""
    head = stream.read(_LENGTH_BYTES)
    data = stream.read(int.from_bytes(head, "little"))
    if len(head) < _LENGTH_BYTES or len(data) < int.from_bytes(head, "little"):
        return None
    return decoder.decode(data)
