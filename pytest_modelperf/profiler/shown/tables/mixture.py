"""The table of a workload: how long each member takes, and what one pass of all of them takes."""

from __future__ import annotations

from pytest_modelperf.profiler.records import MemberFigures, WorkloadFigures
from pytest_modelperf.profiler.shown.tables.measured import format_percentile
from pytest_modelperf.report.tables import Column, Table, drop_blank_columns, table_of
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, format_ms, percent

_NS_PER_MS = 1e6


def member_table(case: str, workload: WorkloadFigures) -> Table:
    """A row for each member, and the time of a pass as the total."""
    inferences = sum(member.weight for member in workload.members)
    total = "" if workload.total_ms is None else format_ms(workload.total_ms * _NS_PER_MS)
    macs = None if workload.mean_macs is None else format_count(round(workload.mean_macs))
    largest = [member.name for member in workload.members if member.is_largest]
    captions = [f"counts and layers are those of the largest, {printable(largest[0])}"]
    if macs is not None:
        captions.append("MACs of the pass: the mean of its inferences")
    return drop_blank_columns(
        table_of(
            f"workload of {printable(case)}",
            workload.members,
            (Column("member", is_name=True), lambda member: member.name),
            (Column("in a pass"), lambda member: str(member.weight)),
            (Column("p50 ms"), _median),
            (Column("of the time"), _share),
            (Column("MACs"), lambda m: "" if m.macs is None else format_count(m.macs)),
            total=("pass", str(inferences), total, "", macs or ""),
            caption="\n".join(captions),
        )
    )


def _median(member: MemberFigures) -> str:
    if member.p50 is None:
        return ""
    width = member.p50.half_width
    text = format_percentile(member.p50)
    return text if width is None else f"{text} ± {percent(width)}"


def _share(member: MemberFigures) -> str:
    return "" if member.share is None else f"{100 * member.share:.0f} %"
