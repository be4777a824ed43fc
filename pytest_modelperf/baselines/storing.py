"""The stored form of a profile and its measurements: totals, and enough of the samples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.records import (
    Fidelity,
    Provenance,
    StoredCase,
    StoredGeneration,
    StoredLatency,
    StoredProcess,
    StoredStatic,
)
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.measurements import Measurement
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts, StoredInputs
from pytest_modelperf.report.document import copy_fields

# Some 40 kB with ten digits a sample. Such a file stays readable in a diff.
MAX_SAMPLES = 3_200
# Fewer samples would not show how the times of a round are spread.
_MIN_SAMPLES = 4


def store_case(
    profile: CaseProfile,
    model: ModelFacts,
    provenance: Provenance,
    structure: str,
    fidelity: Fidelity | None = None,
) -> StoredCase:
    """The stored form of a profiled case."""
    case, run = profile.case, profile.measured
    return StoredCase(
        id=case.id,
        batch_size=case.batch_size,
        cores=case.cores,
        dims=dict(sorted(case.dims)),
        generation=None,
        engine=case.engine if run is None else run.engine.name,
        options=None,
        inputs=StoredInputs(specs={}, sha256=None),
        model_sha256=model.sha256,
        static=store_static(profile.static.from_graph),
        observed=_observed(profile.static),
        fidelity=fidelity,
        provenance=provenance,
        plan=None,
        structure=structure,
    )


def generation_of(binding: Binding) -> StoredGeneration | None:
    """The phase of a generation that a binding asks for."""
    phase = binding.phase
    if phase is None:
        return None
    return StoredGeneration(
        phase=phase.phase,
        prompt=phase.prompt,
        generate=phase.generate,
        state=dict(sorted(binding.state.items())),
    )


def store_static(static: StaticProfile) -> StoredStatic:
    """The totals and the layer types of a static profile."""
    return copy_fields(
        StoredStatic,
        static,
        layer_types={
            op: replace(kind, ns=None, share=None)
            for op, kind in sorted(static.layer_types.items())
        },
        uncounted_ops=dict(sorted(static.uncounted_ops.items())),
    )


def _observed(static: StaticProfile) -> StoredStatic | None:
    """The counts that a run completed, unless the graph has all of them or they are random."""
    if static.graph_alone is None or static.observed is None:
        return None
    return store_static(static.observed)


def store_latency(
    profiles: Sequence[CaseProfile], model: ModelFacts, date: dt.date
) -> StoredLatency:
    """The stored latency of a case, from one profile for each process that measured it."""
    runs = [(profile, profile.measured) for profile in profiles]
    measured = [(profile, run) for profile, run in runs if run is not None]
    taken = sum(len(made.times_ns) for _, run in measured for made in run.rounds)
    share = min(1.0, MAX_SAMPLES / taken)
    return StoredLatency(
        engine=measured[0][1].engine,
        model_sha256=model.sha256,
        processes=tuple(_process(profile, run, date, share) for profile, run in measured),
    )


def thin(times_ns: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` of the samples, in order of time, with nearly the same percentiles.

    The kept samples have evenly spread ranks from the smallest to the largest. A percentile by
    linear interpolation then lies at the same share of the ranks as before.
    """
    count = len(times_ns)
    if count <= most:
        return tuple(times_ns)
    by_rank = sorted(range(count), key=lambda index: times_ns[index])
    kept = {by_rank[round(step * (count - 1) / (most - 1))] for step in range(most)}
    return tuple(times_ns[index] for index in sorted(kept))


def _process(profile: CaseProfile, run: Measurement, date: dt.date, share: float) -> StoredProcess:
    """The rounds of one process with this share of their samples.

    Percentiles are computed from the samples of all rounds together, so a long round has to
    outweigh a short one as it did when it was measured.
    """
    kinds = sorted(profile.layer_types.items())
    spent = {op: round(kind.ns) for op, kind in kinds if kind.ns is not None}
    return StoredProcess(
        date=date,
        load_ns=tuple(made.load_ns for made in run.rounds),
        first_ns=tuple(made.first_ns for made in run.rounds),
        peak_rss_bytes=run.peak_rss_bytes,
        layer_type_ns=None if run.layer_times is None else spent,
        samples=tuple(len(made.times_ns) for made in run.rounds),
        times_ns=tuple(
            thin(made.times_ns, max(_MIN_SAMPLES, int(share * len(made.times_ns))))
            for made in run.rounds
        ),
    )
