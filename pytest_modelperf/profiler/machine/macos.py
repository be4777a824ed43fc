"""The hardware as macOS describes it, by sysctl."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.machine.instruction_sets import select_instruction_sets
from pytest_modelperf.profiler.machine.system_files import parse_natural, readable
from pytest_modelperf.profiler.machine.virtualization import VIRTUAL_MACHINE

# If there are two kinds of processors, names without a level describe the slower kind.
_CACHES = {
    "L1d": ("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
    "L1i": ("hw.perflevel0.l1icachesize", "hw.l1icachesize"),
    "L2": ("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
    "L3": ("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
}
_INSTRUCTION_SETS = {
    "hw.optional.sse4_2": "sse4_2",
    "hw.optional.avx1_0": "avx",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.fma": "fma",
    "hw.optional.f16c": "f16c",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.neon": "neon",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}
_NAMES = (
    "machdep.cpu.brand_string",
    "hw.physicalcpu",
    "hw.logicalcpu",
    "hw.memsize",
    "kern.hv_vmm_present",
    *(name for names in _CACHES.values() for name in names),
    *_INSTRUCTION_SETS,
)


def read_sysctl() -> dict[str, str]:
    """The values of the names that are read here, without those that this machine lacks."""
    try:
        run = subprocess.run(  # noqa: S603  # a fixed program with fixed arguments
            ["/usr/sbin/sysctl", "-i", *_NAMES],
            capture_output=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = run.stdout.decode("utf-8", "replace").split("\n")
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in _NAMES}


def read_macos(sysctl: Mapping[str, str]) -> MachineFacts:
    """The hardware facts of these values."""
    told = [name for name in _INSTRUCTION_SETS if name in sysctl]
    present = {_INSTRUCTION_SETS[name] for name in told if sysctl[name] == "1"}
    return MachineFacts(
        cpu=readable(sysctl.get("machdep.cpu.brand_string")),
        instruction_sets=select_instruction_sets(present) if told else None,
        physical_cores=parse_natural(sysctl.get("hw.physicalcpu")) or None,
        logical_cores=parse_natural(sysctl.get("hw.logicalcpu")) or None,
        caches={
            cache: size
            for cache, (fast, plain) in _CACHES.items()
            if (size := parse_natural(sysctl.get(fast)) or parse_natural(sysctl.get(plain)))
        },
        memory_bytes=parse_natural(sysctl.get("hw.memsize")) or None,
        virtualization=VIRTUAL_MACHINE if sysctl.get("kern.hv_vmm_present") == "1" else None,
    )
