"""The changes that an update would make, decided before anything is written.

A case that was not measured stays as it is. A case with the same content keeps its provenance too,
so accepting the same content again changes no file. The version of the engine is a part of the
content, for later runs are held against it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.changes import list_changes
from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineRecording,
    MachineBaseline,
    ModelBaseline,
    Provenance,
    StoredCase,
    StoredTwin,
    UpdatePlan,
)
from pytest_modelperf.files.documents import rounded


def plan_update(stored: Baseline | None, recording: BaselineRecording) -> UpdatePlan:
    """The changes that storing a recording would make."""
    old = stored.model if stored is not None else None
    model = _merge_models(old, recording)
    machines = stored.machines if stored is not None else ()
    if recording.machine is not None:
        machines = _merge_machines(machines, recording.machine)
    after = Baseline(
        name=recording.name,
        model=model,
        twin=_twin_bytes(stored, recording, model),
        machines=machines,
    )
    return _plan(recording.name, recording, (), stored, after)


def plan_removal(stored: Baseline, case_ids: Sequence[str] | None = None) -> UpdatePlan:
    """The removal of these cases, or of the whole model with None, on every machine."""
    gone = {case.id for case in stored.model.cases} if case_ids is None else set(case_ids)
    cases = tuple(case for case in stored.model.cases if case.id not in gone)
    after = None
    if cases:
        kept = (
            replace(machine, cases={key: c for key, c in machine.cases.items() if key not in gone})
            for machine in stored.machines
        )
        after = replace(
            stored,
            model=replace(stored.model, cases=cases),
            machines=tuple(machine for machine in kept if machine.cases),
        )
    return _plan(stored.name, None, tuple(sorted(gone)), stored, after)


def _plan(
    name: str,
    recording: BaselineRecording | None,
    removed: tuple[str, ...],
    before: Baseline | None,
    after: Baseline | None,
) -> UpdatePlan:
    return UpdatePlan(
        name=name,
        recording=recording,
        removed=removed,
        before=before,
        after=after,
        changes=tuple(list_changes(before, after)),
        notes=tuple(_notes(before, after)),
    )


def _merge_models(old: ModelBaseline | None, recording: BaselineRecording) -> ModelBaseline:
    cases = {case.id: case for case in old.cases} if old is not None else {}
    for case in recording.cases:
        known = cases.get(case.id)
        new = _with_what_ran(case, known)
        cases[case.id] = known if known is not None and _has_content_of(known, new) else new
    return ModelBaseline(
        model=replace(recording.model, path=None),
        cases=tuple(case for _, case in sorted(cases.items())),
        twin=_merge_twins(old, recording, {case.model_sha256 for case in cases.values()}),
    )


def _has_content_of(known: StoredCase, new: StoredCase) -> bool:
    """Whether recording a case again would change nothing but where and when that was."""
    is_same = replace(new, provenance=known.provenance) == known
    return is_same and new.engine_version == known.engine_version


def _with_what_ran(new: StoredCase, known: StoredCase | None) -> StoredCase:
    """A case that was only counted, with the facts of an earlier run of the very same case."""
    was_run = new.engine is not None or new.fidelity is not None
    if was_run or known is None or not known.asks_the_same(new):
        return new
    return replace(
        new,
        engine=known.engine,
        options=known.options,
        fidelity=known.fidelity,
        plan=known.plan,
        observed=known.observed,
        outputs=known.outputs,
        provenance=_with_engine_of(new.provenance, known),
    )


def _with_engine_of(counted: Provenance, known: StoredCase) -> Provenance:
    """The provenance of counts, with the version of the engine that ran the case earlier."""
    if known.engine is None:
        return counted
    packages = {name: v for name, v in counted.packages.items() if name != known.engine}
    version = known.provenance.packages.get(known.engine)
    if version is not None:
        packages[known.engine] = version
    return replace(counted, packages=dict(sorted(packages.items())))


def _merge_twins(
    old: ModelBaseline | None, recording: BaselineRecording, models: set[str | None]
) -> StoredTwin | None:
    """The recorded twin; without one, the old twin while it stands for a remaining case."""
    if recording.twin is not None:
        digest = hashlib.sha256(recording.twin).hexdigest()
        return StoredTwin(
            sha256=digest,
            size_bytes=len(recording.twin),
            model_sha256=recording.model.sha256,
            left_out_bytes=recording.left_out_bytes,
        )
    if old is None or old.twin is None:
        return None
    return old.twin if old.twin.model_sha256 in models else None


def _twin_bytes(
    stored: Baseline | None, recording: BaselineRecording, model: ModelBaseline
) -> bytes | None:
    if model.twin is None:
        return None
    return recording.twin if recording.twin is not None or stored is None else stored.twin


def _merge_machines(
    machines: tuple[MachineBaseline, ...], recorded: MachineBaseline
) -> tuple[MachineBaseline, ...]:
    by_key = {machine.key: machine for machine in machines}
    old = by_key.get(recorded.key)
    cases = {} if old is None else old.cases
    merged = {**cases, **recorded.cases}
    if not merged or merged == cases:
        return machines
    quota = recorded.machine.quota_cores
    by_key[recorded.key] = replace(
        recorded,
        machine=replace(recorded.machine, quota_cores=quota and rounded(quota)),
        cases=dict(sorted(merged.items())),
    )
    return tuple(machine for _, machine in sorted(by_key.items()))


def _notes(before: Baseline | None, after: Baseline | None) -> Iterator[str]:
    if before is None or after is None or after.model.twin is None:
        return
    twin = after.model.twin
    if twin == before.model.twin:
        return
    left = [case.id for case in after.model.cases if case.model_sha256 != twin.model_sha256]
    if left:
        yield (
            f"{', '.join(left)}: not measured now, and recorded with another model than the new "
            "twin, which cannot stand for it: record these cases too"
        )
