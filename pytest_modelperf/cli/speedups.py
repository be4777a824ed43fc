"""Commands that look for a faster model.

`modelperf tune` finds the session options that make a model faster on this machine. `modelperf
whatif` measures what it would gain by pruning, INT8, or another precision.

A test can give click's context a function that runs instead of `TuningRequest.run` or
`WhatIfRequest.run`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
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
    model_options,
    model_setup,
    output_options,
    request_of,
    size_options,
    takes_records,
    top_option,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.parameters import (
    GroupedCommand,
    HelpGroup,
    option_of,
    parse_forms,
    parse_megabytes,
    parse_outputs,
    parse_shares,
    parse_threshold,
    parse_wanted,
    setting_option,
)
from pytest_modelperf.cli.running import ClusterOptions, cluster_options
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings

if TYPE_CHECKING:
    from pytest_modelperf.tuning.records import Tuning
    from pytest_modelperf.tuning.tuned import TuningTerms
    from pytest_modelperf.whatif.records import Variant, VariantKind, WhatIf
    from pytest_modelperf.whatif.report import WhatIfView

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


_OTHER_OUTPUTS, _NOT_OF_VARIANTS = 1, 3


class VariantOptions(Struct, frozen=True):
    """Which variants of the model to make, to estimate, and to judge by their outputs."""

    prune: str | None
    prune_channels: str | None
    quantize: str | None
    precision: str | None
    estimate: str | None
    tolerance: str | None

    def variants(self) -> tuple[Variant, ...]:
        from pytest_modelperf.whatif.records import VariantKind

        return (
            *_with_shares(VariantKind.PRUNED, "--prune", self.prune),
            *_with_shares(VariantKind.NARROWED, "--prune-channels", self.prune_channels),
            *_with_forms(VariantKind.QUANTIZED, "--quantize", self.quantize),
            *_with_forms(VariantKind.PRECISION, "--precision", self.precision),
        )

    def usual(self) -> VariantOptions:
        return replace(self, prune="0.5,0.9", quantize="int8")

    def estimates(self) -> tuple[float, ...]:
        return () if self.estimate is None else parse_shares("--estimate", self.estimate)

    def allowed_outputs(self, variants: Sequence[Variant]) -> float | None:
        """Return how far outputs may differ, or None if they are not judged."""
        from pytest_modelperf.whatif.records import FAITHFUL

        if self.tolerance is None:
            return None
        if not any(variant.kind in FAITHFUL for variant in variants):
            raise UsageError(
                "--tolerance has no effect: the outputs of pruned and narrowed variants are not "
                "meaningful. Add --quantize or --precision, or leave it out."
            )
        return parse_outputs("a what-if", self.tolerance)


class ViewOptions(Struct, frozen=True):
    """The contents of the layer tables, and their number of rows."""

    top: int
    view: str

    def as_view(self) -> WhatIfView:
        from pytest_modelperf.whatif.report import WhatIfView
        from pytest_modelperf.whatif.report_layers import View

        return WhatIfView(self.top or None, View(self.view))


@click.command(cls=GroupedCommand, short_help="Try what would make a model faster.")
@click.argument("model", type=click.Path())
@click.option(
    "--prune",
    metavar="SHARE[,SHARE...]",
    help="Set these shares of each weight to zero, the smallest values first: 0.5,0.9.",
)
@click.option(
    "--prune-channels",
    metavar="SHARE[,SHARE...]",
    help="Remove these shares of the channels, which makes the model narrower: 0.25,0.5.",
)
@click.option(
    "--quantize",
    metavar="FORM[,FORM...]",
    help="Quantize weights and activations: int8-dynamic, int8-static, or int8 for both.",
)
@click.option(
    "--precision", metavar="NAME[,NAME...]", help="Let the engine compute in bf16, f16 or f32."
)
@click.option(
    "--estimate",
    metavar="SHARE[,SHARE...]",
    help="Estimate these shares of pruning from the measured ones around them: 0.7.",
)
@option_of(
    HelpGroup.MEASURING,
    "--tolerance",
    metavar="outputs=SHARE",
    help="Mark variants whose outputs differ by more: outputs=0.01 is 1 % of the largest value. "
    "Not for pruned and narrowed variants.",
)
@size_options
@model_options
@setting_option(INPUT_FILE, more="Static INT8 is calibrated with them.")
@measuring_options(of_seconds="the longest that the rounds of a variant may take at each case")
@cluster_options
@top_option
@option_of(
    HelpGroup.OUTPUT,
    "--view",
    type=click.Choice(["ms", "percent", "speedup"]),
    default="ms",
    show_default=True,
    help="What the layer tables show: times, shares of the whole model, or speedups.",
)
@option_of(
    HelpGroup.OUTPUT,
    "-v",
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Show the layer types and layers of each of several cases. So does an option about them.",
)
@output_options(csv="levels and layers")
@takes_records(
    named=VariantOptions,
    cases=CaseSpec,
    measuring=MeasuringSettings,
    place=ClusterOptions,
    shown=ViewOptions,
    outputs=OutputOptions,
)
@click.pass_obj
def whatif(  # noqa: PLR0913  # one parameter per group of options
    ask: Callable[..., WhatIf] | None,
    *,
    model: str,
    named: VariantOptions,
    is_verbose: bool,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    place: ClusterOptions,
    shown: ViewOptions,
    outputs: OutputOptions,
) -> None:
    """Try what would make MODEL faster: make variants of it, and measure them against MODEL.

    Each variant runs in turn with MODEL, so the noise of the machine affects both alike. Only
    speed is measured; accuracy is not. Without any of --prune, --prune-channels, --quantize and
    --precision, it tries --prune 0.5,0.9 --quantize int8. On a cluster, one of the machines makes
    and runs all variants.

    \b
    modelperf whatif model.onnx --prune 0.5,0.8,0.9 --estimate 0.7 --quantize int8
    modelperf whatif model.onnx --prune-channels 0.25,0.5 --batch 1,8 --cores 2
    modelperf whatif model.onnx --engine openvino --precision bf16 --quantize int8-static
    modelperf whatif model.onnx --quantize int8 --input-file samples.npz --html whatif.html
    modelperf whatif model.onnx --quantize int8 --input-file samples.npz --tolerance outputs=0.05
    modelperf whatif model.onnx --quantize int8 --cluster tcp://scheduler:8786 --machine board
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = outputs.check(model, input_file=cases.input_file)
    place.check()
    if not named.variants():
        named = named.usual()
        click.echo(
            f"trying --prune {named.prune} --quantize {named.quantize}, as no variant is named",
            err=True,
        )
    variants, estimates = named.variants(), named.estimates()

    from pytest_modelperf.whatif.speedups import check_variants

    check_variants(variants, estimates)
    allowed = named.allowed_outputs(variants)
    extensions = load_extensions(plugins)
    request = request_of(cases)
    setup = model_setup(measuring, extensions, "a what-if")

    from pytest_modelperf.profiler.model_request import ModelRun
    from pytest_modelperf.whatif.request import WhatIfRequest
    from pytest_modelperf.whatif.variants import with_outputs_judged

    asked = WhatIfRequest(ModelRun(model, setup), request, variants, estimates)
    if place.is_given:
        result = place.run(asked, setup, plugins=plugins)
    else:
        with shown_progress() as progress:
            result = (ask or WhatIfRequest.run)(asked, extensions, progress)
    if allowed is not None:
        result = with_outputs_judged(result, allowed)
    has_details = is_verbose or any(map(is_given, ViewOptions.__struct_fields__))
    _show_whatif(result, shown.as_view(), outputs, is_shown=is_shown, has_details=has_details)
    _end(result, is_shown=is_shown)


def _with_shares(kind: VariantKind, option: str, text: str | None) -> list[Variant]:
    from pytest_modelperf.whatif.records import Variant

    shares = () if text is None else parse_shares(option, text)
    return [Variant(kind, share) for share in shares]


def _with_forms(kind: VariantKind, option: str, text: str | None) -> list[Variant]:
    from pytest_modelperf.whatif.records import FORMS, Variant

    forms = () if text is None else parse_forms(option, text, FORMS[kind])
    return [Variant(kind, form=form) for form in forms]


def _show_whatif(
    result: WhatIf,
    view: WhatIfView,
    outputs: OutputOptions,
    *,
    is_shown: bool,
    has_details: bool,
) -> None:
    from pytest_modelperf.whatif.records import dump_whatif
    from pytest_modelperf.whatif.report import whatif_report

    report = whatif_report(result, view, dt.datetime.now(dt.timezone.utc))
    write_report(
        report,
        partial(dump_whatif, result),
        outputs,
        is_shown=is_shown,
        has_details=has_details,
    )


def _end(result: WhatIf, *, is_shown: bool) -> None:
    """End with exit status 3 if a level could not be made or measured, 1 if one has other outputs.

    The report says which and why. If no report is shown, this function does.
    """
    if not is_shown:
        from pytest_modelperf.text.escaping import indented_lines
        from pytest_modelperf.whatif.report import failures_of
        from pytest_modelperf.whatif.variants import judged_lines

        for case in result.cases:
            for text in (*failures_of(case), *judged_lines(case)):
                for line in indented_lines(f"{case.id}: {text}"):
                    click.echo(line, err=True)
    if any(case.has_failed for case in result.cases):
        raise SystemExit(_NOT_OF_VARIANTS)
    if any(level.has_other_outputs for case in result.cases for level in case.levels):
        raise SystemExit(_OTHER_OUTPUTS)
