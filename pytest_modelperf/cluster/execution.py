"""A job on the machine that carries it out: what Dask runs there as a task."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from pkgutil import resolve_name

from distributed import get_worker

from pytest_modelperf import errors
from pytest_modelperf.cluster.records import (
    AnsweredRemedy,
    JobAnswer,
    JobContext,
    JobOrder,
    Message,
    Work,
)
from pytest_modelperf.cluster.station import Station, station_of
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import ClusterError, MeasureError, ModelPerfError, Remedy
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.text.version import __version__

# Progress is for people, who read no more than this.
_BETWEEN_MESSAGES_S = 0.5


# The errors that a message is all of.
_KINDS: Mapping[str | None, type[ModelPerfError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, ModelPerfError)
    and kind.__init__ is ModelPerfError.__init__
}


class _Cancelled(Exception):  # noqa: N818  # no error: nobody waits for the job
    pass


def run_job(order: str) -> str:
    """The answer to an order, both as JSON. It raises nothing: an error is an answer too."""
    told = from_text(order, JobOrder)
    station = station_of(get_worker())
    if station is None:
        return _failed(ClusterError("a Dask worker without our preload module was given a job."))
    try:
        return to_text(JobAnswer(text=_carry_out(told, station)))
    except ModelPerfError as error:
        return _failed(error)
    except _Cancelled:
        return _failed(MeasureError("the job was cancelled."))
    except Exception:  # noqa: BLE001  # a fault ends one job and says where it was
        return _failed(
            MeasureError(f"a fault on {station.machine.label}:\n{traceback.format_exc()}")
        )
    finally:
        station.forget(told.key)


def name_of_work(work: Work) -> str:
    """The name by which a machine finds a function."""
    name = f"{work.__module__}:{work.__qualname__}"
    if "<" in name:
        raise ValueError(f"{name} is no function at the top of a module")
    return name


def _carry_out(order: JobOrder, station: Station) -> str:
    machine = station.machine
    if station.is_cancelled(order.key):
        raise _Cancelled
    if order.version != __version__:
        raise ClusterError(
            f"{machine.label} has pytest-modelperf {__version__}, and this is {order.version}: "
            "install the same version on both."
        )
    station.send(order.topic, Message(key=order.key, address=machine.address))
    with ExitStack() as stack:
        paths = {
            model.digest: stack.enter_context(station.having(model, order.key, order.topic))
            for model in order.models
        }
        work: Work = resolve_name(order.work)
        return work(order.request, JobContext(paths, _Watch(order, station)))


class _Watch:
    """Passes on the progress of a job, and ends one that was cancelled."""

    def __init__(self, order: JobOrder, station: Station) -> None:
        self._order = order
        self._station = station
        self._sent = float("-inf")

    def __call__(self, progress: Progress) -> None:
        order, station = self._order, self._station
        if station.is_cancelled(order.key):
            raise _Cancelled
        now = time.monotonic()
        if now - self._sent >= _BETWEEN_MESSAGES_S:
            self._sent = now
            address = station.machine.address
            station.send(order.topic, Message(key=order.key, address=address, progress=progress))


def _failed(error: ModelPerfError) -> str:
    remedy = error.remedy
    return to_text(
        JobAnswer(
            error=type(error).__name__,
            message=error.message,
            details=error.details,
            remedy=None
            if remedy is None
            else AnsweredRemedy(text=remedy.text, dims=remedy.dims, values=remedy.values),
        )
    )


def error_of(answer: JobAnswer) -> ModelPerfError:
    """The error that an answer holds, of the class that it had on the machine."""
    told = answer.remedy
    remedy = None if told is None else Remedy(told.text, dims=told.dims, **told.values)
    error = _KINDS.get(answer.error, MeasureError)(answer.message, remedy)
    error.details = answer.details
    return error
