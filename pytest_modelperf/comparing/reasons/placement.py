"""Reasons in how a model runs: on another engine, in another precision, on another provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.reasons.reason import (
    LayerPair,
    Reason,
    layer_name,
    pairs_in_order,
    reason_about_pairs,
)
from pytest_modelperf.profiler.measurements import EngineFacts, provider_name
from pytest_modelperf.profiler.records import LayerRow
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of


def engine_reasons(found: Differences) -> tuple[Reason, ...]:
    """Every fact that differs between the engines of two cases that ran."""
    before, after = found.before.profile.measured, found.after.profile.measured
    if before is None or after is None:
        return ()
    texts = _describe_engines(before.engine, after.engine)
    return tuple(Reason(text, is_of_whole=True) for text in texts)


def _describe_engines(old: EngineFacts, new: EngineFacts) -> Iterator[str]:
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


def precision_reasons(found: Differences) -> tuple[Reason, ...]:
    """Layers that run in another precision than before."""
    return _moved_reasons(found, "in", lambda row: row.precision, printable)


def provider_reasons(found: Differences) -> tuple[Reason, ...]:
    """Layers that run on another provider than before."""
    return _moved_reasons(found, "on", _provider, provider_name)


def _moved_reasons(
    found: Differences,
    word: str,
    read: Callable[[LayerRow], str | None],
    show: Callable[[str], str],
) -> tuple[Reason, ...]:
    """One reason for each operator and each change of the value that `read` finds."""
    moved: dict[tuple[str, str, str], list[LayerPair]] = {}
    for old, new in pairs_in_order(found):
        row = found.after.rows[new]
        before, after = read(found.before.rows[old]), read(row)
        if before is None or after is None:
            continue
        # Two engines have other names for one thing.
        before, after = show(before), show(after)
        if before != after:
            moved.setdefault((row.qualified_op, before, after), []).append((old, new))
    reasons = []
    for (op, before, after), pairs in moved.items():
        count = count_of(len(pairs), "layer")
        first = layer_name(found.after.layers[pairs[0][1]])
        text = f"{printable(op)}: {count} {word} {after}, before {word} {before} (first: {first})"
        reasons.append(reason_about_pairs(found, text, pairs))
    return tuple(reasons)


def _provider(row: LayerRow) -> str | None:
    return None if row.time is None else row.time.provider
