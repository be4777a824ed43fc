"""Shows, asks about and writes the changes of a setup, and measures the machine's noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import OutputError, Wording
from pytest_modelperf.files.output import cannot_write, check_output, write_all
from pytest_modelperf.init.planning import read_text
from pytest_modelperf.init.records import FileChange, SetupPart
from pytest_modelperf.profiler.doctor.checkup import check_machine
from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.text.escaping import printable


class Settled(Struct, frozen=True):
    """The changes that were accepted, and those that have no answer."""

    accepted: tuple[FileChange, ...] = ()
    unanswered: tuple[FileChange, ...] = ()


def settle_changes(
    changes: Sequence[FileChange],
    answers: Mapping[SetupPart, bool],
    show: Callable[[FileChange], None],
    ask: Callable[[FileChange], bool] | None,
) -> Settled:
    """Show each change, and ask the user about it unless there is an answer already.

    `ask` is None if no user can be asked.
    """
    accepted, unanswered = [], []
    for change in changes:
        show(change)
        answer = answers.get(change.part)
        if answer is None and ask is not None:
            answer = ask(change)
        if answer is None:
            unanswered.append(change)
        elif answer:
            accepted.append(change)
    return Settled(tuple(accepted), tuple(unanswered))


def write_changes(changes: Sequence[FileChange]) -> None:
    """Write each file in one step, and none if one of them cannot be written.

    Raise OutputError if one cannot be written, or was changed since it was read.
    """
    for change in changes:
        try:
            change.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(str(change.path), error) from error
        check_output(change.path)
        if read_text(change.path) != change.before:
            raise OutputError(
                f"{printable(str(change.path))} was changed by another program meanwhile: run "
                "modelperf init again."
            )
    write_all({change.path: change.after.encode() for change in changes})


# -- a short measure of how noisy this machine is


# The rest of ten seconds goes to the start of the worker and its sessions.
_ROUND_SECONDS = 7.0


def measure_noise(
    wording: Wording, watch: Watch = lambda _: None, seconds: float = _ROUND_SECONDS
) -> tuple[str, ...]:
    """Return a sentence for each core count: which change could be seen here, and how soon."""
    setup = Setup(policy=replace(DUET_POLICY, max_seconds=seconds), wording=wording)
    return tuple(map(describe_checkup, check_machine(setup, watch=watch)))
