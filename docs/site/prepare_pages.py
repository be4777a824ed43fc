"""Prepares the pages of the site: copies them into a folder, with links that hold on the site.

The pages lie in the repository where their links are those of GitHub. The pages outside of docs/
that readers need become pages of the site, too. A link to any other file leads to the repository.
The pages of the gallery get their scripts back, and `llms.txt` lists all pages.

    python docs/site/prepare_pages.py build/pages
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from comment_page import render_comment_page
from llms_text import render_llms_text
from site_settings import SiteSettings, read_settings
from stored_pages import SUFFIX, with_shared

ROOT = Path(__file__).parents[2]
DOCS = "docs"
# Pages of the site, by the file in the repository that each is made of.
OUTSIDE: Mapping[str, str] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# Pages that the site no longer has, and where their readers go: a page of the site or a file.
MOVED: Mapping[str, str] = {
    "benchmarks": "../benchmarks/README.md",
    "error-rates": "statistics.md#how-often-a-verdict-errs",
    "walkthrough": "architecture.md#from-a-file-to-a-verdict",
}
_SOURCES = {page: source for source, page in OUTSIDE.items()}
_BRANCH = "main"
# A link or a picture, unless it stands in a block of code.
_LINK = re.compile(r"^```.*?^```$|\]\(([^)\s#]+)(#[^)\s]*)?\)", re.DOTALL | re.MULTILINE)
_SCHEME = re.compile(r"\w+:")
# They would be asked of another server by each reader of the site.
_BADGE = re.compile(r"^\[!\[.*\]\(https://.*\n", re.MULTILINE)
# The programs beside the pages, what they read, and the pages themselves, which are written anew.
_NOT_COPIED = shutil.ignore_patterns(
    "*.py", "__pycache__", "*.md", "*.toml", "*.txt", f"*{SUFFIX}", "site"
)


def sources() -> dict[str, str]:
    """The pages of the site by the file in the repository that each is made of."""
    inside = {f"{DOCS}/{path.name}": path.name for path in (ROOT / DOCS).glob("*.md")}
    return {**inside, **OUTSIDE}


def prepare(folder: Path) -> None:
    """Writes every page and what it shows; a page that is no more goes with the old folder."""
    settings = read_settings(ROOT / "mkdocs.yml")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / DOCS, folder, ignore=_NOT_COPIED)
    pages = {
        page: prepare_page((ROOT / source).read_text("utf-8"), page, settings)
        for source, page in sources().items()
    }
    written = {**pages, **gallery(), "llms.txt": render_llms_text(settings, pages)}
    for name, text in written.items():
        (folder / name).write_text(text, "utf-8")
    for name in MOVED:
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(redirect(name, settings), "utf-8")


def redirect(name: str, settings: SiteSettings) -> str:
    """Render the HTML that sends the readers of a moved page to its new place."""
    link = rewrite_links(f"]({MOVED[name]})", f"{name}.md", settings)[2:-1]
    page, _, anchor = link.partition("#")
    target = link if _SCHEME.match(link) else f"../{page.removesuffix('.md')}/#{anchor}"
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Moved</title>\n'
        f'<link rel="canonical" href="{target}">\n'
        f'<meta http-equiv="refresh" content="0; url={target}">\n'
        f'<p>This page has moved: <a href="{target}">{target}</a></p>\n</html>\n'
    )


def gallery() -> dict[str, str]:
    """The pages of the gallery by the name of the file."""
    stored = ROOT / DOCS / "gallery"
    pages = {
        f"gallery/{path.name.removesuffix(SUFFIX)}": with_shared(path.read_text("utf-8"))
        for path in stored.glob(f"*{SUFFIX}")
    }
    comment = (stored / "comment.md").read_text("utf-8")
    return {**pages, "gallery/comment.html": render_comment_page(comment)}


def prepare_page(markdown: str, page: str, settings: SiteSettings) -> str:
    """A page of the repository as a page of the site: no badges, and links that hold there."""
    return rewrite_links(_BADGE.sub("", markdown), page, settings)


def rewrite_links(markdown: str, page: str, settings: SiteSettings) -> str:
    """The text of a page of the site, with links to pages of the site or to the repository."""
    folder = posixpath.dirname(_SOURCES.get(page, f"{DOCS}/{page}"))

    def rewrite(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if target is None:
            return found[0]
        if target.startswith(settings.address):
            return f"]({target.removeprefix(settings.address)}{anchor})"
        if _SCHEME.match(target):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in OUTSIDE:
            return f"]({OUTSIDE[path]}{anchor})"
        if path.startswith(f"{DOCS}/") and not path.endswith(".py"):
            return f"]({posixpath.relpath(path, DOCS)}{anchor})"
        return f"]({settings.repository}/blob/{_BRANCH}/{path}{anchor})"

    return _LINK.sub(rewrite, markdown)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
