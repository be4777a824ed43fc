"""The parts of a report, however deep they are nested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_modelperf.report.model import Code, Line, Paragraph, Report, ReportBlock, Rows, Section
from pytest_modelperf.report.tables import Table


def tables_of(report: Report) -> Sequence[Table]:
    return [block.table for block in _nested(report.blocks) if isinstance(block, Rows)]


def lines_of(report: Report) -> Sequence[Line]:
    blocks = _nested(report.blocks)
    return [line for block in blocks if isinstance(block, Paragraph) for line in block.lines]


def facts_of(report: Report) -> Sequence[tuple[str, str]]:
    """The lines that are about a word, with that word."""
    return [(line.word, line.text) for line in lines_of(report) if line.word]


def commands_of(report: Report) -> dict[str, str]:
    """The code and the commands to copy, by their titles."""
    return {block.title: block.text for block in _nested(report.blocks) if isinstance(block, Code)}


def _nested(blocks: Sequence[ReportBlock]) -> Iterator[ReportBlock]:
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from _nested(block.blocks)
