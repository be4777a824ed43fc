"""A setup as reports: what was found, each change as a diff, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_modelperf.init.records import FileChange, Project, Remark
from pytest_modelperf.init.surveying import Survey
from pytest_modelperf.report.model import (
    Code,
    Line,
    Paragraph,
    Report,
    ReportBlock,
    Rows,
    Section,
    Tone,
    lines_of,
)
from pytest_modelperf.report.tables import Column, Table
from pytest_modelperf.sizing.finding import GUESSED
from pytest_modelperf.sizing.records import FoundSizes
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, list_names, shell_path, shorten_list

# The most models, remarks and lines that are shown.
_MOST_MODELS = 20
_MOST_REMARKS = 20
_MOST_LINES = 200
_MOST_SKIPPED = 8
_DIFF_TONES = {"+": Tone.GOOD, "-": Tone.BAD}
_COMMIT = 'git commit -m "Test the performance of models"'


def survey_report(survey: Survey) -> Report:
    """Show the models, with the sizes that were found, and everything that was left out."""
    project, search = survey.project, survey.search
    models = count_of(len(search.models), "model")
    looked = f"{models} in {count_of(search.folders, 'folder')}{_skipped(search.skipped)}"
    opening = Line(text=looked)
    if survey.program:
        models = count_of(len(survey.used), "model")
        inferences = count_of(sum(used.count for used in survey.used.values()), "inference")
        opening = Line(word=survey.program, text=f"{models} of this project, {inferences}")
    return Report(
        title="The models of a project",
        subject=f"project: {project.root} ({project.reason})",
        opening=(opening,),
        blocks=tuple(_survey_blocks(survey)),
    )


def _survey_blocks(survey: Survey) -> Iterator[ReportBlock]:
    if survey.program:
        yield Rows(_used_table(survey))
        lines = tuple(_remark_lines(survey.unused))
        yield Section(title="models without a table", blocks=(Paragraph(lines),))
        return
    if survey.search.models:
        yield Rows(_models_table(survey))
    if any(found.guessed for found in survey.sizes.values()):
        yield Paragraph((Line(text=GUESSED),))
    by_hand = "models that did not run: write a table by hand if you know what they need"
    for title, remarks in ((by_hand, survey.unsized), ("left out", survey.search.remarks)):
        yield Section(title=title, blocks=(Paragraph(tuple(_remark_lines(remarks))),))


def _remark_lines(remarks: Sequence[Remark]) -> Iterator[Line]:
    for remark in remarks[:_MOST_REMARKS]:
        yield Line(word=remark.path, text=remark.reason)
    if len(remarks) > _MOST_REMARKS:
        yield Line(text=f"and {len(remarks) - _MOST_REMARKS:,} more")


def nothing_found(survey: Survey) -> str:
    """Return the error message if no model was found: what was searched and skipped."""
    search = survey.search
    places = ", ".join(str(survey.project.root / path) for path in search.looked)
    text = f"there is no ONNX model to test in {places}"
    if search.folders:
        folders = count_of(search.folders, "folder")
        text += f": {folders} searched for files named *.onnx{_skipped(search.skipped)}"
    lines = _remark_lines(search.remarks)
    remarks = (": ".join(filter(None, (line.word, line.text))) for line in lines)
    advice = "Export a model into the project, or name one: modelperf init models/model.onnx"
    return "\n".join([printable(f"{text}."), *(f"  {printable(r)}" for r in remarks), advice])


def nothing_used(survey: Survey) -> str:
    """Return the error message if a program ran no model of the project: what it ran instead."""
    lines = (f"{line.word}: {line.text}" for line in _remark_lines(survey.unused))
    text = f"the program ran no ONNX model of {survey.project.root}: {survey.program}"
    return "\n".join([printable(text), *(f"  {printable(line)}" for line in lines)])


def change_report(change: FileChange) -> Report:
    what = "new file" if change.before is None else "changed"
    before = [] if change.before is None else change.before.splitlines()
    lines = list(difflib.unified_diff(before, change.after.splitlines(), n=2, lineterm=""))
    # The first two lines name the file. The third says that a new file was empty.
    lines = lines[3 if change.before is None else 2 :]
    left = len(lines) - _MOST_LINES
    shown = (
        Line(text=f"{what}: {change.name}", is_bold=True),
        *(
            Line(text=line, tone=_DIFF_TONES.get(line[:1], Tone.PLAIN))
            for line in lines[:_MOST_LINES]
        ),
        *([Line(text=f"... and {count_of(left, 'more line')}")] if left > 0 else []),
    )
    return Report(title=change.name, blocks=(Paragraph(shown),))


def notes_report(notes: Sequence[str]) -> Report:
    return Report(title="What only you can do", blocks=(Paragraph(lines_of(notes, "note")),))


def ignored_note(files: Sequence[str]) -> str:
    lacking = "it" if len(files) == 1 else "them"
    return (
        f"git ignores {list_names(files)}, so other checkouts lack {lacking}: have the "
        f"workflow make {lacking}, or add {lacking} with git add --force"
    )


def next_report(project: Project, files: Sequence[str], baselines: str, here: Path) -> Report:
    """Show the next three commands: record, commit, check. `files` are to be committed."""
    place = "" if here == project.root else f" in {project.root}"
    begin = "git init && " if project.repository is None else ""
    added = " ".join(shell_path(path) for path in (*files, baselines))
    commands = {
        "record": "pytest --modelperf --modelperf-update-baseline",
        "commit": f"{begin}git add {added} && {_COMMIT}",
        "check": "pytest --modelperf",
    }
    return Report(
        title="What to type next",
        blocks=(
            Paragraph((Line(text=f"next, type{place}", is_bold=True),)),
            *(Code(word, command, is_command=True) for word, command in commands.items()),
        ),
    )


def noise_report(answers: Sequence[str]) -> Report:
    lines = lines_of(answers, "noise of this machine")
    advice = Line(text="modelperf doctor shows more, and what to do")
    return Report(title="The noise of this machine", blocks=(Paragraph((*lines, advice)),))


def _models_table(survey: Survey) -> Table:
    models = survey.search.models
    rows = []
    for path in models[:_MOST_MODELS]:
        if path in survey.sizes:
            rows.append((path, "new", _describe_sizes(survey.sizes[path])))
        else:
            rows.append((path, "there" if path in survey.declared else "by hand", ""))
    left = len(models) - _MOST_MODELS
    columns = tuple(Column(title, is_text=True) for title in ("model", "table", "sizes"))
    caption = f"and {count_of(left, 'more model')}" if left > 0 else ""
    return Table("", columns, tuple(rows), caption=caption)


def _used_table(survey: Survey) -> Table:
    rows = []
    for path, used in survey.used.items():
        state = "there" if path in survey.declared else "new"
        for place, case in enumerate(used.cases):
            own = (path, state, used.options_text) if place == 0 else ("", "", "")
            rows.append((*own[:2], f"{case.count:,}", case.text, own[2]))
        if used.left:
            left = sum(case.count for case in used.left)
            sizes = f"{count_of(len(used.left), 'other size')}, without a case"
            rows.append(("", "", f"{left:,}", sizes, ""))
    columns = (
        Column("model", is_name=True),
        Column("table", is_text=True),
        Column("inferences"),
        Column("sizes", is_text=True),
        # The changes show them, too.
        Column("options", is_text=True, rank=1),
    )
    return Table("", columns, tuple(rows))


def _describe_sizes(found: FoundSizes) -> str:
    dims = (
        f"{each.name}={each.size}{' (a guess)' if each.is_guess else ''}" for each in found.dims
    )
    return ", ".join([*dims, *found.input_texts])


def _skipped(skipped: Sequence[str]) -> str:
    return f", without {shorten_list(skipped, _MOST_SKIPPED)}" if skipped else ""
