"""The roofline of a kept case: the peaks that it was held against, and its layers beneath them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from pytest_modelperf.files.fields import Field
from pytest_modelperf.profiles.strict_values import (
    nanoseconds,
    number,
    one_of,
    some_items,
    with_keys,
)
from pytest_modelperf.roofline.records import Bandwidth, Bound, LayerRoof, Peaks, Roofline, Work
from pytest_modelperf.text.escaping import printable

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_BOUNDS = {bound.value: bound for bound in Bound}


def decode_roofline(field: Field, names: Mapping[str, str]) -> Roofline:
    """A roofline of the case whose layers have these names, by their ids.

    Rates, shares and sums are computed again, and not read.
    """
    entries = with_keys(field, "peaks", "layers", "unplaced")
    unplaced = [with_keys(item, "reason", "count") for item in entries["unplaced"].items()]
    return Roofline(
        peaks=_peaks(entries["peaks"]),
        layers=tuple(_roof(item, names) for item in entries["layers"].items()),
        unplaced={each["reason"].text(): each["count"].integer() for each in unplaced},
    )


def _peaks(field: Field) -> Peaks:
    entries = with_keys(
        field,
        *("machine", "engine", "version", "options", "cores", "measured"),
        *("macs_per_second", "runs_as", "bandwidths"),
    )
    return Peaks(
        machine_key=entries["machine"].text(),
        engine=entries["engine"].text(),
        version=entries["version"].optional(Field.text),
        options={key: value.text() for key, value in entries["options"].mapping().items()},
        cores=entries["cores"].integer(least=1),
        macs_per_second={
            name: _rate(rate) for name, rate in entries["macs_per_second"].mapping().items()
        },
        runs_as={name: value.text() for name, value in entries["runs_as"].mapping().items()},
        bandwidths=tuple(_bandwidth(item) for item in some_items(entries["bandwidths"])),
        measured=_day(entries["measured"]),
    )


def _bandwidth(field: Field) -> Bandwidth:
    entries = with_keys(field, "bytes", "bytes_per_second")
    return Bandwidth(entries["bytes"].integer(least=1), _rate(entries["bytes_per_second"]))


def _day(field: Field) -> dt.date:
    text = field.matching(_DAY, "a day such as 2026-01-31")
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise field.error(f"{text} is no day") from None


def _rate(field: Field) -> float:
    """One that something can be divided by, as of all peaks that were ever kept."""
    value = number(field)
    if value < 1:
        raise field.error(f"expected a rate of 1 a second or more, found {value}")
    return value


def _roof(field: Field, names: Mapping[str, str]) -> LayerRoof:
    entries = with_keys(
        field,
        *("id", "op_type", "ms", "least_ms", "bound", "precision"),
        *("macs", "elementwise_ops", "bytes_moved"),
    )
    layer = entries["id"].text()
    if layer not in names:
        raise entries["id"].error(f'there is no layer "{printable(layer[:80])}"')
    return LayerRoof(
        id=layer,
        name=names[layer],
        op_type=entries["op_type"].text(),
        work=Work(
            macs=entries["macs"].integer(),
            elementwise_ops=entries["elementwise_ops"].integer(),
            nbytes=entries["bytes_moved"].integer(),
        ),
        precision=entries["precision"].optional(Field.text),
        least_ns=nanoseconds(entries["least_ms"]),
        bound=one_of(entries["bound"], _BOUNDS),
        ns=entries["ms"].optional(nanoseconds),
    )
