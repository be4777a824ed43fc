"""The `modelperf` command: parses arguments, calls one core function, writes its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytest_modelperf import __version__
from pytest_modelperf.errors import ModelPerfError, OutputError, UsageError
from pytest_modelperf.units import printable

if TYPE_CHECKING:
    from pytest_modelperf.graph.binding import InputSpec
    from pytest_modelperf.hookspecs import Operators
    from pytest_modelperf.records import Profile
    from pytest_modelperf.report.text import TextStyle
    from pytest_modelperf.session import ProfileRequest

_F = TypeVar("_F", bound=Callable[..., Any])

STDOUT = "-"
DEFAULT_TOP = 20


class _Failure(click.ClickException):
    """One of our errors as click shows its own."""

    def __init__(self, error: ModelPerfError) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it and never sets it
        return self.error.exit_code


class _Group(click.Group):
    """Shows our own errors as click shows its: one message, the exit code, no traceback."""

    def invoke(self, context: click.Context) -> Any:  # noqa: ANN401  # click's own signature
        try:
            return super().invoke(context)
        except ModelPerfError as error:
            raise _Failure(error) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="modelperf")
def main() -> None:
    """Say what an ONNX model costs.

    Exit codes: 0 nothing worse, 1 regressed or over budget, 2 wrong usage or bad input,
    3 could not measure.
    """


def _model_options(command: _F) -> _F:
    """What every command that opens a model can be told about it."""
    return _with_options(
        command,
        click.option(
            "--dim",
            "dims",
            multiple=True,
            metavar="NAME=SIZE",
            help="Size of a named dimension, as in seq=64; repeatable. "
            "Several sizes (seq=64,128) make several cases.",
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="NAME:DTYPE:SHAPE[:VALUE]",
            help="A whole input, as in ids:i64:1x64 or ratio:f32:1:0.25; repeatable.",
        ),
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            metavar="MODULE",
            help="A module that registers operators (see docs/operators.md); repeatable.",
        ),
    )


def _case_options(command: _F) -> _F:
    """Which cases a profile is made of."""
    return _with_options(
        command,
        click.option("--static", is_flag=True, help="Count only: no engine runs."),
        click.option(
            "--batch", metavar="N[,N...]", help="Batch sizes.  [default: the model's own, or 1]"
        ),
        click.option(
            "--cores", metavar="N[,N...]", default="1", show_default=True, help="Core counts."
        ),
    )


def _with_options(command: _F, *options: Callable[[_F], _F]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@click.argument("model", type=click.Path())
@_case_options
@_model_options
@click.option("--sparsity", is_flag=True, help="Read the weights and say how sparse they are.")
@click.option(
    "--columns", metavar="NAME[,NAME...]", help="Columns of the layer table; 'all' for every one."
)
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Order of the layer table.  [default: macs, or graph order with --top 0]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=DEFAULT_TOP,
    show_default=True,
    help="How many layers to show; 0 for all.",
)
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
@click.option("--csv", "csv_file", metavar="F", help="Write the layers as CSV; - for stdout.")
def profile(  # noqa: PLR0913  # one parameter per option
    *,
    model: str,
    static: bool,
    batch: str | None,
    cores: str,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    sparsity: bool,
    columns: str | None,
    sort: str | None,
    top: int,
    json_file: str | None,
    csv_file: str | None,
) -> None:
    """Profile MODEL: what it costs in total, by layer type, and by layer.

    \b
    modelperf profile model.onnx --static
    modelperf profile model.onnx --static --batch 1,8 --dim seq=64 --top 0
    modelperf profile model.onnx --static --columns name,type,ops,ops%,memory,params --sort memory
    modelperf profile model.onnx --static --json - | jq '.cases[0].static'
    """  # noqa: D301  # click: keep the lines of the paragraph
    _require_static(static=static)
    if json_file == csv_file == STDOUT:
        raise UsageError("only one of --json and --csv can go to standard output.")

    from pytest_modelperf.report.layer_columns import find_columns

    names = _column_names(columns, sparsity=sparsity)
    chosen = find_columns(names)
    if sort is not None:
        chosen += find_columns([sort])
    order = sort or ("macs" if top else None)

    from pytest_modelperf.session import profile_model

    request = _request(batch, cores, dims, inputs)
    reads_weights = sparsity or any(column.needs_weights for _, column in chosen)
    result = profile_model(model, replace(request, sparsity=reads_weights), _operators(plugins))
    _write_profile(result, json_file, csv_file, names)
    if STDOUT not in (json_file, csv_file):
        from pytest_modelperf.report.text import LayerView, render_profile

        click.echo(
            render_profile(result, LayerView(names, order, top or None), _terminal_style()),
            nl=False,
        )


@main.command()
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@_case_options
@_model_options
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
def compare(  # noqa: PLR0913  # one parameter per option
    *,
    before: str,
    after: str,
    static: bool,
    batch: str | None,
    cores: str,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Compare two versions of a model, A before and B now: exit code 1 if B costs more.

    \b
    modelperf compare old.onnx new.onnx --static
    modelperf compare old.onnx new.onnx --static --batch 1,8 --json -
    """  # noqa: D301  # click: keep the lines of the paragraph
    _require_static(static=static)

    from pytest_modelperf.compare import compare_profiles
    from pytest_modelperf.session import profile_model
    from pytest_modelperf.verdicts import Verdict

    request = _request(batch, cores, dims, inputs)
    operators = _operators(plugins)
    result = compare_profiles(
        profile_model(before, request, operators), profile_model(after, request, operators)
    )
    if json_file is not None:
        from pytest_modelperf.serde import dump_comparison

        _write(json_file, dump_comparison(result))
    if json_file != STDOUT:
        from pytest_modelperf.report.text import render_comparison

        click.echo(render_comparison(result, _terminal_style()), nl=False)
    if result.verdict is Verdict.REGRESSED:
        raise SystemExit(1)


@main.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, metavar="OUT", help="The model to write.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.")
@_model_options
@click.option(
    "--names",
    metavar="NAME[,NAME...]",
    help="Hidden tensors to make outputs; repeat the option for a name that holds a comma.",
    multiple=True,
)
def shapes(  # noqa: PLR0913  # one parameter per option
    *,
    model: str,
    output: str,
    batch: int | None,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    names: tuple[str, ...],
) -> None:
    """Write MODEL with the shape of every tensor in it, to look at in Netron or to cut up.

    \b
    modelperf shapes model.onnx -o shaped.onnx --batch 8
    modelperf shapes model.onnx -o probed.onnx --names conv1_out,fc_out
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.graph.binding import Binding
    from pytest_modelperf.graph.load import load_model
    from pytest_modelperf.graph.model_file import open_model
    from pytest_modelperf.graph.rewrite import write_shaped_model

    sizes = {name: values[0] for name, values in _parse_dims(dims, several=False).items()}
    operators = _operators(plugins)
    bound = load_model(
        open_model(model),
        Binding(batch, sizes, _parse_inputs(inputs)),
        operators.shape_rules,
    )
    written = write_shaped_model(bound, Path(output), names)
    click.echo(
        f"{output}: {written.known_shapes} of {written.tensors} tensors have a shape"
        + (f", {len(written.new_outputs)} more as outputs" if written.new_outputs else "")
    )


def _require_static(*, static: bool) -> None:
    if not static:
        raise UsageError("only static profiles can be made: add --static.")


def _request(
    batch: str | None, cores: str, dims: Sequence[str], inputs: Sequence[str]
) -> ProfileRequest:
    from pytest_modelperf.session import ProfileRequest

    return ProfileRequest(
        batch_sizes=_numbers("--batch", batch) if batch is not None else (None,),
        cores=_numbers("--cores", cores),
        dims=_parse_dims(dims),
        inputs=_parse_inputs(inputs),
    )


def _column_names(text: str | None, *, sparsity: bool) -> tuple[str, ...]:
    from pytest_modelperf.report.layer_columns import (
        DEFAULT_COLUMNS,
        LAYER_COLUMNS,
        SPARSITY_COLUMNS,
    )

    if text == "all":
        return tuple(LAYER_COLUMNS)
    if text is not None:
        return tuple(name.strip() for name in text.split(","))
    return (*DEFAULT_COLUMNS, *SPARSITY_COLUMNS) if sparsity else DEFAULT_COLUMNS


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """The positive numbers of a comma-separated list."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} takes numbers of 1 or more, such as 1,8; not {text!r}.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _parse_dims(texts: Sequence[str], *, several: bool = True) -> dict[str, tuple[int, ...]]:
    from pytest_modelperf.graph.binding import parse_dim

    dims: dict[str, tuple[int, ...]] = {}
    for text in texts:
        first, *more = text.split(",") if several else [text]
        name, size = parse_dim(first)
        values = (size, *(parse_dim(f"{name}={part}")[1] for part in more))
        if name in dims:
            raise UsageError(f"--dim {name} is given twice. Give several sizes as {name}=64,128.")
        dims[name] = values
    return dims


def _parse_inputs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    from pytest_modelperf.graph.binding import parse_input_spec

    return tuple(parse_input_spec(text) for text in texts)


def _operators(plugins: Sequence[str]) -> Operators:
    from pytest_modelperf.hookspecs import collect_operators, import_plugin, make_plugin_manager

    manager = make_plugin_manager()
    # As with `python -m`, modules of the current folder can be named.
    if plugins and "" not in sys.path:
        sys.path.insert(0, "")
    for name in plugins:
        import_plugin(manager, name)
    return collect_operators(manager)


def _write_profile(
    result: Profile, json_file: str | None, csv_file: str | None, columns: Sequence[str]
) -> None:
    if json_file is not None:
        from pytest_modelperf.serde import dump_profile
        from pytest_modelperf.session import on_this_machine

        _write(json_file, dump_profile(on_this_machine(result)))
    if csv_file is not None:
        from pytest_modelperf.report.csv_text import render_csv

        _write(csv_file, render_csv(result, columns))


def _write(target: str, text: str) -> None:
    if target == STDOUT:
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(
            f"cannot write {printable(target)}: {error.strerror or error}."
        ) from error


def _terminal_style() -> TextStyle:
    """Colour and the terminal's width on a terminal; plain and whole in a pipe."""
    import shutil

    from pytest_modelperf.report.text import TextStyle

    on_terminal = sys.stdout.isatty()
    color = on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if on_terminal or "COLUMNS" in os.environ:
        return TextStyle(shutil.get_terminal_size().columns, color)
    return TextStyle(None, color)
