"""The files of a baseline: their types, how records become them, and how they are read back.

The same content is the same bytes: keys are sorted, and a list or object of plain values, such as
the samples of a round, stands on one line, so that a line of a diff says what changed. The text is
ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from pytest_modelperf.baselines.copied_samples import require_own_samples
from pytest_modelperf.baselines.records import (
    CaseFacts,
    MachineBaseline,
    MachineKey,
    ModelBaseline,
    Stored,
    StoredCase,
    StoredLatency,
    StoredStatic,
    StoredTotals,
    StoredTwin,
)
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, shortened
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.records import (
    LayerType,
    LayerTypeCounts,
    ModelFacts,
    ModelIdentity,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, to_json

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

# The counts of each operator, under its qualified name.
LayerTypes: TypeAlias = Mapping[str, LayerTypeCounts]


class ObservedPart(Stored, frozen=True, kw_only=True):
    """What one run completed: totals and layer types beside each other."""

    static: StoredTotals
    layer_types: LayerTypes

    def __post_init__(self) -> None:
        _check_domains(self.layer_types)


class CasePart(CaseFacts, frozen=True, kw_only=True):
    """A case, under its id. Its totals and layer types stand beside each other."""

    static: StoredTotals | None
    layer_types: LayerTypes | None
    observed: ObservedPart | None

    def __post_init__(self) -> None:
        if (self.static is None) != (self.layer_types is None):
            raise ValueError("only one of static and layer_types is null")
        _check_domains(self.layer_types or {})


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


def _check_domains(layer_types: LayerTypes) -> None:
    for op, kind in layer_types.items():
        if kind.domain and not op.startswith(f"{kind.domain}::"):
            shown = shortened(kind.domain)
            raise ValueError(f'an operator of the domain "{shown}" is named {shown}::...')


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
        model=copy_fields(ModelFacts, found.model, path=None),
        cases=tuple(_read_case(case_id, case) for case_id, case in sorted(found.cases.items())),
        twin=found.twin,
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
    try:
        require_own_samples(found.cases)
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None
    machine = copy_fields(MachineFacts, found.machine)
    return MachineBaseline(key=key, machine=machine, cases=found.cases)


def _read_case(case_id: str, case: CasePart) -> StoredCase:
    observed = case.observed
    return copy_fields(
        StoredCase,
        case,
        id=case_id,
        static=_read_counts(case.static, case.layer_types),
        observed=None if observed is None else _read_counts(observed.static, observed.layer_types),
    )


def _read_counts(totals: StoredTotals | None, kinds: LayerTypes | None) -> StoredStatic | None:
    if totals is None or kinds is None:
        return None
    layer_types = {
        op: copy_fields(
            LayerType, kind, op_type=op.removeprefix(f"{kind.domain}::"), ns=None, share=None
        )
        for op, kind in sorted(kinds.items())
    }
    return copy_fields(StoredStatic, totals, layer_types=layer_types)


# -- writing


def write_model(stored: ModelBaseline) -> bytes:
    """The content of `model.json`."""
    return _to_bytes(
        ModelBaselineFile(
            schema=SCHEMA,
            model=copy_fields(ModelIdentity, stored.model),
            twin=stored.twin,
            cases={case.id: _case_part(case) for case in stored.cases},
        )
    )


def write_machine(stored: MachineBaseline) -> bytes:
    """The content of a machine's file."""
    machine = copy_fields(MachinePart, stored.machine, stored_key=stored.key)
    return _to_bytes(MachineBaselineFile(schema=SCHEMA, machine=machine, cases=stored.cases))


def _case_part(case: StoredCase) -> CasePart:
    known, observed = case.static, case.observed
    return copy_fields(
        CasePart,
        case,
        static=None if known is None else copy_fields(StoredTotals, known),
        layer_types=None if known is None else _layer_types(known),
        observed=None
        if observed is None
        else ObservedPart(
            static=copy_fields(StoredTotals, observed), layer_types=_layer_types(observed)
        ),
    )


def _layer_types(static: StoredStatic) -> LayerTypes:
    kinds = static.layer_types.items()
    return {op: copy_fields(LayerTypeCounts, kind) for op, kind in kinds}


def _to_bytes(document: Struct) -> bytes:
    return f"{_lines(to_json(document), 0)}\n".encode("ascii")


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
