"""The files of a baseline: their types, how records become them, and how they are read back.

The same content is the same bytes: keys are sorted, and a list or object of plain values, such as
the samples of a round, stands on one line, so that a line of a diff says what changed. The text is
ASCII.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from pytest_modelperf.baselines.copied_samples import require_own_samples
from pytest_modelperf.baselines.records import (
    FIDELITY,
    Fidelity,
    MachineBaseline,
    ModelBaseline,
    Provenance,
    StoredCase,
    StoredGeneration,
    StoredLatency,
    StoredPlan,
    StoredProcess,
    StoredRound,
    StoredStatic,
    StoredTwin,
)
from pytest_modelperf.files.documents import (
    ContradictionError,
    Count,
    Digest,
    DocumentFile,
    Number,
    Positive,
    rounded,
    shortened,
)
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import LayerType, ModelFacts, StoredInputs
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.stats.records import Ratio

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

# The digest of a plan or of a structure.
ShortDigest: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]
# A key becomes the name of a file beside `model.json`.
MachineKey: TypeAlias = Annotated[
    str, Meta(pattern=r"^(?!model$)[a-z0-9_]+(-[a-z0-9_]+)*$(?!\n)", max_length=200)
]


class _Part(Struct, forbid_unknown_fields=True):
    """A part of a file: every key has to be there, and no other."""


# -- model.json


class ModelPart(_Part):
    """The model that was recorded last."""

    name: str
    sha256: Digest | None
    size_bytes: Count | None = field(name="bytes")
    total_bytes: Count | None
    opsets: Mapping[str, Count]
    producer: str


class TwinPart(_Part):
    """The file of the twin, and the model that it stands for."""

    sha256: Digest
    size_bytes: Count = field(name="bytes")
    model_sha256: Digest | None
    left_out_bytes: Count | None


class StaticPart(_Part):
    """The totals of a case."""

    macs: Count
    elementwise_ops: Count
    backward_macs: Count
    effective_macs: Count | None
    params: Count
    scalar_params: Count | None
    weight_bytes: Count
    activation_bytes: Count
    knows_activations: bool
    peak_activation_bytes: Count | None
    uncounted_ops: Mapping[str, Count]
    notes: tuple[str, ...]


class LayerTypePart(_Part):
    """The totals of one operator, under its qualified name."""

    domain: str
    count: Count
    macs: Count | None
    elementwise_ops: Count | None
    backward_macs: Count | None
    params: Count
    weight_bytes: Count
    output_bytes: Count | None


class CountsPart(_Part):
    """The counts of a case. Both are null if nothing was counted."""

    static: StaticPart | None
    layer_types: Mapping[str, LayerTypePart] | None

    def __post_init__(self) -> None:
        if (self.static is None) != (self.layer_types is None):
            raise ValueError("only one of static and layer_types is null")
        for op, kind in (self.layer_types or {}).items():
            if kind.domain and not op.startswith(f"{kind.domain}::"):
                shown = shortened(kind.domain)
                raise ValueError(f'an operator of the domain "{shown}" is named {shown}::...')


class ObservedPart(CountsPart):
    """What one run completed."""

    static: StaticPart
    layer_types: Mapping[str, LayerTypePart]


class ProvenancePart(_Part):
    """When a case was recorded, with which packages, and where."""

    date: dt.date
    machine: MachineKey | None
    packages: Mapping[str, str]


class InputsPart(_Part):
    """The inputs that were given."""

    specs: Mapping[str, str]
    sha256: Digest | None


class FidelityPart(_Part):
    """How the twin ran beside its model."""

    ratio: Number | None
    interval: tuple[Number, Number] | None
    rounds: Count
    has_same_plan: bool | None
    is_trusted: bool
    reason: str | None

    def __post_init__(self) -> None:
        if self.ratio is None:
            if self.interval or self.rounds:
                raise ValueError("there are rounds or an interval, but no ratio")
        elif self.interval and not self.interval[0] <= self.ratio <= self.interval[1]:
            raise ValueError("the ratio is outside of its interval")
        if not self.is_trusted and self._has_no_doubt:
            raise ValueError("the twin is not trusted, but was shown to run like the model")

    @property
    def _has_no_doubt(self) -> bool:
        """Whether a recording would trust the twin: by the plans alone, or by the whole interval.

        Bounds are stored rounded, so one that is the limit itself may have been beyond it.
        """
        if self.ratio is None or self.interval is None:
            return self.ratio is None and self.has_same_plan is True
        return all(abs(bound - 1.0) < FIDELITY for bound in self.interval)


class PlanPart(_Part):
    """The plan that the engine made of the model, on the machine of this key."""

    digest: ShortDigest
    kernels: Count
    machine: MachineKey


class GenerationPart(_Part):
    """The phase of a generation that a case is."""

    phase: Phase
    prompt: Count
    generate: Count
    state: Mapping[str, str]


class CasePart(CountsPart):
    """A case, under its id."""

    batch_size: Positive
    cores: Positive
    dims: Mapping[str, Count]
    generation: GenerationPart | None
    engine: str | None
    options: Mapping[str, str] | None
    inputs: InputsPart | None
    model_sha256: Digest | None
    fidelity: FidelityPart | None
    provenance: ProvenancePart | None
    observed: ObservedPart | None
    plan: PlanPart | None
    structure: ShortDigest | None


class ModelBaselineFile(_Part):
    """The content of `model.json`."""

    schema: int
    model: ModelPart
    twin: TwinPart | None
    cases: Annotated[Mapping[str, CasePart], Meta(min_length=1)]


# -- the file of a machine


class MachinePart(MachineFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of a machine, under the key that they had when they were recorded."""

    stored_key: MachineKey = field(name="key")
    quota_cores: Number | None = None


class EnginePart(_Part):
    """The engine that ran a case, and its options."""

    name: str
    version: str | None
    python: str | None
    options: Mapping[str, str]
    providers: tuple[str, ...]


class ProcessPart(_Part):
    """The rounds of a process, figure by figure."""

    date: dt.date
    load_ns: tuple[Count, ...]
    first_ns: tuple[Count, ...]
    peak_rss_bytes: Count | None
    layer_type_ns: Mapping[str, Count] | None
    samples: tuple[Count, ...]
    times_ns: Annotated[
        tuple[Annotated[tuple[Count, ...], Meta(min_length=1)], ...], Meta(min_length=1)
    ]

    def __post_init__(self) -> None:
        rounds = len(self.times_ns)
        if not rounds == len(self.load_ns) == len(self.first_ns) == len(self.samples):
            raise ValueError("times_ns, load_ns, first_ns and samples are of different lengths")
        for stored, taken in zip(self.times_ns, self.samples, strict=True):
            if len(stored) > taken:
                raise ValueError(f"{len(stored)} samples are stored of {taken}")


class LatencyPart(_Part):
    """The processes that measured a case, under its id."""

    engine: EnginePart
    model_sha256: Digest | None
    processes: Annotated[tuple[ProcessPart, ...], Meta(min_length=1)]


class MachineBaselineFile(_Part):
    """The content of a machine's file."""

    schema: int
    machine: MachinePart
    cases: Annotated[Mapping[str, LatencyPart], Meta(min_length=1)]


# -- reading


def is_machine_key(text: str) -> bool:
    """Whether it is safe as a file name, and not the name of another file of a baseline."""
    try:
        msgspec.convert(text, MachineKey)
    except msgspec.ValidationError:
        return False
    return True


def read_model(data: bytes, path: Path) -> ModelBaseline:
    """The content of a `model.json`; BaselineError with file and place where it is not valid."""
    file = DocumentFile(path)
    found = file.read(data, ModelBaselineFile, SCHEMA)
    for case_id, case in found.cases.items():
        expected = f"b{case.batch_size}-c{case.cores}"
        if case_id != expected and not case_id.startswith(f"{expected}-"):
            problem = f"a case of batch size {case.batch_size} and {case.cores} cores is {expected}"
            raise file.error(problem, f'cases["{shortened(case_id)}"]')
    _require_one_structure(file, found.cases)
    return ModelBaseline(
        model=ModelFacts(**asdict(found.model), path=None),
        cases=tuple(_read_case(case_id, case) for case_id, case in sorted(found.cases.items())),
        twin=None if found.twin is None else StoredTwin(**asdict(found.twin)),
    )


def _require_one_structure(file: DocumentFile, cases: Mapping[str, CasePart]) -> None:
    """BaselineError if cases of the same model differ in its structure, or one of them has none."""
    first: dict[str, str] = {}
    for case_id, case in sorted(cases.items()):
        if case.model_sha256 is None:
            continue
        known = first.setdefault(case.model_sha256, case_id)
        if cases[known].structure != case.structure:
            problem = f'it is not that of cases["{shortened(known)}"], which is the same model'
            raise file.error(problem, f'cases["{shortened(case_id)}"].structure')


def read_machine(data: bytes, path: Path) -> MachineBaseline:
    """The content of a machine's file, which is named by the machine's key."""
    file = DocumentFile(path)
    found = file.read(data, MachineBaselineFile, SCHEMA)
    key = found.machine.stored_key
    if key != path.stem:
        raise file.error(
            f'the key is "{key}", but the file is named {path.name}',
            "machine.key",
            f"A file belongs to one kind of machine: name it {key}.json.",
        )
    facts = {name: getattr(found.machine, name) for name in MachineFacts.__struct_fields__}
    cases = tuple(_read_latency(case_id, case) for case_id, case in sorted(found.cases.items()))
    try:
        require_own_samples(cases)
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None
    return MachineBaseline(key=key, machine=MachineFacts(**facts), cases=cases)


def _read_case(case_id: str, case: CasePart) -> StoredCase:
    known = case.generation
    return StoredCase(
        id=case_id,
        batch_size=case.batch_size,
        cores=case.cores,
        model_sha256=case.model_sha256,
        static=_read_counts(case),
        observed=None if case.observed is None else _read_counts(case.observed),
        provenance=None if case.provenance is None else Provenance(**asdict(case.provenance)),
        dims=case.dims,
        generation=None if known is None else StoredGeneration(**asdict(known)),
        engine=case.engine,
        options=case.options,
        inputs=None if case.inputs is None else StoredInputs(**asdict(case.inputs)),
        fidelity=None if case.fidelity is None else _read_fidelity(case.fidelity),
        plan=None if case.plan is None else StoredPlan(**asdict(case.plan)),
        structure=case.structure,
    )


def _read_counts(counts: CountsPart) -> StoredStatic | None:
    if counts.static is None or counts.layer_types is None:
        return None
    kinds = {
        op: LayerType(op_type=op.removeprefix(f"{kind.domain}::"), **asdict(kind))
        for op, kind in sorted(counts.layer_types.items())
    }
    return StoredStatic(**asdict(counts.static), layer_types=kinds)


def _read_fidelity(part: FidelityPart) -> Fidelity:
    return Fidelity(
        ratio=None if part.ratio is None else Ratio(part.ratio, *(part.interval or (None, None))),
        rounds=part.rounds,
        is_trusted=part.is_trusted,
        reason=part.reason,
        has_same_plan=part.has_same_plan,
    )


def _read_latency(case_id: str, part: LatencyPart) -> StoredLatency:
    return StoredLatency(
        id=case_id,
        engine=EngineFacts(**asdict(part.engine)),
        model_sha256=part.model_sha256,
        processes=tuple(map(_read_process, part.processes)),
    )


def _read_process(part: ProcessPart) -> StoredProcess:
    columns = zip(part.load_ns, part.first_ns, part.samples, part.times_ns, strict=True)
    return StoredProcess(
        date=part.date,
        rounds=tuple(
            StoredRound(load_ns=load, first_ns=first, samples=samples, times_ns=times)
            for load, first, samples, times in columns
        ),
        peak_rss_bytes=part.peak_rss_bytes,
        layer_type_ns=part.layer_type_ns,
    )


# -- writing


def write_model(stored: ModelBaseline) -> bytes:
    """The content of `model.json`."""
    model, twin = stored.model, stored.twin
    return _to_bytes(
        ModelBaselineFile(
            schema=SCHEMA,
            model=ModelPart(
                name=model.name,
                sha256=model.sha256,
                size_bytes=model.size_bytes,
                opsets=model.opsets,
                producer=model.producer,
                total_bytes=model.total_bytes,
            ),
            twin=None if twin is None else TwinPart(**asdict(twin)),
            cases={case.id: _case_part(case) for case in stored.cases},
        )
    )


def write_machine(stored: MachineBaseline) -> bytes:
    """The content of a machine's file."""
    quota = stored.machine.quota_cores
    facts = {**asdict(stored.machine), "quota_cores": None if quota is None else rounded(quota)}
    return _to_bytes(
        MachineBaselineFile(
            schema=SCHEMA,
            machine=MachinePart(stored_key=stored.key, **facts),
            cases={case.id: _latency_part(case) for case in stored.cases},
        )
    )


def _case_part(case: StoredCase) -> CasePart:
    known = case.generation
    observed = None if case.observed is None else ObservedPart(**_counts(case.observed))
    return CasePart(
        batch_size=case.batch_size,
        cores=case.cores,
        dims=case.dims,
        generation=None if known is None else GenerationPart(**asdict(known)),
        engine=case.engine,
        options=case.options,
        inputs=None if case.inputs is None else InputsPart(**asdict(case.inputs)),
        model_sha256=case.model_sha256,
        fidelity=None if case.fidelity is None else _fidelity_part(case.fidelity),
        provenance=None if case.provenance is None else ProvenancePart(**asdict(case.provenance)),
        observed=observed,
        plan=None if case.plan is None else PlanPart(**asdict(case.plan)),
        structure=case.structure,
        **({"static": None, "layer_types": None} if case.static is None else _counts(case.static)),
    )


def _counts(static: StoredStatic) -> dict[str, Any]:
    return {
        "static": StaticPart(**_shared(static, StaticPart)),
        "layer_types": {
            op: LayerTypePart(**_shared(kind, LayerTypePart))
            for op, kind in static.layer_types.items()
        },
    }


def _fidelity_part(fidelity: Fidelity) -> FidelityPart:
    ratio = fidelity.ratio
    low, high = (None, None) if ratio is None else (ratio.low, ratio.high)
    return FidelityPart(
        ratio=None if ratio is None else rounded(ratio.value),
        interval=None if low is None or high is None else (rounded(low), rounded(high)),
        rounds=fidelity.rounds,
        has_same_plan=fidelity.has_same_plan,
        is_trusted=fidelity.is_trusted,
        reason=fidelity.reason,
    )


def _latency_part(case: StoredLatency) -> LatencyPart:
    return LatencyPart(
        engine=EnginePart(**asdict(case.engine)),
        model_sha256=case.model_sha256,
        processes=tuple(map(_process_part, case.processes)),
    )


def _process_part(process: StoredProcess) -> ProcessPart:
    rounds = process.rounds
    return ProcessPart(
        date=process.date,
        load_ns=tuple(made.load_ns for made in rounds),
        first_ns=tuple(made.first_ns for made in rounds),
        peak_rss_bytes=process.peak_rss_bytes,
        layer_type_ns=process.layer_type_ns,
        samples=tuple(made.samples for made in rounds),
        times_ns=tuple(made.times_ns for made in rounds),
    )


def _shared(record: Struct, part: type[Struct]) -> dict[str, Any]:
    """The fields of a record that a part of a file has too."""
    return {name: getattr(record, name) for name in part.__struct_fields__}


def _to_bytes(document: Struct) -> bytes:
    return f"{_lines(msgspec.to_builtins(document), 0)}\n".encode("ascii")


def _lines(value: Json, depth: int) -> str:
    """A value as JSON; one that holds other objects or lists has a line for each entry."""
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
