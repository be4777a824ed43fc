"""The parts of a model that changed, as a comparison reports them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.by_plan import describe_same_plan
from pytest_modelperf.comparing.figures import format_percent
from pytest_modelperf.comparing.gates import Gate, has_parts, judge_median, part_rounds
from pytest_modelperf.comparing.records import How, PartChange
from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.pair_run import PairRun
from pytest_modelperf.stats.parts import part_figures

_MEDIAN = 50.0


def find_how(rounds: Sequence[DuetRound], gate: Gate) -> How:
    """By what these rounds judged the median."""
    if not has_parts(rounds):
        return How.DUET
    answer = judge_median(rounds, gate.rule(_MEDIAN), is_last=True)
    return How.PARTS if answer.is_by_parts else How.DUET


def part_changes(ran: PairRun, gate: Gate) -> tuple[PartChange, ...]:
    """Each part with its difference, the largest first."""
    if ran.plans is None or not has_parts(ran.rounds) or len(ran.rounds) < 2:
        return ()
    figures = part_figures(part_rounds(ran.rounds), gate.rule(_MEDIAN).level)
    changes = [
        PartChange(
            kernels_before=len(part.before.changed),
            kernels_after=len(part.after.changed),
            before_ns=figure.before_ns,
            after_ns=figure.after_ns,
            change_ns=figure.shift_ns,
            low_ns=figure.low_ns,
            high_ns=figure.high_ns,
            reasons=(part.text,),
        )
        for part, figure in zip(ran.plans.parts, figures, strict=True)
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.change_ns)))


def describe_plans(ran: PairRun, gate: Gate) -> Iterator[str]:
    """What the plans of both sides say of the case, in words."""
    plans = ran.plans
    if plans is None:
        return
    if plans.is_same:
        yield describe_same_plan(plans.kernels)
    elif plans.reason is not None:
        yield f"judged by the whole model: {plans.reason}"
    elif has_parts(ran.rounds):
        answer = judge_median(ran.rounds, gate.rule(_MEDIAN), is_last=True)
        if answer.contradiction is not None:
            yield (
                "judged by the whole model, which changed by "
                f"{format_percent(answer.contradiction - 1)}: more than the parts that differ tell"
            )
