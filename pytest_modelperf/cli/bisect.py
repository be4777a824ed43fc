"""`modelperf bisect` finds the release of an engine, or the commit, that made a model worse.

Worse means slower or, with `--outputs`, other outputs.

A test can give click's context a function that bisects instead of `BisectRequest.run`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pytest_modelperf.cli.options import (
    OutputOptions,
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
from pytest_modelperf.cli.parameters import COMMAND_WORDING, GroupedCommand, setting_option
from pytest_modelperf.cli.programs import is_test
from pytest_modelperf.cli.running import ClusterOptions, cluster_options
from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import INPUT_FILE
from pytest_modelperf.spec.case_spec import CaseSpec, MeasuringSettings

if TYPE_CHECKING:
    from pytest_modelperf.bisect.records import Bisect, VersionRange
    from pytest_modelperf.bisect.search import SearchRule
    from pytest_modelperf.profiler.sampling.setup import Setup

_WORSE = 1
# The text of `comparing.limits.DEFAULT_OUTPUTS`, because the help must not import the comparison.
_ROUNDING = "0.001"


class RangeOptions(Struct, frozen=True):
    """The range to search: releases of a package, or commits of the model."""

    good: str | None
    bad: str | None
    commits: str | None
    package: str | None
    pre: bool

    def check(self) -> None:
        """Raise UsageError unless there is exactly one range."""
        typed = {"--good": self.good, "--bad": self.bad, "--package": self.package}
        given = [option for option, value in typed.items() if value is not None]
        if self.pre:
            given.append("--pre")
        if self.commits is not None and given:
            raise UsageError(
                f"{given[0]} is about releases of the engine, and --commits about commits of the "
                "model: leave out one of them."
            )
        if self.commits is None and (self.good is None or self.bad is None):
            raise UsageError(
                "bisect searches a range: give --good and --bad with two versions of the engine, "
                "as in --good 1.20.1 --bad 1.31.1, or --commits with a range such as v1.0..HEAD."
            )

    def commit_ends(self) -> tuple[str | None, str | None]:
        """Return the good and the bad commit of a program, as they were typed."""
        if self.commits is None:
            return self.good, self.bad
        if self.good is not None or self.bad is not None:
            raise UsageError("--commits names both ends: leave out --good and --bad.")
        from pytest_modelperf.bisect.versions import read_commits

        return read_commits(self.commits)


class RuleOptions(Struct, frozen=True):
    """What makes a version worse, and whether the search ends when one is found."""

    finds_all: bool
    tolerance: str
    outputs_tolerance: str | None

    def rule(self) -> SearchRule:
        """Return the rule of the search. Raises UsageError for a value that is not a share."""
        from pytest_modelperf.bisect.records import BisectFigure
        from pytest_modelperf.bisect.search import SearchRule
        from pytest_modelperf.comparing.limits import read_median_tolerance, read_share

        if self.outputs_tolerance is None:
            share = read_median_tolerance(self.tolerance, "--tolerance")
            return SearchRule(tolerance=share, finds_all=self.finds_all)
        return SearchRule(
            tolerance=read_share(self.outputs_tolerance, "--outputs"),
            finds_all=self.finds_all,
            judges=BisectFigure.OUTPUTS,
        )


@click.command(
    cls=GroupedCommand,
    short_help="Find the version that made a model slower or changed its outputs.",
)
@click.argument("model", type=click.Path())
@click.option(
    "--good",
    metavar="VERSION",
    help="The fast release of the engine; for a test, the fast commit.  [default for a test: the "
    "accepted commit]",
)
@click.option(
    "--bad",
    metavar="VERSION",
    help="The slow release of the engine; for a test, the slow commit.  [default for a test: HEAD]",
)
@click.option(
    "--package",
    metavar="NAME",
    help="The package whose releases are tried, as in onnxruntime-gpu.  [default: the engine's]",
)
@click.option("--pre", is_flag=True, help="Try pre-releases as well.")
@click.option(
    "--commits",
    metavar="GOOD..BAD",
    help="Search the commits of MODEL in this range, as in v1.0..HEAD.",
)
@click.option(
    "--all",
    "finds_all",
    is_flag=True,
    help="Look for further regressions on both sides of each that was found.",
)
@slowdown_option("a version")
@click.option(
    "--outputs",
    "outputs_tolerance",
    metavar="SHARE",
    is_flag=False,
    flag_value=_ROUNDING,
    help="Search for changed outputs instead of a slowdown. Outputs may differ by this share of "
    f"their largest value.  [default if no SHARE is given: {_ROUNDING}]",
)
@one_case_options
@setting_option(INPUT_FILE)
@measuring_options(
    of_seconds="the longest that the rounds of a step may take; four times as long if the step is "
    "inconclusive",
    has_note=True,
)
@cluster_options
@output_options(csv="the steps")
@takes_records(
    searched=RangeOptions,
    judged=RuleOptions,
    cases=CaseSpec,
    measuring=MeasuringSettings,
    place=ClusterOptions,
    outputs=OutputOptions,
)
@click.pass_obj
def bisect(  # noqa: PLR0913  # one parameter per group of options
    run: Callable[..., Bisect] | None,
    *,
    model: str,
    searched: RangeOptions,
    judged: RuleOptions,
    plugins: tuple[str, ...],
    cases: CaseSpec,
    measuring: MeasuringSettings,
    place: ClusterOptions,
    outputs: OutputOptions,
) -> None:
    """Find the release of the engine, or the commit of MODEL, that made it slower.

    MODEL may be a test that checks a program, as in tests/test_read.py::test_page. Then bisect
    finds the commit that made the program do more work or run slower, among those since it was
    accepted.

    Each release gets an environment of its own, which is made once and kept. Each version runs in
    turn with the good one, and the range is halved until two neighbours are left. Exit code 1 if
    the bad end is slower than the good one. With --outputs, the outputs of one inference of each
    version are compared.

    \b
    modelperf bisect model.onnx --good 1.20.1 --bad 1.31.1
    modelperf bisect model.onnx --engine openvino --good 2024.6.0 --bad 2025.3.0 --all
    modelperf bisect model.onnx --commits v1.0..HEAD --json bisect.json --html bisect.html
    modelperf bisect model.onnx --good 1.20.1 --bad 1.31.1 --outputs 0.01
    modelperf bisect model.onnx --commits v1.0..HEAD --cluster tcp://scheduler:8786
    modelperf bisect tests/test_read.py::test_page
    """  # noqa: D301  # click: keep the lines of the paragraph
    if is_test(model):
        _bisect_test(model, searched, judged, measuring, outputs)
        return
    is_shown = outputs.check(model, input_file=cases.input_file)
    searched.check()
    place.check()
    from pytest_modelperf.bisect.request import BisectRequest

    if judged.outputs_tolerance is not None:
        _check_outputs(place)
    rule = judged.rule()
    extensions = load_extensions(plugins)
    request = request_of_one_size(cases, "a bisect runs a model")
    setup = model_setup(measuring, extensions, "a bisect", may_stretch=True)
    found, package = _find_range(model, searched, setup)
    asked = BisectRequest(
        model=model, request=request, range=found, setup=setup, rule=rule, package=package
    )
    if place.is_given:
        with place.opened(setup, plugins=plugins) as cluster:
            from pytest_modelperf.cluster.cluster import duets_on_one_kind

            run_duet = duets_on_one_kind(cluster, request, plugins, place.machine)
            result = asked.run(extensions, run_duet=run_duet)
    else:
        with shown_progress() as progress:
            result = (run or BisectRequest.run)(asked, extensions, progress)
    _show(result, outputs, is_shown=is_shown)


def _bisect_test(
    test: str,
    searched: RangeOptions,
    judged: RuleOptions,
    measuring: MeasuringSettings,
    outputs: OutputOptions,
) -> None:
    from pytest_modelperf.cli.programs import TypedLimits, bisect_program
    from pytest_modelperf.comparing.limits import read_tolerances

    is_shown = outputs.check()
    limits = TypedLimits(
        tolerances=read_tolerances(judged.tolerance, "--tolerance")
        if is_given("tolerance")
        else None,
        max_seconds=measuring.max_seconds if is_given("max_seconds") else None,
    )
    result = bisect_program(test, searched.commit_ends(), limits, finds_all=judged.finds_all)
    _show(result, outputs, is_shown=is_shown)


def _check_outputs(place: ClusterOptions) -> None:
    """Raise UsageError if an option about times, or about another machine, is given."""
    timed = ("tolerance", "max_seconds")
    given = [f"--{name.replace('_', '-')}" for name in timed if is_given(name)]
    if given:
        raise UsageError(
            f"{given[0]} is about times, and --outputs compares the outputs of a model: leave out "
            "one of them. --outputs takes how far outputs may differ, as in --outputs 0.01."
        )
    if place.is_given:
        raise UsageError("--outputs runs on this machine: leave out --cluster.")


def _find_range(
    model: str, searched: RangeOptions, setup: Setup
) -> tuple[VersionRange, str | None]:
    """Return the versions to search, and the package of releases or None for commits."""
    if searched.commits is not None:
        from pytest_modelperf.bisect.versions import commits_between

        return commits_between(model, searched.commits), None
    from pytest_modelperf.bisect.versions import PACKAGES, releases_between

    if is_given("gateway"):
        raise UsageError(
            "--good and --bad run in environments of this machine: leave out --gateway, or compare "
            "two Pythons of your own there."
        )
    package = searched.package or PACKAGES.get(setup.engine.name)
    if package is None:
        raise UsageError(
            f"the engine {setup.engine.name} comes from a plugin: give --package with the name of "
            "the package whose releases are tried."
        )
    with shown_progress():
        found = releases_between(
            package, searched.good or "", searched.bad or "", takes_pre_releases=searched.pre
        )
    return found, package


def _show(result: Bisect, outputs: OutputOptions, *, is_shown: bool) -> None:
    from pytest_modelperf.bisect.records import BISECT
    from pytest_modelperf.bisect.report import bisect_report

    report = bisect_report(result, COMMAND_WORDING, dt.datetime.now(dt.timezone.utc))
    write_report(report, partial(BISECT.dump, result), outputs, is_shown=is_shown)
    if result.search.regressions:
        raise SystemExit(_WORSE)
