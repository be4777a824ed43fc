"""Find the changes in what a program read since it was recorded, without a run.

A program is usually unchanged, so this module imports no code that runs or judges one.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from msgspec import Struct

from pytest_modelperf.baselines.program import ProgramSources, SeenModel, StoredProgram
from pytest_modelperf.baselines.program_store import read_program
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.files.opened import installed_version
from pytest_modelperf.text.escaping import printable

# The home folder in the stored path of a model.
HOME = "~"
_PIECE_BYTES = 1 << 20
# Larger files are not read whole, because only text files are checked for converted line ends.
_MAX_TEXT_BYTES = 16 << 20


def has_digest(content: bytes, recorded: str) -> bool:
    """Whether the content is the recorded one, even with line ends that git has converted."""
    contents = [content]
    if b"\n" in content and b"\0" not in content:
        unix = content.replace(b"\r\n", b"\n")
        contents += [unix, unix.replace(b"\n", b"\r\n")]
    return any(hashlib.sha256(each).hexdigest() == recorded for each in contents)


def file_has_digest(path: Path, recorded: str) -> bool:
    """Whether a file has the recorded content, or raise OSError if it cannot be read."""
    if path.stat().st_size <= _MAX_TEXT_BYTES:
        return has_digest(path.read_bytes(), recorded)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest() == recorded


def changes_since(
    stored: StoredProgram,
    top: Path,
    *,
    version_of: Callable[[str], str | None] | None = None,
    python: str | None = None,
) -> tuple[str, ...]:
    """Return what changed since the program was recorded, as short sentences.

    `top` is the top folder of the repository. `version_of` returns the installed version of a
    distribution, and `python` is the version of Python. Both default to those of this process.
    """
    return (
        *_file_changes(stored.seen, top),
        *_model_changes(stored.seen, top),
        *_distribution_changes(stored.seen, version_of or installed_version),
        *_python_changes(stored.seen, python or platform.python_version()),
    )


def _file_changes(seen: ProgramSources, top: Path) -> Iterator[str]:
    changed = []
    for place, digest in seen.files.items():
        verb = _file_change(top / place, digest)
        if verb is not None:
            changed.append((place, verb))
    names = Counter(PurePath(place).name for place in seen.files)
    for place, verb in changed:
        name = PurePath(place).name
        yield f"{printable(name if names[name] == 1 else place)} {verb}"


def _file_change(path: Path, digest: str) -> str | None:
    try:
        return None if file_has_digest(path, digest) else "changed"
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    except OSError as error:
        return f"cannot be read ({printable(error.strerror or str(error))})"


def _model_changes(seen: ProgramSources, top: Path) -> Iterator[str]:
    for model in seen.models:
        if model.path is None or model.sha256 is None or model.path in seen.files:
            continue
        # Joining an absolute path drops the top folder.
        path = top / _expand_home(model.path)
        if not path.is_file():
            yield f"{printable(model.name)} is gone: it was {printable(model.path)}"
        elif not _is_same_model(path, model):
            yield f"{printable(model.name)} changed"


def _expand_home(place: str) -> str:
    is_below_home = place.startswith(f"{HOME}/")
    return os.path.expanduser(place) if is_below_home else place  # noqa: PTH111  # a user may have none


def _is_same_model(path: Path, model: SeenModel) -> bool:
    """Whether the model is the recorded one. A model in one file has the digest of that file."""
    try:
        if model.sha256 is None or file_has_digest(path, model.sha256):
            return True
        # Only a model with external data needs its graph, and reading that takes a slow import.
        from pytest_modelperf.graph.model_file import open_model

        return open_model(path).sha256() == model.sha256
    except (OSError, ModelPerfError):
        # The recorded model could be read, so this one differs.
        return False


def _distribution_changes(
    seen: ProgramSources, version_of: Callable[[str], str | None]
) -> Iterator[str]:
    for name, version in seen.distributions.items():
        now = version_of(name)
        if now is None:
            yield f"{printable(name)} {printable(version)} is no longer installed"
        elif now != version:
            yield f"{printable(name)} {printable(version)} -> {printable(now)}"


def _python_changes(seen: ProgramSources, python: str) -> Iterator[str]:
    if seen.python != python:
        yield f"Python {printable(seen.python)} -> {printable(python)}"


# -- the baseline of a program, and whether it settles a check


class ProgramState(Struct, frozen=True):
    """The baseline of a program, if there is one, and what changed since it was recorded."""

    stored: StoredProgram | None
    changes: Sequence[str] = ()

    @property
    def is_unchanged(self) -> bool:
        return self.stored is not None and not self.changes


def read_state(baselines: Path, name: str, top: Path) -> ProgramState:
    """Return the state of the program `name` in the work tree below `top`."""
    stored = read_program(baselines, name)
    return ProgramState(stored, () if stored is None else changes_since(stored, top))
