"""The older version of a model that `--modelperf-against` names, by a path or by a git ref.

Of a repository only objects are read: its work tree, its index and its refs stay as they are.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile
from typing import BinaryIO

from pytest_modelperf.errors import ModelError, OutputError, UsageError
from pytest_modelperf.units import printable

OPTION = "--modelperf-against"

# To look something up; to get a file, which a filter may have to download.
_LOOK_SECONDS = 60.0
_FETCH_SECONDS = 1800.0
_END_SECONDS = 5.0

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024
# As many as git itself follows.
_MAX_LINKS = 40
_FULL_ID = re.compile(r"[0-9a-f]{40,64}")
_TROUBLE = ("fatal: ", "error: ", "error downloading ")
# git shortens an id to no less.
_LEAST_ID = 7

# Inside of a hook git says in these which repository it works on; the model may lie in another.
_FOREIGN_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE",
    # Set to make checkouts fast; here the file itself is wanted.
    "GIT_LFS_SKIP_SMUDGE",
)  # fmt: skip

# Folders of copies and of packages, in which nobody's models lie.
_COPIES = frozenset({"build", "dist", "node_modules", "venv", "__pycache__"})


@contextmanager
def older_version(text: str, model: Path, root: Path) -> Iterator[Path]:
    """The file of the model as it was, by a path or a git ref; it goes with the context.

    A file is the older version of any model. In a folder it lies where the model lies in `root`,
    or else at its name. A path goes before a ref of the same name.
    """
    named = _named_path(text, root)
    if named is not None:
        yield _file_named(named, text, model, root)
        return
    try:
        temporary = TemporaryDirectory(prefix="modelperf-against-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _unwritten(model, error) from error
    with temporary as folder:
        yield _take_from_git(text, model, Path(folder))


def check_against(text: str, root: Path) -> None:
    """UsageError at the start of a run where `text` names neither a path nor a commit.

    A commit may also be one of a submodule, in which a model may lie.
    """
    if _named_path(text, root) is not None:
        return
    try:
        _find_commit(text, root)
    except _UnknownCommitError:
        if not any(_has_commit(text, folder) for folder in _submodules(root)):
            raise


# -- by a path


def _named_path(text: str, root: Path) -> Path | None:
    """What lies at the path `text`, seen from here or else from `root`; None where nothing does."""
    if not text.strip():
        raise UsageError(f"{OPTION} takes a path or a git ref, such as HEAD~1 or old.onnx.")
    given = Path(text).expanduser() if text.startswith("~/") else Path(text)
    return next((path.absolute() for path in (given, root / given) if _exists(path)), None)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        # Too long for a path, or no text that can be one.
        return False


def _file_named(named: Path, text: str, model: Path, root: Path) -> Path:
    path = _file_in_folder(named, text, model, root) if named.is_dir() else named
    if _place(path) == _place(model):
        raise UsageError(
            f"{OPTION} {printable(text)} names the model {printable(str(model))} itself. "
            "Give an older version of it: another file, or a git ref such as HEAD~1."
        )
    return path


def _file_in_folder(folder: Path, text: str, model: Path, root: Path) -> Path:
    place, top = _place(model), root.resolve()
    wanted = folder / model.name
    if place.is_relative_to(top):
        wanted = folder / place.relative_to(top)
        if wanted.is_file():
            return wanted
    by_name = folder / model.name
    if not by_name.is_file():
        near = sorted(p for pattern in ("*.onnx", "*/*.onnx") for p in folder.glob(pattern))[:5]
        hint = f" There are: {', '.join(printable(str(path)) for path in near)}." if near else ""
        tried = dict.fromkeys((str(wanted.relative_to(folder)), model.name))
        raise UsageError(
            f"{OPTION} names the folder {printable(text)}, in which there is no "
            f"{' and no '.join(map(printable, tried))}.{hint} "
            f"Put the older version there, or give its path.{_ref_hint(text)}"
        )
    for other in _namesakes(model.name, top, folder.resolve()):
        if other != place:
            raise UsageError(
                f"{printable(str(by_name))} may be the older version of "
                f"{printable(str(model))} or of {printable(str(other))}. "
                f"Put it at {printable(str(wanted))}, or give {OPTION} the path of a file."
            )
    return by_name


def _ref_hint(text: str) -> str:
    if "/" in text or text.startswith("."):
        return ""
    return f" If you mean the branch of that name, type refs/heads/{printable(text)}."


def _namesakes(name: str, top: Path, but: Path) -> Iterator[Path]:
    """Files of that name below `top`, without those in `but` and in what is not the project's."""
    for where, folders, files in os.walk(top):
        here = Path(where)
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _COPIES
            and here / each != but
            and not (here / each / "pyvenv.cfg").exists()
        ]
        if name in files:
            yield here / name


def _place(path: Path) -> Path:
    """Where a file lies, all links of its folder followed, but not one that it is itself."""
    return path.parent.resolve() / path.name


# -- from git


class _UnknownCommitError(UsageError):
    """There is a repository, and no such commit in it."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit: what the user called it, its id, and a folder of the repository that it is in."""

    text: str
    sha: str
    folder: Path

    def __str__(self) -> str:
        short = self.sha[:10]
        is_id = len(self.text) >= _LEAST_ID and self.sha.startswith(self.text)
        return short if is_id else f"{printable(self.text)} ({short})"


@dataclass(frozen=True, slots=True)
class _Repository:
    """What git says of the repository that a folder is in; `prefix` is the folder's place in it."""

    is_shallow: bool
    prefix: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """How a git command ended: its output, and what it said on the side."""

    code: int
    output: bytes
    words: str

    @property
    def reason(self) -> str:
        """The first line in which git, or Git LFS, says what went wrong."""
        lines = [line.strip() for line in self.words.splitlines() if line.strip()]
        told = (line for line in lines if line.lower().startswith(_TROUBLE))
        first = next(told, lines[-1] if lines else f"it ended with {self.code}")
        return printable(first.removeprefix("fatal: ").removeprefix("error: ")).rstrip(".")


def _take_from_git(text: str, model: Path, target: Path) -> Path:
    """Write the model and its external data into `target`, as they were in a commit."""
    folder = model.absolute().parent
    commit = _find_commit(text, folder)
    prefix = _look_at_repository(folder).prefix
    path = target / model.name
    _take_file(commit, prefix + model.name, path)
    for location in _external_locations(path, f"{printable(str(model))} as of {commit}"):
        _take_file(commit, posixpath.normpath(prefix + location), target / location)
    return path


def _find_commit(text: str, folder: Path) -> _Commit:
    shown = printable(text)
    # Neither is a ref, and git would take the first for an option.
    if text.startswith("-") or "\0" in text:
        raise UsageError(
            f"{OPTION} names {shown!r}, which is neither a path that exists nor can be a git ref. "
            "Give one of them, such as HEAD~1 or old.onnx."
        )
    try:
        repository = _look_at_repository(folder)
    except UsageError as error:
        raise UsageError(f"{OPTION} {shown} is no path that exists, and {error}") from error
    sha = _resolve(text, folder)
    if sha is not None:
        return _Commit(text, sha, folder)
    raise _UnknownCommitError(
        f"{OPTION} names {shown}, which is neither a path that exists nor a commit of the git "
        f"repository of {printable(str(folder))}. {_advice(text, folder, repository)}"
    )


def _has_commit(text: str, folder: Path) -> bool:
    return folder.is_dir() and _resolve(text, folder) is not None


def _resolve(text: str, folder: Path) -> str | None:
    answer = _git(folder, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    sha = answer.output.decode("ascii", "replace").strip()
    # `^main` is an answer too, but means all commits that are not in main.
    return sha if answer.code == 0 and _FULL_ID.fullmatch(sha) else None


def _advice(text: str, folder: Path, repository: _Repository) -> str:
    """What to type instead of a ref that is not known."""
    start, colon, _ = text.partition(":")
    if colon and start and _resolve(start, folder) is not None:
        return (
            f"Give {printable(start)} alone: the file is taken from where the model lies in the "
            "repository."
        )
    listed = _git(folder, "for-each-ref", "--format=%(refname:short)").output
    refs = [ref for ref in listed.decode("utf-8", "surrogateescape").split("\n") if ref]
    # A ref may go on: main~3, v1.0^{}.
    name = re.split(r"[~^@]", text, maxsplit=1)[0]
    is_known = bool(name) and _resolve(name, folder) is not None
    remote = next((ref for ref in refs if ref.endswith(f"/{name}")), None)
    if remote is not None and name and not is_known:
        return f"There is {printable(remote)}: give {printable(remote + text[len(name) :])}."
    if repository.is_shallow:
        return (
            "This clone is shallow: older commits and other branches were not fetched. Run "
            "`git fetch --unshallow origin`, or `git fetch --depth=1 origin REF` and give "
            "FETCH_HEAD; in GitHub Actions give actions/checkout `fetch-depth: 0`."
        )
    if is_known:
        return f"There is {printable(name)}: `git log --oneline {_quoted(name)}` lists its commits."
    near = difflib.get_close_matches(name, refs, 3)
    if near:
        return f"Did you mean {', '.join(map(printable, near))}?"
    return (
        "`git branch --all` and `git tag` list what there is; `git fetch --all --tags` gets more."
    )


def _look_at_repository(folder: Path) -> _Repository:
    shown = printable(str(folder))
    answer = _git(
        folder, "rev-parse", "--is-inside-work-tree", "--is-shallow-repository", "--show-prefix"
    )
    # The prefix is what is left, for a folder may have a line break in its name.
    inside, shallow, prefix = (*answer.output.split(b"\n", 2), b"", b"")[:3]
    if answer.code == 0 and inside == b"true":
        return _Repository(shallow == b"true", os.fsdecode(prefix.removesuffix(b"\n")))
    if answer.code == 0 or "must be run in a work tree" in answer.words:
        raise UsageError(
            f"{shown} is inside of a git repository, but not in a work tree of it. "
            "Give the path of an older version, or run in a checkout."
        )
    if "not a git repository" in answer.words:
        raise UsageError(
            f"{shown} is in no git repository. Give the path of an older version: "
            f"{OPTION} old.onnx."
        )
    if "dubious ownership" in answer.words:
        # git says the very command, with the folder that it means.
        told = re.search(r"git config --global --add safe\.directory .*", answer.words)
        step = printable(told[0].strip()) if told else "git config --global safe.directory FOLDER"
        raise UsageError(
            f"git does not trust the repository of {shown}, for another user owns it. Run `{step}`."
        )
    raise UsageError(f"git cannot read the repository of {shown}: {answer.reason}.")


def _submodules(root: Path) -> tuple[Path, ...]:
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.code != 0:
        return ()
    folder = Path(os.fsdecode(top.output.removesuffix(b"\n")))
    listed = _git(
        folder, "config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$"
    )
    values = (entry.partition(b"\n")[2] for entry in listed.output.split(b"\0") if entry)
    return tuple(folder / os.fsdecode(value) for value in values if value)


def _take_file(commit: _Commit, place: str, target: Path) -> None:
    """Write the file that was at `place` in the commit, links followed and filters applied."""
    found = _follow_links(commit, place)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            answer = _git(
                commit.folder, "cat-file", "--filters", f"{commit.sha}:{found}",
                output=file, seconds=_FETCH_SECONDS,
            )  # fmt: skip
        if answer.code != 0:
            if "git-lfs" in answer.words or "filter lfs" in answer.words:
                raise _no_lfs_file(commit, found, answer)
            raise UsageError(
                f"git cannot read {printable(found)} of {commit}: {answer.reason}. Try "
                f"`git cat-file --filters {_quoted(f'{commit.text}:{found}')} > old.onnx`."
            )
        if _is_pointer(target):
            _smudge(commit, found, target)
    except OSError as error:
        raise _unwritten(Path(found), error) from error


def _follow_links(commit: _Commit, place: str) -> str:
    """Where the file lies in the commit that is at `place` or that a link there points to."""
    for _ in range(_MAX_LINKS):
        listed = _git(commit.folder, "ls-tree", "-z", "--full-tree", commit.sha, "--", place)
        kind = listed.output.split(b"\t", 1)[0].split(b" ")
        if listed.code != 0 or kind[0] not in (b"100644", b"100755", b"120000"):
            raise _not_there(commit, place, listed)
        if kind[0] != b"120000":
            return place
        link = os.fsdecode(_git(commit.folder, "cat-file", "blob", f"{commit.sha}:{place}").output)
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
        if not _is_inside(aim):
            raise UsageError(
                f"in {commit} {printable(place)} is a link to {printable(link)}, outside of the "
                f"repository. Give the path of the older version: {OPTION} old.onnx."
            )
        place = aim
    raise UsageError(f"in {commit} {printable(place)} is a link that leads to itself.")


def _not_there(commit: _Commit, place: str, listed: _Answer) -> UsageError:
    shown = printable(place)
    if listed.code != 0:
        return UsageError(f"git cannot read the commit {commit}: {listed.reason}.")
    if listed.output:
        return UsageError(
            f"{shown} was not a file in {commit}, but a folder or a submodule. "
            f"Give the path of the older version: {OPTION} old.onnx."
        )
    everything = _git(commit.folder, "ls-tree", "-rz", "--name-only", "--full-tree", commit.sha)
    models = [
        os.fsdecode(name) for name in everything.output.split(b"\0") if name.endswith(b".onnx")
    ]
    hint = "No .onnx file was in it."
    if models:
        near = sorted(models, key=lambda other: _likeness(place, other), reverse=True)
        hint = (
            f"There were: {', '.join(map(printable, near[:5]))}. If it had another name, type "
            f"`git cat-file --filters {_quoted(f'{commit.text}:{near[0]}')} > old.onnx` and "
            f"{OPTION} old.onnx."
        )
    return UsageError(
        f"{shown} was not in the commit {commit}. {hint} "
        f"`git log --oneline -- {_quoted(f':/{place}')}` lists the commits that changed it."
    )


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def _smudge(commit: _Commit, place: str, target: Path) -> None:
    """Put the file in place of its Git LFS pointer.

    The filter left the pointer where Git LFS is not set up for this file today, or was told not
    to download on a checkout.
    """
    with TemporaryFile() as pointer:
        pointer.write(target.read_bytes())
        pointer.seek(0)
        with target.open("wb") as file:
            answer = _git(
                commit.folder, "lfs", "smudge", "--", place,
                source=pointer, output=file, seconds=_FETCH_SECONDS,
            )  # fmt: skip
    if answer.code != 0 or _is_pointer(target):
        raise _no_lfs_file(commit, place, answer)


def _is_pointer(path: Path) -> bool:
    if path.stat().st_size > _MAX_POINTER_BYTES:
        return False
    return path.read_bytes().startswith(_LFS_POINTER)


def _no_lfs_file(commit: _Commit, place: str, answer: _Answer) -> UsageError:
    said = answer.words.lower()
    step = f"`git lfs fetch origin {_quoted(commit.text)}`"
    if "'lfs' is not a git command" in said or "git-lfs: not found" in said:
        return UsageError(
            f"{printable(place)} of {commit} is stored with Git LFS, which is not installed. "
            f"Install git-lfs, then run {step}."
        )
    return UsageError(
        f"{printable(place)} of {commit} is stored with Git LFS, and here is only the pointer to "
        f"it ({answer.reason}). Run {step}."
    )


def _external_locations(path: Path, shown: str) -> tuple[str, ...]:
    """Where the model names external data, as places relative to it, each inside its folder."""
    from pytest_modelperf.graph.model_file import is_external, open_model
    from pytest_modelperf.graph.stored_tensors import walk_stored

    try:
        proto = open_model(path).proto
        tensors = [s.tensor for s in walk_stored(proto) if is_external(s.tensor)]
    except ModelError as error:
        raise ModelError(str(error).replace(printable(str(path)), shown)) from error
    locations = {
        str(entry.value)
        for tensor in tensors
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for location in sorted(locations):
        if not _is_inside(location) or "\0" in location:
            raise ModelError(
                f"{shown} has weights in {printable(location)!r}, outside of the model's folder. "
                "External data is read only from the folder of the model."
            )
    places = {posixpath.normpath(location) for location in locations}
    return tuple(sorted(places - {path.name}))


def _is_inside(place: str) -> bool:
    """Whether a relative path stays below where it starts, whatever `..` it has."""
    path = PurePosixPath(posixpath.normpath(place))
    return bool(place) and not path.is_absolute() and path.parts[:1] not in ((), ("..",))


# -- git itself


def _git(
    folder: Path,
    *arguments: str,
    source: BinaryIO | None = None,
    output: BinaryIO | None = None,
    seconds: float = _LOOK_SECONDS,
) -> _Answer:
    """The answer of one git command in `folder`; with `output`, what it prints goes there."""
    program = shutil.which("git")
    if program is None:
        raise UsageError(
            "git is not installed, or not on the PATH. Install it, or give the path of an older "
            f"version: {OPTION} old.onnx."
        )
    command = (program, "--no-pager", "--literal-pathspecs", "-C", str(folder), *arguments)
    try:
        # Files and not pipes: what git starts in the background may keep a pipe open for ever.
        with TemporaryFile() as printed, TemporaryFile() as said:
            code = _wait_for(command, source, output or printed, said, seconds)
            return _Answer(code, _content(printed), _content(said).decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"`git {printable(shlex.join(arguments))}` did not end within {seconds:g} s in "
            f"{printable(str(folder))}. Try it by hand, or give the path of an older version."
        ) from None
    except OSError as error:
        raise UsageError(f"git cannot be run: {printable(str(error))}.") from error


def _wait_for(
    command: tuple[str, ...],
    source: BinaryIO | None,
    output: BinaryIO,
    words: BinaryIO,
    seconds: float,
) -> int:
    process = subprocess.Popen(  # noqa: S603  # git, with a list of arguments and no shell
        command,
        stdin=subprocess.DEVNULL if source is None else source,
        stdout=output,
        stderr=words,
        env=_environment(),
        # No terminal, so that nothing can ask for a password, and a group that can be ended.
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    finally:
        _end(process)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}
    # Its words are read, so they are those of no language; and nothing is asked or refreshed.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, with all that it started."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        # It may be over by now, and macOS does not let anyone signal what is.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _quoted(text: str) -> str:
    """`text` as a shell takes it back; a tilde means something only at the start."""
    is_plain = shlex.quote(text.replace("~", "")) == text.replace("~", "")
    return printable(text if is_plain and not text.startswith("~") else shlex.quote(text))


def _unwritten(model: Path, error: OSError) -> OutputError:
    return OutputError(
        f"the older version of {printable(str(model))} cannot be written: "
        f"{printable(error.strerror or str(error))}. TMPDIR says where temporary files go."
    )
