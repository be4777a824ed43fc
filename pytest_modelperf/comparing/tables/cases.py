"""The table of compared cases: a row for each, with its verdict and its main figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.figures import (
    LATENCY,
    format_after,
    format_allowed,
    format_change,
    format_figure,
    format_interval,
    metric_title,
)
from pytest_modelperf.comparing.records import (
    RECORDED,
    XFAILED,
    CaseComparison,
    Metric,
    Verdict,
)
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    SEVERITY,
    decided_by,
    describe_metric,
    is_quiet,
    rank_case,
)
from pytest_modelperf.report.model import Choice, On, Rows, Tone
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.text.units import format_count, format_rate

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
# A shorter name of a case is hardly recognizable.
_LEAST_NAME = 24
_LEAST_VERDICT = 12
_LEAST_FIGURE = 16
_P50, _P95 = f"{LATENCY}p50", f"{LATENCY}p95"


class CaseView(Struct, frozen=True, kw_only=True):
    """A comparison with its name and verdict; `latency` and `static` are of the model now."""

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
        """What to show of the change of the typical latency; empty without one."""
        typical = self.compared.typical
        return "" if typical is None else show(typical)

    @property
    def before(self) -> str:
        """The median before."""
        median = self.compared.metric(_P50)
        return "" if median is None else _ms(median.before)

    def now(self, name: str) -> str:
        """The judged value, by a limit as well; otherwise the measured one."""
        values = [m.after for m in self.compared.metrics if m.name == name]
        if self.ran is not None:
            values.append(self.ran.p50_ms if name == _P50 else self.ran.p95_ms)
        return _ms(next((value for value in values if value is not None), None))

    def count(self, name: str, counted: int | None) -> str:
        """`4.089 G`, or `4.089 G → 4.112 G` if it changed."""
        metric = self.compared.metric(name)
        if metric is None or metric.after is None:
            return "" if counted is None else format_count(counted)
        after = format_figure(name, metric.after)
        if metric.before is None or metric.before == metric.after:
            return after
        return f"{format_figure(name, metric.before)} → {after}"


def cases_table(views: Sequence[CaseView]) -> Table:
    """A row for each case; columns without content are left out."""
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
            lambda view: decided_by(view.compared),
        ),
        (Column("p50 before", rank=3), lambda view: view.before),
        (Column("p50 now"), lambda view: view.now(_P50)),
        (Column("change"), lambda view: view.change(format_change)),
        (Column("interval", rank=-1), lambda view: view.change(format_interval)),
        (Column("p95", rank=4), lambda view: view.now(_P95)),
        (
            Column("items/s", rank=7),
            lambda view: "" if view.ran is None else format_rate(view.ran.items_per_second),
        ),
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
    return drop_blank_columns(table)


def cases_rows(views: Sequence[CaseView], *, on: On = On.ALL) -> Rows:
    tones, choices = (view.tone for view in views), (view.choice for view in views)
    return Rows(cases_table(views), tuple(tones), tuple(choices), on=on)


def worst_view(views: Sequence[CaseView]) -> CaseView | None:
    """The worst case that is worth a look; None if all are as they should be."""
    worst = min(views, key=lambda view: view.rank, default=None)
    return None if worst is None or is_quiet(worst.compared) else worst


def describe_views(views: Sequence[CaseView]) -> str:
    """`2 of 4 regressed, 2 passed; worst: b8-c2 +11.8 %, reason: 12 Conv+Relu fusions lost`."""
    counts = Counter(view.word for view in views)
    first, *others = sorted(counts, key=SEVERITY.index)
    if others:
        text = f"{counts[first]:,} of {len(views):,} {first}"
        text += "".join(f", {counts[word]:,} {word}" for word in others)
    else:
        text = first if len(views) == 1 else f"all {len(views):,} {first}"
    worst = worst_view(views)
    if worst is None or worst.tone not in {Tone.BAD, Tone.UNSURE}:
        return text
    name = "" if len(views) == 1 else f"worst: {worst.name}"
    found = " ".join(filter(None, (name, _deciding(worst.compared))))
    return f"{text}; {found}" if found else text


def _deciding(case: CaseComparison) -> str:
    """`+11.8 %, reason: 12 Conv+Relu fusions lost`: the figure that decided, and its own reason.

    A figure other than the median has its name. It is empty for a case that failed.
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
    """`p95 latency 14.21 ms <= 12.00 ms: over budget`."""
    figure = f"{metric_title(metric.name)} {format_after(metric)}"
    return f"{figure} {format_allowed(metric)}: {metric.verdict.value}"
