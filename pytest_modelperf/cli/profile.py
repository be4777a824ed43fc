"""`modelperf profile` measures how long a model takes and what it costs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    OutputOptions,
    case_options,
    is_given,
    load_extensions,
    measuring_options,
    output_options,
    request_of,
    setup_of,
    svg_option,
    takes_records,
    top_option,
)
from pytest_modelperf.cli.output import show, shown_progress, write, write_report
from pytest_modelperf.cli.parameters import (
    GroupedCommand,
    HelpGroup,
    find_model,
    option_of,
    setting_option,
)
from pytest_modelperf.cli.profiles import KeepingOptions, profile_dir_option
from pytest_modelperf.cli.running import (
    ClusterOptions,
    cluster_options,
    environment_spec,
    requirement_option,
)
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import WORKLOAD
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.spec.run_definitions import MIN_SECONDS, STATIC_ONLY
from pytest_modelperf.text.escaping import indented_lines, printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.records import Profile
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.profiler.shown.tables.layers import LayerView
    from pytest_modelperf.roofline.records import Roofline

_NOT_MEASURED = 3


class LayerOptions(Struct, frozen=True):
    """Which layers to show, in which order, and with which columns."""

    sparsity: bool
    columns: str | None
    sort: str | None
    top: int

    def view(self, *, static: bool) -> LayerView:
        from pytest_modelperf.profiler.shown.tables.layers import LayerView

        order = self.sort or (("macs" if static else "ms") if self.top else None)
        return LayerView(self._column_names(static=static), order, self.top or None)

    def read_columns(self, *, static: bool) -> Sequence[str]:
        """Return the columns to show and to sort by.

        Raises UsageError if one needs a run of the model, which `static` rules out.
        """
        from pytest_modelperf.profiler.shown.tables.layer_columns import TIME_COLUMNS, find_columns

        names = [*self._column_names(static=static), *([self.sort] if self.sort else [])]
        find_columns(names)
        timed = [name for name in names if name in TIME_COLUMNS]
        if static and timed:
            raise UsageError(
                f"the column {timed[0]!r} needs a run of the model: leave --static out."
            )
        return names

    def _column_names(self, *, static: bool) -> tuple[str, ...]:
        from pytest_modelperf.profiler.shown.tables.layer_columns import (
            ALL_COLUMNS,
            DEFAULT_COLUMNS,
            LAYER_COLUMNS,
            MEASURED_COLUMNS,
            SPARSITY_COLUMNS,
        )

        if self.columns == "all":
            # Columns that do not fit are left out from the right, so the usual ones come first.
            first, known = (
                (DEFAULT_COLUMNS, LAYER_COLUMNS) if static else (MEASURED_COLUMNS, ALL_COLUMNS)
            )
            return tuple(dict.fromkeys((*first, *known)))
        if self.columns is not None:
            return tuple(name.strip() for name in self.columns.split(","))
        usual = DEFAULT_COLUMNS if static else MEASURED_COLUMNS
        return (*usual, *SPARSITY_COLUMNS) if self.sparsity else usual


class RooflineOptions(Struct, frozen=True):
    """Whether to show rooflines, and whether to measure the machine's peaks again for them."""

    roofline: bool
    measure_peaks: bool

    @property
    def is_shown(self) -> bool:
        return self.option is not None

    @property
    def option(self) -> str | None:
        """The option that requests rooflines, or None."""
        if self.measure_peaks:
            return "--measure-peaks"
        return "--roofline" if self.roofline else None


@click.command(cls=GroupedCommand, short_help="Measure what a model costs, in total and by layer.")
@click.argument("model", type=click.Path())
@setting_option(STATIC_ONLY)
@case_options
@setting_option(WORKLOAD)
@measuring_options(of_engine="`callable` runs a Python function.")
@setting_option(MIN_SECONDS)
@cluster_options
@click.option("--sparsity", is_flag=True, help="Read the weights and show how sparse they are.")
@click.option(
    "--roofline",
    is_flag=True,
    help="Show how near each layer is to what the machine's peaks allow. The peaks are measured "
    "once, in a few seconds, and kept.",
)
@click.option("--measure-peaks", is_flag=True, help="Like --roofline, but measure the peaks again.")
@option_of(
    HelpGroup.OUTPUT,
    "--columns",
    metavar="NAME[,NAME...]",
    help="Columns of the layer table, as in name,type,ms,macs%; 'all' for every one. The error "
    "for an unknown name lists them.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--sort",
    metavar="COLUMN",
    help="Column that sorts the layer table.  [default: ms (macs with --static), or graph order "
    "with --top 0]",
)
@top_option
@option_of(
    HelpGroup.OUTPUT,
    "-v",
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Show the percentiles, counts and layers of each of several cases. So does an option "
    "about layers or rooflines.",
)
@output_options(csv="the layers")
@svg_option
@option_of(
    HelpGroup.OUTPUT,
    "--node-data",
    "node_data_file",
    metavar="F",
    help="Write the figures of the nodes for Model Explorer, as its node data; - for stdout.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--annotated",
    "annotated_file",
    metavar="F",
    help="Write a copy of the model whose nodes carry their figures, which Netron shows.",
)
@option_of(
    HelpGroup.OUTPUT,
    "--trace",
    "trace_file",
    metavar="F",
    help="Write a trace for ui.perfetto.dev or chrome://tracing; - for stdout. Rounds have "
    "their real times; layers have measured durations, and follow one another.",
)
@click.option(
    "--name", metavar="NAME", help="Keep the profile under this name, for `modelperf profiles`."
)
@click.option("--replace", "replaces", is_flag=True, help="Replace the kept profile of that name.")
@profile_dir_option
@requirement_option("--requirement", "MODEL")
@takes_records(
    cases=CaseSpec,
    measuring=MeasuringSettings,
    place=ClusterOptions,
    rooflines=RooflineOptions,
    layers=LayerOptions,
    outputs=OutputOptions,
    keeping=KeepingOptions,
)
def profile(  # noqa: PLR0913  # one parameter per group of options
    *,
    model: str,
    static_only: bool,
    is_verbose: bool,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    place: ClusterOptions,
    rooflines: RooflineOptions,
    layers: LayerOptions,
    outputs: OutputOptions,
    keeping: KeepingOptions,
    requirement: tuple[str, ...],
) -> None:
    """Profile MODEL: how long it takes and what it costs, in total, by layer type, and by layer.

    MODEL is a path, a function that returns a model (package.module:function), or an address with
    the digest of its file (https://host/model.onnx#sha256=...). With --engine callable, it is a
    Python function that is measured itself.

    \b
    modelperf profile model.onnx --batch 1,8 --cores 1,2
    modelperf profile model.onnx --dim seq=64 --max-seconds 30 --json profile.json
    modelperf profile model.onnx --trace trace.json --html profile.html
    modelperf profile model.onnx --svg graph.svg --annotated for-netron.onnx
    modelperf profile model.onnx --roofline
    modelperf profile model.onnx --batch 1 --cores 4 --name baseline
    modelperf profile decoder.onnx --prompt 128 --generate 64
    modelperf profile model.onnx --engine openvino --engine-option device=CPU
    modelperf profile model.onnx --gateway popen//python=other-venv/bin/python
    modelperf profile model.onnx --requirement onnxruntime==1.22.0
    modelperf profile model.onnx --batch 1,8 --cluster tcp://scheduler:8786 --machine board
    modelperf profile model.onnx --static --batch 1,8 --dim seq=64 --top 0
    modelperf profile tools.export:encoder --batch 8
    modelperf profile model.onnx --static --columns name,type,ops,ops%,memory,params --sort memory
    """  # noqa: D301  # click: keep the lines of the paragraph
    from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE
    from pytest_modelperf.profiler.shown.tables.layer_columns import SPARSITY_COLUMNS

    is_shown = outputs.check(model, input_file=cases.input_file)
    if static_only:
        _check_static(outputs, cases, rooflines)
    if requirement:
        _check_requirement(place, static=static_only)
    columns = layers.read_columns(static=static_only)
    place.check(static=static_only, roofline=rooflines.option)
    kept = keeping.open(model, static=static_only)
    extensions = load_extensions(plugins)
    if static_only or measuring.engine != CALLABLE_ENGINE:
        model = find_model(model)
    request = replace(
        request_of(cases),
        sparsity=layers.sparsity or any(name in SPARSITY_COLUMNS for name in columns),
    )
    if static_only:
        from pytest_modelperf.profiler.request import profile_model

        found: Mapping[str, Roofline] = {}
        result = profile_model(model, request, extensions.operators)
    else:
        from pytest_modelperf.profiler.measured_cases import measure_function
        from pytest_modelperf.profiler.model_request import MeasureRequest, ModelRun

        setup = setup_of(measuring, extensions)
        setup = replace(setup, spec=environment_spec("--requirement", requirement) or setup.spec)
        asked = MeasureRequest(ModelRun(model, setup), request)
        if place.is_given:
            result = place.run(asked, setup, plugins=plugins)
        elif setup.engine.name == CALLABLE_ENGINE:
            with shown_progress() as progress:
                result = measure_function(model, request, setup, progress)
        else:
            with shown_progress() as progress:
                result = asked.run(extensions, progress)
        found = _find_rooflines(result, setup, rooflines)
    view = layers.view(static=static_only)
    has_details = (
        is_verbose or rooflines.is_shown or any(map(is_given, LayerOptions.__struct_fields__))
    )
    _show_profile(model, result, found, view, outputs, is_shown=is_shown, has_details=has_details)
    if not static_only:
        if kept is not None:
            show(f"{kept.keep(result, found)}\n", err=not is_shown)
        _end_unless_measured(result, is_shown=is_shown)


def _check_static(outputs: OutputOptions, cases: CaseSpec, rooflines: RooflineOptions) -> None:
    """Raise UsageError for an option that needs a run of the model."""
    if outputs.trace_file is not None:
        raise UsageError("--trace needs a run of the model: leave out --static or --trace.")
    if cases.input_file is not None:
        raise UsageError(
            "--input-file needs a run of the model: leave out --static or --input-file."
        )
    if rooflines.is_shown:
        raise UsageError(
            f"a roofline needs a run of the model: leave out --static or {rooflines.option}."
        )


def _check_requirement(place: ClusterOptions, *, static: bool) -> None:
    """Raise UsageError for another option about where the model runs, or for --static."""
    for option, is_given_too in (
        ("--static", static),
        ("--gateway", is_given("gateway")),
        ("--cluster", place.is_given),
    ):
        if is_given_too:
            raise UsageError(
                f"--requirement runs the model in an environment on this machine: leave out "
                f"{option} or --requirement."
            )


def _find_rooflines(
    result: Profile, setup: Setup, options: RooflineOptions
) -> Mapping[str, Roofline]:
    """Return the rooflines by the ids of their cases, if wanted, and print the notes on them."""
    if not options.is_shown:
        return {}
    from pytest_modelperf.roofline.peaks import cache_folder, find_rooflines

    with shown_progress() as progress:
        found = find_rooflines(
            result, setup, cache_folder(), progress, measures_anew=options.measure_peaks
        )
    for note in found.notes:
        click.echo(printable(note), err=True)
    return found.by_case


def _show_profile(  # noqa: PLR0913  # the results, and the files for them
    model: str,
    result: Profile,
    rooflines: Mapping[str, Roofline],
    view: LayerView,
    outputs: OutputOptions,
    *,
    is_shown: bool,
    has_details: bool,
) -> None:
    from pytest_modelperf.profiler.shown.report import profile_report

    def document() -> str:
        from pytest_modelperf.profiler.request import on_this_machine
        from pytest_modelperf.profiler.shown.document import dump_profile
        from pytest_modelperf.roofline.records import rooflines_to_json

        known = result if result.machine is not None else on_this_machine(result)
        return dump_profile(known, rooflines_to_json(rooflines))

    additions = []
    if rooflines:
        from pytest_modelperf.roofline.report import roofline_additions

        additions.append(roofline_additions(rooflines, view.top))
    report = profile_report(result, view, dt.datetime.now(dt.timezone.utc), *additions)
    has_details |= len(result.cases) == 1
    write_report(report, document, outputs, is_shown=is_shown, has_details=has_details)
    if outputs.svg_file is not None:
        from pytest_modelperf.profiler.shown.page_data import render_profile_svg

        write(outputs.svg_file, render_profile_svg(result))
    if outputs.node_data_file is not None:
        from pytest_modelperf.profiler.shown.document import dump_node_data

        write(outputs.node_data_file, dump_node_data(result))
    if outputs.annotated_file is not None:
        from pytest_modelperf.graph.copies import write_annotated
        from pytest_modelperf.graph.model_file import open_model
        from pytest_modelperf.profiler.shown.document import node_notes

        notes = node_notes(result)
        write_annotated(open_model(model), notes, outputs.annotated_file)
    if outputs.trace_file is not None:
        from pytest_modelperf.tracing.chrome_trace import dump_trace

        write(outputs.trace_file, dump_trace(result))


def _end_unless_measured(result: Profile, *, is_shown: bool) -> None:
    """End with exit status 3 if a case failed, or if nothing was measured.

    The report says why. If no report is shown, this function does.
    """
    from pytest_modelperf.profiler.records import Outcome

    failed = [case for case in result.cases if case.outcome is Outcome.FAILED]
    if failed or all(case.measured is None for case in result.cases):
        for case in result.cases:
            if case.measured is None and not is_shown:
                title = f"{result.model.name} {case.case.id}"
                lines = indented_lines(f"{title}: {case.outcome.value}: {case.reason}")
                click.echo("\n".join(lines), err=True)
        raise SystemExit(_NOT_MEASURED)
