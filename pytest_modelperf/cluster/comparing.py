"""Two models compared at one case on one machine of a cluster, and all cases together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.cluster.cluster import Cluster
from pytest_modelperf.cluster.contents import read_content
from pytest_modelperf.cluster.records import Job, JobContext, ModelContent
from pytest_modelperf.cluster.requests import split_request
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.compare import compare_profiles, compare_with_recorded
from pytest_modelperf.comparing.by_duet import Details, compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.environments.making import make_environment
from pytest_modelperf.errors import ClusterError, MeasureError
from pytest_modelperf.graph.twin import write_twin_bytes
from pytest_modelperf.profiler.hookspecs import Extensions, load_extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import machine_of
from pytest_modelperf.profiler.request import ProfileRequest, profile_both, with_phases_of
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.shown.conditions import describe_machine_line
from pytest_modelperf.profiler.worker.gateway import interpreter_spec, is_local
from pytest_modelperf.profiler.worker.working_folder import working_folder


class ClusterSide(Struct, frozen=True):
    """A side of a comparison: the model by its content, and how it runs.

    With `requirements` it runs in an environment of the machine, which has these packages.
    """

    content: ModelContent
    setup: Setup
    requirements: tuple[str, ...] = ()

    def to_side(self, context: JobContext) -> Side:
        setup = self.setup
        if self.requirements:
            made = make_environment(self.requirements, on_progress=context.tell)
            setup = replace(setup, spec=interpreter_spec(str(made.python), "the environment"))
        return Side(context.paths[self.content.digest], setup)


class ComparisonOrder(Struct, frozen=True, kw_only=True):
    """One case to compare. The level of the gate is what this case has of that of the run.

    `baseline` is what is stored of the model before, whose twin then runs in its place.
    """

    before: ClusterSide
    after: ClusterSide
    case: ProfileRequest
    gate: Gate
    baseline: Baseline | None
    details: Details
    plugins: tuple[str, ...]


def comparison_jobs(  # noqa: PLR0913  # two sides, what of them, by which rule, with what, where
    before: ClusterSide,
    after: ClusterSide,
    request: ProfileRequest,
    gate: Gate,
    *,
    baseline: Baseline | None = None,
    details: Details = Details.ALWAYS,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> tuple[Job, ...]:
    """A job for each case of a request; all of them share the level of the gate."""
    cases = split_request(request)
    orders = [
        ComparisonOrder(
            before=before,
            after=after,
            case=case,
            gate=gate.divided(len(cases)),
            baseline=baseline,
            details=details,
            plugins=tuple(plugins),
        )
        for case in cases
    ]
    contents = {each.digest: each for each in (before.content, after.content)}
    return tuple(
        Job(
            name=f"{after.content.name} case {number} of {len(cases)}",
            work=compare_case_models,
            request=to_text(order),
            models=tuple(contents.values()),
            machines=tuple(machines),
            cores=max(order.case.cores),
        )
        for number, order in enumerate(orders, 1)
    )


def compare_case_models(request: str, context: JobContext) -> str:
    """The comparison of two models at one case, made here: the work of a job."""
    order = from_text(request, ComparisonOrder)
    extensions = load_extensions(order.plugins)
    before, after = (side.to_side(context) for side in (order.before, order.after))
    with ExitStack() as stack:
        if order.baseline is not None:
            key = machine_of(after.setup).key
            stored = baseline_side(order.baseline, key, after, order.case, extensions)
            before = replace(stack.enter_context(stored), setup=before.setup)
        comparison = compare_models(
            before, after, order.case, order.gate, extensions, context.watch, order.details
        )
    cases = tuple(_with_machine(each, after.setup) for each in comparison.cases)
    return to_text(replace(comparison, cases=cases))


def compare_on_cluster(  # noqa: PLR0913  # two sides, what of them, by which rule, with what, where
    cluster: Cluster,
    before: Side,
    after: Side,
    request: ProfileRequest,
    gate: Gate,
    *,
    baseline: Baseline | None,
    plugins: Sequence[str],
    machines: Sequence[str],
) -> Comparison:
    """Every case of two models, each case on one of the machines.

    A baseline takes the place of the model before. A case that no machine compared says why, and
    keeps what its counts say. A wrong request or model raises an error.
    """
    extensions = load_extensions(plugins)
    counted = (
        compare_profiles(
            *profile_both(before.source, after.source, request, extensions.operators),
            gate.tolerances,
        )
        if baseline is None
        else _count_with_baseline(baseline, after, request, gate.tolerances, extensions)
    )
    now = read_content(after.source)
    then = now if baseline is not None else read_content(before.source)
    jobs = comparison_jobs(
        ClusterSide(then, before.setup),
        ClusterSide(now, after.setup),
        with_phases_of(request, (each.case for each in counted.cases)),
        gate,
        baseline=baseline,
        plugins=plugins,
        machines=machines,
    )
    futures = [cluster.submit(job) for job in jobs]
    cases: list[CaseComparison] = []
    engines: list[str] = []
    for case, future in zip(counted.cases, futures, strict=True):
        try:
            found = from_text(future.result(), Comparison)
        except (ClusterError, MeasureError) as error:
            cases.append(replace(case, failure=error.worded(after.setup.wording)))
            continue
        cases += found.cases
        engines += found.engines
    old = counted.before if baseline is not None else replace(counted.before, sha256=then.digest)
    return Comparison(
        old,
        replace(counted.after, sha256=now.digest),
        tuple(cases),
        tolerance=gate.tolerance,
        confidence=gate.divided(len(jobs)).confidence,
        engines=tuple(dict.fromkeys(engines)),
    )


def _count_with_baseline(
    baseline: Baseline,
    after: Side,
    request: ProfileRequest,
    tolerances: Tolerances,
    extensions: Extensions,
) -> Comparison:
    """The counts of the model now and those stored.

    No job of one case would find an error that concerns several, so the twin is counted here too.
    """
    if baseline.twin is not None:
        with working_folder("twin") as folder:
            twin = folder / "stored.onnx"
            write_twin_bytes(baseline.twin, twin)
            profile_both(twin, after.source, request, extensions.operators)
    return compare_with_recorded(baseline.model, after.source, request, extensions, tolerances)


def _with_machine(case: CaseComparison, setup: Setup) -> CaseComparison:
    """The case with a note of the machine that it ran on: others may run elsewhere."""
    if case.rounds is None or not is_local(setup.spec):
        return case
    return replace(case, notes=(*case.notes, f"run on {describe_machine_line(describe_machine())}"))
