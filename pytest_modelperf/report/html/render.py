"""Rendering a report as one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.document import to_json
from pytest_modelperf.report.model import Drawings, Drawn, Link, Report
from pytest_modelperf.report.tables import Table
from pytest_modelperf.text.escaping import printable, typeset
from pytest_modelperf.text.version import __version__, page_url

_OWN = Path(__file__).parent
_TEMPLATE = _OWN / "template.html"
# Every page has these. A package adds its own files, which may use what these define.
_SHARED_STYLES = (_OWN / "page.css",)
_SHARED_SCRIPTS = tuple(
    _OWN / f"{name}.js" for name in ("page", "figures", "charts", "cases", "tables")
)
# A figure with its sign, its decimals and its unit: `+3.1 %`, `x2.31`, `97.49 MiB`.
_FIGURE = re.compile(r"[^\d\s]?\d[\d,]*(?:\.(?P<decimals>\d+))?(?P<unit>\s\D.*)?")
# The width of a decimal point, in digits.
_POINT = 0.5
# A word of a name, with the character that follows it.
_PIECE = re.compile(r"[^/_\-:,]*[/_\-:,]*")
_DOCS = Link("how to read this page", page_url("html-report"))


@cache
def _packed_plotly() -> str:
    from plotly.offline import get_plotlyjs

    return pack(get_plotlyjs())


_NO_CHARTS = Drawn(Drawings(needs_plotly=False), lambda: {"models": [], "start": 0})


def render_page(report: Report) -> str:
    # Both are installed only with the extra for pages.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def made_printable(value: object) -> object:
        # A subclass of str is markup that this package made.
        return printable(value) if isinstance(value, str) and value.__class__ is str else value

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=made_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    def breakable(name: str) -> str:
        return Markup("<wbr>").join(filter(None, _PIECE.findall(printable(name))))

    environment.filters.update(typeset=typeset, breakable=breakable, pads=pads, spans=spans)
    drawn = report.drawn or _NO_CHARTS
    drawings = drawn.drawings
    shared, packed_cases = _pack_cases(drawn.data(), drawings.of_case)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(
        report=report,
        page_links=(*report.links, _DOCS),
        parts=drawings.parts,
        version=__version__,
        # Text of this package, which needs no escaping.
        styles=[Markup(text) for text in _read((*_SHARED_STYLES, *drawings.styles))],  # noqa: S704
        scripts=[Markup(text) for text in _read((*_SHARED_SCRIPTS, *drawings.scripts))],  # noqa: S704
        plotly=_packed_plotly() if drawings.needs_plotly else None,
        data=pack(dump_data(shared)),
        packed_cases=packed_cases,
    )


def pads(table: Table) -> Sequence[Sequence[float]]:
    """Return the room in digits after each figure, for each row and the total.

    It puts the decimal points of a column below one another. A column of several units has none.
    """
    rows = table.rows if table.total is None else (*table.rows, table.total)
    columns = [
        [0.0 for _ in rows] if column.holds_text else _pads_of([row[at] for row in rows])
        for at, column in enumerate(table.columns)
    ]
    return list(zip(*columns, strict=True))


def spans(row: Sequence[str], table: Table) -> Sequence[int]:
    """Return the number of columns of each cell, or 0 if another one takes its room.

    A text after a verdict, such as a reason, takes that of the empty cells that follow it.
    """
    counts = [1 for _ in row]
    columns = zip(table.columns, table.columns[1:], strict=False)
    for at, (before, column) in enumerate(columns, start=1):
        if before.is_verdict and column.holds_text and row[at]:
            end = next((each for each in range(at + 1, len(row)) if row[each]), len(row))
            counts[at:end] = [end - at, *[0] * (end - at - 1)]
    return counts


def _pads_of(texts: Sequence[str]) -> Sequence[float]:
    found = [_FIGURE.fullmatch(text) for text in texts]
    if len({figure["unit"] for figure in found if figure}) != 1:
        return [0.0 for _ in texts]
    widths = [
        _POINT + len(figure["decimals"] or "") if figure and figure["decimals"] else 0.0
        for figure in found
    ]
    return [
        max(widths) - width if figure else 0.0 for figure, width in zip(found, widths, strict=True)
    ]


def _pack_cases(
    data: Mapping[str, Any], keys: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the data without these keys of its cases, and the packed keys.

    The packed keys are under the ids of their scripts.
    """
    packed = {}
    models = []
    for model_at, model in enumerate(data["models"]):
        cases = []
        for case_at, case in enumerate(model["cases"]):
            cases.append({key: value for key, value in case.items() if key not in keys})
            own = {key: case[key] for key in keys if key in case}
            if own:
                packed[f"data-{model_at}-{case_at}"] = pack(dump_data(own))
        models.append({**model, "cases": cases})
    return {**data, "models": models}, packed


def dump_data(data: Mapping[str, Any]) -> str:
    """Return the data as ASCII JSON, in which a browser reads even lone surrogates unchanged."""
    try:
        return _dumped(data)
    except ValueError:
        # The data have NaN or infinity, which is rare. A search in all data would take longer than
        # all the rest.
        return _dumped(to_json(data))


def _dumped(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def pack(text: str) -> str:
    """Compress text with gzip and encode it in base64. Equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _read(paths: Sequence[Path]) -> list[str]:
    return [path.read_text("utf-8") for path in paths]


# -- the packages that only the HTML report needs


def check_html_extra(option: str, *, needs_plotly: bool = True) -> None:
    """Raise UsageError if a page could not be made, before any measurement for it."""
    packages = ("plotly", "jinja2") if needs_plotly else ("jinja2",)
    if any(find_spec(name) is None for name in packages):
        raise UsageError(
            f"{option} needs {' and '.join(packages)}: pip install 'pytest-modelperf[report]'"
        )
