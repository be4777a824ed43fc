"""Shared by the tests of pages: the browser, and a way from data to an open page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from pytest_modelperf.profiler.shown.page_latency import with_point_facts
from pytest_modelperf.profiler.shown.page_layers import with_layer_facts
from pytest_modelperf.report.html.render import pack
from tests.report.pages.browser import (
    OpenPage,
    barred_tab,
    browser,
    folder,
    open_page,
    tab,
    wait_until_drawn,
)
from tests.report.pages.sample_data import Data
from tests.support.rendered import render_case_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["barred_tab", "browser", "folder", "open_page", "tab"]

OpenData: TypeAlias = "Callable[..., Page]"


# Keeps what a chart is given and draws nothing, which takes most of the time of opening a page.
_NO_CHARTS = """
window.Plotly = {
  react(div, data, layout) {
    Object.assign(div, { data, layout, on() {}, removeAllListeners() {} });
    return Promise.resolve(div);
  },
  relayout: () => Promise.resolve(),
};
"""
_PLOTLY = re.compile(r'(<script type="application/gzip" id="plotly">)[^<]*')


@pytest.fixture
def open_data(open_page: OpenPage) -> OpenData:
    """Opens a page of `data`, with the options of `open_page`; its charts are drawn if wanted."""

    def open_built(data: Data, *, draws: bool = True, **options: object) -> Page:
        html = render_data(data)
        return open_page(html if draws else without_charts(html), **options)

    return open_built


def render_data(data: Data) -> str:
    """The page of the data, with what follows from them as the real data of a page have it."""
    models = [
        with_point_facts(model | {"cases": [with_layer_facts(case) for case in model["cases"]]})
        for model in data["models"]
    ]
    return render_case_page(data | {"models": models})


def without_charts(html: str) -> str:
    """The page with a library that draws nothing."""
    return _PLOTLY.sub(lambda found: found[1] + pack(_NO_CHARTS), html)


def chart_of(page: Page, part: str) -> dict[str, Any]:
    """The data and layout that the chart of a part was given."""
    wait_until_drawn(page)
    found: dict[str, Any] = page.evaluate(
        "part => { const {data, layout} = document.querySelector(`#${part} .plot`);"
        " return {data, layout}; }",
        part,
    )
    return found


def assert_fits(page: Page) -> None:
    """The page scrolls down alone, on a phone as on a wide screen."""
    for width in (390, 700, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
