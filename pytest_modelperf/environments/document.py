"""What is stored beside an environment, and the list of environments as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from msgspec import Struct

from pytest_modelperf.files.documents import Positive

STORED_SCHEMA = 1


class StoredEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`environment.json` in the folder of an environment."""

    schema: Positive
    requirements: tuple[str, ...]
    requests: tuple[tuple[str, ...], ...]
    python_version: str
    installer: str
    made: dt.datetime
    packages: Mapping[str, str]
