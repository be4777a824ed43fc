"""The parts of a page that scripts draw, and the files of these scripts."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

_OWN = Path(__file__).parent

# Every page has these. A package adds its own files, which may use what these define.
SHARED_STYLES = (_OWN / "page.css",)
SHARED_SCRIPTS = tuple(
    _OWN / f"{name}.js" for name in ("page", "figures", "charts", "cases", "tables")
)


class Drawing(Struct, frozen=True):
    """A part of a page that the scripts draw, under its heading and in the element with its id.

    A part that leads is above the overview.
    """

    id: str
    heading: str
    leads: bool = False


class Drawings(Struct, frozen=True):
    """The parts of a page, and the files that draw them.

    Each file may use what those before it define. A page without plotly charts is smaller and opens
    faster. `of_case` has the keys that they read from the chosen case only. In other cases these
    keys stay packed.
    """

    parts: tuple[Drawing, ...] = ()
    styles: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    needs_plotly: bool = True
    of_case: tuple[str, ...] = ()

    def led_by(self, part: str) -> Drawings:
        """Return these parts, with the one of this id above the overview."""
        parts = (replace(each, leads=each.leads or each.id == part) for each in self.parts)
        return replace(self, parts=tuple(parts))

    def plus(self, others: Drawings) -> Drawings:
        """Return these parts and then the others. Scripts may use what earlier ones define."""
        return Drawings(
            parts=(*self.parts, *others.parts),
            styles=(*self.styles, *others.styles),
            scripts=(*self.scripts, *others.scripts),
            needs_plotly=self.needs_plotly or others.needs_plotly,
            of_case=(*self.of_case, *others.of_case),
        )
