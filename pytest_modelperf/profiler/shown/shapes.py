"""The shape of every tensor of a model as a report."""

from __future__ import annotations

from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.report.model import Line, Report, Rows
from pytest_modelperf.report.tables import Column, table_of
from pytest_modelperf.text.units import UNKNOWN, format_shape


def shapes_report(bound: BoundModel) -> Report:
    """Inputs first, then all others in the order in which they are computed."""
    roles = {
        **dict.fromkeys(bound.stored, "weight"),
        **{tensor.name: "output" for tensor in bound.graph.outputs},
        **{tensor.name: "input" for tensor in bound.graph.inputs},
    }
    tensors = sorted(bound.tensors.values(), key=lambda each: roles.get(each.name) != "input")
    known = sum(tensor.has_known_shape for tensor in tensors)
    table = table_of(
        "",
        tensors,
        (Column("tensor", is_name=True), lambda tensor: tensor.name),
        (Column("what", is_text=True), lambda tensor: roles.get(tensor.name, "hidden")),
        (Column("type", is_text=True), lambda tensor: tensor.dtype or UNKNOWN),
        (Column("shape", is_text=True), lambda tensor: format_shape(tensor.shape)),
    )
    return Report(
        title=f"{bound.file.name}: shapes",
        subject=f"{bound.file.name}: {known} of {len(tensors)} tensors have a shape",
        opening=tuple(Line(word="note", text=note) for note in bound.notes),
        blocks=(Rows(table),),
    )
