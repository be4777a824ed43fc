"""`modelperf profile`: measures how long a model takes and what it costs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    Measuring,
    Seconds,
    case_options,
    load_extensions,
    model_options,
    profiling_options,
    read_request,
)
from pytest_modelperf.cli.output import ProgressLine, terminal_style, write
from pytest_modelperf.cli.profile_store import Keeping, profile_dir_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.records import Profile
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.roofline.records import Roofline

DEFAULT_TOP = 20
_NOT_MEASURED = 3


@click.command(short_help="Measure what a model costs, in total and by layer.")
@click.argument("model", type=click.Path())
@case_options
@model_options
@click.option(
    "--input-file", metavar="F.npz", help="Run the model on these arrays, named as its inputs."
)
@profiling_options
@click.option(
    "--min-seconds",
    type=Seconds(),
    metavar="S",
    help="Measure each case for at least this many seconds.  [default: until the median is "
    "precise]",
)
@click.option("--sparsity", is_flag=True, help="Read the weights and show how sparse they are.")
@click.option(
    "--roofline",
    is_flag=True,
    help="Show how near each layer is to what the machine's peaks allow. The peaks are measured "
    "once, in a few seconds, and kept.",
)
@click.option(
    "--measure-peaks",
    "measures_peaks",
    is_flag=True,
    help="As --roofline, but measure the peaks anew.",
)
@click.option(
    "--columns",
    metavar="NAME[,NAME...]",
    help="Columns of the layer table, as in name,type,ms,macs%; 'all' for every one. The error "
    "for an unknown name lists them.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Column that sorts the layer table.  [default: ms (macs with --static), or graph order "
    "with --top 0]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    default=DEFAULT_TOP,
    show_default=True,
    help="How many layers to show; 0 for all.",
)
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
@click.option("--csv", "csv_file", metavar="F", help="Write the layers as CSV; - for stdout.")
@click.option("--html", "html_file", metavar="F", help="Write a page for a browser; - for stdout.")
@click.option(
    "--markdown", "markdown_file", metavar="F", help="Write the report in Markdown; - for stdout."
)
@click.option(
    "--trace",
    "trace_file",
    metavar="F",
    help="Write a trace for ui.perfetto.dev or chrome://tracing; - for stdout. Rounds have "
    "their real times; layers have measured durations, and follow one another.",
)
@click.option(
    "--name", metavar="NAME", help="Keep the profile under this name, for `modelperf profiles`."
)
@click.option("--replace", "replaces", is_flag=True, help="Replace the kept profile of that name.")
@profile_dir_option
def profile(  # noqa: PLR0913  # one parameter per option
    *,
    model: str,
    static: bool,
    batch: str | None,
    cores: str,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    input_file: str | None,
    engine: str,
    engine_options: tuple[str, ...],
    gateway: str,
    max_seconds: float,
    warmup_seconds: float | None,
    min_seconds: float | None,
    timeout: float,
    sparsity: bool,
    roofline: bool,
    measures_peaks: bool,
    columns: str | None,
    sort: str | None,
    top: int,
    json_file: str | None,
    csv_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
    trace_file: str | None,
    name: str | None,
    replaces: bool,
    profile_dir: str | None,
) -> None:
    """Profile MODEL: how long it takes and what it costs, in total, by layer type, and by layer.

    With --engine callable, MODEL is a Python function: package.module:function.

    \b
    modelperf profile model.onnx --batch 1,8 --cores 1,2
    modelperf profile model.onnx --dim seq=64 --max-seconds 30 --json profile.json
    modelperf profile model.onnx --trace trace.json --html profile.html
    modelperf profile model.onnx --roofline
    modelperf profile model.onnx --batch 1 --cores 4 --name baseline
    modelperf profile model.onnx --engine openvino --engine-option device=CPU
    modelperf profile model.onnx --gateway popen//python=other-venv/bin/python
    modelperf profile model.onnx --static --batch 1,8 --dim seq=64 --top 0
    modelperf profile model.onnx --static --columns name,type,ops,ops%,memory,params --sort memory
    """  # noqa: D301  # click: keep the lines of the paragraph
    targets = {
        "--json": json_file,
        "--csv": csv_file,
        "--html": html_file,
        "--markdown": markdown_file,
        "--trace": trace_file,
    }
    is_shown = check_outputs(targets, model, input_file)
    if static:
        _check_static(trace_file, input_file, has_roofline=roofline or measures_peaks)

    from pytest_modelperf.profiler.tables.layer_columns import find_columns

    if html_file is not None:
        from pytest_modelperf.report.html.extra import check_html_extra

        check_html_extra("--html")
    names = _column_names(columns, sparsity=sparsity, static=static)
    chosen = find_columns(names)
    if sort is not None:
        chosen += find_columns([sort])
    timed = [name for name, column in chosen if column.needs_times]
    if static and timed:
        raise UsageError(f"the column {timed[0]!r} needs a run of the model: leave --static out.")
    order = sort or (("macs" if static else "ms") if top else None)

    keeping = Keeping.of(model, name, profile_dir, replaces=replaces, static=static)
    extensions = load_extensions(plugins)
    reads_weights = sparsity or any(column.needs_weights for _, column in chosen)
    request = replace(read_request(batch, cores, dims, inputs, input_file), sparsity=reads_weights)
    measuring = Measuring(
        engine,
        engine_options,
        gateway,
        max_seconds,
        timeout,
        warmup_seconds=warmup_seconds,
        min_seconds=min_seconds,
    )
    result = _profile(model, request, None if static else measuring, extensions)
    rooflines = (
        _find_rooflines(result, measuring, extensions, measures_anew=measures_peaks)
        if roofline or measures_peaks
        else {}
    )

    from pytest_modelperf.profiler.tables.layers import LayerView
    from pytest_modelperf.profiler.text import render_profile
    from pytest_modelperf.report.markdown_page import MarkdownStyle
    from pytest_modelperf.roofline.text import roofline_insets

    view = LayerView(names, order, top or None)
    insets = roofline_insets(rooflines, view.top)
    if is_shown:
        click.echo(render_profile(result, view, terminal_style(), insets), nl=False)
    if markdown_file is not None:
        write(markdown_file, render_profile(result, view, MarkdownStyle(), insets))
    _write_profile(result, rooflines, json_file, csv_file, html_file, names)
    if trace_file is not None:
        from pytest_modelperf.tracing.profile_trace import dump_trace

        write(trace_file, dump_trace(result))
    if not static:
        _keep(result, rooflines, keeping, is_shown=is_shown)
        _end_unless_measured(result, is_shown=is_shown)


def _check_static(trace_file: str | None, input_file: str | None, *, has_roofline: bool) -> None:
    """UsageError for an option that needs a run of the model."""
    if trace_file is not None:
        raise UsageError("--trace shows a run of the model: leave --static out, or it.")
    if input_file is not None:
        raise UsageError("--input-file is for a run of the model: leave out --static, or it.")
    if has_roofline:
        raise UsageError("a roofline is of a run of the model: leave out --static, or --roofline.")


def _profile(
    model: str, request: ProfileRequest, measuring: Measuring | None, extensions: Extensions
) -> Profile:
    if measuring is None:
        from pytest_modelperf.profiler.request import profile_model

        return profile_model(model, request, extensions.operators)
    setup = measuring.setup(extensions)

    from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
    from pytest_modelperf.profiler.measuring import measure_function, measure_model

    progress = ProgressLine()
    try:
        if setup.engine.name == CALLABLE_ENGINE:
            return measure_function(model, request, setup, progress)
        return measure_model(model, request, setup, extensions, progress)
    finally:
        progress.clear()


def _find_rooflines(
    result: Profile, measuring: Measuring, extensions: Extensions, *, measures_anew: bool
) -> Mapping[str, Roofline]:
    """Returns the rooflines by the ids of their cases, and prints what was noted."""
    from pytest_modelperf.roofline.peaks import find_rooflines
    from pytest_modelperf.roofline.store import cache_folder

    progress = ProgressLine()
    try:
        found = find_rooflines(
            result,
            measuring.setup(extensions),
            cache_folder(),
            progress,
            measures_anew=measures_anew,
        )
    finally:
        progress.clear()
    for note in found.notes:
        click.echo(printable(note), err=True)
    return found.by_case


def _keep(
    result: Profile,
    rooflines: Mapping[str, Roofline],
    keeping: Keeping | None,
    *,
    is_shown: bool,
) -> None:
    """Keeps the profile if a name was given, and prints where."""
    if keeping is not None:
        click.echo(keeping.keep(result, rooflines), err=not is_shown)


def _end_unless_measured(result: Profile, *, is_shown: bool) -> None:
    """Exit status 3 if a case failed, or if nothing was measured.

    The report says why. If no report is shown, this function does.
    """
    from pytest_modelperf.profiler.records import Outcome

    failed = [case for case in result.cases if case.outcome is Outcome.FAILED]
    if failed or all(case.measured is None for case in result.cases):
        for case in result.cases:
            if case.measured is None and not is_shown:
                where = f"{printable(result.model.name)} {case.case.id}"
                click.echo(f"{where}: {case.outcome.value}: {case.reason}", err=True)
        raise SystemExit(_NOT_MEASURED)


def _column_names(text: str | None, *, sparsity: bool, static: bool) -> tuple[str, ...]:
    from pytest_modelperf.profiler.tables.layer_columns import (
        ALL_COLUMNS,
        DEFAULT_COLUMNS,
        LAYER_COLUMNS,
        MEASURED_COLUMNS,
        SPARSITY_COLUMNS,
    )

    if text == "all":
        return tuple(LAYER_COLUMNS if static else ALL_COLUMNS)
    if text is not None:
        return tuple(name.strip() for name in text.split(","))
    usual = DEFAULT_COLUMNS if static else MEASURED_COLUMNS
    return (*usual, *SPARSITY_COLUMNS) if sparsity else usual


def _write_profile(  # noqa: PLR0913, PLR0917  # one for each output
    result: Profile,
    rooflines: Mapping[str, Roofline],
    json_file: str | None,
    csv_file: str | None,
    html_file: str | None,
    columns: Sequence[str],
) -> None:
    if json_file is not None:
        from pytest_modelperf.profiler.document import dump_profile
        from pytest_modelperf.profiler.request import on_this_machine
        from pytest_modelperf.roofline.document import rooflines_to_json

        known = result if result.machine is not None else on_this_machine(result)
        write(json_file, dump_profile(known, rooflines_to_json(rooflines)))
    if csv_file is not None:
        from pytest_modelperf.profiler.csv import render_csv

        write(csv_file, render_csv(result, columns))
    if html_file is not None:
        from pytest_modelperf.profiler.page import render_profile_page

        write(html_file, render_profile_page(result, made=dt.datetime.now(dt.timezone.utc)))
