"""The fixtures of tests that open a page in Chromium: any error in it, or any request, fails them.

Which Chromium: that of MODELPERF_CHROMIUM, or the first that stands in PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

VARIABLE = "MODELPERF_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")

OpenPage: TypeAlias = "Callable[..., Page]"


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
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """Opens HTML as a file, and waits until it is drawn.

    Keyword arguments are those of Playwright's `Browser.new_context`; `fragment` is what stands
    after the # of the address.
    """
    troubles: list[str] = []
    contexts: list[BrowserContext] = []

    def open_html(html: str, *, fragment: str = "", **context_options: object) -> Page:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        options = {"viewport": {"width": 1200, "height": 900}, **context_options}
        context = browser.new_context(**options)  # type: ignore[arg-type]  # passed on as they are
        contexts.append(context)
        page = context.new_page()
        _watch(page, path.as_uri(), troubles)
        page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
        page.wait_for_function("document.documentElement.dataset.state")
        return page

    yield open_html
    for context in contexts:
        context.close()
    assert troubles == []


def _watch(page: Page, uri: str, troubles: list[str]) -> None:
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

    page.on("console", note_message)
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("request", lambda request: note_request(request.url))
    page.on("dialog", note_dialog)
