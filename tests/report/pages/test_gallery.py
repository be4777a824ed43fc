"""The stored pages of the gallery: what draws a page today draws them, too."""

from __future__ import annotations

import pytest
from prepare_pages import gallery
from stored_pages import SUFFIX

from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import without_charts
from tests.support.checkout import ROOT

CHARTLESS = {"doctor.html", "tune.html"}
STORED = sorted((ROOT / "docs" / "gallery").glob(f"*{SUFFIX}"))


@pytest.mark.parametrize("name", [path.name.removesuffix(SUFFIX) for path in STORED])
def test_a_page_of_the_gallery_is_drawn(name: str, open_page: OpenPage) -> None:
    """If its data has another form now, type `make gallery`."""
    page = open_page(without_charts(gallery()[f"gallery/{name}"]))
    assert page.evaluate("document.documentElement.dataset.state") == "ready"
    assert (page.locator("section.interactive:visible").count() > 0) == (name not in CHARTLESS)
