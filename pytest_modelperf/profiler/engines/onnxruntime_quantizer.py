"""ONNX Runtime's own quantizer: a file in, a file of 8-bit integers out, and nothing beside it."""

from __future__ import annotations

import contextlib
import io
import logging
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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

Form: TypeAlias = Literal["dynamic", "static"]

# Of a processor of ARM the kernels for signed activations are the fast ones, of others those for
# unsigned ones: so says the documentation of `quantize_static`.
_ARM = ("arm", "aarch64")
_PREPARED = "prepared.onnx"
# Levels of the runtime's log. It does not tell which it has; the second is what it starts with.
_FATAL, _WARNING = 4, 2


class CalibrationFeeds(CalibrationDataReader):  # type: ignore[misc]  # the runtime has no types
    """The inputs that ranges of activations are taken from, one inference after the other."""

    def __init__(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._feeds, None)
        return None if feed is None else dict(feed)


def quantize_file(
    source: Path,
    target: Path,
    form: Form,
    feeds: Sequence[Mapping[str, Array]],
    *,
    is_large: bool,
) -> tuple[str, ...]:
    """Write the quantized model; what is to be told of it.

    Of a large model the weights lie in another file beside it.
    """
    with _quiet(), tempfile.TemporaryDirectory(prefix="int8-", dir=target.parent) as name:
        folder = Path(name)
        prepared, notes = _prepare(source, folder, is_large=is_large)
        common: dict[str, Any] = {
            "weight_type": QuantType.QInt8,
            "use_external_data_format": is_large,
        }
        if form == "dynamic":
            quantize_dynamic(prepared, target, **common)
        else:
            is_arm = platform.machine().lower().startswith(_ARM)
            quantize_static(
                prepared,
                target,
                CalibrationFeeds(feeds),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8 if is_arm else QuantType.QUInt8,
                **common,
            )
    return notes


def _prepare(source: Path, folder: Path, *, is_large: bool) -> tuple[Path, tuple[str, ...]]:
    """The model with its constants folded, its opset high enough and its shapes inferred.

    Symbolic shapes would need sympy, which nothing else does. Where the preparation fails, the
    model is quantized as it is.
    """
    prepared = folder / _PREPARED
    try:
        quant_pre_process(
            str(source),
            str(prepared),
            skip_symbolic_shape=True,
            save_as_external_data=is_large,
            all_tensors_to_one_file=is_large,
            external_data_location=f"{_PREPARED}.data" if is_large else None,
        )
    except Exception as error:  # noqa: BLE001  # the quantizer raises anything
        reason = str(error).strip().partition("\n")[0]
        if not is_large:
            # A file is written beside what is quantized, and left there where that fails.
            source = Path(shutil.copyfile(source, folder / "source.onnx"))
        return source, (f"not prepared for quantization: {type(error).__name__}: {reason}",)
    return prepared, ()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No word of the quantizer: it prints, and warns through the root logger.

    That one is given a handler with its first warning, where it has none.
    """
    root = logging.getLogger()
    disabled, handlers = root.manager.disable, list(root.handlers)
    logging.disable(logging.CRITICAL)
    ort.set_default_logger_severity(_FATAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ort.set_default_logger_severity(_WARNING)
        logging.disable(disabled)
        root.handlers[:] = handlers
