"""Which sessions the program of a shared folder can open."""

from __future__ import annotations

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.sampling.setup import Setup

_PROVIDER, _CUSTOM_OPS = "provider", "custom_ops"


def require_shareable(setup: Setup) -> None:
    """UsageError for an engine or an option that the program of a folder does not have."""
    if setup.engine.name != DEFAULT_ENGINE:
        raise UsageError(
            f"the program of a shared folder runs {DEFAULT_ENGINE}, not {setup.engine.name}: leave "
            "out --engine."
        )
    for name in setup.options:
        if name == _CUSTOM_OPS or name.startswith(f"{_PROVIDER}."):
            raise UsageError(
                f"the option {name} names something of this machine, which a folder for others "
                "cannot hold: leave it out."
            )
