"""A profile as CSV: a row per case and layer, plain numbers, for spreadsheets and data frames."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.tables.layer_columns import MEASURED_COLUMNS, find_columns
from pytest_modelperf.report.csv import render_rows

# A kernel lists the ids of the layers that it runs, and each of these has the id of its layer.
_FINDS_FUSED = ("id", "runs-in")


def render_csv(profile: Profile, columns: Sequence[str]) -> str:
    """All layers of all cases in graph order, each case with the times that belong to no layer.

    The times of a case add up to its median latency. The usual columns of a measured profile come
    with those by which the kernel of a layer is found.
    """
    if tuple(columns[: len(MEASURED_COLUMNS)]) == MEASURED_COLUMNS:
        columns = (*columns, *(name for name in _FINDS_FUSED if name not in columns))
    chosen = find_columns([name for name in columns if not name.endswith("%")])
    rows = (
        (case.case.id, *(column.read(layer) for _, column in chosen))
        for case in profile.cases
        for layer in case.layers
    )
    return render_rows(("case", *(name for name, _ in chosen)), rows)
