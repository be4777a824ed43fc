"""The baselines of programs, next to those of models: `baselines/<test>/program.json`.

The folder has the name of the test: `tests--test_read.py++test_page+-a4--small` is that of
`tests/test_read.py::test_page[a4/small]`. Folders of models never contain `++` in their names.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from pathlib import Path

from msgspec.structs import replace

from pytest_modelperf.baselines.program import PROGRAM_FILE, STORED_PROGRAM, StoredProgram
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.files.documents import ContradictionError, DocumentFile, FileAdvice, rounded
from pytest_modelperf.files.names import escape_part, rename_device, shorten_name
from pytest_modelperf.files.store import remove_abandoned, write_file
from pytest_modelperf.report.document import SCHEMA, to_json
from pytest_modelperf.systems.files import FILES
from pytest_modelperf.text.escaping import printable

_SLASH = "--"
_INSIDE = "++"
_PARAMETERS = "+-"
# Each file that a program read takes about 100 bytes.
_MAX_BYTES = 16 << 20
ADVICE = FileAdvice(
    broken="Restore it from version control, or delete it and record the test again with "
    "`pytest --modelperf --modelperf-update-baseline`.",
    conflict="Take one side whole: `git checkout --theirs FILE` or `--ours`. Then record the test "
    "again with `pytest --modelperf --modelperf-update-baseline`.",
)


def program_name(test: str) -> str:
    """Return the folder of a test by its id. Different tests have different folders."""
    file, _, inside = test.partition("::")
    if not file or not inside or posixpath.isabs(file) or "\0" in test:
        raise UsageError(
            f"{printable(test) or 'an empty text'} cannot name a program: give the id of a test, "
            "such as tests/test_read.py::test_page."
        )
    named, opening, parameters = inside.partition("[")
    if opening and not parameters.endswith("]"):
        named, opening = inside, ""
    parts = [_escape_path(file), *map(escape_part, named.split("::"))]
    name = _INSIDE.join(parts)
    if opening:
        name += _PARAMETERS + _escape_path(parameters.removesuffix("]"))
    return shorten_name(rename_device(name))


def program_names(root: Path) -> tuple[str, ...]:
    return BaselineStore(root).names(PROGRAM_FILE)


def program_path(root: Path, name: str) -> Path:
    """Return the file of a program, or raise BaselineError if it may be outside of the root."""
    return BaselineStore(root).folder(name) / PROGRAM_FILE


def read_program(root: Path, name: str) -> StoredProgram | None:
    """Read the baseline of the program in this folder, or return None if it has none."""
    path = program_path(root, name)
    data = DocumentFile(path, ADVICE).content(_MAX_BYTES)
    return None if data is None else decode_program(data, path)


def decode_program(data: bytes, path: Path) -> StoredProgram:
    """Decode the content of a `program.json`. Raises BaselineError if it is broken."""
    file = DocumentFile(path, ADVICE)
    found = file.read(data, STORED_PROGRAM.json_type, SCHEMA)
    try:
        program = STORED_PROGRAM.read(found)
        expected = program_name(program.test)
    except ContradictionError as error:
        raise file.error(error.problem, error.place) from None
    except UsageError as error:
        raise file.error(str(error), "test") from None
    if path.parent.name != expected:
        raise file.error(f"its folder should be {expected}", "test")
    for place in program.seen.files:
        if not _is_inside(place):
            raise file.error(f"{printable(place)} is outside of the project", "files")
    return program


def encode_program(program: StoredProgram) -> bytes:
    """Encode a `program.json`, with a line for each value, sorted by key."""
    document = to_json(STORED_PROGRAM.of(_rounded(program)))
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


def write_program(root: Path, name: str, program: StoredProgram) -> bool:
    """Store the baseline of a program, and return whether its file changed.

    Raises BaselineError if the present file is broken, and leaves it unchanged.
    """
    path = program_path(root, name)
    data = encode_program(program)
    if decode_program(data, path) != _rounded(program):
        raise BaselineError(
            f"{printable(str(path))} would not be read as it was written, so it was not written. "
            "Report this as an error of pytest-modelperf."
        )
    with BaselineStore(root).changing(path.parent):
        return _replace(path, data)


def remove_program(root: Path, name: str) -> None:
    """Remove the baseline of a program, and its folder if nothing else is in it."""
    path = program_path(root, name)
    with BaselineStore(root).changing(path.parent):
        path.unlink(missing_ok=True)
        remove_abandoned(path.parent)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        FILES.sync_folder(root)


def _replace(path: Path, data: bytes) -> bool:
    """Write the file unless it is the same. The caller must hold the lock."""
    present = DocumentFile(path, ADVICE).content(_MAX_BYTES)
    if present == data:
        return False
    if present is not None:
        decode_program(present, path)
    if not path.parent.exists():
        path.parent.mkdir()
        FILES.sync_folder(path.parent.parent)
    write_file(path, data)
    return True


def _rounded(program: StoredProgram) -> StoredProgram:
    figures = {
        name: rounded(value)
        for name in program.figures.__struct_fields__
        if isinstance(value := getattr(program.figures, name), float)
    }
    rows = tuple(replace(row, calls=rounded(row.calls), ms=rounded(row.ms)) for row in program.rows)
    return replace(program, figures=replace(program.figures, **figures), rows=rows)


def _escape_path(path: str) -> str:
    return _SLASH.join(map(escape_part, path.split("/")))


def _is_inside(place: str) -> bool:
    is_plain = posixpath.normpath(place) == place and "\\" not in place and "\0" not in place
    return is_plain and not place.startswith("/") and place != "." and f"{place}/"[:3] != "../"
