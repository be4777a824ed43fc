"""The nine models of the onnx package narrowed by half: they are valid, run, and do less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.whatif.narrowing import write_narrowed
from tests.support.light_models import LIGHT_MODELS, light_model

pytestmark = pytest.mark.slow

# MACs of some layers at half the width, by the shape of their output and of their window.
_BY_HAND = {
    # The stem, the last 3x3, and the classifier; nothing is pinned between.
    "resnet50": {
        "r0": 32 * 112 * 112 * 3 * 49,
        "r165": 256 * 7 * 7 * 256 * 9,
        "r174": 1000 * 1024,
    },
    "vgg19": {"r0": 32 * 224 * 224 * 3 * 9, "r38": 2048 * 256 * 7 * 7, "r46": 1000 * 2048},
    "squeezenet": {"r0": 32 * 111 * 111 * 3 * 9, "r63": 1000 * 13 * 13 * 256},
    # The second layer takes the 32 channels of the stem and the 16 that the first one adds.
    "densenet121": {"r21": 16 * 56 * 56 * 64 * 9, "r29": 64 * 56 * 56 * 48, "fc6_1": 1000 * 512},
}


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_a_light_model_of_half_the_width(name: str, tmp_path: Path) -> None:
    target = tmp_path / "n.onnx"
    bound = load_model(open_model(light_model(name)))
    result = write_narrowed(bound, target, 0.5)

    onnx.checker.check_model(str(target), full_check=True)
    profile = profile_model(target).cases[0].static
    macs = {layer.id: layer.macs for layer in profile.layers}
    assert {layer: macs[layer] for layer in _BY_HAND.get(name, {})} == _BY_HAND.get(name, {})
    assert profile.macs is not None
    assert profile.macs < 0.7 * LIGHT_MODELS[name].macs
    assert 0.4 < result.channels_after / result.channels_before < 0.6
    # Every layer can be found again by its name.
    assert {n.id for n in bound.graph.nodes} == set(macs)

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(target), options)
    (given,) = session.get_inputs()
    assert tuple(given.shape) == bound.graph.inputs[0].dims
    (output,) = session.run(None, {given.name: np.ones(given.shape, np.float32)})
    assert output.shape == bound.graph.outputs[0].dims
