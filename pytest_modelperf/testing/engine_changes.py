"""The engines that changed since the baselines of a project were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.comparing.engine_change import EngineChange, change_of_engine
from pytest_modelperf.errors import BaselineError
from pytest_modelperf.spec.run_definitions import JUDGE_UPGRADES
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of


def find_engine_changes(store: BaselineStore) -> Mapping[EngineChange, int]:
    """Each change, and the number of baselines that it concerns."""
    found: Counter[EngineChange] = Counter()
    try:
        names = store.names()
    except BaselineError:
        # Each check of a model reports it.
        return {}
    for name in names:
        try:
            stored = store.read(name, ())
        except BaselineError:
            continue
        if stored is not None:
            recorded = {(case.engine, case.engine_version) for case in stored.model.cases}
            changes = {change_of_engine(engine, version) for engine, version in recorded}
            found.update(change for change in changes if change is not None)
    return found


def describe_engine_changes(changes: Mapping[EngineChange, int], *, are_judged: bool) -> list[str]:
    """A line for each change: what was recorded with which version, and how to judge it."""
    return [
        _describe(change, count, is_judged=are_judged) for change, count in sorted(changes.items())
    ]


def _describe(change: EngineChange, count: int, *, is_judged: bool) -> str:
    baselines = count_of(count, "baseline")
    recorded = printable(f"{change.engine} {change.recorded}")
    now = "the upgrade is judged" if is_judged else f"{JUDGE_UPGRADES.flag} judges the upgrade"
    return (
        f"modelperf: {baselines} recorded with {recorded}, installed is "
        f"{printable(change.installed)}: {now}"
    )
