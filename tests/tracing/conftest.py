"""What tests of recordings start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traced_models import write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "small.onnx")
