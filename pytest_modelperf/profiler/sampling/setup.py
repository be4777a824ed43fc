"""The settings with which cases are measured, and the worker that they need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from pytest_modelperf.errors import PLAIN, Wording
from pytest_modelperf.profiler.engines.source import (
    BUILT_IN,
    CALLABLE_ENGINE,
    DEFAULT_ENGINE,
    EngineModule,
)
from pytest_modelperf.profiler.sampling.policy import SamplingPolicy
from pytest_modelperf.profiler.worker.client import DEFAULT_LIMIT_S, WorkerRequest
from pytest_modelperf.profiler.worker.gateway import LOCAL, is_this_python

# The folders below their prefix in which interpreters have their modules.
_LIBRARIES = ("lib", "lib64", "dlls")


class Setup(Struct, frozen=True, kw_only=True):
    """The settings of measuring: on which engine, where, and for how long.

    `spec` describes a gateway; `limit_s` is how long a worker may be silent. A duet of a slow model
    may take `stretch_seconds` instead of the policy's `max_seconds`. `wording` names the settings
    in the reason why a case could not be measured.
    """

    engine: EngineModule = BUILT_IN[DEFAULT_ENGINE]
    options: Mapping[str, str] = field(default_factory=dict)
    spec: str = LOCAL
    policy: SamplingPolicy = field(default_factory=SamplingPolicy)
    limit_s: float = DEFAULT_LIMIT_S
    stretch_seconds: float | None = None
    wording: Wording = PLAIN


def worker_request(setup: Setup, cores: int, cgroup_files: Sequence[str] = ()) -> WorkerRequest:
    # An engine that imports modules of the user finds the same ones as this process.
    is_whole_path = setup.engine.runs_user_code and is_this_python(setup.spec)
    paths = _import_path(setup.engine)
    return WorkerRequest(
        spec=setup.spec,
        cores=cores,
        limit_s=setup.limit_s,
        cgroup_files=cgroup_files,
        paths=[str(path) for path in paths if is_whole_path or not _is_installed(path)],
        is_whole_path=is_whole_path,
    )


def _import_path(engine: EngineModule) -> Sequence[Path]:
    """Return the entries of `sys.path`, and the working folder for a function of the user."""
    here = [""] if engine.name == CALLABLE_ENGINE else []
    return list(dict.fromkeys(Path(entry).absolute() for entry in (*sys.path, *here)))


def _is_installed(path: Path) -> bool:
    """Whether a folder of modules belongs to the interpreter or to its packages.

    Another interpreter has its own packages, and must not take missing ones from here. Not every
    folder below the prefix belongs to it: the prefix of a system's Python is /usr, and a project
    may be in /usr/src.
    """
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    for prefix in (sys.prefix, sys.base_prefix):
        below = path.relative_to(prefix).parts if path.is_relative_to(prefix) else ()
        if below and (below[0].lower() in _LIBRARIES or path.suffix == ".zip"):
            return True
    return False
