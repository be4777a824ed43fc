"""The options that several commands share, and the records that hold their values.

A command takes options by decorators such as `model_options`, and their values by
`takes_records`, bundled by what they are about.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource
from msgspec import Struct

from pytest_modelperf.cli.values import (
    parse_dims,
    parse_generations,
    parse_inputs,
    parse_numbers,
    parse_pairs,
)
from pytest_modelperf.cli.wording import COMMAND_WORDING
from pytest_modelperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiler.rig import Setup

Command: TypeAlias = Callable[..., None]
Option: TypeAlias = Callable[[Command], Command]

DEFAULT_TOP = 20
_OF_CASE = "The longest that the rounds of a case may take, in seconds."


def takes_records(**records: type[Struct]) -> Option:
    """Passes option values to a command in records; each record takes its fields by their names."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**values: object) -> None:
            made = {
                name: record(**{f: values.pop(f) for f in record.__struct_fields__ if f in values})
                for name, record in records.items()
            }
            command(**values, **made)

        return call

    return decorate


class CaseOptions(Struct, frozen=True):
    """Which cases of a model to run: its sizes, its inputs, and the core counts."""

    batch: str | None
    cores: str
    dims: tuple[str, ...]
    inputs: tuple[str, ...]
    input_file: str | None = None
    prompt: str | None = None
    generate: str | None = None
    state: tuple[str, ...] = ()

    def request(self) -> ProfileRequest:
        from pytest_modelperf.profiler.request import ProfileRequest

        given = None
        if self.input_file is not None:
            from pytest_modelperf.profiler.given_inputs import read_given

            given = read_given(self.input_file)
        return ProfileRequest(
            batch_sizes=(None,) if self.batch is None else parse_numbers("--batch", self.batch),
            cores=parse_numbers("--cores", self.cores),
            dims=parse_dims(self.dims),
            inputs=parse_inputs(self.inputs),
            given=given,
            generations=parse_generations(self.prompt, self.generate, self.state),
        )


class MeasuringOptions(Struct, frozen=True):
    """How to measure each case: the engine, where it runs, and for how long."""

    engine: str
    engine_options: tuple[str, ...]
    gateway: str
    max_seconds: float
    timeout: float
    warmup_seconds: float | None
    min_seconds: float | None = None

    def setup(self, extensions: Extensions) -> Setup:
        """Returns the setup that they describe; UsageError if they do not fit together."""
        for option, seconds in (
            ("--warmup", self.warmup_seconds),
            ("--min-seconds", self.min_seconds),
        ):
            if seconds is not None and seconds > self.max_seconds:
                raise UsageError(
                    f"{option} {seconds:g} is longer than --max-seconds {self.max_seconds:g}: give "
                    f"--max-seconds {2 * seconds:g}, or a shorter {option}."
                )
        # Found first: a missing engine is reported before scipy is imported.
        engine = extensions.engines.find(self.engine)
        options = parse_pairs("--engine-option", self.engine_options)

        from pytest_modelperf.profiler.rig import Setup
        from pytest_modelperf.profiler.sampling_policy import SamplingPolicy

        return Setup(
            engine=engine,
            options=options,
            spec=self.gateway,
            policy=SamplingPolicy(
                max_seconds=self.max_seconds,
                min_seconds=self.min_seconds or 0.0,
                min_warmup_seconds=self.warmup_seconds or 0.0,
            ),
            limit_s=self.timeout,
            wording=COMMAND_WORDING,
        )

    def model_setup(self, extensions: Extensions, command: str) -> Setup:
        """Returns the setup for a command that takes only ONNX models."""
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE

        setup = self.setup(extensions)
        if setup.engine.name == CALLABLE_ENGINE:
            raise UsageError(
                f"{command} takes only ONNX models: measure a Python function with modelperf "
                "profile."
            )
        return setup


class OutputOptions(Struct, frozen=True):
    """The files to write; `-` is standard output."""

    json_file: str | None = None
    csv_file: str | None = None
    html_file: str | None = None
    markdown_file: str | None = None
    trace_file: str | None = None

    def check(self, *models: str, input_file: str | None = None) -> bool:
        """Whether the report is shown, as no file goes to standard output.

        Raises an error if one of the files could not be made or written, or is an input.
        """
        from pytest_modelperf.profiler.report_files import check_report_files

        targets = {
            "--json": self.json_file,
            "--csv": self.csv_file,
            "--html": self.html_file,
            "--markdown": self.markdown_file,
            "--trace": self.trace_file,
        }
        is_shown = check_report_files(targets, models, input_file)
        if self.html_file is not None:
            from pytest_modelperf.report.html.extra import check_html_extra

            check_html_extra("--html")
        return is_shown


class Seconds(click.FloatRange):
    """A number of seconds above 0 that a program can wait for."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self,
        value: Any,  # noqa: ANN401  # click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        from pytest_modelperf.text.given_numbers import SECONDS, as_seconds

        try:
            seconds = as_seconds(float(value))
        except ValueError:
            seconds = None
        if seconds is None:
            self.fail(f"it takes {SECONDS}; not {value!r}.", param, ctx)
        return seconds


def static_option(command: Command) -> Command:
    return click.option("--static", is_flag=True, help="Only count; run no engine.")(command)


def size_options(command: Command) -> Command:
    """The batch sizes and core counts of the cases."""
    return with_options(
        command,
        click.option(
            "--batch", metavar="N[,N...]", help="Batch sizes.  [default: the model's own, or 1]"
        ),
        click.option(
            "--cores", metavar="N[,N...]", default="1", show_default=True, help="Core counts."
        ),
    )


def model_options(command: Command) -> Command:
    """The options about a model, for a command that takes several sizes of it."""
    return _model_options(
        command,
        " Several sizes (seq=64,128) make several cases. Several names (seq=64,past=0) make one "
        "case, of sizes that go together.",
    )


def one_size_options(command: Command) -> Command:
    """The options about a model, for a command that takes one size of it."""
    return _model_options(command, "")


def _model_options(command: Command, of_several: str) -> Command:
    return with_options(
        command,
        click.option(
            "--dim",
            "dims",
            multiple=True,
            metavar="NAME=SIZE",
            help=f"Size of a named dimension, as in seq=64; repeatable.{of_several}",
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="NAME:DTYPE:SHAPE[:VALUE]",
            help="Type and shape of an input, and its value if that matters, as in ids:i64:1x64 or "
            "ratio:f32:1:0.25; repeatable.",
        ),
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            metavar="MODULE",
            help="A module that registers operators or engines; repeatable. For an example, type "
            "`python -m pydoc pytest_modelperf.extensions`.",
        ),
    )


def generation_options(command: Command) -> Command:
    """The options about a model with state, such as a decoder with a cache."""
    return with_options(
        command,
        click.option(
            "--prompt",
            metavar="N[,N...]",
            help="Profile a generation after a prompt of so many tokens: the prefill is one "
            "inference on all of them.",
        ),
        click.option(
            "--generate",
            metavar="N[,N...]",
            help="How many tokens to generate: each step is an inference on one, with the state "
            "that the step before it left.",
        ),
        click.option(
            "--state",
            multiple=True,
            metavar="PAST=PRESENT",
            help="An input that takes over an output at the next step, where the names do not tell "
            "which; repeatable.",
        ),
    )


def input_file_option(of_file: str) -> Option:
    """The option for a file of input arrays."""
    return click.option("--input-file", metavar="F.npz", help=of_file)


def measuring_options(command: Command) -> Command:
    """The options that say how each case is measured."""
    return _measuring_options(command, 10.0, _OF_CASE)


def profiling_options(command: Command) -> Command:
    """`measuring_options` for a command that also takes a Python function."""
    return _measuring_options(command, 10.0, _OF_CASE, takes_functions=True)


def comparing_options(command: Command) -> Command:
    """`measuring_options` for a command that compares two models."""
    return _measuring_options(
        command, 10.0, f"{_OF_CASE} Without this option, a slow model may take up to 60."
    )


def bisecting_options(command: Command) -> Command:
    """`measuring_options` for the steps of a bisect."""
    return _measuring_options(
        command,
        10.0,
        "The longest that the rounds of a step may take, in seconds; four times as long if the "
        "step is inconclusive. Without this option, a slow model may take up to 60.",
    )


def variant_options(command: Command) -> Command:
    """`measuring_options` for the variants of a what-if."""
    return _measuring_options(
        command, 10.0, "The longest that the rounds of a variant may take at each case, in seconds."
    )


def sweeping_options(command: Command) -> Command:
    """`measuring_options` for the configurations of a sweep."""
    return _measuring_options(
        command,
        5.0,
        "The longest that the rounds of a configuration may take, in seconds.",
        of_engine=" Two run side by side, as in onnxruntime,openvino.",
    )


def _measuring_options(
    command: Command,
    seconds: float,
    of_seconds: str,
    *,
    takes_functions: bool = False,
    of_engine: str = "",
) -> Command:
    function = ", callable" if takes_functions else ""
    return with_options(
        command,
        click.option(
            "--engine",
            metavar="NAME",
            default="onnxruntime",
            show_default=True,
            help=f"What runs the model: onnxruntime, openvino{function}, or an engine of a plugin."
            f"{of_engine}",
        ),
        click.option(
            "--engine-option",
            "engine_options",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the engine, as in graph_optimization_level=basic; repeatable. The "
            "error for an unknown key lists all keys.",
        ),
        click.option(
            "--gateway",
            metavar="SPEC",
            default="popen",
            show_default=True,
            help="Where to run the model: popen//python=PATH for another interpreter, ssh=HOST or "
            "socket=HOST:PORT for another machine.",
        ),
        click.option(
            "--max-seconds",
            type=Seconds(),
            metavar="S",
            default=seconds,
            show_default=True,
            help=of_seconds,
        ),
        click.option(
            "--warmup",
            "warmup_seconds",
            type=Seconds(),
            metavar="S",
            help="Warm up each session for at least this many seconds, within --max-seconds.  "
            "[default: until it is steady]",
        ),
        click.option(
            "--timeout",
            type=Seconds(),
            metavar="S",
            default=300.0,
            show_default=True,
            help="Give up a case if its worker is silent for this many seconds.",
        ),
    )


def top_option(command: Command) -> Command:
    return click.option(
        "--top",
        type=click.IntRange(min=0),
        metavar="N",
        default=DEFAULT_TOP,
        show_default=True,
        help="How many layers to show; 0 for all.",
    )(command)


def json_option(command: Command) -> Command:
    return _output_option("json", "Write everything as JSON")(command)


def csv_option(of_file: str) -> Option:
    return _output_option("csv", of_file)


def html_option(of_file: str) -> Option:
    return _output_option("html", of_file)


def markdown_option(of_file: str) -> Option:
    return _output_option("markdown", of_file)


def _output_option(kind: str, of_file: str) -> Option:
    return click.option(f"--{kind}", f"{kind}_file", metavar="F", help=f"{of_file}; - for stdout.")


def with_options(command: Command, *options: Option) -> Command:
    """The command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def is_given(option: str) -> bool:
    """Whether this option of the running command was typed."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def load_extensions(plugins: Sequence[str]) -> Extensions:
    from pytest_modelperf.profiler.hookspecs import load_extensions as load

    # Modules of the current folder can be named, as with `python -m`.
    if plugins and "" not in sys.path:
        sys.path.insert(0, "")
    return load(plugins)
