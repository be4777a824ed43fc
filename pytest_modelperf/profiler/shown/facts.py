"""Tables at the end of a page about the models, the machine and the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.shown.conditions import describe_machine_line
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.version import __version__

_SHORT_HASH = 12


class ModelRow(Struct, frozen=True):
    """A model, its role in this report, and the engine that it ran on."""

    role: str
    model: ModelFacts
    engine: str = ""


def models_table(rows: Iterable[ModelRow]) -> Table:
    """Return a table with each model once, without columns that are blank."""
    table = table_of(
        "",
        rows,
        (Column("", is_name=True), lambda row: row.role),
        (Column("model", is_name=True), lambda row: row.model.name),
        (Column("path", is_name=True), lambda row: row.model.path or row.model.function_file or ""),
        (Column("size"), lambda row: row.model.described_size),
        (Column("sha256", is_name=True), lambda row: (row.model.sha256 or "")[:_SHORT_HASH]),
        (Column("operator sets", is_text=True), lambda row: _describe_opsets(row.model)),
        (Column("producer", is_text=True), lambda row: row.model.producer),
        (Column("engine", is_text=True), lambda row: row.engine),
    )
    return drop_blank_columns(replace(table, rows=tuple(dict.fromkeys(table.rows))))


def _describe_opsets(model: ModelFacts) -> str:
    return ", ".join(
        f"{'opset' if domain in {'', 'ai.onnx'} else domain} {number}"
        for domain, number in model.opsets.items()
    )


def run_table(
    machines: Iterable[MachineFacts | None],
    rows: Iterable[tuple[str, str]] = (),
    made: dt.datetime | None = None,
) -> Table:
    """Return a table of the machines, the rules of the run, its date and this package's version.

    Unknown facts are left out.
    """
    described = dict.fromkeys(describe_machine_line(each) for each in machines if each is not None)
    facts = [
        *(("machine", line.removeprefix("machine ")) for line in described),
        *rows,
        ("date", "" if made is None else f"{made.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M} UTC"),
        ("made by", f"pytest-modelperf {__version__}"),
    ]
    columns = (Column("", is_text=True), Column("", is_text=True))
    return Table("", columns, tuple(fact for fact in facts if fact[1]))


def format_share(share: float | None) -> str:
    """Return a share as text, such as `3 %`, or an empty text if there is none."""
    return "" if share is None else f"{100 * share:.4g} %"
