"""The pytest plugin: its options, and the fixtures that it offers.

It loads in every pytest run of every user, so it imports nothing that a run without
`--modelperf` does not need.
"""

from __future__ import annotations

import pytest

from pytest_modelperf.fixtures import modelperf

__all__ = ["modelperf"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelperf", "performance of ONNX models")
    group.addoption(
        "--modelperf",
        action="store_true",
        default=False,
        help="run the tests that profile models; without it they are skipped",
    )
