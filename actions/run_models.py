"""Runs pytest with the inputs of the action, and writes the outputs from its report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from workflow import (
    StepError,
    read_event,
    read_input,
    read_switch,
    read_words,
    require,
    run_python,
    run_step,
    say,
    write_outputs,
)

# Only these add points to a history: runs of pull requests would stand between those of the branch.
_WRITING_EVENTS = frozenset({"push", "schedule", "workflow_dispatch"})
# The exit codes of pytest after which there can be a report.
_REPORTING_CODES = frozenset({0, 1})
_NO_CASE = "no case"


def pytest_arguments(folder: Path, history: str, *, is_written: bool) -> list[str]:
    """The arguments of Python for the run; the user's come last, so that they win.

    A history that is not written is set as a file would set it, because a run that compares with
    another revision refuses the option.
    """
    files: dict[str, Path | str] = {**report_files(folder)}
    if read_switch("page"):
        files["html"] = folder / "page" / "modelperf.html"
    if is_written:
        files["history"] = history
    ours = {f"--modelperf-{kind}": path for kind, path in files.items()}
    typed = read_words("arguments")
    for option in (word.partition("=")[0] for word in typed):
        if option in ours:
            raise StepError(
                f"the input arguments has {option}, and the action gives this option itself, to "
                "upload the file: leave it out. The outputs say where the reports are."
            )
    switches = ["--modelperf-strict"] if read_switch("strict") else []
    written = [f"{option}={path}" for option, path in ours.items()]
    read = ["-o", f"modelperf_history={history}"] if history and not is_written else []
    return ["-m", "pytest", "--modelperf", *written, *read, *switches, *typed]


def report_files(folder: Path) -> dict[str, Path]:
    """The reports for the comment, by the option of pytest that writes each."""
    return {
        "json": folder / "report" / "modelperf.json",
        "markdown": folder / "report" / "modelperf.md",
    }


def writes_history(event: Mapping[str, Any]) -> bool:
    """Whether this is a run of the default branch, and no pull request."""
    default = event.get("repository", {}).get("default_branch")
    is_default = os.environ.get("GITHUB_REF") == f"refs/heads/{default}"
    return is_default and os.environ.get("GITHUB_EVENT_NAME") in _WRITING_EVENTS


def read_outputs(folder: Path) -> dict[str, str]:
    """The outputs from the report of the run; empty if it wrote none."""
    files = report_files(folder)
    outputs = dict.fromkeys(("verdict", "regressed", "inconclusive", "report", "page"), "")
    if not files["json"].exists():
        return outputs
    run = json.loads(files["json"].read_text("utf-8"))
    counts = run["counts"]
    page = folder / "page" / "modelperf.html"
    return {
        "verdict": run["verdict"] or ("failed" if counts["failed"] else _NO_CASE),
        "regressed": str(counts["regressed"] + counts["over budget"]),
        "inconclusive": str(counts["inconclusive"]),
        "report": str(files["json"].parent),
        "page": str(page) if page.exists() else "",
    }


def run_models() -> int:
    event = read_event()
    folder = Path(mkdtemp(prefix="modelperf-", dir=require("RUNNER_TEMP")))
    for name in ("report", "page"):
        (folder / name).mkdir()
    history = read_input("history")
    is_written = bool(history) and writes_history(event)
    if history and not is_written:
        say("notice", "the history is written by runs of the default branch, not by this one")
    number = event.get("pull_request", {}).get("number")
    if number is not None:
        (folder / "report" / "pull-request.json").write_text(json.dumps({"number": number}))
    code = run_python(*pytest_arguments(folder, history, is_written=is_written))
    outputs = read_outputs(folder)
    if code in _REPORTING_CODES and not outputs["report"]:
        raise StepError(
            "the run wrote no report: pytest ran without the plugin, or ran no test. Look in its "
            "settings and in the input arguments for `-p no:modelperf` and for options such as "
            "`--collect-only`."
        )
    has_history = is_written and Path(history).exists()
    write_outputs({**outputs, "history": history if has_history else ""})
    return code


if __name__ == "__main__":
    run_step(run_models)
