"""A model in ONNX Runtime's own format, read as ONNX by the runtime itself.

Such a file has the graph that the runtime optimized during the conversion. If the runtime does not
optimize this graph further, it writes the same graph as ONNX, and runs the same kernels.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from pytest_modelperf.errors import MeasureError, ModelError
from pytest_modelperf.profiler.engines.source import BUILT_IN, DEFAULT_ENGINE
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import start_worker
from pytest_modelperf.profiler.worker.gateway import Worker
from pytest_modelperf.text.escaping import printable

# The options with which the runtime runs exactly the kernels of the file.
AS_CONVERTED: Mapping[str, str] = {"graph_optimization_level": "none"}
StartWorker: TypeAlias = Callable[[Setup, int], AbstractContextManager[Worker]]


def write_as_onnx(source: Path, folder: Path, start: StartWorker = start_worker) -> Path:
    """Write the model as ONNX into the folder, under its own name and the suffix of ONNX.

    Raises ModelError if the runtime cannot read it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The runtime recognizes its own format by the suffix.
    target = folder / f"{source.name}.onnx"
    name = printable(str(source))
    with start(Setup(), 1) as worker:
        worker.use_engine(BUILT_IN[DEFAULT_ENGINE], AS_CONVERTED)
        try:
            answer: Mapping[str, Any] | None = worker.ask(
                "plan",
                "as it was read",
                model=str(source.absolute()),
                folder=None,
                threads=1,
                options=dict(AS_CONVERTED),
                name="converted",
            )
        except MeasureError as error:
            raise ModelError(
                f"{name} cannot be read by ONNX Runtime: {error.message} Convert the model again "
                "with the installed version."
            ) from error
        if answer is None:
            raise ModelError(f"{name}: ONNX Runtime has no graph of it. Give the ONNX model.")
        written = Path(answer["path"])
        # The weights are in a file next to it, which the graph names.
        for beside in written.parent.iterdir():
            shutil.copyfile(beside, target if beside == written else folder / beside.name)
    return target
