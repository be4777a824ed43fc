"""Data and overview as one HTML file that needs nothing beside it, and no network.

plotly and the data are packed (gzip, base64): so a page is a third of its size, and whatever a
model calls its layers is not part of the markup.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pytest_modelperf.report.html.overview import Overview
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import __version__

# In this order: each may use what those above it define.
STYLES = (
    "page.css",
    "layers.css",
    "types.css",
    "kernel_filters.css",
    "kernels.css",
    "kernel_details.css",
    "precisions.css",
    "whatif.css",
)
SCRIPTS = (
    "page.js",
    "sides.js",
    "points.js",
    "chart.js",
    "time.js",
    "rounds.js",
    "figures.js",
    "tables.js",
    "layers.js",
    "types.js",
    "row_window.js",
    "kernel_filters.js",
    "kernel_details.js",
    "kernels.js",
    "precisions.js",
    "depth.js",
    "whatif_levels.js",
    "whatif_types.js",
    "whatif_layers.js",
    "whatif.js",
)


@cache
def _packed_plotly() -> str:
    from plotly.offline import get_plotlyjs

    return pack(get_plotlyjs())


def render_page(data: Mapping[str, Any], overview: Overview | None = None) -> str:
    """The page: what the overview says, and below it what the scripts draw of the data."""
    # Only whoever asks for a page has these installed.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def made_printable(value: object) -> object:
        # What is markup already is our own.
        return printable(value) if isinstance(value, str) and value.__class__ is str else value

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=made_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.from_string(_read("template.html"))
    return template.render(
        overview=overview or Overview(),
        version=__version__,
        # Ours, and no text of a model: it stands in the page as it is.
        styles=[Markup(_read(name)) for name in STYLES],  # noqa: S704  # as said above
        scripts=[Markup(_read(name)) for name in SCRIPTS],  # noqa: S704  # as said above
        plotly=_packed_plotly(),
        data=pack(dump_data(data)),
    )


def dump_data(data: Mapping[str, Any]) -> str:
    """JSON in ASCII, which a browser reads back to the same text, lone surrogates included."""
    return json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)


def pack(text: str) -> str:
    """The text as gzip in base64, the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _finite(value: Any) -> Any:  # noqa: ANN401  # whatever JSON can hold
    """The value with null for each number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
