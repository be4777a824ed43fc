"""Makes a site of the pages as they lie in the repository, where their links are those of GitHub.

The pages outside of docs/ that readers need become pages of the site, too. A link to any other file
leads to the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
# Pages of the site, by the file in the repository that each is made of.
OUTSIDE: Mapping[str, str] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
_SOURCES = {page: source for source, page in OUTSIDE.items()}
_BRANCH = "main"
# A link or a picture, unless it stands in a block of code.
_LINK = re.compile(r"^```.*?^```$|\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside of the folder."""
    from mkdocs.structure.files import File

    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # the signature of MkDocs
    """The page with links that hold on the site."""
    return rewrite_links(markdown, page.file.src_uri, config.repo_url or "")


def rewrite_links(markdown: str, page: str, repository: str) -> str:
    """The text of a page of the site, with links to pages of the site or to the repository."""
    folder = posixpath.dirname(_SOURCES.get(page, f"{DOCS}/{page}"))

    def rewrite(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if target is None:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in OUTSIDE:
            return f"]({OUTSIDE[path]}{anchor})"
        if path.startswith(f"{DOCS}/") and not path.endswith(".py"):
            return f"]({posixpath.relpath(path, DOCS)}{anchor})"
        return f"]({repository}/blob/{_BRANCH}/{path}{anchor})"

    return _LINK.sub(rewrite, markdown)
