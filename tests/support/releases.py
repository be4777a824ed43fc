"""Environments with real releases of ONNX Runtime, from the package index.

They lie in one folder for all runs of the tests, so each is downloaded once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_modelperf.environments.records import Environment
from pytest_modelperf.environments.store import make_environment
from pytest_modelperf.errors import EnvironmentMakingError
from pytest_modelperf.files.store import FOLDER_VARIABLE

# Neighbours among the final releases. None has wheels for all Pythons that are supported.
RELEASES = (
    ("1.24.3", "1.24.4", "1.25.0")
    if sys.version_info >= (3, 14)
    else ("1.20.0", "1.20.1", "1.21.0")
)
SHARED = Path(tempfile.gettempdir()) / f"modelperf-test-environments-{os.getuid()}"
# Messages of an installer if the index cannot be reached, answers too late or not to the end.
_OFFLINE = (
    "Retrying",
    "Failed to fetch",
    "error sending request",
    "Max retries exceeded",
    "Download failed after",
    "timed out",
    "network timeout",
)


def release(version: str) -> Environment:
    """Return the environment with it; skip the test if it cannot be downloaded."""
    try:
        return make_environment([f"onnxruntime=={version}"], folder=SHARED / "environments")
    except EnvironmentMakingError as error:
        if any(sign in str(error) for sign in _OFFLINE):
            pytest.skip("the package index cannot be reached")
        raise


def use_releases(monkeypatch: pytest.MonkeyPatch, *versions: str) -> None:
    """Have commands find the environments with these."""
    for version in versions:
        release(version)
    monkeypatch.setenv(FOLDER_VARIABLE, str(SHARED))
