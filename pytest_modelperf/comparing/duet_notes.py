"""Notes on a duet, shown below its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.judged_case import JudgedRounds, PairedCase
from pytest_modelperf.comparing.short_runs import describe_slowdown
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.pairs.run import PairRun, RanSide
from pytest_modelperf.profiler.prepare import Pair
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_shape

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
    """Return the baseline's time here by its recorded one, or None if that is of another engine."""
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
    """Return a note if measuring took longer than usual, or None if both would look the same."""
    # The last round can begin slightly late, however fast a model is.
    shown = f"{seconds:.0f}" if seconds >= _WHOLE_SECONDS else f"{seconds:.1f}"
    if float(shown) <= usual_seconds:
        return None
    return (
        f"its rounds are slow, so it was measured for {shown} s instead of {usual_seconds:g} s: "
        "no time was given"
    )
