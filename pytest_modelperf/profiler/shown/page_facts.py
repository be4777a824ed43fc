"""Tables of a page about the models, the machine and the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from msgspec import Struct

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.shown.conditions import describe_machine_line
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns
from pytest_modelperf.text.version import __version__

_SHORT_HASH = 12


class ModelRow(Struct, frozen=True):
    """A model, its role in this report, and the engine that it ran on."""

    role: str
    model: ModelFacts
    engine: str = ""


def models_table(rows: Iterable[ModelRow]) -> Table:
    """A row for each model, once; columns that have nothing to show are left out."""
    columns = (
        Column("", is_text=True),
        Column("model", is_text=True, is_name=True),
        Column("path", is_text=True, is_name=True),
        Column("size"),
        Column("sha256", is_text=True, is_name=True),
        Column("operator sets", is_text=True),
        Column("producer", is_text=True),
        Column("engine", is_text=True),
    )
    cells = dict.fromkeys((row.role, *_model_cells(row.model), row.engine) for row in rows)
    return drop_blank_columns(Table("", columns, tuple(cells)))


def _model_cells(model: ModelFacts) -> tuple[str, ...]:
    return (
        model.name,
        model.path or "",
        model.described_size,
        (model.sha256 or "")[:_SHORT_HASH],
        ", ".join(
            f"{'opset' if domain in {'', 'ai.onnx'} else domain} {number}"
            for domain, number in model.opsets.items()
        ),
        model.producer,
    )


def run_table(
    machines: Iterable[MachineFacts | None],
    rows: Iterable[tuple[str, str]] = (),
    made: dt.datetime | None = None,
) -> Table:
    """Where it ran, by which rule, when, and by which version; unknown facts are left out."""
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
    """`3 %`; empty where there is none."""
    return "" if share is None else f"{100 * share:.4g} %"
