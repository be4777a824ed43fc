"""Models that are run under a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests.support.small_models import ones, parse

CPU = ["CPUExecutionProvider"]
FEED = {"x": np.ones((2, 8), np.float32)}


def write_model(path: Path) -> Path:
    """Two operators that stay two: 2x8x4 = 64 MACs at a batch of 2."""
    model = parse(
        "g (float[N,8] x) => (float[N,4] y) { [product] h = MatMul(x, w) [sine] y = Sin(h) }",
        weights={"w": ones(8, 4)},
    )
    path.write_bytes(model.SerializeToString())
    return path


def options(**changed: Any) -> ort.SessionOptions:  # noqa: ANN401  # of any type
    made = ort.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 3
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def open_plain(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(str(path), options(), providers=CPU)
