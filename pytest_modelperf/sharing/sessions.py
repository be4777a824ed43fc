"""The session of an engine as the program of a shared folder opens it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.source import DEFAULT_ENGINE
from pytest_modelperf.profiler.sampling.setup import Setup

# The values of options that are enumerations, by the names that our engine has for them.
_MEMBERS: Mapping[str, int] = {
    "none": 0, "basic": 1, "extended": 2, "layout": 3, "all": 99, "sequential": 0, "parallel": 1,
    "true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0,
}  # fmt: skip
# The options that our engine sets for every session.
_OPTIONS: Mapping[str, int | str] = {"inter_op_num_threads": 1, "log_severity_level": 3}
_PROVIDER, _CUSTOM_OPS = "provider", "custom_ops"


class SharedSession(Struct, frozen=True):
    """Attributes of `SessionOptions`, and entries of its configuration."""

    options: Mapping[str, int | str]
    config: Mapping[str, str]


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


def session_of(options: Mapping[str, str]) -> SharedSession:
    """The session that the engine opens with these options, its defaults included."""
    own = {name: value for name, value in options.items() if name != _PROVIDER}
    return SharedSession(
        {**_OPTIONS, **{name: _value(text) for name, text in own.items() if "." not in name}},
        {name: text for name, text in own.items() if "." in name},
    )


def _value(text: str) -> int | str:
    if text.lower() in _MEMBERS:
        return _MEMBERS[text.lower()]
    return int(text) if text.removeprefix("-").isdecimal() else text
