"""The results of the benchmark of workloads from its comparisons, and that its models run."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import onnxruntime as ort
import pytest
from results import Result
from workloads import (
    LOADS,
    SLOWER,
    UNCHANGED,
    Check,
    Load,
    expectations,
    make_input,
    make_model,
    next_width,
    tables,
)

from tests.support.benchmark_results import result_of

SAME = Check(UNCHANGED, "encoder, 8x1", 0, 1.0, "passed", (), "size=8", 1.0, 4, 2.0)
FOUND = replace(SAME, kind=SLOWER, truth=1.1, verdict="regressed", worse=("size=8",), ratio=1.1)


def result(*checks: Check) -> Result:
    return result_of("workloads", {"checks": [asdict(check) for check in checks]})


def outcomes(*checks: Check) -> list[bool | None]:
    return [each.is_met for each in expectations(result(*checks))]


def test_right_answers_meet_the_expectations() -> None:
    assert outcomes(SAME, FOUND) == [True, True, True]
    assert (
        "| encoder, 8x1 | 0 of 1 | 1 of 1 | 1 of 1 | 2.0 s |"
        in tables(result(SAME, FOUND))["workloads"]
    )


def test_alarms_and_members_that_are_not_named_are_missed() -> None:
    alarm = replace(SAME, verdict="regressed", worse=("size=4",))
    assert outcomes(alarm, replace(FOUND, worse=())) == [False, False, True]
    assert outcomes(SAME, replace(FOUND, worse=("size=8", "size=4"))) == [True, True, False]


def test_a_member_of_another_slowdown_counts_for_nothing() -> None:
    assert outcomes(SAME, replace(FOUND, truth=1.02, worse=()))[1] is None


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_the_models_run_on_all_sizes(load: Load) -> None:
    session = ort.InferenceSession(make_model(load, seed=0, width=8).SerializeToString())
    for size in load.sizes:
        given = make_input(load.model, size)
        (output,) = session.run(None, {"x": given})
        assert output.shape == given.shape
        assert np.isfinite(output).all()


def test_a_product_that_takes_too_little_becomes_wider() -> None:
    assert next_width(64, 1.05) == 128
    assert next_width(64, 1.2) == 32
    assert next_width(64, 0.99) > 64
