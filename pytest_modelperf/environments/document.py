"""The note stored beside an environment, and the list of environments as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.environments.records import Kept, KeptEnvironment
from pytest_modelperf.files.documents import Positive
from pytest_modelperf.report.document import SCHEMA, copy_fields, dump_document


class StoredEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`environment.json` in the folder of an environment."""

    schema: Positive
    requirements: tuple[str, ...]
    requests: tuple[tuple[str, ...], ...]
    python_version: str
    installer: str
    made: dt.datetime
    packages: Mapping[str, str]


class EnvironmentJson(Struct, frozen=True, kw_only=True):
    """An environment with its exact requirements; its Python and packages are keys of their own."""

    folder: str
    python: str
    python_version: str
    requirements: tuple[str, ...]
    requests: tuple[tuple[str, ...], ...]
    packages: Mapping[str, str]
    installer: str
    made: dt.datetime
    used: dt.datetime
    nbytes: int | None = field(name="bytes")


class UnreadableJson(Struct, frozen=True, kw_only=True):
    """A folder whose environment cannot be read."""

    folder: str
    problem: str


class EnvironmentsJson(Struct, frozen=True, kw_only=True):
    """The kept environments, and those that were removed just now."""

    schema: int
    folder: str
    environments: tuple[EnvironmentJson, ...]
    unreadable: tuple[UnreadableJson, ...]
    removed: tuple[EnvironmentJson, ...]


def dump_environments(kept: Kept, removed: Kept | None = None) -> str:
    return dump_document(
        EnvironmentsJson(
            schema=SCHEMA,
            folder=str(kept.folder),
            environments=tuple(map(_to_json, kept.environments)),
            unreadable=tuple(
                copy_fields(UnreadableJson, each, folder=str(each.folder))
                for each in kept.unreadable
            ),
            removed=() if removed is None else tuple(map(_to_json, removed.environments)),
        )
    )


def _to_json(kept: KeptEnvironment) -> EnvironmentJson:
    return copy_fields(
        EnvironmentJson,
        kept,
        folder=str(kept.environment.folder),
        python=str(kept.environment.python),
        packages=kept.environment.packages,
    )
