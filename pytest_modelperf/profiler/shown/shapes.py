"""The shape of every tensor of a model, as a table."""

from __future__ import annotations

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.report.page import Page, TextStyle
from pytest_modelperf.report.tables import Column, table_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import UNKNOWN, format_shape


def render_shapes(bound: BoundModel, style: TextStyle) -> str:
    """Inputs first, then all others in the order in which they are computed."""
    roles = {
        **dict.fromkeys(bound.stored, "weight"),
        **{tensor.name: "output" for tensor in bound.graph.outputs},
        **{tensor.name: "input" for tensor in bound.graph.inputs},
    }
    tensors = sorted(bound.tensors.values(), key=lambda each: roles.get(each.name) != "input")
    known = sum(tensor.has_known_shape for tensor in tensors)
    page = Page(style)
    headline = f"{printable(bound.file.name)}: {known} of {len(tensors)} tensors have a shape"
    page.item(headline, style="bold")
    for note in bound.notes:
        page.item(f"note: {note}")
    page.table(
        table_of(
            "",
            tensors,
            (Column("tensor", is_name=True), lambda tensor: printable(tensor.name)),
            (Column("what", is_text=True), lambda tensor: roles.get(tensor.name, "hidden")),
            (
                Column("type", is_text=True),
                lambda tensor: UNKNOWN if tensor.dtype is None else printable(tensor.dtype),
            ),
            (Column("shape", is_text=True), lambda tensor: format_shape(tensor.shape)),
        )
    )
    return page.text()
