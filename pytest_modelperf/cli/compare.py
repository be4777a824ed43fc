"""`modelperf compare`: compares two versions of a model, and says if the new one costs more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    Measuring,
    case_options,
    comparing_options,
    is_given,
    load_extensions,
    model_options,
    parse_interpreter,
    read_request,
)
from pytest_modelperf.cli.output import ProgressLine, terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.baselines.records import Baseline
    from pytest_modelperf.comparing.records import Comparison
    from pytest_modelperf.profiler.hookspecs import Extensions
    from pytest_modelperf.profiler.request import ProfileRequest

_WORSE = 1
_NOT_MEASURED = 3


@click.command(short_help="Compare two versions of a model in time and work.")
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@case_options
@model_options
@click.option(
    "--input-file", metavar="F.npz", help="Run the models on these arrays, named as the inputs."
)
@comparing_options
@click.option(
    "--tolerance",
    metavar="SHARE",
    default="0.03",
    show_default=True,
    help="How much slower B may be: 0.03 is 3 %. For single figures: p50=0.02,p99=0.1,macs=0.01.",
)
@click.option("--python-a", metavar="PATH", help="Run A in this Python.  [default: this one]")
@click.option("--python-b", metavar="PATH", help="Run B in this Python.  [default: this one]")
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
@click.option("--csv", "csv_file", metavar="F", help="Write the figures as CSV; - for stdout.")
@click.option("--html", "html_file", metavar="F", help="Write a page for a browser; - for stdout.")
@click.option(
    "--markdown", "markdown_file", metavar="F", help="Write a report in Markdown; - for stdout."
)
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
    input_file: str | None,
    engine: str,
    engine_options: tuple[str, ...],
    gateway: str,
    max_seconds: float,
    warmup_seconds: float | None,
    timeout: float,
    tolerance: str,
    python_a: str | None,
    python_b: str | None,
    json_file: str | None,
    csv_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
) -> None:
    """Compare two versions of a model, A before and B now: exit code 1 if B got worse.

    Both run in turn on this machine, so its noise affects both alike. A may be the folder of a
    baseline; then its twin runs. A and B may be the same model in two interpreters.

    \b
    modelperf compare old.onnx new.onnx --batch 1,8 --cores 1,2
    modelperf compare model.onnx model.onnx --python-a old-venv/bin/python
    modelperf compare baselines/encoder encoder.onnx
    modelperf compare old.onnx new.onnx --html report.html --json result.json
    modelperf compare old.onnx new.onnx --static
    """  # noqa: D301  # click: keep the lines of the paragraph
    targets = {
        "--json": json_file,
        "--csv": csv_file,
        "--html": html_file,
        "--markdown": markdown_file,
    }
    is_shown = check_outputs(targets, before, after, input_file)
    if static:
        _check_static({"--python-a": python_a, "--python-b": python_b})
    if html_file is not None:
        from pytest_modelperf.report.html.extra import check_html_extra

        check_html_extra("--html")
    extensions = load_extensions(plugins)
    request = read_request(batch, cores, dims, inputs, input_file)
    if static:
        result = _compare_static(before, after, request, tolerance, extensions)
    else:
        from pytest_modelperf.profiler.sampling_policy import STRETCH_SECONDS

        stretch_seconds = None if is_given("max_seconds") else STRETCH_SECONDS
        measuring = Measuring(
            engine, engine_options, gateway, max_seconds, timeout, stretch_seconds, warmup_seconds
        )
        specs = (
            parse_interpreter("--python-a", python_a),
            parse_interpreter("--python-b", python_b),
        )
        result = _compare_measured(
            (before, after), specs, request, measuring, tolerance, extensions
        )
    if json_file is not None:
        from pytest_modelperf.comparing.document import dump_comparison

        write(json_file, dump_comparison(result))
    if csv_file is not None:
        from pytest_modelperf.comparing.csv import render_comparison_csv

        write(csv_file, render_comparison_csv(result))
    if html_file is not None:
        write(html_file, _render_page(result, is_here=not static and gateway.startswith("popen")))
    if markdown_file is not None:
        from pytest_modelperf.comparing.markdown import render_markdown

        write(markdown_file, render_markdown(result))
    if is_shown:
        from pytest_modelperf.comparing.text import render_comparison

        click.echo(render_comparison(result, terminal_style()), nl=False)
    _end_by(result)


def _check_static(given: Mapping[str, str | None]) -> None:
    """UsageError for an option that needs a run of the models."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is for a run of the models: leave out --static, or it.")


def _compare_static(
    before: str, after: str, request: ProfileRequest, tolerance: str, extensions: Extensions
) -> Comparison:
    from pytest_modelperf.baselines.recorded_request import request_as_recorded
    from pytest_modelperf.compare import compare_profiles
    from pytest_modelperf.comparing.by_counts import compare_with_baseline
    from pytest_modelperf.comparing.limits import read_tolerances
    from pytest_modelperf.profiler.request import profile_both, profile_model

    tolerances = read_tolerances(tolerance, "--tolerance")
    if Path(before).is_dir():
        from pytest_modelperf.profiler.preparation import Model

        stored = _read_baseline(Path(before)).model
        request = request_as_recorded(request, stored, after)
        profile = profile_model(after, request, extensions.operators)
        given = Model.load(after, request, extensions).given_inputs()
        return compare_with_baseline(stored, profile, given, tolerances)
    return compare_profiles(*profile_both(before, after, request, extensions.operators), tolerances)


def _compare_measured(  # noqa: PLR0913, PLR0917  # what, where, how, and by which rule
    models: tuple[str, str],
    specs: tuple[str | None, str | None],
    request: ProfileRequest,
    measuring: Measuring,
    tolerance: str,
    extensions: Extensions,
) -> Comparison:
    setup = measuring.model_setup(extensions, "a comparison")

    from pytest_modelperf.baselines.recorded_request import request_as_recorded
    from pytest_modelperf.comparing.by_duet import compare_models
    from pytest_modelperf.comparing.gates import Gate
    from pytest_modelperf.comparing.limits import read_tolerances
    from pytest_modelperf.comparing.sides import Side, baseline_side
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.stats.allowed_rounds import rounds_within

    before, after = (
        Side(model, setup if spec is None else replace(setup, spec=spec))
        for model, spec in zip(models, specs, strict=True)
    )
    progress = ProgressLine()
    with ExitStack() as stack:
        stack.callback(progress.clear)
        if Path(models[0]).is_dir():
            stored = _read_baseline(Path(models[0]))
            request = request_as_recorded(request, stored.model, models[1])
            key = describe_machine().key
            side = baseline_side(stored, key, after, request, extensions)
            before = replace(stack.enter_context(side), setup=before.setup)
        gate = Gate(
            tolerances=read_tolerances(tolerance, "--tolerance"),
            rounds=rounds_within(measuring.max_seconds),
        )
        return compare_models(before, after, request, gate, extensions, progress)


def _render_page(result: Comparison, *, is_here: bool) -> str:
    """Returns the page; it names this machine if both ran on it."""
    from pytest_modelperf.comparing.page import render_comparison_page
    from pytest_modelperf.profiler.machine.describe import describe_machine

    machine = describe_machine() if is_here else None
    return render_comparison_page(result, machine=machine, made=dt.datetime.now(dt.timezone.utc))


def _read_baseline(folder: Path) -> Baseline:
    """Returns the baseline in a folder such as `baselines/encoder`."""
    from pytest_modelperf.baselines.store import BaselineStore

    found = BaselineStore(folder.parent).read(folder.name)
    if found is None:
        raise UsageError(
            f"{printable(str(folder))} is no baseline: it has no model.json. Give a model, or a "
            "folder such as baselines/encoder."
        )
    return found


def _end_by(result: Comparison) -> None:
    """Ends with the exit status; a failed case outranks a worse one, as not all was compared."""
    from pytest_modelperf.comparing.records import Verdict

    if any(case.failure is not None for case in result.cases):
        raise SystemExit(_NOT_MEASURED)
    if result.verdict in {Verdict.REGRESSED, Verdict.OVER_BUDGET}:
        raise SystemExit(_WORSE)
