"""Writes the comment on a pull request, after the workflow that tested it has ended.

That workflow may have run the code of a stranger and has no right to write. This one has it, and so
runs nothing of the pull request: it reads the artifact as data, and asks GitHub which pull request
the tested commit belongs to and how the run ended.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from comment_body import Curve, EndedRun, Job, hidden_mark, render_comment
from github_api import GitHub, NotFoundError
from run_reader import MAX_ZIP_BYTES, Artifact
from workflow import StepError, read_event, read_input, require, run_step, say, write_outputs

from pytest_modelperf.errors import UsageError
from pytest_modelperf.history.records import HistoryMetric, P50Line
from pytest_modelperf.history.store import HistoryFile, HistoryStore
from pytest_modelperf.history.summary import chain_cases

_MAX_HISTORY_BYTES = 256 << 20
# Runs that end so may not have written a report.
_UNFINISHED = frozenset({"cancelled", "skipped", "stale", "action_required"})


def post_comment() -> int:
    title = read_input("title")
    mark = hidden_mark(title)
    repository = require("GITHUB_REPOSITORY")
    github = GitHub(require("GITHUB_API_URL"), repository, require("INPUT_TOKEN"))
    run = _tested_run(read_event())
    if run is None:
        return 0
    artifact = _read_artifact(github, run)
    number = artifact.read_number()
    if not _is_of(github.get(f"pulls/{number}"), run, repository):
        return 0
    body = render_comment(
        title,
        artifact.read_cases(),
        _read_curves(github, read_input("history-branch")),
        _ended(github, run),
    )
    write_outputs({"comment-url": _put(github, number, mark, body)})
    return 0


def _tested_run(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The run that tested a pull request; None, with a notice, if there is nothing to show."""
    run: Mapping[str, Any] | None = event.get("workflow_run")
    if run is None:
        raise StepError(
            "the comment is written by a workflow `on: workflow_run`, which starts when the tests "
            "have ended: see the page on CI"
        )
    if run["event"] != "pull_request":
        say("notice", f"no comment: the run was of a {run['event']}, not of a pull request")
        return None
    if run["conclusion"] in _UNFINISHED:
        say("notice", f"no comment: the run is {run['conclusion']}")
        return None
    return run


def _ended(github: GitHub, run: Mapping[str, Any]) -> EndedRun:
    """How the run ended, from GitHub: the artifact says what the branch wants it to say."""
    # A later attempt may have begun, of which the event knows nothing.
    path = f"actions/runs/{int(run['id'])}/attempts/{int(run['run_attempt'])}/jobs"
    return EndedRun(
        url=str(run["html_url"]),
        commit=str(run["head_sha"]),
        conclusion=str(run["conclusion"]),
        jobs=tuple(
            Job(str(job["name"]), str(job["conclusion"])) for job in github.pages(path, "jobs")
        ),
    )


def _read_artifact(github: GitHub, run: Mapping[str, Any]) -> Artifact:
    """The youngest artifact of that name: a run that was repeated has several."""
    name = read_input("artifact")
    path = f"actions/runs/{int(run['id'])}/artifacts?name={quote(name, safe='')}"
    listed = github.pages(path, "artifacts")
    found = [each for each in listed if each["name"] == name and not each["expired"]]
    if not found:
        raise StepError(
            f"the run has no artifact {name!r}: its tests did not get far enough to write a "
            f"report, or `artifact` has another value there. The run: {run['html_url']}"
        )
    youngest = max(found, key=lambda each: int(each["id"]))
    return Artifact(github.download(f"actions/artifacts/{int(youngest['id'])}/zip", MAX_ZIP_BYTES))


def _is_of(pull: Mapping[str, Any], run: Mapping[str, Any], repository: str) -> bool:
    """Whether the run tested the last commit of the pull request, whose number a stranger chose.

    False, with a notice, if it is closed or has a later commit: a comment would be out of date.
    """
    number = pull["number"]
    # A fork that was deleted is null.
    source, tested = (each["full_name"] if each else None for each in _sources(pull, run))
    if (
        pull["base"]["repo"]["full_name"] != repository
        or source is None
        or source != tested
        or pull["head"]["ref"] != run["head_branch"]
    ):
        raise StepError(
            f"no comment: the artifact names pull request {number}, but the run tested the branch "
            f"{run['head_branch']} of {tested}, which is not that of this pull request"
        )
    if pull["head"]["sha"] != run["head_sha"] or pull["state"] != "open":
        say("notice", f"no comment: pull request {number} is closed, or has a later commit")
        return False
    return True


def _sources(pull: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[Any, Any]:
    """The repository that the pull request comes from, and the one that was tested."""
    return pull["head"]["repo"], run["head_repository"]


def _read_curves(github: GitHub, branch: str) -> tuple[Curve, ...]:
    """The histories on a branch of this repository; empty, with a notice, if there are none yet."""
    if not branch:
        return ()
    try:
        content = github.download(f"tarball/{quote(branch, safe='')}", _MAX_HISTORY_BYTES)
    except NotFoundError:
        say(
            "notice",
            f"no curves: there is no branch {branch}, which a run of the main branch makes, or the "
            "token may not read it, which takes `permissions: contents: read`",
        )
        return ()
    with TemporaryDirectory() as folder:
        try:
            _unpack(content, Path(folder))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise StepError(
                f"the branch {branch} could not be read: {error}. Try again."
            ) from error
        try:
            files = HistoryStore(Path(folder)).files()
        except UsageError:
            say("notice", f"no curves: the branch {branch} has no history")
            return ()
        curves = curves_of(files)
    for note in (note for file in files for note in file.notes):
        say("warning", f"history on {branch}: {note}")
    return curves


def curves_of(files: Sequence[HistoryFile]) -> tuple[Curve, ...]:
    """The curve of each case that has points."""
    return tuple(
        Curve(file.model, file.machine, case, chain.points, engine)
        for file in files
        for (case, engine), chain in chain_cases(file.read(P50Line), HistoryMetric.P50).items()
        if chain.points
    )


def _unpack(content: bytes, folder: Path) -> None:
    """Writes each history into a file of its own; GitHub puts all files into one folder."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            parts = member.name.split("/")
            if member.isreg() and len(parts) == 3 and not {"", ".", ".."} & set(parts):
                file = archive.extractfile(member)
                if file is not None and parts[2].endswith(".jsonl"):
                    (folder / parts[1]).mkdir(exist_ok=True)
                    (folder / parts[1] / parts[2]).write_bytes(file.read())


def _put(github: GitHub, number: int, mark: str, body: str) -> str:
    """Edits the comment that begins with the mark, or writes it; returns its address.

    Anybody can write that mark into a comment, so only those of our own author count.
    """
    author = read_input("author")
    for comment in github.pages(f"issues/{number}/comments"):
        # An account that was deleted is null.
        login = comment["user"] and comment["user"]["login"]
        if login == author and str(comment["body"]).startswith(mark):
            path = f"issues/comments/{int(comment['id'])}"
            return str(github.send("PATCH", path, {"body": body})["html_url"])
    return str(github.send("POST", f"issues/{number}/comments", {"body": body})["html_url"])


if __name__ == "__main__":
    run_step(post_comment)
