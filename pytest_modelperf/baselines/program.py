"""The baseline of a program: its commit, its sources, its work and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from pytest_modelperf.files.documents import Count, Digest, Number, Positive
from pytest_modelperf.report.codec import JsonDocument, JsonObject

PROGRAM_FILE = "program.json"
# A full git id: a stored file must not name a commit in any other way.
CommitId: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$(?!\n)")]


class InferenceWork(Struct, frozen=True, kw_only=True):
    """Inferences of one session with inputs of the same shapes.

    `inputs` are texts such as `x: 1x3x48x552 float32`. `macs` are those of one inference.
    """

    inputs: tuple[str, ...]
    count: Positive
    macs: Count | None = None


class SessionWork(Struct, frozen=True, kw_only=True):
    """The work that a call gives to sessions of one model with the same options.

    `model` is the name of its file; if several have that name, each but the first gets a number.
    `made` is how many sessions the call itself makes. `options` has the threads, the optimization
    level, the execution mode, the providers and each further session option as texts. `sha256` is
    the digest of the model with its external data, or None if neither a file nor bytes are known.
    """

    model: str
    sha256: Digest | None
    options: Mapping[str, str]
    made: Count = 0
    inferences: tuple[InferenceWork, ...] = ()

    @property
    def calls(self) -> int:
        return sum(each.count for each in self.inferences)


class CallWork(Struct, frozen=True, kw_only=True):
    """The exact work of one call.

    `first_item_inferences` is how many inferences a generator makes until its first item. It is
    None for other functions, and if other threads make inferences, because their order varies.
    """

    sessions: tuple[SessionWork, ...] = ()
    first_item_inferences: Count | None = None

    @property
    def inferences(self) -> int:
        return sum(session.calls for session in self.sessions)

    @property
    def made(self) -> int:
        return sum(session.made for session in self.sessions)

    @property
    def macs(self) -> int | None:
        """The MACs of all inferences, or None if those of any are unknown."""
        found = [each for session in self.sessions for each in session.inferences]
        if any(each.macs is None for each in found):
            return None
        return sum(each.count * (each.macs or 0) for each in found)


class SeenModel(Struct, frozen=True, kw_only=True):
    """A model that a program loaded.

    `path` is relative to the project, or begins with ~ in the home folder. It is None for a model
    of a distribution, and for one that each run makes.
    """

    name: str
    path: str | None
    sha256: Digest | None


class ProgramSources(Struct, frozen=True, kw_only=True):
    """What a program read: files of the project by digest, distributions, and models.

    Paths are relative to the top folder of the repository, with slashes.
    """

    files: Mapping[str, Digest]
    distributions: Mapping[str, str]
    models: tuple[SeenModel, ...]
    python: str


class StoredRow(Struct, frozen=True, kw_only=True):
    """A row of the report when the program was recorded: a session, a label, or the rest."""

    name: str
    calls: Number
    ms: Number


class ProgramFigures(Struct, frozen=True, kw_only=True):
    """The figures when a program was recorded, in milliseconds and bytes."""

    p50_ms: Number
    p95_ms: Number | None = None
    first_item_ms: Number | None = None
    item_ms: Number | None = None
    start_ms: Number | None = None
    peak_rss_bytes: Count | None = None


class StoredProgram(Struct, frozen=True, kw_only=True):
    """The baseline of a program: its commit, its sources, its work and its figures.

    `commit` is None if the program was recorded before it was committed: then the commit that added
    this file has it.
    """

    test: str
    commit: CommitId | None
    recorded: str
    machine: str
    seen: ProgramSources
    work: CallWork
    figures: ProgramFigures
    rows: tuple[StoredRow, ...]


INFERENCE_WORK = JsonObject(InferenceWork, "inputs count macs", forbids_unknown=True)
SESSION_WORK = JsonObject(
    SessionWork,
    "model sha256 options made inferences",
    inferences=INFERENCE_WORK,
    forbids_unknown=True,
)
WORK = JsonObject(
    CallWork, "sessions first_item_inferences?", sessions=SESSION_WORK, forbids_unknown=True
)
SEEN_MODEL = JsonObject(SeenModel, "name path sha256", forbids_unknown=True)
STORED_PROGRAM = JsonDocument(
    StoredProgram,
    "test commit recorded machine python=seen.python files=seen.files"
    " distributions=seen.distributions models=seen.models work figures rows",
    title="Program",
    forbids_unknown=True,
    models=SEEN_MODEL,
    work=WORK,
    figures=JsonObject(ProgramFigures, "*", forbids_unknown=True),
    rows=JsonObject(StoredRow, "*", forbids_unknown=True),
)
