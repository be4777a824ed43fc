"""Two profiles to a comparison: which figures got worse, and what in the graphs explains it.

Pure. Static figures are exact, so any increase of a gated one is a regression and any decrease
an improvement; a figure that is only a lower bound on either side decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pytest_modelperf.attribution import explain
from pytest_modelperf.errors import UsageError
from pytest_modelperf.records import CaseProfile, Profile, StaticProfile
from pytest_modelperf.verdicts import CaseComparison, Comparison, Metric, Verdict

_Reader: TypeAlias = Callable[[StaticProfile], "int | None"]

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
            f"{before.model.name} was profiled at {_case_ids(before)} and {after.model.name} at "
            f"{_case_ids(after)}: they cannot be compared. "
            "Give both the same with --batch and --dim."
        )
    return Comparison(
        before.model, after.model, tuple(compare_cases(old, new) for old, new in pairs)
    )


def _case_ids(profile: Profile) -> str:
    return ", ".join(case.case.id for case in profile.cases) or "no case"


def compare_cases(before: CaseProfile, after: CaseProfile) -> CaseComparison:
    """One case of two models."""
    old, new = before.static, after.static
    metrics = [_metric(name, read, old, new, gated=True) for name, read in _GATED.items()]
    metrics += [_metric(name, read, old, new, gated=False) for name, read in _SHOWN.items()]
    found = explain(before, after)
    return CaseComparison(
        before.case.id, tuple(metrics), found.layer_types, found.reasons, found.layers
    )


def _metric(
    name: str, read: _Reader, old: StaticProfile, new: StaticProfile, *, gated: bool
) -> Metric:
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
