"""A program without this package opens the session that was measured."""

from __future__ import annotations

import onnxruntime as ort
import pytest

from pytest_modelperf.profiler.engines.session_facts import session_attributes


def test_every_option_has_the_value_that_the_engine_gives_it() -> None:
    session = session_attributes(
        {
            "provider": "cpu",
            "provider.device_id": "1",
            "session.force_spinning_stop": "1",
            "graph_optimization_level": "extended",
            "execution_mode": "parallel",
            "enable_mem_pattern": "false",
            "logid": "mine",
        }
    )
    options = ort.SessionOptions()
    for name, value in session.options.items():
        setattr(options, name, type(getattr(options, name))(value))
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert options.enable_mem_pattern is False
    assert (options.logid, options.inter_op_num_threads) == ("mine", 1)
    assert session.config == {"session.force_spinning_stop": "1"}


@pytest.mark.parametrize(
    ("level", "member"),
    [
        ("none", "ORT_DISABLE_ALL"),
        ("basic", "ORT_ENABLE_BASIC"),
        ("layout", "ORT_ENABLE_LAYOUT"),
        ("all", "ORT_ENABLE_ALL"),
    ],
)
def test_levels_are_those_of_the_runtime(level: str, member: str) -> None:
    known = ort.GraphOptimizationLevel
    if not hasattr(known, member):
        pytest.skip(f"this runtime has no {member}")
    value = session_attributes({"graph_optimization_level": level}).options[
        "graph_optimization_level"
    ]
    assert known(value) == getattr(known, member)
