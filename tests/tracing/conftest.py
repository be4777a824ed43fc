"""Shared by the tests of recordings: models and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traced_models import write_model
from tests.tracing.pythons import Python, hooked


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "small.onnx")


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    return Python(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def hooked_python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    return hooked(tmp_path_factory.mktemp("hooked"))
