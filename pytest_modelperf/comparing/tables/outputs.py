"""The table of how far the outputs of both models are apart."""

from __future__ import annotations

from pytest_modelperf.comparing.difference_text import is_equal
from pytest_modelperf.comparing.records import CaseComparison, OutputChange
from pytest_modelperf.report.tables import Column, FilledColumn, Table, table_of


def has_output_figures(case: CaseComparison) -> bool:
    """Whether an output differs in a way that figures can show."""
    return any(o.difference is None and not is_equal(o) for o in case.outputs)


def output_table(case: CaseComparison) -> Table:
    """A row for each output that can be compared."""
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
