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

    `shapes` is None if they are unknown, as for device tensors that were bound earlier.
    """

    shapes: Mapping[str, tuple[int, ...]] | None
    values: Mapping[str, float]
    count: int


class SessionRuns(Struct, frozen=True):
    """The sessions of a program that have the same model and options.

    `model` is the path of its file, or None for a model in memory. For a model in memory, `sha256`
    is the digest of its bytes, and `size` their number.
    """

    model: Path | None
    sha256: str | None
    size: int
    options: Mapping[str, str]
    inferences: tuple[InferenceSizes, ...]

    @property
    def count(self) -> int:
        """The number of inferences that ran."""
        return sum(each.count for each in self.inferences)


class ProgramSessions(Struct, frozen=True):
    """A program that was run to its end, and its sessions."""

    launch: Launch
    sessions: tuple[SessionRuns, ...]


def run_program(command: Sequence[str], example: str) -> ProgramSessions:
    """Run a command to its end, and return the sessions of all Pythons that it started.

    `example` is our own command that runs the program, for the error if the program cannot start.
    """
    with working_folder("sessions") as folder:
        launch = run_watched(command, {VARIABLE: str(folder)}, example)
        logs = (path.read_text("utf-8") for path in sorted(folder.glob("*.log")))
        return ProgramSessions(launch, read_logs(logs))


def read_logs(logs: Iterable[str]) -> tuple[SessionRuns, ...]:
    """Return the sessions of several processes, merged if they have the same model and options."""
    counts: dict[LoggedSession, Counter[LoggedInputs]] = {}
    for log in logs:
        for session, inputs in _inferences(log):
            known = counts.setdefault(session, Counter())
            if inputs is not None:
                # A session's number is valid only in its own process.
                known[inputs._replace(session=0)] += 1
    return tuple(
        SessionRuns(
            model=None if session.model is None else Path(session.model),
            sha256=session.sha256,
            size=session.size,
            options=dict(session.options),
            inferences=tuple(
                InferenceSizes(
                    None if inputs.sizes is None else dict(inputs.sizes), dict(inputs.values), count
                )
                for inputs, count in found.most_common()
            ),
        )
        for session, found in counts.items()
    )


def _inferences(log: str) -> Iterator[tuple[LoggedSession, LoggedInputs | None]]:
    """Yield each session without inputs when it is made, and with inputs for each inference."""
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
