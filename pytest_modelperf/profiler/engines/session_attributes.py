"""Options of ONNX Runtime as a program sets them that has numpy and onnxruntime alone."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# The values of options that are enumerations, by the names that our engine has for them.
_MEMBERS: Mapping[str, int] = {
    "none": 0, "basic": 1, "extended": 2, "layout": 3, "all": 99, "sequential": 0, "parallel": 1,
    "true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0,
}  # fmt: skip
# The options that our engine sets for every session.
_OPTIONS: Mapping[str, int | str] = {"inter_op_num_threads": 1, "log_severity_level": 3}
# Options that are neither attributes nor entries.
_OTHERS = ("provider", "custom_ops")


class SessionAttributes(Struct, frozen=True):
    """Attributes of `SessionOptions`, and entries of its configuration."""

    options: Mapping[str, int | str]
    config: Mapping[str, str]


def session_attributes(options: Mapping[str, str]) -> SessionAttributes:
    """The session that the engine opens with these options, its defaults included."""
    own = {name: value for name, value in options.items() if name.partition(".")[0] not in _OTHERS}
    return SessionAttributes(
        {**_OPTIONS, **{name: _value(text) for name, text in own.items() if "." not in name}},
        {name: text for name, text in own.items() if "." in name},
    )


def _value(text: str) -> int | str:
    if text.lower() in _MEMBERS:
        return _MEMBERS[text.lower()]
    return int(text) if text.removeprefix("-").isdecimal() else text
