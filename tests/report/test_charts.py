"""Charts of results: the drawing of a notebook, and the figures of an installed library."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.charts import BarChart, BarSeries, draw_chart, make_figure, make_frame
from pytest_modelperf.report.model import Sheet

EVIL = "<script>&\x1b[31m\n\u202e$x$"
CHART = BarChart(
    "layers of m.onnx",
    "ms",
    ("conv", "conv", EVIL),
    (
        BarSeries("before", (2.0, None, 1.0), ((1.5, 2.5), None, None)),
        BarSeries("now", (4.0, 0.5, 1.0)),
    ),
)
NUMBERS = st.floats(-1e9, 1e9) | st.none()


def bars(svg: str) -> list[tuple[float, float]]:
    """Return the beginning and width of each bar, without the keys of the legend."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="12" fill', svg)
    return [(float(x), float(width)) for x, width in found if float(x) >= 290]


def test_a_bar_is_as_long_as_its_amount_and_a_missing_one_is_not_drawn() -> None:
    drawn = bars(draw_chart(CHART))
    longest = max(width for _, width in drawn)
    assert [round(4 * width / longest, 2) for _, width in drawn] == [2.0, 4.0, 0.5, 1.0, 1.0]
    assert {x for x, _ in drawn} == {290.0}


def test_names_are_escaped_and_never_run() -> None:
    svg = draw_chart(CHART)
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert ET.fromstring(svg).get("aria-label") == "layers of m.onnx, ms"  # noqa: S314  # our own


def test_a_decrease_reaches_to_the_left_of_the_axis() -> None:
    chart = BarChart("change", "%", ("p50", "p95"), (BarSeries("change", (-10.0, 10.0)),))
    (left, width), (right, other) = bars(draw_chart(chart))
    assert left + width == pytest.approx(right, abs=0.2)
    assert width == pytest.approx(other, abs=0.2)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_every_bar_is_inside_the_drawing(amounts: list[float | None]) -> None:
    names = tuple(map(str, range(len(amounts))))
    drawn = bars(draw_chart(BarChart("t", "ms", names, (BarSeries("s", tuple(amounts)),))))
    assert len(drawn) == sum(amount is not None for amount in amounts)
    assert all(x + width <= 780.6 for x, width in drawn)


def test_a_figure_of_plotly_shows_names_as_text_and_intervals_as_errors() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    before, now = make_figure(CHART).to_dict()["data"]
    assert (list(before["x"]), list(now["x"])) == ([2.0, None, 1.0], [4.0, 0.5, 1.0])
    assert before["error_x"]["array"] == [0.5, 0.0, 0.0]
    assert before["error_x"]["arrayminus"] == [0.5, 0.0, 0.0]
    assert "error_x" not in now
    assert "<script" not in before["customdata"][2]
    long = "backbone/" * 14 + "conv"
    figure = make_figure(BarChart("t", "ms", (long,), (BarSeries("s", (1.0,)),))).to_dict()
    (label,) = figure["layout"]["yaxis"]["ticktext"]
    assert (len(label), label[-5:]) == (40, "/conv")
    assert list(figure["data"][0]["customdata"]) == [long]


def test_the_figures_of_a_drawing_have_four_digits() -> None:
    amounts = (12345.0, 1234.0, 28.5, 0.06, -0.2, 0.0)
    drawn = draw_chart(BarChart("t", "ms", tuple("abcdef"), (BarSeries("s", amounts),)))
    assert re.findall(r">([^<a-z]*\d[^<]*)</text>", drawn) == [
        "12.35 k", "1234", "28.50", "0.06000", "\N{MINUS SIGN}0.2000", "0",
    ]  # fmt: skip


def test_a_figure_of_matplotlib_has_a_bar_for_each_known_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    without(monkeypatch, "plotly")
    (axes,) = make_figure(CHART).axes
    assert sorted(bar.get_width() for bar in axes.patches) == [0.5, 1.0, 1.0, 2.0, 4.0]
    assert axes.get_xlabel() == "ms"


def test_a_figure_of_matplotlib_has_room_for_its_bars_and_a_row_for_each_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long names leave half of the picture to the bars, and the last row may have no bar."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    without(monkeypatch, "plotly")
    long = "backbone/" * 14
    series = tuple(BarSeries(name * 5, (2e8, 1e8, None)) for name in (long, "now"))
    figure = make_figure(BarChart(long, "MACs", (long, "conv", "relu"), series))
    (axes,) = figure.axes
    # Matplotlib warns if texts leave no room, which fails the test.
    figure.draw_without_rendering()
    area = axes.get_position()
    (legend,) = figure.legends
    assert area.width > 0.5
    assert axes.get_ylim() == (2.5, -0.5)
    assert axes.xaxis.get_major_formatter()(2e8) == "200 M"
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    make_figure(BarChart("nothing was measured", "ms", (), (BarSeries("now", ()),)))


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Hide these packages, as if they were not installed."""
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_without_a_library_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "plotly", "matplotlib", "pandas")
    with pytest.raises(UsageError, match="needs plotly or matplotlib: pip install"):
        make_figure(CHART)
    with pytest.raises(UsageError, match=r"needs pandas: pip install 'pytest-modelperf\[pandas\]'"):
        make_frame(Sheet(("case",), ()))


def test_the_columns_of_a_frame_have_types_that_depend_on_no_value() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    rows = ((1, 2.0, "a", True, None), (None, 3, None, None, None))
    frame = make_frame(Sheet(("count", "ms", "name", "gated", "none"), rows))
    assert [str(kind) for kind in frame.dtypes] == [
        "Int64",
        "Float64",
        "string",
        "boolean",
        "object",
    ]
    assert frame["count"].isna().tolist() == [False, True]
    assert list(make_frame(Sheet(("a", "b"), ())).columns) == ["a", "b"]
