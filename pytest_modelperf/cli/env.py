"""`modelperf env` lists the environments with other versions of engines, and removes them."""

from __future__ import annotations

import datetime as dt
import re
from functools import partial

import click

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.cli.options import OutputOptions, output_options, takes_records
from pytest_modelperf.cli.output import show, show_report, write_report
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

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
