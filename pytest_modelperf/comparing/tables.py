"""The tables of a comparison: metrics side by side, and what changed by layer type and layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_allowed,
    format_change,
    format_interval,
    format_value,
    metric_title,
)
from pytest_modelperf.comparing.records import (
    CaseComparison,
    Comparison,
    LayerChange,
    LayerTypeChange,
    Metric,
    OutputChange,
    TimeChange,
)
from pytest_modelperf.comparing.verdict_lines import (
    OF_COMMAND,
    OptionNames,
    is_equal,
    verdict_word,
)
from pytest_modelperf.profiler.records import LayerRow, LayerType
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, format_ms, format_signed_count, ms_decimals

MARK = "<"

# A row that explains so much is marked.
_MARKED = 0.1
# One that has less of the difference and of the whole time than this is summed up with others, and
# so is a change of less than this of the whole, however much it is of a small difference.
_SHOWN = 0.01
_LEAST_OF_WHOLE = 0.001
_MAX_TYPES = 12
_MAX_LAYERS = 6
_LEAST_DECIMALS = 2
# Where these are all that a title of a metric may be cut to, both ends of the table still show.
_LEAST_TITLE = 11
_LEAST_VERDICT = 12
# The word for a judged tail that nobody waits for and the samples do not show.
NOT_SHOWN = "not shown"


def case_table(comparison: Comparison) -> Table:
    """A row for each case: its verdict, and its median latency, or where nothing ran its MACs."""
    columns = (
        Column("case", is_text=True, is_name=True, least=24),
        Column("verdict", is_text=True, least=_LEAST_VERDICT),
        Column(""),
        Column("before"),
        Column("now"),
        Column("change"),
        Column("interval"),
    )
    return Table("", columns, tuple(_case_row(case) for case in comparison.cases))


def _case_row(case: CaseComparison) -> tuple[str, ...]:
    named = {metric.name: metric for metric in case.metrics}
    deciding = (m for m in case.metrics if m.decides and m.verdict is case.verdict)
    metric = named.get(f"{LATENCY}p50") or next(deciding, None) or named.get("macs")
    head = (printable(case.id), verdict_word(case))
    if metric is None:
        return (*head, "", "", "", "", "")
    return (*head, *_figures(metric), format_interval(metric))


def _figures(metric: Metric, *, has_before: bool = True) -> tuple[str, str, str, str]:
    # What is only held against a limit has no other side.
    is_alone = metric.before is None and (metric.limit is not None or not has_before)
    return (
        metric_title(metric.name),
        "" if is_alone else format_value(metric, metric.before),
        format_value(metric, metric.after),
        format_change(metric),
    )


def metric_tables(case: CaseComparison) -> tuple[Table, Table]:
    """Before, now and change of every figure; what is shown only has no verdict. Then a narrower.

    Beside times, exact figures that decide nothing are left out where they are the same. So are
    columns that have nothing to show.
    """
    shown = case.metrics
    if is_measured(case):
        shown = tuple(m for m in shown if m.gated or m.interval is not None or _has_changed(m))
    return _metric_table(case, shown), _metric_table(case, shown, has_intervals=False)


def _metric_table(
    case: CaseComparison, metrics: Sequence[Metric], *, has_intervals: bool = True
) -> Table:
    has_before = any(metric.before is not None for metric in metrics)
    has_allowed = is_measured(case) or any(metric.limit is not None for metric in metrics)
    columns = [
        Column("metric", is_text=True, least=_LEAST_TITLE),
        Column("before"),
        Column("now"),
        Column("change"),
        Column("interval"),
        Column("allowed"),
        Column("", is_text=True, least=_LEAST_VERDICT),
    ]
    rows = [
        (
            *_figures(m, has_before=has_before),
            format_interval(m) if has_intervals else "",
            _allowed(m) if has_allowed else "",
            _verdict(m),
        )
        for m in metrics
    ]
    kept = [
        index
        for index, column in enumerate(columns)
        if not column.title or any(row[index] for row in rows)
    ]
    return Table(
        "",
        tuple(columns[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
    )


def is_measured(case: CaseComparison) -> bool:
    """Whether something ran, or was to run."""
    is_timed = any(m.name.startswith(LATENCY) for m in case.metrics)
    return is_timed or case.rounds is not None


def _has_changed(metric: Metric) -> bool:
    return metric.before != metric.after


def _allowed(metric: Metric) -> str:
    return format_allowed(metric) if metric.gated else ""


def _verdict(metric: Metric) -> str:
    if metric.gated and metric.is_open and not metric.awaited:
        return NOT_SHOWN
    return metric.verdict.value if metric.gated else ""


# -- what the graphs tell


def shows_graphs(case: CaseComparison) -> bool:
    """Whether what changed in the graphs is all that there is to show, or worth to be shown."""
    has_run = is_measured(case) or case.outcome is not None or case.failure is not None
    return not has_run or any(not change.is_equal for change in case.layer_types)


def layer_type_change_table(case: CaseComparison) -> Table:
    """One row per operator that changed; those that did not are one row together."""
    columns = (
        Column("layer type", is_text=True, is_name=True),
        Column("count"),
        Column("MACs before"),
        Column("MACs now"),
        Column("MACs change"),
        Column("elementwise"),
        Column("", is_text=True),
    )
    changed = [change for change in case.layer_types if not change.is_equal]
    culprit = max(changed, key=lambda c: (c.added_macs, c.added_ops), default=None)
    rows = [_change_row(change, is_culprit=change is culprit) for change in changed]
    same = len(case.layer_types) - len(changed)
    caption = f"{same} other type{'s are' if same > 1 else ' is'} the same" if same else ""
    return Table("by layer type", columns, tuple(rows), None, caption)


def _change_row(change: LayerTypeChange, *, is_culprit: bool) -> tuple[str, ...]:
    grew = change.added_macs > 0 or change.added_ops > 0
    return (
        printable(change.op),
        _counts(change),
        _macs(change.before),
        _macs(change.after),
        format_signed_count(change.added_macs),
        format_signed_count(change.added_ops),
        MARK if is_culprit and grew else "",
    )


def _counts(change: LayerTypeChange) -> str:
    before = change.before.count if change.before else 0
    after = change.after.count if change.after else 0
    return str(after) if before == after else f"{before} -> {after}"


def _macs(kind: LayerType | None) -> str:
    return "-" if kind is None else format_count(kind.macs)


# -- what the times tell


def has_times(case: CaseComparison) -> bool:
    """Whether the times of the layers are known on both sides."""
    return any(change.time is not None for change in case.layer_types)


def explains_layers(case: CaseComparison) -> bool:
    """Whether there is a layer that explains something worth a row."""
    return any(_is_cause(change.time, _SHOWN) for change in case.layers)


def _is_cause(time: TimeChange | None, least: float) -> bool:
    return time is not None and time.explains(least)


def layer_type_time_tables(case: CaseComparison) -> tuple[Table, Table]:
    """What each operator takes on both sides, what explains most first; and without intervals."""
    wide = _layer_type_times(case, has_intervals=True)
    return wide, _layer_type_times(case, has_intervals=False)


def _layer_type_times(case: CaseComparison, *, has_intervals: bool) -> Table:
    shows_share = any(c.time is not None and c.time.share is not None for c in case.layer_types)
    decimals = _decimals(case)
    timed = [change for change in case.layer_types if change.time is not None]
    whole = max(_total(c.before for c in timed), _total(c.after for c in timed))
    large, small = _split_by_weight(timed, whole)
    rows = [
        (
            printable(c.op),
            _layer_count(c),
            *_time_cells(c.before, c.after, c.time, decimals, has_intervals=has_intervals),
            *([_share(c.time)] if shows_share else []),
            _mark(c.time, _news(c)),
        )
        for c in large
    ]
    if small:
        cells = _sum_cells(small, decimals, has_intervals=has_intervals, shows_share=shows_share)
        rows.append((f"{len(small)} other types", "", *cells))
    total = _sum_cells(timed, decimals, has_intervals=has_intervals, shows_share=False)
    return Table(
        "time by layer type, in ms",
        (
            Column("layer type", is_text=True, is_name=True),
            Column("count"),
            *_time_columns(has_intervals=has_intervals, shows_share=shows_share),
        ),
        tuple(rows),
        ("total", "", *total, "") if shows_share else ("total", "", *total),
        "" if shows_share else "the difference is within the noise: no row explains it",
    )


def layer_time_tables(
    case: CaseComparison, options: OptionNames = OF_COMMAND
) -> tuple[Table, Table]:
    """The layers that explain most of the difference; and the same without intervals."""
    wide = _layer_times(case, options, has_intervals=True)
    return wide, _layer_times(case, options, has_intervals=False)


def _layer_times(case: CaseComparison, options: OptionNames, *, has_intervals: bool) -> Table:
    decimals = _decimals(case)
    shown = [c for c in case.layers if _is_cause(c.time, _SHOWN)]
    rows = tuple(
        (
            _layer_name(c),
            printable(_known(c).qualified_op),
            *_time_cells(c.before, c.after, c.time, decimals, has_intervals=has_intervals),
            _share(c.time),
            _mark(c.time, _news(c)),
        )
        for c in shown[:_MAX_LAYERS]
    )
    more = len(shown) - len(rows)
    return Table(
        "layers that explain most, in ms",
        (
            Column("layer", is_text=True, is_name=True, least=16),
            Column("type", is_text=True, is_name=True),
            *_time_columns(has_intervals=has_intervals, shows_share=True),
        ),
        rows,
        None,
        f"{more} more layer{'s' if more > 1 else ''}: {options.everything} has them"
        if more
        else "",
    )


def _time_columns(*, has_intervals: bool, shows_share: bool) -> tuple[Column, ...]:
    return (
        Column("before"),
        Column("now"),
        Column("change"),
        *([Column("interval")] if has_intervals else []),
        *([Column("explains")] if shows_share else []),
        Column("", is_text=True),
    )


def _time_cells(
    before: LayerType | LayerRow | None,
    after: LayerType | LayerRow | None,
    time: TimeChange | None,
    decimals: int,
    *,
    has_intervals: bool,
) -> tuple[str, ...]:
    cells = [_ms(before, decimals), _ms(after, decimals), _signed_ms(time, decimals)]
    if has_intervals:
        cells.append(_interval(time, decimals))
    return tuple(cells)


def _interval(time: TimeChange | None, decimals: int) -> str:
    if time is None or time.low_ns is None or time.high_ns is None:
        return ""
    return f"{_signed_number(time.low_ns, decimals)} … {_signed_number(time.high_ns, decimals)}"


def _sum_cells(
    changes: Sequence[LayerTypeChange], decimals: int, *, has_intervals: bool, shows_share: bool
) -> tuple[str, ...]:
    before, after = _total(c.before for c in changes), _total(c.after for c in changes)
    shares = [c.time.share for c in changes if c.time is not None and c.time.share is not None]
    return (
        format_ms(before, decimals),
        format_ms(after, decimals),
        _signed_number(after - before, decimals),
        *([""] if has_intervals else []),
        *([_percent_of(math.fsum(shares))] if shows_share else []),
        "",
    )


def _total(sides: Iterable[LayerType | None]) -> float:
    return math.fsum(side.ns for side in sides if side is not None and side.ns is not None)


def _decimals(case: CaseComparison) -> int:
    """Those of all times of a case, so that they can be compared by eye."""
    return max(_LEAST_DECIMALS, ms_decimals(_total(c.after for c in case.layer_types)))


def _split_by_weight(
    changes: Sequence[LayerTypeChange], whole: float
) -> tuple[list[LayerTypeChange], list[LayerTypeChange]]:
    """Those with a row of their own, and those that are summed up, both in the given order."""
    weights = [_weight(change, whole) for change in changes]
    heaviest = sorted(range(len(changes)), key=lambda place: -weights[place])[:_MAX_TYPES]
    kept = {place for place in heaviest if weights[place] >= _SHOWN}
    if len(changes) - len(kept) == 1:
        kept = set(range(len(changes)))
    large = [change for place, change in enumerate(changes) if place in kept]
    return large, [change for place, change in enumerate(changes) if place not in kept]


def _weight(change: LayerTypeChange, whole: float) -> float:
    """The share of the whole time that it takes or of the difference that it has, if larger."""
    if not whole:
        return _SHOWN
    share = max(_total([change.before]), _total([change.after])) / whole
    time = change.time
    if time is None or time.share is None or abs(time.ns) < _LEAST_OF_WHOLE * whole:
        return share
    return max(share, abs(time.share))


def _layer_count(change: LayerTypeChange) -> str:
    """Blank for the time of what is no layer."""
    has_layers = any(side is not None and side.count for side in (change.before, change.after))
    return _counts(change) if has_layers else ""


def _ms(side: LayerType | LayerRow | None, decimals: int) -> str:
    return "-" if side is None or side.ns is None else format_ms(side.ns, decimals)


def _signed_ms(time: TimeChange | None, decimals: int) -> str:
    return "" if time is None else _signed_number(time.ns, decimals)


def _signed_number(ns: float, decimals: int) -> str:
    text = f"{ns / 1e6:+.{decimals}f}"
    return text if float(text) else text[1:]


def _share(time: TimeChange | None) -> str:
    return "" if time is None or time.share is None else _percent_of(time.share)


def _percent_of(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.005 else "0 %"


def _mark(time: TimeChange | None, news: str) -> str:
    mark = MARK if _is_cause(time, _MARKED) else ""
    return " ".join(part for part in (mark, news) if part)


def _news(change: LayerTypeChange | LayerChange) -> str:
    """What it means that there is a layer, or a time of it, on one side only."""
    before, after = change.before, change.after
    if before is None or after is None:
        return "new" if before is None else "gone"
    if (before.ns is None) == (after.ns is None):
        return ""
    return "was fused" if before.ns is None else "fused now"


def _known(change: LayerChange) -> LayerRow:
    row = change.after or change.before
    if row is None:
        raise ValueError("a change of a layer that is on neither side")
    return row


def _layer_name(change: LayerChange) -> str:
    row = _known(change)
    if row.static is not None:
        return printable(row.static.name or row.static.id)
    kernel = "" if row.time is None else row.time.kernel
    return printable(kernel) or "(no kernel)"


# -- outputs


def has_output_figures(case: CaseComparison) -> bool:
    """Whether an output differs by something that can be told in figures."""
    return any(o.difference is None and not is_equal(o) for o in case.outputs)


def output_table(case: CaseComparison) -> Table:
    """How far the outputs of both models are apart, of those that can be compared."""
    columns = (
        Column("output on the same inputs", is_text=True, is_name=True),
        Column("largest difference"),
        Column("relative"),
        Column("cosine"),
        Column("", is_text=True),
    )
    rows = tuple(_output_row(o) for o in case.outputs if o.difference is None)
    return Table("", columns, rows)


def _output_row(output: OutputChange) -> tuple[str, ...]:
    return (
        printable(output.name),
        _small(output.max_absolute),
        _small(output.max_relative),
        "" if output.cosine is None else f"{output.cosine:.6f}",
        "equal" if is_equal(output) else "",
    )


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
