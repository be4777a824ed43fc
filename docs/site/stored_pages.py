"""Stores the pages that commands wrote without what every page has: scripts, styles, and plotly.

A shared part leaves its name, and is put back from the package when the site is made. So a stored
page has some 30 KB in place of 2 MB, and its scripts are those of today.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest_modelperf
from pytest_modelperf.report.html.render import pack

_PACKAGE = Path(pytest_modelperf.__file__).parent
_PLOTLY = "plotly"
_PLACE = re.compile(r"@@(\S+?)@@")
SUFFIX = ".in"


def without_shared(page: str) -> str:
    """The page with the name of each shared part in its place."""
    for name, text in sorted(_shared().items(), key=lambda each: -len(each[1])):
        page = page.replace(text, f"@@{name}@@")
    return page


def with_shared(stored: str) -> str:
    """The page of a stored one; KeyError names a part that the package no longer has."""
    shared = _shared()
    return _PLACE.sub(lambda found: shared[found[1]], stored)


@cache
def _shared() -> dict[str, str]:
    from plotly.offline import get_plotlyjs

    files = [path for path in _PACKAGE.rglob("*") if path.suffix in {".js", ".css"}]
    texts = {path.relative_to(_PACKAGE).as_posix(): path.read_text("utf-8") for path in files}
    return {**texts, _PLOTLY: pack(get_plotlyjs())}
