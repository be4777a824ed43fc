"""What to say first of a case: what decided, what changed most, and what would decide it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.figures import (
    format_after,
    format_allowed,
    format_change,
    format_interval,
    format_value,
    is_sampled,
    metric_title,
)
from pytest_modelperf.comparing.records import CaseComparison, How, Metric, Verdict
from pytest_modelperf.comparing.tables import (
    TONES,
    has_times,
    layer_difference_table,
    layer_type_change_table,
    layers_that_explain,
    main_type_difference_table,
    shown_metrics,
    shows_graphs,
    stage_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    format_tolerances,
    named_shares,
    titles,
    tolerance_word,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.facts import MAX_ADVISED_S, MAX_LONGER, rounded_up
from pytest_modelperf.report.model import Bar, Bars, ReportBlock, Rows, Tone
from pytest_modelperf.report.tables import Table, select_columns
from pytest_modelperf.stats.records import seconds_for

# The word for a judged figure that is open but not awaited by the verdict.
_UNDECIDED = "not decided"
# The number of parts of a change that fit on the first screen of a phone.
_MAX_PARTS = 3
# The columns of these parts. A phone may show the last ones only after scrolling.
_KEPT = ("layer", "type", "layer type", "stage", "MACs change", "change", "explains", "interval")
# The longest bar leaves room for a very wide interval.
_MOST_ROOM = 1.5


def figure_bars(case: CaseComparison) -> Bars:
    """Return each judged figure before and now, without counts that did not change."""
    judged = [metric for metric in shown_metrics(case) if metric.gated and _may_differ(metric)]
    bars = (_bar(metric) for metric in judged)
    return Bars(bars=tuple(bar for bar in bars if bar is not None))


def _may_differ(metric: Metric) -> bool:
    return metric.limit is not None or is_sampled(metric.name) or metric.before != metric.after


def _bar(metric: Metric) -> Bar | None:
    """Return the figure as bars, or None if it is unknown or cannot be a length."""
    after = metric.after
    if metric.limit is not None:
        before, interval = None, metric.after_interval
        allowed: float | None = metric.limit
    else:
        before = metric.before
        interval = _scaled(metric.interval, before)
        allowed = _most_allowed(metric)
    known = [value for value in (before, after) if value is not None]
    if after is None or not all(0 <= value < math.inf for value in known) or not max(known):
        return None
    whole = max(*known, allowed or 0.0)
    if interval is not None:
        whole = max(whole, min(interval[1], _MOST_ROOM * whole))
    within = None
    if interval is not None:
        within = (max(interval[0], 0.0) / whole, min(interval[1] / whole, 1.0))
    notes = (format_change(metric), format_interval(metric), _allowed(metric))
    return Bar(
        title=metric_title(metric.name),
        word=metric.verdict.value if metric.decides else _UNDECIDED,
        note=", ".join(filter(None, notes)),
        texts=("" if before is None else format_value(metric, before), format_after(metric)),
        lengths=(None if before is None else before / whole, after / whole),
        interval=within,
        allowed=None if allowed is None else allowed / whole,
        tone=TONES[metric.verdict.value] if metric.decides else Tone.PLAIN,
    )


def _most_allowed(metric: Metric) -> float | None:
    if metric.before is None or not metric.allowed:
        return None
    return metric.before * (1 + metric.allowed)


def _scaled(ratios: tuple[float, float] | None, before: float | None) -> tuple[float, float] | None:
    return None if ratios is None or before is None else (ratios[0] * before, ratios[1] * before)


def _allowed(metric: Metric) -> str:
    allowed = format_allowed(metric)
    return f"allowed {allowed}" if allowed else ""


def main_parts(case: CaseComparison, wording: Wording) -> Iterator[ReportBlock]:
    """Yield the parts that make most of the change: layers, stages, or types of layers."""
    table = _parts_table(case, wording)
    if table is not None:
        places = {column.title: at for at, column in enumerate(table.columns)}
        kept = [places[title] for title in _KEPT if title in places]
        yield Rows(_first_rows(select_columns(table, kept)))


def _parts_table(case: CaseComparison, wording: Wording) -> Table | None:
    if has_times(case) and layers_that_explain(case):
        return layer_difference_table(case, wording)
    if case.stages:
        return stage_table(case)
    if has_times(case):
        return main_type_difference_table(case, _MAX_PARTS)
    return layer_type_change_table(case, _MAX_PARTS) if shows_graphs(case) else None


def _first_rows(table: Table) -> Table:
    rows: Sequence[tuple[str, ...]] = table.rows[:_MAX_PARTS]
    return replace(table, rows=tuple(rows), total=None, caption="")


# Advice to give more time asks for at least this many times the current one.
_LEAST_FACTOR = 1.5
# A figure whose log distance to the allowed value is below this stays open even on a quiet machine.
_NEAR = 0.005


class CaseRemedy(enum.Enum):
    """A way to get an inconclusive case decided. The value is a template of the advice."""

    TIME = "give more time with {max_seconds}"
    SAMPLES = (
        "timing that many inferences would take too long: judge a percentile nearer to the median"
    )
    QUIET = (
        "too noisy to decide in a reasonable time: measure on a quieter machine (modelperf "
        "doctor shows how quiet this one is)"
    )
    TOLERANCE = "too near to what is allowed for any run to decide: allow more with {tolerance}"
    BUDGET = "too near to its limit for any run to decide: change the budget where it is set"
    VALUES = "values decide how much it computes: allow a share with {tolerance}"
    UNJUDGED = (
        "there are no times to judge the latency by: record the baseline again with {record} on "
        "this kind of machine, or give the older model itself"
    )
    # More time does not change how much the recorded processes differ.
    RECORDING = (
        "stored times show little: give the older model itself, or record the baseline again with "
        "{record} when less else runs here, if noise is why its twin is not trusted"
    )


class CaseAdvice(Struct, frozen=True):
    """The remedy for an inconclusive case.

    `seconds` is the time to give, if it is known, and `shares` the tolerances, by their words.
    """

    remedy: CaseRemedy
    seconds: int | None = None
    shares: Mapping[str, float] = {}

    def in_words(self, wording: Wording) -> str:
        """Return the advice as a phrase for reports."""
        if self.shares:
            tolerance = wording.value("tolerance", format_tolerances(self.shares))
            return self.remedy.value.format(tolerance=tolerance)
        if self.remedy is CaseRemedy.TIME and self.seconds is not None:
            return f"give more time with {wording.value('max_seconds', str(self.seconds))}"
        return self.remedy.value.format_map({**wording.names, "record": wording.record})


def advise(case: CaseComparison) -> CaseAdvice | None:
    """Return the advice for a case, or None if it is decided or nothing would help."""
    unclear = _unclear(case)
    if not unclear:
        return _advise_counts(case)
    is_by_stored = case.how is How.STORED and any(m.limit is None and m.ratio for m in unclear)
    if case.is_unjudged or is_by_stored:
        return CaseAdvice(CaseRemedy.RECORDING if is_by_stored else CaseRemedy.UNJUDGED)
    needs = [(_seconds_needed(m, case), m) for m in unclear]
    known = [(seconds, m) for seconds, m in needs if seconds is not None]
    longest, hardest = max(known, key=lambda need: need[0], default=(0.0, unclear[0]))
    if longest <= MAX_ADVISED_S:
        is_known = len(known) == len(needs)
        return CaseAdvice(CaseRemedy.TIME, rounded_up(longest) if is_known else None)
    if hardest.samples_needed is not None:
        return CaseAdvice(CaseRemedy.SAMPLES)
    distance = _distance(hardest)
    if distance is None or distance > _NEAR:
        return CaseAdvice(CaseRemedy.QUIET)
    return CaseAdvice(CaseRemedy.TOLERANCE if hardest.limit is None else CaseRemedy.BUDGET)


def _advise_counts(case: CaseComparison) -> CaseAdvice | None:
    """Return the advice for a case whose runs differ in a count because of their values."""
    if not _is_undecided(case):
        return None
    unclear = [m for m in case.metrics if m.decides and m.is_open and m.reason is not None]
    # A share is allowed of the lower count. Of zero, none is enough.
    changes = {tolerance_word(m): max(m.ratio, 1 / m.ratio) - 1 for m in unclear if m.ratio}
    if not changes:
        return None
    shares = {word: math.ceil(100 * change) / 100 for word, change in changes.items()}
    both = {**named_shares(case, ()), **shares}
    return CaseAdvice(CaseRemedy.VALUES, shares=dict(sorted(both.items())))


def advise_all(cases: Iterable[CaseComparison]) -> Iterator[CaseAdvice]:
    """Yield each remedy of several cases once, with the longest time."""
    found: dict[CaseRemedy, CaseAdvice] = {}
    for case in cases:
        advice = advise(case)
        if advice is None:
            continue
        other = found.get(advice.remedy, advice)
        longest = max(other, advice, key=lambda each: each.seconds or 0)
        both = sorted((*other.shares.items(), *advice.shares.items()))
        found[advice.remedy] = replace(longest, shares=dict(both))
    yield from found.values()


def describe_doubt(case: CaseComparison, wording: Wording) -> str | None:
    """Describe which change an inconclusive run could have seen, and what would help."""
    advice = advise(case)
    if advice is None:
        return None
    if advice.remedy in {CaseRemedy.UNJUDGED, CaseRemedy.VALUES}:
        return advice.in_words(wording)
    return f"{_describe_reach(_unclear(case), case)}: {advice.in_words(wording)}"


def _is_undecided(case: CaseComparison) -> bool:
    return case.verdict is Verdict.INCONCLUSIVE and case.failure is None


def _unclear(case: CaseComparison) -> Sequence[Metric]:
    if not _is_undecided(case):
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
    return "; ".join(parts) or "this run was too short to decide"


def _describe_lack(lacking: Sequence[Metric], case: CaseComparison) -> str:
    """Return `the p99 latency takes about 1,400 inferences, and 710 were timed`."""
    first, *others = (
        (metric_title(metric.name), f"about {metric.samples_needed:,}") for metric in lacking
    )
    text = f"the {first[0]} takes {first[1]} inferences"
    text += "".join(f", the {title} {count}" for title, count in others)
    return text if case.after is None else f"{text}, and {case.after.latency.samples:,} were timed"


def _seconds_needed(metric: Metric, case: CaseComparison) -> float | None:
    """Estimate how long a run must take to decide the metric, or return None if unknown.

    The result is infinite if no run can decide it. More rounds than usual need more time.
    """
    factor = _times_as_long(metric, case.rounds)
    if factor is None or case.seconds is None:
        return None
    if factor > MAX_LONGER:
        return math.inf
    rounds = factor * case.rounds if case.rounds is not None and case.is_duet else 0.0
    return max(case.seconds * factor, seconds_for(rounds))


def _times_as_long(metric: Metric, rounds: int | None) -> float | None:
    """Estimate how many times longer a run must be to decide the metric, or return None if unknown.

    The interval of a limited figure shrinks with the square root of the time.
    """
    if metric.rounds_needed is not None and rounds:
        return max(_LEAST_FACTOR, metric.rounds_needed / rounds)
    if metric.limit is None:
        # If the ratio is known but the number of rounds is not, no number of rounds decides it.
        return None if metric.ratio is None or metric.detectable is None else math.inf
    reach, distance = _reach(metric), _distance(metric)
    if reach is None or distance is None:
        return None
    return max(_LEAST_FACTOR, (reach / distance) ** 2) if distance else math.inf


def _reach(metric: Metric) -> float | None:
    """Return the smallest log distance from its limit that this run mostly detects."""
    if metric.after_interval is None or min(metric.after_interval) <= 0:
        return None
    low, high = metric.after_interval
    return math.log(high / low) / 2


def _distance(metric: Metric) -> float | None:
    if metric.limit is None:
        ratio = metric.ratio
        return None if not ratio else abs(math.log(ratio) - math.log1p(metric.allowed or 0.0))
    # Memory can shrink. Its growth is then negative.
    if metric.after is None or metric.after <= 0:
        return None
    return abs(math.log(metric.after / metric.limit))
