"""Where a cluster is, as a user writes it: an address, a scheduler file, or `local:4`."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://[^\s/]+")
_BARE_ADDRESS = re.compile(r"[\w.-]+:[0-9]{1,5}")


class Place(Struct, frozen=True):
    """One of the three is not None: an address, a scheduler file, or a number of local workers."""

    address: str | None = None
    scheduler_file: Path | None = None
    local_workers: int | None = None


def is_local(text: str) -> bool:
    """Whether it is workers on this machine, which are all of its kind."""
    return _LOCAL.fullmatch(text) is not None


def parse_place(text: str) -> Place:
    """UsageError where it is none of the three, or the file is not there."""
    local = _LOCAL.fullmatch(text)
    if local is not None and int(local[1]) > 0:
        return Place(local_workers=int(local[1]))
    if _ADDRESS.fullmatch(text):
        return Place(address=text)
    if Path(text).is_file():
        return Place(scheduler_file=Path(text))
    shown = printable(text)
    if local is None and _BARE_ADDRESS.fullmatch(text):
        raise UsageError(
            f"{shown} does not say how to reach the scheduler: type tcp://{shown}, or "
            f"tls://{shown} where it uses TLS."
        )
    raise UsageError(
        f"there is no cluster {shown!r}. Give the address of a Dask scheduler, as in "
        "tcp://host:8786 or tls://host:8786, the path of a scheduler file that is there, or "
        "local:4 for four workers on this machine."
    )
