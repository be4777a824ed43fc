"""`modelperf shapes`: the model with the shape of every tensor written into it."""

from __future__ import annotations

from functools import partial

import click

from pytest_modelperf.cli.options import (
    load_extensions,
    one_size_options,
    parse_dims,
    parse_inputs,
)
from pytest_modelperf.output_files import check_outputs
from pytest_modelperf.units import printable, shorten_list

_MOST_NAMED = 5


@click.command(short_help="Write a model with the shape of every tensor.")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="The model to write; - for stdout."
)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.")
@one_size_options
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
    has_stdout = check_outputs({"-o": output}, model)

    from pytest_modelperf.graph.binding import Binding
    from pytest_modelperf.graph.load import load_model
    from pytest_modelperf.graph.model_file import open_model
    from pytest_modelperf.graph.rewrite import write_shaped_model

    sizes = {name: values[0] for name, values in parse_dims(dims, several=False).items()}
    operators = load_extensions(plugins).operators
    bound = load_model(
        open_model(model),
        Binding(batch, sizes, parse_inputs(inputs)),
        operators.shape_rules,
    )
    written = write_shaped_model(bound, output, names)
    known = written.tensors - len(written.unknown)
    # Where the model itself is on standard output, nothing else may be.
    tell = partial(click.echo, err=not has_stdout)
    tell(
        f"{printable(output)}: {known} of {written.tensors} tensors have a shape"
        + (f", {len(written.new_outputs)} more as outputs" if written.new_outputs else "")
    )
    if written.left_beside:
        left = shorten_list([*map(printable, written.left_beside)], _MOST_NAMED)
        tell(f"weights stay in {left}: put that beside the model to run it")
    if written.unknown:
        named = shorten_list([*map(printable, written.unknown)], _MOST_NAMED)
        tell(f"without one: {named}")
