"""Quantize a model to 8-bit integers with ONNX Runtime's own quantizer.

`dynamic` finds the range of activations again in each inference. `static` finds it once, in a
calibration: inferences on given inputs. The accuracy of the result depends on these inputs, but its
speed does not.

The quantizer runs in a worker, under this interpreter. Calibrating runs the model, so a crash ends
only this variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pytest_modelperf.errors import MeasureError, ModelError, ModelPerfError
from pytest_modelperf.profiler.engines.source import ModuleSource, find_source
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.machine.describe import cores_available
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import start_worker
from pytest_modelperf.profiler.worker.client import DEFAULT_LIMIT_S, Worker
from pytest_modelperf.profiler.worker.gateway import LEAST_START_LIMIT_S
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.whatif.pruned import ProductCounts, read_products

QuantizationForm: TypeAlias = Literal["dynamic", "static"]
# Writes a model in 8-bit integers and returns notes on it, as `quantize` does.
Quantizer: TypeAlias = Callable[
    [Path, Path, QuantizationForm, Iterable[Mapping[str, Feed]], float], tuple[str, ...]
]
StartWorker: TypeAlias = Callable[[Setup, int], AbstractContextManager[Worker]]

# Its source is sent to the worker.
QUANTIZER = "pytest_modelperf.profiler.engines.onnxruntime_quantizer"


def quantize(  # noqa: PLR0913  # what to quantize and how, and by which code in which worker
    source: Path,
    target: Path,
    form: QuantizationForm,
    feeds: Iterable[Mapping[str, Feed]],
    limit_s: float = DEFAULT_LIMIT_S,
    *,
    code: ModuleSource | None = None,
    start: StartWorker = start_worker,
) -> tuple[str, ...]:
    """Write the quantized model to `target`, and return notes on it.

    The weights of `source` have to be stored (see `whatif.pruned.write_stored`). If the model is
    large or has external data, the weights of the result are in a separate file. `feeds` are the
    inputs of each calibrating inference. `limit_s` limits native code, such as one of these
    inferences. Python code has no limit: the quantizer needs minutes for a graph of many nodes.
    `code` is sent to the worker that `start` makes, by default that for ONNX Runtime's quantizer.
    """
    before = read_products(source)
    if not before.of_floats:
        why = "the model has no convolution and no matrix product."
        if before.of_integers:
            why = f"the {before.of_integers} products of the model multiply integers already."
        raise ModelError(f"{form} INT8: nothing is left to quantize, {why}")
    paths = {"source": str(source.absolute()), "target": str(target.absolute())}
    asked = {**paths, "form": form, "is_large": before.is_large}
    code = code or find_source(QUANTIZER)
    with _removed_on_failure(target, target.with_name(f"{target.name}.data")):
        try:
            with start(Setup(limit_s=limit_s), cores_available().cores or 1) as worker:
                notes = _run(worker, code, limit_s, asked, feeds if form == "static" else ())
        except MeasureError as error:
            raise MeasureError(f"{form} INT8: {error.message}", error.remedy) from error
        after = read_products(target)
        if after.of_integers <= before.of_integers:
            raise ModelError(
                f"{form} INT8: ONNX Runtime's quantizer leaves all products of the model in "
                f"floats: {_listed(after.of_floats)}."
            )
    return (*map(printable, notes), *_notes(before, after))


@contextmanager
def _removed_on_failure(*paths: Path) -> Iterator[None]:
    _remove(*paths)
    try:
        yield
    except ModelPerfError:
        _remove(*paths)
        raise


def _run(
    worker: Worker,
    code: ModuleSource,
    limit_s: float,
    asked: Mapping[str, Any],
    feeds: Iterable[Mapping[str, Feed]],
) -> Sequence[str]:
    answer: Mapping[str, Any] = worker.ask(
        "quantizer",
        "as ONNX Runtime's quantizer was loaded",
        max(limit_s, LEAST_START_LIMIT_S),
        source=code.text,
        file=code.file,
    )
    if "raised" not in answer:
        answer = worker.ask(
            "quantize",
            "in ONNX Runtime's quantizer",
            **asked,
            feeds=_send(worker, feeds),
            folder=str(worker.folder),
        )
    if "raised" in answer:
        raise MeasureError(f"ONNX Runtime's quantizer failed: {_described(answer['raised'])}.")
    notes: Sequence[str] = answer["notes"]
    return notes


def _send(worker: Worker, feeds: Iterable[Mapping[str, Feed]]) -> list[str]:
    """Send the inputs of each inference under the returned names, constant ones once."""
    names: list[str] = []
    first: Mapping[str, Feed] = {}
    for feed in feeds:
        own = {name: each for name, each in feed.items() if each is not first.get(name)}
        first = first or feed
        names.append(str(len(names)))
        worker.ask(
            "inputs",
            "as the inputs were sent",
            inputs={name: each.to_wire() for name, each in own.items()},
            feed=names[-1],
        )
    return names


def _notes(before: ProductCounts, after: ProductCounts) -> Iterator[str]:
    if before.of_integers:
        yield f"{before.of_integers} products were of integers before"
    if after.of_floats:
        left = sum(after.of_floats.values())
        total = after.of_integers + left
        yield f"{left} of {total} products stay in floats: {_listed(after.of_floats)}"
    if after.opset != before.opset:
        yield f"converted from opset {before.opset} to {after.opset}, which the quantizer needs"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {printable(op)}" for op, count in counts.items())


def _described(raised: Mapping[str, Any]) -> str:
    lines = (line.strip() for line in str(raised["message"]).splitlines())
    first = next(filter(None, lines), "")
    text = f"{raised['type']}: {first}" if first else str(raised["type"])
    return printable(text).rstrip(".")


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
