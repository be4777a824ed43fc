"""The settings in errors and advice, as options of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_modelperf.errors import Wording
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES, DIMS, INPUTS, STATE
from pytest_modelperf.spec.run_definitions import (
    ENGINE_OPTION,
    MAX_SECONDS,
    STATIC_ONLY,
    TIMEOUT,
    TOLERANCE,
)
from pytest_modelperf.text.quoting import shell_word


class CommandWording(Wording):
    """`--dim seq=SIZE --dim batch=SIZE`."""

    names: Mapping[str, str] = {
        "baseline_python": "--python-a and --python-b",
        "batch": BATCH_SIZE.command_flag,
        "cores": CORES.command_flag,
        "dims": DIMS.command_flag,
        "engine_option": ENGINE_OPTION.command_flag,
        "inputs": INPUTS.command_flag,
        "json": "--json",
        "max_seconds": MAX_SECONDS.command_flag,
        "state": f"{STATE.command_flag} PAST=PRESENT",
        "static": STATIC_ONLY.command_flag,
        "timeout": TIMEOUT.command_flag,
        "tolerance": TOLERANCE.command_flag,
    }

    def sizes(self, dims: Sequence[str]) -> str:
        return " ".join(f"{DIMS.command_flag} {shell_word(f'{name}=SIZE')}" for name in dims)

    def value(self, setting: str, value: str) -> str:
        return f"{self.names[setting]} {shell_word(value)}"


COMMAND_WORDING = CommandWording()
