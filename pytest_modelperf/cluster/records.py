"""The records of a cluster: its machines, the jobs that it is given, and what they have come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.profiler.measurements import Progress


class Machine(Struct, frozen=True, kw_only=True):
    """A Dask worker that measures: where it answers, what machine it is, and its software.

    `key` is the kind of machine, as baselines have it. `versions` are those of installed packages,
    and `cores` are those that a case can have; None if that is unknown.
    """

    address: str
    host: str
    key: str
    tags: tuple[str, ...] = ()
    versions: Mapping[str, str]
    cores: int | None = None

    def is_any_of(self, names: Collection[str]) -> bool:
        """Whether one of the names is its key or a tag of it; no names mean any machine.

        `board+quiet` names the machines that have both names.
        """
        own = {self.key, *self.tags}
        return not names or any(name in own or own.issuperset(name.split("+")) for name in names)

    @property
    def label(self) -> str:
        """`board-3 (linux-aarch64-cortex_a72-4c)`."""
        return f"{self.host} ({', '.join((self.key, *self.tags))})"


def fitting_machines(
    machines: Iterable[Machine], names: Collection[str], cores: int
) -> list[Machine]:
    """The machines of these names that have so many cores; all of these names if none has.

    Then the machine says how many it lacks.
    """
    named = [machine for machine in machines if machine.is_any_of(names)]
    return [each for each in named if each.cores is None or each.cores >= cores] or named


class NeededSoftware(Struct, frozen=True, kw_only=True):
    """The software that machines of these sets of names need: an engine, and modules with hooks.

    The version of the engine is that of the client, as is the version of this package.
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
    """A model by its content: the digest of all its bytes, and the files that hold them.

    `path` is where the client has it. The first part is the graph, the others external data.
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
    """The surroundings of a job on the machine that carries it out, beside its request.

    `paths` are the models by their digests. `watch` passes on where the measuring stands, and ends
    a job that was cancelled.
    """

    paths: Mapping[str, Path]
    watch: Callable[[Progress], None]


# A function at the top of a module that both sides can import. It takes and returns JSON.
Work: TypeAlias = Callable[[str, JobContext], str]


class Job(Struct, frozen=True, kw_only=True):
    """One case for one machine: what to do, with which models, and which machines may do it.

    `machines` are keys or tags; none of them mean any machine. `cores` are the most that it needs.
    """

    name: str
    work: Work
    request: str
    models: tuple[ModelContent, ...] = ()
    machines: tuple[str, ...] = ()
    cores: int = 1


class RunningJob(Struct, frozen=True):
    """A job that a machine carries out now, and the last that it told of its progress."""

    name: str
    machine: Machine
    progress: Progress | None = None


class ClusterStatus(Struct, frozen=True):
    """How many jobs wait and have ended, and which run where."""

    waiting: int
    ended: int
    running: tuple[RunningJob, ...]


class JobOrder(Struct, frozen=True, kw_only=True):
    """An order to a worker. The messages of the job go to `topic`, with the key of the job.

    `work` names a function: `package.module:function`.
    """

    key: str
    topic: str
    work: str
    request: str
    models: tuple[ModelContent, ...]
    version: str


# Called with where the jobs stand, whenever that changes.
OnChange: TypeAlias = Callable[[ClusterStatus], None]
# Called with what a user should know of a machine that is not used.
OnWarning: TypeAlias = Callable[[str], None]


class AnsweredRemedy(Struct, frozen=True, kw_only=True):
    """The `Remedy` of an error, which each face words for its own users."""

    text: str
    dims: tuple[str, ...] = ()
    values: Mapping[str, str] = {}


class JobAnswer(Struct, frozen=True, kw_only=True):
    """How a job ended: with a text, or with a ModelPerfError by the name of its class."""

    text: str | None = None
    error: str | None = None
    message: str = ""
    details: tuple[str, ...] = ()
    remedy: AnsweredRemedy | None = None


class Message(Struct, frozen=True, kw_only=True):
    """A message of a worker about a job while it carries it out.

    `needs` is the digest of a model that it waits for. With neither that nor progress, the job has
    begun.
    """

    key: str
    address: str
    needs: str | None = None
    progress: Progress | None = None
