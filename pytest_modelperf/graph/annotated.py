"""A copy of a model whose nodes carry notes, which Netron and other viewers show."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from pytest_modelperf.files.output import Target
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.repeated import remove_named
from pytest_modelperf.graph.stored_tensors import with_bodies
from pytest_modelperf.graph.stream import restored_chunks, write_chunks


def write_annotated(
    file: ModelFile, notes: Mapping[str, Mapping[str, str]], target: Target
) -> None:
    """Write the model with notes for its nodes, by their first output or else their name.

    Weights in the file are copied; those in other files stay there, under the same names.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(file.proto)
    for node in with_bodies(proto.graph.node):
        first = next((name for name in node.output if name), str(node.name))
        own = notes.get(first, {})
        remove_named(node.metadata_props, own, by="key")
        for key, value in own.items():
            node.metadata_props.add(key=key, value=value)
    write_chunks(file, target, restored_chunks(proto, file, "with its notes"))
