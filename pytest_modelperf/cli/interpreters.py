"""The options for the Pythons that run the two sides of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import with_options
from pytest_modelperf.cli.requirements import (
    environment_spec,
    require_local_gateway,
    require_this_machine,
    requirement_option,
)
from pytest_modelperf.cli.setting_options import Command
from pytest_modelperf.cli.values import parse_interpreter
from pytest_modelperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_modelperf.profiler.sampling.setup import Setup


class InterpreterOptions(Struct, frozen=True):
    """The Python that runs each of the two models, or the packages in it; nothing: this one."""

    python_a: str | None
    python_b: str | None
    requirement_a: tuple[str, ...]
    requirement_b: tuple[str, ...]

    def check(self, *, static: bool, is_on_cluster: bool, gateway: str | None) -> None:
        """UsageError if one is given that has no effect, or contradicts another option."""
        for side, python, requirements in (
            ("a", self.python_a, self.requirement_a),
            ("b", self.python_b, self.requirement_b),
        ):
            given = [
                *([f"--python-{side}"] if python is not None else []),
                *([f"--requirement-{side}"] if requirements else []),
            ]
            if static and given:
                raise UsageError(
                    f"{given[0]} needs a run of the models: leave out --static or {given[0]}."
                )
            require_this_machine(f"--requirement-{side}", requirements, is_on_cluster=is_on_cluster)
            for option in given:
                require_local_gateway(option, gateway)
            if len(given) > 1:
                raise UsageError(
                    f"{given[0]} and {given[1]} both say which Python runs a model: leave one of "
                    "them out."
                )

    def setups(self, setup_a: Setup, setup_b: Setup, *, are_here: bool) -> tuple[Setup, Setup]:
        """Returns the setup of each model; environments with requirements are made here.

        On a cluster, the Pythons are those of its machines.
        """
        specs = (
            parse_interpreter("--python-a", self.python_a, is_here=are_here)
            or environment_spec("--requirement-a", self.requirement_a),
            parse_interpreter("--python-b", self.python_b, is_here=are_here)
            or environment_spec("--requirement-b", self.requirement_b),
        )
        before, after = (
            replace(setup, spec=spec or setup.spec)
            for setup, spec in zip((setup_a, setup_b), specs, strict=True)
        )
        return before, after


def interpreter_options(command: Command) -> Command:
    """The options whose values `InterpreterOptions` takes."""
    return with_options(
        command,
        click.option(
            "--python-a", metavar="PATH", help="Run A in this Python.  [default: this one]"
        ),
        click.option(
            "--python-b", metavar="PATH", help="Run B in this Python.  [default: this one]"
        ),
        requirement_option("--requirement-a", "A"),
        requirement_option("--requirement-b", "B"),
    )
