"""What the tests of pages share: the browser, and a way from data to an open page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from pytest_modelperf.report.html.render import render_page
from tests.page.browser import OpenPage, browser, open_page
from tests.page.sample_data import Data

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "open_page"]

OpenData: TypeAlias = "Callable[..., Page]"


@pytest.fixture
def open_data(open_page: OpenPage) -> OpenData:
    """Opens a page of `data`, with the options of `open_page`."""

    def open_built(data: Data, **options: object) -> Page:
        return open_page(render_page(data), **options)

    return open_built
