"""Two profiles to a comparison: which figures got worse, and what in the graphs explains it.

Pure. Static figures are exact, so any increase of a gated one is a regression and any decrease
an improvement; a figure that is only a lower bound on either side decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from pytest_modelperf.attribution import explain
from pytest_modelperf.baseline_records import ModelBaseline, StoredStatic
from pytest_modelperf.errors import UsageError
from pytest_modelperf.reasons import reasons_of_counts
from pytest_modelperf.records import Case, CaseProfile, Profile, StaticProfile
from pytest_modelperf.units import printable
from pytest_modelperf.verdicts import (
    CaseComparison,
    Comparison,
    LayerTypeChange,
    Metric,
    Verdict,
)


class Counted(Protocol):
    """The totals of a static profile, of today or stored."""

    @property
    def macs(self) -> int: ...
    @property
    def params(self) -> int: ...
    @property
    def elementwise_ops(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def activation_bytes(self) -> int: ...
    @property
    def peak_activation_bytes(self) -> int | None: ...
    @property
    def coverage(self) -> float: ...
    @property
    def knows_activations(self) -> bool: ...


_Reader: TypeAlias = Callable[[Counted], "int | None"]

# What a model is judged by, and what is shown beside it.
_GATED: Mapping[str, _Reader] = {
    "macs": lambda static: static.macs,
    "params": lambda static: static.params,
}
_SHOWN: Mapping[str, _Reader] = {
    "elementwise_ops": lambda static: static.elementwise_ops,
    "weight_bytes": lambda static: static.weight_bytes,
    "activation_bytes": lambda static: static.activation_bytes,
    "peak_activation_bytes": lambda static: static.peak_activation_bytes,
}
# Figures that sum over layers, and are lower bounds where a layer could not be counted.
_SUMMED = frozenset({"macs", "elementwise_ops"})


def compare_profiles(before: Profile, after: Profile) -> Comparison:
    """Every case of `before` against the same case of `after`."""
    pairs = tuple(zip(before.cases, after.cases, strict=False))
    if [case.case for case in before.cases] != [case.case for case in after.cases]:
        raise UsageError(
            f"{printable(before.model.name)} was profiled at {_case_ids(before)} and "
            f"{printable(after.model.name)} at {_case_ids(after)}: they cannot be compared. "
            "Give both the same with --batch and --dim."
        )
    return Comparison(
        before.model, after.model, tuple(compare_cases(old, new) for old, new in pairs)
    )


def _case_ids(profile: Profile) -> str:
    return ", ".join(printable(case.case.id) for case in profile.cases) or "no case"


def compare_cases(before: CaseProfile, after: CaseProfile) -> CaseComparison:
    """One case of two models."""
    metrics = static_metrics(before.static, after.static)
    found = explain(before, after)
    return CaseComparison(before.case, metrics, found.layer_types, found.reasons, found.layers)


def static_metrics(old: Counted, new: Counted) -> tuple[Metric, ...]:
    """The figures that follow from the graph; MACs and params decide, the others are shown."""
    return (
        *(_metric(name, read, old, new, gated=True) for name, read in _GATED.items()),
        *(_metric(name, read, old, new, gated=False) for name, read in _SHOWN.items()),
    )


def compare_with_baseline(before: ModelBaseline, after: Profile) -> Comparison:
    """Every case of a profile against what is stored of it; one that is not stored is new."""
    cases = []
    for now in after.cases:
        stored = before.case(now.case.id)
        if stored is None or stored.static is None:
            note = f"there is no baseline of {now.case.id}"
            cases.append(CaseComparison(now.case, (), (), notes=(note,), outcome=Verdict.NEW))
        else:
            cases.append(compare_with_stored(now.case, stored.static, now.static))
    return Comparison(before.model, after.model, tuple(cases))


def compare_with_stored(case: Case, stored: StoredStatic, now: StaticProfile) -> CaseComparison:
    """One case against what was stored of it: totals and layer types, but no graph."""
    before, after = stored.layer_types, now.layer_types
    changes = [LayerTypeChange(op, before.get(op), after.get(op)) for op in {**before, **after}]
    types = tuple(sorted(changes, key=lambda c: (-c.added_macs, -c.added_ops, c.op)))
    return CaseComparison(case, static_metrics(stored, now), types, reasons_of_counts(types))


def _metric(name: str, read: _Reader, old: Counted, new: Counted, *, gated: bool) -> Metric:
    before, after = read(old), read(new)
    complete = name not in _SUMMED or old.coverage == new.coverage == 1.0
    if name == "activation_bytes":
        complete = old.knows_activations and new.knows_activations
    if before is None or after is None or not complete:
        verdict = Verdict.INCONCLUSIVE
    elif after > before:
        verdict = Verdict.REGRESSED
    else:
        verdict = Verdict.IMPROVED if after < before else Verdict.PASSED
    return Metric(name, before, after, verdict, gated, allowed=0.0 if gated else None)
