"""One case that was judged, and what was measured of its sides."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.profiler.measurements import Measurement, SideRun
from pytest_modelperf.profiler.pair_run import Pair
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.stats.estimates import spread_of_round


class JudgedCase(Struct, frozen=True):
    """A case with its comparison and with what was measured, where it ran.

    `profile` is of the new model, and `before` of the other side of a duet. `observed` are the
    counts that an earlier run of the same case completed, where none ran now. `pair` has the shapes
    that a run told; None where nothing ran.
    """

    comparison: CaseComparison
    profile: CaseProfile | None = None
    engines: tuple[str, ...] = ()
    before: Measurement | None = None
    observed: StoredStatic | None = None
    pair: Pair | None = None


def side_run(measured: Measurement | None) -> SideRun | None:
    """What a report shows of a side; None where it did not run."""
    if measured is None:
        return None
    return SideRun(
        engine=measured.engine,
        latency=measured.latency,
        rounds=tuple(spread_of_round(made.times_ns) for made in measured.rounds),
        load_ms=measured.load_ms,
        first_inference_ms=measured.first_inference_ms,
    )


def describe_engine(profile: CaseProfile) -> str:
    """`onnxruntime 1.31.1`; empty where nothing ran."""
    return "" if profile.measured is None else profile.measured.engine.label
