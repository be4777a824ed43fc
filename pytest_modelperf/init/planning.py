"""Plan the changes of a setup to the files of a project, agree on them, and write them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import OutputError, UsageError, Wording
from pytest_modelperf.files.documents import PYPROJECT
from pytest_modelperf.files.output import cannot_write, check_output, write_all
from pytest_modelperf.init.records import FileChange, Plan, Project, Service, SetupPart, inner_path
from pytest_modelperf.profiler.doctor.checkup import check_machine
from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.spec.declaring import MODELS, path_key
from pytest_modelperf.spec.run_definitions import PREFIX
from pytest_modelperf.text.escaping import printable, printable_lines

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Table

GITHUB_FILE = ".github/workflows/model-performance.yml"
GITLAB_FILE = ".gitlab-ci.yml"
# The file next to a user's own .gitlab-ci.yml, which includes it.
GITLAB_PART = ".gitlab/model-performance.yml"
_TEMPLATES = Path(__file__).with_name("ci")
_WORKFLOWS = ".github/workflows"
# A file that runs the tests contains this word.
_OURS = "modelperf"
_PLAIN_BRANCH = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
# The templates have these in place of the values of a project.
_BRANCH, _ENGINE = "branches: [main]", "packages: onnxruntime==1.31.1"
_SCRIPT = "  script:\n"


class CiFile(Struct, frozen=True):
    """A new file for a service, by its path in the repository, and the steps for the user."""

    path: str
    text: str
    note: str | None = None


def usual_service(project: Project) -> Service:
    """Return the service that the remote or a file of the repository belongs to, or GitHub."""
    has_file = project.repository is not None and (project.repository / GITLAB_FILE).exists()
    return Service.GITLAB if "gitlab" in project.remote or has_file else Service.GITHUB


def runs_in_ci(repository: Path, service: Service) -> str | None:
    """Return the file in which the service already runs the tests, or None without one."""
    for path in _files_of(repository, service):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        if _OURS in text:
            return path.relative_to(repository).as_posix()
    return None


def ci_file(project: Project, repository: Path, service: Service, engine: str | None) -> CiFile:
    """Return the new file for a service. `engine` is the installed version of ONNX Runtime."""
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


# -- tables of models added to the text of a `pyproject.toml`


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_PLACE = ("tool", PREFIX, MODELS)


def add_tables(text: str, tables: Mapping[str, str]) -> str:
    """Add a table for each model to the text.

    The lines of each table are given as TOML. The paths have no table yet. Raise UsageError if the
    text has no place for tables.
    """
    if not tables:
        return text
    # A file with both kinds of line ends keeps them.
    is_crlf = 0 < text.count("\r\n") == text.count("\n")
    plain = text.replace("\r\n", "\n") if is_crlf else text
    added = _in_place(plain, tables)
    if added is not None and not added.startswith(plain):
        # An empty line separates the tables from those after them.
        added = _in_place(plain, tables, last="\n")
    if added is None:
        added = _at_the_end(plain, tables)
    if added is None:
        raise UsageError(
            "the tables of models cannot be added to pyproject.toml automatically. "
            f"Add them by hand:\n{printable_lines(_fragment(tables))}"
        )
    return added.replace("\n", "\r\n") if is_crlf else added


def _in_place(text: str, tables: Mapping[str, str], last: str = "") -> str | None:
    """Add the tables next to existing ones, or return None if that changes anything else.

    `last` are the lines after them.
    """
    # Imported here: only this command needs it.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        holder: Any = document
        for key in _PLACE:
            if key not in holder:
                holder.add(key, tomlkit.table(is_super_table=True))
            holder = holder[key]
        for number, (path, lines) in enumerate(tables.items(), 1):
            holder.add(path_key(path), _table(lines + last * (number == len(tables))))
        added = tomlkit.dumps(document)
    except (TOMLKitError, AttributeError, TypeError, ValueError):
        # tomlkit cannot add to tables of some forms, such as dotted ones.
        return None
    return _checked(text, added, tables)


def _at_the_end(text: str, tables: Mapping[str, str]) -> str | None:
    """Add the tables after the text, or return None if they may not be there."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return _checked(text, f"{text}{gap}{_fragment(tables)}", tables)


def _fragment(tables: Mapping[str, str]) -> str:
    import tomlkit

    parts = []
    for path, lines in tables.items():
        name = ".".join((*_PLACE, tomlkit.key(path_key(path)).as_string()))
        parts.append(f"[{name}]\n{lines}{'' if lines.endswith(chr(10)) or not lines else chr(10)}")
    return "\n".join(parts)


def _table(lines: str) -> Table:
    import tomlkit

    table = tomlkit.table()
    parsed: Container = tomlkit.parse(lines)
    for key, item in parsed.body:
        if key is None:
            table.raw_append(None, item)  # a comment or an empty line
        else:
            table.append(key, item)
    return table


def _checked(before: str, after: str, tables: Mapping[str, str]) -> str | None:
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return None
    wanted: dict[str, Any] = tomllib.loads(before)
    holder: Any = wanted
    for key in _PLACE:
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            return None
    holder |= {path_key(path): tomllib.loads(lines) for path, lines in tables.items()}
    left = iter(after.splitlines())
    keeps_lines = all(line in left for line in before.splitlines())
    return after if keeps_lines and found == wanted else None


# -- plan the changes of a setup to the files of a project, without writing


_ATTRIBUTES = ".gitattributes"
_TWINS = "**/twin.onnx"
# A rule for models in Git LFS would match the twins too, which are small and needed at once.
_LFS = re.compile(r"^\*[\w.]*onnx\s.*\bfilter=lfs\b|^\*\*/\*\.onnx\s.*\bfilter=lfs\b", re.MULTILINE)


class Wishes(Struct, frozen=True, kw_only=True):
    """The parts to set up: tables, a service, a line for the twins.

    `engine` is the installed version of ONNX Runtime, which the service installs too.
    """

    tables: bool = True
    service: Service | None = None
    gitattributes: bool = True
    engine: str | None = None


def plan_setup(
    project: Project, tables: Mapping[str, str], baselines: Path, wishes: Wishes
) -> Plan:
    """Return the changes that are still to make.

    `tables` has the lines of each new table as TOML.
    """
    changes: list[FileChange] = []
    notes: list[str] = []
    if wishes.tables:
        pyproject = project.root / PYPROJECT
        before = read_text(pyproject)
        after = add_tables(before or "", tables)
        changes += _changed(project, SetupPart.TABLES, pyproject, before, after)
    if project.repository is None:
        if wishes.service is not None or wishes.gitattributes:
            notes.append(
                "there is no git repository, so nothing is set up for CI: type git init, and run "
                "this again"
            )
        return Plan(tuple(changes), tuple(notes))
    if wishes.service is not None:
        there = runs_in_ci(project.repository, wishes.service)
        if there is None:
            made = ci_file(project, project.repository, wishes.service, wishes.engine)
            path = project.repository / made.path
            there = made.path if path.exists() else None
            if there is None:
                changes += _changed(project, SetupPart.CI, path, None, made.text)
                notes += [made.note] if made.note is not None else []
        if there is not None:
            notes.append(f"{there} already exists; not changed")
    if wishes.gitattributes and baselines.is_relative_to(project.root):
        path = project.root / _ATTRIBUTES
        before = read_text(path)
        after = add_twins_line(before or "", inner_path(baselines, project.root))
        changes += _changed(project, SetupPart.GITATTRIBUTES, path, before, after)
    return Plan(tuple(changes), tuple(notes))


def add_twins_line(text: str, baselines: str) -> str:
    """Add a line for the twins in this folder to the attributes, unless they have one.

    git then does not merge twins by lines.
    """
    pattern = f"{baselines}/{_TWINS}".replace(" ", "[[:space:]]")
    if any(line.split()[:1] == [pattern] for line in text.splitlines()):
        return text
    end = "" if not text or text.endswith("\n") else "\n"
    lfs = " -filter" if _LFS.search(text) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text}{end}{pattern} binary{lfs}{newline}"


def _changed(
    project: Project, part: SetupPart, path: Path, before: str | None, after: str
) -> Iterator[FileChange]:
    if after != (before or ""):
        name = inner_path(path, project.root)
        yield FileChange(part=part, path=path, name=name, before=before, after=after)


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends, or None without a file."""
    name = printable(str(path))
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8: save it in that encoding.") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error


# -- agree on the changes, and write them


class Settled(Struct, frozen=True):
    """The accepted changes, and those without an answer."""

    accepted: tuple[FileChange, ...] = ()
    unanswered: tuple[FileChange, ...] = ()


def settle_changes(
    changes: Sequence[FileChange],
    answers: Mapping[SetupPart, bool],
    show: Callable[[FileChange], None],
    ask: Callable[[FileChange], bool] | None,
) -> Settled:
    """Show each change, and ask the user about it unless there is an answer already.

    `ask` is None if no user can be asked.
    """
    accepted, unanswered = [], []
    for change in changes:
        show(change)
        answer = answers.get(change.part)
        if answer is None and ask is not None:
            answer = ask(change)
        if answer is None:
            unanswered.append(change)
        elif answer:
            accepted.append(change)
    return Settled(tuple(accepted), tuple(unanswered))


def write_changes(changes: Sequence[FileChange]) -> None:
    """Write each file in one step, or no file if one of them cannot be written.

    Raise OutputError if one cannot be written, or was changed since it was read.
    """
    for change in changes:
        try:
            change.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(str(change.path), error) from error
        check_output(change.path)
        if read_text(change.path) != change.before:
            raise OutputError(
                f"{printable(str(change.path))} was changed by another program meanwhile: run "
                "modelperf init again."
            )
    write_all({change.path: change.after.encode() for change in changes})


# -- a short measure of how noisy this machine is


# The start of the worker and its sessions takes the rest of ten seconds.
_ROUND_SECONDS = 7.0


def measure_noise(
    wording: Wording, watch: Watch = lambda _: None, seconds: float = _ROUND_SECONDS
) -> tuple[str, ...]:
    """Return a sentence for each core count: which change is detectable here, and how soon."""
    setup = Setup(policy=replace(DUET_POLICY, max_seconds=seconds), wording=wording)
    return tuple(map(describe_checkup, check_machine(setup, watch=watch)))
