"""A shared model as JSON: the types of the document, and how records become them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE
from pytest_modelperf.comparing.document import Interval, ratio_interval
from pytest_modelperf.profiler.doctor.document import CheckupJson, checkup_to_json
from pytest_modelperf.profiler.shown.facts_document import (
    LatencyJson,
    MachineJson,
    latency_to_json,
    machine_to_json,
)
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document
from pytest_modelperf.sharing.records import (
    Likeness,
    Likening,
    Share,
    SharedInput,
)

# The document in the folder of a shared model.
DOCUMENT_FILE = "share.json"


class LikeningJson(Struct, frozen=True, kw_only=True):
    """The original model and the shared one, run in turn; `ratio` is the second over the first."""

    likeness: Likeness
    has_same_plan: bool | None
    difference: str | None
    ratio: float
    interval: Interval
    confidence: float
    tolerance: float
    rounds: int
    original: LatencyJson
    shared: LatencyJson


class ShareJson(Struct, frozen=True, kw_only=True):
    """A model that was shared without its weights; `model` is null if it is anonymous."""

    schema: int
    model: str | None
    producer: str | None
    opsets: Mapping[str, int]
    nodes: int
    original_bytes: int | None
    weight_bytes: int
    batch_size: int
    cores: int
    dims: Mapping[str, int]
    inputs: tuple[SharedInput, ...]
    likening: LikeningJson
    doubts: tuple[str, ...]
    machine: MachineJson | None
    checkup: CheckupJson
    files: Mapping[str, int]


def dump_share(share: Share) -> str:
    """The shared model as JSON text; of its files only the sizes."""
    return dump_document(
        copy_fields(
            ShareJson,
            share,
            schema=SCHEMA,
            batch_size=share.case.batch_size,
            cores=share.case.cores,
            dims=share.case.sizes,
            likening=_likening(share.likening),
            machine=machine_to_json(share.machine),
            checkup=checkup_to_json(share.checkup),
            files={name: len(data) for name, data in share.files.items()},
        )
    )


def _likening(found: Likening) -> LikeningJson:
    return copy_fields(
        LikeningJson,
        found,
        ratio=found.ratio.value,
        interval=ratio_interval(found.ratio),
        confidence=FIDELITY_CONFIDENCE,
        tolerance=FIDELITY,
        original=latency_to_json(found.original),
        shared=latency_to_json(found.shared),
    )
