"""A request to compare two models, by a duet of each case or by exact figures without a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.comparing.by_counts import (
    EXACT,
    compare_cases,
    compare_with_baseline,
    with_size,
)
from pytest_modelperf.comparing.by_running import Details, compare_models
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.limits import Tolerances
from pytest_modelperf.comparing.records import CaseComparison, Comparison
from pytest_modelperf.comparing.sides import Side, baseline_side
from pytest_modelperf.errors import ModelPerfError, Remedy, UsageError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.twin import write_twin_bytes
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.model_in_worker import Watch, machine_of
from pytest_modelperf.profiler.model_request import ModelRun, Parts, telling
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    profile_both,
    profile_model,
    with_phases_of,
)
from pytest_modelperf.profiler.shown.facts import describe_machine_line
from pytest_modelperf.profiler.worker.gateway import interpreter_spec, is_local
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.text.escaping import printable


class CompareRequest(Struct, frozen=True, kw_only=True):
    """A request to compare every case of two models by one gate.

    `baseline` is what is stored of the model before. Then its twin runs, and `before` has only the
    setup. With `names_machine`, each case has a note of the machine that it ran on,
    because it is a part of a larger request.
    """

    before: ModelRun
    after: ModelRun
    request: ProfileRequest
    gate: Gate
    baseline: Baseline | None = None
    details: Details = Details.ALWAYS
    names_machine: bool = False

    def run(self, extensions: Extensions, watch: Watch = lambda _: None) -> Comparison:
        """Make the comparison by duets, in this process."""
        with self.opened_sides(extensions, watch) as (before, after):
            comparison = compare_models(
                before, after, self.request, self.gate, extensions, watch, self.details
            )
        if not self.names_machine or not is_local(after.setup.spec):
            return comparison
        return replace(comparison, cases=tuple(map(_with_machine, comparison.cases)))

    @contextmanager
    def opened_sides(self, extensions: Extensions, watch: Watch) -> Iterator[tuple[Side, Side]]:
        """Open both sides. The files of a baseline exist until the context ends."""
        before, after = (_side_of(model, watch) for model in (self.before, self.after))
        if self.baseline is None:
            yield before, after
            return
        key = machine_of(after.setup).key
        with baseline_side(self.baseline, key, after, self.request, extensions) as stored:
            yield replace(stored, setup=before.setup), after

    def count(self, extensions: Extensions) -> Comparison:
        """Compare exact figures, without running anything."""
        after, request, tolerances = self.after.source, self.request, self.gate.tolerances
        if self.baseline is None:
            both = profile_both(self.before.source, after, request, extensions.operators)
            return compare_profiles(*both, tolerances)
        profile = profile_model(after, request, extensions.operators)
        given = Model.load(after, request, extensions).given_inputs
        return compare_with_baseline(self.baseline.model, profile, given, tolerances)

    def split(self, extensions: Extensions) -> Parts[Comparison]:
        """Split the request into cases, each with its share of the level.

        A case that no machine compared keeps its counts.
        """
        after = self.after.source
        if self.baseline is not None and self.baseline.twin is not None:
            # No single part finds an error that concerns several cases, so the twin is also counted
            # here.
            with working_folder("twin") as folder:
                twin = folder / "stored.onnx"
                write_twin_bytes(self.baseline.twin, twin)
                profile_both(twin, after, self.request, extensions.operators)
        counted = self.count(extensions)
        now = replace(counted.after, sha256=open_model(after).sha256())
        old = counted.before
        if self.baseline is None:
            old = replace(old, sha256=open_model(self.before.source).sha256())
        cases = with_phases_of(self.request, (each.case for each in counted.cases)).split()
        gate = self.gate.divided(len(cases))
        parts = tuple(
            (
                f"{now.name} case {number} of {len(cases)}",
                replace(self, request=case, gate=gate, names_machine=True),
            )
            for number, case in enumerate(cases, 1)
        )
        counted = replace(
            counted, before=old, after=now, tolerance=gate.tolerance, confidence=gate.confidence
        )
        return Parts(parts, Comparison, partial(self._join, counted))

    def _join(
        self, counted: Comparison, found: Sequence[Comparison | ModelPerfError]
    ) -> Comparison:
        cases: list[CaseComparison] = []
        engines: list[str] = []
        for case, each in zip(counted.cases, found, strict=True):
            if isinstance(each, ModelPerfError):
                cases.append(replace(case, failure=each.worded(self.after.setup.wording)))
            else:
                cases += each.cases
                engines += each.engines
        return replace(counted, cases=tuple(cases), engines=tuple(dict.fromkeys(engines)))


def _side_of(model: ModelRun, watch: Watch) -> Side:
    setup = model.setup
    if model.requirements:
        # Imported here, because few comparisons need it.
        from pytest_modelperf.environments.store import make_environment

        made = make_environment(model.requirements, on_progress=telling(watch))
        setup = replace(setup, spec=interpreter_spec(str(made.python), "the environment"))
    return Side(model.source, setup)


def _with_machine(case: CaseComparison) -> CaseComparison:
    if case.rounds is None:
        return case
    return replace(case, notes=(*case.notes, f"run on {describe_machine_line(describe_machine())}"))


def compare_profiles(before: Profile, after: Profile, tolerances: Tolerances = EXACT) -> Comparison:
    """Compare every case of `before` with the same case of `after`."""
    pairs = tuple(zip(before.cases, after.cases, strict=False))
    if [case.case.id for case in before.cases] != [case.case.id for case in after.cases]:
        raise UsageError(
            f"{printable(before.model.name)} was profiled at {_case_ids(before)} and "
            f"{printable(after.model.name)} at {_case_ids(after)}: they cannot be compared.",
            Remedy("Give both the same with {batch} and {dims}."),
        )
    sizes = before.model.total_bytes, after.model.total_bytes
    return Comparison(
        before.model,
        after.model,
        tuple(
            with_size(compare_cases(old, new, tolerances), *sizes, tolerances) for old, new in pairs
        ),
    )


def _case_ids(profile: Profile) -> str:
    return ", ".join(printable(case.case.id) for case in profile.cases) or "no case"
