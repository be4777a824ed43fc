"""Commands about this machine: its noise, its environments, and its work for a cluster.

`modelperf doctor` measures how noisy the machine is, and which change it could detect.
`modelperf env` lists the environments with other versions of engines, and removes them.
`modelperf worker` measures on this machine what clients of a cluster request.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from functools import partial

import click
from msgspec.structs import replace

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
from pytest_modelperf.cli.output import show, show_report, shown_progress, write_report
from pytest_modelperf.cli.parameters import GroupedCommand, setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import BATCH_SIZE, CORES, INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import page_url
from pytest_modelperf.text.words import count_of


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


_ALL = "all"
_AGE = re.compile(r"([0-9]{1,5})([dh])", re.ASCII)
_HOURS = {"d": 24, "h": 1}


@click.command(
    cls=GroupedCommand, short_help="List and remove environments with other versions of engines."
)
@click.option(
    "--prune",
    metavar="AGE|all",
    help="Remove the environments that were not used for this long, as in 30d or 12h, or all.",
)
@output_options()
@takes_records(outputs=OutputOptions)
def env(*, prune: str | None, outputs: OutputOptions) -> None:
    """List the environments that --requirement and similar options made, and remove unused ones.

    They are in the cache of this user; MODELPERF_CACHE_DIR names another folder for it. Do not
    remove one while a model runs in it. --prune also removes the worktrees of older commits that
    programs are compared with.

    \b
    modelperf env
    modelperf env --prune 30d
    modelperf env --prune all
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.environments.records import CACHE_CONTENT, CacheContent
    from pytest_modelperf.environments.report import environments_report, removal_report
    from pytest_modelperf.environments.store import (
        environments_folder,
        list_environments,
        prune_environments,
        with_sizes,
    )
    from pytest_modelperf.programs.worktrees import prune_trees
    from pytest_modelperf.report.render import render_report

    is_shown = outputs.check()
    now = dt.datetime.now(dt.timezone.utc)
    folder = environments_folder()
    removed = None
    if prune is not None:
        unused_since = _parse_age(prune, now)
        removed = prune_environments(folder, unused_since)
        trees = prune_trees(unused_since)
        if trees:
            show(f"removed {count_of(trees, 'worktree')} of older commits\n", err=not is_shown)
        show_report(partial(render_report, removal_report(removed)), None, is_shown=is_shown)
    kept = with_sizes(list_environments(folder))
    content = CacheContent(kept, () if removed is None else removed.environments)
    document = partial(CACHE_CONTENT.dump, content)
    write_report(environments_report(kept), document, outputs, is_shown=is_shown)


def _parse_age(text: str, now: dt.datetime) -> dt.datetime | None:
    """Return the time that many days or hours ago, or None for all."""
    if text == _ALL:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--prune takes an age such as 30d or 12h, or all; not {printable(text)!r}."
        )
    return now - dt.timedelta(hours=int(found[1]) * _HOURS[found[2]])


@click.command(cls=GroupedCommand, short_help="Measure on this machine for a cluster.")
@click.argument("address")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="T",
    help="A name by which runs can choose this machine, as in --tag board; repeatable.  "
    "[default: the tags in MODELPERF_TAGS]",
)
@click.option(
    "--host",
    metavar="H",
    help="Listen at this address of the machine.  [default: the one that leads to the scheduler]",
)
def worker(*, address: str, tags: tuple[str, ...], host: str | None) -> None:
    """Measure on this machine for the Dask cluster at ADDRESS, until it is interrupted.

    ADDRESS is that of the scheduler, or the path of its scheduler file. A machine measures one
    case at a time, so start one worker on each machine.

    Anyone who reaches an open Dask port can run code: keep it inside a network that you trust, or
    use tls:// with certificates in Dask's configuration. 0.0.0.0 as H listens on all interfaces.

    \b
    modelperf worker tcp://scheduler:8786
    modelperf worker tls://scheduler:8786 --tag board --tag quiet
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.cluster.places import check_cluster_extra

    check_cluster_extra("modelperf worker")

    from pytest_modelperf.cluster.connection import serve
    from pytest_modelperf.cluster.places import is_encrypted

    def announce(own: str) -> None:
        click.echo(f"measuring for {address} at {own}", err=True)
        if not is_encrypted(own):
            click.echo(
                f"warning: without TLS, anyone who reaches {own} can run code here as this user: "
                f"see {page_url('cluster')}#tls",
                err=True,
            )

    if not serve(address, tags, host, announce):
        click.echo(
            f"the scheduler at {address} stopped, or closed this worker: start the worker again "
            "when there is a scheduler.",
            err=True,
        )
