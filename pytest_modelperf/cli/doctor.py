"""`modelperf doctor` measures how noisy this machine is, and which change it could detect."""

from __future__ import annotations

import datetime as dt
import os
from functools import partial

import click
from msgspec.structs import replace

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.cli.options import (
    OutputOptions,
    load_extensions,
    measuring_options,
    model_setup,
    one_size_options,
    output_options,
    request_of_one_size,
    takes_records,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.settings import setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES, INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings


@click.command(cls=GroupedCommand, short_help="Measure how noisy this machine is.")
@click.argument("model", type=click.Path(), required=False)
@setting_option(BATCH_SIZE, metavar="N", help="batch size")
@setting_option(CORES)
@one_size_options
@setting_option(INPUT_FILE)
@measuring_options()
@output_options(csv="a row for each number of cores")
@takes_records(cases=CaseSpec, measuring=MeasuringSettings, outputs=OutputOptions)
def doctor(
    *,
    model: str | None,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    outputs: OutputOptions,
) -> None:
    """Measure how noisy this machine is: MODEL, or a small network, runs against itself.

    Two sessions of one model take turns, so any difference between them is noise. The report says
    which slowdown could be detected here, and in how many seconds.

    \b
    modelperf doctor
    modelperf doctor model.onnx --cores 1,2 --max-seconds 20
    modelperf doctor --html doctor.html
    """  # noqa: D301  # click: keep the lines of the paragraph
    models = () if model is None else (model,)
    is_shown = outputs.check(*models, input_file=cases.input_file)
    extensions = load_extensions(plugins)
    if model is None and cases.input_file is not None:
        raise UsageError("--input-file is for a model: give MODEL as well, or leave it out.")
    request = request_of_one_size(cases, "doctor runs a model", is_one_case=False)
    setup = model_setup(measuring, extensions, "a checkup")

    from pytest_modelperf.profiler.doctor.checkup import check_machine
    from pytest_modelperf.profiler.doctor.records import CHECKUPS, Checkups
    from pytest_modelperf.profiler.doctor.report import checkup_report
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
    from pytest_modelperf.tracing.hook import explain_no_hook, own_site_folder

    policy = replace(
        DUET_POLICY,
        max_seconds=setup.policy.max_seconds,
        min_warmup_seconds=setup.policy.min_warmup_seconds,
    )
    with shown_progress() as progress:
        checkups = check_machine(
            replace(setup, policy=policy), model, request, extensions, progress
        )
    if (
        os.environ.get("MODELPERF_TRACE")
        and (hint := explain_no_hook(own_site_folder())) is not None
    ):
        click.echo(f"note: {hint}.", err=True)
    machine = describe_machine()
    report = checkup_report(machine, checkups, dt.datetime.now(dt.timezone.utc))
    document = partial(CHECKUPS.dump, Checkups(machine, tuple(checkups)))
    write_report(report, document, outputs, is_shown=is_shown)
