"""The table of the changes that an update of the baselines would make."""

from __future__ import annotations

from pytest_modelperf.baselines.records import BaselineChange, UpdatePlan, Value
from pytest_modelperf.files.names import model_name
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.cutting import CUT
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_bytes, format_count, format_ms, signed_percent

_NOTHING = "-"
_TITLES = {
    "macs": "MACs",
    "observed_macs": "MACs in a run",
    "scalar_params": "single-value params",
    "elementwise_ops": "elementwise ops",
    "backward_macs": "backward MACs",
    "effective_macs": "effective MACs",
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "peak_activation_bytes": "peak activations",
    "peak_rss_bytes": "peak memory",
    "size_bytes": "file size",
    "latency_p50_ns": "p50 latency",
    "latency_p95_ns": "p95 latency",
    "twin_ratio": "twin / model",
    "twin_trusted": "twin trusted",
    "batch_size": "batch size",
}
# Columns of figures are never cut to fit, so texts in them are kept short.
_LONGEST = 24
_TIME = "_ns"
_SIZE = "_bytes"


def plan_table(plan: UpdatePlan) -> Table:
    """One row for each figure that changes, with the model as title and the notes as caption."""
    machines = {change.machine for change in plan.changes if change.machine is not None}
    columns = (
        Column("case", is_text=True, is_name=True),
        Column("what", is_text=True, is_name=True, least=12),
        Column("before"),
        Column("after"),
        Column("change"),
    )
    rows = []
    shown: str | None = None
    for change in plan.changes:
        case = change.case or "model"
        rows.append(_row(change, case if case != shown else "", shows_machine=len(machines) > 1))
        shown = case
    caption = "\n".join(printable(note) for note in plan.notes)
    return Table(model_name(plan.name), columns, tuple(rows), None, caption)


def _row(change: BaselineChange, case: str, *, shows_machine: bool) -> tuple[str, ...]:
    what = figure_title(change.name)
    if shows_machine and change.machine is not None:
        what = f"{what} on {printable(change.machine)}"
    before, after = (_value(change.name, value) for value in (change.before, change.after))
    return (printable(case), what, before, after, change_text(change))


def figure_title(name: str) -> str:
    return printable(_TITLES.get(name, name))


def _value(name: str, value: Value) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + CUT
    if name.endswith(_TIME):
        return f"{format_ms(value)} ms"
    if isinstance(value, float):
        return f"{value:.4f}"
    return format_bytes(value) if name.endswith(_SIZE) else format_count(value)


def change_text(change: BaselineChange) -> str:
    """How a figure changed: `+3.2 %`, `new`, `removed`, or `changed` for a text."""
    if change.before is None and change.after is not None:
        return "new"
    if change.after is None and change.before is not None:
        return "removed"
    return "changed" if change.ratio is None else signed_percent(change.ratio - 1)
