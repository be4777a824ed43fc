"""The totals of a trace file: shown, and written as JSON, CSV, Markdown and a Chrome trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pytest_modelperf.cli.options import OutputOptions
from pytest_modelperf.cli.output import write_report
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs, written_text
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.quoting import shell_path

if TYPE_CHECKING:
    from pytest_modelperf.tracing.files.opening import ProfileSource
    from pytest_modelperf.tracing.records import Event


class TotalsOptions(Struct, frozen=True):
    """How to group, sort and cut the operators (`top` 0: show all), and which files to write."""

    by: str
    sort: str
    top: int
    chrome_file: str | None
    json_file: str | None
    csv_file: str | None
    markdown_file: str | None

    def targets(self) -> dict[str, str | None]:
        """The files to write by their options."""
        return {
            "--chrome": self.chrome_file,
            "--json": self.json_file,
            "--csv": self.csv_file,
            "--markdown": self.markdown_file,
        }

    def outputs(self) -> OutputOptions:
        return OutputOptions(
            json_file=self.json_file, csv_file=self.csv_file, markdown_file=self.markdown_file
        )


def _missing(file: str) -> UsageError:
    """The error for a trace that is not there: its program may have been started untraced."""
    from pytest_modelperf.tracing.hook import explain_no_hook, own_site_folder

    hint = explain_no_hook(own_site_folder())
    error = UsageError(
        f"cannot read {printable(file)}: No such file or directory. To trace a program into it: "
        f"modelperf trace -o {shell_path(file)} -- python program.py"
    )
    error.details = () if hint is None else (f"{hint}.",)
    return error


def sum_up(file: str, options: TotalsOptions) -> None:
    """Show the totals of a file unless another result goes to standard output; write the files."""
    is_shown = check_outputs(options.targets(), file)

    from pytest_modelperf.tracing.files.opening import open_profile
    from pytest_modelperf.tracing.totals import Grouping, Order, TraceSummarizer

    if not Path(file).exists():
        raise _missing(file)
    grouping = Grouping(options.by)
    source = open_profile(file)
    summarizer = TraceSummarizer(grouping)
    with _chrome_writer(options.chrome_file, source) as add_to_chrome:
        for event in source.events:
            summarizer.add(event)
            add_to_chrome(event)
    summaries = summarizer.finish(Order(options.sort))
    notes = (*source.notes(), *summarizer.notes())
    if not summaries:
        told = "; ".join(printable(note).rstrip(".") for note in notes)
        because = f" ({told})" if told else ""
        raise UsageError(
            f"{printable(file)}: nothing ran in it{because}. Give the profile of a session that "
            "made an inference, and was ended."
        )
    if grouping is Grouping.LAYER and not any(t.name for s in summaries for t in s.operators):
        raise UsageError(
            f"{printable(file)} does not tell which layers its operators are. Measure the model: "
            "modelperf profile MODEL"
        )
    if not is_shown:
        for note in notes:
            click.echo(f"note: {printable(note)}", err=True)

    from pytest_modelperf.tracing.report import TraceView, trace_report
    from pytest_modelperf.tracing.totals import TraceTotals, dump_trace_totals

    report = trace_report(summaries, notes, TraceView(grouping, options.top or None))
    totals = TraceTotals(by=grouping, notes=tuple(notes), traces=tuple(summaries))
    document = partial(dump_trace_totals, totals)
    write_report(report, document, options.outputs(), is_shown=is_shown)


@contextmanager
def _chrome_writer(target: str | None, source: ProfileSource) -> Iterator[Callable[[Event], None]]:
    """A function that adds an event to the Chrome trace; it does nothing without a target."""
    if target is None:
        yield lambda _: None
        return
    from pytest_modelperf.tracing.chrome_trace import TraceWriter

    with written_text(target) as stream:
        writer = TraceWriter(stream)
        yield writer.write
        notes = [printable(note) for note in source.notes()]
        writer.finish({"schema": 1, "of": source.about, "notes": notes})
