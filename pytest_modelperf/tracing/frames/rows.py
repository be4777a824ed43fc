"""Makes one data frame of the spans of a trace, a row for each.

Times are nanoseconds in signed 64 bits, on the clock of the trace. Unknown values are missing, not
0 or empty: pandas' own types `Int64` and `string` allow this.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.tracing.records import (
    ERROR,
    LABEL,
    SESSION,
    Argument,
    Category,
    Event,
    Span,
    ThreadName,
)

if TYPE_CHECKING:
    import pandas as pd

INT, OPTIONAL_INT, FLOAT, TEXT = "int64", "Int64", "float64", "string"

# Columns from the arguments of a span, if the source has them.
TEXT_ARGUMENTS = (
    *("op_type", "provider", "precision", "layer", "kernel"),
    *("input_shape", "output_shape", "fused"),
)
COUNT_ARGUMENTS = ("macs", "params")
COLUMNS: Mapping[str, str] = {
    "parent_span_id": OPTIONAL_INT,
    "span_id": INT,
    "start": INT,
    "end": INT,
    "cat": TEXT,
    "name": TEXT,
    "process.id": INT,
    "thread.id": INT,
    "thread.name": TEXT,
    "operator_index": OPTIONAL_INT,
    "dur": INT,
    "self": INT,
    # The innermost inference, session and label that the span ran inside, or the span itself.
    "inference_id": OPTIONAL_INT,
    "session": TEXT,
    "label": TEXT,
    # The type of the error that ended it, or that ended the inference around it.
    "error": TEXT,
    **dict.fromkeys(TEXT_ARGUMENTS, TEXT),
    **dict.fromkeys(COUNT_ARGUMENTS, OPTIONAL_INT),
}

_TOLD = (SESSION, LABEL, ERROR, *TEXT_ARGUMENTS)
_LARGEST = 2**63 - 1

Rows: TypeAlias = npt.NDArray[np.int64]


def make_rows(events: Iterable[Event]) -> pd.DataFrame:
    """Return the spans by process and start, each before the spans inside it.

    The events are read once.
    """
    spans = _Spans()
    for event in events:
        if isinstance(event, Span):
            spans.add(event)
        elif isinstance(event, ThreadName) and event.thread is not None:
            spans.names[event.process, event.thread] = event.name
    return spans.frame()


class _Spans:
    """A collection of spans by column, because a recording may have millions of them."""

    def __init__(self) -> None:
        self.names: dict[tuple[int, int], str] = {}
        self._numbers = {
            name: array("q")
            for name in ("span_id", "start", "end", "process.id", "thread.id", "dur", "self")
        }
        self._counts = {
            name: _OptionalCounts()
            for name in ("parent_span_id", "operator_index", *COUNT_ARGUMENTS)
        }
        self._texts: dict[str, list[str | None]] = {name: [] for name in ("cat", "name", *_TOLD)}
        # A name that occurs a million times is stored once.
        self._known: dict[str, str] = {}

    def add(self, span: Span) -> None:
        numbers, counts, texts = self._numbers, self._counts, self._texts
        numbers["span_id"].append(span.id)
        numbers["start"].append(span.start_ns)
        numbers["end"].append(span.end_ns)
        numbers["process.id"].append(span.process)
        numbers["thread.id"].append(span.thread)
        numbers["dur"].append(span.duration_ns)
        numbers["self"].append(span.duration_ns if span.self_ns is None else span.self_ns)
        counts["parent_span_id"].append(span.parent)
        counts["operator_index"].append(span.operator_index)
        texts["cat"].append(span.category.value)
        texts["name"].append(self._same(span.name))
        told = span.arguments
        for name in _TOLD:
            texts[name].append(self._same(told.get(name)))
        for name in COUNT_ARGUMENTS:
            counts[name].append(told.get(name))

    def frame(self) -> pd.DataFrame:
        import pandas as pd

        columns: dict[str, object] = {
            name: np.frombuffer(values, np.int64) if values else np.empty(0, np.int64)
            for name, values in self._numbers.items()
        }
        columns |= {name: counts.column() for name, counts in self._counts.items()}
        columns |= {name: pd.array(texts, dtype=TEXT) for name, texts in self._texts.items()}
        threads = zip(self._numbers["process.id"], self._numbers["thread.id"], strict=True)
        columns["thread.name"] = pd.array([self.names.get(x) for x in threads], dtype=TEXT)
        frame = _with_ancestors(pd.DataFrame(columns))
        # Processes may have clocks of their own.
        keys = ("process.id", "start", "end", "span_id")
        processes, starts, ends, ids = (frame[name].to_numpy() for name in keys)
        order = np.lexsort((ids, -ends, starts, processes))
        return frame.iloc[order].reset_index(drop=True)[list(COLUMNS)]

    def _same(self, value: Argument) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            value = ", ".join(value) if isinstance(value, list | tuple) else str(value)
        return self._known.setdefault(value, value)


class _OptionalCounts:
    def __init__(self) -> None:
        self._values = array("q")
        self._missing = bytearray()

    def append(self, value: Argument) -> None:
        is_count = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        self._values.append(value if is_count and isinstance(value, int) else 0)
        self._missing.append(not is_count)

    def column(self) -> object:
        import pandas as pd

        if not self._values:
            return pd.array([], dtype=OPTIONAL_INT)
        values = np.frombuffer(self._values, np.int64).copy()
        return pd.arrays.IntegerArray(values, np.frombuffer(self._missing, np.bool_).copy())


def events_of(rows: pd.DataFrame) -> Iterator[Event]:
    """Yield the spans of such rows, after the names of their threads."""
    threads = rows[["process.id", "thread.id", "thread.name"]].drop_duplicates().dropna()
    for process, thread, name in threads.itertuples(index=False):
        yield ThreadName(name=name, process=process, thread=thread)
    told = (*_TOLD, *COUNT_ARGUMENTS)
    values = rows.astype(object).where(rows.notna(), None)
    for cells in values.itertuples(index=False, name=None):
        row = dict(zip(values.columns, cells, strict=True))
        yield Span(
            name=row["name"],
            category=Category(row["cat"]),
            start_ns=row["start"],
            duration_ns=row["dur"],
            process=row["process.id"],
            thread=row["thread.id"],
            id=row["span_id"],
            parent=row["parent_span_id"],
            # Where both are equal, what ran inside may be unknown.
            self_ns=None if row["self"] == row["dur"] else row["self"],
            operator_index=row["operator_index"],
            arguments={name: row[name] for name in told if row[name] is not None},
        )


# -- what a span ran inside of


def _with_ancestors(frame: pd.DataFrame) -> pd.DataFrame:
    ids = frame["span_id"].to_numpy()
    parents = _rows_of(frame["parent_span_id"].fillna(0).to_numpy(np.int64), ids)
    inference = _nearest(frame, parents, Category.INFERENCE)
    session = _nearest(frame, parents, Category.SESSION)
    told, label = frame[SESSION], frame[LABEL]
    around = _taken(frame["name"], _nearest(frame, parents, Category.LABEL))
    # A session's span may be only its creation: then its inferences name it.
    named = told.fillna(_taken(told, inference)).fillna(_taken(frame["name"], session))
    columns = {
        "inference_id": _taken(frame["span_id"].astype(OPTIONAL_INT), inference),
        SESSION: named.fillna(_only_sessions(frame)),
        ERROR: frame[ERROR].fillna(_taken(frame[ERROR], inference)),
        LABEL: label.fillna(_taken(label, inference)).fillna(around),
    }
    return frame.assign(**columns)


def _only_sessions(frame: pd.DataFrame) -> pd.Series:
    """Return for each operator the session of its process, if the process has only one.

    A file does not store the parent of an operator on another thread than its session.
    """
    found = frame[frame["cat"] == Category.SESSION.value].set_index("process.id")["name"]
    only = found[~found.index.duplicated(keep=False)]
    is_operator = frame["cat"].isin([Category.OPERATOR.value, Category.OVERHEAD.value])
    return frame["process.id"].map(only).where(is_operator).astype(TEXT)


def _rows_of(wanted: Rows, ids: Rows) -> Rows:
    nowhere = len(ids)
    if not nowhere:
        return np.empty(0, np.int64)
    order = np.argsort(ids, kind="stable")
    places = np.minimum(np.searchsorted(ids, wanted, sorter=order), nowhere - 1)
    found = order[places]
    return np.where((ids[found] == wanted) & (wanted > 0), found, nowhere)


def _nearest(frame: pd.DataFrame, parents: Rows, category: Category) -> Rows:
    """Find for each row its innermost span of a category: the row itself, or one around it.

    Each step doubles the distance, so the search ends even on a cycle in a foreign file.
    """
    is_wanted = (frame["cat"] == category.value).to_numpy(np.bool_)
    nowhere = len(is_wanted)
    above = np.append(np.where(is_wanted, np.arange(nowhere), parents), nowhere)
    for _ in range(nowhere.bit_length()):
        further = above[above]
        if np.array_equal(further, above):
            break
        above = further
    found = above[:-1]
    return np.where(np.append(is_wanted, False)[found], found, nowhere)


def _taken(column: pd.Series, rows: Rows) -> pd.Series:
    """Return the values of a column in these rows, missing for rows that do not exist."""
    import pandas as pd

    places = np.where(rows < len(column), rows, -1)
    return pd.Series(column.array.take(places, allow_fill=True), index=column.index)
