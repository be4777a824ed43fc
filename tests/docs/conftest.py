"""What the examples and commands of the docs load is loaded before any of them runs here.

Pytester forgets the modules that a test brought in, and numpy and its like cannot be loaded twice
in a process: the tests after it, of this folder or of another one, would find them broken.
"""

from __future__ import annotations

import onnxruntime  # noqa: F401  # as said above

import pytest_modelperf.testing.checking  # noqa: F401  # as said above
from pytest_modelperf.stats.robust import load_quantiles

load_quantiles()
