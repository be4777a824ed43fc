"""Every reader of files that others may have written, with what makes its input go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from fuzz.documents import (
    check_baseline,
    check_kept_profile,
    check_ort_profile,
    check_peaks,
    check_recorded_trace,
    check_stored_profile,
)
from fuzz.json_mutation import (
    mutate_json,
    mutate_json_lines,
    mutate_ort_profile,
    mutate_trace,
    mutate_trace_file,
)
from fuzz.message_mutation import mutate_message, mutate_model, mutate_twin
from fuzz.models import check_model, check_twin, check_wire
from fuzz.reports import check_answer, check_history, check_run_report, check_trace_file


@dataclass(frozen=True, slots=True)
class Target:
    """A reader: `check` raises where it does not do with the bytes what it has to.

    It returns whether the reader took them, or refused them in words. `mutate` changes an input in
    a way that its form survives; None where it has none. No input that is looked for is longer than
    `max_bytes`.
    """

    check: Callable[[bytes], bool]
    mutate: Callable[[bytes, Random], bytes | None]
    max_bytes: int


# Each has a folder of its name in `corpus`.
TARGETS: Mapping[str, Target] = {
    "answer": Target(check_answer, mutate_json, 16_384),
    "baseline": Target(check_baseline, mutate_json, 16_384),
    "history": Target(check_history, mutate_json_lines, 16_384),
    "kept-profile": Target(check_kept_profile, mutate_json, 16_384),
    "model": Target(check_model, mutate_model, 8_192),
    "ort-profile": Target(check_ort_profile, mutate_ort_profile, 16_384),
    "peaks": Target(check_peaks, mutate_json, 4_096),
    "recorded-trace": Target(check_recorded_trace, mutate_trace, 16_384),
    "run-report": Target(check_run_report, mutate_json, 16_384),
    "stored-profile": Target(check_stored_profile, mutate_json, 16_384),
    "trace-file": Target(check_trace_file, mutate_trace_file, 16_384),
    "twin": Target(check_twin, mutate_twin, 16_384),
    "wire": Target(check_wire, mutate_message, 16_384),
}
