"""A report as text: of a terminal, as Markdown, or for a notebook, by the style that is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.report.model import (
    Block,
    Code,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    Rows,
    Section,
    Tone,
)
from pytest_modelperf.report.page import Page, PageStyle
from pytest_modelperf.report.tables import map_texts, transpose_table
from pytest_modelperf.text.escaping import indented_lines, printable

_DETAILS = "Details"
COLORS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow", Tone.PLAIN: ""}


def render_report(report: Report, style: PageStyle, *, has_details: bool = True) -> str:
    """The report as text; without its details, a terminal shows what comes first alone."""
    page = style.page()
    writer = _Writer(page, style.face, has_details=has_details)
    if report.subject:
        page.sentence(printable(report.subject), style=_style(report.tone, is_bold=True))
    writer.write_lines(report.opening)
    writer.write_blocks(report.blocks)
    if any(style.face in line.on for line in report.closing):
        page.line("")
        writer.write_lines(report.closing)
    return page.text()


class _Writer:
    """Writes the blocks of one face on a page."""

    def __init__(self, page: Page, face: On, *, has_details: bool) -> None:
        self._page = page
        self._face = face
        self._has_details = has_details

    def write_blocks(self, blocks: Sequence[Block]) -> None:
        """Write these blocks. A section that is alone and has no verdict has no title."""
        shown = [b for b in blocks if self._face in b.on and (self._has_details or not b.is_detail)]
        first, details = shown, list[Block]()
        if self._face is On.MARKDOWN:
            first = [block for block in shown if not block.is_detail]
            details = [block for block in shown if block.is_detail]
        is_alone = sum(isinstance(block, Section) for block in shown) == 1
        for block in first:
            if isinstance(block, Section):
                self._write_section(block, is_alone=is_alone)
            else:
                self._write_block(block)
        if details:
            self._page.fold(_DETAILS, lambda: self._write_all(details))

    def _write_all(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._write_block(block)

    def _write_section(self, section: Section, *, is_alone: bool) -> None:
        page, title = self._page, printable(_title_of(section))
        if self._face is On.MARKDOWN and not section.is_open:
            page.fold(title, lambda: self.write_blocks(section.blocks))
            return
        if section.word or not is_alone:
            page.line("")
            page.sentence(title, style=_style(section.tone, is_bold=True))
        self.write_blocks(section.blocks)

    def write_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._face in line.on:
                self._page.sentence(
                    printable(_with_word(line)),
                    indent=len(line.word) + 2,
                    style=_style(line.tone, is_bold=line.is_bold),
                )

    def _write_block(self, block: Block) -> None:
        page = self._page
        match block:
            case Rows():
                styles = [COLORS[tone] for tone in block.tones]
                table = map_texts(block.table, printable)
                tables = [table, transpose_table(table), table] if block.may_turn else [table]
                page.table(*tables, row_styles=styles)
            case Paragraph():
                page.line("")
                self.write_lines(block.lines)
            case Code(is_command=True):
                page.command(printable(block.title), printable(block.text))
            case Code():
                page.line("")
                page.code(printable(block.title), list(map(printable, block.text.splitlines())))
            case Failure():
                page.failure(indented_lines(block.text))


def _title_of(section: Section) -> str:
    """`b8-c2 regressed: p50 latency +11.8 %`."""
    if not section.word:
        return section.title
    return ": ".join(filter(None, (f"{section.title} {section.word}".strip(), section.sentence)))


def _style(tone: Tone, *, is_bold: bool) -> str:
    return f"{'bold' if is_bold else ''} {COLORS[tone]}".strip()


def _with_word(line: Line) -> str:
    """`why: 12 fusions lost`."""
    return f"{line.word}: {line.text}" if line.word else line.text
