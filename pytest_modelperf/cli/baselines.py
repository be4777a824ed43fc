"""`modelperf baselines` lists the recorded baselines, or what changed in them since a commit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.cli.history import find_project_root, project_folder
from pytest_modelperf.cli.options import (
    OutputOptions,
    output_options,
    project_folder_option,
    takes_records,
)
from pytest_modelperf.cli.output import write_report

_INCOMPLETE = 2


@click.command(cls=GroupedCommand, short_help="List recorded baselines, and what changed in them.")
@project_folder_option(
    "--dir", "folder", of="baselines", default="baseline_dir of [tool.modelperf], or baselines"
)
@click.option(
    "--diff",
    "ref",
    metavar="REF",
    help="Show what changed since this git ref: a line for each new, changed or removed baseline.",
)
@output_options(csv="a row for each case, or each change,")
@takes_records(outputs=OutputOptions)
def baselines(*, folder: str | None, ref: str | None, outputs: OutputOptions) -> None:
    """List the baselines that `pytest --modelperf --modelperf-update-baseline` recorded.

    The exit code is 2 if a baseline is broken, and otherwise 0, even if baselines changed.

    \b
    modelperf baselines
    modelperf baselines --diff main
    modelperf baselines --diff HEAD^1 --json changes.json
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.baselines.overview import (
        BASELINE_DIFF,
        BASELINE_LIST,
        list_baselines,
        review_baselines,
    )
    from pytest_modelperf.baselines.report import overview_report, review_report

    is_shown = outputs.check()
    place = _find_folder(folder)
    if ref is None:
        overview = list_baselines(place)
        broken = overview.broken
        report, document = overview_report(overview), partial(BASELINE_LIST.dump, overview)
    else:
        review = review_baselines(place, ref)
        broken = review.broken
        report, document = review_report(review), partial(BASELINE_DIFF.dump, review)
    write_report(report, document, outputs, is_shown=is_shown)
    if broken:
        raise SystemExit(_INCOMPLETE)


def _find_folder(given: str | None) -> Path:
    """Return the given folder, or the project's, relative to the working folder if possible."""
    if given is not None:
        return Path(given)
    folder = project_folder(find_project_root(), "baseline_dir", "baselines")
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
