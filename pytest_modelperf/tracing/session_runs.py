"""Runs a program, and returns what its sessions of ONNX Runtime ran, in all of its processes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.tracing.launch import Launch, run_watched
from pytest_modelperf.tracing.session_log import VARIABLE, LoggedInputs, LoggedSession


class InferenceSizes(Struct, frozen=True):
    """Inferences with the same inputs: the shape of each, and the values of single numbers.

    `shapes` is None if they are unknown, as for tensors of a device that were bound earlier.
    """

    shapes: Mapping[str, tuple[int, ...]] | None
    values: Mapping[str, float]
    count: int


class SessionRuns(Struct, frozen=True):
    """The sessions of a program that have the same model and options.

    `model` is the path of its file. A model in memory has none: it has the digest of its bytes, and
    their number is its `size`.
    """

    model: Path | None
    sha256: str | None
    size: int
    options: Mapping[str, str]
    inferences: tuple[InferenceSizes, ...]

    @property
    def count(self) -> int:
        """How many inferences ran."""
        return sum(each.count for each in self.inferences)


class ProgramSessions(Struct, frozen=True):
    """A program that was run to its end, and its sessions."""

    launch: Launch
    sessions: tuple[SessionRuns, ...]


def run_program(command: Sequence[str], example: str) -> ProgramSessions:
    """Run a command to its end, and return the sessions of all Pythons that it started.

    `example` begins a command of ours that starts a program.
    """
    with working_folder("sessions") as folder:
        launch = run_watched(command, {VARIABLE: str(folder)}, example)
        logs = (path.read_text("utf-8") for path in sorted(folder.glob("*.log")))
        return ProgramSessions(launch, read_logs(logs))


def read_logs(logs: Iterable[str]) -> tuple[SessionRuns, ...]:
    """The sessions of several processes; those with one model and the same options are one."""
    counts: dict[LoggedSession, Counter[LoggedInputs]] = {}
    for log in logs:
        for session, inputs in _inferences(log):
            known = counts.setdefault(session, Counter())
            if inputs is not None:
                # The number of the session is that of one process.
                known[inputs._replace(session=0)] += 1
    return tuple(
        SessionRuns(
            model=None if session.model is None else Path(session.model),
            sha256=session.sha256,
            size=session.size,
            options=dict(session.options),
            inferences=tuple(
                InferenceSizes(
                    None if inputs.sizes is None else dict(inputs.sizes),
                    dict(inputs.values),
                    count,
                )
                for inputs, count in found.most_common()
            ),
        )
        for session, found in counts.items()
    )


def _inferences(log: str) -> Iterator[tuple[LoggedSession, LoggedInputs | None]]:
    """Each session as it is made, without inputs, and the inputs of each inference."""
    sessions: list[LoggedSession] = []
    inputs: list[LoggedInputs] = []
    # A process that was killed may have left its last line unfinished.
    for line in log.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        read = json.loads(line)
        if isinstance(read, int):
            own = inputs[read]
            yield sessions[own.session], own
        elif read[0] == "session":
            model, sha256, size, options = read[2:]
            made = LoggedSession(model, sha256, size, tuple((k, v) for k, v in options))
            sessions.append(made)
            yield made, None
        else:
            session, sizes, values = read[2:]
            shapes = None if sizes is None else tuple((n, tuple(shape)) for n, shape in sizes)
            inputs.append(LoggedInputs(session, shapes, tuple((n, v) for n, v in values)))
