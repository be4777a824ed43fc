"""A copy of a model that returns tensors inside of it as well, and which tensors can be watched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onnx import TensorProto, helper

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.model_file import DATA_TYPES
from pytest_modelperf.graph.runnable import as_it_runs
from pytest_modelperf.graph.stream import restored_chunks, write_chunks
from pytest_modelperf.graph.structure import Tensor
from pytest_modelperf.graph.weights.numbers import NUMPY_DTYPES


def can_be_watched(tensor: Tensor | None) -> bool:
    """Whether a run can return this tensor as an array of numpy; constants are not worth it."""
    return tensor is not None and not tensor.is_constant and tensor.dtype in NUMPY_DTYPES


def write_watched_model(bound: BoundModel, names: Iterable[str], path: Path) -> None:
    """Write the model as it has to run, with these tensors as further outputs.

    Weights in external data stay in the folder of the model.
    """
    proto = as_it_runs(bound)
    present = {output.name for output in proto.graph.output}
    for name in names:
        if name not in present:
            # Without its shape, which may be that of one case alone.
            data_type = DATA_TYPES.get(bound.tensors[name].dtype or "", TensorProto.UNDEFINED)
            proto.graph.output.append(helper.make_tensor_value_info(name, data_type, None))
    write_chunks(bound.file, path, restored_chunks(proto, bound.file, "with more outputs"))
