"""The records of a baseline: the model, its cases, and their latency.

Raw samples are stored; percentiles are recomputed from them. A baseline has one `ModelBaseline`,
which holds on every machine, and one `MachineBaseline` for each kind of machine.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import LayerType, ModelFacts, StoredInputs
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable

Value: TypeAlias = int | float | str | None

# How much a twin may differ from its model.
FIDELITY = 0.02


class Provenance(Struct, frozen=True, kw_only=True):
    """When the content of a case was last recorded, with which versions, and on which machine.

    `date` is a day in UTC. `machine` is the key of the machine; None if nothing was measured.
    """

    date: dt.date
    packages: Mapping[str, str] = field(default_factory=dict)
    machine: str | None = None


class StoredStatic(Struct, frozen=True, kw_only=True):
    """The totals of a static profile, and its layer types by their qualified operator.

    `uncounted_ops` is the number of uncounted layers of each qualified operator. `scalar_params` is
    None if they were not counted.
    """

    macs: int
    elementwise_ops: int
    backward_macs: int
    effective_macs: int | None
    params: int
    weight_bytes: int
    activation_bytes: int
    knows_activations: bool
    peak_activation_bytes: int | None
    layer_types: Mapping[str, LayerType]
    uncounted_ops: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scalar_params: int | None = None

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


class Fidelity(Struct, frozen=True, kw_only=True):
    """How long the twin of a case took relative to the real model when it was recorded.

    `has_same_plan` claims that the engine made the same plan of both; None if the plans were not
    compared. `ratio` is None where that was answer enough and nothing ran. `reason` says why the
    twin is not trusted.
    """

    ratio: Ratio | None
    rounds: int
    is_trusted: bool
    reason: str | None = None
    has_same_plan: bool | None = None

    @property
    def shows_difference(self) -> bool:
        """Whether the duet showed that the twin takes another time: its interval lies beside 1."""
        low, high = (None, None) if self.ratio is None else (self.ratio.low, self.ratio.high)
        return low is not None and high is not None and not low <= 1.0 <= high


class StoredGeneration(Struct, frozen=True, kw_only=True):
    """The phase of a generation that a case is; `state` are the pairs that the user named."""

    phase: Phase
    prompt: int
    generate: int
    state: Mapping[str, str] = field(default_factory=dict)


class StoredPlan(Struct, frozen=True):
    """The plan that the engine made of the model of a case, on the machine of this key."""

    digest: str
    kernels: int
    machine: str


class StoredCase(Struct, frozen=True, kw_only=True):
    """One stored case. `engine` is the name of the engine that it was recorded with.

    `model_sha256` is the model that this case was recorded of: cases may be recorded at different
    times, and `structure` is the digest of its operators and connections. `static` are the counts
    of the graph alone; None for a Python function. `observed` are those that one run completed;
    None if there was nothing to complete or nothing ran. `options` are the given options of the
    engine, and `inputs` the given inputs; None if nothing ran. `generation` is None for a plain
    case, and `plan` if the engine told none.
    """

    id: str
    batch_size: int
    cores: int
    model_sha256: str | None
    static: StoredStatic | None
    observed: StoredStatic | None = None
    provenance: Provenance | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    engine: str | None = None
    options: Mapping[str, str] | None = None
    inputs: StoredInputs | None = None
    fidelity: Fidelity | None = None
    generation: StoredGeneration | None = None
    plan: StoredPlan | None = None
    structure: str | None = None

    def other_dims(self, given: Mapping[str, int]) -> str | None:
        """Why the case cannot be compared at these sizes of dimensions; None if it can."""
        if dict(self.dims) == dict(given):
            return None
        return (
            f"the baseline of {self.id} was recorded at other dimensions: "
            f"{_describe_dims(self.dims)}. Now: {_describe_dims(given)}. Give the same or record "
            "it anew"
        )

    def other_inputs(self, given: StoredInputs) -> str | None:
        """Why the case cannot be compared on these inputs; None if it can."""
        if self.inputs is None or self.inputs.specs == given.specs:
            return None
        return (
            f"the baseline of {self.id} was recorded on other inputs: "
            f"{printable(str(self.inputs))}. Now: {printable(str(given))}. Give the same or record "
            "it anew"
        )


def _describe_dims(dims: Mapping[str, int]) -> str:
    """`seq=64, width=4`."""
    return printable(", ".join(f"{name}={size}" for name, size in sorted(dims.items()))) or "none"


class StoredTwin(Struct, frozen=True, kw_only=True):
    """The file of the twin, and the model that it stands for.

    `left_out_bytes` is the size of the weights that it leaves out.
    """

    sha256: str
    size_bytes: int
    model_sha256: str | None
    left_out_bytes: int | None = None


class ModelBaseline(Struct, frozen=True, kw_only=True):
    """The part that holds on every machine: the last recorded model, its twin, and its cases."""

    model: ModelFacts
    cases: tuple[StoredCase, ...]
    twin: StoredTwin | None = None

    def case(self, case_id: str) -> StoredCase | None:
        return next((case for case in self.cases if case.id == case_id), None)

    def size_of(self, case_id: str) -> int | None:
        """The size on disk of the model that this case was recorded of; None if not stored."""
        case = self.case(case_id)
        is_last = case is not None and case.model_sha256 == self.model.sha256 is not None
        return self.model.total_bytes if is_last else None

    def has_twin_of(self, case_id: str) -> bool:
        """Whether the twin belongs to the model that this case was recorded of."""
        case = self.case(case_id)
        if case is None or self.twin is None or self.twin.model_sha256 is None:
            return False
        return self.twin.model_sha256 == case.model_sha256

    def twin_refusal(self, case_id: str) -> str | None:
        """Why the twin cannot stand for the baseline of this case; None where it can."""
        case = self.case(case_id)
        if case is None:
            return f"there is no baseline of {case_id}"
        if self.twin is None:
            return "the baseline has no twin"
        if not self.has_twin_of(case_id):
            return f"{case_id} was recorded with another model than the twin: record it anew"
        if case.fidelity is None:
            return f"the twin was not compared with the model at {case_id}"
        if not case.fidelity.is_trusted:
            return case.fidelity.reason or "the twin does not run like the model"
        return None


class StoredRound(Struct, frozen=True, kw_only=True):
    """One round; `times_ns` are some of its `samples` inferences, in order."""

    load_ns: int
    first_ns: int
    samples: int
    times_ns: tuple[int, ...]


class StoredProcess(Struct, frozen=True, kw_only=True):
    """The measurements of one process; the unit of replication of stored samples.

    `layer_type_ns` is the time of each operator in one inference; None if it was not measured.
    """

    date: dt.date
    rounds: tuple[StoredRound, ...]
    peak_rss_bytes: int | None = None
    layer_type_ns: Mapping[str, int] | None = None

    def percentile_ns(self, percent: float) -> float:
        """Of all stored samples together, by linear interpolation."""
        return _percentile([time for made in self.rounds for time in made.times_ns], percent)


class StoredLatency(Struct, frozen=True, kw_only=True):
    """The latency of one case on one kind of machine, process by process."""

    id: str
    engine: EngineFacts
    model_sha256: str | None
    processes: tuple[StoredProcess, ...]

    def __repr__(self) -> str:
        return f"<stored latency: {self.id}, {len(self.processes)} processes>"

    def percentile_ns(self, percent: float) -> float:
        """The median over the processes."""
        return median(process.percentile_ns(percent) for process in self.processes)


class MachineBaseline(Struct, frozen=True, kw_only=True):
    """The measurements on one kind of machine; `machine` is the one that measured last."""

    key: str
    machine: MachineFacts
    cases: tuple[StoredLatency, ...]

    def case(self, case_id: str) -> StoredLatency | None:
        return next((case for case in self.cases if case.id == case_id), None)


class Baseline(Struct, frozen=True, kw_only=True):
    """The whole baseline of one model: `name` is its folder, `twin` the content of its file.

    `machines` are the requested ones that have measurements.
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
    left_out_bytes: int | None = None
    machine: MachineBaseline | None = None

    def __repr__(self) -> str:
        return f"<recording of {self.name}: {len(self.cases)} cases>"


class BaselineChange(Struct, frozen=True, kw_only=True):
    """One figure that an update changes; None on the side that lacks it.

    `case` is None for a figure of the whole model, and `machine` is the key of the machine of a
    time. `name` carries its unit: `latency_p50_ns`. If both sides are None, no figure shows the
    change.
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


def _percentile(values: Iterable[int], percent: float) -> float:
    """A percentile, by linear interpolation between two samples as in numpy."""
    ordered: Sequence[int] = sorted(values)
    position = percent / 100 * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
