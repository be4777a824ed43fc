"""The machines of a cluster that may run a case, and whether this machine may."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.cluster.records import Machine


def allowed_names(machine: str | None, allowed: Sequence[str]) -> tuple[str, ...]:
    """Combine the machine of a case with the allowed machines of the run.

    Return names of machines. If there are none, any machine may run the case.
    """
    if machine is None:
        return tuple(allowed)
    return (machine,) if machine in allowed else _with_each((machine,), allowed)


def names_of_kinds(
    names: Sequence[str], kinds: Collection[str], machines: Sequence[Machine]
) -> tuple[str, ...]:
    """Restrict the names to machines of these kinds, if there are any."""
    found = {machine.key for machine in machines if machine.is_any_of(names)} & set(kinds)
    return _with_each(names, sorted(found)) if found else tuple(names)


def _with_each(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Combine names so that a machine needs one of each side. An empty side has no demands."""
    if not names or not others:
        return tuple(names or others)
    return tuple(a if a == b else f"{a}+{b}" for a in names for b in others)


def require_this_machine(machine: str) -> None:
    """Raise UsageError if this machine does not have this key or tag."""
    from pytest_modelperf.cluster.records import Machine
    from pytest_modelperf.cluster.station import read_tags
    from pytest_modelperf.profiler.machine.describe import describe_machine

    key = describe_machine().key
    here = Machine(address="", host="", key=key, tags=read_tags(), versions={})
    if not here.is_any_of((machine,)):
        raise UsageError(
            f"this machine is {', '.join((key, *here.tags))}, and not {printable(machine)}: name a "
            "cluster that has one, as in --modelperf-cluster tcp://host:8786, or leave its cases "
            f"out, as in -k 'not {printable(machine)}'."
        )
