"""`modelperf history` and `modelperf baselines` list what was recorded of models, and its changes.

Lines of a history are copied to a branch and back.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_modelperf.cli.options import (
    OutputOptions,
    output_options,
    project_folder_option,
    takes_records,
    with_options,
)
from pytest_modelperf.cli.output import show, write_report
from pytest_modelperf.cli.parameters import Command, GroupedCommand, HelpGroup, option_of
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.history.branch import HistoryBranch, Synced
    from pytest_modelperf.history.store import HistoryIndex, HistoryStore

history_dir_option = project_folder_option(
    "--dir", "folder", of="history", default="history of [tool.modelperf], or history"
)


def find_project_root() -> Path:
    from pytest_modelperf.profiles.store import project_root

    return project_root(Path.cwd())


def open_history(given: str | None, root: Path) -> HistoryStore:
    """Return the history in the given folder, or else in that of the project."""
    from pytest_modelperf.history.store import HistoryStore

    folder = project_folder(root, "history", "history") if given is None else Path(given)
    return HistoryStore(folder)


def project_folder(root: Path, key: str, usual: str) -> Path:
    """Return the folder that a key of [tool.modelperf] names, or the usual one of the project."""
    from pytest_modelperf.files.documents import read_table
    from pytest_modelperf.spec.readers import read_place

    table = read_table(root / "pyproject.toml") or {}
    return root / read_place(table.get(key, usual), f"pyproject.toml, [tool.modelperf]: {key}")


# -- `modelperf history push` and `pull`


_BRANCH = "modelperf-history"
_REMOTE = "origin"
_SHORT_COMMIT = 9


def _branch_options(command: Command) -> Command:
    return with_options(
        command,
        history_dir_option,
        click.option(
            "--branch", metavar="NAME", default=_BRANCH, show_default=True, help="The branch."
        ),
        click.option(
            "--remote",
            metavar="NAME",
            default=_REMOTE,
            show_default=True,
            help="The remote that has it; . for a branch of this repository.",
        ),
    )


@click.command(cls=GroupedCommand, short_help="Commit the lines of the folder to a branch.")
@_branch_options
def push(folder: str | None, branch: str, remote: str) -> None:
    """Commit the lines of the folder to a branch of their own, and push it.

    The branch shares no commits with others, and is made if there is none. The work tree and the
    index do not change. Lines that others pushed meanwhile are kept.

    \b
    modelperf history push
    modelperf history push --branch modelperf-history --remote origin
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.history.branch import push_history
    from pytest_modelperf.text.words import count_of

    store, there = _open(folder, branch, remote)
    done = push_history(store, there)
    if done.lines:
        commit = "" if done.commit is None else f" (commit {done.commit[:_SHORT_COMMIT]})"
        _show_result(done, f"{count_of(done.lines, 'line')} pushed to {there.title}{commit}")
    else:
        _show_result(done, f"nothing to push: {there.title} has all lines of the folder")


@click.command(cls=GroupedCommand, short_help="Add the lines of a branch to the folder.")
@_branch_options
def pull(folder: str | None, branch: str, remote: str) -> None:
    """Add the lines that `modelperf history push` committed to a branch to the folder.

    Lines that the folder already has do not change.

    \b
    modelperf history pull
    modelperf history pull --dir /tmp/history
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.history.branch import pull_history
    from pytest_modelperf.text.words import count_of

    store, there = _open(folder, branch, remote)
    done = pull_history(store, there)
    place = printable(str(store.root))
    if done.commit is None:
        _show_result(done, f"nothing to pull: there is no {there.title} yet")
    elif done.lines:
        _show_result(done, f"{count_of(done.lines, 'line')} pulled from {there.title} into {place}")
    else:
        _show_result(done, f"nothing to pull: {place} has all lines of {there.title}")


def _open(folder: str | None, branch: str, remote: str) -> tuple[HistoryStore, HistoryBranch]:
    from pytest_modelperf.history.branch import HistoryBranch

    store = open_history(folder, find_project_root())
    return store, HistoryBranch(Path.cwd(), remote, branch)


def _show_result(done: Synced, sentence: str) -> None:
    show(f"{sentence}\n")
    for note in done.notes:
        show(f"note: {note}\n")


# The actions by the words that follow `modelperf history`.
ACTIONS = {"push": push, "pull": pull}


# -- `modelperf history`


_METRICS = ("p50", "p95", "macs", "params", "weight_bytes", "peak_activation_bytes", "size_bytes")
# Same as the formats of `history.report`, which a help text does not import.
_FORMATS = ("otava", "github-action-benchmark", "bencher")
_DRIFTED = 1


class _HistoryCommand(GroupedCommand):
    """A command that lists a history, or runs the action that its first word names."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401  # click's own signature
    ) -> click.Context:
        action = ACTIONS.get(args[0]) if args else None
        if action is None:
            return super().make_context(info_name, args, parent, **extra)
        action.epilog = self.epilog
        return action.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(context, formatter)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str()) for name, each in ACTIONS.items()]
            )

    def collect_usage_pieces(self, _: click.Context) -> list[str]:
        return ["[OPTIONS] [MODEL]", "| push | pull"]


@click.command(cls=_HistoryCommand, short_help="List how the cost of models changed over time.")
@click.argument("model", type=click.Path(), required=False)
@history_dir_option
@click.option("--since", metavar="DATE", help="Leave out points before this day, as in 2026-01-31.")
@click.option(
    "--metric",
    type=click.Choice(_METRICS),
    default=_METRICS[0],
    show_default=True,
    help="The figure: a percentile of the latency, a count, or a size.",
)
@click.option("--case", "case_id", metavar="ID", help="List only this case, as in b1-c1.")
@click.option("--machine", metavar="NAME", help="List only this kind of machine.")
@click.option(
    "--fail-on-drift",
    "allowed_drift",
    metavar="SHARE",
    help="Exit with 1 if a case is shown to cost more than this above its first point or the last "
    "tag, as in 10% or 0.1.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--format",
    "other_format",
    type=click.Choice(_FORMATS),
    help="Print what another tool reads: one series as CSV for otava, or the last point of each.",
)
@output_options(csv="a row for each point")
@option_of(
    HelpGroup.OUTPUT,
    "--commit-url",
    metavar="TEMPLATE",
    help="Address of a commit for the links of the page, as in "
    "https://git.example.org/c/{commit}.  [default: on GitHub, GitLab and the like, that of the "
    "remote origin]",
)
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
    commit_url: str | None,
    outputs: OutputOptions,
) -> None:
    """List the history of MODEL, or of all models, that test runs wrote.

    `pytest --modelperf --modelperf-history DIR` adds a line for each case of a run. Each line has
    the ratio of the model to its baseline. These ratios are chained across baselines.

    \b
    modelperf history
    modelperf history models/encoder.onnx --since 2026-01-01
    modelperf history --metric macs --csv -
    modelperf history --html history.html
    modelperf history --fail-on-drift 10%
    modelperf history --format github-action-benchmark

    push and pull keep the lines on a branch. A model of such a name is ./push.
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.comparing.limits import read_share
    from pytest_modelperf.history.records import HISTORY, HistoryMetric
    from pytest_modelperf.history.report import drift_lines, history_report
    from pytest_modelperf.history.repository import find_commit_url, find_last_tag
    from pytest_modelperf.history.summary import HistoryQuery, find_drifts, read_history

    allowed = None if allowed_drift is None else read_share(allowed_drift, "--fail-on-drift")
    first_day = None if since is None else _parse_day(since)
    if commit_url is not None:
        _check_commit_url(commit_url, outputs)
    is_shown = outputs.check()
    if other_format is not None and not is_shown:
        raise UsageError(
            "--format prints to standard output, and so does another option with -: give that one "
            "a file."
        )
    root = find_project_root()
    query = HistoryQuery(
        metric=HistoryMetric(metric),
        model=None if model is None else _model_folder(model, root),
        case=case_id,
        machine=machine,
        since=first_day,
        tag=find_last_tag(root),
    )
    store = open_history(folder, root)
    files = (outputs.json_file, outputs.csv_file, outputs.html_file)
    needs_points = other_format == "otava" or any(file is not None for file in files)
    found = read_history(store, query, None if needs_points else _index())
    if other_format is not None:
        from pytest_modelperf.history.exchange import FORMATS

        show(FORMATS[other_format](found))
        is_shown = False
    drifts = [] if allowed is None else find_drifts(found, allowed)
    if outputs.html_file is not None and commit_url is None:
        commit_url = find_commit_url(root)
    report = history_report(
        found,
        dt.datetime.now(dt.timezone.utc),
        commit_url=commit_url,
        allowed_drift=allowed,
        drifts=drifts,
    )
    write_report(report, partial(HISTORY.dump, found), outputs, is_shown=is_shown)
    if drifts:
        if not is_shown:
            for line in drift_lines(drifts, allowed or 0.0):
                show(f"{line.word}: {printable(line.text)}\n", err=True)
        raise SystemExit(_DRIFTED)


def _index() -> HistoryIndex:
    from pytest_modelperf.files.store import user_cache_folder
    from pytest_modelperf.history.store import HistoryIndex

    return HistoryIndex(user_cache_folder() / "history")


def _check_commit_url(template: str, outputs: OutputOptions) -> None:
    from pytest_modelperf.history.repository import COMMIT

    if outputs.html_file is None:
        raise UsageError("--commit-url is for the links of a page: add --html F.")
    if not template.startswith(("https://", "http://")) or COMMIT not in template:
        raise UsageError(
            f"--commit-url takes an address with {COMMIT} in it, as in "
            f"https://git.example.org/c/{COMMIT}, not {printable(template)!r}."
        )


def _model_folder(model: str, root: Path) -> str:
    if model in ACTIONS:
        raise UsageError(
            f"{model} is a command: write it first, as in modelperf history {model} --dir DIR. A "
            f"model of this name is ./{model}."
        )
    from pytest_modelperf.profiles.store import model_folder

    return model_folder(str(Path(model).absolute()), root)


def _parse_day(text: str) -> dt.datetime:
    try:
        return dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.timezone.utc)
    except ValueError:
        raise UsageError(
            f"--since takes a day such as 2026-01-31, not {printable(text)!r}."
        ) from None


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
