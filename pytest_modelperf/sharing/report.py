"""A shared model as a report: whether it runs like the original, the evidence, the files."""

from __future__ import annotations

from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.shown.conditions import describe_engine, describe_machine_line
from pytest_modelperf.report.model import Line, Paragraph, Report, Rows, Tone, lines_of
from pytest_modelperf.sharing.making import files_of
from pytest_modelperf.sharing.readme import (
    describe_likeness,
    describe_method,
    describe_plan,
    describe_size,
    times_table,
)
from pytest_modelperf.sharing.records import Likeness, Share
from pytest_modelperf.text.units import format_bytes


def share_report(share: Share, target: str) -> Report:
    """Return the report. `target` is the path of the files."""
    likening = share.likening
    files = files_of(share)
    sizes = ", ".join(f"{name} {format_bytes(len(data))}" for name, data in files.items())
    weights = (
        f"The weights that its program draws take {format_bytes(share.weight_bytes)}. Read the "
        "files before you publish them."
    )
    return Report(
        title="A model without its weights",
        subject=describe_likeness(likening),
        tone=Tone.GOOD if likening.likeness is Likeness.SAME else Tone.UNSURE,
        opening=(Line(text=describe_plan(likening)),),
        blocks=(
            Rows(times_table(likening, describe_size(share), "median")),
            Paragraph(
                (
                    Line(text=describe_method(likening)),
                    Line(text=describe_machine_line(share.machine)),
                    Line(text=describe_engine(share.checkup.engine)),
                    Line(word="doctor", text=describe_checkup(share.checkup)),
                    *lines_of(share.doubts, "note"),
                )
            ),
            Paragraph((Line(text=f"{target}: {sizes}", is_bold=True), Line(text=weights))),
        ),
    )
