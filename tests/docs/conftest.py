"""The modules that the examples and commands of the docs use are loaded before any of them runs.

Pytester forgets the modules that a test brought in, and numpy and its like cannot be loaded twice
in a process: the tests after it, of this folder or of another one, would find them broken.
"""

from __future__ import annotations

import onnxruntime  # noqa: F401  # as said above

import pytest_modelperf.testing.checking  # noqa: F401  # as said above
from pytest_modelperf.stats.quantiles import load_quantiles

load_quantiles()
