"""The content of an HTML report: its tags, its texts, and what is packed into it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

from tests.support.known import known

# A name that would become a part of the page, were it not escaped.
EVIL = "</script><script>alert(1)</script>\u202e\x1b[2J<!-- \"'`{{ 7*7 }} &amp;"


def unpacked(page: str, name: str) -> str:
    found = re.search(rf'<script type="application/gzip" id="{name}">([A-Za-z0-9+/=]+)<', page)
    return gzip.decompress(base64.b64decode(known(found)[1])).decode("utf-8")


def unpacked_models(page: str) -> list[dict[str, Any]]:
    """The models that a page draws, whose cases have what is packed for each alone."""
    models: list[dict[str, Any]] = json.loads(unpacked(page, "data"))["models"]
    for found in re.findall(r'id="data-([0-9]+)-([0-9]+)"', page):
        model, case = map(int, found)
        models[model]["cases"][case] |= json.loads(unpacked(page, f"data-{model}-{case}"))
    return models


class Markup(HTMLParser):
    """The tags of a page with their attributes, and the texts between them, scripts left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.texts: list[str] = []
        self._is_broken = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A place where a name may break is part of its text.
        self._is_broken = tag == "wbr"
        if not self._is_broken:
            self.tags.append((tag, tuple(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in {"script", "style"}:
            if self._is_broken:
                self.texts[-1] += data
            else:
                self.texts.append(data)
        self._is_broken = False

    @property
    def text(self) -> str:
        """Return the text as it is read: without the blanks of the layout of the markup."""
        return " ".join(" ".join(self.texts).split())
