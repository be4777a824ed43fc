"""`modelperf doctor`: measures how noisy this machine is, and which change it could detect."""

from __future__ import annotations

import click
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    Measuring,
    load_extensions,
    measuring_options,
    one_size_options,
    read_request,
)
from pytest_modelperf.cli.output import ProgressLine, terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs


@click.command(short_help="Measure how noisy this machine is.")
@click.argument("model", type=click.Path(), required=False)
@click.option("--batch", metavar="N", help="Batch size.  [default: the model's own, or 1]")
@click.option("--cores", metavar="N[,N...]", default="1", show_default=True, help="Core counts.")
@one_size_options
@click.option(
    "--input-file", metavar="F.npz", help="Run MODEL on these arrays, named as its inputs."
)
@measuring_options
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
def doctor(  # noqa: PLR0913  # one parameter per option
    *,
    model: str | None,
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
    json_file: str | None,
) -> None:
    """Measure how noisy this machine is: MODEL, or a small network, runs against itself.

    Two sessions of one model take turns, so any difference between them is noise. The report says
    which slowdown could be detected here, and in how many seconds.

    \b
    modelperf doctor
    modelperf doctor model.onnx --cores 1,2 --max-seconds 20
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = check_outputs({"--json": json_file}, model, input_file)
    extensions = load_extensions(plugins)
    if model is None and input_file is not None:
        raise UsageError("--input-file is for a model: give MODEL as well, or leave it out.")
    request = read_request(batch, cores, dims, inputs, input_file)
    if len(list(request.bindings())) > 1:
        raise UsageError(
            "doctor runs a model at one size: give one --batch, and one size of each --dim."
        )
    measuring = Measuring(
        engine,
        engine_options,
        gateway,
        max_seconds,
        timeout,
        warmup_seconds=warmup_seconds,
    )
    setup = measuring.model_setup(extensions, "a checkup")

    from pytest_modelperf.profiler.doctor import check_machine
    from pytest_modelperf.profiler.doctor_text import render_checkups
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.profiler.sampling_policy import DUET_POLICY

    policy = replace(
        DUET_POLICY,
        max_seconds=max_seconds,
        min_warmup_seconds=setup.policy.min_warmup_seconds,
    )
    setup = replace(setup, policy=policy)
    progress = ProgressLine()
    try:
        checkups = check_machine(setup, model, request, extensions, progress)
    finally:
        progress.clear()
    machine = describe_machine()
    if json_file is not None:
        from pytest_modelperf.profiler.doctor_document import dump_checkups

        write(json_file, dump_checkups(machine, checkups))
    if is_shown:
        click.echo(render_checkups(machine, checkups, terminal_style()), nl=False)
