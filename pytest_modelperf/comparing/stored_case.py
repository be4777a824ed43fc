"""A case held against what a baseline stored of it, before anything runs."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.baselines.recorded_twin import (
    has_lost_its_twin,
    require_recorded_counts,
    require_recorded_structure,
)
from pytest_modelperf.baselines.records import StoredCase
from pytest_modelperf.comparing.by_counts import SideCounts, compare_cases, compare_with_stored
from pytest_modelperf.comparing.engine_change import installed_builds
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.judged_case import JudgedCase
from pytest_modelperf.comparing.paired_case import PairedCase
from pytest_modelperf.comparing.records import CaseComparison, Verdict
from pytest_modelperf.comparing.sides import Side
from pytest_modelperf.comparing.sizes import with_size
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.prepare import Model, PairOf
from pytest_modelperf.profiler.records import Case, CaseProfile
from pytest_modelperf.profiler.request import size_on_disk
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.gateway import is_this_python
from pytest_modelperf.text.escaping import printable

_NOTHING_CHANGED = "the same model on the same engine with the same options: nothing to judge"


def settle(
    before: Side, after: Model, setup: Setup, gate: Gate, place: CasePlace
) -> JudgedCase | None:
    """The verdict that needs only the baseline and the present model; None if it needs the twin.

    Rebuilding a twin takes longer than all the rest, so this works without it. BaselineError where
    the digest is that of the model, and the structure or the counts are not, or those of the twin.
    """
    if before.baseline is None:
        return None
    stored = before.baseline.case(place.case.id)
    missing = find_missing(place.case, stored, after)
    if stored is None or missing is not None:
        return missing
    require_recorded_structure(before.baseline.model.name, stored, after.file, place.tell)
    is_same = before.setup == setup and stored.inputs == after.given_inputs
    if not (is_same and _is_recorded(stored, after, setup, place)):
        return None
    require_recorded_counts(before.baseline.model.name, stored, after.static.from_graph)
    if has_lost_its_twin(before.baseline, before.twin, stored):
        # A digest alone is the word of one file.
        return None
    known = SideCounts(stored.static, stored.observed)
    static = compare_with_stored(place.case, known, after.static, gate.tolerances, is_same=True)
    sizes = before.baseline.size_of(stored.id), size_on_disk(after.file)
    static = with_size(static, *sizes, gate.tolerances)
    return JudgedCase(as_unchanged(static), observed=stored.observed)


def settle_equal(pair: PairOf[Model], gate: Gate, place: CasePlace) -> JudgedCase | None:
    """The case unchanged because both sides are the same model, weights included, run alike."""
    old, new = pair.before, pair.after
    if not pair.shares_a_worker or old.file.sha256(place.tell) != new.file.sha256(place.tell):
        return None
    before, after = (CaseProfile(place.case, each.static) for each in (old, new))
    counted = as_unchanged(compare_cases(before, after, gate.tolerances))
    if gate.judges_starts:
        sizes = size_on_disk(old.file), size_on_disk(new.file)
        counted = with_size(counted, *sizes, gate.tolerances)
    return JudgedCase(counted)


def find_missing(case: Case, stored: StoredCase | None, model: Model) -> JudgedCase | None:
    """A new case with the reason why nothing stored fits it; None where something does."""
    reason = _missing(case.id, stored, model)
    if not reason:
        return None
    return JudgedCase(CaseComparison(case, (), (), (reason,), outcome=Verdict.NEW))


def cannot_run_apart(before: Side, now: Model, setup: Setup, case: Case) -> str | None:
    """Why a baseline cannot run in another way than the model now; None where it can."""
    if before.baseline is None or before.setup == setup:
        return None
    if _missing(case.id, before.baseline.case(case.id), now):
        return None
    refusal = before.baseline.twin_refusal(case.id)
    if refusal is None:
        return None
    return f"the baseline of {printable(case.id)} cannot run in a Python of its own: {refusal}"


def _missing(case_id: str, stored: StoredCase | None, model: Model) -> str:
    """Why nothing stored can be compared with a case; empty where something can."""
    if stored is None:
        return f"there is no baseline of {case_id}"
    other = stored.other_dims(model.binding.own_dims) or stored.other_inputs(model.given_inputs)
    return other or _other_generation(stored, model)


def _other_generation(stored: StoredCase, model: Model) -> str:
    """Why a prefill cannot be compared with the recorded one; empty if it can.

    Its id does not tell how much is generated, on which the size of a static cache depends.
    """
    known, phase = stored.generation, model.bound.phase
    if known is None or phase is None:
        return ""
    recorded = replace(phase, phase=replace(phase.phase, generate=known.generate))
    if recorded.inputs_at(0).shapes != phase.inputs_at(0).shapes:
        return (
            f"the baseline of {stored.id} was recorded with a cache for {known.generate} generated "
            f"tokens. Now: {phase.phase.generate}. Give the same or record it anew"
        )
    return ""


def _is_recorded(stored: StoredCase, model: Model, setup: Setup, place: CasePlace) -> bool:
    """Whether a case was recorded of the same model on the same engine, with the same options."""
    # The digest is last, because it may read gigabytes.
    return has_recorded_engine(stored, setup) and (
        stored.model_sha256 == model.file.sha256(place.tell)
    )


def has_recorded_engine(stored: StoredCase, setup: Setup) -> bool:
    """Whether a case runs on the engine that it was recorded on: same version, same options.

    Where several builds of an engine are installed, nobody knows which of them is imported.
    """
    engine = setup.engine.name
    return (
        stored.engine == engine
        and list(installed_builds(engine).values()) == [stored.engine_version]
        and is_this_python(setup.spec)
        # The options that were not given are defaults, which follow from the version.
        and stored.options == dict(setup.options)
    )


def compare_counts(asked: PairedCase) -> CaseComparison:
    """The counts of both sides, as far as they are known by now; a baseline has them stored."""
    stored, case, now = asked.stored, asked.place.case, asked.pair.after
    tolerances = asked.gate.tolerances
    if stored is not None:
        # Other values may give other shapes.
        observed = stored.observed if stored.inputs == now.given else None
        known = SideCounts(stored.static, observed)
        return compare_with_stored(case, known, now.static, tolerances)
    then = CaseProfile(case, asked.pair.before.static)
    return compare_cases(then, CaseProfile(case, now.static), tolerances)


def as_unchanged(counted: CaseComparison) -> CaseComparison:
    """The comparison of a case that need not run."""
    return replace(counted, outcome=Verdict.UNCHANGED, notes=(_NOTHING_CHANGED,))
