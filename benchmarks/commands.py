"""Commands of this package as a user types them, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_modelperf.systems.trees import TREES

ROOT = Path(__file__).resolve().parent.parent
_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A process: its exit code, its seconds, what it printed, and its JSON document, if any."""

    code: int
    seconds: float
    output: str
    document: Any = None

    @property
    def cases(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.document["cases"] if self.document else ()
        return found

    @property
    def p50(self) -> Mapping[str, Any]:
        """The median latency of its first case, if it was judged."""
        metrics = self.cases[0].get("metrics", ()) if self.cases else ()
        return next((each for each in metrics if each["name"] == "latency_p50"), {})

    def case(self) -> Mapping[str, Any]:
        """Its only case."""
        if self.document is None:
            raise RuntimeError(self.output)
        (case,) = self.cases
        return case


def run_modelperf(verb: str, *models: Path, options: Sequence[str] = ()) -> Ran:
    """Run a command on models, with its JSON."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.json")
        given = ["-m", "pytest_modelperf", verb, *map(str, models), *options]
        command = [sys.executable, *given, f"--json={report}"]
        return run_process(command, Path(place), report, with_sources())


def run_pytest(project: Path, *options: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run `pytest --modelperf` in a project, with no plugin but ours."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.json")
        given = ["-m", "pytest", "-p", "pytest_modelperf.plugin", "-p", "no:cacheprovider", "-q"]
        command = [sys.executable, *given, "--modelperf", f"--modelperf-json={report}", *options]
        own = {**with_sources(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **(environment or {})}
        return run_process(command, project, report, own)


def write_settings(project: Path, models: Mapping[str, Mapping[str, object]]) -> None:
    """Write a project with a table for each file or pattern; numbers and lists are as in JSON."""
    lines = []
    for name, own in models.items():
        lines.append(f'[tool.modelperf.models."{name}"]')
        lines += [f"{setting} = {value}" for setting, value in own.items()]
    (project / "pyproject.toml").write_text("\n".join(lines), "utf-8")


def with_sources(*more: str) -> dict[str, str]:
    """Return the environment of a process that imports this package from its sources."""
    paths = (str(ROOT), *more, *filter(None, [os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": os.pathsep.join(paths)}


def run_process(
    command: Sequence[str],
    folder: Path,
    report: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit_s: float = _LIMIT_S,
) -> Ran:
    """Run a process in a folder. It leads a group, so a late one is killed with its children."""
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **TREES.popen_options(),
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        TREES.tree_of(process.pid).kill()
        output, _ = process.communicate()
        output += f"\nended after {limit_s:g} s"
    seconds = time.monotonic() - begun
    document = None
    if report is not None and report.exists():
        document = json.loads(report.read_text("utf-8"))
    return Ran(process.returncode, round(seconds, 2), output, document)
