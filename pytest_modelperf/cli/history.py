"""`modelperf history`: lists how the cost of models changed over time."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.options import OutputOptions, csv_option, json_option, takes_records
from pytest_modelperf.cli.output import terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.history.index import HistoryIndex
    from pytest_modelperf.history.records import History

_METRICS = ("p50", "p95", "macs", "params", "weight_bytes", "peak_activation_bytes")
# Those of `history.exchange`, which a help text does not import.
_FORMATS = ("otava", "github-action-benchmark", "bencher")
_FOLDER = "history"
_TABLE_KEY = "history"
_DRIFTED = 1


@click.command(short_help="List how the cost of models changed over time.")
@click.argument("model", type=click.Path(), required=False)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    help="Folder of the history.  [default: history of [tool.modelperf], or history in the "
    "project's root, which is the nearest folder upward with [tool.modelperf] or .git]",
)
@click.option("--since", metavar="DATE", help="Leave out points before this day, as in 2026-01-31.")
@click.option(
    "--metric",
    type=click.Choice(_METRICS),
    default=_METRICS[0],
    show_default=True,
    help="The figure: a percentile of the latency, or a count.",
)
@click.option("--case", "case_id", metavar="ID", help="List this case alone, as in b1-c1.")
@click.option("--machine", metavar="NAME", help="List this kind of machine alone.")
@click.option(
    "--fail-on-drift",
    "allowed_drift",
    metavar="SHARE",
    help="Exit with 1 if a case is shown to cost more than this above its first point or the last "
    "tag, as in 10% or 0.1.",
)
@click.option(
    "--format",
    "other_format",
    type=click.Choice(_FORMATS),
    help="Print what another tool reads: one series as CSV for otava, or the last point of each.",
)
@json_option
@csv_option("Write a row for each point as CSV")
@takes_records(outputs=OutputOptions)
def history(  # noqa: PLR0913  # one parameter per option
    *,
    model: str | None,
    folder: str | None,
    since: str | None,
    metric: str,
    case_id: str | None,
    machine: str | None,
    allowed_drift: str | None,
    other_format: str | None,
    outputs: OutputOptions,
) -> None:
    """List the history of MODEL, or of all models, that test runs wrote.

    `pytest --modelperf --modelperf-history DIR` adds a line for each case of a run. Each line has
    the ratio of the model to its baseline. These ratios are chained across baselines.

    \b
    modelperf history
    modelperf history models/encoder.onnx --since 2026-01-01
    modelperf history --metric macs --csv -
    modelperf history --fail-on-drift 10%
    modelperf history --format github-action-benchmark
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.history.records import HistoryMetric
    from pytest_modelperf.history.repository import find_last_tag
    from pytest_modelperf.history.store import HistoryStore
    from pytest_modelperf.history.summary import HistoryQuery, find_drifts, read_history
    from pytest_modelperf.history.text import render_drifts

    allowed = None if allowed_drift is None else _parse_drift(allowed_drift)
    first_day = None if since is None else _parse_day(since)
    is_shown = outputs.check()
    if other_format is not None and not is_shown:
        raise UsageError(
            "--format prints to standard output, and so does another option with -: give that one "
            "a file."
        )
    root = _project_root()
    query = HistoryQuery(
        metric=HistoryMetric(metric),
        model=None if model is None else _model_folder(model, root),
        case=case_id,
        machine=machine,
        since=first_day,
        tag=find_last_tag(root),
    )
    store = HistoryStore(_history_folder(folder, root))
    needs_points = other_format == "otava" or (outputs.json_file or outputs.csv_file) is not None
    found = read_history(store, query, None if needs_points else _index())
    if other_format is not None:
        from pytest_modelperf.history.exchange import FORMATS

        click.echo(FORMATS[other_format](found), nl=False)
        is_shown = False
    _put(found, outputs, is_shown=is_shown)
    drifts = [] if allowed is None else find_drifts(found, allowed)
    if allowed is not None and drifts:
        text = render_drifts(drifts, allowed, terminal_style())
        click.echo(text, nl=False, err=not is_shown)
        raise SystemExit(_DRIFTED)


def _put(found: History, outputs: OutputOptions, *, is_shown: bool) -> None:
    """Shows the text, unless a file goes to standard output, and writes the files."""
    if is_shown:
        from pytest_modelperf.history.text import render_history

        click.echo(render_history(found, terminal_style()), nl=False)
    if outputs.json_file is not None:
        from pytest_modelperf.history.document import dump_history

        write(outputs.json_file, dump_history(found))
    if outputs.csv_file is not None:
        from pytest_modelperf.history.csv import render_history_csv

        write(outputs.csv_file, render_history_csv(found))


def _index() -> HistoryIndex:
    from pytest_modelperf.history.index import HistoryIndex
    from pytest_modelperf.roofline.store import cache_folder

    return HistoryIndex(cache_folder().with_name("history"))


def _project_root() -> Path:
    from pytest_modelperf.profiles.place import project_root

    return project_root(Path.cwd())


def _model_folder(model: str, root: Path) -> str:
    from pytest_modelperf.profiles.place import model_folder

    return model_folder(str(Path(model).absolute()), root)


def _history_folder(given: str | None, root: Path) -> Path:
    if given is not None:
        return Path(given)
    from pytest_modelperf.files.settings_table import read_table

    table = read_table(root / "pyproject.toml") or {}
    return root / str(table.get(_TABLE_KEY, _FOLDER))


def _parse_drift(text: str) -> float:
    from pytest_modelperf.comparing.limits import read_share

    return read_share(text, "--fail-on-drift")


def _parse_day(text: str) -> dt.datetime:
    try:
        return dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.timezone.utc)
    except ValueError:
        raise UsageError(
            f"--since takes a day such as 2026-01-31, not {printable(text)!r}."
        ) from None
