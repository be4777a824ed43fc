"""The records of a profile: its model, its cases, and the layers of each.

The results of a run are in `measurements`. Stored facts are fields, derived ones are properties. An
unknown value is None, never 0.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pytest_modelperf.errors import ModelPerfError, TooFewCoresError, UsageError
from pytest_modelperf.files.documents import Count, Digest, Positive
from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.counting.records import (
    LAYER_TYPE,
    STATIC,
    LayerType,
    StaticProfile,
    layer_type,
)
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import ENGINE, LATENCY, ROUND, Measurement
from pytest_modelperf.profiler.rows import (
    GENERATION,
    LAYER,
    MIXED,
    WORKLOAD,
    GenerationFigures,
    LayerRow,
    MemberFigures,
    WorkloadFigures,
)
from pytest_modelperf.report.codec import JsonDocument, JsonObject, OrNulls
from pytest_modelperf.report.notebook import Shown
from pytest_modelperf.stats.records import Latency, Percentile, Slope
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes

_NS_PER_MS = 1e6


class ModelIdentity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of a model that do not depend on its place; a Python function has no size.

    `total_bytes` is the size with external data, or None if that is missing.
    """

    name: str
    sha256: Digest | None
    size_bytes: Count | None = field(name="bytes")
    opsets: Mapping[str, Count]
    producer: str
    total_bytes: Count | None


class ModelFacts(ModelIdentity, frozen=True, forbid_unknown_fields=False):
    """The file that a profile is of; a newer version may add keys to it.

    `path` comes after the name, because positional fields come before the others. `function_file`
    is the Python file that a function was read from.
    """

    name: str
    path: str | None
    function_file: str | None = None

    @classmethod
    def named(
        cls, name: str, path: str | None = None, function_file: str | None = None
    ) -> ModelFacts:
        """Return the facts of a model of which only these are known."""
        return cls(
            name,
            path,
            function_file,
            sha256=None,
            size_bytes=None,
            opsets={},
            producer="",
            total_bytes=None,
        )

    @property
    def described_size(self) -> str:
        """The size as text, such as `12.40 MiB with external data`. Empty if there is no file."""
        if not self.size_bytes:
            return ""
        if self.total_bytes is None or self.total_bytes == self.size_bytes:
            return format_bytes(self.size_bytes)
        return f"{format_bytes(self.total_bytes)} with external data"


class CaseMember(Struct, frozen=True):
    """One member of a workload, and how often it occurs in a pass.

    The counts and layers of the case are those of the largest member.
    """

    name: str
    weight: Positive
    is_largest: bool = False


class Case(Struct, frozen=True):
    """One model at one batch size and one core count, with its other dimensions bound.

    `dims` distinguish the cases of a request. `given_dims` are all dimensions that were given a
    size, or None if a kept profile does not have them. `engine` is set only if a request has
    several. `phase` is that of a generation, if the case is one. `program` is the name of the test,
    if the case is a program and not a model. `members` are those of a workload.
    """

    batch_size: Positive
    cores: Positive
    dims: tuple[tuple[str, int], ...] = ()
    engine: str | None = None
    given_dims: tuple[tuple[str, int], ...] | None = ()
    phase: GenerationPhase | None = None
    program: str | None = None
    members: tuple[CaseMember, ...] = ()

    @property
    def id(self) -> str:
        if self.program is not None:
            return self.program
        parts = [f"b{self.batch_size}", f"c{self.cores}", *(f"{n}{s}" for n, s in self.dims)]
        if self.phase is not None:
            parts.append(self.phase.id)
        if self.members:
            parts.append(MIXED)
        return "-".join(parts if self.engine is None else [*parts, self.engine])

    @property
    def is_step(self) -> bool:
        """Whether the case generates one token at a time."""
        return self.phase is not None and self.phase.phase is Phase.STEP

    @property
    def varied(self) -> Mapping[str, Count]:
        """The sizes of `dims`, by their names."""
        return dict(self.dims)

    @property
    def given(self) -> Mapping[str, Count] | None:
        """The sizes of `given_dims`, by their names."""
        return None if self.given_dims is None else dict(self.given_dims)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The known sizes that were given to dimensions. Those of `dims` come first."""
        return dict([*self.dims, *(self.given_dims or ())])


class Outcome(enum.Enum):
    """The reason why a case has no measurement."""

    STATIC = "not measured"
    SKIPPED = "skipped"
    FAILED = "failed"

    @classmethod
    def of(cls, error: ModelPerfError) -> Outcome:
        return cls.SKIPPED if isinstance(error, TooFewCoresError) else cls.FAILED


class CaseState(enum.Enum):
    """The outcome of a case."""

    MEASURED = "measured"
    STATIC = Outcome.STATIC.value
    SKIPPED = Outcome.SKIPPED.value
    FAILED = Outcome.FAILED.value


class CaseProfile(Struct, frozen=True):
    """Everything known about one case.

    `counted` is None for a Python function, which has no graph. `measured` is None if the case did
    not run; then `outcome` and `reason` explain why.
    """

    case: Case
    counted: StaticProfile | None
    measured: Measurement | None = None
    outcome: Outcome = Outcome.STATIC
    reason: str = "it was profiled without running it"

    def __repr__(self) -> str:
        parts = []
        if self.counted is not None:
            parts.append(f"{self.counted.macs} MACs, {self.counted.params} params")
        if self.measured is not None:
            p50 = self.measured.latency.p50_ms
            parts.append("no p50" if p50 is None else f"p50 {p50} ms")
        elif self.outcome is not Outcome.STATIC:
            parts.append(f"{self.outcome.value}, {printable(self.reason)}")
        return f"<profile {self.case.id}: {', '.join(parts)}>"

    @property
    def static(self) -> StaticProfile:
        """The counts of the graph. Raises UsageError if there is none."""
        if self.counted is None:
            raise UsageError("a Python function has no graph to count: only its latency is known.")
        return self.counted

    @property
    def latency(self) -> Latency:
        """The latency in steady state. Raises UsageError if the case did not run."""
        return self._measured().latency

    @property
    def typical(self) -> Percentile:
        """The median latency, or a workload's mean over a pass. Raises UsageError without a run."""
        return self._measured().typical

    @property
    def items_per_second(self) -> float | None:
        """The items of a batch divided by the typical latency. Raises UsageError without a run."""
        return self._measured().items_per_second

    @property
    def load_ms(self) -> float:
        return self._measured().load_ms

    @property
    def first_inference_ms(self) -> float:
        return self._measured().first_inference_ms

    @property
    def peak_rss_bytes(self) -> int | None:
        return self._measured().peak_rss_bytes

    @property
    def generation(self) -> GenerationFigures | None:
        """The figures of a phase of a generation, or None if the case is not one."""
        phase = self.case.phase
        if phase is None:
            return None
        counts = None if self.counted is None else self.counted.generation
        # A prefill has no steps, so the MACs of its first and its last step are None.
        counted = GenerationFigures() if counts is None else GenerationFigures(**asdict(counts))
        run = self.measured
        if run is None:
            return counted
        p50 = run.latency.percentile(50.0)
        if phase.phase is Phase.PREFILL:
            return replace(counted, ttft=p50)
        return replace(
            counted,
            token_p50=p50,
            token_p95=run.latency.percentile(95.0),
            growth=_growth(run, phase),
            tokens_per_second=run.latency.items_per_second,
        )

    @property
    def workload(self) -> WorkloadFigures | None:
        """The figures of a workload, or None if the case is not one."""
        members = self.case.members
        if not members:
            return None
        counts = () if self.counted is None else self.counted.members
        macs = {each.name: each.macs for each in counts}
        plain = [MemberFigures(**asdict(each), macs=macs.get(each.name)) for each in members]
        found = None if self.measured is None else self.measured.mixture
        if found is None:
            return WorkloadFigures(members=tuple(plain))
        bounds = (found.low_ns, found.high_ns)
        low_ms, high_ms = (None if ns is None else ns / _NS_PER_MS for ns in bounds)
        return WorkloadFigures(
            total_ms=found.total_ns / _NS_PER_MS,
            interval_ms=None if low_ms is None or high_ms is None else (low_ms, high_ms),
            members=tuple(
                replace(each, p50=own.p50, share=own.share)
                for each, own in zip(plain, found.members, strict=True)
            ),
        )

    @property
    def state(self) -> CaseState:
        """The outcome of the case: whether it was measured, and if not, why."""
        return CaseState.MEASURED if self.measured is not None else CaseState(self.outcome.value)

    @property
    def unmeasured_reason(self) -> str | None:
        return self.reason if self.measured is None else None

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.measured is None else self.measured.notes

    @property
    def has_layer_times(self) -> bool:
        return self.measured is not None and self.measured.layer_times is not None

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """The layers in graph order, then the times that belong to none of them."""
        layers = () if self.counted is None else self.counted.layers
        times = () if self.measured is None else self.measured.layer_times or ()
        time_of = {time.layer: time for time in times if time.layer is not None}
        runs_in = {i: layers[at].id for at, time in time_of.items() for i in time.fused}
        rows = []
        for index, layer in enumerate(layers):
            time = time_of.get(index)
            fused = () if time is None else tuple(layers[i] for i in time.fused)
            rows.append(LayerRow(layer, time, fused, runs_in.get(index)))
        return (*rows, *(LayerRow(None, time) for time in times if time.layer is None))

    @property
    def layer_types(self) -> Mapping[str, LayerType]:
        """The layers grouped by operator, with their time if it was taken."""
        counted = {} if self.counted is None else dict(self.counted.layer_types)
        if not self.has_layer_times:
            return counted
        ns: dict[str, float] = {}
        for row in self.layers:
            if row.ns is not None:
                ns[row.qualified_op] = ns.get(row.qualified_op, 0.0) + row.ns
        total = sum(ns.values())
        kinds = {
            op: replace(kind, ns=ns.get(op), share=ns[op] / total if op in ns and total else None)
            for op, kind in counted.items()
        }
        for op, spent in ns.items():
            if op not in kinds:
                share = spent / total if total else None
                kinds[op] = replace(layer_type(op, "", []), ns=spent, share=share)
        return kinds

    def _measured(self) -> Measurement:
        if self.measured is None:
            raise UsageError(f"{printable(self.case.id)} has no measurement: {self.reason}.")
        return self.measured


def _growth(run: Measurement, phase: GenerationPhase) -> Slope | None:
    # Imported here, because a static profile loads no scipy.
    from pytest_modelperf.stats.robust import SteppedTimes, slope_of

    blocks = [made.block for made in run.rounds]
    rounds = [SteppedTimes(b.first_step, b.times_ns) for b in blocks if b.first_step is not None]
    return slope_of(rounds, phase.steps, run.latency.confidence)


# The roofline is an object of a package that this one may not import.
CASE = JsonObject(
    CaseProfile,
    "id=case.id batch_size=case.batch_size cores=case.cores dims=case.varied"
    " given_dims?=case.given phase?=case.phase.phase prompt?=case.phase.prompt"
    " generate?=case.phase.generate generation? workload? outcome=state reason=unmeasured_reason"
    " engine=measured.engine processors=measured.processors seconds=measured.seconds notes"
    " static=counted latency=measured.latency load_ms?=measured.load_ms"
    " first_load_ms?=measured.first_load_ms first_inference_ms?=measured.first_inference_ms"
    " every_ns?=measured.every_ns streams?=measured.streams late?=measured.late"
    " peak_rss_bytes=measured.peak_rss_bytes engine_peak_bytes=measured.engine_peak_bytes"
    " layer_types?=layer_types.* layers roofline?= raw=measured.rounds",
    generation=GENERATION,
    workload=WORKLOAD,
    engine=ENGINE.or_nulls,
    static=OrNulls(STATIC, notes=()),
    latency=LATENCY.or_nulls,
    layer_types=LAYER_TYPE,
    layers=LAYER,
    roofline=Any,
    raw=ROUND,
)


class Profile(Shown, frozen=True):
    """The profile of a model: its cases, in the order asked for.

    A static profile is the same on every machine, so `machine` is only set on request. A measured
    profile always has it.
    """

    model: ModelFacts
    cases: tuple[CaseProfile, ...]
    machine: MachineFacts | None = None


PROFILE = JsonDocument(Profile, "model machine cases", machine=MACHINE, cases=CASE)


class StoredInputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The inputs of a case that a user gave; the others are made.

    `specs` has the type, the shape and at most a few values of each input by its name, in the form
    of `--input`: `float32:1x3x64x64`, `int64:1:5`. `sha256` covers all values, and is None if no
    inputs were given.
    """

    specs: Mapping[str, str]
    sha256: Digest | None

    def __str__(self) -> str:
        return ", ".join(f"{n}:{s}" for n, s in sorted(self.specs.items())) or "none given"
