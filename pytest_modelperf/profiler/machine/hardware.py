"""The record of a machine, and its parts that are read without a worker.

The hardware and its virtualization are read from /proc and /sys on Linux, and by sysctl on macOS.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.files.documents import Count, Number
from pytest_modelperf.report.codec import JsonObject
from pytest_modelperf.text.escaping import printable

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


# -- facts in the files of a system


# Instruction sets that inference engines have kernels for, from common to rare. Names are from
# Linux's /proc/cpuinfo, except for the better known ones in `_SYNONYMS`.
INSTRUCTION_SETS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("neon", "asimd", "dotprod", "i8mm", "bf16", "sve", "sve2"),
)
# 64-bit and 32-bit Arm (arch/arm64/kernel/cpuinfo.c and arch/arm/kernel/setup.c in Linux).
_SYNONYMS = {"asimddp": "dotprod", "asimdbf16": "bf16"}


def select_instruction_sets(flags: Collection[str]) -> tuple[str, ...]:
    """Return those of `INSTRUCTION_SETS` that are among a processor's flags, in that order."""
    present = {_SYNONYMS.get(flag, flag) for flag in flags}
    return tuple(name for name in INSTRUCTION_SETS if name in present)


# Linux itself is built for at most 8192 processors on x86, and for fewer elsewhere.
MAX_PROCESSORS = 8192
# A kernel counts in 64 bits; longer numbers would not fit a float.
_NATURAL = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MAX_NAME = 120


def read_text(path: Path, limit_bytes: int = 1 << 20) -> str | None:
    """Return the content of a file, up to a limit, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):  # a path from another file may hold a null character
        return None


def read_line(path: Path) -> str | None:
    """Return the first line of a file without the spaces around it, or None if it is empty."""
    text = read_text(path, 1 << 12)
    return None if text is None else text.partition("\n")[0].strip() or None


def exists(path: Path) -> bool:
    """Whether a file exists. False if that cannot be determined."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_natural(text: str | None) -> int | None:
    """Return a number that has only decimal digits, or None."""
    text = (text or "").strip()
    return int(text) if _NATURAL.fullmatch(text) else None


def parse_processors(text: str | None) -> frozenset[int]:
    """Return the processors of a list such as `0-3,8`. Empty if any part is malformed."""
    processors: set[int] = set()
    for part in (text or "").strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return frozenset()
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if not first <= last < MAX_PROCESSORS:
            return frozenset()
        processors.update(range(first, last + 1))
    return frozenset(processors)


def readable(text: str | None) -> str | None:
    """Return a name in one short line that is safe to print, or None if no text is left."""
    words = " ".join((text or "")[: 4 * _MAX_NAME].split())
    return printable(words)[:_MAX_NAME].strip() or None


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
    """Return `container`, `virtual machine`, one in the other, or None without signs of either."""
    found = [CONTAINER] if _is_container(root) else []
    if _is_virtual(root, flags):
        found.append(VIRTUAL_MACHINE)
    return " in a ".join(found) or None


def _is_virtual(root: Path, flags: Collection[str] | None) -> bool:
    # On x86 a flag decides: the machine's name would also match the bare metal of a cloud.
    if flags is not None and "fpu" in flags:
        return "hypervisor" in flags
    dmi = root / "sys/devices/virtual/dmi/id"
    name = " ".join(read_line(dmi / part) or "" for part in ("sys_vendor", "product_name"))
    return _METAL not in name and _VIRTUAL.search(name) is not None


def _is_container(root: Path) -> bool:
    if any(exists(root / file) for file in _CONTAINER_FILES):
        return True
    return _CONTAINER_GROUP.search(read_text(root / "proc/self/cgroup") or "") is not None


# A paragraph of /proc/cpuinfo. On x86 each describes one processor; elsewhere some describe all.
Paragraph: TypeAlias = Mapping[str, str]

_CPU = "sys/devices/system/cpu"
# The field with the name of a processor: on x86 and Arm, POWER, MIPS, old 32-bit Arm, and RISC-V.
_LINUX_NAMES = ("model name", "cpu", "cpu model", "Processor", "uarch")
_FLAGS = ("flags", "Features")
_NUMBERS = ("processor", "physical id", "core id", "CPU implementer", "CPU part")
_KEYS = frozenset((*_LINUX_NAMES, *_FLAGS, *_NUMBERS))
# About 2 KB per processor.
_MAX_CPUINFO_BYTES = 8 << 20
_CACHE_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}
_LINUX_CACHES = ("L1d", "L1i", "L2", "L3")
_CACHE_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MEMORY = re.compile(r"^MemTotal:[ \t]*([0-9]{1,15})[ \t]*kB", re.MULTILINE)


def read_linux(root: Path) -> MachineFacts:
    """Return the hardware facts of /proc and /sys below `root`."""
    cpuinfo = _read_cpuinfo(root)
    online = online_processors(root) or _numbered(cpuinfo)
    flags = _common_flags(cpuinfo)
    return MachineFacts(
        cpu=_cpu_name(cpuinfo),
        instruction_sets=None if flags is None else select_instruction_sets(flags),
        physical_cores=_physical_cores(root, online, cpuinfo),
        logical_cores=len(online) or None,
        caches=_caches(root, min(online, default=0)),
        memory_bytes=_memory_bytes(root),
        governor=_governor(root, online),
        turbo=_turbo(root),
        virtualization=find_virtualization(root, flags),
    )


def online_processors(root: Path) -> frozenset[int]:
    """Return the numbers of the processors that are online. Empty if Linux does not list them."""
    return parse_processors(read_line(root / _CPU / "online"))


def _read_cpuinfo(root: Path) -> tuple[Paragraph, ...]:
    paragraphs: list[Paragraph] = []
    current: dict[str, str] = {}
    for line in (read_text(root / "proc/cpuinfo", _MAX_CPUINFO_BYTES) or "").split("\n"):
        key, colon, value = line.partition(":")
        if not colon and not key.strip():
            current = {}
        key = key.strip()
        if colon and key in _KEYS:
            if not current:
                if len(paragraphs) == MAX_PROCESSORS:
                    break
                paragraphs.append(current)
            current[key] = value.strip()
    return tuple(paragraphs)


def _cpu_name(cpuinfo: Sequence[Paragraph]) -> str | None:
    """Return the CPU's name, or on Arm the implementer and part numbers if Linux has none."""
    names = (paragraph.get(key) for key in _LINUX_NAMES for paragraph in cpuinfo)
    name = next((name for name in names if name), None)
    arm = [p for p in cpuinfo if "CPU implementer" in p and "CPU part" in p]
    parts = dict.fromkeys(f"implementer {p['CPU implementer']} part {p['CPU part']}" for p in arm)
    return readable(name or ", ".join(parts))


def _common_flags(cpuinfo: Sequence[Paragraph]) -> frozenset[str] | None:
    """Return the flags that all processors have, because a thread may run on any of them."""
    texts = {paragraph[key] for paragraph in cpuinfo for key in _FLAGS if key in paragraph}
    return frozenset.intersection(*(frozenset(t.split()) for t in texts)) if texts else None


def _numbered(cpuinfo: Sequence[Paragraph]) -> frozenset[int]:
    numbers = (parse_natural(paragraph.get("processor")) for paragraph in cpuinfo)
    return frozenset(n for n in numbers if n is not None and n < MAX_PROCESSORS)


def _physical_cores(
    root: Path, online: Collection[int], cpuinfo: Sequence[Paragraph]
) -> int | None:
    """Return the number of groups of sibling threads, or None if one is unknown."""
    topologies = [root / _CPU / f"cpu{number}" / "topology" for number in online]
    # The second is the older name of the first.
    siblings = {
        read_line(topology / "core_cpus_list") or read_line(topology / "thread_siblings_list")
        for topology in topologies
    }
    if siblings and None not in siblings:
        return len(siblings)
    processors = [paragraph for paragraph in cpuinfo if "processor" in paragraph]
    places = {(each.get("physical id"), each.get("core id")) for each in processors}
    return len(places) if places and not any(None in place for place in places) else None


def _caches(root: Path, processor: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for index in range(10):
        folder = root / _CPU / f"cpu{processor}" / "cache" / f"index{index}"
        kind = _CACHE_TYPES.get(read_line(folder / "type") or "")
        size = _CACHE_SIZE.fullmatch(read_line(folder / "size") or "")
        # A virtual machine may list a cache with the size 0.
        if kind is not None and size is not None and int(size[1]) > 0:
            level = read_line(folder / "level")
            sizes.setdefault(f"L{level}{kind}", int(size[1]) * _FACTORS[size[2]])
    return {name: sizes[name] for name in _LINUX_CACHES if name in sizes}


def _memory_bytes(root: Path) -> int | None:
    match = _MEMORY.search(read_text(root / "proc/meminfo") or "")
    return int(match[1]) * 1024 or None if match else None


def _governor(root: Path, online: Collection[int]) -> str | None:
    files = (root / _CPU / f"cpu{number}" / "cpufreq/scaling_governor" for number in online)
    names = {name for name in map(read_line, files) if name}
    return readable(", ".join(sorted(names)))


def _turbo(root: Path) -> bool | None:
    """Whether clocks may rise above the nominal one. The Intel driver has the opposite flag."""
    no_turbo = read_line(root / _CPU / "intel_pstate/no_turbo")
    boost = read_line(root / _CPU / "cpufreq/boost")
    return {"0": True, "1": False}.get(no_turbo or "", {"0": False, "1": True}.get(boost or ""))


# If there are two kinds of processors, names without a level describe the slower kind.
_MACOS_CACHES = {
    "L1d": ("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
    "L1i": ("hw.perflevel0.l1icachesize", "hw.l1icachesize"),
    "L2": ("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
    "L3": ("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
}
_INSTRUCTION_SETS = {
    "hw.optional.sse4_2": "sse4_2", "hw.optional.avx1_0": "avx", "hw.optional.avx2_0": "avx2",
    "hw.optional.fma": "fma", "hw.optional.f16c": "f16c", "hw.optional.avx512f": "avx512f",
    "hw.optional.neon": "neon", "hw.optional.AdvSIMD": "asimd", "hw.optional.arm.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}  # fmt: skip
_MACOS_NAMES = (
    "machdep.cpu.brand_string",
    "hw.physicalcpu",
    "hw.logicalcpu",
    "hw.memsize",
    "kern.hv_vmm_present",
    *(name for names in _MACOS_CACHES.values() for name in names),
    *_INSTRUCTION_SETS,
)


def read_sysctl() -> dict[str, str]:
    """Return the values of the names that are read here, without those that this machine lacks."""
    try:
        run = subprocess.run(  # noqa: S603  # a fixed program with fixed arguments
            ["/usr/sbin/sysctl", "-i", *_MACOS_NAMES], capture_output=True, check=False, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = run.stdout.decode("utf-8", "replace").split("\n")
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in _MACOS_NAMES}


def read_macos(sysctl: Mapping[str, str]) -> MachineFacts:
    known = [name for name in _INSTRUCTION_SETS if name in sysctl]
    present = {_INSTRUCTION_SETS[name] for name in known if sysctl[name] == "1"}
    return MachineFacts(
        cpu=readable(sysctl.get("machdep.cpu.brand_string")),
        instruction_sets=select_instruction_sets(present) if known else None,
        physical_cores=parse_natural(sysctl.get("hw.physicalcpu")) or None,
        logical_cores=parse_natural(sysctl.get("hw.logicalcpu")) or None,
        caches={
            cache: size
            for cache, (fast, plain) in _MACOS_CACHES.items()
            if (size := parse_natural(sysctl.get(fast)) or parse_natural(sysctl.get(plain)))
        },
        memory_bytes=parse_natural(sysctl.get("hw.memsize")) or None,
        virtualization=VIRTUAL_MACHINE if sysctl.get("kern.hv_vmm_present") == "1" else None,
    )
