"""Notes on what a run does not read, use or judge, such as tables or cases of other machines."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import PYPROJECT, read_table
from pytest_modelperf.spec.run_definitions import STRICT
from pytest_modelperf.spec.sources import RunSettings
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_path, shorten_list

if TYPE_CHECKING:
    from pytest_modelperf.cluster.records import Machine

NO_MODEL = (
    "no model is tested here: name one, as in pytest --modelperf model.onnx, or type modelperf "
    "init, which finds the models of a project and writes a table for each"
)
# The most tables with a note each, and the most tests that a note names.
_MOST_NAMED = 3


def files_above(folder: Path, root: Path) -> Iterator[Path]:
    """Yield each pyproject.toml from a folder up to the root, without the one of the root.

    For a folder above the root, yield only its own file. The root may be below it because of
    settings of pytest.
    """
    below = [each for each in (folder, *folder.parents) if root in each.parents]
    for place in [folder] if folder in root.parents else below:
        if (place / PYPROJECT).is_file():
            yield place / PYPROJECT


def file_above(root: Path) -> Path | None:
    """Return the nearest pyproject.toml with a table above the root, if the root has no table."""
    for place in (root, *root.parents):
        if _has_table(place / PYPROJECT):
            return None if place == root else place / PYPROJECT
        if (place / ".git").exists():
            return None
    return None


def unread_tables(
    files: Iterable[Path], settings: RunSettings, config: pytest.Config
) -> Iterator[str]:
    """Yield a note for each file with [tool.modelperf]. Only the file of the root is read."""
    start = config.invocation_params.dir
    found = [file for file in sorted(files) if _has_table(file)]
    for file in found[:_MOST_NAMED]:
        folder = os.path.relpath(file.parent, start)
        go = "" if folder == os.curdir else f"cd {shell_path(folder)} && "
        text = (
            f"{printable(os.path.relpath(file, start))} has [tool.modelperf], which this run does "
            f"not read: pytest took {printable(str(config.rootpath))} as its root. For the models "
            f"of that project type: {go}{_command(settings, '--rootdir=.')}"
        )
        if settings.strict and start in file.parent.parents:
            text += f". To leave that project out of this run, add --ignore={shell_path(folder)}"
        yield text
    more = len(found) - _MOST_NAMED
    if more > 0:
        yield f"{more:,} more pyproject.toml below the root have [tool.modelperf] and are not read"


def unused_tables(settings: RunSettings, config: pytest.Config) -> str | None:
    """Explain why the tables of the root made no tests, unless tests were named."""
    reason = _unused(settings, config)
    return None if reason is None else f"no model is tested here: {reason}"


def describe_unjudged(
    settings: RunSettings,
    config: pytest.Config,
    left_out: Collection[str],
    skipped: Collection[str],
) -> str:
    """Explain why a strict run judged no model, and what to type.

    `left_out` are the known models and tests of models that did not run. `skipped` are the tests
    that the project skipped.
    """
    reason = _unused(settings, config) or _omitted(settings, left_out, skipped)
    return (
        f"no model was judged, and {STRICT.flag} fails such a run: "
        f"{reason or _not_found(settings, config)}"
    )


def _unused(settings: RunSettings, config: pytest.Config) -> str | None:
    start, root = config.invocation_params.dir, settings.root
    if not list(settings.models) or start == root:
        return None
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return None
    return (
        f"the tables of {printable(str(root / PYPROJECT))} are for a run that starts in its "
        f"folder. Type: cd {shell_path(os.path.relpath(root, start))} && {_command(settings)}"
    )


def _omitted(
    settings: RunSettings, left_out: Collection[str], skipped: Collection[str]
) -> str | None:
    named = [
        f"{why}: {shorten_list([*map(printable, sorted(tests))], _MOST_NAMED)}"
        for why, tests in (
            ("left out by an option or a conftest", left_out),
            ("skipped by the project itself", skipped),
        )
        if tests
    ]
    if not named:
        return None
    off = (
        f"leave {STRICT.flag} out"
        if STRICT.key in settings.typed
        else f"type -o {STRICT.ini}=false"
    )
    return f"{'; '.join(named)}. Have one of them run, or {off}"


def _not_found(settings: RunSettings, config: pytest.Config) -> str:
    file = printable(str(settings.root / PYPROJECT))
    place = shorten_list([*map(printable, config.args)], _MOST_NAMED)
    looked = (
        f"no .onnx file was named, and no test in {place} has the marker perf_case or uses the "
        "fixture modelperf"
    )
    if not list(settings.models):
        return (
            f"{looked}; {file} has no [tool.modelperf.models]. Name a model, as in "
            f"{_command(settings, 'model.onnx')}, or type modelperf init, which finds the models "
            "of a project and writes a table for each"
        )
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return (
            f"{looked}; the tables of {file} make tests only if the command line names none. Name "
            f"the models, too, or type: {_command(settings)}"
        )
    return f"the models of {file} were left out, as --lf does. Type: {_command(settings)}"


def _command(settings: RunSettings, *words: str) -> str:
    strict = [STRICT.flag] if STRICT.key in settings.typed else []
    return " ".join(["pytest", *words, "--modelperf", *strict])


def _has_table(file: Path) -> bool:
    # This run does not use that project, so it does not report a broken file there.
    with suppress(UsageError):
        return read_table(file) is not None
    return False


def allowed_names(machine: str | None, allowed: Sequence[str]) -> tuple[str, ...]:
    """Combine the machine of a case with the allowed machines of the run.

    Return names of machines. If there are none, any machine may run the case.
    """
    if machine is None:
        return tuple(allowed)
    return (machine,) if machine in allowed else _with_each((machine,), allowed)


def names_of_kinds(
    names: Sequence[str], kinds: Collection[str], machines: Sequence[Machine]
) -> tuple[str, ...]:
    """Restrict the names to machines of these kinds, if there are any."""
    found = {machine.key for machine in machines if machine.is_any_of(names)} & set(kinds)
    return _with_each(names, sorted(found)) if found else tuple(names)


def _with_each(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return each pair of names as one, which matches machines with both. Either may be empty."""
    if not names or not others:
        return tuple(names or others)
    return tuple(a if a == b else f"{a}+{b}" for a in names for b in others)


def require_this_machine(machine: str) -> None:
    """Raise UsageError if this machine does not have this key or tag."""
    from pytest_modelperf.cluster.records import Machine
    from pytest_modelperf.cluster.station import read_tags
    from pytest_modelperf.profiler.machine.describe import describe_machine

    key = describe_machine().key
    here = Machine(address="", host="", key=key, tags=read_tags(), versions={})
    if not here.is_any_of((machine,)):
        raise UsageError(
            f"this machine is {', '.join((key, *here.tags))}, and not {printable(machine)}: name a "
            "cluster that has one, as in --modelperf-cluster tcp://host:8786, or leave its cases "
            f"out, as in -k 'not {printable(machine)}'."
        )
