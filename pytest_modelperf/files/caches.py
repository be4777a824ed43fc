"""The folder for caches of this user."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# The variable that names another folder.
FOLDER_VARIABLE = "MODELPERF_CACHE_DIR"
_XDG_VARIABLE = "XDG_CACHE_HOME"
_WINDOWS_VARIABLE = "LOCALAPPDATA"


def user_cache_folder(
    environment: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Path:
    """The folder that holds all our caches."""
    own = environment.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    named = environment.get(_XDG_VARIABLE, "")
    # Its specification says to ignore a relative path.
    if named and Path(named).is_absolute():
        folder = Path(named)
    elif system == "darwin":
        folder = Path.home() / "Library" / "Caches"
    elif system == "win32" and environment.get(_WINDOWS_VARIABLE):
        folder = Path(environment[_WINDOWS_VARIABLE])
    else:
        folder = Path.home() / ".cache"
    return folder / "modelperf"
