"""The tables of a comparison: metrics side by side, and what changed by layer type."""

from __future__ import annotations

from pytest_modelperf.records import LayerType
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.units import format_bytes, format_count, printable
from pytest_modelperf.verdicts import CaseComparison, LayerTypeChange, Metric

MARK = "<"

_TITLES = {
    "macs": "MACs",
    "params": "params",
    "elementwise_ops": "elementwise ops",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "peak_activation_bytes": "peak activations",
}


def metric_table(case: CaseComparison) -> Table:
    """Before, now and change of every figure; what is shown only has no verdict."""
    columns = (
        Column("metric", is_text=True),
        Column("before"),
        Column("now"),
        Column("change"),
        Column("", is_text=True),
    )
    return Table("", columns, tuple(_metric_row(metric) for metric in case.metrics))


def _metric_row(metric: Metric) -> tuple[str, ...]:
    show = format_bytes if metric.name.endswith("_bytes") else format_count
    change = "" if metric.ratio is None else _percent(metric.ratio - 1)
    verdict = metric.verdict.value if metric.gated else ""
    return (_TITLES[metric.name], show(metric.before), show(metric.after), change, verdict)


def _percent(change: float) -> str:
    """A change with its sign; one too small to show as more than 0.0 % says so."""
    if change and abs(change) < 0.0005:
        return "<0.1 %"
    return f"{100 * change:+.1f} %" if change else "0 %"


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
        _signed(change.added_macs),
        _signed(change.added_ops),
        MARK if is_culprit and grew else "",
    )


def _counts(change: LayerTypeChange) -> str:
    before = change.before.count if change.before else 0
    after = change.after.count if change.after else 0
    return str(after) if before == after else f"{before} -> {after}"


def _macs(kind: LayerType | None) -> str:
    return "-" if kind is None else format_count(kind.macs)


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{format_count(abs(value))}"
