"""What an update would change, decided before anything is written. Pure.

A case that was not measured stays as it is. A case whose content is the same keeps its provenance
too, so that accepting what already holds changes no file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.records import (
    Baseline,
    Change,
    MachineBaseline,
    ModelBaseline,
    Plan,
    Provenance,
    Recording,
    StoredCase,
    StoredLatency,
    StoredStatic,
    StoredTwin,
    Value,
)
from pytest_modelperf.files.documents import rounded
from pytest_modelperf.profiler.records import LayerType, ModelFacts
from pytest_modelperf.stats.records import Ratio

_FIGURES = (
    *("macs", "params", "scalar_params", "elementwise_ops", "backward_macs", "effective_macs"),
    *("weight_bytes", "activation_bytes", "peak_activation_bytes", "coverage"),
)
# Of a case that comes or goes, these say enough.
_MAIN_FIGURES = frozenset({"macs", "params", "latency_p50_ns", "latency_p95_ns"})
_SHORT = 12


def plan_update(stored: Baseline | None, recording: Recording) -> Plan:
    """What storing a recording would change."""
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


def plan_removal(stored: Baseline, case_ids: Sequence[str] | None = None) -> Plan:
    """What removing these cases, or with None the whole model, would change on every machine."""
    gone = {case.id for case in stored.model.cases} if case_ids is None else set(case_ids)
    cases = tuple(case for case in stored.model.cases if case.id not in gone)
    after = None
    if cases:
        kept = (
            replace(machine, cases=tuple(c for c in machine.cases if c.id not in gone))
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
    recording: Recording | None,
    removed: tuple[str, ...],
    before: Baseline | None,
    after: Baseline | None,
) -> Plan:
    return Plan(
        name=name,
        recording=recording,
        removed=removed,
        before=before,
        after=after,
        changes=tuple(_changes(before, after)),
        notes=tuple(_notes(before, after)),
    )


def _merge_models(old: ModelBaseline | None, recording: Recording) -> ModelBaseline:
    cases = {case.id: case for case in old.cases} if old is not None else {}
    for case in recording.cases:
        known = cases.get(case.id)
        new = _with_what_ran(_stored_form(case), known)
        is_known = known is not None and known.provenance is not None
        is_same = known is not None and replace(new, provenance=known.provenance) == known
        cases[case.id] = known if known is not None and is_known and is_same else new
    return ModelBaseline(
        model=replace(recording.model, path=None),
        cases=tuple(case for _, case in sorted(cases.items())),
        twin=_merge_twins(old, recording, {case.model_sha256 for case in cases.values()}),
    )


def _with_what_ran(new: StoredCase, known: StoredCase | None) -> StoredCase:
    """A case that was only counted, with what an earlier run told of the very same model."""
    was_run = new.engine is not None or new.fidelity is not None
    if was_run or known is None or known.model_sha256 != new.model_sha256:
        return new
    if known.inputs is not None and known.inputs != new.inputs:
        return new
    return replace(
        new,
        engine=known.engine,
        options=known.options,
        fidelity=known.fidelity,
        observed=known.observed,
        provenance=_with_engine_of(new.provenance, known),
    )


def _with_engine_of(counted: Provenance | None, known: StoredCase) -> Provenance | None:
    """The provenance of counts, with the version of the engine that ran the case before."""
    if counted is None or known.engine is None:
        return counted
    packages = {name: v for name, v in counted.packages.items() if name != known.engine}
    version = None if known.provenance is None else known.provenance.packages.get(known.engine)
    if version is not None:
        packages[known.engine] = version
    return replace(counted, packages=dict(sorted(packages.items())))


def _stored_form(case: StoredCase) -> StoredCase:
    """The case with its ratios as they are after writing and reading."""
    if case.fidelity is None:
        return case
    ratio = case.fidelity.ratio
    has_interval = ratio.low is not None and ratio.high is not None
    stored = Ratio(
        rounded(ratio.value),
        rounded(ratio.low) if has_interval and ratio.low is not None else None,
        rounded(ratio.high) if has_interval and ratio.high is not None else None,
    )
    return replace(case, fidelity=replace(case.fidelity, ratio=stored))


def _merge_twins(
    old: ModelBaseline | None, recording: Recording, models: set[str | None]
) -> StoredTwin | None:
    """The recorded twin; without one, the old one as long as a case is left that it stands for."""
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
    stored: Baseline | None, recording: Recording, model: ModelBaseline
) -> bytes | None:
    if model.twin is None:
        return None
    return recording.twin if recording.twin is not None or stored is None else stored.twin


def _merge_machines(
    machines: tuple[MachineBaseline, ...], recorded: MachineBaseline
) -> tuple[MachineBaseline, ...]:
    by_key = {machine.key: machine for machine in machines}
    old = by_key.get(recorded.key)
    cases = {case.id: case for case in old.cases} if old is not None else {}
    merged = {**cases, **{case.id: case for case in recorded.cases}}
    if not merged or merged == cases:
        return machines
    quota = recorded.machine.quota_cores
    by_key[recorded.key] = replace(
        recorded,
        machine=replace(recorded.machine, quota_cores=quota and rounded(quota)),
        cases=tuple(case for _, case in sorted(merged.items())),
    )
    return tuple(machine for _, machine in sorted(by_key.items()))


def _changes(before: Baseline | None, after: Baseline | None) -> Iterator[Change]:
    """One entry a figure; whatever differs has at least one."""
    old, new = _model(before), _model(after)
    if old is not None and new is not None:
        yield from _model_changes(old, new)
    elif new is not None and new.twin is not None:
        yield Change(case=None, name="twin", before=None, after=_short_twin(new))
    for case_id in _case_ids(before, after):
        yield from _case_changes(
            case_id,
            old.case(case_id) if old is not None else None,
            new.case(case_id) if new is not None else None,
        )
        for key in _machine_keys(before, after):
            earlier, later = _latency(before, key, case_id), _latency(after, key, case_id)
            if earlier != later:
                yield from _latency_changes(key, case_id, earlier, later)


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


def _model_changes(old: ModelBaseline, new: ModelBaseline) -> Iterator[Change]:
    before, after = _short(old.model), _short(new.model)
    if before != after:
        yield Change(case=None, name="model", before=before, after=after)
    elif old.model != new.model:
        yield Change(case=None, name="model facts", before=None, after=None)
    if old.twin != new.twin:
        twins = _short_twin(old), _short_twin(new)
        yield Change(case=None, name="twin", before=twins[0], after=twins[1])


def _case_changes(case_id: str, old: StoredCase | None, new: StoredCase | None) -> Iterator[Change]:
    if old == new:
        return
    before, after = _figures(old), _figures(new)
    changed = [
        Change(case=case_id, name=name, before=before.get(name), after=after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    if old is None or new is None:
        changed = [change for change in changed if change.name in _MAIN_FIGURES]
    elif old.static is not None and new.static is not None and old.static.notes != new.static.notes:
        changed.append(Change(case=case_id, name="notes", before=None, after=None))
    yield from changed or [_other(case_id, old, new)]


def _latency_changes(
    machine: str, case_id: str, old: StoredLatency | None, new: StoredLatency | None
) -> Iterator[Change]:
    before, after = _latency_figures(old), _latency_figures(new)
    # A median that is the same although its samples are new is worth a line.
    always = {"latency_p50_ns"}
    for name in {**before, **after}:
        known, now = before.get(name), after.get(name)
        is_shown = name in _MAIN_FIGURES if old is None or new is None else known != now
        if is_shown or name in always:
            yield Change(case=case_id, machine=machine, name=name, before=known, after=now)


def _figures(case: StoredCase | None) -> dict[str, Value]:
    if case is None:
        return {}
    return {
        **_static_figures(case.static),
        "observed_macs": None if case.observed is None else case.observed.macs,
        "batch_size": case.batch_size,
        "cores": case.cores,
        "dims": ", ".join(f"{name}={size}" for name, size in sorted(case.dims.items())) or None,
        "engine": case.engine,
        "engine options": None if not case.options else _listed(case.options),
        "inputs": None if case.inputs is None or not case.inputs.specs else str(case.inputs),
        **_fidelity_figures(case),
    }


def _fidelity_figures(case: StoredCase) -> dict[str, Value]:
    if case.fidelity is None:
        return {}
    return {
        "twin_ratio": case.fidelity.ratio.value,
        "twin_trusted": "yes" if case.fidelity.is_trusted else "no",
    }


def _static_figures(static: StoredStatic | None) -> dict[str, Value]:
    if static is None:
        return {}
    figures: dict[str, Value] = {name: getattr(static, name) for name in _FIGURES}
    for op, kind in static.layer_types.items():
        figures |= _kind_figures(op, kind)
    return figures | {f"{op} uncounted": count for op, count in static.uncounted_ops.items()}


def _kind_figures(op: str, kind: LayerType) -> dict[str, Value]:
    return {f"{op} layers": kind.count, f"{op} MACs": kind.macs or None}


def _latency_figures(case: StoredLatency | None) -> dict[str, Value]:
    if case is None:
        return {}
    peaks = [p.peak_rss_bytes for p in case.processes if p.peak_rss_bytes is not None]
    return {
        "latency_p50_ns": case.percentile_ns(50.0),
        "latency_p95_ns": case.percentile_ns(95.0),
        "peak_rss_bytes": max(peaks, default=None),
        "processes": len(case.processes),
        "runtime": " ".join(part for part in (case.engine.name, case.engine.version) if part),
        "options": _listed(case.engine.options) or None,
        "providers": ", ".join(case.engine.providers) or None,
    }


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(options.items()))


def _other(case_id: str, old: StoredCase | None, new: StoredCase | None) -> Change:
    """A change that shows in none of the figures."""
    if old is None or new is None:
        there = "recorded"
        return Change(
            case=case_id,
            name="case",
            before=None if old is None else there,
            after=None if new is None else there,
        )
    if old.model_sha256 != new.model_sha256:
        before, after = old.model_sha256, new.model_sha256
        return Change(
            case=case_id,
            name="model",
            before=before and before[:_SHORT],
            after=after and after[:_SHORT],
        )
    if old.provenance != new.provenance:
        before, after = _day(old), _day(new)
        return Change(case=case_id, name="recorded", before=before, after=after)
    return Change(case=case_id, name="other figures", before=None, after=None)


def _day(case: StoredCase) -> str | None:
    return None if case.provenance is None else case.provenance.date.isoformat()


def _short(model: ModelFacts) -> str:
    return model.name if model.sha256 is None else model.sha256[:_SHORT]


def _short_twin(model: ModelBaseline) -> str | None:
    return None if model.twin is None else model.twin.sha256[:_SHORT]


def _model(baseline: Baseline | None) -> ModelBaseline | None:
    return None if baseline is None else baseline.model


def _case_ids(*baselines: Baseline | None) -> list[str]:
    known = [baseline for baseline in baselines if baseline is not None]
    of_models = {case.id for baseline in known for case in baseline.model.cases}
    return sorted(
        of_models | {case.id for b in known for machine in b.machines for case in machine.cases}
    )


def _machine_keys(*baselines: Baseline | None) -> list[str]:
    return sorted({m.key for b in baselines if b is not None for m in b.machines})


def _latency(baseline: Baseline | None, key: str, case_id: str) -> StoredLatency | None:
    machine = None if baseline is None else baseline.machine(key)
    return None if machine is None else machine.case(case_id)
