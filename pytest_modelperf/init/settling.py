"""Which changes are made: each is shown, and answered by an option or by the user; then written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.errors import OutputError
from pytest_modelperf.files.output import cannot_write, check_output, write_all
from pytest_modelperf.init.planning import read_text
from pytest_modelperf.init.records import FileChange, SetupPart
from pytest_modelperf.text.escaping import printable


class Settled(Struct, frozen=True):
    """The changes that were accepted, and those that nobody could answer."""

    accepted: tuple[FileChange, ...] = ()
    unanswered: tuple[FileChange, ...] = ()


def settle_changes(
    changes: Sequence[FileChange],
    answers: Mapping[SetupPart, bool],
    show: Callable[[FileChange], None],
    ask: Callable[[FileChange], bool] | None,
) -> Settled:
    """Each change is shown; without an answer the user is asked, if there is one to `ask`."""
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
    """Writes each file in one step, and none if one of them cannot be.

    OutputError if one cannot be written, or was changed since it was read.
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
