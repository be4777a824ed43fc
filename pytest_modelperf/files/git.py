"""Running git commands without prompts, independent of the user's language and of any hook."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.systems.trees import TREES, Tree
from pytest_modelperf.text.escaping import printable

# For a look-up, and for getting a file, which a filter may have to download.
LOOK_SECONDS = 60.0
FETCH_SECONDS = 1800.0
_END_SECONDS = 5.0
_TROUBLE = ("fatal: ", "error: ", "error downloading ")

# Inside a hook, git sets these to the repository that it works on; the model may be in another.
_FOREIGN_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE",
    # These contradict --literal-pathspecs, by which paths are taken literally.
    "GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS",
    # Users set it to make checkouts fast; here the file itself is wanted.
    "GIT_LFS_SKIP_SMUDGE",
)  # fmt: skip


class GitAnswer(Struct, frozen=True):
    """The result of a git command: its exit code, its output, and its messages in `words`."""

    code: int
    output: bytes
    words: str

    @property
    def reason(self) -> str:
        """The first line in which git or Git LFS reports an error, or else the last line."""
        lines = [line.strip() for line in self.words.splitlines() if line.strip()]
        errors = (line for line in lines if line.lower().startswith(_TROUBLE))
        first = next(errors, lines[-1] if lines else f"it ended with {self.code}")
        return printable(first.removeprefix("fatal: ").removeprefix("error: ")).rstrip(".")


def ask_git(  # noqa: PLR0913  # all settings of a command
    folder: Path,
    *arguments: str,
    source: IO[bytes] | None = None,
    output: IO[bytes] | None = None,
    seconds: float = LOOK_SECONDS,
    otherwise: str = "",
    variables: Mapping[str, str] | None = None,
) -> GitAnswer:
    """Run one git command in `folder`, and return its result.

    Its output goes to the file `output` if there is one. `variables` are added to its environment.
    Raises UsageError if git cannot be run; `otherwise` is how the user can do without it.
    """
    program = shutil.which("git")
    if program is None:
        raise UsageError(
            f"git is not installed, or not on the PATH. Install it{otherwise and ', or '}"
            f"{otherwise}."
        )
    command = (program, "--no-pager", "--literal-pathspecs", "-C", str(folder), *arguments)
    try:
        # Files instead of pipes: a process that git starts in the background may keep a pipe open
        # forever.
        with TemporaryFile() as printed, TemporaryFile() as said:
            process = subprocess.Popen(  # noqa: S603  # git, with a list of arguments and no shell
                command,
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=output or printed,
                stderr=said,
                env=_environment() | dict(variables or {}),
                # No terminal, so that neither git nor its helpers can ask for a password.
                **TREES.popen_options(),
            )
            tree = TREES.tree_of(process.pid)
            try:
                code = process.wait(seconds)
            finally:
                _end(process, tree)
            return GitAnswer(code, _content(printed), _content(said).decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"`git {printable(shlex.join(arguments))}` did not end within {seconds:g} s in "
            f"{printable(str(folder))}. Try it by hand{otherwise and ', or '}{otherwise}."
        ) from None
    except OSError as error:
        raise UsageError(f"git cannot be run: {printable(str(error))}.") from error


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}
    # The messages of git are parsed, so they must not be translated; and git must not prompt or
    # refresh the index.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _end(process: subprocess.Popen[bytes], tree: Tree) -> None:
    if process.poll() is not None:
        return
    for end in (tree.ask_to_end, tree.kill):
        end()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
