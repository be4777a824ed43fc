"""Lists the pages for programs that read: `llms.txt`, as https://llmstxt.org describes it.

Each link leads to the Markdown of a page, which lies at the root of the site: `ci.md` beside `ci/`.
The last section of the site is about the project itself, so it is optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from site_settings import SiteSettings

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
# What a paragraph of prose does not stand in.
_BLOCK = re.compile(r"^```.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
# Neither a heading nor a list, a table, a picture, or markup.
_PROSE = re.compile(r"[^\W\d_]|`|\[(?!!)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r".+?[.?](?=\s|$)")


def render_llms_text(settings: SiteSettings, pages: Mapping[str, str]) -> str:
    """The list, in the order of the navigation; `pages` are the texts by their names."""
    return "\n".join(
        [f"# {settings.name}", "", f"> {settings.description}", *_sections(settings, pages), ""]
    )


def _sections(settings: SiteSettings, pages: Mapping[str, str]) -> Iterator[str]:
    *sections, last = settings.sections
    # By this title a reader knows what it can do without.
    for section in (*sections, replace(last, title="Optional")):
        yield from ("", f"## {section.title}", "")
        for name in section.pages:
            about = first_sentence(pages[name])
            link = f"- [{page_title(pages[name])}]({settings.address}{name})"
            yield f"{link}: {about}" if about else link


def page_title(markdown: str) -> str:
    found = _TITLE.search(markdown)
    if found is None:
        raise ValueError(f"a page has no title: it begins with {markdown[:60]!r}")
    return found[1].replace("`", "")


def first_sentence(markdown: str) -> str:
    """The first sentence of prose on one line and without links; empty if there is none."""
    paragraphs = (each.strip() for each in _BLOCK.sub("", markdown).split("\n\n"))
    prose = next(filter(_PROSE.match, paragraphs), "")
    text = " ".join(_LINK.sub(r"\1", prose).split())
    sentence = _SENTENCE.match(text)
    return (sentence[0] if sentence else text).rstrip(":")
