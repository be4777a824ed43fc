"""Installs the release of pytest-modelperf that belongs to this version of the action."""

from __future__ import annotations

import re
from pathlib import Path

from workflow import StepError, read_input, read_switch, read_words, run_python, run_step

ROOT = Path(__file__).parents[1]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def read_version(root: Path = ROOT) -> str:
    """The version of the files beside the action.

    A tag, a branch and a commit all lead to these files, so nothing depends on how it was named.
    """
    path = root / "pytest_modelperf" / "text" / "version.py"
    found = _VERSION.search(path.read_text("utf-8"))
    if found is None:
        raise StepError(f"{path} does not say which version this is")
    return found[1]


def pip_arguments() -> list[str]:
    """The arguments of Python that install the package and what else the user names."""
    package = read_input("package")
    if not package:
        extra = "[report]" if read_switch("page") else ""
        package = f"pytest-modelperf{extra}=={read_version()}"
    options = ("-m", "pip", "--disable-pip-version-check", "install")
    return [*options, package, *read_words("packages")]


def install() -> int:
    code = run_python(*pip_arguments())
    if code:
        raise StepError(
            "pip could not install pytest-modelperf: its messages are above. Name the action by a "
            "tag, as in @v1: a branch may have a version that was not released."
        )
    return 0


if __name__ == "__main__":
    run_step(install)
