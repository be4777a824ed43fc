"""`modelperf init` finds the models of a project, and writes what is missing to test them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.options import split_program
from pytest_modelperf.cli.output import ProgressLine, show, show_report, shown_progress
from pytest_modelperf.cli.parameters import (
    COMMAND_WORDING,
    GroupedCommand,
    obtain_model,
    origin_of,
    table_line,
)
from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_modelperf.init.planning import Wishes
    from pytest_modelperf.init.records import FileChange, Project
    from pytest_modelperf.init.surveying import Survey
    from pytest_modelperf.obtaining.origins import ModelOrigin
    from pytest_modelperf.report.model import Report

_FROM = "--from"
_FROM_EXAMPLE = "modelperf init --from"
_SERVICES = ("github", "gitlab", "none")
_NO_SERVICE = "none"
_UNANSWERED = 2
_ENGINE = "onnxruntime"


class _InitCommand(GroupedCommand):
    """A command that keeps the program after `--from --` as the object of the context."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if _FROM in args:
            args = split_program(context, args)
        return super().parse_args(context, args)

    def collect_usage_pieces(self, _: click.Context) -> list[str]:
        return ["[OPTIONS] [PATH]... [--from -- PROGRAM [ARGS]...]"]


@click.command(cls=_InitCommand, short_help="Find the models of a project, and set up their tests.")
@click.argument("places", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option(
    _FROM,
    "is_from_program",
    is_flag=True,
    help="Run a program, and write the sizes and session options that it uses. Give the program "
    "last, after two dashes.",
)
@click.option("--yes", "-y", "says_yes", is_flag=True, help="Write every change without asking.")
@click.option(
    "--tables/--no-tables",
    default=None,
    help="Write a table for each new model into pyproject.toml.  [default: asks]",
)
@click.option(
    "--ci",
    type=click.Choice(_SERVICES),
    help="Write the file that runs the tests in this service.  [default: asks, for the service "
    "that the git repository belongs to]",
)
@click.option(
    "--gitattributes/--no-gitattributes",
    default=None,
    help="Write the line of .gitattributes that keeps git from merging baselines.  [default: asks]",
)
@click.option(
    "--noise/--no-noise",
    default=None,
    help="Measure for 10 s how noisy this machine is.  [default: if a file was written]",
)
@click.pass_context
def init(  # noqa: PLR0913  # each is the answer to a question
    context: click.Context,
    *,
    places: tuple[str, ...],
    is_from_program: bool,
    says_yes: bool,
    tables: bool | None,
    ci: str | None,
    gitattributes: bool | None,
    noise: bool | None,
) -> None:
    """Find the ONNX models of a project, and write what is missing to test them.

    Each model gets a table in pyproject.toml, with sizes for its open dimensions. Every change is
    shown as a diff, and made if you agree. Models that already have a table are not changed, so a
    second run changes nothing. Without PATH the whole project is searched, except for caches,
    environments, build folders, and what git ignores.

    A PATH can be a function that returns a model (package.module:function), or an address with the
    digest of its file: then the table says where the model comes from.

    With --from a PROGRAM runs first, such as a benchmark. Only the models that its sessions of
    ONNX Runtime load get a table, with the sizes that they ran at most often.

    \b
    modelperf init
    modelperf init --yes --ci gitlab --no-noise
    modelperf init models/encoder.onnx
    modelperf init tools.export:encoder
    modelperf init --from -- python bench.py
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.init.planning import plan_setup, settle_changes, write_changes
    from pytest_modelperf.init.records import SetupPart, inner_path
    from pytest_modelperf.init.report import (
        change_report,
        ignored_note,
        next_report,
        notes_report,
        nothing_found,
        nothing_used,
        survey_report,
    )
    from pytest_modelperf.init.surveying import (
        files_to_add,
        find_project,
        ignored_by_git,
        model_files,
    )

    here = Path.cwd()
    project = find_project(here)
    origins = [found for each in places if (found := origin_of(each)) is not None]
    within = [here / each for each in places if origin_of(each) is None]
    if not places:
        within = [project.root]
    if is_from_program:
        if origins:
            raise UsageError(
                f"{_FROM} finds files that a program loads, and {printable(str(origins[0]))} is "
                "not a file: leave one out."
            )
        survey = _survey_program(project, within, context.obj)
        if not survey.used:
            raise UsageError(nothing_used(survey))
    else:
        with shown_progress() as progress:
            survey = _survey(project, within, origins, progress)
        if not survey.search.models:
            raise UsageError(nothing_found(survey))
    _show(survey_report(survey))
    wishes = _wishes(project, tables=tables, ci=ci, gitattributes=gitattributes)
    plan = plan_setup(project, survey.tables, survey.baselines, wishes)
    answers = {
        SetupPart.TABLES: says_yes or tables,
        SetupPart.CI: says_yes or (None if ci is None else True),
        SetupPart.GITATTRIBUTES: says_yes or gitattributes,
    }
    settled = settle_changes(
        plan.changes,
        {part: answer for part, answer in answers.items() if answer},
        lambda change: _show(change_report(change)),
        _ask if sys.stdin.isatty() else None,
    )
    files = model_files(project, [path for path in survey.tables if path not in survey.origins])
    ignored = sorted(ignored_by_git(project, files))
    notes = [*plan.notes, *([ignored_note(ignored)] if ignored else [])]
    if notes:
        _show(notes_report(notes))
    if settled.unanswered:
        _refuse_to_write(settled.unanswered)
    write_changes(settled.accepted)
    _tell_written(plan.changes, settled.accepted)
    if noise or (noise is None and settled.accepted):
        _measure_noise()
    written = [change.name for change in settled.accepted]
    written += files_to_add(project, files)
    baselines = inner_path(survey.baselines, project.root)
    _show(next_report(project, written, baselines, here))


def _show(report: Report) -> None:
    from pytest_modelperf.report.render import render_report

    if not report.subject:
        show("\n")
    show_report(partial(render_report, report), None, is_shown=True)


def _survey(
    project: Project, places: Sequence[Path], origins: Sequence[ModelOrigin], progress: ProgressLine
) -> Survey:
    from pytest_modelperf.init.surveying import NamedOrigin, survey_project
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.sizing.finding import find_sizes

    # One inference with the sizes shows that they work.
    find = partial(find_sizes, setup=Setup(wording=COMMAND_WORDING))
    named = [
        NamedOrigin(
            each.baseline or each.short_name, table_line(each), obtain_model(each, project.root)
        )
        for each in origins
    ]
    return survey_project(project, places, find, progress.show, named)


def _survey_program(
    project: Project, places: Sequence[Path], program: tuple[str, ...] | None
) -> Survey:
    """Survey the models that a program used. Raises UsageError if it failed or used none."""
    from msgspec.structs import replace

    from pytest_modelperf.init.surveying import survey_project, survey_used
    from pytest_modelperf.tracing.launch import explain_no_sessions, run_program

    if not program:
        raise UsageError(f"--from takes a program after two dashes: {_FROM_EXAMPLE} -- python x.py")
    # Invalid settings are an error before the program has run.
    survey = survey_project(project, places, None)
    ran = run_program(program, _FROM_EXAMPLE)
    shown = " ".join(map(shell_word, program))
    if not ran.launch.has_ended_well:
        raise UsageError(
            f"the program ended with exit code {ran.launch.exit_code}, so nothing was written: "
            f"{shown}"
        )
    if not ran.sessions:
        raise UsageError(explain_no_sessions(ran.launch))
    return survey_used(replace(survey, program=shown), ran.sessions)


def _wishes(
    project: Project, *, tables: bool | None, ci: str | None, gitattributes: bool | None
) -> Wishes:
    from importlib.metadata import PackageNotFoundError, version

    from pytest_modelperf.init.planning import Wishes, usual_service
    from pytest_modelperf.init.records import Service

    service = None if ci == _NO_SERVICE else Service(ci) if ci else usual_service(project)
    try:
        engine: str | None = version(_ENGINE)
    except PackageNotFoundError:
        # Another distribution can contain it, such as onnxruntime-gpu.
        engine = None
    return Wishes(
        tables=tables is not False,
        service=service,
        gitattributes=gitattributes is not False,
        engine=engine,
    )


def _ask(change: FileChange) -> bool:
    try:
        return click.confirm(f"write {printable(change.name)}?", default=True)
    except click.Abort:
        # Click would exit with 1, which here means a worse model.
        raise KeyboardInterrupt from None


def _refuse_to_write(changes: Sequence[FileChange]) -> None:
    """Show how to agree without a terminal to ask at, and end."""
    # The words after --from belong to the program.
    typed = sys.argv[1:]
    place = typed.index(_FROM) if _FROM in typed else len(typed)
    command = " ".join(map(shell_word, ["modelperf", *typed[:place], "--yes", *typed[place:]]))
    names = ", ".join(printable(change.name) for change in changes)
    click.echo(
        f"\nnothing was written: {names} would change, and standard input is not a terminal to ask "
        f"at. To agree, type:\n  {command}",
        err=True,
    )
    raise SystemExit(_UNANSWERED)


def _tell_written(changes: Sequence[FileChange], accepted: Sequence[FileChange]) -> None:
    show("\n")
    for change in accepted:
        show(f"wrote {printable(change.name)}\n")
    for change in changes:
        if change not in accepted:
            show(f"left {printable(change.name)} as it is\n")
    if not changes:
        show("nothing to change\n")


def _measure_noise() -> None:
    from pytest_modelperf.init.planning import measure_noise
    from pytest_modelperf.init.report import noise_report

    try:
        with shown_progress() as progress:
            answers = measure_noise(COMMAND_WORDING, progress)
    except ModelPerfError as error:
        # The files are written; modelperf doctor can be run at any time.
        show(f"noise of this machine: not measured: {error.worded(COMMAND_WORDING)}\n")
        return
    _show(noise_report(answers))
