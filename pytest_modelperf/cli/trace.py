"""`modelperf trace` traces a program, summarizes a trace or profile, or manages the hook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pytest_modelperf.cli.options import OutputOptions, is_given, split_program, takes_records
from pytest_modelperf.cli.output import show, write_report
from pytest_modelperf.cli.parameters import COMMAND_WORDING, GroupedCommand, HelpGroup, option_of
from pytest_modelperf.errors import ModelPerfError, UsageError
from pytest_modelperf.files.output import STDOUT, check_outputs, has_folder, written_text
from pytest_modelperf.text.escaping import printable, printable_lines
from pytest_modelperf.text.words import shell_path

if TYPE_CHECKING:
    from pytest_modelperf.tracing.files.opening import ProfileSource
    from pytest_modelperf.tracing.records import Event


class TotalsOptions(Struct, frozen=True):
    """How to group, sort and cut the operators, and which files to write.

    With a `top` of 0, all operators are shown.
    """

    by: str
    sort: str
    top: int
    chrome_file: str | None
    json_file: str | None
    csv_file: str | None
    markdown_file: str | None
    html_file: str | None

    def targets(self) -> dict[str, str | None]:
        """Return the files to write by their options."""
        return {
            "--chrome": self.chrome_file,
            "--json": self.json_file,
            "--csv": self.csv_file,
            "--markdown": self.markdown_file,
            "--html": self.html_file,
        }

    def outputs(self) -> OutputOptions:
        return OutputOptions(
            json_file=self.json_file,
            csv_file=self.csv_file,
            markdown_file=self.markdown_file,
            html_file=self.html_file,
        )


def _missing(file: str) -> UsageError:
    """Return the error for a missing trace. Its program may have been started untraced."""
    from pytest_modelperf.tracing.hook import explain_no_hook, own_site_folder

    hint = explain_no_hook(own_site_folder())
    error = UsageError(
        f"cannot read {printable(file)}: No such file or directory. To trace a program into it: "
        f"modelperf trace -o {shell_path(file)} -- python program.py"
    )
    error.details = () if hint is None else (f"{hint}.",)
    return error


def sum_up(file: str, options: TotalsOptions) -> None:
    """Show the totals of a file, and write the requested files.

    They are not shown if another result goes to standard output.
    """
    is_shown = check_outputs(options.targets(), file)

    from pytest_modelperf.tracing.files.opening import open_profile
    from pytest_modelperf.tracing.totals import Grouping, Order, TraceSummarizer

    if not Path(file).exists():
        raise _missing(file)
    page = None
    if options.html_file is not None:
        from pytest_modelperf.tracing.page_data import TracePage

        page = TracePage(Path(file).name)
    grouping = Grouping(options.by)
    source = open_profile(file)
    summarizer = TraceSummarizer(grouping)
    with _chrome_writer(options.chrome_file, source) as add_to_chrome:
        for event in source.events:
            summarizer.add(event)
            add_to_chrome(event)
            if page is not None:
                page.add(event)
    summaries = summarizer.finish(Order(options.sort))
    notes = (*source.notes(), *summarizer.notes())
    if not summaries:
        reasons = "; ".join(printable(note).rstrip(".") for note in notes)
        because = f" ({reasons})" if reasons else ""
        raise UsageError(
            f"{printable(file)}: no operator ran in it{because}. Give the profile of a session "
            "that ran an inference and was ended."
        )
    if grouping is Grouping.LAYER and not any(t.name for s in summaries for t in s.operators):
        raise UsageError(
            f"{printable(file)} does not show the layers of its operators. Measure the model: "
            "modelperf profile MODEL"
        )
    if not is_shown:
        for note in notes:
            click.echo(f"note: {printable(note)}", err=True)

    from pytest_modelperf.tracing.report import TraceView, trace_report
    from pytest_modelperf.tracing.totals import TraceTotals, dump_trace_totals

    report = trace_report(summaries, notes, TraceView(grouping, options.top or None), page)
    totals = TraceTotals(by=grouping, notes=tuple(notes), traces=tuple(summaries))
    document = partial(dump_trace_totals, totals)
    write_report(report, document, options.outputs(), is_shown=is_shown)


@contextmanager
def _chrome_writer(target: str | None, source: ProfileSource) -> Iterator[Callable[[Event], None]]:
    """Yield a function that adds an event to the Chrome trace. It does nothing without a target."""
    if target is None:
        yield lambda _: None
        return
    from pytest_modelperf.tracing.chrome_trace import TraceWriter

    with written_text(target) as stream:
        writer = TraceWriter(stream)
        yield writer.write
        notes = [printable(note) for note in source.notes()]
        writer.finish({"schema": 1, "of": source.about, "notes": notes})


# -- `modelperf trace`


DEFAULT_TOP = 20
DEFAULT_FILE = "trace.json"
# Same as the members of `totals.Grouping` and `Order`, without the import of statistics.
_GROUPINGS = ("operator", "type", "layer")
_ORDERS = ("total", "mean", "max", "calls", "name")
_HOOK_ACTIONS = ("install", "remove", "status")
_EXAMPLE = "`modelperf trace -- python program.py`"


class _TraceCommand(GroupedCommand):
    """A command that keeps the program after `--`, with its arguments, as the context's object."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.allow_extra_args = True
        left = super().parse_args(context, split_program(context, args))
        if left:
            raise UsageError(
                f"only one FILE can be summed up, and {printable(left[0])} follows it. "
                f"Give a program after two dashes: {_EXAMPLE}"
            )
        return left

    def collect_usage_pieces(self, _: click.Context) -> list[str]:
        return ["[OPTIONS]", "FILE | -- PROGRAM [ARGS]... | --hook ACTION"]


@click.command(
    cls=_TraceCommand, short_help="Trace a program, or sum up a trace or ONNX Runtime's profile."
)
@click.argument("file", type=click.Path(), required=False)
@click.option(
    "-o",
    "trace_file",
    metavar="F",
    help=f"The trace of a program, written when it ends.  [default: {DEFAULT_FILE}]",
)
@click.option(
    "--hook",
    "hook_action",
    type=click.Choice(_HOOK_ACTIONS),
    help="Make this environment's Python read MODELPERF_TRACE when it starts, undo that, or "
    "show whether it does.",
)
@click.option(
    "--by",
    type=click.Choice(_GROUPINGS),
    default="operator",
    show_default=True,
    help="Group the times by this. A profile that ONNX Runtime wrote itself has no layers.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--sort",
    type=click.Choice(_ORDERS),
    default="total",
    show_default=True,
    help="Order of the operators.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    default=DEFAULT_TOP,
    show_default=True,
    help="How many operators to show; 0 for all.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--chrome",
    "chrome_file",
    metavar="F",
    help="Write a trace for ui.perfetto.dev or chrome://tracing, with self times; - for stdout.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--json",
    "json_file",
    metavar="F",
    help="Write all totals as JSON; - for stdout.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--csv",
    "csv_file",
    metavar="F",
    help="Write the operators as CSV; - for stdout.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--markdown",
    "markdown_file",
    metavar="F",
    help="Write the totals in Markdown; - for stdout.",
)
@click.option(
    "--html",
    "html_file",
    metavar="F",
    help="Write a page with the totals and a timeline of all spans; - for stdout.",
)
@takes_records(options=TotalsOptions)
@click.pass_context
def trace(
    context: click.Context,
    *,
    file: str | None,
    trace_file: str | None,
    hook_action: str | None,
    options: TotalsOptions,
) -> None:
    """Trace a PROGRAM and its child processes, or sum up FILE.

    PROGRAM runs unchanged, with nothing installed. Its exit code is passed on. -o names the trace;
    other processes write theirs next to it. An option for totals sums up the trace when the program
    has ended. A Python that is started with -I, -E or -S is not traced.

    FILE is a recorded trace, a profile of ONNX Runtime (end_profiling() names it), or what
    `modelperf profile --json` stored.

    The hook is for MODELPERF_TRACE=trace.json in front of a program, without this command.

    \b
    modelperf trace -- python program.py
    modelperf trace -o program.json --by layer --top 5 -- python program.py --steps 3
    modelperf trace program.json --by type --sort mean --top 0
    modelperf trace onnxruntime_profile__2026-01-31_12-00-00.json --chrome trace.json
    modelperf trace program.json --html trace.html
    modelperf trace --hook install
    """  # noqa: D301  # click: keep the lines of the paragraph
    program: tuple[str, ...] | None = context.obj
    if [file, program, hook_action].count(None) != 2:
        raise UsageError(
            "give either a FILE to sum up, a program to trace, or --hook. Give a program after two "
            f"dashes: {_EXAMPLE}"
        )
    if program is None and trace_file is not None:
        raise UsageError(f"-o names the trace of a program: {_EXAMPLE}")
    has_totals_option = any(map(is_given, TotalsOptions.__struct_fields__))
    if options.html_file is not None:
        from pytest_modelperf.report.html.render import check_html_extra

        check_html_extra("--html", needs_plotly=False)
    if hook_action is not None:
        if has_totals_option:
            raise UsageError("--hook takes no other option: leave the others out.")
        show(f"{_run_hook_action(hook_action)}\n")
        return
    if file is not None:
        if file.endswith(".py"):
            raise UsageError(
                f"{printable(file)} is a program, not a trace. Give a program after two dashes: "
                f"modelperf trace -- python {shell_path(file)}"
            )
        sum_up(file, options)
    elif program is not None:
        target = DEFAULT_FILE if trace_file is None else trace_file
        check_outputs({"-o": None if target == STDOUT else target, **options.targets()})
        context.exit(_trace_program(program, target, options if has_totals_option else None))


def _trace_program(program: Sequence[str], file: str, options: TotalsOptions | None) -> int:
    """Trace a program, and return its exit code. With `options`, its trace is summarized."""
    if not program:
        raise UsageError(f"there is no program after --: give one, as in {_EXAMPLE}")

    from pytest_modelperf.tracing.launch import describe_traces, explain_no_trace, run_traced

    launch = run_traced(program, file)
    if not launch.traces:
        if has_folder(file):
            _say(explain_no_trace(launch))
        return launch.exit_code
    _say(describe_traces(launch.traces, file))
    if options is None:
        return launch.exit_code
    if launch.traces[0] != Path(file).absolute():
        _say(
            f"no totals were made: they need {file}, which no process wrote. "
            "Type the command above with the options for totals."
        )
        return launch.exit_code
    try:
        sum_up(file, options)
    except ModelPerfError as error:
        # The exit code stays that of the program.
        _say(error.worded(COMMAND_WORDING))
    return launch.exit_code


def _run_hook_action(action: str) -> str:
    """Run the action of --hook in this Python's environment, and return a line with the result."""
    from pytest_modelperf.tracing.hook import (
        describe_hook,
        find_hook,
        install_hook,
        own_site_folder,
        remove_hook,
    )

    folder = own_site_folder()
    if action == "install":
        return describe_hook(install_hook(folder))
    if action == "remove":
        return "the hook is removed" if remove_hook(folder) else "there was no hook to remove"
    return describe_hook(find_hook(folder))


def _say(text: str) -> None:
    """Write to standard error, because standard output belongs to the traced program."""
    click.echo(f"modelperf trace: {printable_lines(text)}", err=True)
