"""The outputs of a model, and the tensors inside of it, as sessions give them."""

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

# The limit on all outputs of a model together; sending more would take too long.
MAX_BYTES = 64 << 20

# Type, shape and bits of an output; no bits where it was too large.
Sent: TypeAlias = "tuple[str, tuple[int, ...], bytes | None]"
# Runs a model once with these tensors as further outputs, and returns them.
ReadTensors: TypeAlias = Callable[[Sequence[str]], Mapping[str, Sent]]

_WATCHED = "watched.onnx"


def read_outputs(rig: Rig, names: Sequence[str] | None = None) -> Mapping[str, Sent] | None:
    """The outputs of a session that is opened for it, or some; None where the engine cannot tell.

    All of them together are read up to `MAX_BYTES`.
    """
    rig.open()
    found: Mapping[str, Sent] | None = rig.worker.ask(
        "outputs",
        "as its outputs were read",
        side=rig.side,
        max_bytes=MAX_BYTES,
        feed=rig.still_feed,
        names=None if names is None else list(names),
    )
    # Not closed after an error or interrupt: a worker that has ended or is busy would not answer.
    rig.close()
    return found


def run_for_outputs(
    model: PreparedModel, setup: Setup, place: CasePlace
) -> Mapping[str, Sent] | None:
    """The outputs of one inference of a model; None where the engine cannot tell."""
    with started_rig(model, setup, place) as rig:
        return read_outputs(rig)


@contextmanager
def reading_tensors(pair: Pair, place: CasePlace) -> Iterator[tuple[ReadTensors, ReadTensors]]:
    """Readers of the tensors inside of both models, each in a worker of its own.

    Nothing else is measured on this machine meanwhile.
    """
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
