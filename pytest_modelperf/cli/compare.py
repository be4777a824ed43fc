"""`modelperf compare` compares two versions of a model to show whether the new one costs more."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pytest_modelperf.cli.options import (
    OutputOptions,
    case_options,
    is_given,
    layers_csv_option,
    load_extensions,
    measuring_options,
    model_setup,
    output_options,
    request_of,
    svg_option,
    takes_records,
)
from pytest_modelperf.cli.output import show, shown_progress, write, write_report
from pytest_modelperf.cli.parameters import (
    COMMAND_WORDING,
    CommandWording,
    GroupedCommand,
    HelpGroup,
    find_model,
    option_of,
    setting_option,
)
from pytest_modelperf.cli.programs import is_test
from pytest_modelperf.cli.running import (
    ClusterOptions,
    InterpreterOptions,
    SecondEngine,
    cluster_options,
    engine_option_b,
    interpreter_options,
)
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import WORKLOAD
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings
from pytest_modelperf.spec.run_definitions import STATIC_ONLY, TOLERANCE
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shell_word

if TYPE_CHECKING:
    from pytest_modelperf.baselines.records import Baseline
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Comparison
    from pytest_modelperf.comparing.request import CompareRequest
    from pytest_modelperf.profiler.request import ProfileRequest
    from pytest_modelperf.profiler.sampling.setup import Setup

_WORSE = 1
_NOT_MEASURED = 3
# The usual folder of baselines.
_BASELINES = "baselines"


@click.command(cls=GroupedCommand, short_help="Compare two versions of a model in time and work.")
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="[B]", type=click.Path(), required=False)
@click.option(
    "--ref",
    metavar="REF",
    help="Compare the program of the test A with this branch, tag or commit.",
)
@setting_option(STATIC_ONLY)
@case_options
@setting_option(WORKLOAD)
@measuring_options(has_note=True)
@cluster_options
@setting_option(
    TOLERANCE,
    help="how much slower B may be, as a share: `0.03`, or by figure, p50=0.02,macs=0.01,load=0.2",
)
@option_of(
    HelpGroup.ENGINE, "--engine-b", metavar="NAME", help="What runs B.  [default: as --engine]"
)
@engine_option_b
@interpreter_options
@output_options(csv="the figures")
@layers_csv_option
@svg_option
@takes_records(
    cases=CaseSpec,
    measuring=MeasuringSettings,
    place=ClusterOptions,
    second=SecondEngine,
    interpreters=InterpreterOptions,
    outputs=OutputOptions,
)
def compare(  # noqa: PLR0913  # one parameter per group of options
    *,
    before: str,
    after: str | None,
    ref: str | None,
    static_only: bool,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    place: ClusterOptions,
    second: SecondEngine,
    interpreters: InterpreterOptions,
    outputs: OutputOptions,
) -> None:
    """Compare two versions of a model, A before and B now: exit code 1 if B got worse.

    Both run in turn on one machine, so its noise affects both alike. A may be the folder of a
    baseline; then its twin runs. A and B may be the same model in two interpreters, or on two
    engines. Each can be a function that returns a model (package.module:function), or an address
    with the digest of its file. If A is a test that checks a program, the program in the work tree
    is compared with the one at --ref, or with another version of a dependency.

    \b
    modelperf compare old.onnx new.onnx --batch 1,8 --cores 1,2
    modelperf compare model.onnx model.onnx --python-a old-venv/bin/python
    modelperf compare model.onnx model.onnx --requirement-a onnxruntime==1.22.0
    modelperf compare model.onnx model.onnx --engine-b openvino
    modelperf compare baselines/encoder encoder.onnx
    modelperf compare old.onnx new.onnx --html report.html --json result.json
    modelperf compare old.onnx new.onnx --csv figures.csv --layers-csv layers.csv
    modelperf compare old.onnx new.onnx --batch 1,8 --cluster tcp://scheduler:8786
    modelperf compare old.onnx new.onnx --prompt 128 --generate 64
    modelperf compare old.onnx tools.export:encoder
    modelperf compare old.onnx new.onnx --static
    modelperf compare --ref v1.0 tests/test_read.py::test_page
    """  # noqa: D301  # click: keep the lines of the paragraph
    if is_test(before):
        _compare_test(before, after, ref, interpreters, cases, measuring, outputs)
        return
    if after is None or ref is not None:
        raise UsageError(
            "compare takes two models, as in `modelperf compare old.onnx new.onnx`, or --ref and a "
            "test, as in `modelperf compare --ref v1.0 tests/test_read.py::test_page`."
        )
    is_shown = outputs.check(before, after, input_file=cases.input_file)
    interpreters.check(static=static_only, is_on_cluster=place.is_given, gateway=measuring.gateway)
    place.check(static=static_only)
    extensions = load_extensions(plugins)
    before, after = find_model(before), find_model(after)
    from pytest_modelperf.comparing.limits import Tolerances

    request, tolerances = request_of(cases), cases.tolerances or Tolerances()
    is_here = False
    if static_only:
        from pytest_modelperf.comparing.limits import check_static
        from pytest_modelperf.profiler.sampling.setup import Setup

        second.check_static()
        check_static(tolerances)
        setups = Setup(), Setup()
        asked = _request((before, after), setups, request, tolerances)
        result = asked.count(extensions)
    else:
        from pytest_modelperf.profiler.worker.gateway import is_local

        setup = model_setup(measuring, extensions, "a comparison", may_stretch=True)
        are_here = not place.is_given
        is_here = are_here and is_local(setup.spec)
        setups = interpreters.setups(setup, second.setup(setup, extensions), are_here=are_here)
        asked = _request((before, after), setups, request, tolerances)
        if place.is_given:
            result = place.run(asked, *setups, plugins=plugins)
        else:
            with second.naming_requirement(setups[1]), shown_progress() as progress:
                result = asked.run(extensions, progress)
    wording = _wording(before, measuring)
    _write_comparison(result, outputs, wording, is_here=is_here, is_shown=is_shown)
    _end_by(result, is_shown=is_shown)


def _compare_test(  # noqa: PLR0913, PLR0917  # all options for a test
    test: str,
    other: str | None,
    ref: str | None,
    interpreters: InterpreterOptions,
    cases: CaseSpec,
    measuring: MeasuringSettings,
    outputs: OutputOptions,
) -> None:
    from pytest_modelperf.cli.programs import TypedLimits, compare_program

    if other is not None:
        raise UsageError(
            f"{printable(test)} is a test, whose program is compared with an older version of "
            f"itself: leave out {printable(other)}, and give --ref."
        )
    is_shown = outputs.check()
    seconds = measuring.max_seconds if is_given("max_seconds") else None
    limits = TypedLimits(tolerances=cases.tolerances, max_seconds=seconds)
    result = compare_program(test, ref, interpreters.requirement_a, limits)
    _write_comparison(result, outputs, COMMAND_WORDING, is_here=True, is_shown=is_shown)
    _end_by(result, is_shown=is_shown)


def _wording(before: str, measuring: MeasuringSettings) -> CommandWording:
    """Return the wording of the report. A new baseline is recorded in the way it was compared."""
    if not Path(before).is_dir():
        return COMMAND_WORDING
    folder = str(_baseline_folder(before).parent)
    typed = [
        *([("baseline-dir", folder)] if folder != _BASELINES else []),
        *([("engine", measuring.engine)] if is_given("engine") else []),
        *(("engine-option", f"{key}={value}") for key, value in measuring.engine_options.items()),
    ]
    options = (f"--modelperf-{name}={shell_word(value)}" for name, value in typed)
    return CommandWording(" ".join([COMMAND_WORDING.record, *options]))


def _request(
    models: tuple[str, str],
    setups: tuple[Setup, Setup],
    request: ProfileRequest,
    tolerances: Tolerances,
) -> CompareRequest:
    """Return the request to compare both models. A may be a baseline, compared as recorded."""
    from pytest_modelperf.comparing.gates import Gate
    from pytest_modelperf.comparing.request import CompareRequest
    from pytest_modelperf.profiler.model_request import ModelRun
    from pytest_modelperf.stats.records import rounds_within

    stored, request = _read_baseline(*models, request)
    before, after = map(ModelRun, models, setups)
    return CompareRequest(
        before=before if stored is None else replace(before, source=after.source),
        after=after,
        request=request,
        gate=Gate(tolerances=tolerances, rounds=rounds_within(after.setup.policy.max_seconds)),
        baseline=stored,
    )


def _write_comparison(
    result: Comparison,
    outputs: OutputOptions,
    wording: CommandWording,
    *,
    is_here: bool,
    is_shown: bool,
) -> None:
    from pytest_modelperf.comparing.records import COMPARISON
    from pytest_modelperf.comparing.report import comparison_report
    from pytest_modelperf.profiler.machine.describe import describe_machine

    machine = describe_machine() if is_here and outputs.html_file is not None else None
    made = dt.datetime.now(dt.timezone.utc)
    report = comparison_report(result, wording, machine=machine, made=made)
    write_report(report, partial(COMPARISON.dump, result), outputs, is_shown=is_shown)
    if outputs.layers_csv_file is not None:
        from pytest_modelperf.comparing.views import layer_sheet
        from pytest_modelperf.report.exports import render_rows

        layers = layer_sheet(result)
        write(outputs.layers_csv_file, render_rows(layers.columns, layers.rows))
    if outputs.svg_file is not None:
        from pytest_modelperf.comparing.page_data import render_comparison_svg

        write(outputs.svg_file, render_comparison_svg(result))


def _read_baseline(
    before: str, after: str, request: ProfileRequest
) -> tuple[Baseline | None, ProfileRequest]:
    """Return the baseline in a folder with the request as recorded, or None for a model."""
    from pytest_modelperf.baselines.recorded import request_as_recorded
    from pytest_modelperf.baselines.store import BaselineStore

    folder = _baseline_folder(before)
    if not folder.is_dir():
        return None, request
    found = BaselineStore(folder.parent).read(folder.name)
    if found is None:
        raise UsageError(
            f"{printable(before)} is not a baseline: it has no model.json. Give a model, or a "
            "folder such as baselines/encoder."
        )
    return found, request_as_recorded(request, found.model, after)


def _baseline_folder(before: str) -> Path:
    """Return the folder of a baseline. Even for `.`, its name identifies the model."""
    folder = Path(before)
    return folder.resolve() if folder.name in {"", ".."} else folder


def _end_by(result: Comparison, *, is_shown: bool) -> None:
    """End with the exit status.

    A failed case outranks a worse one, because then not everything was compared. The report says
    why a case failed. If no report is shown, this function does.
    """
    from pytest_modelperf.comparing.records import Verdict
    from pytest_modelperf.comparing.verdict_lines import failure_lines

    failed = [case for case in result.cases if case.failure is not None]
    if failed:
        for case in failed if not is_shown else ():
            for line in failure_lines(case):
                show(f"{printable(case.id)}: {line}\n", err=True)
        raise SystemExit(_NOT_MEASURED)
    if result.verdict in {Verdict.REGRESSED, Verdict.OVER_BUDGET}:
        raise SystemExit(_WORSE)
