"""A setup on a terminal: what was found, each change as a diff, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from pytest_modelperf.init.records import FileChange, Project, Remark
from pytest_modelperf.init.surveying import Survey
from pytest_modelperf.report.commands import fold_command
from pytest_modelperf.report.page import Page, TextStyle, write_items
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.sizing.records import FoundSizes
from pytest_modelperf.sizing.text import GUESSED
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_path
from pytest_modelperf.text.words import count_of, shorten_list

# Of many models, remarks or lines so many are shown.
_MOST_MODELS = 20
_MOST_REMARKS = 20
_MOST_LINES = 200
_MOST_SKIPPED = 8
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_COMMIT = 'git commit -m "Test the performance of models"'


def render_survey(survey: Survey, style: TextStyle) -> str:
    """The models, with the sizes that were found, and everything that was left out."""
    page = Page(style)
    project, search = survey.project, survey.search
    page.item(f"project: {printable(str(project.root))} ({project.reason})", style="bold")
    page.item(
        f"{count_of(len(search.models), 'model')} in {count_of(search.folders, 'folder')}"
        + _skipped(search.skipped)
    )
    if search.models:
        page.table(_models_table(survey))
        if any(found.guessed for found in survey.sizes.values()):
            page.item(GUESSED)
    _write_remarks(
        page,
        "models that did not run: write a table by hand where you know what they need",
        survey.unsized,
    )
    _write_remarks(page, "left out", search.remarks)
    return page.text()


def nothing_found(survey: Survey) -> str:
    """Why there is no model: where was looked, and what was skipped."""
    search = survey.search
    root = survey.project.root
    where = ", ".join(printable(str(root / path)) for path in search.looked)
    told = f"there is no ONNX model to test in {where}"
    if search.folders:
        folders = count_of(search.folders, "folder")
        told += f": {folders} searched for files named *.onnx{_skipped(search.skipped)}"
    parts = [f"{told}."]
    parts += [f"  {printable(each.path)}: {each.reason}" for each in search.remarks[:_MOST_REMARKS]]
    if len(search.remarks) > _MOST_REMARKS:
        parts.append(f"  and {len(search.remarks) - _MOST_REMARKS:,} more")
    parts.append("Export a model into the project, or name one: modelperf init models/model.onnx")
    return "\n".join(parts)


def render_change(change: FileChange, style: TextStyle) -> str:
    """The change to a file as a diff."""
    page = Page(style)
    name = printable(change.name)
    page.line("")
    page.item(f"{'new file' if change.before is None else 'changed'}: {name}", style="bold")
    before = [] if change.before is None else change.before.splitlines()
    lines = list(difflib.unified_diff(before, change.after.splitlines(), n=2, lineterm=""))
    # The first two name the file; the third says of a new one that it has no line yet.
    lines = lines[3 if change.before is None else 2 :]
    for line in lines[:_MOST_LINES]:
        page.item(printable(line), indent=4, style=_DIFF_STYLES.get(line[:1], "dim"))
    if len(lines) > _MOST_LINES:
        page.line(f"... and {count_of(len(lines) - _MOST_LINES, 'more line')}")
    return page.text()


def render_notes(notes: Sequence[str], style: TextStyle) -> str:
    page = Page(style)
    write_items(page, [f"note: {note}" for note in notes])
    return page.text() if notes else ""


def render_next(
    project: Project, files: Sequence[str], baselines: str, here: Path, style: TextStyle
) -> str:
    """The three commands that follow: record, commit, check. `files` are to be committed."""
    page = Page(style)
    page.line("")
    place = "" if here == project.root else f" in {printable(str(project.root))}"
    page.item(f"next, type{place}", style="bold cyan")
    begin = "git init && " if project.repository is None else ""
    added = " ".join(shell_path(path) for path in (*files, baselines))
    commands = {
        "record": "pytest --modelperf --modelperf-update-baseline",
        "commit": f"{begin}git add {added} && {_COMMIT}",
        "check": "pytest --modelperf",
    }
    for word, command in commands.items():
        for line in fold_command(word, command, page.width):
            page.line(line)
    return page.text()


def render_noise(answers: Sequence[str], style: TextStyle) -> str:
    page = Page(style)
    page.line("")
    for answer in answers:
        page.item(f"noise of this machine: {answer}")
    page.item("modelperf doctor says more, and what to do", style="dim")
    return page.text()


def sizes_text(found: FoundSizes) -> str:
    """The sizes of a table in one cell."""
    parts = [
        f"{printable(each.name)}={each.size}{' (a guess)' if each.is_guess else ''}"
        for each in found.dims
    ]
    parts += map(printable, found.input_texts)
    return ", ".join(parts)


def _models_table(survey: Survey) -> Table:
    rows = []
    for path in survey.search.models[:_MOST_MODELS]:
        if path in survey.sizes:
            rows.append((printable(path), "new", sizes_text(survey.sizes[path])))
        else:
            is_declared = path in survey.declared
            rows.append((printable(path), "there" if is_declared else "by hand", ""))
    left = len(survey.search.models) - _MOST_MODELS
    columns = (
        Column("model", is_text=True), Column("table", is_text=True), Column("sizes", is_text=True),
    )  # fmt: skip
    caption = "" if left <= 0 else f"and {count_of(left, 'more model')}"
    return Table("", columns, tuple(rows), caption=caption)


def _write_remarks(page: Page, title: str, remarks: Sequence[Remark]) -> None:
    if not remarks:
        return
    page.line("")
    page.item(title, style="bold cyan")
    for remark in remarks[:_MOST_REMARKS]:
        page.item(f"  {printable(remark.path)}: {remark.reason}", indent=4)
    if len(remarks) > _MOST_REMARKS:
        page.item(f"  and {len(remarks) - _MOST_REMARKS:,} more")


def _skipped(skipped: Sequence[str]) -> str:
    if not skipped:
        return ""
    return f", without {shorten_list([printable(path) for path in skipped], _MOST_SKIPPED)}"
