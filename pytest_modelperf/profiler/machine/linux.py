"""The hardware as Linux describes it in /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.machine.instruction_sets import select_instruction_sets
from pytest_modelperf.profiler.machine.system_files import (
    MAX_PROCESSORS,
    parse_natural,
    parse_processors,
    read_line,
    read_text,
    readable,
)
from pytest_modelperf.profiler.machine.virtualization import find_virtualization

# A paragraph of /proc/cpuinfo. On x86 each describes one processor; elsewhere some describe all.
Paragraph: TypeAlias = Mapping[str, str]

_CPU = "sys/devices/system/cpu"
# The field with the name of a processor: on x86 and Arm, POWER, MIPS, old 32-bit Arm, and RISC-V.
_NAMES = ("model name", "cpu", "cpu model", "Processor", "uarch")
_FLAGS = ("flags", "Features")
_NUMBERS = ("processor", "physical id", "core id", "CPU implementer", "CPU part")
_KEYS = frozenset((*_NAMES, *_FLAGS, *_NUMBERS))
# About 2 KB a processor.
_MAX_CPUINFO_BYTES = 8 << 20
_CACHE_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}
_CACHES = ("L1d", "L1i", "L2", "L3")
_CACHE_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MEMORY = re.compile(r"^MemTotal:[ \t]*([0-9]{1,15})[ \t]*kB", re.MULTILINE)


def read_linux(root: Path) -> MachineFacts:
    """The hardware facts of /proc and /sys below `root`."""
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
    """The numbers of the processors that are online; empty if Linux does not tell."""
    return parse_processors(read_line(root / _CPU / "online"))


def _read_cpuinfo(root: Path) -> tuple[Paragraph, ...]:
    """The paragraphs, with the fields that are used here."""
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
    """The model; on Arm, where Linux knows none, the numbers of its maker and of each part."""
    names = (paragraph.get(key) for key in _NAMES for paragraph in cpuinfo)
    name = next((name for name in names if name), None)
    parts = dict.fromkeys(
        f"implementer {paragraph['CPU implementer']} part {paragraph['CPU part']}"
        for paragraph in cpuinfo
        if "CPU implementer" in paragraph and "CPU part" in paragraph
    )
    return readable(name or ", ".join(parts))


def _common_flags(cpuinfo: Sequence[Paragraph]) -> frozenset[str] | None:
    """The flags that all processors have, because a thread may run on any; None if unknown."""
    told = {paragraph[key] for paragraph in cpuinfo for key in _FLAGS if key in paragraph}
    return frozenset.intersection(*(frozenset(t.split()) for t in told)) if told else None


def _numbered(cpuinfo: Sequence[Paragraph]) -> frozenset[int]:
    numbers = (parse_natural(paragraph.get("processor")) for paragraph in cpuinfo)
    return frozenset(n for n in numbers if n is not None and n < MAX_PROCESSORS)


def _physical_cores(
    root: Path, online: Collection[int], cpuinfo: Sequence[Paragraph]
) -> int | None:
    """How many groups of sibling threads there are; None unless every processor's is known."""
    topologies = [root / _CPU / f"cpu{number}" / "topology" for number in online]
    # The second is the older name of the first.
    siblings = {
        read_line(topology / "core_cpus_list") or read_line(topology / "thread_siblings_list")
        for topology in topologies
    }
    if siblings and None not in siblings:
        return len(siblings)
    places = {
        (paragraph.get("physical id"), paragraph.get("core id"))
        for paragraph in cpuinfo
        if "processor" in paragraph
    }
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
    return {name: sizes[name] for name in _CACHES if name in sizes}


def _memory_bytes(root: Path) -> int | None:
    match = _MEMORY.search(read_text(root / "proc/meminfo") or "")
    return int(match[1]) * 1024 or None if match else None


def _governor(root: Path, online: Collection[int]) -> str | None:
    """The frequency governor; several names if processors differ."""
    files = (root / _CPU / f"cpu{number}" / "cpufreq/scaling_governor" for number in online)
    names = {name for name in map(read_line, files) if name}
    return readable(", ".join(sorted(names)))


def _turbo(root: Path) -> bool | None:
    """Whether clocks may rise above the nominal one; the Intel driver says so the other way."""
    no_turbo = read_line(root / _CPU / "intel_pstate/no_turbo")
    boost = read_line(root / _CPU / "cpufreq/boost")
    return {"0": True, "1": False}.get(no_turbo or "", {"0": False, "1": True}.get(boost or ""))
