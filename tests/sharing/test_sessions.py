"""What the program of a shared folder cannot have."""

from __future__ import annotations

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.engines.source import BUILT_IN
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sharing.making import require_shareable


def test_other_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="runs onnxruntime, not openvino"):
        require_shareable(Setup(engine=BUILT_IN["openvino"]))


@pytest.mark.parametrize("option", ["custom_ops", "provider.cache_dir"])
def test_files_of_this_machine_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"the option {option} names something of this machine"):
        require_shareable(Setup(options={option: "/opt/secret"}))
