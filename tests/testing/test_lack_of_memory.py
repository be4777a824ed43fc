"""Memory that runs out in a run is told in a line, without a traceback."""

from __future__ import annotations

import pytest

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.testing.pytest_internals import lack_of_memory_told

UNMAPPED = "numpy.so: failed to map segment from shared object"


@pytest.mark.parametrize("error", [MemoryError(), ImportError(UNMAPPED)], ids=repr)
def test_memory_that_ran_out_is_the_error_that_the_place_asks_for(error: Exception) -> None:
    with pytest.raises(MeasureError, match="there is not enough memory"), lack_of_memory_told():
        raise error
    with (
        pytest.raises(pytest.UsageError, match="ulimit -v") as found,
        lack_of_memory_told(lambda lack: pytest.UsageError(lack.message)),
    ):
        raise error
    assert found.value.__suppress_context__


@pytest.mark.parametrize("error", [ImportError("no module named a"), ValueError("a")], ids=repr)
def test_any_other_error_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found, lack_of_memory_told():
        raise error
    assert found.value is error
