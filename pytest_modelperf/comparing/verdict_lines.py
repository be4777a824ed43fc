"""Sentences about a comparison: the verdict of a case, its confidence, where outputs differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_modelperf.comparing import limits
from pytest_modelperf.comparing.changes import (
    FirstDifference,
    OutputChange,
    PartChange,
    TensorDifference,
)
from pytest_modelperf.comparing.figures import (
    LATENCY,
    describe_allowed,
    describe_change,
    format_after,
    format_allowed,
    format_change,
    format_figure,
    interval_clause,
    is_time,
    metric_title,
)
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import (
    IMPROVEMENT,
    MEMBER,
    RECORDED,
    XFAILED,
    CaseComparison,
    Comparison,
    How,
    Metric,
    Verdict,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, join_words, shorten_list

_LISTED = 4
# A difference from zero cannot be given as a share.
_WAS_ZERO = "was 0 everywhere before"


def output_lines(case: CaseComparison) -> Iterator[str]:
    """Yield how far the outputs of a case differ, and where the difference begins."""
    count = len(case.outputs)
    if case.outputs and all(is_equal(output) for output in case.outputs):
        are = "the output is" if count == 1 else f"all {count} outputs are"
        yield f"{are} equal on the same inputs"
    elif not any(metric.name == OUTPUTS for metric in case.metrics):
        shares = [output.share for output in case.outputs if output.share is not None]
        if shares and math.isinf(max(shares)):
            yield f"they differ: one {_WAS_ZERO}"
        elif shares:
            sure = " or more" if any(output.is_least for output in case.outputs) else " at most"
            yield f"they differ by {_share(max(shares))} of their largest value{sure}"
    for output in case.outputs:
        if output.difference is not None:
            yield f"{printable(output.name)}: {printable(output.difference)}"
    if case.first_difference is not None:
        yield describe_first_difference(case.first_difference)


def is_equal(output: OutputChange) -> bool:
    """Whether the output of both models is equal bit by bit."""
    return output.difference is None and output.max_absolute == 0 and not output.is_least


def describe_first_difference(found: FirstDifference) -> str:
    """Return `y differs first at /layer3/Softmax (Softmax): its 'p' differs by 3 %, ...`."""
    place = f"{printable(found.tensor.layer)} ({printable(found.tensor.op_type)})"
    output, name = printable(found.output), _quoted(found.tensor.name)
    if found.is_fused:
        return (
            f"{output} no longer differs if {name} of {place} is an output, too: the difference "
            f"comes from how the engine fuses that layer with {_names(found.readers)}"
        )
    text = f"{output} differs first at {place}: its {name} differs {_by(found.tensor)}"
    known = [each for each in found.inputs if each.values.share is not None]
    if known:
        largest = max(known, key=lambda each: each.values.share or 0.0)
        others = "" if len(known) == 1 else f" and {count_of(len(known) - 1, 'other input')}"
        text += f", and {_quoted(largest.name)}{others} before it "
        if largest.values.share:
            text += _by(largest) + (" at most" if others else "")
        else:
            text += "are equal" if others else "is equal"
    elif not found.others:
        text += ", and nothing before it"
    if found.others:
        text += f"; not compared before it: {_names(found.others)}"
    return text


def _names(layers: Sequence[str]) -> str:
    return shorten_list([printable(each) for each in layers], _LISTED)


def _by(tensor: TensorDifference) -> str:
    share = tensor.values.share
    if share is None:
        return f"({printable(tensor.values.difference or '')})"
    return f"(it {_WAS_ZERO})" if math.isinf(share) else f"by {_share(share)}"


def _share(share: float) -> str:
    return format_figure(OUTPUTS, share)


def _quoted(name: str) -> str:
    return f"'{printable(name)}'"


FAILED = "failed"
# One line in the summary is enough for cases with these verdicts.
_QUIET = frozenset({Verdict.PASSED, Verdict.UNCHANGED})
_FAILING = frozenset({Verdict.REGRESSED, Verdict.OVER_BUDGET, Verdict.INCONCLUSIVE})
# An overview shows the figure that led to these verdicts.
_SHOWS_FIGURE = frozenset(
    {Verdict.REGRESSED, Verdict.OVER_BUDGET, Verdict.INCONCLUSIVE, Verdict.IMPROVED}
)


def verdict_word(case: CaseComparison) -> str:
    """Return the verdict, or `failed`."""
    return FAILED if case.has_failed else case.verdict.value


def is_quiet(case: CaseComparison) -> bool:
    """Whether there is nothing to say about a case beyond its verdict."""
    return case.failure is None and case.verdict in _QUIET


def describe_run(comparison: Comparison) -> str:
    """Return `regressed`, or `passed, 1 of 3 cases failed`."""
    failed = sum(case.has_failed for case in comparison.cases)
    if not failed:
        return comparison.verdict.value
    if failed == len(comparison.cases):
        return FAILED
    return f"{comparison.verdict.value}, {failed} of {len(comparison.cases)} cases {FAILED}"


def failing_metrics(case: CaseComparison) -> Sequence[Metric]:
    """Return the judged figures that failed, or that the verdict waits for."""
    return [m for m in case.metrics if m.decides and m.verdict in _FAILING]


def describe_verdict(
    case: CaseComparison, confidence: float | None, *, is_short: bool = False
) -> str:
    """Return `regressed: p50 latency +11.8 % (99 % interval +10.2 … +13.1 %), allowed +3 %`.

    Two different engines are both named. A short sentence has no interval and only one figure.
    """
    word = verdict_word(case)
    if case.has_failed:
        return word
    if not case.deciding:
        is_open = case.verdict is Verdict.INCONCLUSIVE and case.failure is None
        return f"{word}: nothing was judged" if is_open else word
    first, *others = case.deciding
    if len(case.engines) > 1:
        word += f", {' → '.join(map(printable, case.engines))}"
    text = f"{word}: {describe_metric(first, confidence, has_interval=not is_short)}"
    if case.how is How.PARTS and first is case.metric(f"{LATENCY}p50") and not is_short:
        text += f", in {_what_changed(case)}"
    if case.verdict is Verdict.PASSED or is_short:
        return text
    if others:
        text += f"; also {titles(others)}"
    over = [m for m in case.metrics if m.gated and m.verdict is Verdict.OVER_BUDGET]
    if over and case.verdict is not Verdict.OVER_BUDGET:
        text += f"; also over budget: {titles(over)}"
    return text


def _what_changed(case: CaseComparison) -> str:
    """Return the judged stages of a program that differ, or `7 kernels that changed`."""
    judged = [stage for stage in case.stages if stage.is_judged]
    if judged:
        differ = [each for each in judged if each.time is None or not each.time.is_within_noise]
        return join_words([printable(stage.name) for stage in differ or judged])
    # Each part counts the kernels of the side that has more.
    count = sum(max(part.kernels.before, part.kernels.after) for part in case.parts)
    return f"{count_of(count, 'kernel')} that changed"


def titles(metrics: Sequence[Metric]) -> str:
    """Return `p50 latency, MACs`."""
    return ", ".join(dict.fromkeys(metric_title(metric.name) for metric in metrics))


def decided_by(case: CaseComparison) -> str:
    """Return the figure that decided, without what is allowed: `load +260.0 %`, `p95 14.21 ms`.

    It is empty if the median decided, because overviews always show the median.
    """
    deciding = case.deciding
    if case.has_failed or case.verdict not in _SHOWS_FIGURE or not deciding:
        return ""
    if any(metric.name == f"{LATENCY}p50" and metric.limit is None for metric in deciding):
        return ""
    figure = describe_metric(deciding[0], None, has_interval=False, has_allowed=False)
    return figure.replace(" latency ", " ", 1)


def word_of_reasons(case: CaseComparison) -> str:
    """Return `why`, or `change` if no known change or member explains a figure that is worse."""
    regressed = [m for m in case.deciding if m.verdict is Verdict.REGRESSED]
    is_known = any(m.reason or m.name.startswith(MEMBER) for m in regressed)
    return "why" if not regressed or is_known else "change"


def describe_metric(
    metric: Metric, confidence: float | None, *, has_interval: bool = True, has_allowed: bool = True
) -> str:
    """Describe a figure with its change, its interval, and what is allowed."""
    title = metric_title(metric.name)
    known = (metric.before, metric.after, metric.ratio, metric.least)
    if all(figure is None for figure in known):
        text = f"too few samples for the {title}" if is_time(metric.name) else f"{title} unknown"
        has_limit = has_allowed and metric.limit is not None
        return f"{text}, {describe_allowed(metric)}" if has_limit else text
    if metric.limit is not None:
        text = f"{title} {format_after(metric)}"
        if metric.detail is not None and has_allowed:
            text += f", {printable(metric.detail)}"
    elif metric.name == limits.OUTPUTS:
        text = _describe_outputs(metric)
    elif metric.before is None and metric.ratio is None and is_time(metric.name):
        text = f"{title} {format_figure(metric.name, metric.after)} now, not judged"
    elif metric.ratio is None:
        before, after = (format_figure(metric.name, f) for f in (metric.before, metric.after))
        return f"{title} {before} before, {after} now"
    else:
        text = f"{title} {format_change(metric)}"
    if has_interval:
        text += interval_clause(metric, confidence)
    allowed = describe_allowed(metric) if has_allowed else ""
    return f"{text}, {allowed}" if allowed else text


def _describe_outputs(metric: Metric) -> str:
    """Return `outputs differ by 5 %`, without a share if their shapes differ or all were 0."""
    title = metric_title(metric.name)
    if metric.after is not None and math.isfinite(metric.after):
        return f"{title} differ by {format_figure(metric.name, metric.after)}"
    return f"{title} unknown" if metric.is_open else f"{title} differ"


_ONLY_SCALARS = (
    "only tensors of a single value differ, such as an epsilon or an exponent: shown, not judged"
)


_HOW_TO_ACCEPT = (
    "it is much better than its baseline: record it again, so that the baseline stays true"
)
_WHERE_BUDGETS_ARE = (
    "change it where it is set, in the test or in [tool.modelperf]; a new baseline does not "
    "affect it"
)


def hidden_tails(case: CaseComparison) -> tuple[Metric, ...]:
    """Return the judged tails that were not awaited and that stayed open."""
    found = (m for m in _not_decided(case) if m.name.startswith(LATENCY))
    # A tolerance cannot name a member of a workload.
    return tuple(m for m in found if not m.name.startswith(MEMBER))


def _not_decided(case: CaseComparison) -> Iterator[Metric]:
    return (m for m in case.metrics if m.gated and not m.awaited and m.is_open)


# The names in tolerances of times and sizes that are not percentiles, by metric.
_WORDS = {
    "load_ms": limits.LOAD,
    "start_ms": limits.LOAD,
    "first_inference_ms": limits.FIRST,
    "memory_bytes": limits.MEMORY,
    "peak_rss_bytes": limits.MEMORY,
    "size_bytes": limits.SIZE,
}
# The tolerances of figures that are awaited even if the user did not name them.
_DEFAULTS = {"p50": limits.DEFAULT_TOLERANCE, limits.OUTPUTS: limits.DEFAULT_OUTPUTS}


def describe_open_starts(case: CaseComparison, wording: Wording) -> Iterator[str]:
    """Yield a line for loading, the first inference and memory, if they stayed open.

    `load +3.1 %, first inference -2.0 %: not decided against +15 %; ... waits for them`
    """
    if case.verdict in {Verdict.INCONCLUSIVE, Verdict.NEW, Verdict.UNCHANGED}:
        return
    found = [m for m in _not_decided(case) if m.name in _WORDS]
    for allowed in dict.fromkeys(map(format_allowed, found)):
        alike = [metric for metric in found if format_allowed(metric) == allowed]
        changes = ", ".join(f"{metric_title(m.name)} {format_change(m)}".rstrip() for m in alike)
        waits = f"waits for {'it' if len(alike) == 1 else 'them'}"
        yield f"{changes}: not decided against {allowed}; {naming(case, alike, wording)} {waits}"


def naming(case: CaseComparison, metrics: Sequence[Metric], wording: Wording) -> str:
    """Return the text that names these figures in the tolerance: `--tolerance p50=0.05,load=0.15`.

    A tolerance on the command line replaces all tolerances that were set, so the text repeats
    them.
    """
    return wording.value("tolerance", format_tolerances(named_shares(case, metrics)))


def named_shares(case: CaseComparison, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return the shares of these figures, and of those that the user named, by their words."""
    named = [m for m in case.metrics if _is_named(m) or any(m is each for each in metrics)]
    return {tolerance_word(metric): _share_to_name(metric) for metric in named}


def format_tolerances(shares: Mapping[str, float]) -> str:
    return ",".join(f"{word}={share:g}" for word, share in shares.items())


def _is_named(metric: Metric) -> bool:
    word = tolerance_word(metric)
    is_judged = metric.gated and metric.awaited and metric.limit is None
    is_default = metric.allowed in {0, _DEFAULTS.get(word)}
    return is_judged and word in limits.TOLERANCE_WORDS and not is_default


def _share_to_name(metric: Metric) -> float:
    """Return the share to type: for memory that was not named the default, not that of 4 MiB."""
    if tolerance_word(metric) == limits.MEMORY and not metric.awaited:
        return limits.Tolerances().of_figure(limits.MEMORY) or 0.0
    return metric.allowed or 0.0


def tolerance_word(metric: Metric) -> str:
    return _WORDS.get(metric.name, metric.name.removeprefix(LATENCY))


def describe_open_tails(case: CaseComparison, wording: Wording) -> Iterator[str]:
    """Yield a line for each judged tail that stayed open.

    `p95 not decided: +2.1 %, this run could see +14.0 % or more, about 40 rounds would decide; ...`
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
            known.append(f"about {metric.rounds_needed:,} rounds would decide")
        waiting = naming(case, [metric], wording)
        yield f"{name} not decided: {', '.join(known)}; {waiting} waits for it"


def describe_method(case: CaseComparison) -> str | None:
    """Return `9 rounds as a duet, 2.1 s`, or None if nothing ran."""
    if case.rounds is None:
        return None
    rounds = count_of(case.rounds, "round")
    if case.how is How.PARTS:
        rounds += " as a duet of the parts that changed"
    elif case.how is How.PLAN:
        rounds += " alone"
    elif case.is_duet:
        rounds += " as a duet"
    elif case.how is How.STORED:
        rounds += " against stored times"
    return rounds if case.seconds is None else f"{rounds}, {case.seconds:.1f} s"


def describe_facts(case: CaseComparison, wording: Wording) -> Iterator[tuple[str, str]]:
    """Yield pairs of word and text: how it was measured, facts about its figures, and notes."""
    method = describe_method(case)
    if method is not None:
        yield "how", method
    yield from _describe_parts(case)
    for line in output_lines(case):
        yield "outputs", line
    for line in describe_open_tails(case, wording):
        yield "tail", line
    for line in describe_open_starts(case, wording):
        yield "start", line
    if any(m.name == "params" and not m.gated and m.before != m.after for m in case.metrics):
        yield "params", _ONLY_SCALARS
    for note in case.notes:
        yield "note", printable(note)
    if case.is_too_good:
        yield "budget", _HOW_TO_ACCEPT
    if any(m.verdict is Verdict.OVER_BUDGET and m.name != IMPROVEMENT for m in case.metrics):
        yield "budget", _WHERE_BUDGETS_ARE


def _describe_parts(case: CaseComparison) -> Iterator[tuple[str, str]]:
    # If layers were timed, the reasons say the same.
    for part in () if case.layers else case.parts:
        yield "part", describe_part(part)
    if case.elsewhere is not None:
        yield "elsewhere", f"{describe_change(case.elsewhere)}, by the whole model"


def describe_part(part: PartChange) -> str:
    """Return `1 Relu became 3 kernels: +0.024 ms (+0.010 … +0.029 ms), measured in place`."""
    what = "; ".join(map(printable, part.reasons)) or "kernels changed"
    return f"{what}: {describe_change(part.time)}, measured in place"


def failure_lines(case: CaseComparison) -> Sequence[str]:
    """Return why the case could not be measured, as escaped lines."""
    return [] if case.failure is None else [printable(x) for x in case.failure.splitlines() if x]


_IN_ORDER_OF_EXCESS = frozenset(verdict.value for verdict in _FAILING)
# The order in which cases are shown, the worst first.
SEVERITY = (
    Verdict.REGRESSED.value,
    Verdict.OVER_BUDGET.value,
    FAILED,
    Verdict.INCONCLUSIVE.value,
    XFAILED,
    Verdict.NEW.value,
    RECORDED,
    Verdict.IMPROVED.value,
    Verdict.PASSED.value,
    Verdict.UNCHANGED.value,
)


def rank_case(word: str, case: CaseComparison) -> tuple[int, float]:
    """Return a sort key: by verdict, and for verdicts with a problem by the worst figure."""
    if word not in _IN_ORDER_OF_EXCESS:
        return SEVERITY.index(word), 0.0
    excess = [
        abs(math.log(part))
        for metric in case.deciding
        if (part := _part(metric.after, metric.limit) or metric.ratio) and part > 0
    ]
    return SEVERITY.index(word), -max(excess, default=0.0)


def _part(value: float | None, limit: float | None) -> float | None:
    return None if value is None or not limit else value / limit
