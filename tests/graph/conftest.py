"""The models that the onnx package ships: real graphs whose weights are made by nodes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest


@pytest.fixture(scope="session")
def light_models() -> dict[str, str]:
    """Paths by name: resnet50, squeezenet and seven others."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {p.stem.removeprefix("light_"): str(p) for p in sorted(folder.glob("*.onnx"))}
