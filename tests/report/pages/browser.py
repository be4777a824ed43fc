"""The fixtures of tests that open a page in Chromium: any error in it, or any request, fails them.

Which Chromium: that of MODELPERF_CHROMIUM, or the first that stands in PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from tests.support.processes import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Page,
        ViewportSize,
    )

VARIABLE = "MODELPERF_CHROMIUM"
# The first has no windows, and takes two thirds of the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")

VIEWPORT: ViewportSize = {"width": 1200, "height": 900}

OpenPage: TypeAlias = "Callable[..., Page]"


# Only a test that fails waits so long; what Playwright usually waits is short on a busy machine.
LIMIT_MS = 1000.0 * LIMIT_S


def find_chromium() -> str | None:
    named = os.environ.get(VARIABLE)
    if named:
        return named
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium, until these tests are over: while it is there, no loop of asyncio can run."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} in PATH, and {VARIABLE} is not set")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=[*ARGUMENTS], timeout=LIMIT_MS
        )
        yield chromium
        chromium.close()


def new_context(browser: Browser, **options: Any) -> BrowserContext:  # noqa: ANN401  # of Playwright
    """A context of its own, whose pages wait as long as a busy machine may take."""
    context = browser.new_context(**options)
    context.set_default_timeout(LIMIT_MS)
    return context


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Page]:
    """The tab in which pages are opened, one after the other.

    What Chromium has compiled stays with a tab and the address of a page: the library of charts
    takes it two seconds.
    """
    context = new_context(browser)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="package")
def barred_tab(browser: Browser) -> Iterator[Page]:
    """A tab of another Chromium, which shows scrollbars: for tests they are usually hidden.

    It is a narrow window of a system that shows them only while something is scrolled, as a phone.
    """
    other = browser.browser_type.launch(
        executable_path=find_chromium(),
        args=[*ARGUMENTS],
        ignore_default_args=["--hide-scrollbars"],
        timeout=LIMIT_MS,
    )
    yield new_context(other, viewport={"width": 700, "height": 900}, is_mobile=True).new_page()
    other.close()


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pages, the same path in each test."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def open_page(tab: Page, browser: Browser, folder: Path) -> Iterator[OpenPage]:
    """Opens HTML as a file, and waits until it is drawn; the second of a test in a tab of its own.

    `fragment` is what stands after the # of the address.
    """
    with ExitStack() as stack:
        troubles: list[str] = []
        opened: list[Page] = []

        def open_html(
            html: str,
            *,
            fragment: str = "",
            viewport: ViewportSize = VIEWPORT,
            color_scheme: Literal["light", "dark"] = "light",
        ) -> Page:
            path = folder / f"page{len(opened)}.html"
            path.write_text(html, encoding="utf-8")
            page = tab
            if opened:
                page = stack.enter_context(new_context(browser)).new_page()
            opened.append(page)
            stack.enter_context(_watching(page, path.as_uri(), troubles))
            page.set_viewport_size(viewport)
            page.emulate_media(media="null", color_scheme=color_scheme)
            page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
            wait_until_drawn(page)
            return page

        yield open_html
        for page in opened:
            page.evaluate("sessionStorage.clear()")
            page.mouse.move(0, 0)
            # The same address with another fragment would be the same page.
            page.goto("about:blank")
    assert troubles == []


def wait_until_drawn(page: Page) -> None:
    """Wait until every part is drawn, with the charts that were not scrolled to."""
    page.wait_for_function("document.documentElement.dataset.state")
    if page.locator("html").get_attribute("data-state") == "ready":
        page.evaluate("modelperf.charts.load().then(modelperf.charts.showAll)")


def pick(page: Page, label: str, value: str) -> None:
    """Choose a value for the whole page, which draws its parts one after the other."""
    page.get_by_label(label).select_option(value)
    wait_until_drawn(page)


def reload(page: Page) -> None:
    page.reload()
    wait_until_drawn(page)


@contextmanager
def _watching(page: Page, uri: str, troubles: list[str]) -> Iterator[None]:
    """Note what a report page must not do: complain, fail, load anything, open a dialog."""

    def note_message(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            troubles.append(f"{message.type}: {message.text}")

    def note_request(url: str) -> None:
        if not url.startswith((uri, "blob:", "data:")):
            troubles.append(f"request: {url}")

    def note_dialog(dialog: Dialog) -> None:
        troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    watchers: dict[Any, Callable[[Any], None]] = {
        "console": note_message,
        "pageerror": lambda error: troubles.append(f"error: {error}"),
        "request": lambda request: note_request(request.url),
        "dialog": note_dialog,
    }
    for event, watcher in watchers.items():
        page.on(event, watcher)
    yield
    for event, watcher in watchers.items():
        page.remove_listener(event, watcher)
