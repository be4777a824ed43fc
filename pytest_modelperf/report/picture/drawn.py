"""A picture of a graph as data for a page's script, as a Mermaid flowchart and as an SVG file.

A comment cannot hold an SVG, and an upload to another server would need a permission. Names come
from model files, so characters with a meaning in Mermaid are replaced.

The SVG has no script and loads nothing. Every SVG program knows its plain colours; a browser uses
other colours in dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import sqrt

from msgspec import Struct

from pytest_modelperf.report.picture.layout import Item, SeenBox, fold, items_of, lay_out
from pytest_modelperf.report.picture.records import Box, BoxState, ChangedPart, Picture
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import change_decimals, format_count, table_decimals

# Times are rounded to a nanosecond.
_DECIMALS = 6


def picture_entry(picture: Picture) -> dict[str, object]:
    """Return a list for each kind of fact, all with the boxes in the same order."""
    if not picture.boxes:
        return {"reason": picture.reason}
    boxes = picture.boxes
    layout = lay_out([box.inputs for box in boxes])
    types = list(dict.fromkeys(box.op_type for box in boxes))
    at = {op: index for index, op in enumerate(types)}
    states = list(BoxState)
    values = [[_rounded(box.values[side]) for box in boxes] for side in range(len(picture.sides))]
    figures = [_rounded(_figure(box)) for box in boxes]
    return {
        "unit": picture.unit,
        "types": types,
        "type": [at[box.op_type] for box in boxes],
        "layer": [box.row for box in boxes],
        "inputs": [box.inputs for box in boxes],
        # The few lines of only one side between boxes of both sides.
        "only": [
            {at: box.only_before for at, box in enumerate(boxes) if box.only_before},
            {at: box.only_after for at, box in enumerate(boxes) if box.only_after},
        ],
        "values": values,
        "figure": figures,
        "most": max((abs(figure) for figure in figures if figure is not None), default=0.0),
        "total": max((sum(value or 0.0 for value in each) for each in values), default=0.0),
        "state": [states.index(box.state) for box in boxes],
        "is_layout": [int(box.is_layout) for box in boxes],
        # Kernels that are the same on both sides, and whose difference may be chance.
        "is_still": [
            int(box.state is BoxState.SAME and box.part is None and not box.is_clear)
            for box in boxes
        ],
        "part": [box.part for box in boxes],
        "rows": layout.rows,
        "lane": layout.lanes,
        "way": layout.ways,
        "folds": [[rows[0], rows[-1]] for rows in fold(picture, layout)],
        "parts": [
            {"text": part.text, "change_ms": part.change_ms, "interval_ms": part.interval_ms}
            for part in picture.parts
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


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
    """Return the end of a text with special characters replaced. Long names differ there."""
    shown = _OTHERS.sub("·", text)
    return shown if len(shown) <= _MOST_CHARACTERS else f"…{shown[1 - _MOST_CHARACTERS :]}"


def _kind(box: SeenBox) -> str:
    if box.state in _TOLD:
        return box.state.value
    if not box.change_ms:
        return ""
    return "slower" if box.change_ms > 0 else "faster"


_WIDTH, _HEIGHT = 200, 46
_LANE, _ROW = 228, 78
_MARGIN = 24
_HEAD = 58
_FOOT = 34
_LEAST_WIDTH = 460
_TITLE, _NAME = 25, 29
_NO_KERNELS = "The kernels of this case were not timed."
# The number of steps in which colours are mixed.
_STEPS = 9
_MOST_MIXED = 0.55


class _Theme(Struct, frozen=True):
    """The colours of one theme. `colors` has those of states and changes, by name."""

    paper: str
    box: str
    text: str
    muted: str
    colors: Mapping[str, str]


_LIGHT = _Theme(
    "#ffffff", "#f5f6f7", "#1b1f23", "#5c656d",
    {"a": "#0a6aa8", "b": "#c2500a", "worse": "#b3261e", "better": "#18733f", "unsure": "#7d5a00"},
)  # fmt: skip
_DARK = _Theme(
    "#14171a", "#1d2125", "#dfe3e6", "#98a2ab",
    {"a": "#62b0ea", "b": "#f29a5c", "worse": "#ff8a80", "better": "#58c48a", "unsure": "#e0b64d"},
)  # fmt: skip
_STATES: Mapping[BoxState, str] = {
    BoxState.CHANGED: "changed",
    BoxState.REFUSED: "unsure",
    BoxState.NEW: "b",
    BoxState.GONE: "a",
}


def render_svg(picture: Picture, title: str, subtitle: str = "") -> str:
    """Return the picture with unchanged stretches folded, or the reason if it has no boxes."""
    if picture.boxes:
        drawing = _Drawing(picture)
        return _whole(title, subtitle, drawing.width, drawing.height, drawing.parts())
    reason = _words("op", _MARGIN, _HEAD + 18, picture.reason or _NO_KERNELS)
    return _whole(title, subtitle, _LEAST_WIDTH, _HEAD + _MARGIN * 2, [reason])


def _whole(title: str, subtitle: str, width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{_clean(title)}" '
        'font-family="system-ui, sans-serif" font-size="11.5">'
    )
    return "\n".join(
        [
            head,
            f"<style>{_style()}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            _words("title", _MARGIN, 26, title, 'font-size="15"'),
            _words("muted", _MARGIN, 44, subtitle),
            *parts,
            "</svg>\n",
        ]
    )


# A line from one item to another, the lane that it takes, and the side if only one has it.
_Edge = tuple[Item, Item, int | None, str]


class _Drawing:
    """The places of all items, and their contents."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._layout = lay_out([box.inputs for box in picture.boxes])
        self._shown = items_of(picture, self._layout)
        self._items = list(dict.fromkeys(self._shown))
        figures = [abs(_figure(box) or 0.0) for box in picture.boxes]
        # Folded boxes leave lanes empty, so the used lanes move closer together.
        ways = {edge[2] for edge in self._edges() if edge[2] is not None}
        lanes = sorted({*(item.lane for item in self._items), *ways})
        self._x = {lane: place * _LANE for place, lane in enumerate(lanes)}
        self._most = max(figures, default=0.0) or 1.0
        total = max(
            sum(box.values[side] or 0.0 for box in picture.boxes)
            for side in range(len(picture.sides))
        )
        self._total = total or 1.0
        self._decimals = table_decimals(1e6 * total)

    @property
    def width(self) -> int:
        return max(_LEAST_WIDTH, max(self._x.values()) + _WIDTH + 2 * _MARGIN)

    @property
    def height(self) -> int:
        last = max(item.line for item in self._items)
        return _HEAD + last * _ROW + _HEIGHT + _FOOT + _MARGIN

    def parts(self) -> list[str]:
        edges = self._edges()
        return [
            f'<g transform="translate({_MARGIN} {_HEAD})">',
            *self._frames(),
            *(self._line(*edge) for edge in edges),
            *(self._box(item) for item in self._items),
            "</g>",
            _words("muted", _MARGIN, self.height - _MARGIN + 4, self._legend()),
        ]

    def _legend(self) -> str:
        most = self._value(self._most)
        if self._picture.is_pair:
            return f"green: faster, red: slower, by up to {most}; dashed: gone, orange: new"
        return f"red: up to {most}"

    # -- figures

    def _value(self, value: float) -> str:
        if self._picture.unit == "ms":
            return f"{value:.{self._decimals}f} ms"
        return f"{format_count(round(value))} {self._picture.unit}"

    def _change(self, value: float) -> str:
        sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else ""
        return f"{sign}{self._value(abs(value))}"

    # -- boxes

    def _box(self, item: Item) -> str:
        if item.is_fold:
            return self._fold(item)
        box = self._picture.boxes[item.boxes[0]]
        value = _figure(box)
        is_shown = value is not None and not (self._picture.is_pair and box.is_still)
        shown = value or 0.0
        figure = ""
        if is_shown:
            figure = self._change(shown) if self._picture.is_pair else self._value(shown)
        # By the square root, so that the others keep a visible colour next to a large kernel.
        heat = round(_STEPS * sqrt(abs(shown) / self._most)) if is_shown else 0
        tone = "better" if self._picture.is_pair and shown < 0 else "worse"
        name = "" if box.name == box.op_type else _end(box.name)
        corner = _HEIGHT // 2 if box.is_layout else 4
        return (
            f'<g transform="translate({self._x[item.lane]} {item.line * _ROW})">'
            f"<title>{_clean(f'{box.op_type} {box.name} {figure}')}</title>"
            f'<rect class="box {tone}{heat} {_STATES.get(box.state, "")}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="{corner}"/>'
            f"{'' if box.is_layout else self._bar((box.values[-1] or 0.0) / self._total)}"
            f"{_words('op', 9, 18, _cut(box.op_type, _TITLE - len(figure)))}"
            f"{_words('end', _WIDTH - 9, 18, figure)}"
            f"{_words('name', 9, 35, name)}</g>"
        )

    def _fold(self, item: Item) -> str:
        values = [self._picture.boxes[box].values[-1] or 0.0 for box in item.boxes]
        total = self._value(sum(values))
        kind = "unchanged" if self._picture.is_pair else "taking little"
        return (
            f'<g transform="translate({self._x[item.lane]} {item.line * _ROW})">'
            f'<rect class="box" x="4" y="4" width="{_WIDTH}" height="{_HEIGHT}"/>'
            f'<rect class="box" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
            f"{self._bar(sum(values) / self._total)}"
            f"{_words('op', 9, 18, f'{len(item.boxes):,} kernels')}"
            f"{_words('end', _WIDTH - 9, 18, total)}{_words('muted', 9, 35, kind)}</g>"
        )

    def _bar(self, share: float) -> str:
        width = round(share * _WIDTH, 1)
        return f'<rect class="bar" y="{_HEIGHT - 4}" width="{width}" height="4"/>' if width else ""

    # -- lines and frames

    def _edges(self) -> list[_Edge]:
        found: dict[_Edge, None] = {}
        for at, box in enumerate(self._picture.boxes):
            for feeder in box.inputs:
                start, end = self._shown[feeder], self._shown[at]
                way = self._layout.ways[feeder]
                is_long = end.line - start.line > 1 and way is not None
                if start is not end:
                    found[start, end, way if is_long else None, self._side_of(feeder, at)] = None
        return list(found)

    def _side_of(self, feeder: int, at: int) -> str:
        """Return the side if only one side has this line, or an empty text if both have it."""
        box = self._picture.boxes[at]
        states = {box.state, self._picture.boxes[feeder].state}
        if BoxState.GONE in states or feeder in box.only_before:
            return "a"
        return "b" if BoxState.NEW in states or feeder in box.only_after else ""

    def _line(self, start: Item, end: Item, way: int | None, side: str) -> str:
        half = _WIDTH / 2
        x0, y0 = self._x[start.lane] + half, start.line * _ROW + _HEIGHT
        x1, y1 = self._x[end.lane] + half, end.line * _ROW
        if way is None:
            path = _curve(x0, y0, x1, y1)
        else:
            x, gap = self._x[way] + half, _ROW - _HEIGHT
            path = f"{_curve(x0, y0, x, y0 + gap)}V{y1 - gap:g}{_curve(x, y1 - gap, x1, y1)}"
        return f'<path class="line {side}" d="M{x0:g} {y0:g}{path}"/>'

    def _frames(self) -> Iterator[str]:
        for number, part in enumerate(self._picture.parts):
            own = [
                self._shown[at] for at, box in enumerate(self._picture.boxes) if box.part == number
            ]
            if not own:
                continue
            across, down = [self._x[each.lane] for each in own], [each.line for each in own]
            left, top = min(across) - 9, min(down) * _ROW - 9
            width = max(across) + _WIDTH + 9 - left
            height = max(down) * _ROW + _HEIGHT + 9 - top
            low, high = part.interval_ms or (0.0, 0.0)
            tone = "worse" if low > 0 else "better" if high < 0 else ""
            yield (
                f'<rect class="frame {tone}" x="{left}" y="{top}" width="{width}" '
                f'height="{height}" rx="8"><title>{_clean(part.text)}</title></rect>'
                f"{_words(f'op above {tone}', left + 4, top - 5, self._part_text(part))}"
            )

    def _part_text(self, part: ChangedPart) -> str:
        text = self._change(part.change_ms)
        if part.interval_ms is None:
            return text
        low, high = (self._change(bound).removesuffix(" ms") for bound in part.interval_ms)
        return f"{text} ({low} … {high})"


def _figure(box: Box) -> float | None:
    return box.values[0] if len(box.values) == 1 else box.change


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    if x0 == x1:
        return f"V{y1:g}"
    middle = (y0 + y1) / 2
    return f"C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"


def _words(kind: str, x: float, y: float, text: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" {more}>{_clean(text)}</text>' if text else ""


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: max(1, length - 1)]}…"


def _end(name: str) -> str:
    """Cut a name at its start: names often begin alike and differ at the end."""
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"


def _clean(text: str) -> str:
    return escape(printable(text))


# -- colours


def _style() -> str:
    return "".join([*_rules(_LIGHT), "@media (prefers-color-scheme: dark) {", *_rules(_DARK), "}"])


def _rules(theme: _Theme) -> Iterator[str]:
    colors = {**theme.colors, "changed": theme.text}
    yield f".paper {{fill: {theme.paper}}} text {{fill: {theme.text}}}"
    yield f".muted {{fill: {theme.muted}; font-size: 11px}} .op, .title {{font-weight: 600}}"
    yield ".end {text-anchor: end} .name {font-size: 11px; fill-opacity: 0.8}"
    # An outline keeps the figure of a part readable if lines cross it.
    yield f".above {{paint-order: stroke; stroke: {theme.paper}; stroke-width: 4px}}"
    yield f".bar {{fill: {theme.muted}}}"
    yield f".box {{fill: {theme.box}; stroke: {_mixed(theme.box, theme.muted, 0.55)}}}"
    yield f".line {{fill: none; stroke: {theme.muted}; stroke-width: 1.3}}"
    yield f".frame {{fill: none; stroke: {theme.muted}; stroke-dasharray: 2 3}}"
    for tone in ("worse", "better"):
        yield f".frame.{tone} {{stroke: {colors[tone]}}} text.{tone} {{fill: {colors[tone]}}}"
        for step in range(1, _STEPS + 1):
            share = _MOST_MIXED * step / _STEPS
            yield f".{tone}{step} {{fill: {_mixed(theme.box, colors[tone], share)}}}"
    for name in _STATES.values():
        yield f".box.{name} {{stroke: {colors[name]}; stroke-width: 2.2}}"
    yield f".line.a {{stroke: {colors['a']}}} .line.b {{stroke: {colors['b']}}}"
    yield ".a {stroke-dasharray: 5 4} .unsure {stroke-dasharray: 9 3 2 3}"


def _mixed(one: str, other: str, share: float) -> str:
    """Mix two colours, with this share of the other one."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)
