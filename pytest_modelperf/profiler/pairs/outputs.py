"""Read the outputs of a model, and the tensors inside it, from sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from pytest_modelperf.graph.copies import write_watched_model
from pytest_modelperf.profiler.model_in_worker import CasePlace, alone_at, rig_of, started_rig
from pytest_modelperf.profiler.prepare import Pair, PreparedModel
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.profiler.worker.endings import writing_for_worker

# The limit on all outputs of a model together, because sending more would take too long.
MAX_BYTES = 64 << 20

# The type, shape and bits of an output; the bits are None if it was too large.
Sent: TypeAlias = "tuple[str, tuple[int, ...], bytes | None]"
# Runs a model once with these tensors as additional outputs, and returns them.
ReadTensors: TypeAlias = Callable[[Sequence[str]], Mapping[str, Sent]]

_WATCHED = "watched.onnx"


def read_outputs(rig: Rig, names: Sequence[str] | None = None) -> Mapping[str, Sent] | None:
    """Open a session and return its outputs, or those in `names`, if the engine can return them."""
    rig.open()
    found: Mapping[str, Sent] | None = rig.worker.ask(
        "outputs",
        "as its outputs were read",
        side=rig.side,
        max_bytes=MAX_BYTES,
        feed=rig.still_feed,
        names=None if names is None else list(names),
    )
    # Not in a `finally`: after an error, the worker may have ended or be busy, and not answer.
    rig.close()
    return found


def run_for_outputs(
    model: PreparedModel, setup: Setup, place: CasePlace
) -> Mapping[str, Sent] | None:
    """Return the outputs of one inference, or None if the engine cannot return them."""
    with started_rig(model, setup, place) as rig:
        return read_outputs(rig)


@contextmanager
def reading_tensors(pair: Pair, place: CasePlace) -> Iterator[tuple[ReadTensors, ReadTensors]]:
    """Yield readers of the tensors inside both models. Nothing else is measured here meanwhile."""
    with (
        alone_at(place),
        rig_of(pair.before, pair.before_setup, place) as old,
        rig_of(pair.after, pair.after_setup, place) as new,
    ):
        yield _reader(pair.before, old), _reader(pair.after, new)


def _reader(model: PreparedModel, rig: Rig) -> ReadTensors:
    def read(names: Sequence[str]) -> Mapping[str, Sent]:
        path = rig.worker.folder / _WATCHED
        with writing_for_worker("as a copy of the model was written"):
            write_watched_model(model.bound, names, path)
        sent = rig.worker.send_file(path, _WATCHED)
        folder = rig.workload.folder or str(Path(str(rig.workload.model)).parent)
        watched = replace(rig, workload=replace(rig.workload, model=sent, folder=folder))
        return read_outputs(watched, names) or {}

    return read
