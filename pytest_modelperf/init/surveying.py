"""The survey of a project: its models, those that a program ran, and sizes for open dimensions."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ModelError, ModelPerfError, UsageError
from pytest_modelperf.files.documents import PYPROJECT, read_table, read_toml, require_file
from pytest_modelperf.files.git import ask_git
from pytest_modelperf.graph.load import declared_inputs
from pytest_modelperf.graph.model_file import external_files, open_model
from pytest_modelperf.init.records import ModelSearch, Project, Remark, inner_path
from pytest_modelperf.init.used_sizes import UsedModel, use_sizes, used_lines
from pytest_modelperf.sizing.finding import GUESSED, reason_lines, table_lines
from pytest_modelperf.sizing.records import FoundSizes
from pytest_modelperf.spec.declaring import MODELS, ModelTables, read_models
from pytest_modelperf.spec.run_definitions import BASELINE_DIR, PREFIX
from pytest_modelperf.text.escaping import is_utf8, printable
from pytest_modelperf.text.units import format_bytes
from pytest_modelperf.tracing.launch import SessionRuns

SUFFIX = ".onnx"
# Hidden folders are those of tools: caches, environments, repositories.
_SKIPPED_NAMES = (
    ".*", "__pycache__", "__pypackages__", "node_modules", "site-packages", "dist-packages",
    "venv", "build", "_build", "dist", "*.egg", "*.egg-info", "CVS", "_darcs",
)  # fmt: skip
# An environment, a cache or another repository has one of these inside.
_REPOSITORY = ".git"
_SKIPPED_BY_CONTENT = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG", _REPOSITORY)
# A baseline that is not in the folder of this project.
_TWIN_NAMES, _BASELINE_FILE = frozenset({"twin.onnx", "twin.next.onnx"}), "model.json"
# The end of an error from here on is for a user who named the file.
_ADVICE = ". Give the path"
_LFS_POINTER = b"version https://git-lfs"
# With more new files, the command that adds them to git has a pattern for each folder.
_MOST_ADDED = 10

Show = Callable[[str], None]


def find_models(
    project: Project, places: Sequence[Path], baselines: Path, show: Show = lambda _: None
) -> ModelSearch:
    """Find the models at these places, which are files and folders of the project.

    A file that the user named is taken even if a search would skip it. Raise UsageError for a place
    that does not exist or is outside of the project.
    """
    walk = _Walk(project.root, baselines)
    named = []
    for given in places:
        place = _check_place(given, project)
        if place.is_dir():
            walk.enter(place)
        else:
            named.append(inner_path(place, project.root))
    found = sorted({*_without_doubles(project.root, walk.found)} - set(named))
    ignored = ignored_by_git(project, found)
    models = []
    for inner in [*named, *(each for each in found if each not in ignored)]:
        show(f"reading {printable(inner)}")
        reason = why_no_model(project.root / inner)
        if reason is None:
            models.append(inner)
        else:
            walk.remarks.append(Remark(inner, reason))
    walk.remarks += [
        Remark(inner, "git ignores it, so other checkouts lack it: name it to use it all the same")
        for inner in sorted(ignored)
    ]
    return ModelSearch(
        tuple(inner_path(each, project.root) for each in places),
        walk.folders,
        tuple(sorted(set(models))),
        tuple(sorted(walk.remarks, key=lambda remark: remark.path)),
        tuple(sorted(walk.skipped)),
    )


def why_no_model(path: Path) -> str | None:
    """Return why a file cannot be tested as a model, in one sentence, or None if it can be."""
    if not is_utf8(str(path)):
        return "its name is not UTF-8, so no table can name it: rename it"
    try:
        require_file(path)
        if _is_pointer(path):
            return "it is a Git LFS pointer, not the model: run git lfs pull"
        open_model(path).beside()
    except FileNotFoundError:
        return "it is a broken link"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except ModelError as error:
        reason = str(error).removeprefix(f"{printable(str(path))} ").partition(_ADVICE)[0]
        return _why_no_data(path) or (f"it {reason}" if reason.startswith("is ") else reason)
    return None


def ignored_by_git(project: Project, paths: Sequence[str]) -> frozenset[str]:
    """Return the paths that git ignores.

    There are none without git, and no tracked files among them.
    """
    if project.repository is None or not paths:
        return frozenset()
    try:
        # A folder means all of its files, unless git tracks one of them.
        answer = ask_git(
            project.root,
            "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z",
        )  # fmt: skip
    except UsageError:
        return frozenset()
    listed = {os.fsdecode(path).rstrip("/") for path in answer.output.split(b"\0")}
    return frozenset(
        path
        for path in paths
        if not listed.isdisjoint((path, *map(str, PurePosixPath(path).parents)))
    )


class _Walk(Struct):
    """A walk through folders, one by one. Links to folders are not followed, so it ends."""

    root: Path
    baselines: Path
    folders: int = 0
    found: list[Path] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def enter(self, top: Path) -> None:
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if folder != top and self._is_skipped(folder):
                # Users do not expect a model in it.
                if folder.name != _REPOSITORY:
                    self.skipped.append(inner_path(folder, self.root))
                continue
            try:
                with os.scandir(folder) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except OSError as error:
                reason = f"the folder cannot be read: {error.strerror or error}"
                self.remarks.append(Remark(inner_path(folder, self.root), reason))
                continue
            if folder != top and any(each.name in _SKIPPED_BY_CONTENT for each in entries):
                self.skipped.append(inner_path(folder, self.root))
                continue
            self.folders += 1
            self.found += self._models(folder, entries)
            waiting += [Path(each) for each in entries if each.is_dir(follow_symlinks=False)]

    def _is_skipped(self, folder: Path) -> bool:
        is_named = any(fnmatchcase(folder.name, pattern) for pattern in _SKIPPED_NAMES)
        return is_named or folder == self.baselines

    def _models(self, folder: Path, entries: Sequence[os.DirEntry[str]]) -> Iterator[Path]:
        is_baseline = any(entry.name == _BASELINE_FILE for entry in entries)
        for entry in entries:
            is_twin = is_baseline and entry.name in _TWIN_NAMES
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.endswith(SUFFIX) and not is_twin and not is_folder:
                yield folder / entry.name


def _check_place(given: Path, project: Project) -> Path:
    """Return the shortest path of the place in the project. Raise UsageError if it is outside.

    A link to a model keeps its own name.
    """
    name = printable(str(given))
    if not given.exists():
        raise UsageError(f"there is no file or folder {name}. Give one of the project, or none.")
    place = Path(os.path.abspath(given))  # noqa: PTH100  # links are not followed
    if not place.is_relative_to(project.root):
        place = place.parent.resolve() / place.name
    if not place.is_relative_to(project.root):
        raise UsageError(
            f"{name} is outside the project {printable(str(project.root))}. Change to the "
            "project that it belongs to, or copy it there: a baseline needs a path that every "
            "checkout has."
        )
    return place


def _without_doubles(root: Path, found: Sequence[Path]) -> Iterator[str]:
    """Yield the paths in the project, without links to other files that were found."""
    files = {path for path in found if not path.is_symlink()}
    for path in found:
        # Unlike `Path.resolve`, it raises no error for a link to itself.
        if path in files or Path(os.path.realpath(path)) not in files:
            yield inner_path(path, root)


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def _why_no_data(path: Path) -> str | None:
    """Return the reason if a file next to a model is a pointer instead of its weights."""
    for other in sorted(path.parent.glob(f"{glob.escape(path.stem)}*")):
        if other != path and other.is_file() and _is_pointer(other):
            name = printable(other.name)
            return f"its weights in {name} are a Git LFS pointer: run git lfs pull"
    return None


# -- the survey of a project


FindSizes = Callable[[Path], FoundSizes]


class NamedOrigin(Struct, frozen=True):
    """A model that the user names by its origin: the name of its table, and its present file.

    `line` is the key of the table that says where the model comes from.
    """

    name: str
    line: str
    path: Path


class Survey(Struct, frozen=True, kw_only=True):
    """The models of a project.

    `declared` have a table already. `sizes` are those of the models that get one. `unsized` are
    those whose sizes were not found, so that only the user can write their tables.

    `origins` have the first line of the tables of models that are made or fetched.

    `program` is the command that was run to find models, or empty. `used` has what it used of them,
    and `unused` the models that cannot get a table from it.
    """

    project: Project
    baselines: Path
    search: ModelSearch
    declared: tuple[str, ...] = ()
    sizes: Mapping[str, FoundSizes] = field(default_factory=dict)
    unsized: tuple[Remark, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    used: Mapping[str, UsedModel] = field(default_factory=dict)
    unused: tuple[Remark, ...] = ()

    @property
    def tables(self) -> Mapping[str, str]:
        sized = {
            path: self.origins.get(path, "") + _lines(found) for path, found in self.sizes.items()
        }
        used = {
            path: used_lines(found, self.program)
            for path, found in self.used.items()
            if path not in self.declared
        }
        return {**sized, **used}


def survey_project(
    project: Project,
    places: Sequence[Path],
    find_sizes: FindSizes | None,
    show: Show = lambda _: None,
    origins: Sequence[NamedOrigin] = (),
) -> Survey:
    """Survey these files, folders and origins.

    Raise UsageError for invalid settings. Without `find_sizes` no sizes are found.
    """
    pyproject = project.root / PYPROJECT
    table = read_table(pyproject) or {}
    tables = read_models(table.get(MODELS, {}), f"{PYPROJECT}, [tool.{PREFIX}.{MODELS}")
    baselines = project.root / str(table.get(BASELINE_DIR.table_key, BASELINE_DIR.default))
    search = find_models(project, places, baselines, show)
    files = {each.name: each.path for each in origins}
    search = replace(search, models=(*files, *search.models))
    declared = tuple(path for path in search.models if _is_declared(path, tables))
    sizes: dict[str, FoundSizes] = {}
    unsized: list[Remark] = []
    new = [path for path in search.models if path not in set(declared)]
    for number, path in enumerate(new, 1):
        if find_sizes is None:
            break
        show(f"finding sizes, {number} of {len(new)}: {printable(path)}")
        try:
            found = find_sizes(files.get(path, project.root / path))
        except ModelPerfError as error:
            unsized.append(Remark(path, str(error)))
            continue
        if found.error is None:
            sizes[path] = found
        else:
            unsized.append(Remark(path, found.error))
    return Survey(
        project=project,
        baselines=baselines,
        search=search,
        declared=declared,
        sizes=sizes,
        unsized=tuple(unsized),
        origins={each.name: f"{each.line}\n" for each in origins},
    )


def _is_declared(path: str, tables: ModelTables) -> bool:
    return tables.own(path) is not None or bool(tables.globs_of(path))


def _lines(found: FoundSizes) -> str:
    keys = list(table_lines(found))
    reasons = [f"# {printable(line)}" for line in reason_lines(found)] if keys else []
    if found.guessed:
        reasons.append(f"# {GUESSED}")
    return "".join(f"{line}\n" for line in [*reasons, *keys])


# -- the folder that pytest takes as the root of a project


_MAIN = "main"
# Files that are settings of pytest even if empty, and the sections of other files.
_OWN_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_SECTIONS = {"tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}


def find_project(start: Path) -> Project:
    """Return the project that a run of pytest in this folder uses.

    Raise UsageError for broken TOML. Without settings of pytest and without a `pyproject.toml`, it
    is the git repository.
    """
    found = _ask(start, "rev-parse", "--show-toplevel")
    repository = Path(found) if found else None
    root, reason = _find_root(start, repository)
    if repository is None:
        return Project(root=root, reason=reason)
    return Project(
        root=root,
        reason=reason,
        repository=repository,
        branch=_default_branch(repository),
        remote=_ask(repository, "remote", "get-url", "origin"),
    )


def model_files(project: Project, models: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of these models and of their external data."""
    found = list(models)
    for model in models:
        with suppress(ModelError):
            data = external_files(open_model(project.root / model))
            found += [(PurePosixPath(model).parent / place).as_posix() for place in data]
    return tuple(dict.fromkeys(found))


def files_to_add(project: Project, files: Sequence[str]) -> tuple[str, ...]:
    """Return those of these files that `git add` has to add, as patterns if they are many."""
    new = untracked_files(project, files)
    return new if len(new) <= _MOST_ADDED else tuple(dict.fromkeys(map(_pattern, new)))


def _pattern(path: str) -> str:
    suffix = PurePosixPath(path).suffix
    return PurePosixPath(path).with_name(f"*{suffix}").as_posix() if suffix else path


def untracked_files(project: Project, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that git neither tracks nor ignores, or all without an answer of git."""
    if project.repository is None or not paths:
        return tuple(paths)
    try:
        answer = ask_git(
            project.root, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths
        )
    except UsageError:
        answer = None
    if answer is None or answer.code != 0:
        # Adding a file that git already tracks does nothing.
        return tuple(paths)
    return tuple(map(os.fsdecode, filter(None, answer.output.split(b"\0"))))


def _find_root(start: Path, repository: Path | None) -> tuple[Path, str]:
    folders = (start, *start.parents)
    for folder in folders:
        settings = _pytest_settings(folder)
        if settings is not None:
            return folder, f"it has the settings of pytest in {settings}"
    for folder in folders:
        if (folder / PYPROJECT).is_file():
            return folder, f"it has a {PYPROJECT}"
    if repository is not None:
        return repository, "it is the top of the git repository"
    return start, "it is the working folder"


def _pytest_settings(folder: Path) -> str | None:
    """Return the first file, in pytest's order, that makes this folder the root for pytest."""
    for name in _OWN_FILES:
        if (folder / name).is_file():
            return name
    tool = read_toml(folder / PYPROJECT).get("tool")
    if isinstance(tool, Mapping) and isinstance(tool.get("pytest"), Mapping):
        return PYPROJECT
    for name, section in _SECTIONS.items():
        if section in _output_lines(folder / name):
            return name
    return None


def _output_lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return []


def _default_branch(repository: Path) -> str:
    head = _ask(repository, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if head:
        return head.partition("/")[2]
    return _ask(repository, "symbolic-ref", "--quiet", "--short", "HEAD") or _MAIN


def _ask(folder: Path, *arguments: str) -> str:
    try:
        answer = ask_git(folder, *arguments)
    except UsageError:
        return ""
    text = os.fsdecode(answer.output).strip("\n")
    return text if answer.code == 0 else ""


def survey_used(survey: Survey, sessions: Sequence[SessionRuns]) -> Survey:
    """Return the survey with the models that the sessions ran, in place of those from a search.

    `survey` has no sizes yet. Models that cannot get a table are remarks, each with the reason.
    """
    project, search = survey.project, survey.search
    found: dict[str, list[SessionRuns]] = {}
    remarks: dict[Remark, None] = {}
    for session in sessions:
        path = _path_of(session, project, search)
        if isinstance(path, Remark):
            remarks[path] = None
        else:
            found.setdefault(path, []).append(session)
    used: dict[str, UsedModel] = {}
    for path, runs in found.items():
        sizes = _read(project.root / path, runs)
        if isinstance(sizes, UsedModel):
            used[path] = sizes
        else:
            remarks[Remark(path, sizes)] = None
    remarks |= dict.fromkeys(
        Remark(path, "the program did not load it") for path in search.models if path not in found
    )
    return replace(survey, used=dict(sorted(used.items())), unused=tuple(remarks))


def _read(path: Path, runs: Sequence[SessionRuns]) -> UsedModel | str:
    if not any(run.count for run in runs):
        return "the program loaded it, but ran no inference"
    try:
        file = open_model(path)
        used = use_sizes(declared_inputs(file.proto), runs, file.name)
    except ModelPerfError as error:
        return str(error)
    return used or "the shapes of its inputs are unknown: they were bound on a device"


def _path_of(session: SessionRuns, project: Project, search: ModelSearch) -> str | Remark:
    if session.model is None:
        return _path_of_bytes(session, project, search)
    for models in (search.models, [remark.path for remark in search.remarks]):
        for inner in models:
            if _is_same(project.root / inner, session.model):
                return inner if inner in search.models else _remark(inner, search)
    name = str(session.model)
    if not session.model.resolve().is_relative_to(project.root.resolve()):
        return Remark(name, "it is outside the project: copy it in, so that every checkout has it")
    inside = inner_path(session.model.resolve(), project.root.resolve())
    if not name.endswith(SUFFIX):
        return Remark(inside, f"its name does not end in {SUFFIX}")
    return Remark(inside, "it is in a folder that is not searched: name it to use it all the same")


def _remark(inner: str, search: ModelSearch) -> Remark:
    return next(remark for remark in search.remarks if remark.path == inner)


def _path_of_bytes(session: SessionRuns, project: Project, search: ModelSearch) -> str | Remark:
    for inner in search.models:
        path = project.root / inner
        if (
            path.stat().st_size == session.size
            and hashlib.sha256(path.read_bytes()).hexdigest() == session.sha256
        ):
            return inner
    size = format_bytes(session.size)
    return Remark(
        f"a model in memory, {size}", "no file of the project has these bytes: save them to one"
    )


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
