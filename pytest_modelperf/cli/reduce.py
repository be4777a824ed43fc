"""`modelperf reduce` finds the smallest pair of models that still shows a slowdown, for an issue.

A test can give click's context a function that reduces instead of `run_reduce`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from pytest_modelperf.cli.groups import GroupedCommand
from pytest_modelperf.cli.options import (
    FolderOptions,
    OutputOptions,
    folder_options,
    is_given,
    load_extensions,
    measuring_options,
    model_setup,
    one_case_options,
    output_options,
    request_of_one_size,
    slowdown_option,
    takes_records,
)
from pytest_modelperf.cli.output import shown_progress, write_report
from pytest_modelperf.cli.running import InterpreterOptions, interpreter_options
from pytest_modelperf.cli.settings import COMMAND_WORDING, setting_option
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.measuring_settings import MeasuringSettings

if TYPE_CHECKING:
    from pytest_modelperf.profiler.sampling.setup import Setup
    from pytest_modelperf.reducing.records import Reduction

# Where a reduced pair is written by default.
_FOLDER = "reduced"
_WORSE = 1
_UPGRADE_SECONDS = 300.0


@click.command(cls=GroupedCommand, short_help="Reduce a slowdown to the kernels that show it.")
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="[B]", type=click.Path(), required=False)
@folder_options(_FOLDER)
@click.option(
    "--anonymous", is_flag=True, help="Replace the names of tensors and nodes by numbers."
)
@slowdown_option("B")
@one_case_options
@setting_option(INPUT_FILE)
@measuring_options(
    seconds=60,
    of_seconds="the longest that the whole search may take; with two Pythons the default is "
    "300 seconds",
    is_here=True,
)
@interpreter_options
@output_options(csv="the steps")
@takes_records(
    folder=FolderOptions,
    cases=CaseSpec,
    measuring=MeasuringSettings,
    interpreters=InterpreterOptions,
    outputs=OutputOptions,
)
@click.pass_obj
def reduce(  # noqa: PLR0913  # one parameter per group of options
    run: Callable[..., Reduction] | None,
    *,
    before: str,
    after: str | None,
    tolerance: str,
    plugins: tuple[str, ...],
    folder: FolderOptions,
    cases: CaseSpec,
    measuring: MeasuringSettings,
    interpreters: InterpreterOptions,
    outputs: OutputOptions,
) -> None:
    """Write the smallest pair of models that shows why B is slower than A.

    Both run in turn. If B is slower, the kernels that the engine made of both are tried by
    themselves, and everything that can be left out is removed. What remains is written without
    weights, with a program that times it and needs only numpy and onnxruntime. Without B, model A
    runs on two versions of the engine, one of which may be the installed one. Exit code 1 if B is
    slower than A.

    \b
    modelperf reduce old.onnx new.onnx --batch 8 --cores 2
    modelperf reduce old.onnx new.onnx --anonymous --output slow-conv.zip
    modelperf reduce model.onnx --requirement-a onnxruntime==1.30.0
    """  # noqa: D301  # click: keep the lines of the paragraph
    is_shown = outputs.check(before, after or before, input_file=cases.input_file)
    interpreters.check(static=False, is_on_cluster=False, gateway=None)
    from pytest_modelperf.comparing.limits import read_median_tolerance
    from pytest_modelperf.comparing.sides import Side
    from pytest_modelperf.profiler.machine.describe import describe_machine
    from pytest_modelperf.reducing.files import REPLACED_FILES, deliver
    from pytest_modelperf.reducing.search import ReduceRequest, run_reduce

    target = folder.output or _FOLDER
    folder.check(target, REPLACED_FILES, before, after, cases.input_file)
    share = read_median_tolerance(tolerance, "--tolerance")
    extensions = load_extensions(plugins)
    request = request_of_one_size(cases, "reduce runs the models")
    setup = model_setup(measuring, extensions, "a reduction")
    setups = interpreters.setups(setup, setup, are_here=True)
    if after is None and setups[0] == setups[1]:
        raise UsageError(
            "one model on one engine has nothing to compare: give a second model, or another "
            "version of the engine, as in --requirement-a onnxruntime==1.30.0."
        )
    asked = ReduceRequest(
        before=Side(before, setups[0]),
        after=Side(after or before, setups[1]),
        request=request,
        extensions=extensions,
        tolerance=share,
        max_seconds=_seconds(*setups),
        is_anonymous=folder.anonymous,
    )
    with shown_progress() as progress:
        put = partial(deliver, target=target, machine=describe_machine())
        result = (run or run_reduce)(asked, put, progress)
    _show(result, outputs, target, is_shown=is_shown)


def _seconds(setup_a: Setup, setup_b: Setup) -> float:
    """Return the time of the search.

    Two Pythons start again in each round, which takes seconds, so they get more by default.
    """
    is_usual = setup_a != setup_b and not is_given("max_seconds")
    return _UPGRADE_SECONDS if is_usual else setup_a.policy.max_seconds


def _show(result: Reduction, outputs: OutputOptions, target: str, *, is_shown: bool) -> None:
    from pytest_modelperf.comparing.records import Verdict
    from pytest_modelperf.reducing.files import dump_reduction
    from pytest_modelperf.reducing.report import reduction_report

    report = reduction_report(result, COMMAND_WORDING, target, dt.datetime.now(dt.timezone.utc))
    document = partial(dump_reduction, result, target)
    write_report(report, document, outputs, is_shown=is_shown)
    if result.verdict is Verdict.REGRESSED:
        raise SystemExit(_WORSE)
