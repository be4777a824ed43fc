"""An environment of Python packages, the records of those that are kept, and installed sizes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.text.words import count_of


class Environment(Struct, frozen=True):
    """A Python with some packages, for a worker to run in.

    `packages` has the version of each installed package by its normalized name.
    """

    python: Path
    packages: Mapping[str, str]
    folder: Path


class KeptEnvironment(Struct, frozen=True, kw_only=True):
    """An environment in the cache.

    `requirements` are the exact ones that name it. `requests` are the ranges that resolved to them.
    `nbytes` is None until it is added up (see `with_sizes`).
    """

    environment: Environment
    requirements: tuple[str, ...]
    requests: tuple[tuple[str, ...], ...]
    python_version: str
    installer: str
    made: dt.datetime
    used: dt.datetime
    nbytes: int | None = None


STORED_ENVIRONMENT = JsonDocument(
    KeptEnvironment,
    "requirements requests python_version installer made packages=environment.packages",
    about="`environment.json` in the folder of an environment.",
    forbids_unknown=True,
)
KEPT_ENVIRONMENT = JsonObject(
    KeptEnvironment,
    "folder=environment.folder python=environment.python python_version requirements requests"
    " packages=environment.packages installer made used bytes=nbytes",
    about="An environment with its exact requirements; its Python and packages are keys of their"
    " own.",
)


class Unreadable(Struct, frozen=True):
    """A folder in the cache whose environment cannot be read, and why."""

    folder: Path
    problem: str


class Kept(Struct, frozen=True):
    """The content of the cache of environments."""

    folder: Path
    environments: tuple[KeptEnvironment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class CacheContent(Struct, frozen=True):
    """The kept environments, and those that were removed just now."""

    kept: Kept
    removed: tuple[KeptEnvironment, ...] = ()


CACHE_CONTENT = JsonDocument(
    CacheContent,
    "folder=kept.folder environments=kept.environments unreadable=kept.unreadable removed",
    environments=KEPT_ENVIRONMENT,
    unreadable=JsonObject(Unreadable, "*"),
    removed=KEPT_ENVIRONMENT,
)


class InstalledSize(Struct, frozen=True):
    """The bytes of each distribution by its name, beginning with the one that has the budget."""

    sizes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def describe(self) -> str:
        """Describe the sizes: `magika and 12 requirements; onnxruntime takes 48.2 MB`."""
        name, *others = self.sizes
        if not others:
            return name
        largest = max(others, key=self.sizes.__getitem__)
        count = count_of(len(others), "requirement")
        return f"{name} and {count}; {largest} takes {self.sizes[largest] / 1e6:,.1f} MB"
