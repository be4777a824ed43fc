"""Checks the built site: each page has the blocks of its Markdown, and its Markdown lies beside it.

The site is made by another reader of Markdown than GitHub's. Where the two differ, a list or a
table becomes a paragraph that nobody notices. `llms.txt` leads to the Markdown of each page. Ends
with 1 and names what is wrong.

    python docs/site/check_site.py site
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt
from prepare_pages import ROOT, sources
from site_settings import read_settings

BLOCKS = frozenset({"h1", "h2", "h3", "h4", "li", "ol", "pre", "table", "tr", "ul"})


class _Counting(HTMLParser):
    """Counts the blocks inside of an article; what is around it is not of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._is_inside = self._is_inside or tag == "article"
        if self._is_inside and tag in BLOCKS:
            self.found[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag != "article"


def count_blocks(html: str) -> Counter[str]:
    counting = _Counting()
    counting.feed(html)
    return counting.found


def compare(markdown: str, html: str) -> str:
    """How the blocks of a page differ, as `li: 4 on GitHub, 3 on the site`; empty if they agree."""
    reader = MarkdownIt("gfm-like", {"linkify": False})
    there = count_blocks(f"<article>{reader.render(markdown)}</article>")
    here = count_blocks(html)
    return "; ".join(
        f"{tag}: {there[tag]} on GitHub, {here[tag]} on the site"
        for tag in sorted(BLOCKS)
        if there[tag] != here[tag]
    )


def check(site: Path) -> int:
    problems = [*check_blocks(site), *check_links(site)]
    print("".join(f"{problem}\n" for problem in problems), end="")
    return 1 if problems else 0


def check_blocks(site: Path) -> Iterator[str]:
    for source, page in sorted(sources().items()):
        name = page.removesuffix(".md")
        built = site / ("index.html" if name == "index" else f"{name}/index.html")
        found = compare((site / page).read_text("utf-8"), built.read_text("utf-8"))
        if found:
            yield f"{source} has other blocks on the site. Put a blank line around them. {found}"


def check_links(site: Path) -> Iterator[str]:
    """Each link of `llms.txt` leads to a file of the site."""
    address = read_settings(ROOT / "mkdocs.yml").address
    listed = re.findall(r"\]\((.+?)\)", (site / "llms.txt").read_text("utf-8"))
    for url in listed:
        if not (url.startswith(address) and (site / url.removeprefix(address)).is_file()):
            yield f"llms.txt leads to {url}, which is no file of the site"


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1])))
