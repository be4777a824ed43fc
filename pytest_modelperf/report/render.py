"""A report as text: of a terminal, as Markdown, or for a notebook, by the style that is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.report.model import Block, Code, Line, Paragraph, Report, Rows, Tone
from pytest_modelperf.report.page import Page, PageStyle
from pytest_modelperf.report.tables import map_texts
from pytest_modelperf.text.escaping import indented_lines, printable

_COLORS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow", Tone.PLAIN: ""}


def render_report(report: Report, style: PageStyle) -> str:
    page = style.page()
    page.sentence(printable(report.subject), style=f"bold {_COLORS[report.tone]}".strip())
    _write_lines(page, report.opening)
    for section in report.sections:
        if len(report.sections) > 1:
            page.line("")
            page.line(printable(section.title), "bold")
        for block in section.blocks:
            _write(page, block)
    if report.closing:
        page.line("")
        _write_lines(page, report.closing)
    return page.text()


def plain_lines(lines: Iterable[Line]) -> Sequence[str]:
    """The lines as text that is not folded."""
    return [shown for line in lines for shown in indented_lines(with_word(line))]


def _write(page: Page, block: Block) -> None:
    match block:
        case Rows():
            styles = [_COLORS[tone] for tone in block.tones]
            page.table(map_texts(block.table, printable), row_styles=styles)
        case Paragraph():
            page.line("")
            _write_lines(page, block.lines)
        case Code():
            page.line("")
            page.code(printable(block.title), list(map(printable, block.text.splitlines())))


def _write_lines(page: Page, lines: Iterable[Line]) -> None:
    for line in lines:
        style = f"{'bold' if line.is_bold else ''} {_COLORS[line.tone]}".strip()
        indent = len(line.word) + 2
        for shown in indented_lines(with_word(line)):
            page.sentence(shown, indent=indent, style=style)


def with_word(line: Line) -> str:
    """`why: 12 fusions lost`."""
    return f"{line.word}: {line.text}" if line.word else line.text
