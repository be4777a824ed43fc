"""A picture as a Mermaid flowchart, which GitHub and GitLab draw within Markdown.

A comment cannot hold an SVG, and uploading a picture to another server would need the right to do
so. Names come from model files, so characters with a meaning in Mermaid are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytest_modelperf.report.picture.layout import SeenBox
from pytest_modelperf.report.picture.records import BoxState
from pytest_modelperf.text.units import change_decimals

# More boxes would not be readable in a comment.
MOST_BOXES = 40
_MOST_CHARACTERS = 40
_TOLD = frozenset({BoxState.NEW, BoxState.GONE})
# The characters kept cannot end a quoted label, or form a link, a tag or a character reference.
_OTHERS = re.compile(r"[^\w .,:/+()-]", re.ASCII)
# These frames and fills work on dark and light themes, because the texts have a fixed colour, too.
_CLASSES = {
    "slower": "fill:#fde4e1,stroke:#b3261e,color:#1b1f23",
    "faster": "fill:#dff3e6,stroke:#18733f,color:#1b1f23",
    "new": "fill:#fdebdd,stroke:#c2500a,color:#1b1f23,stroke-width:2px",
    "gone": "fill:#e1effa,stroke:#0a6aa8,color:#1b1f23,stroke-dasharray:5 4",
}


def render_mermaid(boxes: Sequence[SeenBox]) -> str:
    """Return the flowchart as a block of Markdown.

    It is empty without boxes, or with too many.
    """
    if not 0 < len(boxes) <= MOST_BOXES:
        return ""
    return "\n".join(["```mermaid", "flowchart TD", *_lines(boxes), "```"])


def _lines(boxes: Sequence[SeenBox]) -> Iterator[str]:
    used = set()
    places = range(len(boxes))
    for index, box in enumerate(boxes):
        kind = _kind(box)
        used.add(kind)
        left, right = ("[[", "]]") if box.kernels > 1 else ("[", "]")
        yield f'  k{index}{left}"{_label(box)}"{right}{kind and f":::{kind}"}'
        yield from (f"  k{feeder} --> k{index}" for feeder in box.inputs if feeder in places)
    yield from (f"  classDef {name} {look}" for name, look in _CLASSES.items() if name in used)


def _label(box: SeenBox) -> str:
    if box.kernels > 1:
        return f"{box.kernels:,} unchanged kernels"
    name = "" if box.name == box.op_type else _plain(box.name)
    change = ""
    if box.change_ms is not None:
        change = f"{box.change_ms:+.{change_decimals(box.change_ms * 1e6)}f} ms"
    state = box.state.value if box.state in _TOLD else ""
    words = [_plain(box.op_type), name, state, change]
    return "<br>".join(filter(None, words))


def _plain(text: str) -> str:
    """Return the end of a text, in which long names differ, with special characters replaced."""
    shown = _OTHERS.sub("·", text)
    return shown if len(shown) <= _MOST_CHARACTERS else f"…{shown[1 - _MOST_CHARACTERS :]}"


def _kind(box: SeenBox) -> str:
    if box.state in _TOLD:
        return box.state.value
    if not box.change_ms:
        return ""
    return "slower" if box.change_ms > 0 else "faster"
