"""Both tools on one model, in turn, each time in a fresh process, and the ratios of their figures.

Two neighbouring runs share what else the machine was doing, so the ratio is taken within each
pair, and the median of the pairs is given with the least and the largest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

Tool: TypeAlias = Literal["ours", "onnx_tool"]
TOOLS: tuple[Tool, ...] = ("ours", "onnx_tool")

_PROFILE_ONCE = Path(__file__).with_name("profile_once.py")


@dataclass(frozen=True, slots=True)
class Run:
    """One profile of one model in one fresh process; figures are None if it failed."""

    process_seconds: float
    import_seconds: float | None = None
    call_seconds: float | None = None
    import_peak_bytes: int | None = None
    peak_bytes: int | None = None
    macs: int | None = None
    total_ops: int | None = None
    params: int | None = None
    sparsity: str | None = None
    error: str | None = None

    def growth_bytes(self) -> int | None:
        """How far the profile call drove the peak above that of the imports."""
        if self.peak_bytes is None or self.import_peak_bytes is None:
            return None
        return self.peak_bytes - self.import_peak_bytes

    @property
    def error_name(self) -> str:
        return (self.error or "").partition(":")[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, one after the other."""

    ours: Run
    theirs: Run


@dataclass(frozen=True, slots=True)
class Ratio:
    """Theirs divided by ours over several pairs: above 1, ours needs less."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 2 if self.median < 10 else 1
        if self.low == self.high:
            return f"{self.median:.{digits}f}x"
        return f"{self.median:.{digits}f}x ({self.low:.{digits}f} to {self.high:.{digits}f})"


Figure: TypeAlias = Callable[[Run], "float | None"]


@dataclass(frozen=True, slots=True)
class Contest:
    """All pairs of runs on one model."""

    model: str
    size_bytes: int
    pairs: tuple[Pair, ...]

    def ratio(self, figure: Figure) -> Ratio | None:
        """None if a run of either tool failed, or ours needed nothing at all."""
        ratios = []
        for pair in self.pairs:
            ours, theirs = figure(pair.ours), figure(pair.theirs)
            if pair.ours.error or pair.theirs.error or not ours or theirs is None:
                return None
            ratios.append(theirs / ours)
        return Ratio(median(ratios), min(ratios), max(ratios))


def contest(model: str, path: Path, pairs: int, *flags: str) -> Contest:
    """That many pairs of runs; who goes first changes from pair to pair."""
    done = []
    for index in range(pairs):
        order = TOOLS if index % 2 == 0 else TOOLS[::-1]
        found = {tool: run_once(tool, path, *flags) for tool in order}
        done.append(Pair(*(found[tool] for tool in TOOLS)))
    return Contest(model, path.stat().st_size, tuple(done))


def run_once(tool: Tool, path: Path, *flags: str) -> Run:
    """One profile in a process of its own, and how long that process took from start to end."""
    command = [sys.executable, str(_PROFILE_ONCE), tool, str(path), *flags]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return Run(seconds, error=f"Exit {done.returncode}: {last}")
    report: dict[str, Any] = json.loads(done.stdout)
    return Run(seconds, **report)
