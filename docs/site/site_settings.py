"""The settings of the site that its programs need: addresses, and the pages in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ALONE = "Overview"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the navigation with its pages."""

    title: str
    pages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """What `mkdocs.yml` says.

    Attributes:
        address: Where the site is published, with a slash at its end.
        repository: Where the sources are published.

    """

    name: str
    description: str
    address: str
    repository: str
    sections: tuple[Section, ...]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Reads settings without the functions of Python that they name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def read_settings(path: Path) -> SiteSettings:
    found: dict[str, Any] = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506  # a safe one
    return SiteSettings(
        name=found["site_name"],
        description=found["site_description"],
        address=found["site_url"],
        repository=found["repo_url"],
        sections=tuple(_sections(found["nav"])),
    )


def _sections(navigation: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """The sections with their pages; the pages that stand alone are the first section."""
    entries = [entry for part in navigation for entry in part.items()]
    alone = tuple(pages for _, pages in entries if isinstance(pages, str))
    if alone:
        yield Section(_ALONE, alone)
    for title, pages in entries:
        if not isinstance(pages, str):
            yield Section(title, tuple(_names(pages)))


def _names(parts: Sequence[str | Mapping[str, Any]]) -> Iterator[str]:
    """The pages of a section; a page can have a title, and a section sections of its own."""
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            for pages in part.values():
                yield from [pages] if isinstance(pages, str) else _names(pages)
