"""Help for a model that does not run at the sizes that were typed: advice, or a guess that runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_modelperf.cli.wording import COMMAND_WORDING
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.spec.case_definitions import COMMAND_GATEWAY, GUESS
from pytest_modelperf.spec.run_definitions import ENGINE, STATIC_ONLY

if TYPE_CHECKING:
    from pytest_modelperf.sizing.records import FoundSizes

# With these no inference of ONNX Runtime on this machine shows whether the sizes are good.
_ELSEWHERE = (
    ENGINE.command_flag, COMMAND_GATEWAY.command_flag, STATIC_ONLY.command_flag, "--requirement",
)  # fmt: skip
_NO_RUN = ("shapes",)


def find_for(error: ModelPerfError, typed: Sequence[str]) -> FoundSizes | None:
    """The sizes that help with an error of a command; None if it is about something else."""
    if error.asked is None:
        return None
    from pytest_modelperf.sizing.pasted import sizes_for

    options = {word.partition("=")[0] for word in typed}
    runs = typed[0] not in _NO_RUN and options.isdisjoint(_ELSEWHERE)
    return sizes_for(error, runs=runs)


def worded_with(error: ModelPerfError, found: FoundSizes, typed: Sequence[str]) -> str:
    """The error with the whole command that avoids it, or with what was tried."""
    if not found.is_found:
        return f"{error.worded(COMMAND_WORDING)}\n{found.error}"
    from pytest_modelperf.sizing.pasted import render_advice, render_command

    return f"{error.message} {render_advice(found, render_command(found, typed))}"


def guessed(found: FoundSizes | None, typed: Sequence[str]) -> tuple[str, ...] | None:
    """The words of a command with guessed sizes, if it asks for these and there are any."""
    if found is None or not found.is_found or GUESS.command_flag not in typed:
        return None
    from pytest_modelperf.sizing.pasted import with_sizes

    return with_sizes(found, typed)
