"""Why a case is inconclusive, what would most likely decide it, and notes on its duet."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from pytest_modelperf.comparing.figures import is_sampled, metric_title
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedRounds, PairedCase
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.short_runs import describe_slowdown
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.verdict_lines import titles
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.pairs.run import PairRun, RanSide
from pytest_modelperf.profiler.prepare import Pair
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.conditions import MAX_ADVISED_S, MAX_LONGER, rounded_up
from pytest_modelperf.stats.looks import seconds_for
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape

# Advice to take more time asks for at least this many times as much.
_LEAST_FACTOR = 1.5
# A figure this near to what is allowed, as a logarithm, stays open on a quiet machine too.
_NEAR = 0.005


class CaseRemedy(enum.Enum):
    """A way to get an inconclusive case decided; the value is the advice, as a template."""

    TIME = "give more time with {max_seconds}"
    SAMPLES = (
        "no reasonable time takes so many of this model: judge a percentile nearer to the median"
    )
    QUIET = (
        "no reasonable time tells it in this noise: measure on a quieter machine (modelperf "
        "doctor tells how quiet this one is)"
    )
    TOLERANCE = "too near to what is allowed for any run to tell: allow more with {tolerance}"
    BUDGET = "too near to its limit for any run to tell: change the budget where it is set"
    UNJUDGED = (
        "there are no times to judge the latency by: record the baseline again with {record} on "
        "this kind of machine, or give the older model itself"
    )
    # More time does not help: it does not change how far the recorded processes differ.
    RECORDING = (
        "stored times tell little: give the older model itself, or record the baseline again with "
        "{record} when less else runs here, if noise is why its twin is not trusted"
    )


class CaseAdvice(Struct, frozen=True):
    """The remedy for an inconclusive case; `seconds` is the time to give, where it is known."""

    remedy: CaseRemedy
    seconds: int | None = None

    def in_words(self, wording: Wording) -> str:
        """The advice as a phrase for reports."""
        if self.remedy is CaseRemedy.TIME and self.seconds is not None:
            return f"give more time with {wording.value('max_seconds', str(self.seconds))}"
        return self.remedy.value.format_map({**wording.names, "record": wording.record})


def advise(case: CaseComparison) -> CaseAdvice | None:
    """The advice for a case; None if it is decided, or if only exact figures are open."""
    unclear = _unclear(case)
    if not unclear:
        return None
    is_by_stored = case.how is How.STORED and any(m.limit is None and m.ratio for m in unclear)
    if case.is_unjudged or is_by_stored:
        return CaseAdvice(CaseRemedy.RECORDING if is_by_stored else CaseRemedy.UNJUDGED)
    needs = [(_seconds_needed(m, case), m) for m in unclear]
    known = [(seconds, m) for seconds, m in needs if seconds is not None]
    longest, hardest = max(known, key=lambda need: need[0], default=(0.0, unclear[0]))
    if longest <= MAX_ADVISED_S:
        is_told = len(known) == len(needs)
        return CaseAdvice(CaseRemedy.TIME, rounded_up(longest) if is_told else None)
    if hardest.samples_needed is not None:
        return CaseAdvice(CaseRemedy.SAMPLES)
    distance = _distance(hardest)
    if distance is None or distance > _NEAR:
        return CaseAdvice(CaseRemedy.QUIET)
    return CaseAdvice(CaseRemedy.TOLERANCE if hardest.limit is None else CaseRemedy.BUDGET)


def advise_all(cases: Iterable[CaseComparison]) -> Iterator[CaseAdvice]:
    """Each remedy of several cases once, with the longest time."""
    found: dict[CaseRemedy, CaseAdvice] = {}
    for case in cases:
        advice = advise(case)
        if advice is None:
            continue
        other = found.get(advice.remedy, advice)
        found[advice.remedy] = max(other, advice, key=lambda each: each.seconds or 0)
    yield from found.values()


def describe_doubt(case: CaseComparison, wording: Wording) -> str | None:
    """Says which change an inconclusive run could have seen, and what would help."""
    advice = advise(case)
    if advice is None:
        return None
    if advice.remedy is CaseRemedy.UNJUDGED:
        return advice.in_words(wording)
    return f"{_describe_reach(_unclear(case), case)}: {advice.in_words(wording)}"


def _unclear(case: CaseComparison) -> Sequence[Metric]:
    if case.verdict is not Verdict.INCONCLUSIVE or case.failure is not None:
        return ()
    return [m for m in case.metrics if m.decides and m.is_open and is_sampled(m.name)]


def _describe_reach(unclear: Sequence[Metric], case: CaseComparison) -> str:
    seen = ", ".join(
        f"{metric_title(m.name)} {100 * m.detectable:+.1f} %"
        for m in unclear
        if m.detectable is not None and math.isfinite(m.detectable)
    )
    limited = [m for m in unclear if m.limit is not None and m.after_interval is not None]
    parts = [f"this run could see {seen} or more"] if seen else []
    if limited:
        parts.append(f"the interval holds the limit of the {titles(limited)}")
    lacking = [m for m in unclear if m.samples_needed is not None]
    parts += [_describe_lack(lacking, case)] if lacking else []
    return "; ".join(parts) or "this run was too short to tell"


def _describe_lack(lacking: Sequence[Metric], case: CaseComparison) -> str:
    """`the p99 latency takes about 1,400 inferences, and 710 were timed`."""
    first, *others = (
        (metric_title(metric.name), f"about {metric.samples_needed:,}") for metric in lacking
    )
    text = f"the {first[0]} takes {first[1]} inferences"
    text += "".join(f", the {title} {count}" for title, count in others)
    return text if case.after is None else f"{text}, and {case.after.latency.samples:,} were timed"


def _seconds_needed(metric: Metric, case: CaseComparison) -> float | None:
    """About how long a run would take that most likely decides the metric; None if unknown.

    Infinite if no run can. More rounds than usual are only made in more time.
    """
    factor = _times_as_long(metric, case.rounds)
    if factor is None or case.seconds is None:
        return None
    if factor > MAX_LONGER:
        return math.inf
    rounds = factor * case.rounds if case.rounds is not None and case.is_duet else 0.0
    return max(case.seconds * factor, seconds_for(rounds))


def _times_as_long(metric: Metric, rounds: int | None) -> float | None:
    """About how many times as long a run would have to be to decide the metric; None if unknown.

    The interval of a limited figure shrinks with the root of the time.
    """
    if metric.rounds_needed is not None and rounds:
        return max(_LEAST_FACTOR, metric.rounds_needed / rounds)
    if metric.limit is None:
        # Rounds that tell a ratio, and not how many more would decide it, say that none would.
        return None if metric.ratio is None or metric.detectable is None else math.inf
    reach, distance = _reach(metric), _distance(metric)
    if reach is None or distance is None:
        return None
    return max(_LEAST_FACTOR, (reach / distance) ** 2) if distance else math.inf


def _reach(metric: Metric) -> float | None:
    """The smallest distance from its limit that this run mostly sees, as a logarithm."""
    if metric.after_interval is None or min(metric.after_interval) <= 0:
        return None
    low, high = metric.after_interval
    return math.log(high / low) / 2


def _distance(metric: Metric) -> float | None:
    if metric.limit is None:
        ratio = metric.ratio
        return None if not ratio else abs(math.log(ratio) - math.log1p(metric.allowed or 0.0))
    # Memory can shrink, and its growth is below zero then.
    if metric.after is None or metric.after <= 0:
        return None
    return abs(math.log(metric.after / metric.limit))


# -- notes on a duet, shown below its figures


UNJUDGED_OUTPUTS = (
    "outputs are not judged: the baseline's twin has other weights. They are where the older model "
    "itself is given, or by output_sketch"
)
# From here on, seconds are shown without decimals.
_WHOLE_SECONDS = 9.5


def describe_duet(asked: PairedCase, ran: PairRun, judged: JudgedRounds) -> tuple[str, ...]:
    """Each note once, in the order in which they are shown."""
    pair, gate = asked.pair, asked.gate
    notes = (
        *notes_of_sides(_notes_of(ran.before), _notes_of(ran.after)),
        *_other_shapes(pair),
        *_machine_factor(asked, ran, judged),
        *describe_modes(judged),
        *_unjudged_outputs(asked.before, gate),
        *_longer_than_usual(ran.rounds, pair.after_setup),
    )
    return tuple(dict.fromkeys(notes))


def notes_of_sides(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """The notes of both sides; one that only one of them has says which."""
    yield from (note if note in after else f"before: {note}" for note in before)
    yield from (f"now: {note}" for note in after if note not in before)


def _notes_of(side: RanSide) -> tuple[str, ...]:
    measured = side.profile.measured
    return (*side.profile.static.notes, *(() if measured is None else measured.notes))


def _other_shapes(pair: Pair) -> Iterator[str]:
    """The inputs that have another shape on each side, so that the sides do other work."""
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
    """How long the baseline takes on this machine, compared with when it was recorded.

    None if it was recorded on another engine, which can be what makes the difference.
    """
    stored, now = asked.recorded, ran.before.profile.measured
    if stored is None or now is None or not stored.is_of(now.engine):
        return None
    recorded_ns = stored.percentile_ns(50.0)
    return judged.before.median_ns / recorded_ns if recorded_ns else None


def describe_factor(factor: float) -> str:
    """How long something takes on this machine: `5 % longer on this machine than`."""
    return describe_slowdown(factor, " on this machine")


def describe_modes(judged: JudgedRounds) -> Iterator[str]:
    """A note if the inferences come in modes and that decides how the median is judged."""
    if judged.typical is not None:
        yield (
            "the inferences come in modes, and one side takes the slow one more often: the typical "
            f"pair differs by {100 * (judged.typical - 1):+.1f} %; p50 is judged by the medians of "
            "the rounds"
        )


def _unjudged_outputs(before: Side, gate: Gate) -> Iterator[str]:
    if gate.tolerances.outputs is not None and before.baseline is not None:
        yield UNJUDGED_OUTPUTS


def _longer_than_usual(rounds: Sequence[DuetRound], setup: Setup) -> Iterator[str]:
    """How long a slow model was measured, where that is longer than usual."""
    first, last = rounds[0].before.begun_ns, rounds[-1].before.begun_ns
    if setup.stretch_seconds is None or first is None or last is None:
        return
    note = describe_stretch((last - first) / 1e9, setup.policy.max_seconds)
    yield from () if note is None else (note,)


def describe_stretch(seconds: float, usual_seconds: float) -> str | None:
    """A note if measuring took longer than usual; None if both would be shown as the same."""
    # The last round can begin a moment late, however fast a model is.
    shown = f"{seconds:.0f}" if seconds >= _WHOLE_SECONDS else f"{seconds:.1f}"
    if float(shown) <= usual_seconds:
        return None
    return (
        f"its rounds are slow, so it was measured for {shown} s instead of {usual_seconds:g} s: "
        "no time was given"
    )
