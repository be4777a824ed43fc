"""Computes tables from the rows of a trace: inferences, operators, layers, a summary.

Each table always has the same columns and types, even for an empty recording.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_modelperf.errors import UsageError
from pytest_modelperf.stats.estimates import needed_samples
from pytest_modelperf.stats.records import PERCENTS
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.tracing.frames.rows import COLUMNS, FLOAT, INT, OPTIONAL_INT, TEXT
from pytest_modelperf.tracing.records import Category

if TYPE_CHECKING:
    import pandas as pd

Times: TypeAlias = npt.NDArray[np.int64]

INFERENCES = {
    name: COLUMNS[name]
    for name in (
        *("span_id", "session", "label", "name", "thread.id", "thread.name"),
        *("start", "end", "dur"),
    )
}
OPERATOR_CALLS = {
    name: COLUMNS[name]
    for name in (
        *("inference_id", "span_id", "operator_index", "name", "op_type", "provider", "precision"),
        *("session", "label", "thread.id", "thread.name", "start", "end", "dur", "self"),
    )
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
_PERCENTILES = {"median" if percent == 50.0 else f"p{percent:g}": percent for percent in PERCENTS}
SUMMARY_FIGURES = {
    "count": INT,
    "min": INT,
    "max": INT,
    "mean": FLOAT,
    **dict.fromkeys(_PERCENTILES, FLOAT),
}


def choose(rows: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    """The rows with this value in a column; None: the rows without a value."""
    check_columns([column], COLUMNS)
    wanted = value.value if isinstance(value, Category) else value
    is_chosen = rows[column].isna() if wanted is None else rows[column] == wanted
    return rows[is_chosen.fillna(False).astype(bool)].reset_index(drop=True)  # noqa: FBT003  # the value that it is filled with


def inferences(rows: pd.DataFrame) -> pd.DataFrame:
    return _typed(_of(rows, Category.INFERENCE), INFERENCES)


def operator_calls(rows: pd.DataFrame) -> pd.DataFrame:
    return _typed(_of(rows, Category.OPERATOR), OPERATOR_CALLS)


def operators(rows: pd.DataFrame, by: str, sort: str) -> pd.DataFrame:
    """The self times of operators, added up by the values of the column `by`."""
    check_columns([by], COLUMNS)
    keys = [by, "op_type"] if by == "name" else [by]
    types = {**{key: COLUMNS[key] for key in keys}, **OPERATOR_FIGURES}
    check_columns([sort], types)
    grouped = _of(rows, Category.OPERATOR).groupby(keys, sort=False, dropna=False)["self"]
    found = grouped.agg(total="sum", count="size").reset_index()
    found["average"] = found["total"] / found["count"]
    found["share"] = found["total"] / max(1, found["total"].sum())
    return _typed(_sorted(found, sort, types), types)


def layers(rows: pd.DataFrame, sort: str | None = None) -> pd.DataFrame:
    """The time of each layer in one inference, in the order of running or sorted by a column."""
    check_columns([] if sort is None else [sort], LAYERS)
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
    # Layers outside any inference are of the typical inference.
    found["time"] = found["total"] / found["inferences"].clip(lower=1)
    sessions = found.groupby("group", sort=False)
    found["share"] = found["time"] / sessions["time"].transform("sum").clip(lower=1.0)
    found["session_place"] = sessions.ngroup()
    found = found.sort_values(["session_place", "place"], kind="stable")
    return _typed(found if sort is None else _sorted(found, sort, LAYERS), LAYERS)


def summary(rows: pd.DataFrame, by: Sequence[str], cat: str | Category) -> pd.DataFrame:
    """Statistics of the durations of a category, for each value of the columns `by`."""
    import pandas as pd

    check_columns(by, COLUMNS)
    chosen = _of(rows, _category(cat))
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


def needed_for(found: pd.DataFrame) -> str:
    """The number of samples that each percentile needs, for those missing in a summary."""
    missing = [name for name in _PERCENTILES if found[name].isna().any()]
    return ", ".join(f"{name} {needed_samples(_PERCENTILES[name]):,}" for name in missing)


def check_columns(names: Sequence[str], known: Mapping[str, str]) -> None:
    """Raise UsageError if the frame lacks one of the columns."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is None:
        return
    near = difflib.get_close_matches(str(unknown), list(known), 1)
    raise UsageError(
        f"there is no column {printable(str(unknown))!r}."
        + (f" Did you mean {near[0]!r}?" if near else "")
        + f" There are: {', '.join(known)}."
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
        **{
            name: float(np.quantile(times_ns, percent / 100.0))
            for name, percent in _PERCENTILES.items()
            if len(times_ns) >= needed_samples(percent)
        },
    }


def _sorted(frame: pd.DataFrame, column: str, types: Mapping[str, str]) -> pd.DataFrame:
    """Text sorted from A to Z, numbers from the largest; missing values last."""
    return frame.sort_values(column, ascending=types[column] == TEXT, kind="stable")


def _typed(frame: pd.DataFrame, types: Mapping[str, str]) -> pd.DataFrame:
    """These columns in this order, each with its own type again."""
    return frame.reindex(columns=list(types)).astype(dict(types)).reset_index(drop=True)
