"""What the scripts of a page draw: its parts, and the files that draw them."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

_OWN = Path(__file__).parent

# Every page has these. A room adds its own, which may use what these define.
SHARED_STYLES = (_OWN / "page.css",)
SHARED_SCRIPTS = tuple(
    _OWN / name for name in ("page.js", "sides.js", "figures.js", "tables.js", "row_window.js")
)


class Drawing(Struct, frozen=True):
    """A part that the scripts draw, under its heading; they find their place by its id."""

    id: str
    heading: str


class Drawings(Struct, frozen=True):
    """The parts of a page, and the files that draw them: each may use what those before define.

    A page without charts of plotly is smaller and opens sooner.
    """

    parts: tuple[Drawing, ...] = ()
    styles: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    needs_plotly: bool = True
