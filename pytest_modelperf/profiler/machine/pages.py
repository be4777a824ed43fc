"""Whether large weights lie in huge pages of memory, and how to ask for these.

In small pages a session that reads all of its weights for little work, such as the step of a
decoder, runs faster or slower by where the system put them. docs/generating.md has the figures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_modelperf.profiler.machine.system_files import read_line

# Lets glibc ask for huge pages; a worker takes it over from its environment.
TUNABLE = "glibc.malloc.hugetlb"
REMEDY = f"GLIBC_TUNABLES={TUNABLE}=1"

_SETTING = Path("sys/kernel/mm/transparent_hugepage/enabled")
# Some huge pages; caches of processors hold less.
_LARGE_BYTES = 8 << 20
_OLDEST = (2, 35)
_VERSION = re.compile(r"glibc ([0-9]{1,4})\.([0-9]{1,4})")


def could_have_huge_pages(
    weight_bytes: int,
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
    libc: str | None = None,
) -> bool:
    """Whether weights are large, and the system would give them huge pages if glibc asked."""
    return (
        weight_bytes >= _LARGE_BYTES
        and "[madvise]" in (read_line(root / _SETTING) or "")
        and TUNABLE not in environment.get("GLIBC_TUNABLES", "")
        and _can_ask(_libc() if libc is None else libc)
    )


def _libc() -> str:
    """The C library and its version; empty for another one than glibc."""
    if not hasattr(os, "confstr"):
        return ""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _can_ask(libc: str) -> bool:
    found = _VERSION.fullmatch(libc)
    return found is not None and tuple(map(int, found.groups())) >= _OLDEST
