"""The picture as a file: well formed, alone, and with everything that is on a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from inline_snapshot import snapshot

from pytest_modelperf.report.picture.drawn import render_svg
from pytest_modelperf.report.picture.records import Box, BoxState, ChangedPart, Picture

_SVG = "{http://www.w3.org/2000/svg}"


def _boxes(count: int, state: BoxState = BoxState.SAME) -> tuple[Box, ...]:
    return tuple(
        Box(
            op_type="Conv", name=f"conv{at}", inputs=(at - 1,) if at else (),
            values=(1.0, 1.5), state=state if at == 5 else BoxState.SAME,
            part=0 if at == 5 else None,
        )
        for at in range(count)
    )  # fmt: skip


_PAIR = Picture(
    _boxes(11, BoxState.CHANGED), sides=("A", "B"), parts=(ChangedPart("why", 0.5, (0.4, 0.6)),)
)


def _texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{_SVG}text")]  # noqa: S314  # our own


def test_a_pair_shows_its_change_in_context_and_folds_the_rest() -> None:
    assert _texts(render_svg(_PAIR, "old → new", "b1-c1 slower")) == snapshot(
        [
            "old → new",
            "b1-c1 slower",
            "+0.500 ms (+0.400 … +0.600)",
            "4 kernels",
            "6.000 ms",
            "unchanged",
            "Conv",
            "conv4",
            "Conv",
            "+0.500 ms",
            "conv5",
            "Conv",
            "conv6",
            "4 kernels",
            "6.000 ms",
            "unchanged",
            "green: faster, red: slower, by up to 0.500 ms; dashed: gone, orange: new",
        ]
    )


def test_one_model_shows_the_figure_of_each_kernel() -> None:
    boxes = tuple(Box(op_type="Relu", name=f"r{at}", values=(float(at),)) for at in range(3))
    texts = _texts(render_svg(Picture(boxes), "m"))
    assert [text for text in texts if text.endswith("ms")] == [
        "0.000 ms", "1.000 ms", "2.000 ms", "red: up to 2.000 ms",
    ]  # fmt: skip


def test_the_file_needs_no_other_and_runs_nothing() -> None:
    svg = render_svg(_PAIR, "m")
    assert not re.search(r"<script|href|url\(|@import|<image", svg)
    assert "prefers-color-scheme: dark" in svg


def test_names_do_not_become_markup() -> None:
    name = "</text><script>alert(1)</script>\x1b[31m&"
    svg = render_svg(Picture((Box(op_type=name, name=name, values=(1.0,)),)), name, name)
    assert "<script" not in svg
    assert any("<script>" in text for text in _texts(svg))


def test_without_boxes_the_reason_is_in_their_place() -> None:
    assert _texts(render_svg(Picture((), reason="Nothing differs."), "m", "b1-c1")) == [
        "m", "b1-c1", "Nothing differs.",
    ]  # fmt: skip


def test_no_line_is_drawn_twice_and_none_inside_a_fold() -> None:
    lines = re.findall(r'class="line [^"]*" d="([^"]*)"', render_svg(_PAIR, "m"))
    assert len(lines) == len(set(lines)) == 4
