"""`modelperf compare`: two versions of a model, and whether the new one costs more."""

from __future__ import annotations

import click

from pytest_modelperf.cli.options import (
    case_options,
    load_extensions,
    model_options,
    read_request,
)
from pytest_modelperf.cli.output import STDOUT, terminal_style, write
from pytest_modelperf.errors import UsageError


@click.command()
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@case_options
@model_options
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
    if not static:
        raise UsageError("only static profiles can be compared: add --static.")

    from pytest_modelperf.compare import compare_profiles
    from pytest_modelperf.session import profile_model
    from pytest_modelperf.verdicts import Verdict

    request = read_request(batch, cores, dims, inputs)
    operators = load_extensions(plugins).operators
    result = compare_profiles(
        profile_model(before, request, operators), profile_model(after, request, operators)
    )
    if json_file is not None:
        from pytest_modelperf.serde import dump_comparison

        write(json_file, dump_comparison(result))
    if json_file != STDOUT:
        from pytest_modelperf.report.text import render_comparison

        click.echo(render_comparison(result, terminal_style()), nl=False)
    if result.verdict is Verdict.REGRESSED:
        raise SystemExit(1)
