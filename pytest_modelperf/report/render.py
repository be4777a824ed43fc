"""A report as text for a terminal, in Markdown or for a notebook, depending on the style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_modelperf.report.model import (
    Code,
    Failure,
    Line,
    On,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Tone,
)
from pytest_modelperf.report.page import Page, PageStyle
from pytest_modelperf.report.tables import map_texts, transpose_table, without_extras
from pytest_modelperf.text.escaping import indented_lines, printable

_DETAILS = "Details"
# Below a longer word, such as the name of a case, lines are not indented.
_MOST_INDENT = 16
COLORS = {
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.UNSURE: "yellow",
    Tone.PLAIN: "",
    Tone.DIM: "dim",
}


def render_report(report: Report, style: PageStyle, *, has_details: bool = True) -> str:
    """Return the report as text. `has_details` chooses between details and brief blocks."""
    page = style.page()
    writer = _Writer(page, style.face, has_details=has_details)
    subject = report.subject
    if not subject and style.face is On.MARKDOWN:
        subject = ": ".join(filter(None, (report.title, report.headline)))
    if subject:
        page.sentence(printable(subject), style=_style(report.tone, is_bold=True))
    writer.write_lines(report.opening)
    shown = tuple(line for line in report.opening if style.face in line.on)
    writer.write_blocks(report.blocks, Paragraph(shown) if shown else None)
    if any(style.face in line.on for line in report.closing):
        page.line("")
        writer.write_lines(report.closing)
    return page.text()


class _Writer:
    """A writer that puts the blocks for one form of output on a page."""

    def __init__(self, page: Page, face: On, *, has_details: bool) -> None:
        self._page = page
        self._face = face
        self._has_details = has_details

    def write_blocks(self, blocks: Sequence[ReportBlock], above: ReportBlock | None = None) -> None:
        """Write the blocks that this form of output shows, below the block `above`."""
        shown = [block for block in blocks if self._shows(block)]
        details: list[ReportBlock] = []
        for before, block in zip([above, *shown], shown, strict=False):
            if isinstance(block, Section):
                self._write_section(block, before)
                continue
            first, detail = self._parts_of(block)
            if first is not None:
                self._write_block(first, has_gap=_has_gap(before, block))
            if detail is not None:
                details.append(detail)
        if details:
            self._page.fold(_DETAILS, lambda: self._write_all(details))

    def _shows(self, block: ReportBlock) -> bool:
        is_left_out = block.is_brief if self._has_details else block.is_detail
        return block.is_on(self._face) and not is_left_out

    def _parts_of(self, block: ReportBlock) -> tuple[ReportBlock | None, ReportBlock | None]:
        """Return what is always visible, and what Markdown folds."""
        if self._face is not On.MARKDOWN:
            return block, None
        if block.is_detail:
            return None, block
        if not isinstance(block, Paragraph) or not any(line.is_detail for line in block.lines):
            return block, None
        first, detail = (
            tuple(line for line in block.lines if line.is_detail is is_detail)
            for is_detail in (False, True)
        )
        return (Paragraph(first) if first else None), Paragraph(detail)

    def _write_all(self, blocks: Sequence[ReportBlock]) -> None:
        for block in blocks:
            self._write_block(block, has_gap=True)

    def _write_section(self, section: Section, above: ReportBlock | None) -> None:
        page, title = self._page, printable(_title_of(section))
        if self._face is On.MARKDOWN and section.is_detail:
            page.fold(title, lambda: self.write_blocks(section.blocks))
            return
        if section.is_titled:
            page.line("")
            page.sentence(title, style=_style(section.tone, is_bold=True))
            above = None
        self.write_blocks(section.blocks, above)

    def write_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._shows(line):
                indent = len(line.word) + 2
                self._page.sentence(
                    printable(f"{line.word}: {line.text}" if line.word else line.text),
                    indent=indent if indent <= _MOST_INDENT else 2,
                    style=_style(line.tone, is_bold=line.is_bold),
                )

    def _write_block(self, block: ReportBlock, *, has_gap: bool) -> None:
        page = self._page
        if has_gap and isinstance(block, Paragraph | Failure):
            page.line("")
        match block:
            case Rows():
                styles = [COLORS[tone] for tone in block.tones]
                table = block.table if page.is_bounded else without_extras(block.table)
                table = map_texts(table, printable)
                tables = [table, transpose_table(table), table] if block.may_turn else [table]
                page.table(*tables, row_styles=styles)
            case Paragraph():
                self.write_lines(block.lines)
            case Code(is_command=True):
                page.command(printable(block.title), printable(block.text))
            case Code():
                page.line("")
                page.code(printable(block.title), list(map(printable, block.text.splitlines())))
            case Failure():
                page.failure(indented_lines(block.text))


def _has_gap(before: ReportBlock | None, block: ReportBlock) -> bool:
    """Whether a blank line separates two blocks of lines. Failures in a row are one list."""
    return before is not None and not (isinstance(before, Failure) and isinstance(block, Failure))


def _title_of(section: Section) -> str:
    """Return a title such as `b8-c2 regressed: p50 latency +11.8 %`."""
    if not section.word:
        return section.title
    return ": ".join(filter(None, (f"{section.title} {section.word}".strip(), section.sentence)))


def _style(tone: Tone, *, is_bold: bool) -> str:
    return f"{'bold' if is_bold else ''} {COLORS[tone]}".strip()
