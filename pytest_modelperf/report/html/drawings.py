"""The parts of a page that scripts draw, and the files of these scripts."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

_OWN = Path(__file__).parent

# Every page has these. A room adds its own, which may use what these define.
SHARED_STYLES = (_OWN / "page.css",)
SHARED_SCRIPTS = tuple(
    _OWN / f"{name}.js" for name in ("page", "figures", "charts", "cases", "tables")
)


class Drawing(Struct, frozen=True):
    """A part that the scripts draw, under its heading; they find their place by its id.

    One that leads stands above the overview.
    """

    id: str
    heading: str
    leads: bool = False


class Drawings(Struct, frozen=True):
    """The parts of a page, and the files that draw them: each may use what those before define.

    A page without charts of plotly is smaller and opens sooner. `of_case` has the keys that they
    read of the chosen case alone: these stay packed for other cases.
    """

    parts: tuple[Drawing, ...] = ()
    styles: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    needs_plotly: bool = True
    of_case: tuple[str, ...] = ()

    def plus(self, others: Drawings) -> Drawings:
        """These parts and then the others, whose scripts may use what these define."""
        return Drawings(
            parts=(*self.parts, *others.parts),
            styles=(*self.styles, *others.styles),
            scripts=(*self.scripts, *others.scripts),
            needs_plotly=self.needs_plotly or others.needs_plotly,
            of_case=(*self.of_case, *others.of_case),
        )
