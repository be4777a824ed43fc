"""The hook: a `.pth` file in an environment, so that setting `MODELPERF_TRACE` traces a program.

Python runs the line of a `.pth` file that begins with `import` at every start, so the hook is
installed only at the user's request. Its line does nothing if the variable or this package is
missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from sysconfig import get_path

from msgspec import Struct

from pytest_modelperf.errors import OutputError
from pytest_modelperf.files.output import cannot_write, written_text
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__

HOOK_NAME = "pytest_modelperf_trace.pth"
_VERSION = re.compile(r"# pytest-modelperf ([^\s:]+)")
# One line, because Python runs each line of such a file on its own.
_LINE = (
    "import os; os.environ.get('MODELPERF_TRACE') and exec("
    "'try:\\n import pytest_modelperf.tracing.autostart\\nexcept ImportError:\\n pass')"
)
_CONTENT = f"""\
# pytest-modelperf {__version__}: traces programs that are started with MODELPERF_TRACE=FILE.
# To remove it: modelperf trace --hook remove
{_LINE}
"""
_ADVICE = (
    "Make a virtual environment and install pytest-modelperf there, or do without the hook: "
    "`modelperf trace -- python program.py`"
)


class HookStatus(Struct, frozen=True):
    """The path of an environment's hook, whether it is there, and the version that wrote it.

    `version` is None if the file does not name one.
    """

    path: Path
    is_installed: bool
    version: str | None = None


def own_site_folder() -> Path:
    return Path(get_path("purelib"))


def explain_no_hook(site_folder: Path) -> str | None:
    """Return what to type if the hook is missing, or None if it is installed.

    Without the hook, Python ignores the variable until a program imports pytest_modelperf.
    """
    if find_hook(site_folder).is_installed:
        return None
    return (
        "MODELPERF_TRACE alone has no effect here, because this Python does not read it until a "
        "program imports pytest_modelperf. Type `modelperf trace -- python program.py`, or once "
        "`modelperf trace --hook install`"
    )


def find_hook(site_folder: Path) -> HookStatus:
    path = site_folder / HOOK_NAME
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return HookStatus(path, is_installed=False)
    except OSError as error:
        raise OutputError(
            f"cannot read {printable(str(path))}: {error.strerror}. Look at what is there."
        ) from error
    found = _VERSION.match(content)
    return HookStatus(path, is_installed=True, version=found[1] if found else None)


def install_hook(site_folder: Path) -> HookStatus:
    """Write the hook in place of an older one.

    Raise OutputError if the folder cannot be written.
    """
    try:
        with written_text(site_folder / HOOK_NAME) as file:
            file.write(_CONTENT)
    except OutputError as error:
        raise OutputError(f"{error} {_ADVICE}") from error
    return find_hook(site_folder)


def remove_hook(site_folder: Path) -> bool:
    """Remove the hook, and return whether there was one.

    Raise OutputError if it cannot be removed.
    """
    path = site_folder / HOOK_NAME
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise OutputError(f"{cannot_write(str(path), error)} Remove it as its owner.") from error
    return True


def describe_hook(hook: HookStatus) -> str:
    path = printable(str(hook.path))
    if not hook.is_installed:
        return (
            f"not installed: there is no {path}. To install it: modelperf trace --hook install. "
            "To do without it: modelperf trace -- python program.py"
        )
    version = hook.version or "unknown"
    other = "" if hook.version == __version__ else f" (this is {__version__})"
    return f"installed: {path}, version {printable(version)}{other}"
