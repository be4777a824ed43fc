"""The text that a page shows of a command between its marks, and its layout."""

from __future__ import annotations

import re

CUT = "..."
# Shown if there were samples enough, which a disturbed run may not have had.
PERCENTILES = {"p50", "p50 before", "p50 now", "p95", "items/s"}
# A table may be about the case that came out best.
CASE_ID = re.compile(r"\bb\d+-c\d+(?:-s\d+)?\b")


def block(page: str, kind: str, name: str) -> str:
    """The text block that the text of a page marks with a name."""
    pattern = rf"<!-- {kind}: {re.escape(name)} -->\n```text\n(.*?)```\n<!-- end -->"
    found = re.search(pattern, page, re.DOTALL)
    assert found is not None, f"the page marks no {kind} {name!r}"
    return found[1]


def headings(text: str) -> dict[str, list[str]]:
    """Return the columns of every table by the text above it."""
    return {
        CASE_ID.sub("ID", title.strip()): re.split(r"\s{2,}", columns.strip())
        for title, columns in re.findall(r"^(.*)\n(.+)\n─{9,}$", text, re.MULTILINE)
    }


def assert_laid_out(shown: str, printed: str) -> None:
    """Every table that is shown is there, with the columns that are shown, and no table more.

    On a narrow page some columns are left out, and on a noisy machine some percentiles.
    """
    tables, now = headings(shown), headings(printed)
    assert tables
    for title, columns in tables.items():
        assert title in now, f"no table below {title!r}"
        assert set(columns) - PERCENTILES <= set(now[title])
    if not shown.endswith(f"{CUT}\n"):
        assert list(tables) == list(now)
