"""The records of a baseline: what is stored of a model, of its cases, and of their latency.

Raw samples are stored; percentiles are recomputed from them. A baseline has one `ModelBaseline`,
true on every machine, and one `MachineBaseline` for each kind of machine that it was measured on.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.profiler.records import LayerType, ModelFacts, StoredInputs
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.text.escaping import printable

Value: TypeAlias = int | float | str | None


class Provenance(Struct, frozen=True, kw_only=True):
    """When the content of a case was last recorded, with which versions, on what machine.

    `date` is a day in UTC. `machine` is the key of the machine, None where nothing was measured.
    """

    date: dt.date
    packages: Mapping[str, str] = field(default_factory=dict)
    machine: str | None = None


class StoredStatic(Struct, frozen=True, kw_only=True):
    """The totals of a static profile, and its layer types by their qualified operator.

    `uncounted_ops` has the number of layers of each qualified operator that could not be counted.
    `scalar_params` is None where an older version recorded it.
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
    """How long the twin of a case took, as a share of the real model, when it was recorded.

    `has_same_plan` says whether the engine made the same plan of both; None where it tells no
    plan, or nobody asked. `reason` says why a twin is not trusted.
    """

    ratio: Ratio
    rounds: int
    is_trusted: bool
    reason: str | None = None
    has_same_plan: bool | None = None


class StoredCase(Struct, frozen=True, kw_only=True):
    """What is stored of one case. `engine` names the engine that it was recorded with.

    `model_sha256` is the model that this case was recorded of: a run of some cases leaves those
    of the others as they are. `static` follows from the graph alone, and `observed` is what one
    run completed of it, None where there was nothing to complete or nothing ran. Both are None
    for a Python function, and `static` alone where an older version stored only what a run
    completed. `options` are those given to the engine, and `inputs` what was given of them; these
    and `provenance` are None where an older version did not say.
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

    def other_inputs(self, given: StoredInputs) -> str | None:
        """Why it says nothing of a case on these inputs; None where it does, or may."""
        if self.inputs is None or self.inputs.specs == given.specs:
            return None
        return (
            f"the baseline of {self.id} was recorded on other inputs: "
            f"{printable(str(self.inputs))}. Now: {printable(str(given))}. Give the same or record "
            "it anew"
        )

    @property
    def is_counted(self) -> bool:
        """Whether anything was counted of it: nothing is of a Python function."""
        return self.static is not None or self.observed is not None


class StoredTwin(Struct, frozen=True, kw_only=True):
    """Which file the twin is, and which model it stands for.

    `left_out_bytes` is what the weights take that it left out, None where an older version did not
    say.
    """

    sha256: str
    size_bytes: int
    model_sha256: str | None
    left_out_bytes: int | None = None


class ModelBaseline(Struct, frozen=True, kw_only=True):
    """What holds on every machine: the model recorded last, its twin, and its cases by id."""

    model: ModelFacts
    cases: tuple[StoredCase, ...]
    twin: StoredTwin | None = None

    def case(self, case_id: str) -> StoredCase | None:
        return next((case for case in self.cases if case.id == case_id), None)

    def has_twin_of(self, case_id: str) -> bool:
        """Whether the twin has the graph that this case was recorded with."""
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
    """A round as it is stored: `times_ns` are some of the `samples` that were taken, in order."""

    load_ns: int
    first_ns: int
    samples: int
    times_ns: tuple[int, ...]


class StoredProcess(Struct, frozen=True, kw_only=True):
    """What one process measured on one day; the unit of replication of stored samples.

    `layer_type_ns` is the time of each operator in one inference, None where it was not taken.
    """

    date: dt.date
    rounds: tuple[StoredRound, ...]
    peak_rss_bytes: int | None = None
    layer_type_ns: Mapping[str, int] | None = None

    def percentile_ns(self, percent: float) -> float:
        """Of all stored samples together, by linear interpolation."""
        return _percentile([time for made in self.rounds for time in made.times_ns], percent)


class StoredLatency(Struct, frozen=True, kw_only=True):
    """How long one case took on one kind of machine, process by process."""

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
    """What was measured on one kind of machine; `machine` is the one that measured last."""

    key: str
    machine: MachineFacts
    cases: tuple[StoredLatency, ...]

    def case(self, case_id: str) -> StoredLatency | None:
        return next((case for case in self.cases if case.id == case_id), None)


class Baseline(Struct, frozen=True, kw_only=True):
    """Everything that was read of one model: `name` is its folder, `twin` the bytes of its file.

    `machines` are those that were asked for and are there.
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
    """What a run wants to store of one model: only the cases that it measured.

    `twin` is None where none could be made, and `left_out_bytes` is what its weights take;
    `machine` is None where nothing was measured.
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

    `case` is None for what is about the whole model, `machine` is the key of the one that a time
    was measured on. `name` carries its unit: `latency_p50_ns`. Where both sides are None, it is a
    change that no figure shows.
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
    """An update that was decided and not yet done: the baseline before and after it.

    `after` is None where nothing of the model is left. `notes` say what whoever reads the plan
    should know beside its changes.
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
    """Between two samples by linear interpolation, as numpy does it."""
    ordered: Sequence[int] = sorted(values)
    position = percent / 100 * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
