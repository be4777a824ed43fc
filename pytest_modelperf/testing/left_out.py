"""Notes on the tables of models that a run does not read or use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.settings_table import PYPROJECT, read_table
from pytest_modelperf.spec.run_settings import RunSettings
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_path

# At most so many tables have a note of their own.
_MOST_NAMED = 3


def files_above(folder: Path, root: Path) -> Iterator[Path]:
    """Each pyproject.toml from a folder up to the root, without the one of the root.

    A folder above the root has only its own: settings of pytest further down made another root.
    """
    below = [each for each in (folder, *folder.parents) if root in each.parents]
    for place in [folder] if folder in root.parents else below:
        if (place / PYPROJECT).is_file():
            yield place / PYPROJECT


def unread_tables(files: Iterable[Path], config: pytest.Config) -> Iterator[str]:
    """A note for each of these files with [tool.modelperf]: only the file of the root is read."""
    start = config.invocation_params.dir
    found = [file for file in sorted(files) if _has_table(file)]
    for file in found[:_MOST_NAMED]:
        folder = os.path.relpath(file.parent, start)
        go = "" if folder == os.curdir else f"cd {shell_path(folder)} && "
        yield (
            f"{printable(os.path.relpath(file, start))} has [tool.modelperf], which this run does "
            f"not read: pytest took {printable(str(config.rootpath))} as its root. For the models "
            f"of that project type: {go}pytest --rootdir=. --modelperf"
        )
    more = len(found) - _MOST_NAMED
    if more > 0:
        yield f"{more:,} more pyproject.toml below the root have [tool.modelperf] and are not read"


def unused_tables(settings: RunSettings, config: pytest.Config) -> str | None:
    """Why the tables of the root made no tests; None without tables, or if tests were named."""
    start, root = config.invocation_params.dir, settings.root
    if not list(settings.models) or start == root:
        return None
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return None
    return (
        f"no model is tested here: the tables of {printable(str(root / PYPROJECT))} are "
        "for a run that starts in its folder. Type: "
        f"cd {shell_path(os.path.relpath(root, start))} && pytest --modelperf"
    )


def _has_table(file: Path) -> bool:
    # This run does not use that project, so a broken file there is not reported.
    with suppress(UsageError):
        return read_table(file) is not None
    return False
