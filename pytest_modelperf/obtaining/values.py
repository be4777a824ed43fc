"""The file of a model that Python code returned: a path, bytes, or a model of onnx or onnx-ir."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_modelperf.errors import ModelError, UsageError

# The type that `torch.onnx.export` returns, which has a model of onnx-ir in an attribute.
_PROGRAM = "ONNXProgram"
_IR = "onnx_ir"
_TAKES = "the path of a model, its bytes, an onnx.ModelProto, or a model of onnx-ir"


def file_of(value: object, what: str, folder: Path, name: str) -> Path:
    """Return the file of a model. A model that is not a file is written into the folder.

    `what` is the source of the value, for messages. Raises UsageError if the value is not a model.
    """
    if isinstance(value, str | os.PathLike):
        path = Path(value)
        if not path.is_file():
            raise UsageError(f"{what} returned the path {path}, and there is no such file.")
        return path
    target = folder / f"{name}.onnx"
    value = getattr(value, "model", value) if type(value).__name__ == _PROGRAM else value
    if _is_of_ir(value):
        folder.mkdir(parents=True, exist_ok=True)
        # Tensors in other files are written too.
        import_module(_IR).save(value, target, external_data=f"{name}.onnx.data")
        return target
    content = _content_of(value, what)
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def _is_of_ir(value: object) -> bool:
    is_model = type(value).__name__ == "Model" and hasattr(value, "graph")
    return is_model and type(value).__module__.partition(".")[0] == _IR


def _content_of(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    serialize: Any = getattr(value, "SerializeToString", None)
    if serialize is None:
        raise UsageError(
            f"{what} returned {_article(type(value).__name__)}; expected {_TAKES}. Have it "
            "export the model and return that."
        )
    try:
        return bytes(serialize())
    except Exception as error:
        # Each implementation of protobuf raises another class of error.
        raise ModelError(
            f"{what} returned a model that could not be serialized: {error}. If it has more than "
            "2 GB, save it with its weights in a file of their own, and return the path."
        ) from error


def _article(name: str) -> str:
    return "nothing" if name == "NoneType" else f"a value of the type {name}"
