"""`modelperf sweep` measures one or two models at many configurations, and names the best.

A test can give click's context a function that measures instead of `SweepRequest.run`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    OutputOptions,
    generation_options,
    load_extensions,
    measuring_options,
    model_options,
    model_setup,
    output_options,
    request_of,
    size_options,
    takes_records,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.parameters import (
    COMMAND_WORDING,
    GroupedCommand,
    HelpGroup,
    option_of,
    parse_interpreter,
    parse_threshold,
    setting_option,
)
from pytest_modelperf.cli.running import (
    ClusterOptions,
    SecondEngine,
    cluster_options,
    engine_option_b,
    environment_spec,
    require_local_gateway,
    require_this_machine,
    requirement_option,
)
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import CORES, INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.text.escaping import indented_lines, printable

if TYPE_CHECKING:
    from pytest_modelperf.profiler.model_request import ModelRun
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.sweep.records import Sweep

_NOT_MEASURED = 3


class AgainstOptions(Struct, frozen=True):
    """The earlier version of the model, if any, and the Python that runs it."""

    against: str | None
    against_python: str | None

    def check(self) -> None:
        """Raise UsageError if a Python is given for an earlier version, but no such model."""
        if self.against is None and self.against_python is not None:
            raise UsageError(
                "--against-python is for the model of --against: give both, or neither."
            )

    def sides(self, model: str, setup: Setup, *, are_here: bool) -> tuple[ModelRun, ...]:
        """Return the models to sweep, with the earlier version first.

        On a cluster, the Python is one of the machine that measures.
        """
        from pytest_modelperf.profiler.model_request import ModelRun

        now = ModelRun(model, setup)
        if self.against is None:
            return (now,)
        spec = parse_interpreter("--against-python", self.against_python, is_here=are_here)
        return (ModelRun(self.against, replace(setup, spec=spec or setup.spec)), now)


class EnginesOptions(Struct, frozen=True):
    """The options of the second of two engines, and the packages that it runs with."""

    engine_option_b: tuple[str, ...]
    requirement_b: tuple[str, ...]

    def divide(
        self, measuring: MeasuringSettings, *, has_other: bool
    ) -> tuple[MeasuringSettings, SecondEngine | None]:
        """Return the options with only the first engine, and the second engine if there is one.

        Raises UsageError if they do not fit together.
        """
        names = [name.strip() for name in measuring.engine.split(",")]
        if len(names) == 1:
            typed = {
                "--engine-option-b": self.engine_option_b,
                "--requirement-b": self.requirement_b,
            }
            for option, given in typed.items():
                if given:
                    raise UsageError(
                        f"{option} is for the second of two engines: give both, as in --engine "
                        "onnxruntime,openvino."
                    )
            return measuring, None
        if len(names) > 2:
            raise UsageError(
                f"a sweep takes at most two engines, and --engine names {len(names)}: sweep the "
                "others separately."
            )
        if has_other:
            raise UsageError(
                "--against and two engines would be more than two sides: leave out --against, or "
                "give one --engine."
            )
        if names[0] == names[1] and not (self.engine_option_b or self.requirement_b):
            raise UsageError(
                f"both engines are {printable(names[0])}: give two engines, or --engine-option-b "
                "or --requirement-b for what differs."
            )
        first, last = names
        return replace(measuring, engine=first), SecondEngine(last, self.engine_option_b)

    def with_environment(self, setup: Setup) -> Setup:
        spec = environment_spec("--requirement-b", self.requirement_b)
        return replace(setup, spec=spec or setup.spec)


class SweepOptions(Struct, frozen=True):
    """The numbers of streams, the longest latency of the best, and whose layers are timed."""

    streams: str
    latency_threshold: str | None
    all_layers: bool

    def counts(self) -> tuple[int, ...]:
        from pytest_modelperf.spec.kinds import read_typed

        counts: tuple[int, ...] = read_typed(CORES, self.streams, "--streams")
        return counts

    def threshold_ms(self) -> float | None:
        given = self.latency_threshold
        return None if given is None else parse_threshold("--latency-threshold", given)


@click.command(cls=GroupedCommand, short_help="Find the best batch size, cores and streams.")
@click.argument("model", type=click.Path())
@click.option(
    "--against", metavar="OTHER", type=click.Path(), help="The earlier version; both run in turn."
)
@option_of(
    HelpGroup.ENGINE,
    "--against-python",
    metavar="PATH",
    help="Run OTHER in this Python.  [default: this one]",
)
@size_options
@option_of(
    HelpGroup.SIZES,
    "--streams",
    metavar="N[,N...]",
    default="1",
    show_default=True,
    help="Numbers of requests that run at once on one session.",
)
@engine_option_b
@requirement_option("--requirement-b", "the second engine")
@click.option(
    "--latency-threshold",
    metavar="MS",
    help="The longest median latency that the best may have, in milliseconds, as in 20 or 0.5.",
)
@click.option(
    "--all-layers",
    is_flag=True,
    help="Time the layers of every case, not only of the best. A page then compares any two.",
)
@model_options
@generation_options
@setting_option(INPUT_FILE)
@measuring_options(
    of_engine="Two run side by side, as in onnxruntime,openvino.",
    seconds=5,
    of_seconds="the longest that the rounds of a configuration may take",
)
@cluster_options
@output_options(csv="the configurations")
@takes_records(
    before=AgainstOptions,
    engines=EnginesOptions,
    swept=SweepOptions,
    cases=CaseSpec,
    measuring=MeasuringSettings,
    place=ClusterOptions,
    outputs=OutputOptions,
)
@click.pass_obj
def sweep(  # noqa: PLR0913  # one parameter per group of options
    measure: Callable[..., Sweep] | None,
    *,
    model: str,
    before: AgainstOptions,
    engines: EnginesOptions,
    swept: SweepOptions,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    place: ClusterOptions,
    outputs: OutputOptions,
) -> None:
    """Measure MODEL at every batch size, core count and number of streams, and find the best.

    All configurations run in turn, in random order, so the noise of the machine affects all alike.
    The best gives the most items per second while its median latency is surely within the
    threshold. With --against, OTHER is the earlier version (A) and MODEL the current one (B). With
    two engines, MODEL runs on the first (A) and on the second (B). On a cluster, one of the
    machines runs the whole sweep.

    With --prompt and --generate, each phase of a generation is a configuration, and the best is
    found among the steps, which make one token each.

    \b
    modelperf sweep model.onnx --batch 1,2,4,8 --cores 1,2 --streams 1,2,4
    modelperf sweep model.onnx --batch 1,8 --latency-threshold 20 --html sweep.html
    modelperf sweep model.onnx --batch 1,8 --cores 1,2 --all-layers --html sweep.html
    modelperf sweep new.onnx --against old.onnx --batch 1,8 --cores 1,2 --csv sweep.csv
    modelperf sweep model.onnx --against model.onnx --against-python old-venv/bin/python
    modelperf sweep model.onnx --batch 1,8 --cluster tcp://scheduler:8786 --machine board
    modelperf sweep model.onnx --engine onnxruntime,openvino --cores 1,2
    modelperf sweep decoder.onnx --prompt 64,256 --generate 64 --batch 1,4
    """  # noqa: D301  # click: keep the lines of the paragraph
    models = (model,) if before.against is None else (before.against, model)
    is_shown = outputs.check(*models, input_file=cases.input_file)
    before.check()
    place.check()
    require_this_machine("--requirement-b", engines.requirement_b, is_on_cluster=place.is_given)
    for option, given in (
        ("--against-python", before.against_python),
        ("--requirement-b", engines.requirement_b),
    ):
        if given:
            require_local_gateway(option, measuring.gateway)
    measuring, second = engines.divide(measuring, has_other=before.against is not None)
    counts, threshold_ms = swept.counts(), swept.threshold_ms()
    extensions = load_extensions(plugins)
    request = request_of(cases)
    setup = model_setup(measuring, extensions, "a sweep")

    from pytest_modelperf.profiler.model_request import ModelRun
    from pytest_modelperf.sweep.request import SweepRequest

    sides = before.sides(model, setup, are_here=not place.is_given)
    if second is not None:
        own = engines.with_environment(second.setup(setup, extensions))
        sides = (*sides, ModelRun(model, own))
    asked = SweepRequest(sides, request, counts, threshold_ms, swept.all_layers)
    if place.is_given:
        result = place.run(asked, *(side.setup for side in sides), plugins=plugins)
    else:
        naming = nullcontext() if second is None else second.naming_requirement(sides[-1].setup)
        with naming, shown_progress() as progress:
            result = (measure or SweepRequest.run)(
                asked, extensions, progress, lambda plan: click.echo(plan, err=True)
            )
    _show_sweep(result, outputs, is_shown=is_shown)
    _end_unless_measured(result, is_shown=is_shown)


def _show_sweep(result: Sweep, outputs: OutputOptions, *, is_shown: bool) -> None:
    from pytest_modelperf.sweep.records import SWEEP
    from pytest_modelperf.sweep.report import sweep_report

    report = sweep_report(result, COMMAND_WORDING, dt.datetime.now(dt.timezone.utc))
    write_report(report, partial(SWEEP.dump, result), outputs, is_shown=is_shown)


def _end_unless_measured(result: Sweep, *, is_shown: bool) -> None:
    """End with exit status 3 if not all was measured, and say why unless a report does."""
    from pytest_modelperf.profiler.records import Outcome

    lacking = [p for side in result.sides for p in side.points if p.latency is None]
    if result.has_failed or any(point.outcome is not Outcome.SKIPPED for point in lacking):
        if not is_shown:
            from pytest_modelperf.sweep.report import unmeasured_reasons

            for reason in unmeasured_reasons(result):
                for line in indented_lines(reason):
                    click.echo(line, err=True)
        raise SystemExit(_NOT_MEASURED)
