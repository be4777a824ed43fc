"""The options that have a model run in an environment with given packages."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pytest_modelperf.cli.output import shown_progress
from pytest_modelperf.cli.setting_options import Option
from pytest_modelperf.errors import UsageError


def requirement_option(name: str, runs: str) -> Option:
    """A repeatable option for requirements; `runs` says what runs with them."""
    return click.option(
        name,
        multiple=True,
        metavar="REQ",
        help=f"Run {runs} with this package, as in onnxruntime==1.22.0, in an environment that is "
        "made once and kept; repeatable.",
    )


def require_this_machine(option: str, requirements: Sequence[str], *, is_on_cluster: bool) -> None:
    """UsageError for packages of an environment of this machine where another one measures."""
    if requirements and is_on_cluster:
        raise UsageError(
            f"{option} has the model run in an environment of this machine: leave out --cluster or "
            f"{option}."
        )


def require_local_gateway(option: str, gateway: str | None) -> None:
    """UsageError for a Python of this machine where the other side runs on another one."""
    from pytest_modelperf.profiler.worker.gateway import is_local

    if gateway is not None and not is_local(gateway):
        raise UsageError(
            f"{option} runs a model on this machine, and --gateway on another one, so they could "
            "not be compared: leave out one of them."
        )


def environment_spec(option: str, requirements: Sequence[str]) -> str | None:
    """Returns the gateway to a Python with these packages, if any are given."""
    if not requirements:
        return None
    from pytest_modelperf.environments.making import make_environment
    from pytest_modelperf.profiler.worker.gateway import interpreter_spec

    with shown_progress() as progress:
        made = make_environment(requirements, on_progress=progress.tell)
    return interpreter_spec(str(made.python), option)
