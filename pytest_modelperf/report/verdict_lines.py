"""What a comparison says in sentences: the verdict of a case, how sure it is, how it was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_modelperf.report.figures import (
    format_allowed,
    format_change,
    format_figure,
    format_interval,
    is_time,
    metric_title,
)
from pytest_modelperf.units import printable
from pytest_modelperf.verdicts import (
    CaseComparison,
    Comparison,
    Metric,
    OutputChange,
    Verdict,
)

FAILED = "failed"
# Of these a line in the summary says enough.
_QUIET = frozenset({Verdict.PASSED, Verdict.UNCHANGED})


def verdict_word(case: CaseComparison) -> str:
    """The verdict; that it failed where there is none."""
    return FAILED if case.has_failed else case.verdict.value


def is_quiet(case: CaseComparison) -> bool:
    """Whether there is nothing to say of a case beyond its verdict."""
    return case.failure is None and case.verdict in _QUIET


def describe_run(comparison: Comparison) -> str:
    """`regressed`, or `passed, 1 of 3 cases failed`."""
    failed = sum(case.has_failed for case in comparison.cases)
    if not failed:
        return comparison.verdict.value
    if failed == len(comparison.cases):
        return FAILED
    return f"{comparison.verdict.value}, {failed} of {len(comparison.cases)} cases {FAILED}"


def describe_verdict(case: CaseComparison, confidence: float | None) -> str:
    """`regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %`."""
    word = verdict_word(case)
    if case.has_failed:
        return word
    deciding = [m for m in case.metrics if m.gated and m.verdict is case.verdict]
    if case.outcome is not None or not deciding:
        return word
    first, *others = deciding
    text = f"{word}: {describe_metric(first, confidence)}"
    if case.verdict is Verdict.PASSED or not others:
        return text
    return f"{text}; also {', '.join(dict.fromkeys(metric_title(m.name) for m in others))}"


def describe_metric(metric: Metric, confidence: float | None) -> str:
    """A figure, how it changed, how sure that is, and what is allowed."""
    title = metric_title(metric.name)
    if metric.limit is not None:
        text = f"{title} {format_figure(metric.name, metric.after)}"
        if metric.after_interval is not None:
            low, high = (format_figure(metric.name, bound) for bound in metric.after_interval)
            text += f" ({_level(confidence)}interval {low} … {high})"
        return f"{text}, limit {format_figure(metric.name, metric.limit)}"
    if metric.before is None and metric.after is None:
        return f"too few samples for the {title}" if is_time(metric.name) else f"{title} unknown"
    if metric.ratio is None:
        before, after = (format_figure(metric.name, f) for f in (metric.before, metric.after))
        return f"{title} {before} before, {after} now"
    text = f"{title} {format_change(metric)}"
    if metric.interval is not None:
        text += f" ({_level(confidence)}interval {format_interval(metric)})"
    return f"{text}, allowed {format_allowed(metric)}" if metric.allowed else text


def describe_doubt(case: CaseComparison) -> str | None:
    """What a run that decided nothing could have seen, and what would help."""
    if case.verdict is not Verdict.INCONCLUSIVE or case.failure is not None:
        return None
    unclear = [
        metric
        for metric in case.metrics
        if metric.gated and metric.verdict is Verdict.INCONCLUSIVE and is_time(metric.name)
    ]
    if not unclear:
        return None
    seen = ", ".join(
        f"{metric_title(m.name)} {100 * m.detectable:+.1f} %"
        for m in unclear
        if m.detectable is not None and math.isfinite(m.detectable)
    )
    known = f"this run could see {seen} or more" if seen else "this run was too short to tell"
    return (
        f"{known}: give it more time with --max-seconds,"
        " or a quieter machine (modelperf doctor tells how quiet this one is)"
    )


def describe_method(case: CaseComparison) -> str | None:
    """`9 rounds as a duet, 2.1 s`; None where nothing ran."""
    if case.rounds is None:
        return None
    rounds = f"{case.rounds} round{'s' if case.rounds != 1 else ''}"
    rounds += " as a duet" if case.is_duet else " against stored times"
    return rounds if case.seconds is None else f"{rounds}, {case.seconds:.1f} s"


def describe_facts(case: CaseComparison) -> Iterator[tuple[str, str]]:
    """How it was measured, what no figure says of the outputs, what was noted: word and text."""
    method = describe_method(case)
    if method is not None:
        yield "how", method
    if case.outputs and all(is_equal(output) for output in case.outputs):
        count = len(case.outputs)
        are = "the output is" if count == 1 else f"all {count} outputs are"
        yield "outputs", f"{are} equal on the same inputs"
    for output in case.outputs:
        if output.difference is not None:
            yield "outputs", f"{printable(output.name)}: {printable(output.difference)}"
    for note in case.notes:
        yield "note", printable(note)


def is_equal(output: OutputChange) -> bool:
    """Whether both models gave out the same to the bit."""
    return output.difference is None and output.max_absolute == 0


def failure_lines(case: CaseComparison) -> Sequence[str]:
    """Why it could not be measured, a line each, with nothing in it that a terminal obeys."""
    return [] if case.failure is None else [printable(x) for x in case.failure.splitlines() if x]


def _level(confidence: float | None) -> str:
    return "" if confidence is None else f"{100 * confidence:.4g} % "
