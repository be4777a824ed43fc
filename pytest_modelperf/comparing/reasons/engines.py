"""Reasons in the engines themselves: another engine, Python, option, or provider."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.reason import Reason
from pytest_modelperf.profiler.measurements import EngineFacts, provider_name
from pytest_modelperf.text.escaping import printable


def engine_reasons(found: Differences) -> tuple[Reason, ...]:
    """Every fact that differs between the engines of two cases that ran."""
    before, after = found.before.profile.measured, found.after.profile.measured
    if before is None or after is None:
        return ()
    return tuple(map(Reason, _describe(before.engine, after.engine)))


def _describe(old: EngineFacts, new: EngineFacts) -> Iterator[str]:
    if (old.name, old.version) != (new.name, new.version):
        yield f"another engine: {printable(old.label)} before, {printable(new.label)} now"
    if old.python and new.python and old.python != new.python:
        yield f"another Python: {printable(old.python)} before, {printable(new.python)} now"
    for key in {**old.options, **new.options}:
        before, after = (printable(e.options.get(key, "not set")) for e in (old, new))
        if before != after:
            yield f"option {printable(key)}: {before} before, {after} now"
    gone = [provider for provider in old.providers if provider not in new.providers]
    if gone and new.providers and old.name == new.name:
        yield f"the engine has no {', '.join(map(provider_name, gone))} any more"
