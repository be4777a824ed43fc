"""Bar charts of results, drawn by the library that is installed, and tables as data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.model import Sheet
from pytest_modelperf.report.tables import Cell
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count
from pytest_modelperf.text.words import cut_middle

if TYPE_CHECKING:
    import pandas as pd


T = TypeVar("T")

# Colours that are readable on both white and black.
COLORS = ("#2a7ab8", "#d2691e", "#3f8a2a", "#9a5fb5", "#8a7a00", "#777777")
_WIDTH, _BAR, _GAP, _HEAD = 860, 14, 8, 24
# The width of a letter of 12 pixels, and the most letters of a name.
_LETTER, _MOST_LETTERS = 7.0, 40
_LABEL, _TAIL = 290, 80
_MINUS = "\N{MINUS SIGN}"
# With more bars, readers do not look at each of them.
MOST_BARS = 20
# From this value on, a number has a prefix.
_LARGE = 10_000


class BarSeries(Struct, frozen=True):
    """Bars of one colour: an amount for each name, or None, and perhaps intervals."""

    name: str
    amounts: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()

    def interval(self, place: int) -> tuple[float, float] | None:
        return self.intervals[place] if self.intervals else None


class BarChart(Struct, frozen=True):
    """Horizontal bars, with the names from top to bottom. Names may be equal."""

    title: str
    unit: str
    names: tuple[str, ...]
    series: tuple[BarSeries, ...]

    @property
    def range(self) -> tuple[float, float]:
        """The range of all values, bounds and 0. It is never empty."""
        known = [0.0]
        for series in self.series:
            known += [value for value in series.amounts if value is not None]
            known += [bound for interval in series.intervals for bound in interval or ()]
        low, high = min(known), max(known)
        return low, high if high > low else low + 1.0


def series_of(
    name: str,
    records: Iterable[T],
    amount: Callable[[T], float | None],
    interval: Callable[[T], tuple[float, float] | None] = lambda _: None,
) -> BarSeries:
    shown = tuple(records)
    return BarSeries(name, tuple(map(amount, shown)), tuple(map(interval, shown)))


# -- the drawing for a notebook, which needs no library and no script


def draw_chart(chart: BarChart) -> str:
    """Return the chart as SVG. Its texts have the colour of the text around it."""
    has_legend = len(chart.series) > 1
    row = _BAR * len(chart.series) + _GAP
    top = _HEAD * (2 if has_legend else 1)
    height = top + row * len(chart.names)
    title = f"{chart.title}, {chart.unit}"
    parts = [_text(0, 14, title, "font-weight:bold"), *(_legend(chart) if has_legend else ())]
    for place, name in enumerate(map(printable, chart.names)):
        y = top + row * place
        shown = cut_middle(name, _MOST_LETTERS)
        parts.append(
            f"<g><title>{escape(name)}</title>"
            f"{_text(_LABEL - 8, y + (row - _GAP) / 2 + 4, shown, 'text-anchor:end')}</g>"
        )
        for at, series in enumerate(chart.series):
            parts += _bar(chart, series, place, (y + at * _BAR, COLORS[at % len(COLORS)]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(printable(title))}" '
        f'style="max-width:{_WIDTH}px;width:100%;font:12px sans-serif">{"".join(parts)}</svg>'
    )


def _legend(chart: BarChart) -> list[str]:
    parts, x = [], 0.0
    for series, color in zip(chart.series, COLORS * len(chart.series), strict=False):
        parts.append(f'<rect x="{x:.0f}" y="{_HEAD + 2}" width="12" height="12" fill="{color}"/>')
        name = cut_middle(printable(series.name), _MOST_LETTERS)
        parts.append(_text(x + 18, _HEAD + 12, name))
        x += 36 + _LETTER * len(name)
    return parts


def _bar(chart: BarChart, series: BarSeries, place: int, look: tuple[float, str]) -> list[str]:
    value = series.amounts[place]
    if value is None:
        return []
    low, high = chart.range
    y, color = look

    def x(at: float) -> float:
        return _LABEL + (at - low) / (high - low) * (_WIDTH - _LABEL - _TAIL)

    left, right = sorted((x(0.0), x(value)))
    size = f'width="{max(0.5, right - left):.1f}" height="{_BAR - 2}"'
    parts = [f'<rect x="{left:.1f}" y="{y}" {size} fill="{color}"/>']
    end = right
    interval = series.interval(place)
    if interval is not None:
        bounds = [x(bound) for bound in interval]
        line = f"M{bounds[0]:.1f} {y + _BAR / 2 - 1}H{bounds[1]:.1f}"
        parts.append(f'<path d="{line}" stroke="currentColor" stroke-width="1.5"/>')
        end = max(end, *bounds)
    return [*parts, _text(end + 5, y + 10, _number(value))]


def _number(value: float) -> str:
    if abs(value) >= _LARGE or not value:
        return format_count(round(value))
    return f"{value:#.4g}".rstrip(".").replace("-", _MINUS)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" style="{style}">'
        f"{escape(printable(text))}</text>"
    )


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
    """Return the distances of each interval's ends from the value, 0 without an interval."""
    below, above = [], []
    for place, value in enumerate(series.amounts):
        low, high = (None if value is None else series.interval(place)) or (value, value)
        below.append(0.0 if value is None or low is None else max(0.0, value - low))
        above.append(0.0 if value is None or high is None else max(0.0, high - value))
    return below, above


def _plotly_figure(chart: BarChart) -> Any:  # noqa: ANN401  # of a library without types
    import plotly.graph_objects as go

    # Names may be equal, so places are the axis and names its labels. Markup is escaped. A tooltip
    # has the whole name.
    places = list(range(len(chart.names)))
    texts = [_as_text(name) for name in chart.names]
    labels = [_as_text(cut_middle(name, _MOST_LETTERS)) for name in chart.names]
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
                "ticktext": labels,
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
    from matplotlib.ticker import EngFormatter

    size = (8.6, _height(chart) / _PIXELS_PER_INCH)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(chart.series)
    for at, series in enumerate(chart.series):
        known = [place for place, value in enumerate(series.amounts) if value is not None]
        errors = [[ends[place] for place in known] for ends in _errors(series)]
        axes.barh(
            [place + (at - (len(chart.series) - 1) / 2) * width for place in known],
            [series.amounts[place] for place in known],
            width,
            xerr=errors if any(map(any, errors)) else None,
            label=_matplotlib_name(series.name),
            color=COLORS[at % len(COLORS)],
        )
    axes.set_yticks(range(len(chart.names)), [_matplotlib_name(name) for name in chart.names])
    # From top to bottom, with the rows that have no bar.
    axes.set_ylim(max(1, len(chart.names)) - 0.5, -0.5)
    if max(map(abs, chart.range)) >= _LARGE:
        axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel(chart.unit)
    figure.suptitle(_without_math(cut_middle(chart.title, 2 * _MOST_LETTERS)))
    if len(chart.series) > 1:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _matplotlib_name(name: str) -> str:
    """Return a name that leaves room for the bars, because the picture does not show more."""
    return _without_math(cut_middle(name, _MOST_LETTERS))


def _without_math(text: str) -> str:
    """Return the text with escapes for matplotlib, which reads formulas between dollar signs."""
    return printable(text).replace("$", r"\$")
