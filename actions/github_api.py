"""GitHub's API as the actions need it: small answers, within a bound, to one repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from workflow import StepError

_SECONDS = 60.0
_MAX_ANSWER_BYTES = 32 << 20
_PER_PAGE = 100
_MAX_PAGES = 100
_FORBIDDEN = 403
_NOT_FOUND = 404
_TOO_MANY = 429
_HINTS = {
    401: "The token is not valid.",
    403: "The token may not do this: look at `permissions` of the workflow.",
    404: "It is not there, or the token may not see it: look at `permissions` of the workflow.",
}
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


class NotFoundError(StepError):
    """GitHub has no such thing, or hides it from the token."""


class GitHub:
    """The API of one repository, asked with one token."""

    def __init__(self, url: str, repository: str, token: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not _REPOSITORY.fullmatch(repository):
            raise StepError(f"{url} and {repository} are no server and no repository of GitHub")
        self._base = f"{url.rstrip('/')}/repos/{repository}"
        self._token = token
        self._opener = build_opener(_KeepTokenAtHome)

    def get(self, path: str) -> Any:  # noqa: ANN401  # JSON, which the caller narrows
        return json.loads(self.download(path, _MAX_ANSWER_BYTES))

    def pages(self, path: str, key: str = "") -> Iterator[Any]:
        """The items of a list, page by page; `key` is where an answer has the list."""
        mark = "&" if "?" in path else "?"
        for number in range(1, _MAX_PAGES + 1):
            answer = self.get(f"{path}{mark}per_page={_PER_PAGE}&page={number}")
            items = answer[key] if key else answer
            yield from items
            if len(items) < _PER_PAGE:
                return

    def send(self, method: str, path: str, content: Mapping[str, object]) -> Any:  # noqa: ANN401
        return json.loads(self._ask(method, path, json.dumps(content).encode(), _MAX_ANSWER_BYTES))

    def download(self, path: str, max_bytes: int) -> bytes:
        """The content at a path. StepError if it is larger than allowed."""
        return self._ask("GET", path, None, max_bytes)

    def _ask(self, method: str, path: str, data: bytes | None, max_bytes: int) -> bytes:
        url = f"{self._base}/{path}"
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": "pytest-modelperf",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        request = Request(url, data, headers, method=method)  # noqa: S310  # http or https, see above
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                content: bytes = answer.read(max_bytes + 1)
        except HTTPError as error:
            error.close()
            kind = NotFoundError if error.code == _NOT_FOUND else StepError
            raise kind(f"{method} {url} was answered with {error.code}. {_hint(error)}") from error
        except (URLError, HTTPException, OSError) as error:
            raise StepError(f"{method} {url} was not answered: {error}. Try again.") from error
        if len(content) > max_bytes:
            raise StepError(f"{url} is larger than {max_bytes >> 20} MiB, which is too much here")
        return content


def _hint(error: HTTPError) -> str:
    """What to do about an answer. A rate limit has the code of a missing right, or its own."""
    is_forbidden = error.code == _FORBIDDEN
    is_used_up = error.headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in error.headers
    if error.code == _TOO_MANY or (is_forbidden and is_used_up):
        return (
            "The token has made as many requests as GitHub allows. The limit is renewed within an "
            "hour: run the job again then."
        )
    return _HINTS.get(error.code, "Try again; https://www.githubstatus.com tells of faults.")


class _KeepTokenAtHome(HTTPRedirectHandler):
    """Follows a redirect without the token if it leads to another server."""

    def redirect_request(  # noqa: PLR0913, PLR0917  # the signature of the standard library
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request
