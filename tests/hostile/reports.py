"""Text in a name that each format of a report would obey, and the report without it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO

from markdown_it import MarkdownIt

from pytest_modelperf.text.version import page_url

_GITHUB = frozenset({
    "add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice",
    "remove-matcher", "save-state", "set-env", "set-output", "stop-commands", "warning",
})  # fmt: skip
_ANYWHERE = re.compile(r"##(\w*)\[")
_FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?")
# Tables, as GitHub has them.
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# GitHub makes these of the text of a page: mentions, references, links. It takes a character
# reference behind `www.` for a part of the host.
_LINKED = re.compile(r"@\w|#\d|\bGH-\d|www\.\S|://\S", re.IGNORECASE)
# Tags and tokens that names would add to a page or to Markdown, and our reports do not.
_FOREIGN_TAGS = frozenset({"b", "comment", "form", "iframe", "img", "link", "object", "svg"})
_LENGTHS = re.compile(r"[a-z-]+: [0-9.]+(%|ch)?(; width: [0-9.]+%)?")
_FOREIGN_TOKENS = frozenset({"code_inline", "em_open", "image", "link_open", "s_open"})


def runner_commands(text: str) -> Iterator[str]:
    """Yield the lines that a runner of GitHub Actions or Azure Pipelines would take for a command.

    As ActionCommand.TryParseV2 and TryParse of github.com/actions/runner do.
    """
    for line in re.split(r"\r\n|\r|\n", text):
        start = line.lstrip()
        if start.startswith("::"):
            command, end, _ = start[2:].partition("::")
            if end and command.partition(" ")[0].lower() in _GITHUB:
                yield start
        if _ANYWHERE.search(line):
            yield line


def check_terminal(text: str) -> None:
    """Assert that there are only visible characters, and no line that a runner obeys."""
    assert all(char.isprintable() or char == "\n" for char in text)
    assert list(runner_commands(text)) == []


def check_json(text: str, name: str) -> None:
    """One document in ASCII, with the name as it is in some of its texts."""
    assert text.isascii()
    assert list(runner_commands(text)) == []
    assert any(name in found for found in _texts(json.loads(text)))


def check_trace(text: str) -> None:
    """A trace whose texts can be shown."""
    assert text.isascii()
    assert list(runner_commands(text)) == []
    assert all(found.isprintable() for found in _texts(json.loads(text)))


def check_csv(text: str) -> list[int]:
    """Cells that no spreadsheet runs; how many there are in each row."""
    check_terminal(text)
    rows = list(csv.reader(StringIO(text)))
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(_FORMULA) or _NUMBER.fullmatch(cell)
    return [len(row) for row in rows]


def check_markdown(text: str) -> list[str]:
    """No mention and no link; what it is made of, the tags in it included."""
    check_terminal(text)
    tokens = _MARKDOWN.parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert not _LINKED.search("".join(token.content for token in inline if token.type == "text"))
    assert not {token.type for token in inline} & _FOREIGN_TOKENS
    kinds = [
        token.type for token in (*tokens, *inline) if token.type not in {"text", "text_special"}
    ]
    return [*kinds, *(t.content for t in (*tokens, *inline) if t.type.startswith("html"))]


class _Tags(HTMLParser):
    """The tags of a page, with their attributes; the data that scripts draw is left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A name breaks between its words.
        if tag == "wbr":
            return
        # The lengths of bars are figures, which differ from run to run.
        assert all(_LENGTHS.fullmatch(value or "") for name, value in attrs if name == "style")
        self.found.append((tag, tuple(each for each in attrs if each[0] != "style")))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", ((data, None),)))


def check_page(text: str) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """The tags of a page, none of which is of a name, and whose text can be shown."""
    assert not any(char in text for char in "\x1b\x9b\u202e\u2028\u2029\0")
    found = _Tags(text).found
    assert not {tag for tag, _ in found} & _FOREIGN_TAGS
    links = [dict(attributes)["href"] or "" for tag, attributes in found if tag == "a"]
    assert all(link.startswith("#") or link == page_url("html-report") for link in links)
    assert not any(name.startswith("on") for _, attributes in found for name, _ in attributes)
    return found


def _texts(value: object) -> Iterator[str]:
    """All texts of a JSON document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
