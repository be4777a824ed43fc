"""The files that have GitHub or GitLab run the tests, as docs/ci.md shows them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.init.records import Project, Service
from pytest_modelperf.text.escaping import printable

GITHUB_FILE = ".github/workflows/model-performance.yml"
GITLAB_FILE = ".gitlab-ci.yml"
# Beside a .gitlab-ci.yml of the user, which includes it.
GITLAB_PART = ".gitlab/model-performance.yml"
_TEMPLATES = Path(__file__).with_name("ci")
_WORKFLOWS = ".github/workflows"
# A file that runs the tests has this word.
_OURS = "modelperf"
_PLAIN_BRANCH = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
# The templates have these in place of the values of a project.
_BRANCH, _ENGINE = "branches: [main]", "packages: onnxruntime==1.31.1"
_SCRIPT = "  script:\n"


class CiFile(Struct, frozen=True):
    """A new file for a service, by its path in the repository, and what is left to the user."""

    path: str
    text: str
    note: str | None = None


def usual_service(project: Project) -> Service:
    """The service that the remote, or a file of the repository, belongs to; else GitHub."""
    has_file = project.repository is not None and (project.repository / GITLAB_FILE).exists()
    return Service.GITLAB if "gitlab" in project.remote or has_file else Service.GITHUB


def runs_in_ci(repository: Path, service: Service) -> str | None:
    """The file in which the service already runs the tests; None if there is none."""
    for path in _files_of(repository, service):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        if _OURS in text:
            return path.relative_to(repository).as_posix()
    return None


def ci_file(project: Project, repository: Path, service: Service, engine: str | None) -> CiFile:
    """The new file for a service; `engine` is the installed version of ONNX Runtime."""
    template = (_TEMPLATES / f"{service.value}.yml").read_text("utf-8")
    if service is Service.GITHUB:
        return CiFile(GITHUB_FILE, _for_github(template, project, engine))
    text = _for_gitlab(template, project)
    if not (repository / GITLAB_FILE).exists():
        return CiFile(GITLAB_FILE, text)
    note = f'add this line to {GITLAB_FILE}: include: "{GITLAB_PART}"'
    return CiFile(GITLAB_PART, text, note)


def _files_of(repository: Path, service: Service) -> Iterator[Path]:
    if service is Service.GITLAB:
        yield from (repository / GITLAB_FILE, repository / GITLAB_PART)
    else:
        yield from sorted((repository / _WORKFLOWS).glob("*.y*ml"))


def _for_github(template: str, project: Project, engine: str | None) -> str:
    branch = project.branch or "main"
    if not _PLAIN_BRANCH.fullmatch(branch):
        branch = json.dumps(printable(branch))
    text = template.replace(_BRANCH, f"branches: [{branch}]")
    if engine is not None:
        text = text.replace(_ENGINE, f"packages: onnxruntime=={engine}")
    if project.inner != ".":
        text = f"{text}          working-directory: {json.dumps(project.inner)}\n"
    return text


def _for_gitlab(template: str, project: Project) -> str:
    if project.inner == ".":
        return template
    step = json.dumps(f"cd {shlex.quote(project.inner)}")
    text = template.replace(_SCRIPT, f"{_SCRIPT}    - {step}\n")
    for file in ("modelperf.md", "junit.xml"):
        for before in ("paths: [", "junit: "):
            text = text.replace(f"{before}{file}", f"{before}{project.inner}/{file}")
    return text
