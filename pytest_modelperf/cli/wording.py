"""The settings in errors and advice, as options of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.errors import Wording
from pytest_modelperf.text.quoting import shell_word


class CommandWording(Wording):
    """`--dim seq=SIZE --dim batch=SIZE`."""

    names: Mapping[str, str] = {
        "baseline_python": "--python-a and --python-b",
        "batch": "--batch",
        "cores": "--cores",
        "dims": "--dim",
        "engine_option": "--engine-option",
        "inputs": "--input",
        "json": "--json",
        "max_seconds": "--max-seconds",
        "state": "--state PAST=PRESENT",
        "static": "--static",
        "timeout": "--timeout",
        "tolerance": "--tolerance",
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return " ".join(f"--dim {shell_word(f'{name}=SIZE')}" for name in dims)

    def value(self, setting: str, value: str) -> str:
        return f"{self.names[setting]} {shell_word(value)}"


COMMAND_WORDING = CommandWording()
