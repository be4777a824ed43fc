"""A compared case on a page: a row of the table of all cases, and a section of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from pytest_modelperf.baselines.records import StoredStatic
from pytest_modelperf.comparing.advice import describe_doubt
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
from pytest_modelperf.comparing.tables import (
    has_output_figures,
    metric_tables,
    output_table,
)
from pytest_modelperf.comparing.verdict_lines import (
    FAILED,
    SEVERITY,
    decided_by,
    describe_facts,
    describe_metric,
    failure_lines,
    is_quiet,
    rank_case,
    word_of_reasons,
)
from pytest_modelperf.errors import Wording
from pytest_modelperf.report.model import (
    Block,
    Choice,
    Code,
    Failure,
    Line,
    Paragraph,
    Rows,
    Section,
    Tone,
)
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
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
_COLUMNS = (
    Column("case", is_text=True, is_name=True),
    Column("verdict", is_text=True, is_verdict=True),
    Column("decided by", is_text=True),
    Column("p50 before"),
    Column("p50 now"),
    Column("change"),
    Column("interval"),
    Column("p95"),
    Column("items/s"),
    Column("MACs"),
    Column("params"),
    Column("budgets", is_text=True),
)


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

    def section(
        self,
        sentence: str,
        wording: Wording,
        *,
        accept: str | None = None,
        advice: str | None = None,
        is_open: bool = False,
    ) -> Section:
        """Its figures and explanations, under its verdict and the rest of the sentence."""
        return Section(
            title=self.name,
            word=self.word,
            sentence=sentence.removeprefix(self.word).lstrip(":, "),
            tone=self.tone,
            blocks=tuple(self._blocks(wording, accept, advice)),
            is_open=is_open,
            choice=self.choice,
        )

    def _blocks(self, wording: Wording, accept: str | None, advice: str | None) -> Iterator[Block]:
        case = self.compared
        if case.failure is not None:
            yield Failure("\n".join(failure_lines(case)))
        doubt = describe_doubt(case, wording)
        if doubt is not None:
            yield Paragraph((Line(text=doubt, tone=Tone.UNSURE),))
        if case.metrics:
            yield Rows(metric_tables(case)[0])
        if has_output_figures(case):
            yield Rows(output_table(case))
        facts = [
            *((word_of_reasons(case), reason) for reason in case.reasons),
            *describe_facts(case, wording),
            *([("accept", advice)] if advice is not None else []),
        ]
        if facts:
            yield Paragraph(tuple(Line(word=word, text=text) for word, text in facts))
        if accept is not None:
            yield Code("To accept it", accept, is_command=True)

    def row(self) -> tuple[str, ...]:
        median = self.compared.metric(f"{LATENCY}p50")
        latency = self.compared.after.latency if self.compared.after else self.latency
        return (
            self.name,
            self.word,
            decided_by(self.compared),
            "" if median is None else _ms(median.before),
            self._now(f"{LATENCY}p50", None if latency is None else latency.p50_ms),
            "" if median is None else format_change(median),
            "" if median is None else format_interval(median),
            self._now(f"{LATENCY}p95", None if latency is None else latency.p95_ms),
            "" if latency is None else format_rate(latency.items_per_second),
            self._count("macs", None if self.static is None else self.static.macs),
            self._count("params", None if self.static is None else self.static.params),
            "; ".join(_budget(m) for m in self.compared.metrics if m.limit is not None),
        )

    def _now(self, name: str, measured_ms: float | None) -> str:
        """The judged value, by a limit as well; otherwise the measured one."""
        known = (m.after for m in self.compared.metrics if m.name == name and m.after is not None)
        return _ms(next(known, measured_ms))

    def _count(self, name: str, counted: int | None) -> str:
        """`4.089 G`, or `4.089 G → 4.112 G` if it changed."""
        metric = self.compared.metric(name)
        if metric is None or metric.after is None:
            return "" if counted is None else format_count(counted)
        after = format_figure(name, metric.after)
        if metric.before is None or metric.before == metric.after:
            return after
        return f"{format_figure(name, metric.before)} → {after}"


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
    if worst is None or TONES[worst.word] not in {Tone.BAD, Tone.UNSURE}:
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
    if metric.name == f"{LATENCY}p50" and metric.limit is None and metric.ratio is not None:
        figure = format_change(metric)
    return figure if metric.reason is None else f"{figure}, reason: {metric.reason}"


def cases_rows(views: Sequence[CaseView]) -> Rows:
    """A row for each case; empty columns are left out."""
    table = drop_blank_columns(Table("", _COLUMNS, tuple(view.row() for view in views)))
    tones, choices = (view.tone for view in views), (view.choice for view in views)
    return Rows(table, tuple(tones), tuple(choices))


def _ms(value: float | None) -> str:
    return "" if value is None else format_figure(f"{LATENCY}p50", value)


def _budget(metric: Metric) -> str:
    """`p95 latency 14.21 ms <= 12.00 ms: over budget`."""
    figure = f"{metric_title(metric.name)} {format_after(metric)}"
    return f"{figure} {format_allowed(metric)}: {metric.verdict.value}"
