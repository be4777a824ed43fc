"""Facts of the ONNX Runtime that is installed: Python 3.10 has none after 1.23."""

from __future__ import annotations

import onnxruntime
import pytest

INSTALLED = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
IS_OF_PYTHON_3_10 = INSTALLED <= (1, 23)
NO_CONV_INTEGER = "has no kernel for the ConvInteger that its own quantizer writes"


def unless_1_23(does: str) -> pytest.MarkDecorator:
    """Leave a test out if the runtime is the last one for Python 3.10, which does this."""
    return pytest.mark.skipif(IS_OF_PYTHON_3_10, reason=f"ONNX Runtime 1.23 {does}")
