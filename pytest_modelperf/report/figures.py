"""Charts by the library that is installed, and tables as data frames."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.charts import COLORS, BarChart, BarSeries
from pytest_modelperf.report.model import Sheet
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    import pandas as pd

_BAR_PIXELS, _HEAD_PIXELS = 20, 140
_PIXELS_PER_INCH = 100.0


def make_frame(sheet: Sheet) -> pd.DataFrame:
    """Return the table as a data frame. Raise UsageError if pandas is not installed."""
    if find_spec("pandas") is None:
        raise UsageError("a data frame needs pandas: pip install 'pytest-modelperf[pandas]'")
    import pandas as pd

    rows = list(sheet.rows)
    columns = {
        name: pd.Series([row[place] for row in rows], dtype=_dtype(row[place] for row in rows))
        for place, name in enumerate(sheet.columns)
    }
    return pd.DataFrame(columns)


def _dtype(cells: Iterable[Cell]) -> str:
    """Return the type of pandas for a column, one that allows for missing values."""
    kinds = {type(cell) for cell in cells if cell is not None}
    for known, name in (({bool}, "boolean"), ({int}, "Int64"), ({int, float}, "Float64")):
        if kinds and kinds <= known:
            return name
    return "string" if kinds else "object"


def make_figure(chart: BarChart) -> Any:  # noqa: ANN401  # of a library without types
    """Return the chart as a figure of plotly or, if that is not installed, of matplotlib.

    Raises UsageError if neither is installed.
    """
    if find_spec("plotly") is not None:
        return _plotly_figure(chart)
    if find_spec("matplotlib") is not None:
        return _matplotlib_figure(chart)
    raise UsageError(
        "a figure needs plotly or matplotlib: pip install 'pytest-modelperf[report]', or "
        "pip install matplotlib"
    )


def _height(chart: BarChart) -> int:
    return _HEAD_PIXELS + _BAR_PIXELS * len(chart.names) * len(chart.series)


def _errors(series: BarSeries) -> tuple[list[float], list[float]]:
    """Return how far each interval reaches below and above the value, 0 without one."""
    below, above = [], []
    for place, value in enumerate(series.amounts):
        low, high = (None if value is None else series.interval(place)) or (value, value)
        below.append(0.0 if value is None or low is None else max(0.0, value - low))
        above.append(0.0 if value is None or high is None else max(0.0, high - value))
    return below, above


def _plotly_figure(chart: BarChart) -> Any:  # noqa: ANN401  # of a library without types
    import plotly.graph_objects as go

    # Names may be equal, so places are the axis and names its labels. Markup is escaped.
    places = list(range(len(chart.names)))
    texts = [_as_text(name) for name in chart.names]
    bars = []
    for series, color in zip(chart.series, COLORS * len(chart.series), strict=False):
        below, above = _errors(series)
        has_intervals = any(below) or any(above)
        errors = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        bars.append(
            go.Bar(
                x=list(series.amounts),
                y=places,
                orientation="h",
                name=_as_text(series.name),
                marker_color=color,
                error_x=errors if has_intervals else None,
                customdata=texts,
                hovertemplate=f"%{{customdata}}: %{{x:.4g}} {_as_text(chart.unit)}<extra></extra>",
            )
        )
    return go.Figure(
        bars,
        {
            "title": {"text": _as_text(chart.title)},
            "height": _height(chart),
            "xaxis": {"title": {"text": _as_text(chart.unit)}},
            "yaxis": {
                "tickvals": places,
                "ticktext": texts,
                "autorange": "reversed",
                "automargin": True,
            },
            "showlegend": len(bars) > 1,
        },
    )


def _as_text(text: str) -> str:
    """Return markup of plotly that shows the text."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _matplotlib_figure(chart: BarChart) -> Any:  # noqa: ANN401  # of a library without types
    from matplotlib.figure import Figure

    size = (8.6, _height(chart) / _PIXELS_PER_INCH)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(chart.series)
    for at, series in enumerate(chart.series):
        known = [place for place, value in enumerate(series.amounts) if value is not None]
        below, above = _errors(series)
        axes.barh(
            [place + (at - (len(chart.series) - 1) / 2) * width for place in known],
            [series.amounts[place] for place in known],
            width,
            xerr=[[below[place] for place in known], [above[place] for place in known]],
            label=_without_math(series.name),
            color=COLORS[at % len(COLORS)],
        )
    axes.set_yticks(range(len(chart.names)), [_without_math(name) for name in chart.names])
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)
    axes.set_title(_without_math(chart.title))
    if len(chart.series) > 1:
        axes.legend()
    return figure


def _without_math(text: str) -> str:
    """Return the text for matplotlib, which reads what is between dollar signs as formulas."""
    return printable(text).replace("$", r"\$")
