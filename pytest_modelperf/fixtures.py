"""The `modelperf` fixture: profiles of models, for plain assertions, and checks within a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.programs.station.current import station_of
from pytest_modelperf.testing.current_run import run_of
from pytest_modelperf.testing.startup import SWITCHED_OFF

if TYPE_CHECKING:
    from pytest_modelperf.programs.station.served import ServedTest
    from pytest_modelperf.spec.sized_case import SizedCase
    from pytest_modelperf.testing.fixture import ModelPerf


@pytest.fixture(scope="session")
def modelperf(request: pytest.FixtureRequest) -> ModelPerf | ServedTest:
    """Profile an ONNX model: `modelperf("model.onnx", batch_size=8).static.macs`."""
    served = station_of(request.config)
    if served is not None:
        return served
    run = run_of(request.config)
    if run is None:
        pytest.skip(SWITCHED_OFF)
    # Imported here, so that a run without --modelperf does not spend time on it.
    from pytest_modelperf.testing.fixture import ModelPerf

    return ModelPerf(run)


@pytest.fixture
def _modelperf_case(request: pytest.FixtureRequest) -> SizedCase:
    """Return the case that the markers of a test define."""
    case: SizedCase = request.param
    return case
