"""The records of a baseline: the model, its cases, and their latency.

Raw samples are stored; percentiles are recomputed from them. A baseline has one `ModelBaseline`,
which is the same for all machines, and one `MachineBaseline` for each kind of machine.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from itertools import chain
from statistics import median
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from pytest_modelperf.files.documents import Count, Digest, Number, Positive
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import ModelFacts, StoredInputs
from pytest_modelperf.stats.records import percentile_of
from pytest_modelperf.text.escaping import printable

Value: TypeAlias = int | float | str | None

# How much a twin may differ from its model, and the confidence of the interval that decides. The
# interval is checked after some of the rounds. A twin with exactly this difference is trusted with
# a chance of at most 5 %.
FIDELITY = 0.02
FIDELITY_CONFIDENCE = 0.98


# The digest of a plan or of a structure.
ShortDigest: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]
# An element of an output.
Element: TypeAlias = Annotated[float, Meta(ge=-1e308, le=1e308)]
# The number types whose bits an engine returns.
NumberType: TypeAlias = Annotated[
    str, Meta(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128))$(?!\n)")
]
# A key becomes the name of a file next to `model.json`.
MachineKey: TypeAlias = Annotated[
    str, Meta(pattern=r"^(?!model$)[a-z0-9_]+(-[a-z0-9_]+)*$(?!\n)", max_length=200)
]


class Stored(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that is part of a file unchanged. All its keys are required, others are errors."""


class Provenance(Stored, frozen=True, kw_only=True):
    """When the content of a case was last recorded, with which versions, and on which machine.

    `date` is a day in UTC. `machine` is the key of the machine, or None if nothing was measured.
    """

    date: dt.date
    machine: MachineKey | None
    packages: Mapping[str, str]


class StoredTotals(Stored, frozen=True, kw_only=True):
    """The totals of a static profile.

    `uncounted_ops` is the number of uncounted layers of each qualified operator. `scalar_params` is
    None if they were not counted.
    """

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


class StoredStatic(StoredTotals, frozen=True, kw_only=True):
    """The totals of a static profile, and its layer types by their qualified operators."""

    layer_types: Mapping[str, LayerType]

    def __repr__(self) -> str:
        return f"<stored static profile: {self.macs} MACs, {self.params} params>"

    @property
    def flops(self) -> int:
        return 2 * self.macs + self.elementwise_ops

    @property
    def coverage(self) -> float:
        """The share of layers that could be counted."""
        layers = sum(kind.count for kind in self.layer_types.values())
        return 1.0 - sum(self.uncounted_ops.values()) / layers if layers else 1.0


class Fidelity(Stored, frozen=True, kw_only=True):
    """The recorded time of a case's twin relative to that of the real model.

    `has_same_plan` means that the engine made the same plan of both; it is None if the plans were
    not compared. `ratio` is None if the plans were enough to decide and nothing ran; a single round
    has no `interval`. `reason` says why the twin is not trusted.
    """

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
    def was_compared(self) -> bool:
        """Whether the plan or time of a twin was compared with that of the model."""
        return self.ratio is not None or self.has_same_plan is not None

    @property
    def shows_difference(self) -> bool:
        """Whether the duet showed a difference in time: the interval does not include 1."""
        return self.interval is not None and not self.interval[0] <= 1.0 <= self.interval[1]

    @property
    def _has_no_doubt(self) -> bool:
        """Whether a recording would trust the twin by its plan or by its interval.

        Bounds are stored rounded, so a bound equal to the limit may really have been beyond it.
        """
        if self.ratio is None or self.interval is None:
            return self.ratio is None and self.has_same_plan is True
        return all(abs(bound - 1.0) < FIDELITY for bound in self.interval)


class StoredGeneration(Stored, frozen=True, kw_only=True):
    """The phase of a generation that a case is. `state` has the pairs that the user named."""

    phase: Phase
    prompt: Count
    generate: Count
    state: Mapping[str, str]


class StoredPlan(Stored, frozen=True, kw_only=True):
    """The plan that the engine made of a case's model, on the machine with this key."""

    digest: ShortDigest
    kernels: Count
    machine: MachineKey


class TensorSketch(Stored, frozen=True, kw_only=True):
    """The sketch of one output.

    `low` and `high` are its smallest and largest finite element, `samples` are some elements, and
    `sums` are the sums of its groups. In both, an infinite or NaN element counts as 0. `not_finite`
    counts NaN, +inf and -inf. `digest` is that of whole numbers, or None for floats.
    """

    dtype: NumberType
    shape: tuple[Count, ...]
    low: Element
    high: Element
    not_finite: tuple[Count, Count, Count]
    samples: tuple[Element, ...]
    sums: tuple[Element, ...]
    digest: ShortDigest | None

    def __post_init__(self) -> None:
        if len(self.samples) > math.prod(self.shape):
            raise ValueError("there are more samples than elements")

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


class OutputSketch(Stored, frozen=True, kw_only=True):
    """The sketches of a case's outputs, by name.

    `inputs` and `weights` are the digests of the inputs, and of the trained values of the model.
    """

    inputs: ShortDigest
    weights: ShortDigest
    tensors: Mapping[str, TensorSketch]


class CaseFacts(Stored, frozen=True, kw_only=True):
    """A case without its counts. `engine` is the name of the engine that it was recorded with.

    `model_sha256` is the model that this case was recorded with, because cases may be recorded at
    different times, and `structure` is the digest of its operators and connections. `options` are
    the given options of the engine, or None if nothing ran. `generation` is None for a plain case,
    and `plan` if the engine showed none. `outputs` is present if a sketch of them was requested.
    """

    batch_size: Positive
    cores: Positive
    dims: Mapping[str, Count]
    generation: StoredGeneration | None
    engine: str | None
    options: Mapping[str, str] | None
    inputs: StoredInputs
    model_sha256: Digest | None
    fidelity: Fidelity | None
    provenance: Provenance
    plan: StoredPlan | None
    structure: ShortDigest
    # Few baselines have a sketch, so the others have no line that says null.
    outputs: OutputSketch | UnsetType = UNSET


class StoredCase(CaseFacts, frozen=True, kw_only=True):
    """One stored case.

    `static` are the counts of the graph alone. `observed` are those that one run completed, or None
    if nothing was missing or nothing ran.
    """

    id: str
    static: StoredStatic
    observed: StoredStatic | None

    @property
    def engine_version(self) -> str | None:
        """The version of the engine that it was recorded with, or None if that is unknown."""
        return None if self.engine is None else self.provenance.packages.get(self.engine)

    @property
    def sketch(self) -> OutputSketch | None:
        return None if self.outputs is UNSET else self.outputs

    def asks_the_same(self, other: StoredCase) -> bool:
        """Whether both were recorded with the same model, sizes and inputs."""
        is_same_model = self.model_sha256 == other.model_sha256 is not None
        return is_same_model and self.runs_on_the_same(other)

    def runs_on_the_same(self, other: StoredCase) -> bool:
        """Whether both have the same sizes and inputs."""
        names = ("batch_size", "dims", "inputs", "generation")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def other_dims(self, given: Mapping[str, int]) -> str | None:
        """Return why the case cannot be compared at these dimensions, or None if it can."""
        if dict(self.dims) == dict(given):
            return None
        return (
            f"the baseline of {self.id} was recorded at other dimensions: "
            f"{_describe_dims(self.dims)}. Now: {_describe_dims(given)}. Give the same or record "
            "it again"
        )

    def other_inputs(self, given: StoredInputs) -> str | None:
        """Return why the case cannot be compared on these inputs, or None if it can."""
        if self.inputs.specs == given.specs:
            return None
        return (
            f"the baseline of {self.id} was recorded on other inputs: "
            f"{printable(str(self.inputs))}. Now: {printable(str(given))}. Give the same or record "
            "it again"
        )


def _describe_dims(dims: Mapping[str, int]) -> str:
    """Return dimensions as `seq=64, width=4`."""
    return printable(", ".join(f"{name}={size}" for name, size in sorted(dims.items()))) or "none"


class StoredTwin(Stored, frozen=True, kw_only=True):
    """The file of the twin, and the model that it stands in for.

    `left_out_bytes` is the size of the weights that it leaves out.
    """

    sha256: Digest
    size_bytes: Count = field(name="bytes")
    model_sha256: Digest | None
    left_out_bytes: Count


class ModelBaseline(Struct, frozen=True, kw_only=True):
    """The part that all machines share: the last recorded model, its twin, and its cases."""

    model: ModelFacts
    cases: tuple[StoredCase, ...]
    twin: StoredTwin | None = None

    def case(self, case_id: str) -> StoredCase | None:
        return next((case for case in self.cases if case.id == case_id), None)

    def size_of(self, case_id: str) -> int | None:
        """Return the size on disk of the model of this case, or None if it is not stored."""
        case = self.case(case_id)
        is_last = case is not None and case.model_sha256 == self.model.sha256 is not None
        return self.model.total_bytes if is_last else None

    def has_twin_of(self, case_id: str) -> bool:
        """Whether the twin belongs to the model that this case was recorded with."""
        case = self.case(case_id)
        if case is None or self.twin is None or self.twin.model_sha256 is None:
            return False
        return self.twin.model_sha256 == case.model_sha256

    def twin_refusal(self, case_id: str) -> str | None:
        """Return why the twin cannot stand in for the model of this case, or None if it can."""
        case = self.case(case_id)
        if case is None:
            return f"there is no baseline of {case_id}"
        if self.twin is None:
            reason = None if case.fidelity is None else case.fidelity.reason
            return reason or "the baseline has no twin"
        if not self.has_twin_of(case_id):
            return f"{case_id} was recorded with another model than the twin: record it again"
        if case.fidelity is None:
            return f"the twin was not compared with the model at {case_id}"
        if not case.fidelity.is_trusted:
            return case.fidelity.reason or "the twin does not run like the model"
        return None


class StoredProcess(Stored, frozen=True, kw_only=True):
    """The rounds of one process, figure by figure. A process is a replicate.

    `times_ns` are some of the `samples` inferences of each round, in order. `layer_type_ns` is the
    time of each operator in one inference, or None if it was not measured.
    """

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

    def percentile_ns(self, percent: float) -> float:
        """Return a percentile of all stored samples together, by linear interpolation."""
        return percentile_of(sorted(chain.from_iterable(self.times_ns)), percent)


class StoredLatency(Stored, frozen=True, kw_only=True):
    """The latency of one case on one kind of machine, process by process."""

    engine: EngineFacts
    model_sha256: Digest | None
    processes: Annotated[tuple[StoredProcess, ...], Meta(min_length=1)]

    def __repr__(self) -> str:
        return f"<stored latency: {len(self.processes)} processes>"

    def is_of(self, engine: EngineFacts) -> bool:
        """Whether it was measured on this engine, in this version and with these options."""
        known = self.engine
        return (known.name, known.version, dict(known.options), known.providers) == (
            engine.name, engine.version, dict(engine.options), engine.providers
        )  # fmt: skip

    def percentile_ns(self, percent: float) -> float:
        """Return the median of this percentile over the processes."""
        return median(process.percentile_ns(percent) for process in self.processes)


class MachineBaseline(Struct, frozen=True, kw_only=True):
    """The measurements on one kind of machine, by the ids of cases.

    `machine` describes the machine that measured last.
    """

    key: str
    machine: MachineFacts
    cases: Mapping[str, StoredLatency]


class Baseline(Struct, frozen=True, kw_only=True):
    """The whole baseline of one model.

    `name` is its folder, `twin` the content of the twin's file. `machines` are those of the
    requested machines that have measurements.
    """

    name: str
    model: ModelBaseline
    twin: bytes | None = None
    machines: tuple[MachineBaseline, ...] = ()

    def __repr__(self) -> str:
        return f"<baseline {self.name}: {len(self.model.cases)} cases>"

    def machine(self, key: str) -> MachineBaseline | None:
        return next((machine for machine in self.machines if machine.key == key), None)


class BaselineRecording(Struct, frozen=True, kw_only=True):
    """The measured cases of one model, to be stored.

    `twin` is None if none could be made, and `left_out_bytes` is the size of the weights that it
    leaves out. `machine` is None if nothing was measured.
    """

    name: str
    model: ModelFacts
    cases: tuple[StoredCase, ...]
    twin: bytes | None = None
    left_out_bytes: int = 0
    machine: MachineBaseline | None = None

    def __repr__(self) -> str:
        return f"<recording of {self.name}: {len(self.cases)} cases>"


class BaselineChange(Struct, frozen=True, kw_only=True):
    """One figure that an update changes, with None on the side that lacks it.

    `case` is None for a figure of the whole model, and `machine` is the key of the machine that
    measured a time. `name` includes the unit: `latency_p50_ns`. If both sides are None, no figure
    shows the change.
    """

    case: str | None
    name: str
    before: Value
    after: Value
    machine: str | None = None

    @property
    def ratio(self) -> float | None:
        old, new = self.before, self.after
        if isinstance(old, str) or isinstance(new, str) or not old or new is None:
            return None
        return new / old


class UpdatePlan(Struct, frozen=True, kw_only=True):
    """An update that is decided but not written: the baseline before and after it.

    `after` is None if nothing of the model is left. `notes` are for the reader of the plan.
    """

    name: str
    recording: BaselineRecording | None
    removed: tuple[str, ...]
    before: Baseline | None
    after: Baseline | None
    changes: tuple[BaselineChange, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<plan for {self.name}: {len(self.changes)} changes>"

    @property
    def is_empty(self) -> bool:
        return self.before == self.after
