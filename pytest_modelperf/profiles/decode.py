"""A kept profile read back into records: nothing is guessed, nothing is passed over.

The document around it has exactly its own keys. In the profile all keys have to be there, and more
may be, for those of `modelperf profile --json` grow without a new schema. What is computed from
other values (sums, shares, rates) is computed again, and not read.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.files.documents import Advice
from pytest_modelperf.files.fields import MAX_INTEGER, Field
from pytest_modelperf.files.strict_json import parse_json
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import (
    Block,
    EngineFacts,
    LayerTime,
    Measurement,
    Noise,
    Round,
    RowKind,
)
from pytest_modelperf.profiler.records import (
    Case,
    CaseProfile,
    ModelFacts,
    Outcome,
    Profile,
    Shape,
    Sparsity,
    StaticLayer,
    StaticProfile,
    Uncounted,
)
from pytest_modelperf.profiles.decode_roofline import decode_roofline
from pytest_modelperf.profiles.document import DATE_FORMAT, NAMED_SCHEMA
from pytest_modelperf.profiles.records import NamedProfile
from pytest_modelperf.profiles.strict_values import (
    nanoseconds,
    number,
    one_of,
    some_items,
    texts,
    with_keys,
)
from pytest_modelperf.report.document import SCHEMA
from pytest_modelperf.roofline.records import Roofline
from pytest_modelperf.stats.records import PERCENTS, Latency, Percentile
from pytest_modelperf.text.escaping import printable

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NS_PER_MS = 1e6
_MEASURED = "measured"
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_KINDS = {kind.value: kind for kind in RowKind}
# Of what could not be counted a profile keeps how often, and not why.
_NOT_KEPT = "the kept profile does not say"


def decode_named(data: bytes, path: Path, advice: Advice) -> NamedProfile:
    """What the file of a profile says; BaselineError with its place where that is not valid."""
    document = Field(parse_json(data, path, advice), path, advice=advice.broken)
    _check_schema(document, NAMED_SCHEMA)
    entries = document.entries("schema", "name", "date", "profile")
    name = entries["name"].text()
    if name != path.stem:
        raise entries["name"].error(
            f'the name is "{printable(name[:80])}", but the file is {printable(path.name)}',
            "Name the file after the profile that is in it.",
        )
    profile = _profile(entries["profile"])
    return NamedProfile(
        name=name,
        date=_date(entries["date"]),
        profile=profile,
        rooflines=_rooflines(entries["profile"], profile),
    )


def _date(field: Field) -> dt.datetime:
    text = field.matching(_DATE, "a time such as 2026-01-31T12:00:00Z")
    try:
        return dt.datetime.strptime(text, DATE_FORMAT).replace(tzinfo=dt.timezone.utc)
    except ValueError:
        raise field.error(f"{text} is no time") from None


def _profile(field: Field) -> Profile:
    _check_schema(field, SCHEMA)
    entries = with_keys(field, "model", "machine", "cases")
    model = with_keys(entries["model"], "name", "path", "sha256", "bytes", "opsets", "producer")
    return Profile(
        ModelFacts(
            name=model["name"].text(),
            path=model["path"].optional(Field.text),
            sha256=model["sha256"].optional(
                lambda digest: digest.matching(_DIGEST, "64 hexadecimal digits")
            ),
            size_bytes=model["bytes"].optional(Field.integer),
            opsets={key: value.integer() for key, value in model["opsets"].mapping().items()},
            producer=model["producer"].text(),
        ),
        _sharing([_case(case) for case in some_items(entries["cases"])]),
        entries["machine"].optional(_machine),
    )


def _rooflines(field: Field, profile: Profile) -> dict[str, Roofline]:
    """Those of its cases, by their ids; a case that was kept without has none."""
    found: dict[str, Roofline] = {}
    for item, case in zip(field.mapping()["cases"].items(), profile.cases, strict=True):
        kept = item.mapping().get("roofline")
        # The first of a name is meant, as where layers are fused.
        layers = () if case.counted is None else reversed(case.counted.layers)
        names = {layer.id: layer.name for layer in layers}
        if kept is not None and kept.value is not None:
            found[case.case.id] = decode_roofline(kept, names)
    return found


def _machine(field: Field) -> MachineFacts:
    return _machine_facts(with_keys(field, *MachineFacts.__struct_fields__))


def _machine_facts(entries: dict[str, Field]) -> MachineFacts:
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
        caches={k: v.integer() for k, v in entries["caches"].mapping().items()},
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
        packages={k: v.text() for k, v in entries["packages"].mapping().items()},
    )


def _check_schema(field: Field, newest: int) -> None:
    found = field.mapping().get("schema")
    if found is None:
        raise field.error('the key "schema" is missing')
    version = found.integer(least=1)
    if version > newest:
        raise found.error(
            f"this file has schema {version}, and this version reads up to {newest}",
            "It was written by a newer pytest-modelperf: "
            "`python -m pip install --upgrade pytest-modelperf`.",
        )


# -- a case


def _sharing(cases: Sequence[CaseProfile]) -> tuple[CaseProfile, ...]:
    """The cases, where those that count the same have one record of it, as when they were made.

    A report shows it once.
    """
    made: list[CaseProfile] = []
    for case in cases:
        same = (other.counted for other in made if other.counted == case.counted)
        made.append(replace(case, counted=next(same, case.counted)))
    return tuple(made)


def _case(field: Field) -> CaseProfile:
    entries = with_keys(
        field,
        *("id", "batch_size", "cores", "dims", "outcome", "reason", "engine", "processors"),
        *("seconds", "notes", "static", "latency", "peak_rss_bytes", "engine_peak_bytes"),
        *("layers", "raw"),
    )
    case = _identity(entries)
    rows = [with_keys(row, *_LAYER_KEYS) for row in entries["layers"].items()]
    counted = _static(entries["static"], rows)
    outcome = entries["outcome"]
    if outcome.value == _MEASURED:
        return CaseProfile(case, counted, _measurement(entries, rows, case.batch_size))
    why = one_of(outcome, _OUTCOMES, _MEASURED)
    timed = next((row["ms"] for row in rows if row["ms"].value is not None), None)
    if timed is not None:
        raise timed.error("expected null in a case that did not run, found a time")
    return CaseProfile(case, counted, None, why, entries["reason"].text())


def _identity(entries: dict[str, Field]) -> Case:
    dims = tuple((name, size.integer()) for name, size in entries["dims"].mapping().items())
    case = Case(entries["batch_size"].integer(least=1), entries["cores"].integer(least=1), dims)
    found = entries["id"].text()
    if found == case.id:
        return case
    # The engine is in the id where a request had several of them.
    engine = found.removeprefix(f"{case.id}-")
    if engine in {"", found}:
        shown = printable(case.id[:80])
        raise entries["id"].error(f"a case of this batch size, cores and dims is {shown}")
    return Case(case.batch_size, case.cores, dims, engine)


def _static(field: Field, rows: Sequence[dict[str, Field]]) -> StaticProfile | None:
    entries = with_keys(
        field,
        *("macs", "params", "weight_bytes", "peak_activation_bytes", "uncounted_ops", "notes"),
    )
    layers = tuple(_layer(row) for row in rows if _is_layer(row))
    if entries["macs"].value is None:
        if layers:
            raise entries["macs"].error("expected the MACs of a case that has layers, found null")
        return None
    return StaticProfile(
        layers=layers,
        params=entries["params"].integer(),
        weight_bytes=entries["weight_bytes"].integer(),
        peak_activation_bytes=entries["peak_activation_bytes"].optional(Field.integer),
        uncounted=tuple(
            Uncounted(op, "", count.integer(), _NOT_KEPT)
            for op, count in entries["uncounted_ops"].mapping().items()
        ),
        notes=texts(entries["notes"]),
    )


# -- what running it told


def _measurement(
    entries: dict[str, Field], rows: Sequence[dict[str, Field]], batch_size: int
) -> Measurement:
    engine = with_keys(entries["engine"], "name", "version", "python", "options", "providers")
    processors = entries["processors"].optional(lambda numbers: numbers.integers())
    times = tuple(_times(rows))
    return Measurement(
        engine=EngineFacts(
            name=engine["name"].text(),
            version=engine["version"].optional(Field.text),
            options={k: value.text() for k, value in engine["options"].mapping().items()},
            providers=texts(engine["providers"]),
            python=engine["python"].optional(Field.text),
        ),
        rounds=tuple(_round(made) for made in some_items(entries["raw"])),
        latency=_latency(entries["latency"], batch_size),
        seconds=number(entries["seconds"]),
        processors=processors,
        peak_rss_bytes=entries["peak_rss_bytes"].optional(Field.integer),
        engine_peak_bytes=entries["engine_peak_bytes"].optional(Field.integer),
        layer_times=times or None,
        notes=texts(entries["notes"]),
    )


def _latency(field: Field, batch_size: int) -> Latency:
    names = [f"p{percent:g}_ms" for percent in PERCENTS]
    entries = with_keys(
        field,
        *("min_ms", "max_ms", "mean_ms", "samples", "rounds", "confidence", "needed"),
        *("intervals_ms", *names),
    )
    needed, intervals = (
        with_keys(entries["needed"], *names),
        with_keys(entries["intervals_ms"], *names),
    )
    percentiles = []
    for percent, name in zip(PERCENTS, names, strict=True):
        low_ns, high_ns = intervals[name].optional(_interval) or (None, None)
        percentiles.append(
            Percentile(
                percent=percent,
                needed=needed[name].integer(),
                value_ns=entries[name].optional(nanoseconds),
                low_ns=low_ns,
                high_ns=high_ns,
            )
        )
    return Latency(
        batch_size=batch_size,
        confidence=number(entries["confidence"]),
        percentiles=tuple(percentiles),
        samples=entries["samples"].integer(),
        rounds=entries["rounds"].integer(),
        min_ns=round(nanoseconds(entries["min_ms"])),
        max_ns=round(nanoseconds(entries["max_ms"])),
        mean_ns=nanoseconds(entries["mean_ms"]),
    )


def _interval(field: Field) -> tuple[float, float]:
    items = field.items()
    if len(items) != 2:
        raise field.error(f"expected [low, high], found {len(items)} values")
    return nanoseconds(items[0]), nanoseconds(items[1])


def _round(field: Field) -> Round:
    entries = with_keys(
        field, "load_ms", "first_ms", "warmup_runs", "is_steady", "noise", "times_ns"
    )
    noise = with_keys(entries["noise"], *Noise.__struct_fields__)
    some_items(entries["times_ns"])
    return Round(
        load_ns=round(nanoseconds(entries["load_ms"])),
        first_ns=round(nanoseconds(entries["first_ms"])),
        warmup_runs=entries["warmup_runs"].integer(),
        is_steady=entries["is_steady"].flag(),
        block=Block(
            times_ns=entries["times_ns"].integers(),
            noise=Noise(
                wall_ns=noise["wall_ns"].integer(),
                cpu_ns=noise["cpu_ns"].optional(Field.integer),
                involuntary_switches=noise["involuntary_switches"].optional(Field.integer),
                # Ticks of a clock can make it a little less than 0.
                others_ns=noise["others_ns"].optional(lambda ns: ns.integer(least=-MAX_INTEGER)),
                stolen_ns=noise["stolen_ns"].optional(Field.integer),
                throttled_ns=noise["throttled_ns"].optional(Field.integer),
            ),
        ),
    )


# -- its layers

_LAYER_KEYS = (
    *("kind", "id", "name", "op_type", "domain", "weight", "provider", "precision", "ms"),
    *("macs", "elementwise_ops", "backward_macs", "effective_macs"),
    *("params", "weight_bytes", "output_bytes", "input_shape", "output_shape"),
    *("repeats", "sparsity", "kernel", "fused", "runs_in"),
)


def _is_layer(row: dict[str, Field]) -> bool:
    return one_of(row["kind"], _KINDS) is RowKind.LAYER


def _layer(row: dict[str, Field]) -> StaticLayer:
    def integer(key: str) -> int | None:
        return row[key].optional(Field.integer)

    return StaticLayer(
        id=row["id"].text(),
        name=row["name"].text(),
        op_type=row["op_type"].text(),
        domain=row["domain"].text(),
        weight=row["weight"].optional(Field.text),
        # That of the kernel, where the engine told: the report shows one or the other.
        precision=row["precision"].optional(Field.text),
        macs=integer("macs"),
        elementwise_ops=integer("elementwise_ops"),
        backward_macs=integer("backward_macs"),
        params=row["params"].integer(),
        weight_bytes=row["weight_bytes"].integer(),
        output_bytes=integer("output_bytes"),
        input_shape=row["input_shape"].optional(_shape),
        output_shape=row["output_shape"].optional(_shape),
        repeats=integer("repeats"),
        sparsity=row["sparsity"].optional(_sparsity),
        effective_macs=integer("effective_macs"),
    )


def _times(rows: Sequence[dict[str, Field]]) -> Iterator[LayerTime]:
    """The times of the rows; a kernel's other layers are found by their ids and their `runs_in`."""
    layers = [row for row in rows if _is_layer(row)]
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(layers):
        places[row["id"].text()].append(place)
    others = [row for row in rows if not _is_layer(row)]
    placed: list[tuple[int | None, dict[str, Field]]] = [*enumerate(layers)]
    for index, row in [*placed, *((None, row) for row in others)]:
        if row["ms"].value is None:
            continue
        fused = (_place_of(name, row["id"].value, places, layers) for name in row["fused"].items())
        yield LayerTime(
            kind=one_of(row["kind"], _KINDS),
            kernel=row["kernel"].optional(Field.text) or "",
            ns=number(row["ms"]) * _NS_PER_MS,
            layer=index,
            fused=tuple(fused),
            provider=row["provider"].optional(Field.text),
            precision=None if index is not None else row["precision"].optional(Field.text),
        )


def _place_of(
    name: Field,
    kernel_of: object,
    places: Mapping[str, Sequence[int]],
    layers: Sequence[dict[str, Field]],
) -> int:
    """The index of a layer that runs in the kernel of another one.

    Bodies of two loops may use one name; then the layer is meant that says where it runs.
    """
    found = places.get(name.text(), ())
    if not found:
        raise name.error(f'there is no layer "{printable(name.text()[:80])}"')
    return next((i for i in found if layers[i]["runs_in"].value == kernel_of), found[0])


def _shape(field: Field) -> Shape:
    return tuple(size.optional(Field.integer) for size in field.items())


def _sparsity(field: Field) -> Sparsity:
    entries = with_keys(field, "zeros", "size", "pattern", "block_ratio", "n_of_m")
    return Sparsity(
        zeros=entries["zeros"].integer(),
        size=entries["size"].integer(),
        pattern=entries["pattern"].text(),
        block_ratio=number(entries["block_ratio"]),
        n_of_m=entries["n_of_m"].optional(_n_of_m),
    )


def _n_of_m(field: Field) -> tuple[int, int]:
    numbers = field.integers()
    if len(numbers) != 2:
        raise field.error(f"expected [n, m], found {len(numbers)} values")
    return numbers[0], numbers[1]
