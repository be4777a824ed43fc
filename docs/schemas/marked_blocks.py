"""A page of docs/ with a block between its marks replaced, for blocks that are made of the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def with_block(page: str, mark: str, block: str) -> str:
    """The page with `block` between `<!-- mark -->` and `<!-- end -->`."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise ValueError(f"the page has no place between <!-- {mark} --> and <!-- end -->")
    return f"{before}{begin}\n{block}\n{end}{after}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, space: str = " ") -> str:
    """A table; without a `space` at its bars it is shorter, for pages of many small ones."""
    lines = (header, ["---"] * len(header), *rows)
    bar = f"{space}|{space}"
    return "".join(f"|{space}{bar.join(map(_cell, line))}{space}|\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
