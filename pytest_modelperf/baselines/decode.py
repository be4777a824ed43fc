"""The files of a baseline to records, strictly: nothing is guessed, nothing is passed over.

An unknown key is an error. Were it ignored, a misspelt one would go unnoticed, and the next update
would drop it; whoever adds a key raises the schema.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TypeVar

from pytest_modelperf.baselines.records import (
    Fidelity,
    MachineBaseline,
    ModelBaseline,
    Provenance,
    StoredCase,
    StoredLatency,
    StoredProcess,
    StoredRound,
    StoredStatic,
    StoredTwin,
)
from pytest_modelperf.baselines.upgrades import (
    MACHINE_SCHEMA,
    MACHINE_UPGRADES,
    MODEL_SCHEMA,
    MODEL_UPGRADES,
    upgrade,
)
from pytest_modelperf.files.fields import Field
from pytest_modelperf.files.strict_json import parse_json
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import LayerType, ModelFacts, StoredInputs
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable

T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
# A key becomes the name of a file beside `model.json`.
_KEY = re.compile(r"(?!model\Z)[a-z0-9_]+(-[a-z0-9_]+)*", re.ASCII)
_KEY_LENGTH = 200
_SHOWN = 40


def is_machine_key(text: str) -> bool:
    """Whether it is safe as the name of a file, and not that of another file of a baseline."""
    return len(text) <= _KEY_LENGTH and _KEY.fullmatch(text) is not None


def decode_model(data: bytes, path: Path) -> ModelBaseline:
    """What a `model.json` says; BaselineError with file and place where it is not valid."""
    root = upgrade(Field(parse_json(data, path), path), MODEL_SCHEMA, MODEL_UPGRADES)
    entries = root.entries("cases", "model", "schema", "twin")
    cases = entries["cases"].mapping()
    return ModelBaseline(
        model=_model(entries["model"]),
        cases=tuple(_case(case_id, field) for case_id, field in sorted(cases.items())),
        twin=entries["twin"].optional(_twin),
    )


def decode_machine(data: bytes, path: Path) -> MachineBaseline:
    """What the file of a machine says; it is named by the machine's key."""
    root = upgrade(Field(parse_json(data, path), path), MACHINE_SCHEMA, MACHINE_UPGRADES)
    entries = root.entries("cases", "machine", "schema")
    machine = entries["machine"].entries("key", *MachineFacts.__struct_fields__)
    key = machine["key"].matching(_KEY, "the key of a machine")
    if key != path.stem:
        raise machine["key"].error(
            f'the key is "{key}", but the file is named {path.name}',
            f"A file belongs to one kind of machine: name it {key}.json.",
        )
    cases = entries["cases"].mapping()
    return MachineBaseline(
        key=key,
        machine=read_machine_facts(machine),
        cases=tuple(_latency(case_id, field) for case_id, field in sorted(cases.items())),
    )


def _model(field: Field) -> ModelFacts:
    entries = field.entries("bytes", "name", "opsets", "producer", "sha256")
    return ModelFacts(
        name=entries["name"].text(),
        path=None,
        sha256=entries["sha256"].optional(_digest),
        size_bytes=entries["bytes"].optional(Field.integer),
        opsets=_integers(entries["opsets"]),
        producer=entries["producer"].text(),
    )


def _twin(field: Field) -> StoredTwin:
    entries = field.entries("bytes", "left_out_bytes", "model_sha256", "sha256")
    return StoredTwin(
        sha256=_digest(entries["sha256"]),
        size_bytes=entries["bytes"].integer(),
        model_sha256=entries["model_sha256"].optional(_digest),
        left_out_bytes=entries["left_out_bytes"].optional(Field.integer),
    )


def _case(case_id: str, field: Field) -> StoredCase:
    entries = field.entries(
        *("batch_size", "cores", "dims", "engine", "fidelity", "inputs", "layer_types"),
        *("model_sha256", "observed", "options", "provenance", "static"),
    )
    batch_size = entries["batch_size"].integer(least=1)
    cores = entries["cores"].integer(least=1)
    expected = f"b{batch_size}-c{cores}"
    if case_id != expected and not case_id.startswith(f"{expected}-"):
        raise field.error(f"a case of batch size {batch_size} and {cores} cores is {expected}")
    return StoredCase(
        id=case_id,
        batch_size=batch_size,
        cores=cores,
        provenance=entries["provenance"].optional(_provenance),
        model_sha256=entries["model_sha256"].optional(_digest),
        static=_counts(field, entries),
        observed=entries["observed"].optional(_observed),
        dims=_integers(entries["dims"]),
        engine=entries["engine"].optional(Field.text),
        options=entries["options"].optional(_texts),
        inputs=entries["inputs"].optional(_inputs),
        fidelity=entries["fidelity"].optional(_fidelity),
    )


def _provenance(field: Field) -> Provenance:
    entries = field.entries("date", "machine", "packages")
    machine = entries["machine"].optional(lambda key: key.matching(_KEY, "the key of a machine"))
    return Provenance(
        date=_day(entries["date"]), packages=_texts(entries["packages"]), machine=machine
    )


def _inputs(field: Field) -> StoredInputs:
    entries = field.entries("sha256", "specs")
    return StoredInputs(specs=_texts(entries["specs"]), sha256=entries["sha256"].optional(_digest))


def _observed(field: Field) -> StoredStatic:
    entries = field.entries("layer_types", "static")
    found = _counts(field, entries)
    if found is None:
        raise field.error("static is null")
    return found


def _counts(field: Field, entries: dict[str, Field]) -> StoredStatic | None:
    static, kinds = entries["static"], entries["layer_types"]
    if (static.value is None) != (kinds.value is None):
        raise field.error("only one of static and layer_types is null")
    return None if static.value is None else _static(static, _layer_types(kinds))


def _static(field: Field, layer_types: dict[str, LayerType]) -> StoredStatic:
    entries = field.entries(
        *("activation_bytes", "backward_macs", "effective_macs", "elementwise_ops"),
        *("knows_activations", "macs", "notes", "params", "peak_activation_bytes"),
        *("scalar_params", "uncounted_ops", "weight_bytes"),
    )
    return StoredStatic(
        macs=entries["macs"].integer(),
        elementwise_ops=entries["elementwise_ops"].integer(),
        backward_macs=entries["backward_macs"].integer(),
        effective_macs=entries["effective_macs"].optional(Field.integer),
        params=entries["params"].integer(),
        scalar_params=entries["scalar_params"].optional(Field.integer),
        weight_bytes=entries["weight_bytes"].integer(),
        activation_bytes=entries["activation_bytes"].integer(),
        knows_activations=entries["knows_activations"].flag(),
        peak_activation_bytes=entries["peak_activation_bytes"].optional(Field.integer),
        layer_types=layer_types,
        uncounted_ops=_integers(entries["uncounted_ops"]),
        notes=tuple(note.text() for note in entries["notes"].items()),
    )


def _layer_types(field: Field) -> dict[str, LayerType]:
    return {op: _layer_type(op, kind) for op, kind in sorted(field.mapping().items())}


def _layer_type(op: str, field: Field) -> LayerType:
    entries = field.entries(
        *("backward_macs", "count", "domain", "elementwise_ops"),
        *("macs", "output_bytes", "params", "weight_bytes"),
    )
    domain = entries["domain"].text()
    prefix = f"{domain}::" if domain else ""
    if not op.startswith(prefix):
        shown = printable(domain[:_SHOWN])
        raise field.error(f'an operator of the domain "{shown}" is named {shown}::...')
    return LayerType(
        op_type=op[len(prefix) :],
        domain=domain,
        count=entries["count"].integer(),
        macs=entries["macs"].optional(Field.integer),
        elementwise_ops=entries["elementwise_ops"].optional(Field.integer),
        backward_macs=entries["backward_macs"].optional(Field.integer),
        params=entries["params"].integer(),
        weight_bytes=entries["weight_bytes"].integer(),
        output_bytes=entries["output_bytes"].optional(Field.integer),
    )


def _fidelity(field: Field) -> Fidelity:
    entries = field.entries("has_same_plan", "interval", "is_trusted", "ratio", "reason", "rounds")
    value = entries["ratio"].number()
    interval = entries["interval"].optional(_interval)
    if interval is not None and not interval[0] <= value <= interval[1]:
        raise field.error("the ratio is outside of its interval")
    return Fidelity(
        ratio=Ratio(value, *(interval or (None, None))),
        rounds=entries["rounds"].integer(),
        is_trusted=entries["is_trusted"].flag(),
        reason=entries["reason"].optional(Field.text),
        has_same_plan=entries["has_same_plan"].optional(Field.flag),
    )


def _interval(field: Field) -> tuple[float, float]:
    items = field.items()
    if len(items) != 2:
        raise field.error(f"expected [low, high], found {len(items)} values")
    return items[0].number(), items[1].number()


def read_machine_facts(entries: dict[str, Field]) -> MachineFacts:
    def text(key: str) -> str | None:
        return entries[key].optional(Field.text)

    def integer(key: str) -> int | None:
        return entries[key].optional(Field.integer)

    sets = entries["instruction_sets"]
    return MachineFacts(
        cpu=text("cpu"),
        microarchitecture=text("microarchitecture"),
        instruction_sets=sets.optional(lambda names: tuple(n.text() for n in names.items())),
        physical_cores=integer("physical_cores"),
        logical_cores=integer("logical_cores"),
        usable_cores=integer("usable_cores"),
        quota_cores=entries["quota_cores"].optional(Field.number),
        caches=_integers(entries["caches"]),
        memory_bytes=integer("memory_bytes"),
        memory_limit_bytes=integer("memory_limit_bytes"),
        governor=text("governor"),
        turbo=entries["turbo"].optional(Field.flag),
        virtualization=text("virtualization"),
        system=text("system"),
        kernel=text("kernel"),
        distribution=text("distribution"),
        architecture=text("architecture"),
        python=text("python"),
        packages=_texts(entries["packages"]),
    )


def _latency(case_id: str, field: Field) -> StoredLatency:
    entries = field.entries("engine", "model_sha256", "processes")
    engine = entries["engine"].entries("name", "options", "providers", "python", "version")
    return StoredLatency(
        id=case_id,
        engine=EngineFacts(
            name=engine["name"].text(),
            version=engine["version"].optional(Field.text),
            python=engine["python"].optional(Field.text),
            options=_texts(engine["options"]),
            providers=tuple(name.text() for name in engine["providers"].items()),
        ),
        model_sha256=entries["model_sha256"].optional(_digest),
        processes=_at_least_one(
            entries["processes"], tuple(map(_process, entries["processes"].items()))
        ),
    )


def _process(field: Field) -> StoredProcess:
    entries = field.entries(
        *("date", "first_ns", "layer_type_ns", "load_ns"),
        *("peak_rss_bytes", "samples", "times_ns"),
    )
    load_ns, first_ns = entries["load_ns"].integers(), entries["first_ns"].integers()
    samples = entries["samples"].integers()
    times = entries["times_ns"].items()
    if not len(times) == len(load_ns) == len(first_ns) == len(samples):
        raise field.error("times_ns, load_ns, first_ns and samples are of different lengths")
    rounds = []
    for index, block in enumerate(times):
        times_ns = _at_least_one(block, block.integers())
        if len(times_ns) > samples[index]:
            raise block.error(f"{len(times_ns)} samples are stored of {samples[index]}")
        rounds.append(
            StoredRound(
                load_ns=load_ns[index],
                first_ns=first_ns[index],
                samples=samples[index],
                times_ns=times_ns,
            )
        )
    return StoredProcess(
        date=_day(entries["date"]),
        rounds=_at_least_one(entries["times_ns"], tuple(rounds)),
        peak_rss_bytes=entries["peak_rss_bytes"].optional(Field.integer),
        layer_type_ns=entries["layer_type_ns"].optional(_integers),
    )


def _at_least_one(field: Field, values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise field.error("expected at least one value, found an empty list")
    return values


def _digest(field: Field) -> str:
    return field.matching(_DIGEST, "a SHA-256 digest of 64 hexadecimal digits")


def _day(field: Field) -> dt.date:
    text = field.matching(_DAY, "a day such as 2026-01-31")
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise field.error(f"{text} is no day: {error}") from None


def _integers(field: Field) -> dict[str, int]:
    return {key: value.integer() for key, value in sorted(field.mapping().items())}


def _texts(field: Field) -> dict[str, str]:
    return {key: value.text() for key, value in sorted(field.mapping().items())}
