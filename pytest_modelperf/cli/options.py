"""The options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from msgspec import Struct

from pytest_modelperf.cli.wording import COMMAND_WORDING
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.binding import InputSpec
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiler.rig import Setup

_F = TypeVar("_F", bound=Callable[..., Any])
_OF_CASE = "The longest that the rounds of a case may take, in seconds."
_MILLISECONDS = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


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


def model_options(command: _F) -> _F:
    """The options about a model, for a command that takes several sizes of it."""
    return _model_options(
        command,
        " Several sizes (seq=64,128) make several cases. Several names (seq=64,past=0) make one "
        "case, of sizes that go together.",
    )


def one_size_options(command: _F) -> _F:
    """The options about a model, for a command that takes one size of it."""
    return _model_options(command, "")


def _model_options(command: _F, of_several: str) -> _F:
    return _with_options(
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
            "`python -m pydoc pytest_modelperf.operators`.",
        ),
    )


def case_options(command: _F) -> _F:
    """The options that choose the cases of a profile."""
    return _with_options(
        command,
        click.option("--static", is_flag=True, help="Only count; run no engine."),
        *_sizes(),
    )


def configuration_options(command: _F) -> _F:
    """The options that choose the configurations of a sweep."""
    return _with_options(
        command,
        *_sizes(),
        click.option(
            "--streams",
            metavar="N[,N...]",
            default="1",
            show_default=True,
            help="Numbers of requests that run at once on one session.",
        ),
    )


def _sizes() -> tuple[Callable[[_F], _F], ...]:
    return (
        click.option(
            "--batch", metavar="N[,N...]", help="Batch sizes.  [default: the model's own, or 1]"
        ),
        click.option(
            "--cores", metavar="N[,N...]", default="1", show_default=True, help="Core counts."
        ),
    )


def measuring_options(command: _F) -> _F:
    """The options that say how each case is measured."""
    return _measuring_options(command, 10.0, _OF_CASE)


def profiling_options(command: _F) -> _F:
    """`measuring_options` for a command that also takes a Python function."""
    return _measuring_options(command, 10.0, _OF_CASE, takes_functions=True)


def comparing_options(command: _F) -> _F:
    """`measuring_options` for a command that compares two models."""
    return _measuring_options(
        command, 10.0, f"{_OF_CASE} Without this option, a slow model may take up to 60."
    )


def variant_options(command: _F) -> _F:
    """`measuring_options` for the variants of a what-if."""
    return _measuring_options(
        command, 10.0, "The longest that the rounds of a variant may take at each case, in seconds."
    )


def sweeping_options(command: _F) -> _F:
    """`measuring_options` for the configurations of a sweep."""
    return _measuring_options(
        command, 5.0, "The longest that the rounds of a configuration may take, in seconds."
    )


def _measuring_options(
    command: _F, seconds: float, of_seconds: str, *, takes_functions: bool = False
) -> _F:
    function = ", callable" if takes_functions else ""
    return _with_options(
        command,
        click.option(
            "--engine",
            metavar="NAME",
            default="onnxruntime",
            show_default=True,
            help=f"What runs the model: onnxruntime, openvino{function}, or an engine of a plugin.",
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


def _with_options(command: _F, *options: Callable[[_F], _F]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


class Measuring(Struct, frozen=True):
    """The values of `measuring_options`, as they were typed."""

    engine: str
    engine_options: tuple[str, ...]
    gateway: str
    max_seconds: float
    timeout: float
    stretch_seconds: float | None = None
    warmup_seconds: float | None = None
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
            stretch_seconds=self.stretch_seconds,
            wording=COMMAND_WORDING,
        )

    def model_setup(self, extensions: Extensions, command: str) -> Setup:
        """Returns the setup for a command that takes only ONNX models."""
        from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE

        setup = self.setup(extensions)
        if setup.engine.name == CALLABLE_ENGINE:
            raise UsageError(
                f"{command} is of ONNX models: measure a Python function with modelperf profile."
            )
        return setup


def is_given(option: str) -> bool:
    """Whether this option of the running command was typed."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def read_request(
    batch: str | None,
    cores: str,
    dims: Sequence[str],
    inputs: Sequence[str],
    input_file: str | None = None,
) -> ProfileRequest:
    from pytest_modelperf.profiler.request import ProfileRequest

    given = None
    if input_file is not None:
        from pytest_modelperf.profiler.given_inputs import read_given

        given = read_given(input_file)
    return ProfileRequest(
        batch_sizes=parse_numbers("--batch", batch) if batch is not None else (None,),
        cores=parse_numbers("--cores", cores),
        dims=parse_dims(dims),
        inputs=parse_inputs(inputs),
        given=given,
    )


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Returns the positive numbers in a comma-separated list, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} takes numbers of 1 or more, such as 1,8; not {text!r}.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def parse_threshold(option: str, text: str) -> float:
    """Returns the milliseconds, which may be a fraction."""
    value = float(text) if _MILLISECONDS.fullmatch(text.strip()) else 0.0
    # A text with enough digits is read as 0 or as infinity.
    if not 0 < value < math.inf:
        raise UsageError(f"{option} takes milliseconds above 0, such as 20 or 0.5; not {text!r}.")
    return value


def parse_interpreter(option: str, path: str | None) -> str | None:
    """Returns the gateway to a Python interpreter, if one is given."""
    if path is None:
        return None
    from pytest_modelperf.profiler.worker.gateway import interpreter_spec

    return interpreter_spec(path, option)


def parse_dims(texts: Sequence[str], *, several: bool = True) -> Mapping[str, tuple[int, ...]]:
    """Returns the sizes of each dimension; the sizes in `seq=64,past=0` go together."""
    from pytest_modelperf.graph.binding import parse_dim

    if several and any("=" in part for text in texts for part in text.split(",")[1:]):
        return _parse_paired(texts)
    dims: dict[str, tuple[int, ...]] = {}
    for text in texts:
        first, *more = text.split(",") if several else [text]
        name, size = parse_dim(first)
        values = (size, *(parse_dim(f"{name}={part}")[1] for part in more))
        if name in dims:
            name = printable(name)
            raise UsageError(f"--dim {name} is given twice. Give several sizes as {name}=64,128.")
        dims[name] = values
    return dims


def _parse_paired(texts: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    from pytest_modelperf.graph.binding import parse_dim
    from pytest_modelperf.profiler.dim_sizes import pair_sizes

    cases = [dict(parse_dim(part) for part in text.split(",")) for text in texts]
    counts = [len(text.split(",")) for text in texts]
    is_whole = [len(case) for case in cases] == counts
    if not is_whole or any(case.keys() != cases[0].keys() for case in cases):
        raise UsageError(
            "each --dim with several names is one case, and takes all names once: "
            "--dim seq=64,past=0 --dim seq=1,past=128."
        )
    if any(case in cases[:number] for number, case in enumerate(cases)):
        raise UsageError("two of the --dim have the same sizes: leave one out.")
    return pair_sizes(cases)


def parse_inputs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    from pytest_modelperf.graph.binding import parse_input_spec

    return tuple(parse_input_spec(text) for text in texts)


def parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the values of a repeated KEY=VALUE by their keys."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} takes KEY=VALUE, not {text!r}.")
        if key.strip() in pairs:
            raise UsageError(f"{option} {printable(key.strip())} is given twice: give it once.")
        pairs[key.strip()] = value.strip()
    return pairs


def load_extensions(plugins: Sequence[str]) -> Extensions:
    from pytest_modelperf.profiler.hookspecs import (
        collect_extensions,
        import_plugin,
        make_plugin_manager,
    )

    manager = make_plugin_manager()
    # Modules of the current folder can be named, as with `python -m`.
    if plugins and "" not in sys.path:
        sys.path.insert(0, "")
    for name in plugins:
        import_plugin(manager, name)
    return collect_extensions(manager)
