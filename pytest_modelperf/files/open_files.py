"""A check that this process may open enough files.

With too few, any import could be the first thing to fail.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pytest_modelperf.errors import UsageError

# A run has about twenty open at once: streams, pipes of a worker, the model, a report.
_FEWEST = 32


def require_open_files() -> None:
    """Raise UsageError if this process may not open as many files as a run needs."""
    try:
        resource: Any = import_module("resource")
    except ImportError:
        # Windows has no such limit.
        return
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # -1 means no limit.
    if 0 <= allowed < _FEWEST:
        raise UsageError(
            f"this process may open {allowed} files, and needs {_FEWEST}: allow more with "
            "ulimit -n 1024."
        )
