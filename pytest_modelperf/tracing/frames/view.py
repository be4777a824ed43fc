"""`Frames`: a recording as data frames, to be filtered, summed up and printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.model import Report, Rows
from pytest_modelperf.report.notebook import Viewed, Views, named_view
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.report.tables import MIN_NAME, Column, Table
from pytest_modelperf.text.escaping import encoding_of
from pytest_modelperf.text.units import format_count, format_ms, format_share, ms_decimals
from pytest_modelperf.tracing.files.opening import open_profile
from pytest_modelperf.tracing.frames import tables
from pytest_modelperf.tracing.frames.tables import TEXT, events_of, make_rows
from pytest_modelperf.tracing.records import Category, Event
from pytest_modelperf.tracing.report import trace_views

if TYPE_CHECKING:
    import pandas as pd

_LEAST_DECIMALS = 3
_SESSION = "session"
_PROVIDER = "ExecutionProvider"
_NEEDED = "(n): it takes n samples to tell"

Formatter: TypeAlias = "Callable[[Any], str]"


def _text(value: str) -> str:
    return value.removesuffix(_PROVIDER)


_FORMATS: Mapping[str, Formatter] = {
    "share": lambda value: format_share(float(value), 1.0),
    "macs": format_count,
    "params": format_count,
}
_TIMES = (
    *("start", "end", "dur", "self", "average", "total", "run", "wait", "time"),
    *("min", "max", "mean", "median", "p90", "p95", "p97", "p99", "p99.9"),
)


class Heading(Struct, frozen=True):
    """The title above a table, the note below it, and the columns that it shows.

    `needed` maps columns to the number of samples that their figures take, shown if a figure is
    missing.
    """

    title: str
    columns: tuple[str, ...]
    needed: Mapping[str, int] = {}


def frame_report(frame: pd.DataFrame, heading: Heading, top: int | None) -> Report:
    """Return the first `top` rows of a frame. Empty columns are left out.

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
    """Return the value that a text column has in every row, or None if they differ."""
    values = frame[name].unique()
    return str(values[0]) if len(values) == 1 else None


def _caption(rows: int, hidden: int) -> str:
    if not rows:
        return "nothing was recorded"
    return f"{hidden:,} more: top=None shows all" if hidden else ""


def _column(values: pd.Series, name: str) -> Column:
    is_text = values.dtype == "string"
    # A column is never narrower than its title.
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
    """Use the same decimals for the times of the whole column, so that they line up."""
    longest = values.abs().max() if values.notna().any() else 0
    decimals = max(_LEAST_DECIMALS, ms_decimals(float(longest)))
    return lambda ns: format_ms(float(ns), decimals)


# -- `Frames`: a recording as data frames


_BY = ("session", "name")
_TOP = 20
# Longer lines are hard to read, and a table does not fit into shorter ones.
_WIDEST, _NARROWEST = 160, 60


class Frames(Viewed):
    """The spans of a trace, as data frames.

    Times are nanoseconds. `notes` say what is missing from the trace, and why.
    """

    def __init__(self, events: Iterable[Event] = (), notes: Sequence[str] = ()) -> None:
        _check_pandas()
        self._rows = make_rows(events)
        self.notes = tuple(notes)

    @classmethod
    def read(cls, path: str | Path) -> Frames:
        """Read a profile of ONNX Runtime, a recording, or a profile stored as JSON."""
        _check_pandas()
        source = open_profile(path)
        made = cls(source.events)
        # The notes are complete once all events are read.
        made.notes = source.notes()
        return made

    def __repr__(self) -> str:
        return f"<frames: {len(self._rows)} spans, {len(self.inferences())} inferences>"

    def frame(self, of: str = "spans") -> pd.DataFrame:
        """Return a row for each span, sorted by start, or another table, such as `"layers"`.

        Raises UsageError for another name, which lists all.
        """
        return named_view(self._tables(), "table", of)()

    def _tables(self) -> Mapping[str, Callable[[], pd.DataFrame]]:
        return {
            "spans": self._rows.copy,
            "inferences": self.inferences,
            "executions": self.executions,
            "operators": self.operators,
            "operator calls": self.operator_calls,
            "layers": self.layers,
            "summary": self.summary,
        }

    def _views(self) -> Views:
        return trace_views("", lambda: events_of(self._rows), lambda: self.notes)

    def where(self, column: str, value: object) -> Frames:
        """Return only the spans with this value in a column of `frame()` (None: no value)."""
        chosen = object.__new__(type(self))
        chosen._rows = tables.choose(self._rows, column, value)  # one of ours
        chosen.notes = self.notes
        return chosen

    def inferences(self) -> pd.DataFrame:
        """Return a row for each inference, sorted by start."""
        return tables.inferences(self._rows)

    def executions(self) -> pd.DataFrame:
        """Return the total time of each inference, its time in operators, and its wait between."""
        return tables.executions(self._rows)

    def operators(self, by: str = "name", sort: str = "total") -> pd.DataFrame:
        """Add up the self times of operators by a column of `frame()`, the largest first."""
        return tables.operators(self._rows, by, sort)

    def operator_calls(self) -> pd.DataFrame:
        """Return a row for each run of an operator, sorted by start."""
        return tables.operator_calls(self._rows)

    def layers(self, sort: str | None = None) -> pd.DataFrame:
        """Return each layer's time in one inference: a mean, or for a stored profile a median.

        Layers are in the order in which they ran, or sorted by one of these columns, the largest
        first.
        """
        return tables.layers(self._rows, sort)

    def summary(
        self, by: str | Sequence[str] = _BY, cat: str | Category = Category.INFERENCE
    ) -> pd.DataFrame:
        """Return statistics of the durations of inferences, or of spans of another category.

        A percentile beyond the median is missing if there are too few samples for it.
        """
        return tables.summary(self._rows, by, cat)

    def print_inferences(self, top: int | None = _TOP) -> None:
        columns = ("session", "label", "name", "thread", "start", "dur", "error")
        _show(_with_thread(self.inferences()), Heading("inferences, in ms", columns), top)

    def print_executions(self, top: int | None = _TOP) -> None:
        columns = ("session", "label", "execution", "thread", "total", "run", "wait", "error")
        _show(_with_thread(self.executions()), Heading("executions, in ms", columns), top)

    def print_operators(
        self, by: str = "op_type", sort: str = "total", top: int | None = _TOP
    ) -> None:
        found = self.operators(by, sort)
        _show(found, Heading(f"operators by {by}, in ms", tuple(found.columns)), top)

    def print_operator_calls(self, top: int | None = _TOP) -> None:
        columns = (
            *("inference_id", "operator_index", "name", "op_type"),
            *("thread", "start", "dur", "self"),
        )
        _show(_with_thread(self.operator_calls()), Heading("operator calls, in ms", columns), top)

    def print_layers(self, sort: str | None = None, top: int | None = _TOP) -> None:
        columns = (
            *("session", "layer", "op_type", "time", "share", "calls"),
            *("macs", "params", "output_shape", "fused", "precision"),
        )
        found = self.layers(sort)
        # An operator without a layer has the runtime's name.
        found["layer"] = found["layer"].fillna(found["name"])
        _show(found, Heading("layers, in ms of one inference", columns), top)

    def print_summary(
        self, by: str | Sequence[str] = _BY, cat: str | Category = Category.INFERENCE
    ) -> None:
        found = self.summary(by, cat)
        title = f"durations of each {Category(cat).value}, in ms"
        heading = Heading(title, tuple(found.columns), tables.needed_by_percentile())
        _show(found, heading, None)


def _with_thread(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the name of each thread, or the number of a thread without a name."""
    numbers = frame["thread.id"].astype(TEXT)
    return frame.assign(thread=frame["thread.name"].fillna(numbers))


def _show(frame: pd.DataFrame, heading: Heading, top: int | None) -> None:
    style = TextStyle(_width(), encoding=encoding_of(sys.stdout))
    text = render_report(frame_report(frame, heading, top), style)
    print(text, end="")  # noqa: T201  # printing is its task


def _width() -> int:
    columns = shutil.get_terminal_size((100, 24)).columns
    return max(_NARROWEST, min(columns, _WIDEST))


def _check_pandas() -> None:
    if find_spec("pandas") is None:
        raise UsageError("data frames need pandas: pip install 'pytest-modelperf[pandas]'")
