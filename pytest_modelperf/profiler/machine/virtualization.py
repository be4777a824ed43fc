"""Whether this process runs in a container, a virtual machine, or both."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pytest_modelperf.profiler.machine.system_files import exists, read_line, read_text

CONTAINER = "container"
VIRTUAL_MACHINE = "virtual machine"

# The names that firmware gives to virtual machines; Arm has no flag for them.
_VIRTUAL = re.compile(
    "Virt|Hypervisor|VMware|QEMU|KVM|BHYVE|Xen|OpenStack|Amazon EC2|Google Compute Engine"
)
_METAL = ".metal"
# Parts of the path of a container's cgroup.
_CONTAINER_GROUP = re.compile(r"/(kubepods\b|libpod-|docker[/-]|lxc[./])")
_CONTAINER_FILES = ("run/systemd/container", "run/.containerenv", ".dockerenv")


def find_virtualization(root: Path, flags: Collection[str] | None) -> str | None:
    """`container`, `virtual machine`, or one in the other; None if there is no sign of any.

    `flags` are the flags of an x86 or Arm processor.
    """
    found = (
        CONTAINER if _is_container(root) else "",
        VIRTUAL_MACHINE if _is_virtual(root, flags) else "",
    )
    return " in a ".join(filter(None, found)) or None


def _is_virtual(root: Path, flags: Collection[str] | None) -> bool:
    """On x86 a flag decides: the machine's name would also fit the bare metal of a cloud."""
    if flags is not None and "fpu" in flags:
        return "hypervisor" in flags
    dmi = root / "sys/devices/virtual/dmi/id"
    name = " ".join(read_line(dmi / part) or "" for part in ("sys_vendor", "product_name"))
    return _METAL not in name and _VIRTUAL.search(name) is not None


def _is_container(root: Path) -> bool:
    if any(exists(root / file) for file in _CONTAINER_FILES):
        return True
    return _CONTAINER_GROUP.search(read_text(root / "proc/self/cgroup") or "") is not None
