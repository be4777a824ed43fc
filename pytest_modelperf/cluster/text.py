"""One line on where the jobs of a cluster stand, for a display that is rewritten in place."""

from __future__ import annotations

from pytest_modelperf.cluster.records import ClusterStatus
from pytest_modelperf.profiler.shown.progress import progress_line
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_MOST_NAMED = 3
_BETWEEN = "  "
# Room for the number of a case and its id.
_LEAST_PROGRESS = 20


def status_line(status: ClusterStatus, width: int) -> str:
    """How many jobs have ended, run and wait, and which machines they run on, if there is room.

    If there is only one job, such as a sweep, its progress stands in place of the counts.
    """
    counts = f"{status.ended} ended, {len(status.running)} running, {status.waiting} waiting"
    places = [f"{printable(job.name)} on {printable(job.machine.host)}" for job in status.running]
    where = shorten_list(places, _MOST_NAMED)
    line = f"{counts}: {where}" if where else counts
    if len(status.running) == 1 and not status.ended + status.waiting:
        progress = status.running[0].progress
        left = width - len(where) - len(_BETWEEN)
        if progress is not None and left >= _LEAST_PROGRESS:
            return f"{where}{_BETWEEN}{progress_line(progress, left)}"
    return line if len(line) <= width else counts[:width]
