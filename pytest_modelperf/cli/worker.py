"""`modelperf worker` measures on this machine what clients of a cluster request."""

from __future__ import annotations

import click

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.text.version import page_url


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

    def tell(own: str) -> None:
        click.echo(f"measuring for {address} at {own}", err=True)
        if not is_encrypted(own):
            click.echo(
                f"warning: without TLS, anyone who reaches {own} can run code here as this user: "
                f"see {page_url('cluster')}#tls",
                err=True,
            )

    if not serve(address, tags, host, tell):
        click.echo(
            f"the scheduler at {address} stopped, or closed this worker: start the worker again "
            "when there is a scheduler.",
            err=True,
        )
