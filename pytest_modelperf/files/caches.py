"""The folder for this user's caches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_modelperf.errors import UsageError

# The environment variable by which a user chooses another folder.
FOLDER_VARIABLE = "MODELPERF_CACHE_DIR"
_XDG_VARIABLE = "XDG_CACHE_HOME"
_WINDOWS_VARIABLE = "LOCALAPPDATA"


def user_cache_folder(
    environment: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Path:
    """Return the folder of all caches, or raise UsageError for a user without a home folder."""
    own = environment.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    named = environment.get(_XDG_VARIABLE, "")
    # The XDG specification says to ignore a relative path.
    if named and Path(named).is_absolute():
        folder = Path(named)
    elif system == "darwin":
        folder = _home() / "Library" / "Caches"
    elif system == "win32" and environment.get(_WINDOWS_VARIABLE):
        folder = Path(environment[_WINDOWS_VARIABLE])
    else:
        folder = _home() / ".cache"
    return folder / "modelperf"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise UsageError(
            "this user has no home folder to keep caches in: set HOME, or "
            f"{FOLDER_VARIABLE}, to a folder."
        ) from error
