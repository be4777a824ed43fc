"""A data frame as a report: a table of its first rows, with times in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from pytest_modelperf.report.model import Report, Rows
from pytest_modelperf.report.tables import MIN_NAME, Column, Table
from pytest_modelperf.text.units import format_count, format_ms, format_share, ms_decimals

if TYPE_CHECKING:
    import pandas as pd

_LEAST_DECIMALS = 3
_SESSION = "session"
_PROVIDER = "ExecutionProvider"
_NEEDED = "(n): it takes n samples to tell"

Formatter: TypeAlias = "Callable[[Any], str]"


def _text(value: str) -> str:
    return value.removesuffix(_PROVIDER)


def _share(value: float) -> str:
    return format_share(float(value), 1.0)


_FORMATS: Mapping[str, Formatter] = {
    "share": _share,
    "macs": format_count,
    "params": format_count,
}
_TIMES = (
    *("start", "end", "dur", "self", "average", "total", "run", "wait", "time"),
    *("min", "max", "mean", "median", "p90", "p95", "p97", "p99", "p99.9"),
)


class Heading(Struct, frozen=True):
    """The title above a table, the note below it, and the columns that it shows.

    `needed` has the samples that a figure takes, by its column: shown where the figure is missing.
    """

    title: str
    columns: tuple[str, ...]
    needed: Mapping[str, int] = {}


def frame_report(frame: pd.DataFrame, heading: Heading, top: int | None) -> Report:
    """The first `top` rows of a frame. Empty columns are left out.

    If all rows have the same session, the title names it.
    """
    names = [
        name
        for name in heading.columns
        if not len(frame) or name in heading.needed or frame[name].notna().any()
    ]
    title = heading.title
    session = _only(frame, _SESSION) if _SESSION in names else None
    if session is not None:
        names.remove(_SESSION)
        title = f"{title}: {session}"
    shown = frame if top is None else frame.head(top)
    cells = [_cells(shown[name], name, heading.needed.get(name)) for name in names]
    lacks_figures = any(frame[name].isna().any() for name in heading.needed)
    notes = (_caption(len(frame), len(frame) - len(shown)), _NEEDED if lacks_figures else "")
    table = Table(
        title,
        tuple(_column(frame[name], name) for name in names),
        tuple(zip(*cells, strict=True)),
        caption="\n".join(filter(None, notes)),
    )
    return Report(title=title, blocks=(Rows(table),))


def _only(frame: pd.DataFrame, name: str) -> str | None:
    """The value that a column of text has in every row; None if they differ."""
    values = frame[name].unique()
    return str(values[0]) if len(values) == 1 else None


def _caption(rows: int, hidden: int) -> str:
    if not rows:
        return "nothing was recorded"
    return f"{hidden:,} more: top=None shows all" if hidden else ""


def _column(values: pd.Series, name: str) -> Column:
    is_text = values.dtype == "string"
    # A column is never cut to less than its title.
    return Column(name, is_text=is_text, is_name=is_text, least=max(MIN_NAME, len(name)))


def _cells(values: pd.Series, name: str, needed: int | None) -> list[str]:
    missing = "" if needed is None else f"({needed})"
    show = _formatter(values, name)
    return [
        missing if is_missing else show(value)
        for value, is_missing in zip(values, values.isna(), strict=True)
    ]


def _formatter(values: pd.Series, name: str) -> Formatter:
    if name in _TIMES:
        return _times(values)
    if values.dtype == "string":
        return _text
    return _FORMATS.get(name, str)


def _times(values: pd.Series) -> Formatter:
    """The times with the same decimals in the whole column, so that they line up."""
    longest = values.abs().max() if values.notna().any() else 0
    decimals = max(_LEAST_DECIMALS, ms_decimals(float(longest)))
    return lambda ns: format_ms(float(ns), decimals)
