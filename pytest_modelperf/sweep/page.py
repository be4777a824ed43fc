"""A sweep as a page: the parts that need no JavaScript."""

from __future__ import annotations

import datetime as dt

from pytest_modelperf.comparing.page import comparison_overview
from pytest_modelperf.comparing.verdict_lines import FAILED
from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.shown.case_page import render_case_page
from pytest_modelperf.profiler.shown.model_names import name_models
from pytest_modelperf.profiler.shown.page import profile_overview
from pytest_modelperf.profiler.shown.page_facts import (
    ModelRow,
    models_table,
    run_table,
)
from pytest_modelperf.report.model import Block, Line, Report, Rows, Section, Tone
from pytest_modelperf.sweep.page_data import sweep_data
from pytest_modelperf.sweep.records import Sweep, SweepSide, find_competing
from pytest_modelperf.sweep.tables import (
    format_limit,
    labels_of,
    row_styles,
    scaling_table,
    whole_table,
)
from pytest_modelperf.sweep.text import unmeasured_lines as unmeasured_points
from pytest_modelperf.text.units import format_confidence, format_rate
from pytest_modelperf.text.words import list_names


def render_sweep_page(sweep: Sweep, wording: Wording, *, made: dt.datetime | None = None) -> str:
    return render_case_page(sweep_data(sweep), sweep_overview(sweep, wording, made))


def sweep_overview(sweep: Sweep, wording: Wording, made: dt.datetime | None = None) -> Report:
    sides = list(zip(labels_of(sweep), sweep.sides, strict=True))
    limit = "" if sweep.threshold_ms is None else format_limit(sweep.threshold_ms)
    rule = [
        ("threshold", limit),
        ("confidence", format_confidence(sweep.confidence)),
        ("passes", f"{sweep.passes} in {sweep.seconds:.1f} s" if sweep.passes else ""),
    ]
    measured = None if sweep.has_failed else whole_table(sweep)
    scaling = (scaling_table(side, label) for label, side in sides)
    styles = () if measured is None else row_styles(measured)
    tones = tuple(Tone.GOOD if style else Tone.PLAIN for style in styles)
    return Report(
        title=" → ".join(name_models([side.model for side in sweep.sides])),
        headline=FAILED if sweep.has_failed else "",
        tone=Tone.BAD if sweep.has_failed else Tone.PLAIN,
        opening=tuple(Line(text=_spot(label, side, limit)) for label, side in sides),
        blocks=(
            *([] if measured is None else [Rows(measured, tones)]),
            *(Rows(table) for table in scaling if table is not None),
            *_sections_at_best(sweep, wording),
        ),
        facts=(
            models_table(
                ModelRow(label, side.model, side.engine.label if side.engine else "")
                for label, side in sides
            ),
            run_table([sweep.machine], rule, made),
        ),
        closing=(
            *(Line(text=text) for text in unmeasured_points(sweep)),
            *(Line(word="note", text=note) for note in sweep.notes),
        ),
    )


def _sections_at_best(sweep: Sweep, wording: Wording) -> tuple[Block, ...]:
    if sweep.comparison is not None:
        blocks = comparison_overview(sweep.comparison, wording).blocks
    else:
        blocks = () if sweep.profile is None else profile_overview(sweep.profile).blocks
    return tuple(block for block in blocks if isinstance(block, Section))


def _spot(label: str, side: SweepSide, limit: str) -> str:
    """`A: best within 20 ms is b8-c2, 61.31 items/s; b4-c2 cannot be told from it`."""
    spot = side.spot
    within = f" within {limit}" if limit else ""
    if spot.best is not None:
        throughput = side.point(spot.best).throughput
        rate = format_rate(None if throughput is None else throughput.value)
        text = f"best{within} is {spot.best}, {rate} items/s"
    elif find_competing(side.points):
        text = f"no configuration is surely{within}"
    elif any(point.latency is not None for point in side.points):
        text = "no step could be measured"
    else:
        text = "no configuration could be measured"
    if spot.equals:
        text += f"; {list_names(spot.equals)} cannot be told from it"
    if spot.undecided:
        text += f"; {list_names(spot.undecided)} may be{within} or beyond"
    return f"{label}: {text}" if label else text
