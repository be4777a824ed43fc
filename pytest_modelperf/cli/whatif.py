"""`modelperf whatif`: measures what a model would gain by pruning, INT8, or another precision.

If click's context has an object, that is asked in place of `ask_what_if`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.options import (
    Measuring,
    load_extensions,
    model_options,
    read_request,
    variant_options,
)
from pytest_modelperf.cli.output import ProgressLine, terminal_style, write
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.output import check_outputs

if TYPE_CHECKING:
    from pytest_modelperf.whatif.records import Variant, VariantKind, WhatIf

DEFAULT_TOP = 20
_NOT_MEASURED = 3
# The variants that are tried if none is named.
_USUAL_SHARES, _USUAL_QUANTIZATION = "0.5,0.9", "int8"
_QUANTIZATIONS = {
    "int8": ("dynamic", "static"),
    "int8-dynamic": ("dynamic",),
    "int8-static": ("static",),
}
_PRECISIONS = {name: (name,) for name in ("bf16", "f16", "f32")}


@click.command(short_help="Try what would make a model faster.")
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
    "--precision",
    metavar="NAME[,NAME...]",
    help="Let the engine compute in bf16, f16 or f32.",
)
@click.option(
    "--estimate",
    metavar="SHARE[,SHARE...]",
    help="Estimate these shares of pruning from the measured ones around them: 0.7.",
)
@click.option("--batch", metavar="N[,N...]", help="Batch sizes.  [default: the model's own, or 1]")
@click.option("--cores", metavar="N[,N...]", default="1", show_default=True, help="Core counts.")
@model_options
@click.option(
    "--input-file",
    metavar="F.npz",
    help="Run the model on these arrays, named as its inputs; static INT8 is calibrated with them.",
)
@variant_options
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    default=DEFAULT_TOP,
    show_default=True,
    help="How many layers to show; 0 for all.",
)
@click.option(
    "--view",
    type=click.Choice(["ms", "percent", "speedup"]),
    default="ms",
    show_default=True,
    help="What the layer tables show: times, shares of the whole model, or speedups.",
)
@click.option("--json", "json_file", metavar="F", help="Write everything as JSON; - for stdout.")
@click.option(
    "--csv", "csv_file", metavar="F", help="Write levels and layers as CSV; - for stdout."
)
@click.option("--html", "html_file", metavar="F", help="Write a page with charts; - for stdout.")
@click.option(
    "--markdown", "markdown_file", metavar="F", help="Write the report in Markdown; - for stdout."
)
@click.pass_obj
def whatif(  # noqa: PLR0913  # one parameter per option
    ask: Callable[..., WhatIf] | None,
    *,
    model: str,
    prune: str | None,
    prune_channels: str | None,
    quantize: str | None,
    precision: str | None,
    estimate: str | None,
    batch: str | None,
    cores: str,
    dims: tuple[str, ...],
    inputs: tuple[str, ...],
    plugins: tuple[str, ...],
    input_file: str | None,
    engine: str,
    engine_options: tuple[str, ...],
    gateway: str,
    max_seconds: float,
    warmup_seconds: float | None,
    timeout: float,
    top: int,
    view: str,
    json_file: str | None,
    csv_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
) -> None:
    """Try what would make MODEL faster: make variants of it, and measure them beside MODEL.

    Each variant runs in turn with MODEL, so the noise of this machine affects both alike. Only
    speed is measured; accuracy is not. Without any of --prune, --prune-channels, --quantize and
    --precision, it tries --prune 0.5,0.9 --quantize int8.

    \b
    modelperf whatif model.onnx --prune 0.5,0.8,0.9 --estimate 0.7 --quantize int8
    modelperf whatif model.onnx --prune-channels 0.25,0.5 --batch 1,8 --cores 2
    modelperf whatif model.onnx --engine openvino --precision bf16 --quantize int8-static
    modelperf whatif model.onnx --quantize int8 --input-file samples.npz --html whatif.html
    """  # noqa: D301  # click: keep the lines of the paragraph
    targets = {
        "--json": json_file,
        "--csv": csv_file,
        "--html": html_file,
        "--markdown": markdown_file,
    }
    is_shown = check_outputs(targets, model, input_file)
    if all(text is None for text in (prune, prune_channels, quantize, precision)):
        prune, quantize = _USUAL_SHARES, _USUAL_QUANTIZATION
        click.echo(
            f"trying --prune {prune} --quantize {quantize}, as no variant is named", err=True
        )
    variants = _read_variants(prune, prune_channels, quantize, precision)
    estimates = () if estimate is None else parse_shares("--estimate", estimate)
    if html_file is not None:
        from pytest_modelperf.report.html.extra import check_html_extra

        check_html_extra("--html")

    from pytest_modelperf.whatif.speedups import check_asked

    check_asked(variants, estimates)
    extensions = load_extensions(plugins)
    request = read_request(batch, cores, dims, inputs, input_file)
    measuring = Measuring(
        engine,
        engine_options,
        gateway,
        max_seconds,
        timeout,
        warmup_seconds=warmup_seconds,
    )
    setup = measuring.model_setup(extensions, "a what-if")

    from pytest_modelperf.whatif.measuring import ask_what_if

    progress = ProgressLine()
    try:
        result = (ask or ask_what_if)(
            model, request, setup, variants, estimates, extensions, progress
        )
    finally:
        progress.clear()

    from pytest_modelperf.report.markdown_page import MarkdownStyle
    from pytest_modelperf.whatif.tables import View
    from pytest_modelperf.whatif.text import WhatIfView, render_whatif

    shown = WhatIfView(top or None, View(view))
    if is_shown:
        click.echo(render_whatif(result, shown, terminal_style()), nl=False)
    if markdown_file is not None:
        write(markdown_file, render_whatif(result, shown, MarkdownStyle()))
    _write_whatif(result, json_file, csv_file, html_file)
    _end_unless_measured(result, is_shown=is_shown)


def _read_variants(
    prune: str | None, prune_channels: str | None, quantize: str | None, precision: str | None
) -> tuple[Variant, ...]:
    from pytest_modelperf.whatif.records import Variant, VariantKind

    def of_shares(kind: VariantKind, option: str, text: str | None) -> list[Variant]:
        shares = () if text is None else parse_shares(option, text)
        return [Variant(kind, share) for share in shares]

    def of_forms(
        kind: VariantKind, option: str, text: str | None, known: Mapping[str, tuple[str, ...]]
    ) -> list[Variant]:
        forms = () if text is None else _parse_forms(option, text, known)
        return [Variant(kind, form=form) for form in forms]

    return (
        *of_shares(VariantKind.PRUNED, "--prune", prune),
        *of_shares(VariantKind.NARROWED, "--prune-channels", prune_channels),
        *of_forms(VariantKind.QUANTIZED, "--quantize", quantize, _QUANTIZATIONS),
        *of_forms(VariantKind.PRECISION, "--precision", precision, _PRECISIONS),
    )


def parse_shares(option: str, text: str) -> tuple[float, ...]:
    """Returns the shares in a comma-separated list, each once, the smallest first."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0.0 <= share < 1.0 for share in shares):
        raise UsageError(f"{option} takes shares from 0 to below 1, such as 0.5,0.9; not {text!r}.")
    return tuple(sorted(set(shares)))


def _parse_forms(option: str, text: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = [part.strip().lower() for part in text.split(",")]
    if not all(name in known for name in names):
        raise UsageError(f"{option} takes {', '.join(known)}; not {text!r}.")
    return tuple(dict.fromkeys(form for name in names for form in known[name]))


def _write_whatif(
    result: WhatIf, json_file: str | None, csv_file: str | None, html_file: str | None
) -> None:
    if json_file is not None:
        from pytest_modelperf.whatif.document import dump_whatif

        write(json_file, dump_whatif(result))
    if csv_file is not None:
        from pytest_modelperf.whatif.csv import render_whatif_csv

        write(csv_file, render_whatif_csv(result))
    if html_file is not None:
        from pytest_modelperf.whatif.page import render_whatif_page

        write(html_file, render_whatif_page(result, made=dt.datetime.now(dt.timezone.utc)))


def _end_unless_measured(result: WhatIf, *, is_shown: bool) -> None:
    """Exit status 3 if a level could not be made or measured.

    The report says why. If no report is shown, this function does.
    """
    if not any(case.has_failed for case in result.cases):
        return
    if not is_shown:
        from pytest_modelperf.whatif.text import failed_lines

        for case in result.cases:
            for line in failed_lines(case):
                click.echo(f"{case.id}: {line}", err=True)
    raise SystemExit(_NOT_MEASURED)
