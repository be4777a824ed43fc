"""Which changes are to be made: each is shown, and answered by an option or by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.init.records import FileChange, SetupPart


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
        if answer is None and ask is None:
            unanswered.append(change)
            continue
        if answer is None and ask is not None:
            answer = ask(change)
        if answer:
            accepted.append(change)
    return Settled(tuple(accepted), tuple(unanswered))
