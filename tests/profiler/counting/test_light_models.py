"""Real models: their figures to the digit, additive over the batch, the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from tests.support.light_models import LIGHT_MODELS, Expected, light_model

MODELS = pytest.mark.parametrize("name", LIGHT_MODELS)


def static_profile(name: str, batch_size: int | None = None) -> StaticProfile:
    request = ProfileRequest(batch_sizes=(batch_size,))
    return profile_model(light_model(name), request).cases[0].static


@pytest.mark.parametrize(("name", "expected"), LIGHT_MODELS.items())
def test_macs_and_params_are_those_of_the_literature(name: str, expected: Expected) -> None:
    profile = static_profile(name)
    assert Expected(profile.macs, profile.params) == expected
    assert profile.coverage == 1.0
    assert profile.uncounted == ()


@MODELS
def test_costs_grow_with_the_batch_and_weights_do_not(name: str) -> None:
    one, three = static_profile(name, 1), static_profile(name, 3)
    assert three.macs == 3 * one.macs
    two = static_profile(name, 2)
    # Not 3 times: a BatchNormalization folds its statistics once, whatever the batch.
    assert three.elementwise_ops - two.elementwise_ops == two.elementwise_ops - one.elementwise_ops
    assert three.backward_macs == 3 * one.backward_macs
    assert three.activation_bytes == 3 * one.activation_bytes
    assert three.peak_activation_bytes == 3 * (one.peak_activation_bytes or 0)
    assert (three.params, three.weight_bytes) == (one.params, one.weight_bytes)


@MODELS
def test_totals_are_the_sums_of_the_rows(name: str) -> None:
    profile = static_profile(name)
    assert profile.macs == sum(kind.macs or 0 for kind in profile.layer_types.values())
    assert len(profile.layers) == sum(kind.count for kind in profile.layer_types.values())
    # No weight of these models has two users.
    assert profile.params == sum(layer.params for layer in profile.layers)
    assert profile.weight_bytes == 4 * profile.params


@MODELS
def test_training_leaves_out_the_gradient_of_the_first_layers_input(name: str) -> None:
    profile = static_profile(name)
    first = next(layer for layer in profile.layers if layer.macs)
    assert first.backward_macs == first.macs
    assert profile.backward_macs == 2 * profile.macs - (first.macs or 0)


def test_rows_are_in_graph_order_in_every_process() -> None:
    script = (
        "import sys, json; from pytest_modelperf.profiler.request import profile_model\n"
        "static = profile_model(sys.argv[1]).cases[0].static\n"
        "print(json.dumps([layer.id for layer in static.layers]))"
    )
    orders = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", script, str(light_model("shufflenet"))],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert orders[0] == orders[1]
    assert orders[0] == [layer.id for layer in static_profile("shufflenet").layers]
    assert orders[0][0] == "r0"
    assert orders[0][-1] == "gpu_0/softmax_1"
