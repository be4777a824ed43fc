"""Plans for tests: ONNX text, with weights in a file next to it of which only facts are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx

from pytest_modelperf.graph.plans.plan import EnginePlan, WeightFacts
from tests.support.graph_models import parse

Weights = Mapping[str, npt.NDArray[np.generic]]


def make_plan(
    graph: str, weights: Weights | None = None, facts: Mapping[str, WeightFacts] | None = None
) -> EnginePlan:
    """The plan of a graph; the weights of which there are facts are in a file next to it."""
    model = parse(graph, weights)
    return plan_of(model, facts)


def plan_of(model: onnx.ModelProto, facts: Mapping[str, WeightFacts] | None = None) -> EnginePlan:
    known = facts or {}
    offsets = {name: 4096 * number for number, name in enumerate(known)}
    for tensor in model.graph.initializer:
        if tensor.name in offsets:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="plan.weights")
            tensor.external_data.add(key="offset", value=str(offsets[tensor.name]))
    inputs = {
        str(value.name): str([dim.dim_value for dim in value.type.tensor_type.shape.dim])
        for value in model.graph.input
    }
    facts_by_offset = {offset: known[name] for name, offset in offsets.items()}
    return EnginePlan(model.SerializeToString(), inputs, facts_by_offset)
