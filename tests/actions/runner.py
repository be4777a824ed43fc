"""Runs the steps of an action as GitHub's runner does, but for the actions of others that it uses.

It knows the few expressions that our actions have, and raises for any other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.checkout import ROOT

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
_VALUE = re.compile(r"inputs\.([\w-]+)|steps\.(\w+)\.outputs\.([\w-]+)|github\.token")
_CONDITION = re.compile(r"(?:!cancelled\(\) && )?(\S+) != ''")
_NAME_AND_VALUE = re.compile(r"^([\w-]+)=(.*)$", re.MULTILINE)

# Installs nothing: the tests have the package already.
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>"$PYTHON_LOG"
case "$*" in
*'-m pip '*) exit 0 ;;
esac
PYTHONPATH="$PYTHONPATH:$BLOCKED" exec "{python}" "$@"
"""


class Used(NamedTuple):
    """An action of others that a step used, and its inputs."""

    action: str
    inputs: Mapping[str, str]


class Ran(NamedTuple):
    """The result of an action: its outputs, its log, its requests, and the calls of python."""

    has_failed: bool
    outputs: Mapping[str, str]
    log: str
    used: tuple[Used, ...]
    calls: tuple[str, ...]


def read_action(path: str) -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ROOT / path).read_text("utf-8"))
    return action


class Runner:
    """A runner with its own folder for temporary files, and the project in another."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder
        self.project = project
        self.token = "secret of the job"  # noqa: S105  # not a real secret
        # Packages that cannot be imported.
        self.blocked: tuple[str, ...] = ()
        self.event: Mapping[str, Any] = {}
        self.variables = {
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_SERVER_URL": "https://github.com",
        }

    def run(self, path: str, **given: str) -> Ran:
        """Runs the steps of the action in that file with these inputs."""
        action = read_action(path)
        inputs = {
            name: given.pop(name.replace("-", "_"), each["default"])
            for name, each in action["inputs"].items()
        }
        assert not given
        context: dict[str, str] = {
            f"inputs.{name}": self._fill(value, {}) for name, value in inputs.items()
        }
        environment = self._prepare(path)
        used, logs, has_failed = [], [], False
        for number, step in enumerate(action["runs"]["steps"]):
            condition = step.get("if", "")
            if (has_failed and "!cancelled()" not in condition) or not self._holds(
                condition, context
            ):
                continue
            if "uses" in step:
                used.append(Used(step["uses"], self._filled(step.get("with", {}), context)))
                continue
            output = self.folder / f"output-{number}"
            output.touch()
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step["run"]],  # noqa: S607  # as the runner does
                cwd=self.project / self._fill(step.get("working-directory", "."), context),
                env={
                    **environment,
                    "GITHUB_OUTPUT": str(output),
                    **self._filled(step.get("env", {}), context),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            logs.append(f"{done.stdout}{done.stderr}")
            has_failed = has_failed or done.returncode != 0
            for name, value in _NAME_AND_VALUE.findall(output.read_text("utf-8")):
                context[f"steps.{step['id']}.outputs.{name}"] = value
        calls = Path(environment["PYTHON_LOG"])
        return Ran(
            has_failed,
            {name: self._fill(each["value"], context) for name, each in action["outputs"].items()},
            "".join(logs),
            tuple(used),
            tuple(calls.read_text("utf-8").splitlines()) if calls.exists() else (),
        )

    def _prepare(self, path: str) -> dict[str, str]:
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        python = programs / "python"
        python.write_text(PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        blocked = self.folder / "blocked"
        blocked.mkdir(exist_ok=True)
        for name in self.blocked:
            (blocked / f"{name}.py").write_text(f"raise ImportError({name!r})\n")
        event = self.folder / "event.json"
        event.write_text(json.dumps(self.event))
        log = self.folder / "calls"
        log.unlink(missing_ok=True)
        git = Path(shutil.which("git") or "/usr/bin/git").parent
        return {
            "PATH": os.pathsep.join([str(programs), str(git), "/usr/bin", "/bin"]),
            "PYTHONPATH": str(ROOT),
            "PYTHON_LOG": str(log),
            "BLOCKED": str(blocked),
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str((ROOT / path).parent),
            "GITHUB_EVENT_PATH": str(event),
            **self.variables,
        }

    def _filled(self, values: Mapping[str, object], context: Mapping[str, str]) -> dict[str, str]:
        return {name: self._fill(str(value), context) for name, value in values.items()}

    def _fill(self, text: str, context: Mapping[str, str]) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1], context), text)

    def _value(self, expression: str, context: Mapping[str, str]) -> str:
        assert _VALUE.fullmatch(expression), expression
        return self.token if expression == "github.token" else context.get(expression, "")

    def _holds(self, condition: str, context: Mapping[str, str]) -> bool:
        if not condition:
            return True
        inner = _EXPRESSION.fullmatch(condition)
        found = _CONDITION.fullmatch(inner[1] if inner else condition)
        assert found, condition
        return self._value(found[1], context) != ""
