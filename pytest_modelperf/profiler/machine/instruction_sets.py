"""The instruction sets of processors, by the same names on every system."""

from __future__ import annotations

from collections.abc import Collection

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
    """Which of `INSTRUCTION_SETS` are among a processor's flags, in that order."""
    present = {_SYNONYMS.get(flag, flag) for flag in flags}
    return tuple(name for name in INSTRUCTION_SETS if name in present)
