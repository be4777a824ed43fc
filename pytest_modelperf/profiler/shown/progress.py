"""One line on where the measuring stands, for a display that is rewritten in place."""

from __future__ import annotations

from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.text.cutting import cut_end
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_ms, percent
from pytest_modelperf.text.words import display_width


def progress_line(progress: Progress, width: int) -> str:
    """Case, step, round, the estimate so far and the time left, in at most `width` columns.

    If not all of it fits, first the step is left out, then the estimate, then the time left.
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
    # So few rounds give no estimate.
    interval = "" if width is None or width > 1 else f" ± {percent(width)}"
    return f"{format_ms(progress.estimate_ns)} ms{interval}"


def _time_left(progress: Progress) -> str:
    """The longest time left: a case may be decided sooner."""
    if progress.seconds_left is None:
        return ""
    minutes, seconds = divmod(max(0, round(progress.seconds_left)), 60)
    return f"at most {f'{minutes} min ' if minutes else ''}{seconds} s left"
