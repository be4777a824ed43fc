"""The shape of every tensor of a model, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.graph.structure import TensorFacts
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_shape

_COLUMNS = (
    Column("tensor", is_text=True, is_name=True),
    Column("what", is_text=True),
    Column("type", is_text=True),
    Column("shape", is_text=True),
)


def render_shapes(
    model: str, tensors: Sequence[TensorFacts], notes: Sequence[str], style: TextStyle
) -> str:
    """Inputs first, then all others in the order in which they are computed."""
    page = Page(style)
    known = sum(tensor.is_complete for tensor in tensors)
    page.item(f"{printable(model)}: {known} of {len(tensors)} tensors have a shape", style="bold")
    for note in notes:
        page.item(f"note: {note}")
    rows = tuple(
        (
            printable(tensor.name),
            tensor.role,
            UNKNOWN if tensor.dtype is None else printable(tensor.dtype),
            format_shape(tensor.shape),
        )
        for tensor in tensors
    )
    page.table(Table("", _COLUMNS, rows))
    return page.text()
