"""ONNX Runtime's own quantizer, which reads a file and writes a file of 8-bit integers.

Its source is sent to a worker, like an engine's, because calibration runs the model.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import onnx
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]

_Form: TypeAlias = Literal["dynamic", "static"]

# According to the documentation of `quantize_static`, ARM processors have fast kernels for signed
# activations, and others for unsigned ones.
_ARM = ("arm", "aarch64")
_PREPARED = "prepared.onnx"
# A log level of the runtime. Its warnings would hide the last output of a crash.
_ERROR = 3


class CalibrationFeeds(CalibrationDataReader):  # type: ignore[misc]  # the runtime has no types
    """The inputs of the calibration inferences, one after the other."""

    def __init__(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._feeds, None)
        return None if feed is None else dict(feed)


def quantize_file(  # noqa: PLR0913  # what, into what, how, by which inputs, and where
    source: str,
    target: str,
    form: _Form,
    feeds: Sequence[Mapping[str, Array]],
    folder: str,
    *,
    is_large: bool,
) -> tuple[str, ...]:
    """Write the quantized model, and return the notes on it.

    The weights of a large model are in another file next to it. The files in `folder` are removed
    with the worker.
    """
    ort.set_default_logger_severity(_ERROR)
    prepared, notes = _prepare(Path(source), Path(folder), is_large=is_large)
    common: dict[str, Any] = {"weight_type": QuantType.QInt8, "use_external_data_format": is_large}
    if form == "dynamic":
        quantize_dynamic(prepared, Path(target), **common)
    else:
        is_arm = platform.machine().lower().startswith(_ARM)
        quantize_static(
            prepared,
            Path(target),
            CalibrationFeeds(feeds),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8 if is_arm else QuantType.QUInt8,
            **common,
        )
    return notes


def _prepare(source: Path, folder: Path, *, is_large: bool) -> tuple[Path, tuple[str, ...]]:
    """Fold the model's constants, raise its opset if needed, and infer its shapes if possible."""
    prepared = folder / _PREPARED
    try:
        quant_pre_process(
            str(source),
            str(prepared),
            # These would need sympy as a dependency.
            skip_symbolic_shape=True,
            save_as_external_data=is_large,
            all_tensors_to_one_file=is_large,
            external_data_location=f"{_PREPARED}.data" if is_large else None,
        )
    except Exception as error:  # noqa: BLE001  # the quantizer raises anything
        reason = str(error).strip().partition("\n")[0]
        if not is_large:
            # A failed preparation leaves a file next to the model.
            source = Path(shutil.copyfile(source, folder / "source.onnx"))
        return source, (f"not prepared for quantization: {type(error).__name__}: {reason}",)
    _forget_types_of_weights(prepared)
    return prepared, ()


def _forget_types_of_weights(path: Path) -> None:
    """Remove the entries of a model that repeat the types of its weights.

    A weight that nodes compute keeps such an entry when these nodes are folded. The quantizer
    transposes the weight of a Gemm, but not the shape in the entry.
    """
    model = onnx.load(path, load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [each for each in model.graph.value_info if each.name not in weights]
    if len(kept) < len(model.graph.value_info):
        del model.graph.value_info[:]
        model.graph.value_info.extend(kept)
        onnx.save(model, path)
