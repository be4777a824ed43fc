"""A stand-in for GitHub's API: it answers from memory, and keeps what was asked."""

from __future__ import annotations

import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "owner/project"
FORK = "stranger/project"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
RUN = 77
NUMBER = 5
TOKEN = "token of the job"  # noqa: S105  # not a real token
BOT = "github-actions[bot]"


class Asked(NamedTuple):
    """A request that reached the server."""

    method: str
    path: str
    token: str | None


class StandIn:
    """The state of a repository with one pull request from a fork, whose tests have run."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.pulls: dict[int, dict[str, Any]] = {NUMBER: pull_request()}
        # By the name of each.
        self.jobs: dict[str, str] = {"modelperf": "failure"}
        self.artifacts: list[tuple[str, bytes]] = []
        self.comments: list[dict[str, Any]] = []
        self.branches: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.releases: list[str] = []
        # Whether the token has used up its requests.
        self.is_limited = False
        self.url = ""
        # The address of downloads: another name of this server.
        self.storage = ""

    def add_comment(self, author: str, body: str) -> None:
        number = len(self.comments) + 1
        self.comments.append(
            {
                "id": number,
                "user": {"login": author},
                "body": body,
                "html_url": f"https://github.com/{REPOSITORY}/pull/{NUMBER}#issuecomment-{number}",
            }
        )

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], data: Any) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912  # a table
        """The content of an answer: JSON, bytes, or the address to go to; None if not there."""
        parts = path.removeprefix(f"/repos/{REPOSITORY}/").split("/")
        match [method, *parts]:
            case ["GET", "actions", "runs", _, "artifacts"]:
                listed = [
                    {"id": index, "name": name, "expired": False}
                    for index, (name, _) in enumerate(self.artifacts)
                ]
                return {"artifacts": _page(listed, query)}
            case ["GET", "actions", "runs", _, "attempts", "2", "jobs"]:
                jobs = [{"name": name, "conclusion": ended} for name, ended in self.jobs.items()]
                return {"jobs": _page(jobs, query)}
            case ["GET", "actions", "artifacts", index, "zip"]:
                return f"{self.storage}/storage/{index}"
            case ["GET", "", "storage", index]:
                return self.artifacts[int(index)][1]
            case ["GET", "pulls", number]:
                return self.pulls.get(int(number))
            case ["GET", "tarball", branch]:
                return self.branches.get(branch)
            case ["GET", "issues", _, "comments"]:
                return _page(self.comments, query)
            case ["POST", "issues", _, "comments"]:
                self.add_comment(BOT, data["body"])
                return self.comments[-1]
            case ["PATCH", "issues", "comments", number]:
                comment = self.comments[int(number) - 1]
                comment["body"] = data["body"]
                return comment
            case ["GET", "releases"]:
                return _page([{"tag_name": each} for each in self.releases], query)
            case ["GET", "git", "ref", "tags", name]:
                return {"ref": f"refs/tags/{name}"} if name in self.tags else None
            case ["PATCH", "git", "refs", "tags", name] if name in self.tags and data["force"]:
                self.tags[name] = data["sha"]
                return {"ref": f"refs/tags/{name}"}
            case ["POST", "git", "refs"]:
                self.tags[data["ref"].removeprefix("refs/tags/")] = data["sha"]
                return {"ref": data["ref"]}
        return None


def _page(items: list[Any], query: Mapping[str, list[str]]) -> list[Any]:
    size, number = int(query["per_page"][0]), int(query["page"][0])
    return items[(number - 1) * size : number * size]


@contextmanager
def serve(state: StandIn) -> Iterator[StandIn]:
    """Serves the state at its `url` until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(length)) if length else None
            state.asked.append(Asked(self.command, url.path, self.headers["Authorization"]))
            if state.is_limited:
                self.send_response(403)
                self.send_header("X-RateLimit-Remaining", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = state.answer(self.command, url.path, parse_qs(url.query), data)
            if isinstance(content, str):
                self.send_response(302)
                self.send_header("Location", content)
                self.end_headers()
                return
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _respond  # noqa: N815  # as the standard library calls them

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing: the tests look at what was asked."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    state.storage = f"http://localhost:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pull_request() -> dict[str, Any]:
    return {
        "number": NUMBER,
        "state": "open",
        "head": {"sha": COMMIT, "ref": "faster", "repo": {"full_name": FORK}},
        "base": {"repo": {"full_name": REPOSITORY}},
    }


def workflow_run_event() -> dict[str, Any]:
    return {
        "workflow_run": {
            "id": RUN, "run_attempt": 2, "event": "pull_request", "conclusion": "failure",
            "head_sha": COMMIT, "head_branch": "faster", "head_repository": {"full_name": FORK},
            "html_url": f"https://github.com/{REPOSITORY}/actions/runs/{RUN}",
        },
    }  # fmt: skip


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarball(files: Mapping[str, bytes]) -> bytes:
    """The files of a branch as GitHub packs them: below one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"owner-project-0123456/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
