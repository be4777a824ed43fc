"""Both tools on one model, in turn, each time in a fresh process, and what that says as ratios.

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

_PROFILE_ONCE = Path(__file__).with_name("profile_once.py")
_MAX_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Run:
    """One profile of one model in one fresh process; figures are None where it failed."""

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

    @property
    def call_growth_bytes(self) -> int | None:
        """How far the profile call drove the peak above that of the imports."""
        if self.peak_bytes is None or self.import_peak_bytes is None:
            return None
        return self.peak_bytes - self.import_peak_bytes

    @property
    def error_name(self) -> str:
        return (self.error or "").partition(":")[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs beside each other."""

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
        """None where a run of either tool failed, or ours needed nothing at all."""
        ratios = []
        for pair in self.pairs:
            ours, theirs = figure(pair.ours), figure(pair.theirs)
            if pair.ours.error or pair.theirs.error or not ours or theirs is None:
                return None
            ratios.append(theirs / ours)
        return Ratio(median(ratios), min(ratios), max(ratios))

    def medians(self, figure: Figure) -> tuple[float | None, float | None]:
        """Ours and theirs; None where a run failed."""
        return (
            _median([figure(pair.ours) for pair in self.pairs if not pair.ours.error]),
            _median([figure(pair.theirs) for pair in self.pairs if not pair.theirs.error]),
        )


def contest(model: str, path: Path, pairs: int, *flags: str) -> Contest:
    """That many pairs of runs; who goes first changes from pair to pair."""
    done = []
    for index in range(pairs):
        if index % 2 == 0:
            ours = run_once("ours", path, *flags)
            theirs = run_once("onnx_tool", path, *flags)
        else:
            theirs = run_once("onnx_tool", path, *flags)
            ours = run_once("ours", path, *flags)
        done.append(Pair(ours, theirs))
    return Contest(model, path.stat().st_size, tuple(done))


def run_once(tool: Tool, path: Path, *flags: str) -> Run:
    """One profile in a process of its own, and how long that process took from start to end."""
    command = [sys.executable, str(_PROFILE_ONCE), tool, str(path)]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, *flags],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAX_SECONDS,
        )
    except subprocess.TimeoutExpired:
        seconds = time.perf_counter() - started
        return Run(seconds, error=f"Timeout: it took more than {_MAX_SECONDS} s")
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        return Run(seconds, error=_death(done.returncode, done.stderr))
    report: dict[str, Any] = json.loads(done.stdout)
    return Run(seconds, **report)


def _death(returncode: int, stderr: str) -> str:
    if returncode < 0:
        return f"Killed: by signal {-returncode}; 9 is what happens when memory runs out"
    last = (stderr.strip().splitlines() or ["it said nothing"])[-1]
    return last if ":" in last else f"Exit {returncode}: {last}"


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
