"""`modelperf trace`: what a file of what ran says in total, and as a Chrome trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.output import terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs, written_text
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from pytest_modelperf.tracing.files.opening import ProfileSource
    from pytest_modelperf.tracing.records import Event

DEFAULT_TOP = 20
# As the members of `trace_totals.Grouping` and `Order`, without the import of statistics.
_GROUPINGS = ("operator", "type", "layer")
_ORDERS = ("total", "mean", "max", "calls", "name")


@click.command(short_help="Sum up a trace, or a profile that ONNX Runtime wrote.")
@click.argument("file", type=click.Path())
@click.option(
    "--by",
    type=click.Choice(_GROUPINGS),
    default="operator",
    show_default=True,
    help="What times are added up by. Layers are known where the model was.",
)
@click.option(
    "--sort",
    type=click.Choice(_ORDERS),
    default="total",
    show_default=True,
    help="Order of the operators.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    default=DEFAULT_TOP,
    show_default=True,
    help="How many operators to show; 0 for all.",
)
@click.option(
    "--chrome",
    "chrome_file",
    metavar="F",
    help="Write a trace for ui.perfetto.dev or chrome://tracing, with self times; - for stdout.",
)
@click.option("--json", "json_file", metavar="F", help="Write all totals as JSON; - for stdout.")
@click.option("--csv", "csv_file", metavar="F", help="Write the operators as CSV; - for stdout.")
def trace(  # noqa: PLR0913  # one parameter per option
    *,
    file: str,
    by: str,
    sort: str,
    top: int,
    chrome_file: str | None,
    json_file: str | None,
    csv_file: str | None,
) -> None:
    """Sum up FILE: a profile of ONNX Runtime, a recorded trace, or a stored profile.

    ONNX Runtime's is what end_profiling() names; MODELPERF_TRACE and pytest_modelperf.profile
    record a trace; `modelperf profile --json` stores a profile.

    \b
    modelperf trace onnxruntime_profile__2026-01-31_12-00-00.json
    modelperf trace program.json --by type --sort mean --top 0
    modelperf trace profile.json --chrome trace.json --csv operators.csv
    """  # noqa: D301  # click: keep the lines of the paragraph
    targets = {"--chrome": chrome_file, "--json": json_file, "--csv": csv_file}
    is_shown = check_outputs(targets, file)

    from pytest_modelperf.tracing.files.opening import open_profile
    from pytest_modelperf.tracing.summary import TraceSummarizer
    from pytest_modelperf.tracing.totals import Grouping, Order

    source = open_profile(file)
    summarizer = TraceSummarizer(Grouping(by))
    with _chrome_writer(chrome_file, source) as add_to_chrome:
        for event in source.events:
            summarizer.add(event)
            add_to_chrome(event)
    summaries = summarizer.finish(Order(sort))
    notes = source.notes()
    if not summaries:
        told = "; ".join(printable(note).rstrip(".") for note in notes)
        because = f" ({told})" if told else ""
        raise UsageError(
            f"{printable(file)}: nothing ran in it{because}. Give the profile of a session that "
            "made an inference, and was ended."
        )
    if by == Grouping.LAYER.value and not any(t.name for s in summaries for t in s.operators):
        raise UsageError(
            f"{printable(file)} does not tell which layers its operators are. Measure the model: "
            "modelperf profile MODEL"
        )
    if is_shown:
        from pytest_modelperf.tracing.text import TraceView, render_trace

        view = TraceView(Grouping(by), top or None)
        click.echo(render_trace(summaries, notes, view, terminal_style()), nl=False)
    else:
        for note in notes:
            click.echo(f"note: {printable(note)}", err=True)
    if json_file is not None:
        from pytest_modelperf.tracing.document import dump_trace_summary

        write(json_file, dump_trace_summary(summaries, notes, Grouping(by)))
    if csv_file is not None:
        from pytest_modelperf.tracing.csv import render_trace_csv

        write(csv_file, render_trace_csv(summaries))


@contextmanager
def _chrome_writer(target: str | None, source: ProfileSource) -> Iterator[Callable[[Event], None]]:
    """What adds an event to the trace that is written there, which is whole at the end."""
    if target is None:
        yield lambda _: None
        return
    from pytest_modelperf.tracing.chrome_trace import TraceWriter

    with written_text(target) as stream:
        writer = TraceWriter(stream)
        yield writer.write
        notes = [printable(note) for note in source.notes()]
        writer.finish({"schema": 1, "of": source.about, "notes": notes})
