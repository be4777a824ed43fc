"""Commands that write models to read or to hand on.

`modelperf shapes` shows the shape of every tensor, or writes a model that has them. `modelperf
share` writes a model without its weights, for people who may not have them. `modelperf reduce`
finds the smallest pair of models that still shows a slowdown, for an issue.

A test can give click's context a function that shares or reduces instead of `share_model` or
`run_reduce`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.options import (
    FolderOptions,
    OutputOptions,
    folder_options,
    is_given,
    load_extensions,
    measuring_options,
    model_setup,
    one_case_options,
    one_size_options,
    output_options,
    request_of_one_size,
    slowdown_option,
    takes_records,
)
from pytest_modelperf.cli.output import show, shown_progress, terminal_style, write_report
from pytest_modelperf.cli.parameters import (
    COMMAND_WORDING,
    GroupedCommand,
    HelpGroup,
    option_of,
    setting_option,
)
from pytest_modelperf.cli.running import InterpreterOptions, interpreter_options
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

if TYPE_CHECKING:
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.reducing.records import Reduction
    from pytest_modelperf.sharing.records import Share

_MOST_NAMED = 5


@click.command(
    cls=GroupedCommand, short_help="Show the shape of every tensor, or write it into a model."
)
@click.argument("model", type=click.Path())
@option_of(
    HelpGroup.OUTPUT,
    "-o",
    "--output",
    metavar="OUT",
    help="Write a model that has the shapes; - for stdout. Without it the shapes are shown.",
)
@setting_option(BATCH_SIZE, metavar="N", help="batch size")
@one_size_options
@option_of(
    HelpGroup.OUTPUT,
    "--names",
    metavar="NAME[,NAME...]",
    help="Hidden tensors to make outputs of OUT; repeat the option for a name with a comma.",
    multiple=True,
)
@takes_records(cases=CaseSpec)
def shapes(
    *,
    model: str,
    output: str | None,
    cases: CaseSpec,
    plugins: tuple[str, ...],
    names: tuple[str, ...],
) -> None:
    """Show the shape of every tensor of MODEL, or write them into a model for Netron.

    \b
    modelperf shapes model.onnx --batch 8
    modelperf shapes model.onnx -o shaped.onnx --batch 8
    modelperf shapes model.onnx -o probed.onnx --names conv1_out,fc_out
    """  # noqa: D301  # click: keep the lines of the paragraph
    leaves_stdout = check_outputs({"-o": output}, model)

    from pytest_modelperf.graph.copies import write_shaped_model
    from pytest_modelperf.graph.load import load_model
    from pytest_modelperf.graph.model_file import open_model

    if output is None and names:
        raise UsageError("--names is for the model that is written: give -o OUT as well.")
    request = request_of_one_size(cases, "shapes are those of a model", is_one_case=False)
    operators = load_extensions(plugins).operators
    bound = load_model(open_model(model), next(request.bindings()), operators.shape_rules)
    if output is None:
        from pytest_modelperf.profiler.shown.report import shapes_report
        from pytest_modelperf.report.render import render_report

        show(render_report(shapes_report(bound), terminal_style()))
        return
    written = write_shaped_model(bound, output, names)
    known = written.tensors - len(written.unknown)
    # If the model goes to standard output, all other text must not.
    show_line = partial(show, err=not leaves_stdout)
    name = "the model on standard output" if output == "-" else printable(output)
    show_line(
        f"{name}: {known} of {written.tensors} tensors have a shape"
        + (f", {len(written.new_outputs)} more as outputs\n" if written.new_outputs else "\n")
    )
    if written.left_beside:
        left = shorten_list([*map(printable, written.left_beside)], _MOST_NAMED)
        show_line(f"weights stay in {left}: put that next to the model to run it\n")
    if written.unknown:
        named = shorten_list([*map(printable, written.unknown)], _MOST_NAMED)
        show_line(f"without one: {named}\n")


_UNLIKE, _UNDECIDED = 1, 3


@click.command(cls=GroupedCommand, short_help="Share a model without its weights.")
@click.argument("model", type=click.Path())
@folder_options("MODEL-shared")
@click.option(
    "--anonymous",
    is_flag=True,
    help="Replace the names of the model, its tensors, nodes, dimensions and functions.",
)
@one_case_options
@setting_option(INPUT_FILE, more="Their statistics are shared, not their values.")
@measuring_options(of_seconds="the longest that the rounds of both models may take", is_here=True)
@output_options()
@takes_records(
    folder=FolderOptions, cases=CaseSpec, measuring=MeasuringSettings, outputs=OutputOptions
)
@click.pass_obj
def share(  # noqa: PLR0913  # one parameter per group of options
    run: Callable[..., Share] | None,
    *,
    model: str,
    plugins: tuple[str, ...],
    folder: FolderOptions,
    cases: CaseSpec,
    measuring: MeasuringSettings,
    outputs: OutputOptions,
) -> None:
    """Write MODEL without its weights, to a folder that anyone can run, and compare its speed.

    The folder holds the graph, a program that draws other weights, the settings and what was
    measured here. Its program needs numpy and onnxruntime. The shared model runs in turn with
    MODEL: exit code 0 if it takes the same time within 2 % by the same plan, 1 if it does not,
    3 if that is not decided. The folder is written in all three cases.

    \b
    modelperf share model.onnx
    modelperf share model.onnx --anonymous --output slow-model.zip
    modelperf share model.onnx --batch 8 --cores 4 --dim seq=128 --output issue
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = outputs.check(model, input_file=cases.input_file)
    from pytest_modelperf.sharing.making import REPLACED_FILES, write_share

    # The usual name reveals nothing about an anonymous model.
    usual = "shared-model" if folder.anonymous else f"{Path(model).stem}-shared"
    target = folder.output or usual
    folder.check(target, REPLACED_FILES, model, cases.input_file)
    extensions = load_extensions(plugins)
    request = request_of_one_size(cases, "a model is shared")
    setup = model_setup(measuring, extensions, "a shared folder")

    from pytest_modelperf.sharing.making import describe_likeness, share_model, share_report
    from pytest_modelperf.sharing.records import SHARE, Likeness

    with shown_progress() as progress:
        found = (run or share_model)(
            model,
            request,
            setup,
            is_anonymous=folder.anonymous,
            extensions=extensions,
            watch=progress,
        )
    write_share(found, target)
    document = partial(SHARE.dump, found)
    write_report(share_report(found, target), document, outputs, is_shown=is_shown)
    likeness = found.likening.likeness
    if likeness is Likeness.SAME:
        return
    if not is_shown:
        click.echo(describe_likeness(found.likening), err=True)
    raise SystemExit(_UNDECIDED if likeness is Likeness.UNDECIDED else _UNLIKE)


# Where a reduced pair is written by default.
_FOLDER = "reduced"
_WORSE = 1
_UPGRADE_SECONDS = 300.0


@click.command(cls=GroupedCommand, short_help="Reduce a slowdown to the kernels that show it.")
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="[B]", type=click.Path(), required=False)
@folder_options(_FOLDER)
@click.option(
    "--anonymous", is_flag=True, help="Replace the names of tensors and nodes by numbers."
)
@slowdown_option("B")
@one_case_options
@setting_option(INPUT_FILE)
@measuring_options(
    seconds=60,
    of_seconds="the longest that the whole search may take; with two Pythons the default is "
    "300 seconds",
    is_here=True,
)
@interpreter_options
@output_options(csv="the steps")
@takes_records(
    folder=FolderOptions,
    cases=CaseSpec,
    measuring=MeasuringSettings,
    interpreters=InterpreterOptions,
    outputs=OutputOptions,
)
@click.pass_obj
def reduce(  # noqa: PLR0913  # one parameter per group of options
    run: Callable[..., Reduction] | None,
    *,
    before: str,
    after: str | None,
    tolerance: str,
    plugins: tuple[str, ...],
    folder: FolderOptions,
    cases: CaseSpec,
    measuring: MeasuringSettings,
    interpreters: InterpreterOptions,
    outputs: OutputOptions,
) -> None:
    """Write the smallest pair of models that shows why B is slower than A.

    Both run in turn. If B is slower, the kernels that the engine made of both are tried by
    themselves, and everything that can be left out is removed. What remains is written without
    weights, with a program that times it and needs only numpy and onnxruntime. Without B, model A
    runs on two versions of the engine, one of which may be the installed one. Exit code 1 if B is
    slower than A.

    \b
    modelperf reduce old.onnx new.onnx --batch 8 --cores 2
    modelperf reduce old.onnx new.onnx --anonymous --output slow-conv.zip
    modelperf reduce model.onnx --requirement-a onnxruntime==1.30.0
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = outputs.check(before, after or before, input_file=cases.input_file)
    interpreters.check(static=False, is_on_cluster=False, gateway=None)
    from pytest_modelperf.comparing.limits import read_median_tolerance
    from pytest_modelperf.comparing.sides import Side
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.reducing.search import REPLACED_FILES, ReduceRequest, deliver, run_reduce

    target = folder.output or _FOLDER
    folder.check(target, REPLACED_FILES, before, after, cases.input_file)
    share = read_median_tolerance(tolerance, "--tolerance")
    extensions = load_extensions(plugins)
    request = request_of_one_size(cases, "reduce runs the models")
    setup = model_setup(measuring, extensions, "a reduction")
    setups = interpreters.setups(setup, setup, are_here=True)
    if after is None and setups[0] == setups[1]:
        raise UsageError(
            "one model on one engine has nothing to compare: give a second model, or another "
            "version of the engine, as in --requirement-a onnxruntime==1.30.0."
        )
    asked = ReduceRequest(
        before=Side(before, setups[0]),
        after=Side(after or before, setups[1]),
        request=request,
        extensions=extensions,
        tolerance=share,
        max_seconds=_seconds(*setups),
        is_anonymous=folder.anonymous,
    )
    with shown_progress() as progress:
        put = partial(deliver, target=target, machine=describe_machine())
        result = (run or run_reduce)(asked, put, progress)
    _show(result, outputs, target, is_shown=is_shown)


def _seconds(setup_a: Setup, setup_b: Setup) -> float:
    """Return the time of the search.

    Two Pythons start again in each round, which takes seconds, so they get more by default.
    """
    is_usual = setup_a != setup_b and not is_given("max_seconds")
    return _UPGRADE_SECONDS if is_usual else setup_a.policy.max_seconds


def _show(result: Reduction, outputs: OutputOptions, target: str, *, is_shown: bool) -> None:
    from pytest_modelperf.comparing.records import Verdict
    from pytest_modelperf.reducing.report import reduction_report
    from pytest_modelperf.reducing.search import dump_reduction

    report = reduction_report(result, COMMAND_WORDING, target, dt.datetime.now(dt.timezone.utc))
    document = partial(dump_reduction, result, target)
    write_report(report, document, outputs, is_shown=is_shown)
    if result.verdict is Verdict.REGRESSED:
        raise SystemExit(_WORSE)
