"""The record of a machine, and the key under which measurements of its kind are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from pytest_modelperf.files.documents import Count, Number
from pytest_modelperf.report.codec import JsonObject

# The parts of a machine's key: lower case, and safe in file names.
_SYSTEM_NAMES = {"darwin": "macos"}
_UNSAFE = re.compile(r"[^a-z0-9_]+")
_MAX_KEY_PART = 40


class MachineFacts(Struct, frozen=True, kw_only=True):
    """A machine as this process sees it, with None for unknown facts.

    `physical_cores` and `logical_cores` count the machine's cores, `usable_cores` the cores that
    this process may use at once. `memory_limit_bytes` is only set if it is less than the memory.
    The size of a cache is for one such cache, as the first processor sees it, or on macOS one of
    the fastest. Unknown caches are left out.
    """

    cpu: str | None = None
    microarchitecture: str | None = None
    instruction_sets: tuple[str, ...] | None = None
    physical_cores: Count | None = None
    logical_cores: Count | None = None
    usable_cores: Count | None = None
    quota_cores: Number | None = None
    caches: Mapping[str, Count] = field(default_factory=dict)
    memory_bytes: Count | None = None
    memory_limit_bytes: Count | None = None
    governor: str | None = None
    turbo: bool | None = None
    virtualization: str | None = None
    system: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    architecture: str | None = None
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The kind of machine, such as `linux-x86_64-icelake-2c`, which is safe as a file name.

        It does not change with a reboot or another Python. If the microarchitecture is unknown, the
        processor's name replaces it.
        """
        system = (self.system or "").lower()
        name = _SYSTEM_NAMES.get(system, system)
        parts = [name, self.architecture or "", self.microarchitecture or self.cpu or ""]
        cores = [] if self.usable_cores is None else [f"{self.usable_cores}c"]
        return "-".join([*(_slug(part) or "unknown" for part in parts), *cores])


MACHINE = JsonObject(MachineFacts, "key? *?", about="A machine; null is an unknown fact.")


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text.lower()).strip("-")[:_MAX_KEY_PART].strip("-")
