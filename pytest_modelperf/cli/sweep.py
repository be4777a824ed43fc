"""`modelperf sweep`: measures one model or two at many configurations, and names the best.

If click's context has an object, that measures in place of `sweep_models`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    Measuring,
    configuration_options,
    load_extensions,
    model_options,
    parse_interpreter,
    parse_numbers,
    parse_threshold,
    read_request,
    sweeping_options,
)
from pytest_modelperf.cli.output import ProgressLine, terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs

if TYPE_CHECKING:
    from pytest_modelperf.sweep.records import Sweep

_NOT_MEASURED = 3


@click.command(short_help="Find the best batch size, cores and streams.")
@click.argument("model", type=click.Path())
@click.option(
    "--against", metavar="OTHER", type=click.Path(), help="The version before; it runs in turn."
)
@click.option(
    "--against-python", metavar="PATH", help="Run OTHER in this Python.  [default: this one]"
)
@configuration_options
@click.option(
    "--latency-threshold",
    metavar="MS",
    help="The longest median latency that the best may have, in milliseconds, as in 20 or 0.5.",
)
@model_options
@click.option(
    "--input-file", metavar="F.npz", help="Run the models on these arrays, named as the inputs."
)
@sweeping_options
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
@click.option(
    "--csv", "csv_file", metavar="F", help="Write the configurations as CSV; - for stdout."
)
@click.option("--html", "html_file", metavar="F", help="Write a page with charts; - for stdout.")
@click.option(
    "--markdown", "markdown_file", metavar="F", help="Write the report in Markdown; - for stdout."
)
@click.pass_obj
def sweep(  # noqa: PLR0913  # one parameter per option
    measure: Callable[..., Sweep] | None,
    *,
    model: str,
    against: str | None,
    against_python: str | None,
    batch: str | None,
    cores: str,
    streams: str,
    latency_threshold: str | None,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    input_file: str | None,
    engine: str,
    engine_options: tuple[str, ...],
    gateway: str,
    max_seconds: float,
    warmup_seconds: float | None,
    timeout: float,
    json_file: str | None,
    csv_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
) -> None:
    """Measure MODEL at every batch size, core count and number of streams, and find the best.

    All configurations run in turn, in random order, so the noise of this machine affects all
    alike. The best gives the most items per second while its median latency is surely within the
    threshold. With --against, OTHER is the version before (A) and MODEL the one now (B).

    \b
    modelperf sweep model.onnx --batch 1,2,4,8 --cores 1,2 --streams 1,2,4
    modelperf sweep model.onnx --batch 1,8 --latency-threshold 20 --html sweep.html
    modelperf sweep new.onnx --against old.onnx --batch 1,8 --cores 1,2 --csv sweep.csv
    modelperf sweep model.onnx --against model.onnx --against-python old-venv/bin/python
    """  # noqa: D301  # click: keep the lines of the paragraph
    targets = {
        "--json": json_file,
        "--csv": csv_file,
        "--html": html_file,
        "--markdown": markdown_file,
    }
    is_shown = check_outputs(targets, model, against, input_file)
    if against is None and against_python is not None:
        raise UsageError("--against-python is for the model of --against: give both, or neither.")
    counts = parse_numbers("--streams", streams)
    threshold_ms = None
    if latency_threshold is not None:
        threshold_ms = parse_threshold("--latency-threshold", latency_threshold)
    if html_file is not None:
        from pytest_modelperf.report.html.extra import check_html_extra

        check_html_extra("--html")
    extensions = load_extensions(plugins)
    request = read_request(batch, cores, dims, inputs, input_file)
    measuring = Measuring(
        engine,
        engine_options,
        gateway,
        max_seconds,
        timeout,
        warmup_seconds=warmup_seconds,
    )
    setup = measuring.model_setup(extensions, "a sweep")

    from pytest_modelperf.sweep.measuring import SweepSource, sweep_models

    sources = [SweepSource(model, setup)]
    if against is not None:
        spec = parse_interpreter("--against-python", against_python)
        sources.insert(0, SweepSource(against, replace(setup, spec=spec or setup.spec)))
    progress = ProgressLine()
    try:
        result = (measure or sweep_models)(
            sources, request, counts, threshold_ms, extensions, progress
        )
    finally:
        progress.clear()
    if is_shown:
        from pytest_modelperf.sweep.text import render_sweep

        click.echo(render_sweep(result, terminal_style()), nl=False)
    _write_sweep(result, json_file, csv_file, html_file)
    if markdown_file is not None:
        from pytest_modelperf.report.markdown_page import MarkdownStyle
        from pytest_modelperf.sweep.text import render_sweep

        write(markdown_file, render_sweep(result, MarkdownStyle()))
    _end_unless_measured(result, is_shown=is_shown)


def _write_sweep(
    result: Sweep, json_file: str | None, csv_file: str | None, html_file: str | None
) -> None:
    if json_file is not None:
        from pytest_modelperf.sweep.document import dump_sweep

        write(json_file, dump_sweep(result))
    if csv_file is not None:
        from pytest_modelperf.sweep.csv import render_sweep_csv

        write(csv_file, render_sweep_csv(result))
    if html_file is not None:
        from pytest_modelperf.sweep.page import render_sweep_page

        write(html_file, render_sweep_page(result, made=dt.datetime.now(dt.timezone.utc)))


def _end_unless_measured(result: Sweep, *, is_shown: bool) -> None:
    """Exit status 3 if a configuration failed, or if nothing was measured.

    The report says why. If no report is shown, this function does.
    """
    from pytest_modelperf.profiler.records import Outcome

    lacking = [p for side in result.sides for p in side.points if p.latency is None]
    if result.has_failed or any(point.outcome is not Outcome.SKIPPED for point in lacking):
        if not is_shown:
            from pytest_modelperf.sweep.text import unmeasured_lines

            for line in unmeasured_lines(result):
                click.echo(line, err=True)
        raise SystemExit(_NOT_MEASURED)
