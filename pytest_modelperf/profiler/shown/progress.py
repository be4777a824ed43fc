"""Describe the progress of measuring in one line, for a display that is rewritten in place."""

from __future__ import annotations

from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_ms, percent
from pytest_modelperf.text.words import cut_end, display_width


def progress_line(progress: Progress, width: int) -> str:
    """Return the case, step, round, current estimate and time left, in at most `width` columns.

    If the line is too long, the step is left out first, then the estimate, then the time left.
    """
    start = f"[{progress.case_number}/{progress.cases}] {printable(progress.case_id)}"
    parts = [_step(progress), _estimate(progress), _time_left(progress)]
    for left_out in range(len(parts) + 1):
        line = "  ".join(part for part in (start, *parts[left_out:]) if part)
        if display_width(line) <= width:
            return line
    return cut_end(start, width) if width > 0 else ""


def _step(progress: Progress) -> str:
    step = printable(progress.step)
    return step if progress.round is None else f"{step}, round {progress.round}"


def _estimate(progress: Progress) -> str:
    if progress.estimate_ns is None:
        return ""
    width = progress.half_width
    # With an interval this wide there are too few rounds to show it.
    interval = "" if width is None or width > 1 else f" ± {percent(width)}"
    return f"{format_ms(progress.estimate_ns)} ms{interval}"


def _time_left(progress: Progress) -> str:
    """Return the longest time left. A case may be decided sooner."""
    if progress.seconds_left is None:
        return ""
    minutes, seconds = divmod(max(0, round(progress.seconds_left)), 60)
    return f"at most {f'{minutes} min ' if minutes else ''}{seconds} s left"
