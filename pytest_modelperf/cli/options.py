"""The options that several commands share, and the records that hold their values.

A command gets options by decorators such as `model_options`, and their values by `takes_records`,
grouped by topic.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from msgspec import UNSET, Struct

from pytest_modelperf.cli.parameters import (
    COMMAND_WORDING,
    Command,
    HelpGroup,
    Option,
    option_of,
    setting_option,
)
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import (
    BATCH_SIZE,
    COMMAND_GATEWAY,
    CORES,
    DIMS,
    GENERATE,
    GUESS,
    INPUT_FILE,
    INPUTS,
    PROMPT,
    STATE,
)
from pytest_modelperf.spec.case_spec import MeasuringSettings
from pytest_modelperf.spec.run_definitions import (
    ENGINE,
    ENGINE_OPTION,
    MAX_SECONDS,
    TIMEOUT,
    WARMUP_SECONDS,
)

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.spec.case_spec import CaseSpec

_SEPARATOR = "--"


def split_program(context: click.Context, words: Sequence[str]) -> list[str]:
    """Return the words before two dashes, and keep those after them as the object of the context.

    The latter are a program and its arguments, which our commands do not read.
    """
    if _SEPARATOR not in words:
        return list(words)
    place = words.index(_SEPARATOR)
    context.obj = tuple(words[place + 1 :])
    return list(words[:place])


def takes_records(**records: type[Struct]) -> Option:
    """Pass option values to a command in records, each of which takes its fields by their names.

    A field that was not given has the default of its record. A value that the command takes by its
    name is also passed directly.
    """

    def decorate(command: Command) -> Command:
        taken = {field for record in records.values() for field in record.__struct_fields__}
        taken -= signature(command).parameters.keys()

        @wraps(command)
        def call(**values: object) -> None:
            given = {name: value for name, value in values.items() if value is not UNSET}
            made = {
                name: record(**{f: given[f] for f in record.__struct_fields__ if f in given})
                for name, record in records.items()
            }
            command(**{f: value for f, value in values.items() if f not in taken}, **made)

        return call

    return decorate


def setup_of(
    measuring: MeasuringSettings, extensions: Extensions, *, may_stretch: bool = False
) -> Setup:
    """Return the setup for these settings.

    Raises UsageError if they do not fit together. With `may_stretch`, a slow model gets more time
    unless --max-seconds is given.
    """
    measuring.check_seconds(lambda setting: setting.command_flag)
    is_stretched = may_stretch and not is_given(MAX_SECONDS.field)
    if measuring.gateway is not None:
        from pytest_modelperf.profiler.worker.gateway import check_form

        check_form(measuring.gateway, COMMAND_GATEWAY.command_flag)
    return measuring.setup(
        extensions, COMMAND_WORDING, spec=measuring.gateway, is_stretched=is_stretched
    )


def model_setup(
    measuring: MeasuringSettings, extensions: Extensions, command: str, *, may_stretch: bool = False
) -> Setup:
    """Return `setup_of` for a command that takes only ONNX models."""
    from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE

    setup = setup_of(measuring, extensions, may_stretch=may_stretch)
    if setup.engine.name == CALLABLE_ENGINE:
        raise UsageError(
            f"{command} takes only ONNX models: measure a Python function with modelperf profile."
        )
    return setup


def request_of(spec: CaseSpec) -> ProfileRequest:
    if spec.state and not (spec.prompts or spec.generates):
        raise UsageError("--state is about a generation: give --prompt and --generate too.")
    return spec.request()


def request_of_one_size(spec: CaseSpec, claim: str, *, is_one_case: bool = True) -> ProfileRequest:
    """Return `request_of` for a command that runs a model at one size, as its `claim` says.

    Raises UsageError if there are several sizes, or several core counts for a command of one case.
    """
    request = request_of(spec)
    if len(list(request.bindings())) > 1 or (is_one_case and len(request.cores) > 1):
        cores = " one of --cores," if is_one_case else ""
        raise UsageError(
            f"{claim} at one size: give one --batch,{cores} and one size of each --dim."
        )
    return request


class OutputOptions(Struct, frozen=True):
    """The files to write. `-` is standard output."""

    json_file: str | None = None
    csv_file: str | None = None
    html_file: str | None = None
    markdown_file: str | None = None
    trace_file: str | None = None
    svg_file: str | None = None
    layers_csv_file: str | None = None
    node_data_file: str | None = None
    annotated_file: str | None = None

    def check(self, *models: str, input_file: Path | None = None) -> bool:
        """Check the files, and return whether the report is shown, because none is standard output.

        Raises an error if one of the files could not be made or written, or is an input.
        """
        from pytest_modelperf.profiler.shown.report_files import check_report_files

        targets = {
            f"--{field.removesuffix('_file').replace('_', '-')}": getattr(self, field)
            for field in self.__struct_fields__
        }
        is_shown = check_report_files(
            targets, models, None if input_file is None else str(input_file)
        )
        if self.html_file is not None:
            from pytest_modelperf.report.html.render import check_html_extra

            check_html_extra("--html")
        return is_shown


def size_options(command: Command) -> Command:
    return with_options(command, setting_option(BATCH_SIZE), setting_option(CORES))


def model_options(command: Command) -> Command:
    """Add the options about a model, for a command that takes several sizes of it."""
    several = (
        "Several sizes (seq=64,128) make several cases, several names (seq=64,past=0) one case."
    )
    return _model_options(command, several)


def one_size_options(command: Command) -> Command:
    """Add the options about a model, for a command that takes one size of it."""
    return _model_options(command, "")


def _model_options(command: Command, of_several: str) -> Command:
    return with_options(
        command,
        setting_option(DIMS, more=of_several),
        setting_option(INPUTS),
        # The group of commands handles it.
        setting_option(GUESS, is_taken=False),
        option_of(
            HelpGroup.ENGINE,
            "--plugin",
            "plugins",
            multiple=True,
            metavar="MODULE",
            help="A module that registers operators or engines; repeatable. For an example, type "
            "`python -m pydoc pytest_modelperf.extensions`.",
        ),
    )


def case_options(command: Command) -> Command:
    """Add all options about the cases of a model, in the order of the help."""
    inputs = setting_option(INPUT_FILE)
    return with_options(command, size_options, model_options, generation_options, inputs)


def one_case_options(command: Command) -> Command:
    """Add the options about a model, for a command that runs one case of it."""
    return with_options(
        command,
        setting_option(BATCH_SIZE, metavar="N", help="batch size"),
        setting_option(CORES, metavar="N", help="core count"),
        one_size_options,
    )


def generation_options(command: Command) -> Command:
    """Add the options about a model with state, such as a decoder with a cache."""
    return with_options(
        command, setting_option(PROMPT), setting_option(GENERATE), setting_option(STATE)
    )


def measuring_options(
    *,
    of_engine: str = "",
    seconds: object = MAX_SECONDS.default,
    of_seconds: str | None = None,
    has_note: bool = False,
    is_here: bool = False,
) -> Option:
    """Return the options for how each case is measured.

    `of_engine` has more sentences about --engine. `seconds` and `of_seconds` are the default and
    the help of --max-seconds; with `has_note`, the help says that a slow model has more time. With
    `is_here` there is no --gateway, because the workers share files with this machine.
    """
    options = (
        setting_option(ENGINE, default=ENGINE.default, more=of_engine),
        setting_option(ENGINE_OPTION, more="The error for an unknown key lists all keys."),
        *(() if is_here else (setting_option(COMMAND_GATEWAY),)),
        setting_option(MAX_SECONDS, default=seconds, help=of_seconds, has_note=has_note),
        setting_option(WARMUP_SECONDS),
        setting_option(TIMEOUT, default=TIMEOUT.default),
    )
    return lambda command: with_options(command, *options)


def slowdown_option(of: str) -> Option:
    """Return the option for how much slower the median may be, if only the median is judged."""
    return option_of(
        HelpGroup.MEASURING,
        "--tolerance",
        metavar="SHARE",
        default="0.03",
        show_default=True,
        help=f"How much slower {of} may be: 0.03 is 3 %, and so is p50=0.03.",
    )


top_option = option_of(
    HelpGroup.OUTPUT,
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="How many layers to show; 0 for all.",
)


def output_options(*, csv: str | None = None) -> Option:
    """Return the options for output files. With a text for CSV, reports are among them."""
    helps = {"json": "Write everything as JSON"}
    if csv is not None:
        helps["csv"] = f"Write {csv} as CSV"
        helps["html"] = "Write a page for a browser"
        helps["markdown"] = "Write a report in Markdown"
    options = [_output_option(kind, text) for kind, text in helps.items()]
    return lambda command: with_options(command, *options)


def svg_option(command: Command) -> Command:
    return _output_option("svg", "Write the graph of the kernels as an SVG picture")(command)


def layers_csv_option(command: Command) -> Command:
    return _output_option("layers-csv", "Write the layers of both sides as CSV")(command)


def project_folder_option(*names: str, of: str, default: str) -> Option:
    """Return the option for a folder that is in the project unless the user names another."""
    return click.option(
        *names,
        metavar="DIR",
        help=f"Folder of the {of}.  [default: {default} in the project's root, which is the "
        "nearest folder upward with [tool.modelperf] or .git]",
    )


def folder_options(default: str) -> Option:
    """Return the options for the folder to write, and for replacing one that exists."""
    return lambda command: with_options(
        command,
        option_of(
            HelpGroup.OUTPUT,
            "-o",
            "--output",
            metavar="PLACE",
            help="The folder to write, or an archive whose name ends in .zip.  "
            f"[default: {default}]",
        ),
        option_of(
            HelpGroup.OUTPUT,
            "--force",
            is_flag=True,
            help="Replace the files of a folder or archive that exists.",
        ),
    )


class FolderOptions(Struct, frozen=True):
    """The folder that a command writes, and whether names are left out of it."""

    output: str | None
    force: bool
    anonymous: bool

    def check(self, target: str, names: Iterable[str], *inputs: Path | str | None) -> None:
        """Raise an error if the folder cannot be written, or if one of its files is an input."""
        from pytest_modelperf.files.output import check_folder
        from pytest_modelperf.profiler.shown.report_files import check_report_files

        check_folder(target, may_replace=self.force)
        models = [each for each in inputs if each is not None]
        for path in (Path(target) / name for name in names):
            if path.is_file():
                check_report_files({"--output": path}, models)


def _output_option(kind: str, of_file: str) -> Option:
    name = f"{kind.replace('-', '_')}_file"
    return option_of(
        HelpGroup.OUTPUT, f"--{kind}", name, metavar="F", help=f"{of_file}; - for stdout."
    )


def with_options(command: Command, *options: Option) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def is_given(option: str) -> bool:
    """Whether the user typed this option of the running command."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def load_extensions(plugins: Sequence[str]) -> Extensions:
    from pytest_modelperf.profiler.hookspecs import load_extensions as load

    # Modules of the current folder can be named, as with `python -m`.
    if plugins and "" not in sys.path:
        sys.path.insert(0, "")
    return load(plugins)
