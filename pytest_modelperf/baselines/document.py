"""The files of a baseline: their types, how records become them, and how they are read back.

The same content is the same bytes: keys are sorted, and a list or object of plain values, such as
the samples of a round, stands on one line, so that a line of a diff says what changed. The text is
ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

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
from pytest_modelperf.profiler.counting.records import LayerType, LayerTypeCounts
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.records import ModelFacts, ModelIdentity
from pytest_modelperf.report.document import SCHEMA, copy_fields, to_json

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

# The counts of each operator, under its qualified name.
LayerTypes: TypeAlias = Mapping[str, LayerTypeCounts]


class CountsPart(Stored, frozen=True, kw_only=True):
    """Counts as a file has them: the layer types stand beside the totals."""

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
        model=copy_fields(ModelFacts, found.model, path=None, function_file=None),
        cases=tuple(_read_case(case_id, case) for case_id, case in sorted(found.cases.items())),
        twin=found.twin,
    )


def _require_one_structure(file: DocumentFile, cases: Mapping[str, CasePart]) -> None:
    """BaselineError if cases of the same model differ in its structure."""
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
