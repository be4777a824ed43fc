"""The machines of a cluster: whether they can run a job, and the status line of the jobs.

Jobs wait here in queues until a machine that may run them has room.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.cluster.places import is_local
from pytest_modelperf.cluster.records import ClusterStatus, Machine, fitting_machines
from pytest_modelperf.cluster.station import station_of
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.errors import ClusterError
from pytest_modelperf.profiler.shown.progress import progress_line
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__
from pytest_modelperf.text.words import shorten_list

_PACKAGE = "pytest-modelperf"
_MOST_NAMED = 10


def describe_station(dask_worker: Any = None) -> str | None:  # noqa: ANN401  # Dask gives its worker
    """Return the machine of the current Dask worker as JSON, or None if it has no station."""
    station = station_of(dask_worker)
    return None if station is None else to_text(station.machine)


def find_missing_modules(names: Sequence[str]) -> list[str]:
    return [name for name in names if not _is_found(name)]


def _is_found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def require_modules(machines: Sequence[Machine], answers: Mapping[str, object]) -> None:
    """Raise ClusterError for the first machine whose answer names missing modules."""
    for machine in machines:
        missing = answers.get(machine.address)
        if isinstance(missing, list) and missing:
            raise ClusterError(
                f"{printable(machine.label)} cannot import {printable(', '.join(missing))}, whose "
                "hooks this run uses: install it there, or start its worker where Python finds it, "
                "as with PYTHONPATH."
            )


def read_machines(answers: Mapping[str, object]) -> tuple[Machine, ...]:
    """Return the machines among the workers that answered, with the addresses of the scheduler.

    A worker without this package answers with an error, and is left out.
    """
    return tuple(
        replace(from_text(answer, Machine), address=address)
        for address, answer in sorted(answers.items())
        if isinstance(answer, str)
    )


def require_machines(
    machines: Sequence[Machine], wanted: Iterable[Collection[str]], cluster: str
) -> None:
    """Raise ClusterError for the first set of names that matches no machine."""
    for names in wanted:
        if not any(machine.is_any_of(names) for machine in machines):
            raise ClusterError(no_machine(machines, names, cluster))


def no_machine(machines: Sequence[Machine], names: Collection[str], cluster: str) -> str:
    """Explain that no machine can run a job, and list the available ones."""
    if not machines:
        return (
            f"{printable(cluster)} has no machine that measures. Start one on each machine: "
            f"modelperf worker {printable(cluster)}"
        )
    kinds = Counter(", ".join((machine.key, *machine.tags)) for machine in machines)
    found = [f"{kind} ({count})" for kind, count in sorted(kinds.items())]
    other = (
        "give the address of a cluster that has the other kind"
        if is_local(cluster)
        else f"start the other kind: modelperf worker {printable(cluster)}"
    )
    return (
        f"{printable(cluster)} has no machine {printable(' or '.join(sorted(names)))}. It has: "
        f"{printable(shorten_list(found, _MOST_NAMED))}. Name one of these, or {other}"
    )


def require_equal_versions(
    machines: Sequence[Machine], ours: Mapping[str, str], engine: str | None = None
) -> None:
    """Raise ClusterError if a machine has another version of this package or of the engine.

    The engine is looked up as a package of the same name. If neither side has such a package, it is
    not compared.
    """
    packages = {_PACKAGE: __version__}
    if engine is not None and (engine in ours or any(engine in m.versions for m in machines)):
        packages[engine] = ours.get(engine, "none")
    for package, version in packages.items():
        others = [m for m in machines if m.versions.get(package, "none") != version]
        if others:
            theirs = others[0].versions.get(package, "none")
            labels = shorten_list([printable(machine.label) for machine in others], _MOST_NAMED)
            wanted = package if version == "none" else f"{package}=={version}"
            raise ClusterError(
                f"here {package} is {version}, and on {labels} it is {theirs}: figures of two "
                f"versions cannot be compared. Install the same on both sides, as in "
                f"`pip install {wanted}` there."
            )


# -- one line on the progress of the jobs of a cluster


_MOST_SHOWN = 3
_BETWEEN = "  "
# Enough columns for the number of a case and its id.
_LEAST_PROGRESS = 20


def status_line(status: ClusterStatus, width: int) -> str:
    """Return the counts of ended, running and waiting jobs, and their machines if there is space.

    If there is only one job, such as a sweep, its progress replaces the counts.
    """
    counts = f"{status.ended} ended, {len(status.running)} running, {status.waiting} waiting"
    places = [f"{printable(job.name)} on {printable(job.machine.host)}" for job in status.running]
    running = shorten_list(places, _MOST_SHOWN)
    line = f"{counts}: {running}" if running else counts
    if len(status.running) == 1 and not status.ended + status.waiting:
        progress = status.running[0].progress
        left = width - len(running) - len(_BETWEEN)
        if progress is not None and left >= _LEAST_PROGRESS:
            return f"{running}{_BETWEEN}{progress_line(progress, left)}"
    return line if len(line) <= width else counts[:width]


Names = tuple[str, ...]

# How long a job waits for a machine of its kind after the last one has gone.
PATIENCE_S = 60.0


class _Need(Struct, frozen=True):
    names: Names
    cores: int


class _Queue(Struct):
    """The jobs that the same machines may run: the waiting ones, and the number released."""

    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    running: int = 0
    giving_up: asyncio.TimerHandle | None = None


class JobTurns:
    """The queues that release jobs in order, one for each set of machines that may run them.

    One more job waits at each machine, so that the machine is not idle while messages travel. Near
    the end there are no such extra jobs, so that no job waits behind another while a machine is
    free. `describe_lack` makes the error of jobs that have had no machine for `patience_s`.
    """

    def __init__(self, describe_lack: Callable[[Names], Exception], patience_s: float) -> None:
        self._describe_lack = describe_lack
        self._patience_s = patience_s
        self._machines: Sequence[Machine] = ()
        self._queues: dict[_Need, _Queue] = {}

    def set_machines(self, machines: Sequence[Machine]) -> None:
        """Update the machines after some have joined or left, and release jobs."""
        self._machines = machines
        for need in self._queues:
            self._let_go(need)

    @asynccontextmanager
    async def turn(self, names: Names, cores: int = 1) -> AsyncIterator[None]:
        """Wait until a machine with these names and cores has room, and take its turn."""
        need = _Need(names, cores)
        queue = self._queues.setdefault(need, _Queue())
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        self._let_go(need)
        try:
            await turn
        except BaseException:
            # A cancelled turn stays in the queue, which skips it later.
            if not turn.cancelled() and turn.exception() is None:
                self._end(need)
            raise
        try:
            yield
        finally:
            self._end(need)

    def _end(self, need: _Need) -> None:
        self._queues[need].running -= 1
        self._let_go(need)

    def _let_go(self, need: _Need) -> None:
        queue = self._queues[need]
        room = len(fitting_machines(self._machines, need.names, need.cores))
        self._watch_lack(need, queue, room)
        while queue.waiting:
            most = 2 * room if len(queue.waiting) > room else room
            if queue.running >= most:
                return
            turn = queue.waiting.popleft()
            if not turn.done():
                queue.running += 1
                turn.set_result(None)

    def _watch_lack(self, need: _Need, queue: _Queue, room: int) -> None:
        """Start the timer that gives up on jobs without machines, or stop it if one is back."""
        if room and queue.giving_up is not None:
            queue.giving_up.cancel()
            queue.giving_up = None
        elif not room and queue.waiting and queue.giving_up is None:
            loop = asyncio.get_running_loop()
            queue.giving_up = loop.call_later(self._patience_s, self._give_up, need)

    def _give_up(self, need: _Need) -> None:
        self._queues[need].giving_up = None
        self._refuse(self._queues[need], self._describe_lack(need.names))

    def end(self, error: Exception) -> None:
        for queue in self._queues.values():
            if queue.giving_up is not None:
                queue.giving_up.cancel()
            self._refuse(queue, error)

    def _refuse(self, queue: _Queue, error: Exception) -> None:
        while queue.waiting:
            turn = queue.waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
