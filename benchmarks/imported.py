"""A plugin of pytest that notes which modules a run imports, or imports those that one noted.

A run that only collects then has the same imports as one that checks. The variable names the file
of the names, which is written if it does not exist.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

VARIABLE = "IMPORTED_MODULES"


def pytest_collection_finish() -> None:
    file = _file()
    if file.exists():
        for name in file.read_text("utf-8").splitlines():
            # Some modules are only made by another one.
            with suppress(ImportError):
                importlib.import_module(name)


def pytest_unconfigure() -> None:
    file = _file()
    if not file.exists():
        file.write_text("\n".join(sys.modules), "utf-8")


def _file() -> Path:
    return Path(os.environ[VARIABLE])
