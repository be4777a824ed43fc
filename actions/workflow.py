"""How a step of an action talks to the runner: inputs and the event come in, outputs go out."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class StepError(Exception):
    """A step cannot go on; the message tells the user what to change."""


def run_step(step: Callable[[], int]) -> None:
    """Ends the process with what the step returns; its errors become annotations."""
    try:
        code = step()
    except StepError as error:
        say("error", str(error))
        code = 1
    raise SystemExit(code)


def say(kind: str, text: str) -> None:
    """An annotation of the run: an error, a warning or a notice."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    # Before the lines that a program prints next.
    print(f"::{kind} title=modelperf::{escaped}", flush=True)


def read_input(name: str) -> str:
    """The input of that name, which `action.yml` passes as an environment variable."""
    return os.environ.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip()


def read_switch(name: str) -> bool:
    """Whether an input is `true`."""
    value = read_input(name)
    if value not in {"true", "false"}:
        raise StepError(f"the input {name} is true or false, not {value!r}")
    return value == "true"


def read_words(name: str) -> list[str]:
    """The words of an input, quoted as in a shell; no shell sees them."""
    value = read_input(name)
    try:
        return shlex.split(value)
    except ValueError as error:
        raise StepError(
            f"the input {name} cannot be split into words: {str(error).lower()}. Close each quote: "
            f"{value}"
        ) from error


def read_event() -> Mapping[str, Any]:
    """The event that started the workflow."""
    path = require("GITHUB_EVENT_PATH")
    event: Mapping[str, Any] = json.loads(Path(path).read_text("utf-8"))
    return event


def require(variable: str) -> str:
    """A variable that every runner sets."""
    value = os.environ.get(variable)
    if not value:
        raise StepError(f"{variable} is not set: this program is a step of a GitHub workflow")
    return value


def write_outputs(outputs: Mapping[str, str]) -> None:
    """The outputs of the step. StepError for a line break, which would begin another output."""
    for name, value in outputs.items():
        if not value.isprintable():
            raise StepError(f"the output {name} has characters that cannot be shown: {value!r}")
    lines = "".join(f"{name}={value}\n" for name, value in outputs.items())
    with Path(require("GITHUB_OUTPUT")).open("a", encoding="utf-8") as file:
        file.write(lines)


def run_python(*arguments: str, **variables: str) -> int:
    """The exit code of the python on the PATH with these arguments, which are printed first."""
    command = ["python", *arguments]
    print("$", shlex.join(command), flush=True)
    return subprocess.run(command, check=False, env={**os.environ, **variables}).returncode
