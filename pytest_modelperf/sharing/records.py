"""The records of a model that is shared without its weights."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.baselines.recording import is_far, is_near
from pytest_modelperf.baselines.records import FIDELITY, FIDELITY_CONFIDENCE
from pytest_modelperf.comparing.changes import Interval
from pytest_modelperf.profiler.doctor.records import CHECKUP, Checkup
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import LATENCY
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.stats.records import Latency, Ratio


class Likeness(enum.Enum):
    """Whether a shared model was shown to run like the original one."""

    SAME = "same"
    OTHER_PLAN = "other plan"
    OTHER_TIME = "other time"
    UNDECIDED = "undecided"


class SharedInput(Struct, frozen=True, kw_only=True):
    """An input of the shared model, by its name in that model."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Likening(Struct, frozen=True, kw_only=True):
    """The comparison of the original model and the shared one: times in turn, and plans.

    `has_same_plan` is None if the engine does not report plans. `difference` says how the plan of
    the shared model differs. `ratio` is the time of the shared model over that of the original one.
    """

    original: Latency
    shared: Latency
    ratio: Ratio
    rounds: int
    has_same_plan: bool | None
    difference: str | None = None

    @property
    def likeness(self) -> Likeness:
        if self.has_same_plan is False:
            return Likeness.OTHER_PLAN
        if is_far(self.ratio):
            return Likeness.OTHER_TIME
        return Likeness.SAME if is_near(self.ratio) else Likeness.UNDECIDED

    @property
    def confidence(self) -> float:
        return FIDELITY_CONFIDENCE

    @property
    def tolerance(self) -> float:
        return FIDELITY


LIKENING = JsonObject(
    Likening,
    "likeness has_same_plan difference ratio=ratio.value interval=ratio.interval confidence"
    " tolerance rounds original shared",
    interval=Interval,
    original=LATENCY,
    shared=LATENCY,
)


class Share(Struct, frozen=True, kw_only=True):
    """A model without its weights, and everything needed to run it.

    `model` and `producer` are None if the model is anonymous. `files` are the files of the folder
    by their names, without those that describe this record. `doubts` are sentences on what may make
    the shared model run differently from the original one.
    """

    model: str | None
    producer: str | None
    opsets: Mapping[str, int]
    nodes: int
    original_bytes: int | None
    weight_bytes: int
    case: Case
    inputs: tuple[SharedInput, ...]
    machine: MachineFacts
    checkup: Checkup
    likening: Likening
    doubts: tuple[str, ...]
    files: Mapping[str, bytes]

    @property
    def is_anonymous(self) -> bool:
        return self.model is None

    @property
    def file_sizes(self) -> Mapping[str, int]:
        return {name: len(data) for name, data in self.files.items()}


SHARE = JsonDocument(
    Share,
    "model producer opsets nodes original_bytes weight_bytes batch_size=case.batch_size"
    " cores=case.cores dims=case.sizes inputs likening doubts machine checkup files=file_sizes",
    likening=LIKENING,
    machine=MACHINE,
    checkup=CHECKUP,
)
# The document in the folder of a shared model.
DOCUMENT_FILE = "share.json"
