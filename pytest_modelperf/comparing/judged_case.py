"""Judge one case of two models by the rounds of its duet, with notes on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredCase, StoredLatency, StoredStatic
from pytest_modelperf.comparing.gates import (
    Gate,
    answer_by_parts,
    block_pairs,
    percentile_metrics,
    side_latencies,
    start_metrics,
)
from pytest_modelperf.comparing.records import MEDIAN, TOTAL, CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.since_recorded import describe_slowdown
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import DuetRound, Measurement, SideRun
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.pairs.run import PairRun, RanSide
from pytest_modelperf.profiler.prepare import Model, Pair, PairOf
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.duet import typical_ratio_of_modes
from pytest_modelperf.stats.parts import PartsAnswer
from pytest_modelperf.stats.records import Latency, Percentile, spread_of_round
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape


class JudgedCase(Struct, frozen=True):
    """A case with its comparison and, if it ran, with what was measured.

    `profile` is of the new model, and `before` of the other side of a duet. `observed` are the
    counts that an earlier run of the same case completed, if it did not run now. `pair` has the
    shapes seen in a run, and is None if nothing ran.
    """

    comparison: CaseComparison
    profile: CaseProfile | None = None
    before: Measurement | None = None
    observed: StoredStatic | None = None
    pair: Pair | None = None


def with_failure(
    counted: CaseComparison, failure: str, side: Literal["before", "after"] | None
) -> CaseComparison:
    whose = {"before": "the model before: ", "after": "the model now: ", None: ""}[side]
    return replace(counted, failure=f"{whose}{failure}", failed_side=side)


def without_gains(failed: CaseComparison) -> CaseComparison:
    """Return a failed case without its improvements: a model that does not run saves nothing."""
    return replace(failed, metrics=left_open(failed.metrics, Verdict.IMPROVED))


def left_open(metrics: Sequence[Metric], verdict: Verdict) -> tuple[Metric, ...]:
    """Make the metrics with this verdict inconclusive."""
    return tuple(
        replace(each, verdict=Verdict.INCONCLUSIVE) if each.verdict is verdict else each
        for each in metrics
    )


def side_run(
    measured: Measurement | None, metrics: Sequence[Metric] = (), *, is_before: bool = False
) -> SideRun | None:
    """Return the profile of a side that ran, with the percentiles of the metrics."""
    if measured is None:
        return None
    shown_ms = {m.name: m.before if is_before else m.after for m in metrics if m.limit is None}
    percentiles = (
        _moved(percentile, shown_ms.get(f"latency_{percentile.name}"))
        for percentile in measured.latency.percentiles
    )
    return SideRun(
        engine=measured.engine,
        latency=replace(measured.latency, percentiles=tuple(percentiles)),
        rounds=tuple(spread_of_round(made.times_ns) for made in measured.rounds),
        load_ms=measured.load_ms,
        first_inference_ms=measured.first_inference_ms,
    )


def _moved(percentile: Percentile, shown_ms: float | None) -> Percentile:
    """Move the percentile to the shown value, and scale its interval."""
    if not percentile.value_ns or shown_ms is None:
        return percentile
    return percentile.scaled(shown_ms * 1e6 / percentile.value_ns)


class PairedCase(Struct, frozen=True):
    """A case of a pair: the side before, the gate that judges it, and its place among all cases."""

    pair: Pair
    before: Side
    gate: Gate
    place: CasePlace

    @property
    def id(self) -> str:
        return self.place.case.id

    @property
    def stored(self) -> StoredCase | None:
        """The case as the baseline stores it, or None if no baseline has it."""
        return None if self.before.baseline is None else self.before.baseline.case(self.id)

    @property
    def recorded(self) -> StoredLatency | None:
        """The latency of the stored case on this kind of machine."""
        return self.before.recorded(self.id)


def bind_pairs(
    before: Side, after: Side, request: ProfileRequest, extensions: Extensions
) -> list[PairOf[Model]]:
    files = open_model(before.source), open_model(after.source)
    requests = request_of_each(request, files)
    require_equal_phases(files, requests)
    models = [
        [Model.bind(file, binding, own, extensions) for binding in own.bindings_of(file)]
        for file, own in zip(files, requests, strict=True)
    ]
    require_equal_batches(files, [[m.bound.inputs.batch_size for m in side] for side in models])
    return [PairOf(old, new, before.setup, after.setup) for old, new in zip(*models, strict=True)]


class JudgedRounds(Struct, frozen=True):
    """The answers of a finished duet.

    `metrics` are the latency and, if the gate judges them, the starts. `before` is the latency of
    the first side. `parts` are the answers of the parts, if some ran besides the whole model.
    `typical` is the ratio of the typical pair of inferences, if these come in modes that decide the
    median.
    """

    metrics: tuple[Metric, ...]
    before: Latency
    parts: PartsAnswer | None
    typical: float | None

    @property
    def p50(self) -> Metric:
        """The median or, for a workload, the time of a pass, which takes its place."""
        return next(metric for metric in self.metrics if metric.name in {MEDIAN, TOTAL})

    def with_median(self, median: Metric) -> JudgedRounds:
        metrics = tuple(median if each is self.p50 else each for each in self.metrics)
        return replace(self, metrics=metrics)

    @property
    def how(self) -> How:
        """What the median was judged by."""
        return How.DUET if self.parts is None or not self.parts.median.is_by_parts else How.PARTS


def judge_rounds(rounds: Sequence[DuetRound], gate: Gate) -> JudgedRounds:
    pairs, sides = block_pairs(rounds), side_latencies(rounds)
    parts = answer_by_parts(rounds, gate)
    metrics = percentile_metrics(rounds, gate, sides, parts)
    if gate.judges_starts:
        metrics = (*metrics, *start_metrics(rounds, gate))
    typical = None
    if parts is None:
        typical = typical_ratio_of_modes(pairs, gate.tolerance, gate.confidence)
    return JudgedRounds(metrics, sides[0], parts, typical)


UNJUDGED_OUTPUTS = (
    "outputs are not judged: the baseline's twin has other weights. To judge them, give the older "
    "model itself, or set output_sketch"
)
# Seconds are shown without decimals from here on.
_WHOLE_SECONDS = 9.5


def describe_duet(asked: PairedCase, ran: PairRun, judged: JudgedRounds) -> tuple[str, ...]:
    """Return each note once, in the order in which they are shown."""
    pair = asked.pair
    is_unjudged = asked.gate.tolerances.outputs is not None and asked.before.baseline is not None
    notes = (
        *notes_of_sides(_notes_of(ran.before), _notes_of(ran.after)),
        *_other_shapes(pair),
        *_machine_factor(asked, ran, judged),
        *describe_modes(judged),
        *([UNJUDGED_OUTPUTS] if is_unjudged else []),
        *_longer_than_usual(ran.rounds, pair.after_setup),
    )
    return tuple(dict.fromkeys(notes))


def notes_of_sides(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the notes of both sides. A note of only one side says which."""
    yield from (note if note in after else f"before: {note}" for note in before)
    yield from (f"now: {note}" for note in after if note not in before)


def _notes_of(side: RanSide) -> tuple[str, ...]:
    measured = side.profile.measured
    return (*side.profile.static.notes, *(() if measured is None else measured.notes))


def _other_shapes(pair: Pair) -> Iterator[str]:
    old, new = pair.before.bound.inputs.shapes, pair.after.bound.inputs.shapes
    for name, shape in new.items():
        other = old.get(name)
        if shape is not None and other is not None and shape != other:
            yield (
                f"the input {printable(name)} is {format_shape(other)} before and "
                f"{format_shape(shape)} now"
            )


def _machine_factor(asked: PairedCase, ran: PairRun, judged: JudgedRounds) -> list[str]:
    stored, factor = asked.recorded, find_baseline_factor(asked, ran, judged)
    if stored is None or factor is None:
        return []
    date = max(process.date for process in stored.processes)
    return [f"the baseline takes {describe_factor(factor)} when it was recorded ({date})"]


def find_baseline_factor(asked: PairedCase, ran: PairRun, judged: JudgedRounds) -> float | None:
    """Return the baseline's time here divided by its recorded one, or None if unknown."""
    stored, now = asked.recorded, ran.before.profile.measured
    if stored is None or now is None or not stored.is_of(now.engine):
        return None
    recorded_ns = stored.percentile_ns(50.0)
    return judged.before.median_ns / recorded_ns if recorded_ns else None


def describe_factor(factor: float) -> str:
    """Describe how long something takes on this machine: `5 % longer on this machine than`."""
    return describe_slowdown(factor, " on this machine")


def describe_modes(judged: JudgedRounds) -> Iterator[str]:
    """Yield a note if the inferences come in modes that decide how the median is judged."""
    if judged.typical is not None:
        yield (
            "the inferences come in modes, and one side takes the slow one more often: the typical "
            f"pair differs by {100 * (judged.typical - 1):+.1f} %; p50 is judged by the medians of "
            "the rounds"
        )


def _longer_than_usual(rounds: Sequence[DuetRound], setup: Setup) -> Iterator[str]:
    first, last = rounds[0].before.begun_ns, rounds[-1].before.begun_ns
    if setup.stretch_seconds is None or first is None or last is None:
        return
    note = describe_stretch((last - first) / 1e9, setup.policy.max_seconds)
    yield from () if note is None else (note,)


def describe_stretch(seconds: float, usual_seconds: float) -> str | None:
    """Return a note if measuring took visibly longer than usual."""
    # The last round can begin slightly late, however fast a model is.
    shown = f"{seconds:.0f}" if seconds >= _WHOLE_SECONDS else f"{seconds:.1f}"
    if float(shown) <= usual_seconds:
        return None
    return (
        f"its rounds are slow, so it was measured for {shown} s instead of {usual_seconds:g} s: "
        "no time was given"
    )
