"""Shows the comment of the action as a page, much as GitHub shows it."""

from __future__ import annotations

from markdown_it import MarkdownIt

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>A comment on a pull request</title>
<style>
:root { color-scheme: light dark }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
main { border: 1px solid #8886; border-radius: 6px; overflow-x: auto; padding: 0 1em }
table { border-collapse: collapse }
td, th { border: 1px solid #8886; padding: 4px 12px }
code, pre { background: #8882; border-radius: 4px; padding: 2px 4px }
</style>
<main>
BODY</main>
</html>
"""


def render_comment_page(markdown: str) -> str:
    body = MarkdownIt("gfm-like", {"linkify": False}).render(markdown)
    return _PAGE.replace("BODY", body)
