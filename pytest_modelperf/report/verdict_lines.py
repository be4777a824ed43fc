"""What a comparison says in sentences: the verdict of a case, how sure it is, how it was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_modelperf.report.conditions import MAX_ADVISED_S, MAX_LONGER, rounded_up
from pytest_modelperf.report.figures import (
    LATENCY,
    describe_allowed,
    format_change,
    format_figure,
    format_interval,
    format_value,
    is_sampled,
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


def describe_verdict(
    case: CaseComparison, confidence: float | None, *, is_short: bool = False
) -> str:
    """`regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %`.

    Where two engines ran, it names both. Where it is to be short, it leaves out the interval and
    what else was decided so.
    """
    word = verdict_word(case)
    if case.has_failed:
        return word
    deciding = [m for m in case.metrics if m.decides and m.verdict is case.verdict]
    if not deciding:
        return word
    first, *others = deciding
    if len(case.engines) > 1:
        word += f", {' → '.join(map(printable, case.engines))}"
    text = f"{word}: {describe_metric(first, confidence, has_interval=not is_short)}"
    if case.verdict is Verdict.PASSED or is_short:
        return text
    if others:
        text += f"; also {_titles(others)}"
    over = [m for m in case.metrics if m.gated and m.verdict is Verdict.OVER_BUDGET]
    if over and case.verdict is not Verdict.OVER_BUDGET:
        text += f"; also over budget: {_titles(over)}"
    return text


def _titles(metrics: Sequence[Metric]) -> str:
    return ", ".join(dict.fromkeys(metric_title(metric.name) for metric in metrics))


def describe_metric(metric: Metric, confidence: float | None, *, has_interval: bool = True) -> str:
    """A figure, how it changed, how sure that is, and what is allowed."""
    title = metric_title(metric.name)
    if metric.limit is None and metric.before is None and metric.after is None:
        return f"too few samples for the {title}" if is_time(metric.name) else f"{title} unknown"
    if metric.limit is not None:
        text = f"{title} {format_value(metric, metric.after)}"
    elif metric.ratio is None:
        before, after = (format_figure(metric.name, f) for f in (metric.before, metric.after))
        return f"{title} {before} before, {after} now"
    else:
        text = f"{title} {format_change(metric)}"
    interval = format_interval(metric) if has_interval else ""
    if interval:
        text += f" ({_level(metric.confidence or confidence)}interval {interval})"
    allowed = describe_allowed(metric)
    return f"{text}, {allowed}" if allowed else text


@dataclass(frozen=True, slots=True)
class OptionNames:
    """What the options of a face are called that reports give as advice."""

    more_time: str
    everything: str
    tolerance: str


OF_COMMAND = OptionNames("--max-seconds", "--json", "--tolerance")
OF_PYTEST = OptionNames("--modelperf-max-seconds", "--modelperf-json", "--modelperf-tolerance")

QUIETER_MACHINE = "a quieter machine (modelperf doctor tells how quiet this one is)"
_ONLY_SCALARS = (
    "only tensors of a single value differ, such as an epsilon or an exponent: shown, not judged"
)
# More time does not help there: how far the processes that were recorded differ stays as it is.
_RECORD_AGAIN = (
    "stored times tell little: record the baseline again when less else runs here, so that its "
    "twin is trusted, or compare with the older model itself"
)


def describe_doubt(case: CaseComparison, options: OptionNames = OF_COMMAND) -> str | None:
    """What a run that decided nothing could have seen, and what would help."""
    if case.verdict is not Verdict.INCONCLUSIVE or case.failure is not None:
        return None
    unclear = [
        metric
        for metric in case.metrics
        if metric.decides and metric.is_open and is_sampled(metric.name)
    ]
    if not unclear:
        return None
    return f"{_describe_reach(unclear)}: {_describe_remedy(case, unclear, options)}"


def hidden_tails(case: CaseComparison) -> tuple[Metric, ...]:
    """The judged tails that nobody waited for and that the samples do not show."""
    return tuple(m for m in case.metrics if m.gated and not m.awaited and m.is_open)


def tells_of_tails(case: CaseComparison, options: OptionNames = OF_COMMAND) -> Iterator[str]:
    """A line for each judged tail that was neither shown worse nor shown not worse.

    `p95 not shown: +2.1 %, this run could see +14.0 % or more, some 40 rounds would tell; ...`
    """
    if case.verdict in {Verdict.INCONCLUSIVE, Verdict.NEW, Verdict.UNCHANGED}:
        return
    for metric in hidden_tails(case):
        name = metric.name.removeprefix(LATENCY)
        known = []
        if metric.after is None:
            known.append("too few samples")
        else:
            known += [format_change(metric)] if metric.ratio is not None else []
            if metric.detectable is not None and math.isfinite(metric.detectable):
                known.append(f"this run could see {100 * metric.detectable:+.1f} % or more")
        if metric.rounds_needed is not None:
            known.append(f"some {metric.rounds_needed:,} rounds would tell")
        yield (
            f"{name} not shown: {', '.join(known)}; {options.tolerance} "
            f"{name}={metric.allowed:g} waits for it"
        )


def _describe_reach(unclear: Sequence[Metric]) -> str:
    seen = ", ".join(
        f"{metric_title(m.name)} {100 * m.detectable:+.1f} %"
        for m in unclear
        if m.detectable is not None and math.isfinite(m.detectable)
    )
    limited = [m for m in unclear if m.limit is not None and m.after_interval is not None]
    parts = [f"this run could see {seen} or more"] if seen else []
    if limited:
        parts.append(f"the interval holds the limit of the {_titles(limited)}")
    return "; ".join(parts) or "this run was too short to tell"


def _describe_remedy(case: CaseComparison, unclear: Sequence[Metric], options: OptionNames) -> str:
    if is_against_stored_times(case) and any(m.limit is None and m.ratio for m in unclear):
        return _RECORD_AGAIN
    factors = [factor for m in unclear if (factor := _times_as_long(m, case.rounds)) is not None]
    seconds = None if case.seconds is None or not factors else case.seconds * max(factors)
    if any(factor > MAX_LONGER for factor in factors) or (seconds or 0.0) > MAX_ADVISED_S:
        remedies = _other_remedies(case, unclear, options)
        return f"to tell so little from what is allowed takes {remedies}"
    is_told = seconds is not None and len(factors) == len(unclear)
    time = f"{options.more_time} {rounded_up(seconds or 0.0)}" if is_told else options.more_time
    return f"give it more time with {time}, or {QUIETER_MACHINE}"


def _other_remedies(case: CaseComparison, unclear: Sequence[Metric], options: OptionNames) -> str:
    """What helps where time does not."""
    first, *more = [
        QUIETER_MACHINE,
        *(["fewer cores"] if case.case.cores > 1 else []),
        *([f"a larger {options.tolerance}"] if any(m.limit is None for m in unclear) else []),
    ]
    return " or ".join([", ".join([first, *more[:-1]]), *more[-1:]])


# Less than this is no more time to speak of.
_LEAST_FACTOR = 1.5


def _times_as_long(metric: Metric, rounds: int | None) -> float | None:
    """About how many times as long a run would mostly decide it; None where nothing tells.

    What a run can see, and an interval, shrink with the root of the time.
    """
    if metric.rounds_needed is not None and rounds:
        return max(_LEAST_FACTOR, metric.rounds_needed / rounds)
    reach, distance = _reach(metric), _distance(metric)
    if reach is None or distance is None or not math.isfinite(reach):
        return None
    return max(_LEAST_FACTOR, (reach / distance) ** 2) if distance else math.inf


def _reach(metric: Metric) -> float | None:
    """How far from what is allowed a ratio must be to be mostly told from it, as a logarithm."""
    if metric.limit is None:
        if metric.detectable is None:
            return None
        return math.log1p(metric.detectable) - math.log1p(metric.allowed or 0.0)
    if metric.after_interval is None or min(metric.after_interval) <= 0:
        return None
    low, high = metric.after_interval
    return math.log(high / low) / 2


def _distance(metric: Metric) -> float | None:
    if metric.limit is None:
        ratio = metric.ratio
        return None if not ratio else abs(math.log(ratio) - math.log1p(metric.allowed or 0.0))
    return None if not metric.after else abs(math.log(metric.after / metric.limit))


def describe_method(case: CaseComparison) -> str | None:
    """`9 rounds as a duet, 2.1 s`; None where nothing ran."""
    if case.rounds is None:
        return None
    rounds = f"{case.rounds} round{'s' if case.rounds != 1 else ''}"
    if case.is_duet:
        rounds += " as a duet"
    elif is_against_stored_times(case):
        rounds += " against stored times"
    return rounds if case.seconds is None else f"{rounds}, {case.seconds:.1f} s"


def is_against_stored_times(case: CaseComparison) -> bool:
    """Whether its latency was held against what was measured when the baseline was recorded."""
    has_before = any(m.name.startswith(LATENCY) and m.before is not None for m in case.metrics)
    return case.rounds is not None and has_before and not case.is_duet


def describe_facts(
    case: CaseComparison, options: OptionNames = OF_COMMAND
) -> Iterator[tuple[str, str]]:
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
    for line in tells_of_tails(case, options):
        yield "tail", line
    if any(m.name == "params" and not m.gated and m.before != m.after for m in case.metrics):
        yield "params", _ONLY_SCALARS
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
