"""Make a data frame of the spans of a trace, and compute tables from its rows.

Times are nanoseconds in signed 64 bits, on the clock of the trace. Unknown values are missing, not
0 or empty: pandas' own types `Int64` and `string` allow this.

Each table always has the same columns and types, even for an empty recording.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.errors import UsageError
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.stats.records import PERCENTS
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion
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
    # The innermost inference, session and label that contain the span, or the span itself.
    "inference_id": OPTIONAL_INT,
    "session": TEXT,
    "label": TEXT,
    # The type of the error that ended it or the inference that contains it.
    "error": TEXT,
    **dict.fromkeys(TEXT_ARGUMENTS, TEXT),
    **dict.fromkeys(COUNT_ARGUMENTS, OPTIONAL_INT),
}

_TEXTS = (SESSION, LABEL, ERROR, *TEXT_ARGUMENTS)
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
        self._texts: dict[str, list[str | None]] = {name: [] for name in ("cat", "name", *_TEXTS)}
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
        arguments = span.arguments
        for name in _TEXTS:
            texts[name].append(self._same(arguments.get(name)))
        for name in COUNT_ARGUMENTS:
            counts[name].append(arguments.get(name))

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
    names = (*_TEXTS, *COUNT_ARGUMENTS)
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
            # If both are equal, the spans inside may be unknown.
            self_ns=None if row["self"] == row["dur"] else row["self"],
            operator_index=row["operator_index"],
            arguments={name: row[name] for name in names if row[name] is not None},
        )


# -- the outer spans of a span


def _with_ancestors(frame: pd.DataFrame) -> pd.DataFrame:
    ids = frame["span_id"].to_numpy()
    parents = _rows_of(frame["parent_span_id"].fillna(0).to_numpy(np.int64), ids)
    inference = _nearest(frame, parents, Category.INFERENCE)
    session = _nearest(frame, parents, Category.SESSION)
    own, label = frame[SESSION], frame[LABEL]
    around = _taken(frame["name"], _nearest(frame, parents, Category.LABEL))
    # A session's span may cover only its creation. Then its inferences name the session.
    named = own.fillna(_taken(own, inference)).fillna(_taken(frame["name"], session))
    columns = {
        "inference_id": _taken(frame["span_id"].astype(OPTIONAL_INT), inference),
        SESSION: named.fillna(_only_sessions(frame)),
        ERROR: frame[ERROR].fillna(_taken(frame[ERROR], inference)),
        LABEL: label.fillna(_taken(label, inference)).fillna(around),
    }
    return frame.assign(**columns)


def _only_sessions(frame: pd.DataFrame) -> pd.Series:
    """Return for each operator the session of its process, if the process has only one.

    A file does not store the parent of an operator that ran on another thread than its session.
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
    """Find for each row its innermost span of a category: the row itself, or a span outside it.

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


Times: TypeAlias = npt.NDArray[np.int64]

INFERENCES = {
    name: COLUMNS[name]
    for name in (
        *("span_id", "session", "label", "name", "thread.id", "thread.name"),
        *("start", "end", "dur", "error"),
    )
}
OPERATOR_CALLS = {
    name: COLUMNS[name]
    for name in (
        *("inference_id", "span_id", "operator_index", "name", "op_type", "provider", "precision"),
        *("session", "label", "thread.id", "thread.name", "start", "end", "dur", "self"),
    )
}
EXECUTIONS = {
    **{name: COLUMNS[name] for name in ("span_id", "session", "label", "thread.id", "thread.name")},
    "execution": INT,
    "total": INT,
    "run": OPTIONAL_INT,
    "wait": OPTIONAL_INT,
    "error": TEXT,
}
OPERATOR_FIGURES = {"average": FLOAT, "count": INT, "total": INT, "share": FLOAT}
LAYERS = {
    "session": TEXT,
    "layer": TEXT,
    "name": TEXT,
    "op_type": TEXT,
    "precision": TEXT,
    "provider": TEXT,
    "time": FLOAT,
    "share": FLOAT,
    "calls": INT,
    "macs": OPTIONAL_INT,
    "params": OPTIONAL_INT,
    "input_shape": TEXT,
    "output_shape": TEXT,
    "kernel": TEXT,
    "fused": TEXT,
}
_MEDIAN = 50.0
_TAILS = {f"p{percent:g}": percent for percent in PERCENTS if percent != _MEDIAN}
SUMMARY_FIGURES = {
    "count": INT,
    "min": INT,
    "max": INT,
    "mean": FLOAT,
    "median": FLOAT,
    **dict.fromkeys(_TAILS, FLOAT),
}


def choose(rows: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    """Return the rows with this value in a column (None: the rows without a value)."""
    check_columns([column], COLUMNS)
    wanted = value.value if isinstance(value, Category) else value
    is_chosen = rows[column].isna() if wanted is None else rows[column] == wanted
    return rows[is_chosen.fillna(False).astype(bool)].reset_index(drop=True)  # noqa: FBT003  # the value that it is filled with


def completed(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out inferences that raised an error, and what ran inside: these ended early."""
    return rows[rows["inference_id"].isna() | rows["error"].isna()]


def inferences(rows: pd.DataFrame) -> pd.DataFrame:
    return _typed(_of(rows, Category.INFERENCE), INFERENCES)


def operator_calls(rows: pd.DataFrame) -> pd.DataFrame:
    return _typed(_of(rows, Category.OPERATOR), OPERATOR_CALLS)


def executions(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each inference, and how much of it at least one of its operators ran.

    The rest is the wait, which is never less than 0: operators that run at the same time count
    once.
    """
    found = _of(rows, Category.INFERENCE)
    run = _covered(_of(rows, Category.OPERATOR), found.set_index("span_id"))
    found = found.assign(
        execution=found.groupby("session", dropna=False).cumcount(),
        total=found["dur"],
        run=found["span_id"].map(run).astype(OPTIONAL_INT),
    )
    return _typed(found.assign(wait=found["total"] - found["run"]), EXECUTIONS)


def _covered(ran: pd.DataFrame, inferences: pd.DataFrame) -> pd.Series:
    """Return the time in which something ran within each inference, by the inference's id."""
    inside = ran[ran["inference_id"].isin(inferences.index)]
    around = inferences.loc[inside["inference_id"].astype(INT)]
    low, high = around["start"].to_numpy(), around["end"].to_numpy()
    spans = inside.assign(
        start=np.clip(inside["start"].to_numpy(), low, high),
        end=np.clip(inside["end"].to_numpy(), low, high),
    ).sort_values(["inference_id", "start"], kind="stable")
    ends = spans.groupby("inference_id")["end"]
    # The latest end of the spans before.
    before = ends.cummax().groupby(spans["inference_id"]).shift(1).fillna(spans["start"])
    new = (spans["end"] - np.maximum(spans["start"], before)).clip(lower=0)
    return new.groupby(spans["inference_id"]).sum()


def operators(rows: pd.DataFrame, by: str, sort: str) -> pd.DataFrame:
    """Add up the self times of operators by the values of the column `by`."""
    check_columns([by], COLUMNS)
    keys = [by, "op_type"] if by == "name" else [by]
    types = {**{key: COLUMNS[key] for key in keys}, **OPERATOR_FIGURES}
    check_columns([sort], types)
    ran = _of(completed(rows), Category.OPERATOR)
    grouped = ran.groupby(keys, sort=False, dropna=False)["self"]
    found = grouped.agg(total="sum", count="size").reset_index()
    found["average"] = found["total"] / found["count"]
    found["share"] = found["total"] / max(1, found["total"].sum())
    return _typed(_sorted(found, sort, types), types)


def layers(rows: pd.DataFrame, sort: str | None = None) -> pd.DataFrame:
    """Return each layer's time in one inference, in the order of running or sorted by a column."""
    check_columns([] if sort is None else [sort], LAYERS)
    rows = completed(rows)
    ran = rows[rows["cat"].isin([Category.OPERATOR.value, Category.OVERHEAD.value])]
    ran = ran.assign(key=ran["layer"].fillna(ran["name"]), group=ran["session"].fillna(""))
    ran["inferences"] = ran.groupby("group")["inference_id"].transform("nunique")
    found = (
        ran.groupby(["group", "key"], sort=False)
        .agg(
            calls=("self", "size"),
            total=("self", "sum"),
            inferences=("inferences", "first"),
            place=("operator_index", "min"),
            **{name: (name, "first") for name in LAYERS if name in COLUMNS},
        )
        .reset_index()
    )
    # Layers outside any inference belong to the typical inference.
    found["time"] = found["total"] / found["inferences"].clip(lower=1)
    sessions = found.groupby("group", sort=False)
    found["share"] = found["time"] / sessions["time"].transform("sum").clip(lower=1.0)
    found["session_place"] = sessions.ngroup()
    found = found.sort_values(["session_place", "place"], kind="stable")
    return _typed(found if sort is None else _sorted(found, sort, LAYERS), LAYERS)


def summary(rows: pd.DataFrame, by: str | Sequence[str], cat: str | Category) -> pd.DataFrame:
    """Return statistics of the durations of a category, for each value of the columns `by`."""
    import pandas as pd

    # A text would be read as a sequence of letters.
    by = [by] if isinstance(by, str) else by
    check_columns(by, COLUMNS)
    chosen = _of(completed(rows), _category(cat))
    types = {**{name: COLUMNS[name] for name in by}, **SUMMARY_FIGURES}
    groups: Iterable[tuple[tuple[object, ...], pd.DataFrame]] = [((), chosen)]
    if by:
        groups = chosen.groupby(list(by), sort=False, dropna=False)
    found = [
        {**dict(zip(by, key, strict=True)), **_figures(group["dur"].to_numpy())}
        for key, group in groups
        if len(group)
    ]
    return _typed(pd.DataFrame(found), types)


def needed_by_percentile() -> Mapping[str, int]:
    """Return the number of samples that each percentile beyond the median needs."""
    return {name: needed_samples(percent) for name, percent in _TAILS.items()}


def check_columns(names: Sequence[str], known: Mapping[str, str]) -> None:
    """Raise UsageError if the frame lacks one of the columns."""
    for name in map(str, names):
        if name not in known:
            raise UsageError(
                f"there is no column {printable(name)!r}.{suggestion(name, known)} "
                f"There are: {', '.join(known)}."
            )


def _category(cat: str | Category) -> Category:
    try:
        return Category(cat)
    except ValueError:
        known = ", ".join(category.value for category in Category)
        raise UsageError(
            f"there is no category {printable(str(cat))!r}. There are: {known}."
        ) from None


def _of(rows: pd.DataFrame, category: Category) -> pd.DataFrame:
    return rows[rows["cat"] == category.value]


def _figures(times_ns: Times) -> dict[str, float]:
    return {
        "count": len(times_ns),
        "min": int(times_ns.min()),
        "max": int(times_ns.max()),
        "mean": float(times_ns.mean()),
        "median": float(np.median(times_ns)),
        **{
            name: float(np.quantile(times_ns, percent / 100.0))
            for name, percent in _TAILS.items()
            if len(times_ns) >= needed_samples(percent)
        },
    }


def _sorted(frame: pd.DataFrame, column: str, types: Mapping[str, str]) -> pd.DataFrame:
    return frame.sort_values(column, ascending=types[column] == TEXT, kind="stable")


def _typed(frame: pd.DataFrame, types: Mapping[str, str]) -> pd.DataFrame:
    """Return these columns in this order, each with its own type again."""
    return frame.reindex(columns=list(types)).astype(dict(types)).reset_index(drop=True)
