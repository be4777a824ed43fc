"""The peaks of a machine made by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

from msgspec.structs import replace

from pytest_modelperf.roofline.records import Bandwidth, Peaks
from tests.support.profiles import ENGINE, MACHINE

MIB = 1 << 20


def make_peaks(**changes: Any) -> Peaks:  # noqa: ANN401  # fields of all types
    """A machine that computes 40 MACs in a nanosecond and moves 10 bytes, or 50 in its cache."""
    peaks = Peaks(
        machine_key=MACHINE.key,
        engine=ENGINE.name,
        version=ENGINE.version,
        options=ENGINE.options,
        cores=1,
        macs_per_second={"float32": 40e9, "int8": 160e9},
        runs_as={"float32": "float32", "int8": "int8", "float16": "float32"},
        bandwidths=(Bandwidth(1 * MIB, 50e9), Bandwidth(100 * MIB, 10e9)),
        measured=dt.date(2026, 11, 21),
    )
    return replace(peaks, **changes)
