"""The records of a cluster: its machines, its jobs, and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.profiler.measurements import Progress


class Machine(Struct, frozen=True, kw_only=True):
    """A Dask worker that measures: its address, its kind of machine, and its software.

    `key` is the kind of machine, as in baselines. `versions` are those of installed packages.
    `cores` is the number of cores that a case can use, or None if that is unknown.
    """

    address: str
    host: str
    key: str
    tags: tuple[str, ...] = ()
    versions: Mapping[str, str]
    cores: int | None = None

    def is_any_of(self, names: Collection[str]) -> bool:
        """Whether one of the names is its key or one of its tags, or there are no names.

        `board+quiet` matches the machines that have both names.
        """
        own = {self.key, *self.tags}
        return not names or any(name in own or own.issuperset(name.split("+")) for name in names)

    @property
    def label(self) -> str:
        """The machine as a user reads it: `board-3 (linux-aarch64-cortex_a72-4c)`."""
        return f"{self.host} ({', '.join((self.key, *self.tags))})"


def fitting_machines(
    machines: Iterable[Machine], names: Collection[str], cores: int
) -> list[Machine]:
    """Return the machines with these names and enough cores.

    If none has enough cores, return all with these names. The machine then reports the missing
    cores itself.
    """
    named = [machine for machine in machines if machine.is_any_of(names)]
    return [each for each in named if each.cores is None or each.cores >= cores] or named


class NeededSoftware(Struct, frozen=True, kw_only=True):
    """The engine and the hook modules that the machines with one of these sets of names need.

    The versions of the engine and of this package must be those of the client.
    """

    wanted: tuple[Collection[str], ...]
    engine: str | None
    modules: tuple[str, ...]

    def concerns(self, machine: Machine) -> bool:
        return any(machine.is_any_of(names) for names in self.wanted)


class SentFile(Struct, frozen=True):
    """A file of a model: its name relative to the folder of the model, and its size."""

    name: str
    size_bytes: int


class ModelContent(Struct, frozen=True):
    """A model by its content: the digest of all its bytes, and its files.

    `path` is its path on the client. The first part is the graph, the others are external data.
    """

    path: str
    digest: str
    parts: tuple[SentFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def name(self) -> str:
        return self.parts[0].name


class JobContext(Struct, frozen=True):
    """The context that a job gets on the machine that runs it, besides its request.

    `paths` are the models by their digests. `watch` reports the progress of the measurement, and
    ends a job that was cancelled.
    """

    paths: Mapping[str, Path]
    watch: Callable[[Progress], None]


# A module-level function that both sides can import. It takes and returns JSON.
Work: TypeAlias = Callable[[str, JobContext], str]


class Job(Struct, frozen=True, kw_only=True):
    """One case for one machine: the work, its models, and the machines that may run it.

    `machines` are keys or tags. Without any, every machine may run it. `cores` is the largest
    number of cores that it needs.
    """

    name: str
    work: Work
    request: str
    models: tuple[ModelContent, ...] = ()
    machines: tuple[str, ...] = ()
    cores: int = 1


class RunningJob(Struct, frozen=True):
    """A job that a machine is running, and its last reported progress."""

    name: str
    machine: Machine
    progress: Progress | None = None


class ClusterStatus(Struct, frozen=True):
    """The number of jobs that wait or have ended, and the running ones with their machines."""

    waiting: int
    ended: int
    running: tuple[RunningJob, ...]


class JobOrder(Struct, frozen=True, kw_only=True):
    """A job as it is sent to a worker. Its messages go to `topic`, with its key.

    `work` names a function: `package.module:function`.
    """

    key: str
    topic: str
    work: str
    request: str
    models: tuple[ModelContent, ...]
    version: str


# Called with the status of the jobs whenever it changes.
OnChange: TypeAlias = Callable[[ClusterStatus], None]
# Called with a message for the user about a machine that is not used.
OnWarning: TypeAlias = Callable[[str], None]


class AnsweredRemedy(Struct, frozen=True, kw_only=True):
    """The `Remedy` of an error. pytest, Python and the command word it for their own users."""

    text: str
    dims: tuple[str, ...] = ()
    values: Mapping[str, str] = {}


class JobAnswer(Struct, frozen=True, kw_only=True):
    """The result of a job: a text, or a ModelPerfError by the name of its class."""

    text: str | None = None
    error: str | None = None
    message: str = ""
    details: tuple[str, ...] = ()
    remedy: AnsweredRemedy | None = None


class Message(Struct, frozen=True, kw_only=True):
    """A message from a worker about a job that it is running.

    `needs` is the digest of a model that it waits for. If `needs` and `progress` are None, the job
    has begun.
    """

    key: str
    address: str
    needs: str | None = None
    progress: Progress | None = None
