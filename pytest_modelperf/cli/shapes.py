"""`modelperf shapes` shows the shape of every tensor, or writes a model that has them."""

from __future__ import annotations

from functools import partial

import click

from pytest_modelperf.cli.groups import GroupedCommand, HelpGroup, option_of
from pytest_modelperf.cli.options import (
    load_extensions,
    one_size_options,
    request_of_one_size,
    takes_records,
)
from pytest_modelperf.cli.output import show, terminal_style
from pytest_modelperf.cli.settings import setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs
from pytest_modelperf.spec.case_definitions import BATCH_SIZE
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list

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
    tell = partial(show, err=not leaves_stdout)
    name = "the model on standard output" if output == "-" else printable(output)
    tell(
        f"{name}: {known} of {written.tensors} tensors have a shape"
        + (f", {len(written.new_outputs)} more as outputs\n" if written.new_outputs else "\n")
    )
    if written.left_beside:
        left = shorten_list([*map(printable, written.left_beside)], _MOST_NAMED)
        tell(f"weights stay in {left}: put that next to the model to run it\n")
    if written.unknown:
        named = shorten_list([*map(printable, written.unknown)], _MOST_NAMED)
        tell(f"without one: {named}\n")
