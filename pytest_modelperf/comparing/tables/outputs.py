"""The table of how far the outputs of both models are apart."""

from __future__ import annotations

from pytest_modelperf.comparing.difference_text import is_equal
from pytest_modelperf.comparing.records import CaseComparison, OutputChange
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable


def has_output_figures(case: CaseComparison) -> bool:
    """Whether an output differs in a way that figures can show."""
    return any(o.difference is None and not is_equal(o) for o in case.outputs)


def output_table(case: CaseComparison) -> Table:
    """A row for each output that can be compared."""
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
