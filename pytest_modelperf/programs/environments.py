"""The Python of the older side, if it has other versions of distributions than this one."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec.structs import replace

from pytest_modelperf.baselines.program import ProgramSources, StoredProgram
from pytest_modelperf.environments.making import make_environment
from pytest_modelperf.environments.records import Environment
from pytest_modelperf.environments.requirements import own_requirements, read_requirements
from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

# The station imports it from where this process has it.
_THIS = "pytest-modelperf"
_ENGINE = "onnxruntime"
_DIRECT_URL = "direct_url.json"

Maker = Callable[[tuple[str, ...]], Environment]


def python_of(stored: StoredProgram, top: Path, make: Maker = make_environment) -> Path:
    """The Python of an environment with the versions that were recorded; made once."""
    return make(recorded_requirements(stored.seen, top)).python


def python_with(
    requirement: str, seen: ProgramSources, top: Path, make: Maker = make_environment
) -> Path:
    """The Python of an environment as this one, but for one requirement, such as `magika==1.0.3`.

    `seen` is what the program reads now.
    """
    return make(changed_requirements(requirement, seen, top)).python


def recorded_requirements(seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """The requirements of an environment with these versions of distributions.

    The project's own distributions are left out, because the tree of the older commit has them.
    What this package needs is added.
    """
    own = {*own_distributions(top), _THIS}
    exact = {
        name: f"{name}=={version}"
        for each, version in seen.distributions.items()
        if (name := _name_of(each)) not in own
    }
    return _with_ours(exact)


def changed_requirements(requirement: str, seen: ProgramSources, top: Path) -> tuple[str, ...]:
    """The same with one requirement changed; UsageError if the program does not use it."""
    name = _name_of(requirement)
    if name in own_distributions(top):
        raise UsageError(
            f"{printable(name)} is the project itself: name an older version of it by its commit "
            'or tag, as in against="v1.2".'
        )
    if name not in map(_name_of, seen.distributions):
        raise UsageError(
            f"the program does not import {printable(name)}, so another version of it changes "
            f"nothing. It imports: {', '.join(sorted(map(printable, seen.distributions)))}."
        )
    others = {each: v for each, v in seen.distributions.items() if _name_of(each) != name}
    kept = (
        each
        for each in recorded_requirements(replace(seen, distributions=others), top)
        if _name_of(each) != name
    )
    return tuple(sorted((*kept, requirement)))


def own_distributions(top: Path) -> frozenset[str]:
    """The normalized names of distributions that are installed from a folder of the project."""
    return frozenset(
        _name_of(found.name)
        for found in importlib.metadata.distributions()
        if _is_from(found, top.resolve())
    )


def _is_from(found: importlib.metadata.Distribution, top: Path) -> bool:
    """Whether a distribution was installed from a folder, editable or not."""
    text = found.read_text(_DIRECT_URL)
    if text is None:
        return False
    try:
        origin = json.loads(text)
        url = urlsplit(origin["url"])
    except (ValueError, KeyError, TypeError):
        # Another tool wrote it.
        return False
    if url.scheme != "file" or "dir_info" not in origin:
        return False
    return Path(url2pathname(url.path)).resolve().is_relative_to(top)


def _with_ours(exact: Mapping[str, str]) -> tuple[str, ...]:
    """The requirements with those of this package that they do not have."""
    needed = {_name_of(each): each for each in own_requirements(_THIS)}
    if any(name.startswith(f"{_ENGINE}-") for name in exact):
        # Such as onnxruntime-gpu, which is the same module.
        del needed[_ENGINE]
    return tuple(sorted({**needed, **exact}.values()))


def _name_of(requirement: str) -> str:
    (name,) = read_requirements([requirement]).names
    return name
