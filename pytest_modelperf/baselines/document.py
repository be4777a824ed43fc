"""The files of a baseline: their types, the samples that they keep, and how they are read."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.records import (
    CaseFacts,
    Fidelity,
    MachineBaseline,
    MachineKey,
    ModelBaseline,
    Provenance,
    Stored,
    StoredCase,
    StoredGeneration,
    StoredLatency,
    StoredProcess,
    StoredStatic,
    StoredTotals,
    StoredTwin,
)
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, shortened
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.profiler.counting.records import LayerType, LayerTypeCounts, StaticProfile
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, ModelIdentity, StoredInputs
from pytest_modelperf.report.document import SCHEMA, copy_fields, to_json

# Samples with fewer different values can be equal by chance, because a coarse clock has only a few
# values. If only this many values are possible, all equally likely, two blocks of 12 are equal once
# in 10^13.
_FEWEST_VALUES = 12

_Samples: TypeAlias = tuple[tuple[int, ...], ...]


def require_own_samples(cases: Mapping[str, StoredLatency]) -> None:
    """Raise ContradictionError if a process or round in a machine's file repeats another one."""
    places: dict[_Samples, str] = {}
    for place, times_ns in chain(_processes(cases), _rounds(cases)):
        if len(set(chain.from_iterable(times_ns))) < _FEWEST_VALUES:
            continue
        first = places.setdefault(times_ns, place)
        if first != place and not place.startswith(f"{first}["):
            raise ContradictionError(
                place, f"the samples are those of {first}, which no two runs have: they were copied"
            )


def _processes(cases: Mapping[str, StoredLatency]) -> Iterator[tuple[str, _Samples]]:
    for case_id, case in sorted(cases.items()):
        for number, process in enumerate(case.processes):
            place = f'cases["{shortened(case_id)}"].processes[{number}].times_ns'
            yield place, process.times_ns


def _rounds(cases: Mapping[str, StoredLatency]) -> Iterator[tuple[str, _Samples]]:
    for place, rounds in _processes(cases):
        for number, times_ns in enumerate(rounds):
            yield f"{place}[{number}]", (times_ns,)


# -- the files of a baseline


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

# The counts of each operator, by its qualified name.
LayerTypes: TypeAlias = Mapping[str, LayerTypeCounts]


class CountsPart(Stored, frozen=True, kw_only=True):
    """Counts as a file has them: the layer types next to the totals."""

    static: StoredTotals
    layer_types: LayerTypes

    def __post_init__(self) -> None:
        _check_domains(self.layer_types)


class CasePart(CaseFacts, frozen=True, kw_only=True):
    """A case, under its id, with the keys of its counts."""

    static: StoredTotals
    layer_types: LayerTypes
    observed: CountsPart | None

    def __post_init__(self) -> None:
        _check_domains(self.layer_types)


def _check_domains(layer_types: LayerTypes) -> None:
    for op, kind in layer_types.items():
        if kind.domain and not op.startswith(f"{kind.domain}::"):
            shown = shortened(kind.domain)
            raise ValueError(f'an operator of the domain "{shown}" is named {shown}::...')


class ModelBaselineFile(Stored, frozen=True, kw_only=True):
    """The content of `model.json`."""

    schema: int
    model: ModelIdentity
    twin: StoredTwin | None
    cases: Annotated[Mapping[str, CasePart], Meta(min_length=1)]


class MachinePart(MachineFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of a machine, under the key that they had when they were recorded."""

    stored_key: MachineKey = field(name="key")


class MachineBaselineFile(Stored, frozen=True, kw_only=True):
    """The content of a machine's file."""

    schema: int
    machine: MachinePart
    cases: Annotated[Mapping[str, StoredLatency], Meta(min_length=1)]


def is_machine_key(text: str) -> bool:
    """Whether a text is safe as a file name, and not the name of another file of a baseline."""
    try:
        msgspec.convert(text, MachineKey)
    except msgspec.ValidationError:
        return False
    return True


def read_model(data: bytes, path: Path) -> ModelBaseline:
    """Read the content of a `model.json`, or raise BaselineError with the place of the problem."""
    file = DocumentFile(path)
    found = file.read(data, ModelBaselineFile, SCHEMA)
    for case_id, case in found.cases.items():
        expected = f"b{case.batch_size}-c{case.cores}"
        if case_id != expected and not case_id.startswith(f"{expected}-"):
            problem = f"a case of batch size {case.batch_size} and {case.cores} cores is {expected}"
            raise file.error(problem, f'cases["{shortened(case_id)}"]')
    _require_one_structure(file, found.cases)
    return ModelBaseline(
        model=copy_fields(ModelFacts, found.model, path=None, function_file=None),
        cases=tuple(_read_case(case_id, case) for case_id, case in sorted(found.cases.items())),
        twin=found.twin,
    )


def _require_one_structure(file: DocumentFile, cases: Mapping[str, CasePart]) -> None:
    first: dict[str, str] = {}
    for case_id, case in sorted(cases.items()):
        if case.model_sha256 is None:
            continue
        known = first.setdefault(case.model_sha256, case_id)
        if cases[known].structure != case.structure:
            problem = f'it is not that of cases["{shortened(known)}"], which is the same model'
            raise file.error(problem, f'cases["{shortened(case_id)}"].structure')


def read_machine(data: bytes, path: Path) -> MachineBaseline:
    """Read the content of a machine's file. The key of the machine is its name."""
    file = DocumentFile(path)
    found = file.read(data, MachineBaselineFile, SCHEMA)
    key = found.machine.stored_key
    if key != path.stem:
        raise file.error(
            f'the key is "{key}", but the file is named {path.name}',
            "machine.key",
            f"A file belongs to one kind of machine: name it {key}.json.",
        )
    try:
        require_own_samples(found.cases)
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None
    machine = copy_fields(MachineFacts, found.machine)
    return MachineBaseline(key=key, machine=machine, cases=found.cases)


def _read_case(case_id: str, case: CasePart) -> StoredCase:
    observed = None if case.observed is None else _read_counts(case.observed)
    return copy_fields(StoredCase, case, id=case_id, static=_read_counts(case), observed=observed)


def _read_counts(counts: CountsPart | CasePart) -> StoredStatic:
    layer_types = {
        op: copy_fields(
            LayerType, kind, op_type=op.removeprefix(f"{kind.domain}::"), ns=None, share=None
        )
        for op, kind in sorted(counts.layer_types.items())
    }
    return copy_fields(StoredStatic, counts.static, layer_types=layer_types)


def write_model(stored: ModelBaseline) -> bytes:
    return _to_bytes(
        ModelBaselineFile(
            schema=SCHEMA,
            model=copy_fields(ModelIdentity, stored.model),
            twin=stored.twin,
            cases={case.id: _case_part(case) for case in stored.cases},
        )
    )


def write_machine(stored: MachineBaseline) -> bytes:
    machine = copy_fields(MachinePart, stored.machine, stored_key=stored.key)
    return _to_bytes(MachineBaselineFile(schema=SCHEMA, machine=machine, cases=stored.cases))


def _case_part(case: StoredCase) -> CasePart:
    observed = None if case.observed is None else CountsPart(**_counts(case.observed))
    return copy_fields(CasePart, case, observed=observed, **_counts(case.static))


def _counts(static: StoredStatic) -> dict[str, Any]:
    kinds = static.layer_types.items()
    return {
        "static": copy_fields(StoredTotals, static),
        "layer_types": {op: copy_fields(LayerTypeCounts, kind) for op, kind in kinds},
    }


def _to_bytes(document: Struct) -> bytes:
    return f"{_lines(to_json(document), 0)}\n".encode("ascii")


def _lines(value: Json, depth: int) -> str:
    """Write a value as JSON. One that contains objects or lists has a line for each entry."""
    if isinstance(value, Mapping):
        pairs = [(f"{json.dumps(key)}: ", value[key]) for key in sorted(value)]
        opening, closing = "{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        pairs = [("", item) for item in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, allow_nan=False)
    entries = [f"{key}{_lines(item, depth + 1)}" for key, item in pairs]
    if all(item is None or isinstance(item, str | int | float) for _, item in pairs):
        return f"{opening}{', '.join(entries)}{closing}"
    indent = "\n" + " " * (depth + 1)
    return f"{opening}{indent}{f',{indent}'.join(entries)}{indent[:-1]}{closing}"


# -- the stored form of a profile and its measurements


# About 40 kB with ten digits a sample. Such a file stays readable in a diff.
MAX_SAMPLES = 3_200
# Fewer samples would not show how the times of a round vary.
_MIN_SAMPLES = 4


def store_case(
    profile: CaseProfile,
    model: ModelFacts,
    provenance: Provenance,
    structure: str,
    fidelity: Fidelity | None = None,
) -> StoredCase:
    case, run = profile.case, profile.measured
    return StoredCase(
        id=case.id,
        batch_size=case.batch_size,
        cores=case.cores,
        dims=dict(sorted(case.dims)),
        generation=None,
        engine=case.engine if run is None else run.engine.name,
        options=None,
        inputs=StoredInputs(specs={}, sha256=None),
        model_sha256=model.sha256,
        static=store_static(profile.static.from_graph),
        observed=_observed(profile.static),
        fidelity=fidelity,
        provenance=provenance,
        plan=None,
        structure=structure,
    )


def generation_of(binding: Binding) -> StoredGeneration | None:
    phase = binding.phase
    if phase is None:
        return None
    return StoredGeneration(
        phase=phase.phase,
        prompt=phase.prompt,
        generate=phase.generate,
        state=dict(sorted(binding.state.items())),
    )


def store_static(static: StaticProfile) -> StoredStatic:
    return copy_fields(
        StoredStatic,
        static,
        layer_types={
            op: replace(kind, ns=None, share=None)
            for op, kind in sorted(static.layer_types.items())
        },
        uncounted_ops=dict(sorted(static.uncounted_ops.items())),
    )


def _observed(static: StaticProfile) -> StoredStatic | None:
    """Return the counts that a run completed, or None if the graph has all or some are random."""
    if static.graph_alone is None or static.observed is None:
        return None
    return store_static(static.observed)


def store_latency(
    profiles: Sequence[CaseProfile], model: ModelFacts, date: dt.date
) -> StoredLatency:
    """Return the stored latency of a case, from one profile for each process that measured it."""
    runs = [(profile, profile.measured) for profile in profiles]
    measured = [(profile, run) for profile, run in runs if run is not None]
    taken = sum(len(made.times_ns) for _, run in measured for made in run.rounds)
    share = min(1.0, MAX_SAMPLES / taken)
    return StoredLatency(
        engine=measured[0][1].engine,
        model_sha256=model.sha256,
        processes=tuple(_process(profile, run, date, share) for profile, run in measured),
    )


def thin(times_ns: Sequence[int], most: int) -> tuple[int, ...]:
    """Select at most `most` of the samples, in order of time, with nearly the same percentiles.

    The kept samples have evenly spread ranks from the smallest to the largest. A percentile by
    linear interpolation is then at the same share of the ranks as before.
    """
    count = len(times_ns)
    if count <= most:
        return tuple(times_ns)
    by_rank = sorted(range(count), key=lambda index: times_ns[index])
    kept = {by_rank[round(step * (count - 1) / (most - 1))] for step in range(most)}
    return tuple(times_ns[index] for index in sorted(kept))


def _process(profile: CaseProfile, run: Measurement, date: dt.date, share: float) -> StoredProcess:
    """Return the rounds of one process with this share of their samples.

    Percentiles are computed from the samples of all rounds together, so a long round must outweigh
    a short one as it did when it was measured.
    """
    kinds = sorted(profile.layer_types.items())
    spent = {op: round(kind.ns) for op, kind in kinds if kind.ns is not None}
    return StoredProcess(
        date=date,
        load_ns=tuple(made.load_ns for made in run.rounds),
        first_ns=tuple(made.first_ns for made in run.rounds),
        peak_rss_bytes=run.peak_rss_bytes,
        layer_type_ns=None if run.layer_times is None else spent,
        samples=tuple(len(made.times_ns) for made in run.rounds),
        times_ns=tuple(
            thin(made.times_ns, max(_MIN_SAMPLES, int(share * len(made.times_ns))))
            for made in run.rounds
        ),
    )
