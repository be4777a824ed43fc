"""The tables of a comparison: cases, their figures, and what changed in graphs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.changes import LayerTypeChange, OutputChange
from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_after,
    format_allowed,
    format_change,
    format_figure,
    format_interval,
    format_value,
    is_sampled,
    is_time,
    metric_title,
)
from pytest_modelperf.comparing.records import RECORDED, XFAILED, CaseComparison, Metric, Verdict
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    SEVERITY,
    decided_by,
    describe_metric,
    failure_lines,
    is_equal,
    is_quiet,
    rank_case,
)
from pytest_modelperf.profiler.counting.records import LayerType
from pytest_modelperf.report.model import Choice, On, Rows, Tone
from pytest_modelperf.report.tables import (
    Column,
    FilledColumn,
    Table,
    drop_blank_columns,
    select_columns,
    table_of,
)
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import (
    ESTIMATE,
    UNKNOWN,
    format_count,
    format_rate,
    format_signed_count,
)
from pytest_modelperf.text.words import count_of

# The mark of a row that explains a large share.
MARK = "<"
INTERVAL = "interval"


def without_column(table: Table, title: str) -> Table:
    columns = enumerate(table.columns)
    return select_columns(table, [index for index, column in columns if column.title != title])


def layer_counts(change: LayerTypeChange) -> str:
    """Return `3`, or `3 -> 4`."""
    before = change.before.count if change.before else 0
    after = change.after.count if change.after else 0
    return str(after) if before == after else f"{before} -> {after}"


# -- the figures of a comparison as a table


# The least width to which a metric's title is cut.
_LEAST_TITLE = 11
_LEAST_VERDICT = 12
# The word for a judged figure that is open but not awaited by the verdict.
_NOT_DECIDED = "not decided"
_LEGEND = f"{_NOT_DECIDED}: it may be worse or not, and the verdict does not wait for it"


def _figures(metric: Metric, *, has_before: bool = True) -> tuple[str, str, str]:
    # A figure that is only compared with a limit has no side before. A model that ran alone because
    # its plan is the recorded one has no time before.
    ran_alone = is_time(metric.name) and metric.after is not None
    is_alone = metric.limit is not None or ran_alone or not has_before
    return (
        "" if metric.before is None and is_alone else format_value(metric, metric.before),
        format_after(metric),
        format_change(metric),
    )


def metric_rows(case: CaseComparison, metrics: Sequence[Metric] | None = None) -> Rows:
    """Return all figures before and now, or these `metrics`, with the verdicts of judged ones.

    If something ran, an unchanged exact figure is left out, unless the verdict waits for it. A tail
    that the user did not name is left out if it has too few samples. Empty columns are left out,
    too.
    """
    shown = shown_metrics(case) if metrics is None else metrics
    has_before = any(metric.before is not None for metric in shown)
    has_allowed = is_measured(case) or any(
        m.limit is not None or (m.gated and m.allowed and m.before != m.after) for m in shown
    )
    columns = (
        Column("metric", is_text=True, least=_LEAST_TITLE),
        Column("of", is_text=True, rank=9),
        *map(Column, ("before", "now", "change")),
        Column(INTERVAL, rank=-1),
        Column("allowed"),
        Column("", is_text=True, is_verdict=True, least=_LEAST_VERDICT),
    )
    rows = tuple(
        (
            metric_title(metric.name),
            "" if metric.detail is None else printable(metric.detail),
            *_figures(metric, has_before=has_before),
            format_interval(metric),
            format_allowed(metric) if has_allowed and metric.gated else "",
            _verdict(metric),
        )
        for metric in shown
    )
    words = [row[-1] for row in rows]
    table = Table("", columns, rows, caption=_LEGEND if _NOT_DECIDED in words else "")
    tones = tuple(_FIGURE_TONES.get(word, Tone.PLAIN) for word in words)
    return Rows(drop_blank_columns(table), tones)


def is_measured(case: CaseComparison) -> bool:
    """Whether something ran, or was supposed to run."""
    is_timed = any(m.name.startswith(LATENCY) for m in case.metrics)
    return is_timed or case.rounds is not None


def shown_metrics(case: CaseComparison) -> Sequence[Metric]:
    """Return the figures with a row of their own in the table of all."""
    return tuple(m for m in case.metrics if _is_shown(m)) if is_measured(case) else case.metrics


def _is_shown(metric: Metric) -> bool:
    if metric.gated:
        is_same = metric.before == metric.after and not is_sampled(metric.name)
        return metric.awaited or (metric.after is not None and not is_same)
    return metric.interval is not None or metric.before != metric.after


def _verdict(metric: Metric) -> str:
    if metric.gated and metric.is_open and not metric.awaited:
        return _NOT_DECIDED
    return metric.verdict.value if metric.gated else ""


# -- the table of how far the outputs of both models are apart


def has_output_figures(case: CaseComparison) -> bool:
    """Whether an output differs in a way that figures can show."""
    return any(o.difference is None and not is_equal(o) for o in case.outputs)


def output_table(case: CaseComparison) -> Table:
    return table_of(
        "",
        (output for output in case.outputs if output.difference is None),
        *OUTPUT_COLUMNS,
        (Column("", is_text=True), lambda output: "equal" if is_equal(output) else ""),
    )


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


# How far an output is from that of the other model.
OUTPUT_COLUMNS: tuple[FilledColumn[OutputChange], ...] = (
    (Column("output on the same inputs", is_name=True), lambda output: output.name),
    (Column("largest difference"), lambda output: _small(output.max_absolute)),
    (Column("relative"), lambda output: _small(output.max_relative)),
    (Column("cosine"), lambda output: "" if output.cosine is None else f"{output.cosine:.6f}"),
)


# -- the table of what changed in the graphs, by operator


def shows_graphs(case: CaseComparison) -> bool:
    """Whether there is anything to show: a type of layers changed."""
    return any(not change.is_equal for change in case.layer_types)


def layer_type_change_table(case: CaseComparison, most: int | None = None) -> Table:
    """Return a row for each of the first `most` changed operators. The caption counts the rest."""
    changed = [change for change in case.layer_types if not change.is_equal]
    culprit = max(changed, key=lambda c: (c.added_macs, c.added_ops), default=None)
    has_grown = culprit is not None and (culprit.added_macs > 0 or culprit.added_ops > 0)
    same = len(case.layer_types) - len(changed)
    captions = [f"{same} other type{'s are' if same > 1 else ' is'} the same"] if same else []
    shown = changed[:most]
    if len(shown) < len(changed):
        captions.insert(0, f"{count_of(len(changed) - len(shown), 'other type')} changed")
    return table_of(
        "by layer type",
        shown,
        (Column("layer type", is_name=True), lambda each: each.op),
        (Column("count"), layer_counts),
        (Column("MACs before"), lambda each: _macs(each.before)),
        (Column("MACs now"), lambda each: _macs(each.after)),
        (Column("MACs change"), lambda each: _added(each.added_macs, each, lambda kind: kind.macs)),
        (
            Column("elementwise"),
            lambda each: _added(each.added_ops, each, lambda kind: kind.elementwise_ops),
        ),
        (Column("", is_text=True), lambda each: MARK if has_grown and each is culprit else ""),
        caption=", ".join(captions),
    )


def _macs(kind: LayerType | None) -> str:
    return "-" if kind is None else format_count(kind.macs)


def _added(added: int, change: LayerTypeChange, read: Callable[[LayerType], int | None]) -> str:
    """Return the change of a cost, which is unknown if the cost of a side is."""
    sides = (change.before, change.after)
    is_known = all(read(side) is not None for side in sides if side is not None)
    return format_signed_count(added) if is_known else UNKNOWN


# -- the table of compared cases


TONES = {
    Verdict.REGRESSED.value: Tone.BAD,
    Verdict.OVER_BUDGET.value: Tone.BAD,
    FAILED: Tone.BAD,
    Verdict.INCONCLUSIVE.value: Tone.UNSURE,
    Verdict.IMPROVED.value: Tone.GOOD,
    Verdict.PASSED.value: Tone.GOOD,
    Verdict.UNCHANGED.value: Tone.GOOD,
    Verdict.NEW.value: Tone.PLAIN,
    RECORDED: Tone.PLAIN,
    XFAILED: Tone.PLAIN,
}
_FIGURE_TONES = {**TONES, _NOT_DECIDED: Tone.UNSURE}
# The least width to which the name of a case is cut.
_LEAST_NAME = 24
_LEAST_FIGURE = 16
_P50, _P95 = f"{LATENCY}p50", f"{LATENCY}p95"
_OF_FEW = f"{ESTIMATE}: the mean of fewer runs than a median needs"


class CaseView(Struct, frozen=True, kw_only=True):
    """A comparison with its name and verdict. `latency` and `static` are of the model now."""

    name: str
    word: str
    compared: CaseComparison
    latency: Latency | None = None
    static: StoredStatic | None = None
    choice: Choice | None = None

    @property
    def tone(self) -> Tone:
        return TONES[self.word]

    @property
    def rank(self) -> tuple[int, float]:
        return rank_case(self.word, self.compared)

    @property
    def ran(self) -> Latency | None:
        """The latency of the model now."""
        return self.compared.after.latency if self.compared.after else self.latency

    def change(self, show: Callable[[Metric], str]) -> str:
        """Return what to show of the change of the typical latency, or an empty string."""
        typical = self.compared.typical
        return "" if typical is None else show(typical)

    @property
    def failure(self) -> str:
        """The first line of why the case could not be measured."""
        return next(iter(failure_lines(self.compared)), "")

    @property
    def before(self) -> str:
        """The median before."""
        median = self.compared.metric(_P50)
        return "" if median is None else _ms(median.before)

    def now(self, name: str) -> str:
        """Return the judged value, or one with a limit, or else the measured one."""
        values = [m.after for m in self.compared.metrics if m.name == name]
        if self.ran is not None:
            values.append(self.ran.p50_ms if name == _P50 else self.ran.p95_ms)
        known = next((value for value in values if value is not None), None)
        if known is None and name == _P50 and self.ran is not None:
            return f"{ESTIMATE}{_ms(self.ran.mean_ms)}"
        return _ms(known)

    @property
    def rate(self) -> str:
        """Return the items per second, marked if they come from too few inferences for a median."""
        if self.ran is None:
            return ""
        rate = self.ran.items_per_second
        if rate is None and self.ran.mean_ns:
            return f"{ESTIMATE}{format_rate(self.ran.batch_size * 1e9 / self.ran.mean_ns)}"
        return format_rate(rate)

    def count(self, name: str, counted: int | None) -> str:
        """Return `4.089 G`, or `4.089 G → 4.112 G` if it changed."""
        metric = self.compared.metric(name)
        if metric is None or metric.after is None:
            return "" if counted is None else format_count(counted)
        after = format_figure(name, metric.after)
        if metric.before is None or metric.before == metric.after:
            return after
        return f"{format_figure(name, metric.before)} → {after}"


def cases_table(views: Sequence[CaseView], *, has_failures: bool = False) -> Table:
    """Return a table with a row for each case. Columns without content are left out.

    A case that could not be measured has the first line of its failure, if wanted.
    """
    table = table_of(
        "",
        views,
        (Column("case", is_text=True, is_name=True, least=_LEAST_NAME), lambda view: view.name),
        (
            Column("verdict", is_text=True, is_verdict=True, least=_LEAST_VERDICT),
            lambda view: view.word,
        ),
        (
            Column("decided by", is_text=True, least=_LEAST_FIGURE),
            lambda view: decided_by(view.compared) or (view.failure if has_failures else ""),
        ),
        (Column("p50 before", rank=3), lambda view: view.before),
        (Column("p50 now"), lambda view: view.now(_P50)),
        (Column("change"), lambda view: view.change(format_change)),
        (Column("interval", rank=-1), lambda view: view.change(format_interval)),
        (Column("p95", rank=4), lambda view: view.now(_P95)),
        (Column("items/s", rank=7), lambda view: view.rate),
        (
            Column("MACs", rank=5),
            lambda view: view.count("macs", None if view.static is None else view.static.macs),
        ),
        (
            Column("params", rank=6),
            lambda view: view.count("params", None if view.static is None else view.static.params),
        ),
        (
            Column("budgets", is_text=True, rank=8),
            lambda view: "; ".join(
                _budget(m) for m in view.compared.metrics if m.limit is not None
            ),
        ),
    )
    if any(view.rate.startswith(ESTIMATE) for view in views):
        table = replace(table, caption=_OF_FEW)
    return drop_blank_columns(table)


def cases_rows(views: Sequence[CaseView], *, on: On = On.ALL) -> Rows:
    """Return the table of the cases. A terminal has no room for failures."""
    tones, choices = (view.tone for view in views), (view.choice for view in views)
    table = cases_table(views, has_failures=On.TERMINAL not in on)
    return Rows(table, tuple(tones), tuple(choices), on=on)


def worst_view(views: Sequence[CaseView]) -> CaseView | None:
    """Return the worst case that needs attention, or None if no case does."""
    worst = min(views, key=lambda view: view.rank, default=None)
    return None if worst is None or is_quiet(worst.compared) else worst


def count_views(views: Sequence[CaseView]) -> str:
    """Return `2 of 4 regressed, 2 passed`, the worst first."""
    counts = Counter(view.word for view in views)
    first, *others = sorted(counts, key=SEVERITY.index)
    if others:
        text = f"{counts[first]:,} of {len(views):,} {first}"
        return text + "".join(f", {counts[word]:,} {word}" for word in others)
    return first if len(views) == 1 else f"all {len(views):,} {first}"


def describe_views(views: Sequence[CaseView]) -> str:
    """Return `2 of 4 regressed, 2 passed; worst: b8-c2 +11.8 %, reason: 12 fusions lost`."""
    text, worst = count_views(views), worst_view(views)
    if worst is None or worst.tone not in {Tone.BAD, Tone.UNSURE}:
        return text
    name = "" if len(views) == 1 else f"worst: {worst.name}"
    found = " ".join(filter(None, (name, _deciding(worst.compared))))
    return f"{text}; {found}" if found else text


def _deciding(case: CaseComparison) -> str:
    """Return the figure that decided, and its own reason.

    It is `+11.8 %, reason: 12 Conv+Relu fusions lost` for the median. Another figure has its name.
    The text is empty for a case that failed.
    """
    metric = None if case.has_failed else next(iter(case.deciding), None)
    if metric is None:
        return ""
    figure = describe_metric(metric, None, has_interval=False)
    if metric.name == _P50 and metric.limit is None and metric.ratio is not None:
        figure = format_change(metric)
    return figure if metric.reason is None else f"{figure}, reason: {metric.reason}"


def _ms(value: float | None) -> str:
    return "" if value is None else format_figure(_P50, value)


def _budget(metric: Metric) -> str:
    """Return `p95 latency 14.21 ms <= 12.00 ms: over budget`."""
    figure = f"{metric_title(metric.name)} {format_after(metric)}"
    return f"{figure} {format_allowed(metric)}: {metric.verdict.value}"
