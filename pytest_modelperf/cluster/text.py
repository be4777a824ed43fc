"""One line on where the jobs of a cluster stand, for a display that is rewritten in place."""

from __future__ import annotations

from pytest_modelperf.cluster.records import ClusterStatus, RunningJob
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

_MOST_NAMED = 3


def status_line(status: ClusterStatus, width: int) -> str:
    """How many jobs have ended, run and wait, and which machines they run on, if there is room."""
    counts = f"{status.ended} ended, {len(status.running)} running, {status.waiting} waiting"
    where = shorten_list([_where(job) for job in status.running], _MOST_NAMED)
    line = f"{counts}: {where}" if where else counts
    return line if len(line) <= width else counts[:width]


def _where(job: RunningJob) -> str:
    return f"{printable(job.name)} on {printable(job.machine.host)}"
