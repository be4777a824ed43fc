"""A report as text: of a terminal, as Markdown, or for a notebook, by the style that is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.model import (
    Block,
    Code,
    Failure,
    Line,
    Paragraph,
    Report,
    Rows,
    Section,
    Tone,
)
from pytest_modelperf.report.page import Page, PageStyle
from pytest_modelperf.report.tables import map_texts
from pytest_modelperf.text.escaping import indented_lines, printable

COLORS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow", Tone.PLAIN: ""}
# Lines are not indented below a longer word, which may be the name of a case.
_MOST_INDENT = 16


def render_report(report: Report, style: PageStyle, *, has_details: bool = True) -> str:
    page = style.page()
    if report.subject:
        page.sentence(printable(report.subject), style=_style(report.tone, is_bold=True))
    _write_lines(page, report.opening)
    write_blocks(page, report.blocks, has_details=has_details)
    if report.closing:
        page.line("")
        _write_lines(page, report.closing)
    return page.text()


def write_blocks(
    page: Page, blocks: Sequence[Block], *, has_details: bool = True, is_below_title: bool = False
) -> None:
    """Write what a text shows of these blocks. A section that is the only one has no title."""
    shown = [b for b in blocks if b.is_in_text and (has_details or not b.is_detail)]
    is_titled = len(shown) > 1
    for at, block in enumerate(shown):
        if not isinstance(block, Section):
            _write_block(page, block, has_gap=at > 0 or not is_below_title)
            continue
        if is_titled:
            page.line("")
            title = " ".join(filter(None, (block.title, block.word)))
            page.line(printable(title), "bold")
        write_blocks(page, block.blocks, has_details=has_details, is_below_title=is_titled)


def _write_block(page: Page, block: Block, *, has_gap: bool) -> None:
    if has_gap and isinstance(block, Paragraph | Failure):
        page.line("")
    match block:
        case Rows():
            styles = [COLORS[tone] for tone in block.tones]
            page.table(map_texts(block.table, printable), row_styles=styles)
        case Paragraph():
            _write_lines(page, block.lines)
        case Code(is_command=True):
            command = printable(block.text)
            for line in fold_command(printable(block.title), command, page.width):
                page.line(line)
        case Code():
            page.line("")
            page.code(printable(block.title), list(map(printable, block.text.splitlines())))
        case Failure():
            for line in indented_lines(block.text):
                page.item(line, style=COLORS[Tone.BAD])


def _write_lines(page: Page, lines: Iterable[Line]) -> None:
    for line in lines:
        if not line.is_in_text:
            continue
        indent = len(line.word) + 2
        page.sentence(
            printable(_with_word(line)),
            indent=indent if indent <= _MOST_INDENT else 2,
            style=_style(line.tone, is_bold=line.is_bold),
        )


def _style(tone: Tone, *, is_bold: bool) -> str:
    return f"{'bold' if is_bold else ''} {COLORS[tone]}".strip()


def _with_word(line: Line) -> str:
    """`why: 12 fusions lost`."""
    return f"{line.word}: {line.text}" if line.word else line.text
