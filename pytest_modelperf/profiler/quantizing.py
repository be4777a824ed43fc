"""A model in 8-bit integers, made by ONNX Runtime's own quantizer.

`dynamic` takes the range of activations anew in each inference, `static` once, from inferences on
the inputs that are given: a calibration. How good the result is in its answers depends on these;
how fast it is does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_modelperf.errors import MeasureError, ModelError
from pytest_modelperf.graph.quantized import Products, read_products
from pytest_modelperf.units import printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.generic]

Form: TypeAlias = Literal["dynamic", "static"]


@dataclass(frozen=True, slots=True)
class Quantized:
    """What is to be told of a model that was quantized."""

    notes: tuple[str, ...] = ()


def quantize(
    source: Path, target: Path, form: Form, feeds: Sequence[Mapping[str, Array]]
) -> Quantized:
    """Write the quantized model to `target`; `feeds` are the inputs of each calibrating inference.

    Its weights have to be stored: see `graph.pruned.write_stored`. Of a large model, or one with
    external data, those of the result lie in a file beside it.
    """
    before = read_products(source)
    if not before.of_floats:
        raise ModelError(
            f"{form} INT8: nothing is left to quantize, "
            + (
                f"the {before.of_integers} products of the model are of integers already."
                if before.of_integers
                else "the model has no convolution and no matrix product."
            )
        )
    data = target.with_name(f"{target.name}.data")
    _remove(target, data)
    try:
        # Imported late: it loads the runtime and onnx, and in old versions may not go with new
        # ones of the latter.
        from pytest_modelperf.profiler.engines.onnxruntime_quantizer import quantize_file

        notes = quantize_file(source, target, form, feeds, is_large=before.is_large)
    except Exception as error:
        _remove(target, data)
        raise MeasureError(
            f"{form} INT8: ONNX Runtime's quantizer failed: {_described(error)}."
        ) from error
    after = read_products(target)
    if after.of_integers <= before.of_integers:
        _remove(target, data)
        raise ModelError(
            f"{form} INT8: ONNX Runtime's quantizer leaves all products of the model in floats: "
            f"{_listed(after.of_floats)}."
        )
    return Quantized((*map(printable, notes), *_notes(before, after)))


def _notes(before: Products, after: Products) -> Iterator[str]:
    if before.of_integers:
        yield f"{before.of_integers} products were of integers before"
    if after.of_floats:
        total = after.of_integers + sum(after.of_floats.values())
        left = sum(after.of_floats.values())
        yield f"{left} of {total} products stay in floats: {_listed(after.of_floats)}"
    if after.opset != before.opset:
        yield f"converted from opset {before.opset} to {after.opset}, which the quantizer needs"


def _listed(counts: Mapping[str, int]) -> str:
    """`2 MatMul, 1 LSTM`."""
    return ", ".join(f"{count} {printable(op)}" for op, count in counts.items())


def _described(error: Exception) -> str:
    """The type and the first line of what was raised."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return printable(text).rstrip(".")


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
