"""`modelperf tune` finds the session options that make a model faster on this machine.

A test can give click's context a function that tunes instead of `TuningRequest.run`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pytest_modelperf.cli.groups import GroupedCommand, HelpGroup, option_of
from pytest_modelperf.cli.options import (
    OutputOptions,
    case_options,
    load_extensions,
    measuring_options,
    model_setup,
    output_options,
    request_of,
    takes_records,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.settings import (
    parse_megabytes,
    parse_outputs,
    parse_threshold,
    parse_wanted,
)
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings

if TYPE_CHECKING:
    from pytest_modelperf.tuning.records import Tuning
    from pytest_modelperf.tuning.tuned import TuningTerms

_NOT_MEASURED = 3


class TuningOptions(Struct, frozen=True):
    """The options to try, and the limits that they must keep to be recommended."""

    wanted: tuple[str, ...]
    latency_ms: str | None
    memory: str | None
    tolerance: str | None

    def terms(self) -> TuningTerms:
        """Return the limits. Raises UsageError if a value cannot be read."""
        latency_ms = (
            None if self.latency_ms is None else parse_threshold("--latency-ms", self.latency_ms)
        )
        memory = None if self.memory is None else parse_megabytes("--memory", self.memory)

        from pytest_modelperf.tuning.records import TuningLimits
        from pytest_modelperf.tuning.tuned import OUTPUTS_TOLERANCE, TuningTerms

        allowed = OUTPUTS_TOLERANCE
        if self.tolerance is not None:
            allowed = parse_outputs("a tuning", self.tolerance)
        return TuningTerms(TuningLimits(latency_ms, memory), allowed)


@click.command(cls=GroupedCommand, short_help="Find the session options that make a model faster.")
@click.argument("model", type=click.Path())
@click.option(
    "--try",
    "wanted",
    multiple=True,
    metavar="KEY=VALUE[,VALUE...]",
    help="Try these values of an option of the engine instead of the usual options; repeatable.",
)
@click.option(
    "--latency-ms",
    metavar="MS",
    help="Recommend only what is shown to keep the median latency within this.",
)
@click.option(
    "--memory",
    metavar="MB",
    help="Recommend only what takes at most this memory: what loading the model and some "
    "inferences add to a process.",
)
@option_of(
    HelpGroup.MEASURING,
    "--tolerance",
    metavar="outputs=SHARE",
    help="How far outputs may differ, as a share of their largest value.  [default: outputs=0.001]",
)
@case_options
@measuring_options(
    seconds=120, of_seconds="the longest that the whole tuning may take, without the first loads"
)
@output_options(csv="the options that were tried")
@takes_records(
    named=TuningOptions, cases=CaseSpec, measuring=MeasuringSettings, outputs=OutputOptions
)
@click.pass_obj
def tune(  # noqa: PLR0913  # one parameter per group of options
    tune_with: Callable[..., Tuning] | None,
    *,
    model: str,
    named: TuningOptions,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    outputs: OutputOptions,
) -> None:
    """Find which options of a session make MODEL faster on this machine, and print the code.

    MODEL as it runs now, with the given --engine-option, is the baseline. Every other option takes
    turns with it: threads, graph optimizations, spinning, memory arena and pattern, execution mode,
    layout, denormals. What helps is tried together, and the best is confirmed on fresh rounds. An
    option is called better only if these rounds rule out that there is no gain, and if the outputs
    stay the same.

    \b
    modelperf tune model.onnx --cores 2
    modelperf tune model.onnx --engine-option graph_optimization_level=basic --max-seconds 300
    modelperf tune model.onnx --latency-ms 20 --memory 300 --html tune.html
    modelperf tune model.onnx --try session.intra_op.allow_spinning=0 --try enable_mem_pattern=0
    modelperf tune model.onnx --engine openvino --tolerance outputs=0.02
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = outputs.check(model, input_file=cases.input_file)
    wanted, terms = parse_wanted("--try", named.wanted), named.terms()
    extensions = load_extensions(plugins)
    request = request_of(cases)
    setup = model_setup(measuring, extensions, "a tuning")

    from pytest_modelperf.profiler.model_request import ModelRun
    from pytest_modelperf.tuning.request import TuningRequest

    asked = TuningRequest(ModelRun(model, setup), request, wanted, terms)
    with shown_progress() as progress:
        result = (tune_with or TuningRequest.run)(asked, extensions, progress)
    _show_tuning(result, outputs, is_shown=is_shown)
    _end_unless_measured(result, is_shown=is_shown)


def _show_tuning(result: Tuning, outputs: OutputOptions, *, is_shown: bool) -> None:
    from pytest_modelperf.tuning.pasted import dump_tuning
    from pytest_modelperf.tuning.report import tuning_report

    report = tuning_report(result, dt.datetime.now(dt.timezone.utc))
    write_report(report, partial(dump_tuning, result), outputs, is_shown=is_shown)


def _end_unless_measured(result: Tuning, *, is_shown: bool) -> None:
    """End with exit status 3 if not all was measured, and say why unless a report does."""
    if not result.has_failed:
        return
    if not is_shown:
        from pytest_modelperf.text.escaping import indented_lines
        from pytest_modelperf.tuning.report import describe_failure, refusals_of

        for case in result.cases:
            failures = [] if case.failure is None else [describe_failure(case)]
            for text in (*failures, *refusals_of(case)):
                click.echo("\n".join(indented_lines(text)), err=True)
    raise SystemExit(_NOT_MEASURED)
