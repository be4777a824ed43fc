"""The place of a cluster as a user writes it: an address, a scheduler file, or `local:4`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import require_file
from pytest_modelperf.text.escaping import printable

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://[^\s/]+")
_ENCRYPTED = ("tls://", "wss://")
_BARE_ADDRESS = re.compile(r"[\w.-]+:[0-9]{1,5}")


class ClusterPlace(Struct, frozen=True):
    """An address, a scheduler file, or a number of local workers. Exactly one is not None."""

    address: str | None = None
    scheduler_file: Path | None = None
    local_workers: int | None = None


class _SchedulerFile(Struct, frozen=True):
    address: str


def is_local(text: str) -> bool:
    """Whether the cluster is a number of workers on this machine, as in `local:4`."""
    return _LOCAL.fullmatch(text) is not None


def parse_place(text: str, *, may_be_local: bool = True) -> ClusterPlace:
    """Parse the place of a cluster, or raise UsageError if it is invalid or the file is missing.

    The error suggests local workers only if the place `may_be_local`.
    """
    local = _LOCAL.fullmatch(text)
    if local is not None and int(local[1]) > 0:
        return ClusterPlace(local_workers=int(local[1]))
    if _ADDRESS.fullmatch(text):
        return ClusterPlace(address=text)
    if Path(text).is_file():
        return ClusterPlace(scheduler_file=Path(text))
    shown = printable(text)
    if local is None and _BARE_ADDRESS.fullmatch(text):
        raise UsageError(
            f"{shown} does not say how to reach the scheduler: type tcp://{shown}, or "
            f"tls://{shown} if it uses TLS."
        )
    workers = ", or local:4 for four workers on this machine" if may_be_local else ""
    raise UsageError(
        f"there is no cluster {shown!r}. Give the address of a Dask scheduler, as in "
        "tcp://host:8786 or tls://host:8786, or the path of a scheduler file that is there"
        f"{workers}."
    )


def scheduler_address(place: ClusterPlace) -> str:
    """Return the address that was typed or that a scheduler file has, or raise UsageError."""
    if place.address is not None:
        return place.address
    if place.scheduler_file is None:
        raise UsageError(
            f"local:{place.local_workers} starts its own workers: give the address of a scheduler."
        )
    try:
        require_file(place.scheduler_file)
        content = place.scheduler_file.read_bytes()
        return msgspec.json.decode(content, type=_SchedulerFile).address
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{printable(str(place.scheduler_file))} names no scheduler: {printable(str(error))}. "
            "Start one with `dask scheduler --scheduler-file FILE`."
        ) from error


def is_encrypted(address: str) -> bool:
    """Whether connections to this address need a certificate, as with `tls://`."""
    return address.startswith(_ENCRYPTED)


def check_cluster_extra(option: str) -> None:
    """Raise UsageError if `distributed` is not installed. `option` is the setting that needs it."""
    if find_spec("distributed") is None:
        raise UsageError(f"{option} needs distributed: pip install 'pytest-modelperf[cluster]'")
