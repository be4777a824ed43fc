"""Computes tables from the rows of a trace: inferences, operators, layers, a summary.

Each table always has the same columns and types, even for an empty recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.errors import UsageError
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.stats.records import PERCENTS
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion
from pytest_modelperf.tracing.frames.rows import COLUMNS, FLOAT, INT, OPTIONAL_INT, TEXT
from pytest_modelperf.tracing.records import Category

if TYPE_CHECKING:
    import pandas as pd

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

    # A text would be taken for a sequence of letters.
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
