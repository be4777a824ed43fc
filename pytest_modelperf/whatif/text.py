"""The terminal report of a what-if: its levels, with their layer types and layers."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.profiler.shown.tables.static import describe_model
from pytest_modelperf.report.page import Page, PageStyle, write_items
from pytest_modelperf.text.escaping import indented_lines, printable
from pytest_modelperf.text.words import count_of
from pytest_modelperf.whatif.outputs import judged_lines
from pytest_modelperf.whatif.records import VariantKind, WhatIf, WhatIfCase
from pytest_modelperf.whatif.tables import (
    OTHER_OUTPUTS,
    View,
    layer_level_tables,
    layer_type_level_tables,
    level_tables,
    output_change_table,
    summary_table,
    verdict_of,
)

SPEED_ONLY = "speed only: what a variant does to accuracy is not measured"
_STYLES = {"faster": "green", "slower": "red", "failed": "red", OTHER_OUTPUTS: "red"}
_CHANGED = {
    VariantKind.PRUNED: "pruned weights",
    VariantKind.NARROWED: "removed channels",
}


class WhatIfView(Struct, frozen=True):
    """How many layers to show, how to show their times, and how to see all layers."""

    top: int | None = None
    times: View = View.MS
    for_all: str = "--top 0 shows all"


def write_fact(page: Page, word: str, text: str, style: str = "") -> None:
    page.sentence(f"{word}: {text}" if word else text, indent=len(word) + 2, style=style)


def render_whatif(whatif: WhatIf, view: WhatIfView, style: PageStyle) -> str:
    """The whole report: the levels of each case, their explanation, and the method."""
    page = style.page()
    page.line(describe_model(whatif.model), "bold")
    if whatif.machine is not None:
        page.item(describe_machine_line(whatif.machine))
    if whatif.engine is not None:
        page.item(describe_engine(whatif.engine))
    page.table(summary_table(whatif.cases))
    for case in whatif.cases:
        if len(whatif.cases) > 1:
            page.line("")
            page.line(printable(case.id), "bold")
        _write_case(page, whatif, case, view)
    page.line("")
    write_fact(page, "how", _method(whatif))
    page.sentence(SPEED_ONLY, style="yellow")
    return page.text()


def _write_case(page: Page, whatif: WhatIf, case: WhatIfCase, view: WhatIfView) -> None:
    styles = [_STYLES.get(verdict_of(level), "") for level in case.levels]
    for table in level_tables(case, whatif.confidence, page.width):
        page.table(table, row_styles=styles)
    write_items(page, [*failed_lines(case), *judged_lines(case)], "red")
    for table in layer_type_level_tables(case, view.times, page.width):
        page.table(table)
    for table in layer_level_tables(case, view.times, page.width, view.top, view.for_all):
        page.table(table)
    outputs = output_change_table(case)
    if outputs is not None:
        page.table(outputs)
    notes = list(_notes(case))
    if notes:
        page.line("")
    for line in notes:
        write_fact(page, "note", line)


def failed_lines(case: WhatIfCase) -> Iterator[str]:
    """The levels without a time and their reasons; levels with the same reason share a line."""
    about: dict[str, list[str]] = {}
    for level in case.levels:
        if level.failure is not None:
            about.setdefault(level.failure, []).append(level.title)
    for reason, titles in about.items():
        yield from indented_lines(f"{printable(', '.join(titles))}: {reason}")


def _notes(case: WhatIfCase) -> Iterator[str]:
    """The notes of the case and of its levels, each once, and outputs that were not compared."""
    about: dict[str, list[str]] = {}
    for level in case.levels:
        for note in level.notes:
            about.setdefault(note, []).append(level.title)
    yield from map(printable, case.notes)
    for note, titles in about.items():
        yield printable(f"{', '.join(titles)}: {note}")
    for level in case.levels:
        for output in level.outputs:
            if output.difference is not None:
                yield printable(f"{level.title}: output {output.name}: {output.difference}")
    yield from uncompared_lines(case)


def uncompared_lines(case: WhatIfCase) -> Iterator[str]:
    """Why the outputs of some variants are not compared."""
    kinds = {level.variant.kind for level in case.levels if level.variant and level.ms is not None}
    changed = [words for kind, words in _CHANGED.items() if kind in kinds]
    if changed:
        yield f"outputs with {' and '.join(changed)} mean nothing, so they are not compared"


def _method(whatif: WhatIf) -> str:
    levels = [level for case in whatif.cases for level in case.levels if level.rounds is not None]
    rounds = sum(level.rounds or 0 for level in levels)
    return (
        f"{count_of(rounds, 'round')} in {count_of(len(levels), 'duet')} of a variant and the "
        f"unchanged model, {whatif.seconds:.1f} s; "
        "the time of a variant is the time of the unchanged model times their ratio"
    )
