"""The changes that an update would make to baselines, figure by figure, before it writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineChange,
    BaselineRecording,
    MachineBaseline,
    ModelBaseline,
    Provenance,
    StoredCase,
    StoredLatency,
    StoredStatic,
    StoredTwin,
    UpdatePlan,
    Value,
)
from pytest_modelperf.files.documents import rounded
from pytest_modelperf.profiler.records import ModelFacts

_FIGURES = (
    *("macs", "params", "scalar_params", "elementwise_ops", "backward_macs", "effective_macs"),
    *("weight_bytes", "activation_bytes", "peak_activation_bytes", "coverage"),
)
# The figures that are shown for a case that is added or removed.
_MAIN_FIGURES = frozenset({"macs", "params", "latency_p50_ns", "latency_p95_ns"})
_SHORT = 12


def list_changes(before: Baseline | None, after: Baseline | None) -> Iterator[BaselineChange]:
    """Yield the changes, one for each figure. Any difference is shown by at least one change."""
    old, new = _model(before), _model(after)
    if old is not None and new is not None:
        yield from _model_changes(old, new)
    elif new is not None and new.twin is not None:
        yield BaselineChange(case=None, name="twin", before=None, after=_short_twin(new))
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


def _model_changes(old: ModelBaseline, new: ModelBaseline) -> Iterator[BaselineChange]:
    before, after = _short(old.model), _short(new.model)
    if before != after:
        yield BaselineChange(case=None, name="model", before=before, after=after)
    sizes = old.model.total_bytes, new.model.total_bytes
    if sizes[0] != sizes[1]:
        yield BaselineChange(case=None, name="size_bytes", before=sizes[0], after=sizes[1])
    elif before == after and old.model != new.model:
        yield BaselineChange(case=None, name="model facts", before=None, after=None)
    if old.twin != new.twin:
        twins = _short_twin(old), _short_twin(new)
        yield BaselineChange(case=None, name="twin", before=twins[0], after=twins[1])


def _case_changes(
    case_id: str, old: StoredCase | None, new: StoredCase | None
) -> Iterator[BaselineChange]:
    if old == new:
        return
    before, after = _figures(old), _figures(new)
    changed = [
        BaselineChange(case=case_id, name=name, before=before.get(name), after=after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    if old is None or new is None:
        changed = [change for change in changed if change.name in _MAIN_FIGURES]
    elif old.static.notes != new.static.notes:
        changed.append(BaselineChange(case=case_id, name="notes", before=None, after=None))
    yield from changed or [_other(case_id, old, new)]


def _latency_changes(
    machine: str, case_id: str, old: StoredLatency | None, new: StoredLatency | None
) -> Iterator[BaselineChange]:
    before, after = _latency_figures(old), _latency_figures(new)
    for name in {**before, **after}:
        known, now = before.get(name), after.get(name)
        is_shown = name in _MAIN_FIGURES if old is None or new is None else known != now
        # The median of new samples is shown even if it did not change.
        if is_shown or name == "latency_p50_ns":
            yield BaselineChange(case=case_id, machine=machine, name=name, before=known, after=now)


def _figures(case: StoredCase | None) -> dict[str, Value]:
    if case is None:
        return {}
    return {
        **_static_figures(case.static),
        "observed_macs": None if case.observed is None else case.observed.macs,
        "batch_size": case.batch_size,
        "cores": case.cores,
        "dims": ", ".join(f"{name}={size}" for name, size in sorted(case.dims.items())) or None,
        "state": None if case.generation is None else _listed(case.generation.state) or None,
        "engine": case.engine,
        "engine version": case.engine_version,
        "engine options": None if not case.options else _listed(case.options),
        "inputs": str(case.inputs) if case.inputs.specs else None,
        **_fidelity_figures(case),
        "plan": None if case.plan is None else case.plan.digest[:_SHORT],
    }


def _fidelity_figures(case: StoredCase) -> dict[str, Value]:
    if case.fidelity is None:
        return {}
    return {
        "twin_ratio": case.fidelity.ratio,
        "twin_trusted": "yes" if case.fidelity.is_trusted else "no",
    }


def _static_figures(static: StoredStatic) -> dict[str, Value]:
    figures: dict[str, Value] = {name: getattr(static, name) for name in _FIGURES}
    for op, kind in static.layer_types.items():
        figures |= {f"{op} layers": kind.count, f"{op} MACs": kind.macs or None}
    return figures | {f"{op} uncounted": count for op, count in static.uncounted_ops.items()}


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


def _other(case_id: str, old: StoredCase | None, new: StoredCase | None) -> BaselineChange:
    if old is None or new is None:
        before, after = (None if side is None else "recorded" for side in (old, new))
        return BaselineChange(case=case_id, name="case", before=before, after=after)
    digests = {
        "model": (old.model_sha256, new.model_sha256),
        "structure": (old.structure, new.structure),
    }
    for name, (before, after) in digests.items():
        if before != after:
            known, now = (digest and digest[:_SHORT] for digest in (before, after))
            return BaselineChange(case=case_id, name=name, before=known, after=now)
    if old.provenance != new.provenance:
        before, after = (each.provenance.date.isoformat() for each in (old, new))
        return BaselineChange(case=case_id, name="recorded", before=before, after=after)
    return BaselineChange(case=case_id, name="other figures", before=None, after=None)


def _short(model: ModelFacts) -> str:
    return model.name if model.sha256 is None else model.sha256[:_SHORT]


def _short_twin(model: ModelBaseline) -> str | None:
    return None if model.twin is None else model.twin.sha256[:_SHORT]


def _model(baseline: Baseline | None) -> ModelBaseline | None:
    return None if baseline is None else baseline.model


def _case_ids(*baselines: Baseline | None) -> list[str]:
    known = [baseline for baseline in baselines if baseline is not None]
    of_models = {case.id for baseline in known for case in baseline.model.cases}
    return sorted(of_models.union(*(machine.cases for b in known for machine in b.machines)))


def _machine_keys(*baselines: Baseline | None) -> list[str]:
    return sorted({m.key for b in baselines if b is not None for m in b.machines})


def _latency(baseline: Baseline | None, key: str, case_id: str) -> StoredLatency | None:
    machine = None if baseline is None else baseline.machine(key)
    return None if machine is None else machine.cases.get(case_id)


def plan_update(stored: Baseline | None, recording: BaselineRecording) -> UpdatePlan:
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
    """Plan the removal of these cases, or of the whole model if None, on every machine."""
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
    """Whether recording a case again would change only where and when it was recorded."""
    is_same = replace(new, provenance=known.provenance) == known
    return is_same and new.engine_version == known.engine_version


def _with_what_ran(new: StoredCase, known: StoredCase | None) -> StoredCase:
    """Add to a case that was only counted what an earlier run of the same case measured."""
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
    """Return the recorded twin, or the old one if a remaining case was recorded with its model."""
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
            "twin, which cannot replace it: record these cases too"
        )
