"""Whether this process runs in a container, a virtual machine, or both."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pytest_modelperf.profiler.machine.system_files import exists, read_line, read_text, readable

# The firmware's name of the machine, by maker and product, or the kernel's name of its clocks, and
# the hypervisor behind that name. The first that occurs counts: QEMU keeps its name if KVM runs it.
_SIGNS = (
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("Microsoft Corporation Virtual Machine", "hyperv"),
    ("Apple Virtualization", "apple"),
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("innotek GmbH", "virtualbox"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Xen", "xen"),
    ("Cloud Hypervisor", "cloud-hypervisor"),
    ("KubeVirt", "kvm"),
    ("OpenStack", "kvm"),
    ("KVM", "kvm"),
    ("kvm-clock", "kvm"),
    ("hyperv_clocksource", "hyperv"),
    ("QEMU", "qemu"),
)
# Parts of the path of a container's cgroup.
_CONTAINERS = (
    (re.compile(r"/kubepods\b"), "kubernetes"),
    (re.compile(r"/libpod-"), "podman"),
    (re.compile(r"/docker[/-]"), "docker"),
    (re.compile(r"/lxc[./]"), "lxc"),
)


def find_virtualization(root: Path, flags: Collection[str] | None) -> str | None:
    """A name such as `kvm`, `docker`, or `docker on kvm`; None if there is no sign of any.

    `flags` are the flags of an x86 or Arm processor. On x86 one of them marks a virtual machine;
    the machine's name alone would also fit the cloud's bare metal.
    """
    machine = _find_machine(root, flags)
    return " on ".join(name for name in (_find_container(root), machine) if name) or None


def _find_machine(root: Path, flags: Collection[str] | None) -> str | None:
    kernel = (read_line(root / "proc/sys/kernel/osrelease") or "").lower()
    if "microsoft" in kernel:
        return "wsl"
    hypervisor = readable(read_line(root / "sys/hypervisor/type"))
    if hypervisor:
        return hypervisor
    is_told = flags is not None and "hypervisor" in flags
    is_x86 = flags is not None and "fpu" in flags
    if is_x86 and not is_told:
        return None
    return _name_machine(root) or ("vm" if is_told else None)


def _name_machine(root: Path) -> str | None:
    # Firecracker has no DMI; it signs its ACPI table in the bytes for the maker (ACPI 5.2.6).
    table = read_text(root / "sys/firmware/acpi/tables/DSDT", 64)
    if table is not None and table[10:16] == "FIRECK":
        return "firecracker"
    dmi = root / "sys/devices/virtual/dmi/id"
    product = " ".join(read_line(dmi / name) or "" for name in ("sys_vendor", "product_name"))
    if ".metal" in product:
        return None
    clocks = root / "sys/devices/system/clocksource/clocksource0/available_clocksource"
    signs = f"{product} {read_line(clocks) or ''}"
    return next((name for sign, name in _SIGNS if sign in signs), None)


def _find_container(root: Path) -> str | None:
    # systemd's convention: whoever starts a container says what it is.
    told = readable(read_line(root / "run/systemd/container"))
    if told:
        return told
    path = read_text(root / "proc/self/cgroup") or ""
    by_path = next((name for pattern, name in _CONTAINERS if pattern.search(path)), None)
    if by_path:
        return by_path
    if exists(root / "run/.containerenv"):
        return "podman"
    return "docker" if exists(root / ".dockerenv") else None
