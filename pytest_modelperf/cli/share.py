"""`modelperf share` writes a model without its weights, for people who may not have them.

A test can give click's context a function that shares instead of `share_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.cli.options import (
    FolderOptions,
    OutputOptions,
    folder_options,
    load_extensions,
    measuring_options,
    model_setup,
    one_case_options,
    output_options,
    request_of_one_size,
    takes_records,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.settings import setting_option
from pytest_modelperf.spec.case_definitions import INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.measuring_settings import MeasuringSettings

if TYPE_CHECKING:
    from pytest_modelperf.sharing.records import Share

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
    3 if that was not shown either way. The folder is written in all three cases.

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
