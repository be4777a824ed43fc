"""A case recorded as the new baseline; nothing is written before the end of the run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytest_modelperf.baselines.recording import rebuilt_twin, record_case, record_counts
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.prepare import prepare
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.testing.budget_figures import measure_for_budgets
from pytest_modelperf.testing.case_check import BoundCheck, CaseResult
from pytest_modelperf.testing.sketching import sketch_outputs


def record_check(bound: BoundCheck, *, runs_for_budgets: bool) -> CaseResult:
    """The case with its recording, as a new case, and with a run that decides its budgets."""
    context, setup, name = bound.context, bound.check.setup, str(bound.check.baseline)
    new = CaseComparison(bound.case, (), (), outcome=Verdict.NEW)
    if context.is_static:
        recording = record_counts(name, bound.model, context.today, bound.place)
        return CaseResult(new, bound.counted, recording)
    model, sketch = prepare(bound.model), None
    try:
        with rebuilt_twin(bound.file) as twin:
            recorded = record_case(name, model, twin, setup, context.today, bound.place)
        if bound.check.sketches_outputs:
            sketch = sketch_outputs(model, setup, bound.place)
        # The processes of a recording are short, and budgets take the time that they need.
        profile = measure_for_budgets(bound, is_new=True) if runs_for_budgets else None
    except MeasureError as error:
        return CaseResult(replace(new, failure=error.worded(setup.wording)), bound.counted)
    recording = recorded.recording
    if sketch is not None:
        cases = tuple(replace(case, outputs=sketch) for case in recording.cases)
        recording = replace(recording, cases=cases)
    return CaseResult(new, profile or _merge(recorded.profiles), recording)


def _merge(profiles: Sequence[CaseProfile]) -> CaseProfile:
    """The measurements of one case by several processes as one profile."""
    known = [profile.measured for profile in profiles if profile.measured is not None]
    rounds = tuple(made for measured in known for made in measured.rounds)
    first = profiles[0]
    if first.measured is None:
        return first
    latency = summarize([made.times_ns for made in rounds], first.case.batch_size)
    return replace(first, measured=replace(first.measured, rounds=rounds, latency=latency))
