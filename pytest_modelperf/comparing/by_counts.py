"""Compare two profiles by exact figures: counts, sizes and providers, with the graph's changes.

The size of a file is exact. But the names, notes and versions that exporters write differ by some
KB, so the size may grow by a little, unless a tolerance names it.

Static figures are exact. An increase of a gated figure beyond its tolerance, which is 0 by default,
is a regression, and such a decrease is an improvement. A figure that is only a lower bound on
either side decides nothing. Parameters decide nothing if only single-value tensors differ: some
exporters write an epsilon or an exponent that others leave out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import ModelBaseline, StoredStatic
from pytest_modelperf.comparing.attribution import explain, with_causes
from pytest_modelperf.comparing.changes import LayerTypeChange
from pytest_modelperf.comparing.figures import LAYERS_ON
from pytest_modelperf.comparing.limits import LEAST_SIZE_BYTES, SIZE, Tolerances, allowed_growth
from pytest_modelperf.comparing.reasons.graphs import (
    causes_by_counts,
    lower_bounds,
    reasons_of_counts,
)
from pytest_modelperf.comparing.records import CaseComparison, Comparison, Metric, Verdict
from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.records import Case, CaseProfile, Profile, StoredInputs

_NAME = "size_bytes"
_LAST_COUNT = "params"


def with_size(
    case: CaseComparison, before: int | None, after: int | None, tolerances: Tolerances
) -> CaseComparison:
    """Return the comparison with the sizes of both models next to its counts.

    The case is unchanged if a size is unknown (None), except for a note if a tolerance names the
    size. It is also unchanged without metrics, because then there is no side before.
    """
    if not case.metrics:
        return case
    if before is None or after is None:
        if not tolerances.names(SIZE):
            return case
        return replace(case, notes=(*case.notes, _why_unknown(before)))
    names = [metric.name for metric in case.metrics]
    place = names.index(_LAST_COUNT) + 1 if _LAST_COUNT in names else len(names)
    metric = judge_size(before, after, tolerances)
    return replace(case, metrics=(*case.metrics[:place], metric, *case.metrics[place:]))


def judge_size(before: int, after: int, tolerances: Tolerances) -> Metric:
    """Judge both sizes: worse beyond the tolerance, and better if the reverse would be worse."""
    is_named = tolerances.names(SIZE)
    share = tolerances.of_figure(SIZE)
    least = 0 if is_named else LEAST_SIZE_BYTES
    verdict = Verdict.PASSED
    if after - before > max(allowed_growth(before, share), least):
        verdict = Verdict.REGRESSED
    elif before - after > max(allowed_growth(after, share), least):
        verdict = Verdict.IMPROVED
    allowed = max(share, least / before) if before else share
    return Metric(_NAME, before, after, verdict, allowed=allowed, awaited=is_named)


def _why_unknown(before: int | None) -> str:
    if before is None:
        return (
            "the file size is not judged: the size before is not known. A baseline lacks it if "
            "external data was missing when it was recorded, or if other cases were recorded with "
            "another model since: record it again"
        )
    return "the file size is not judged: a file of external data is missing"


def provider_metrics(before: CaseProfile, after: CaseProfile) -> tuple[Metric, ...]:
    """Return the layers on each provider, if an engine has several and reports which ran.

    A provider that cannot run a layer leaves it to the last one. So one more layer on the last is a
    regression, even if the latency is the same. The numbers of the others are only shown.
    """
    old, new = _layers_by_provider(before), _layers_by_provider(after)
    listed = _several(before, after)
    if listed is None or not old or not new:
        return ()
    last = listed[-1]
    return tuple(
        Metric(
            f"{LAYERS_ON}{provider}",
            old[provider],
            new[provider],
            _judge_providers(old[provider], new[provider]) if provider == last else Verdict.PASSED,
            gated=provider == last,
            allowed=0.0 if provider == last else None,
        )
        for provider in sorted({*old, *new}, key=lambda name: (name != last, name))
    )


def uncounted_providers(before: CaseProfile, after: CaseProfile) -> tuple[str, ...]:
    """Return a note if an engine has several providers but does not report those of its kernels."""
    if _several(before, after) is None or provider_metrics(before, after):
        return ()
    return (
        "layers on each provider are not judged: the engine reported no provider of its kernels",
    )


def _several(before: CaseProfile, after: CaseProfile) -> tuple[str, ...] | None:
    """Return the providers of the side that has more, or None if both have only one."""
    listed = [side.measured.engine.providers for side in (before, after) if side.measured]
    longest = max(listed, key=len, default=())
    return longest if len(longest) > 1 else None


def _layers_by_provider(profile: CaseProfile) -> Counter[str]:
    """Return how many layers ran on each provider. Each layer of a shared kernel counts."""
    counts: Counter[str] = Counter()
    times = () if profile.measured is None else profile.measured.layer_times
    for time in times or ():
        if time.layer is not None and time.provider is not None:
            counts[time.provider] += 1 + len(time.fused)
    return counts


def _judge_providers(before: int, after: int) -> Verdict:
    if before == after:
        return Verdict.PASSED
    return Verdict.REGRESSED if after > before else Verdict.IMPROVED


# The totals of a graph, from this run or stored.
CountTotals: TypeAlias = StoredStatic | StaticProfile


class SideCounts(Struct, frozen=True):
    """The counts of one side by its graph alone and by a run. Only the same kind is compared."""

    graph: CountTotals
    observed: CountTotals | None

    @classmethod
    def of(cls, static: StaticProfile) -> SideCounts:
        return cls(static.from_graph, static.observed)


# The figures that are judged, and those that are only shown.
_GATED = ("macs", "params")
_SHOWN = ("elementwise_ops", "weight_bytes", "activation_bytes", "peak_activation_bytes")
# Sums over layers are lower bounds if a layer could not be counted.
_SUMMED = frozenset({"macs", "elementwise_ops"})


EXACT = Tolerances()
_VALUES_DIFFER = (
    "the counts of the runs differ, but those of the graphs do not: values decide a branch, a trip "
    "count or a shape"
)


def compare_cases(
    before: CaseProfile, after: CaseProfile, tolerances: Tolerances = EXACT
) -> CaseComparison:
    counts = SideCounts.of(before.static), SideCounts.of(after.static)
    metrics = _static_metrics(*counts, tolerances)
    found = explain(before, after)
    reasons = (*found.reasons, *doubts_of(metrics))
    return CaseComparison(
        before.case, with_causes(metrics, found.causes), found.layer_types, reasons, found.layers
    )


def _static_metrics(old: SideCounts, new: SideCounts, tolerances: Tolerances) -> tuple[Metric, ...]:
    only_scalars_differ = _only_scalars_differ(old, new)
    allowed = {
        name: None if name == "params" and only_scalars_differ else tolerances.of_count(name)
        for name in _GATED
    }
    return tuple(_metric(name, old, new, allowed.get(name)) for name in (*_GATED, *_SHOWN))


def _only_scalars_differ(old: SideCounts, new: SideCounts) -> bool:
    before, after = old.graph, new.graph
    if before.params == after.params:
        return False
    if before.scalar_params is None or after.scalar_params is None:
        return False
    return before.params - before.scalar_params == after.params - after.scalar_params


def compare_with_baseline(
    before: ModelBaseline, after: Profile, given: StoredInputs, tolerances: Tolerances
) -> Comparison:
    """Compare every case of a profile with its stored case.

    `given` are the inputs of the profile. A case is new if it is not stored, or if it was recorded
    at other dimensions or on other inputs.
    """
    cases = []
    for now in after.cases:
        stored = before.case(now.case.id)
        reason = f"there is no baseline of {now.case.id}"
        if stored is not None:
            dims = dict(now.case.given_dims or ())
            reason = stored.other_dims(dims) or stored.other_inputs(given) or ""
        if stored is None or reason:
            cases.append(CaseComparison(now.case, (), (), (reason,), outcome=Verdict.NEW))
            continue
        is_same = stored.inputs == given and stored.model_sha256 == after.model.sha256 is not None
        known = SideCounts(stored.static, stored.observed)
        found = compare_with_stored(now.case, known, now.static, tolerances, is_same=is_same)
        sizes = before.size_of(stored.id), after.model.total_bytes
        cases.append(with_size(found, *sizes, tolerances))
    return Comparison(before.model, after.model, tuple(cases))


def compare_with_stored(
    case: Case,
    known: SideCounts,
    now: StaticProfile,
    tolerances: Tolerances = EXACT,
    *,
    is_same: bool = False,
) -> CaseComparison:
    """Compare one case with its stored totals and layer types. No graph is stored.

    If `is_same`, exactly this case was recorded, so the counts that a run completed then are still
    valid.
    """
    new = SideCounts.of(now)
    if is_same and known.observed is not None:
        new = replace(new, observed=known.observed)
    before, after = known.graph.layer_types, new.graph.layer_types
    changes = [LayerTypeChange(op, before.get(op), after.get(op)) for op in {**before, **after}]
    types = tuple(sorted(changes, key=lambda c: (-c.added_macs, -c.added_ops, c.op)))
    metrics = _static_metrics(known, new, tolerances)
    reasons = (*reasons_of_counts(types), *doubts_of(metrics))
    if not _are_whole(known.observed, new.observed):
        reasons += lower_bounds(known.graph.uncounted_ops, new.graph.uncounted_ops)
    return CaseComparison(case, with_causes(metrics, causes_by_counts(types)), types, reasons)


class _Change(Struct, frozen=True):
    """One figure on both sides, by one kind of counts.

    If `is_same_part`, the figure and the counted share of the layers are equal on both sides.
    """

    before: int | None
    after: int | None
    verdict: Verdict
    is_same_part: bool


def _metric(name: str, old: SideCounts, new: SideCounts, allowed: float | None) -> Metric:
    """Return a figure of both sides. It is only shown, not judged, if `allowed` is None."""
    share = allowed or 0.0
    by_graph = _change(name, old.graph, new.graph, share)
    by_run = None
    if old.observed is not None and new.observed is not None:
        by_run = _change(name, old.observed, new.observed, share)
    found = by_graph if by_run is None else _judge(by_graph, by_run)
    metric = Metric(
        name, found.before, found.after, found.verdict, gated=allowed is not None, allowed=allowed
    )
    if metric.gated and metric.is_open and _are_whole(old.observed, new.observed):
        return replace(metric, reason=_VALUES_DIFFER)
    return metric


def _change(name: str, old: CountTotals, new: CountTotals, share: float) -> _Change:
    before: int | None = getattr(old, name)
    after: int | None = getattr(new, name)
    complete = name not in _SUMMED or old.coverage == new.coverage == 1.0
    if name == "activation_bytes":
        complete = old.knows_activations and new.knows_activations
    if before is None or after is None or not complete:
        verdict = Verdict.INCONCLUSIVE
    elif after - before > allowed_growth(before, share):
        verdict = Verdict.REGRESSED
    else:
        is_better = before - after > allowed_growth(after, share)
        verdict = Verdict.IMPROVED if is_better else Verdict.PASSED
    return _Change(before, after, verdict, before == after and old.coverage == new.coverage)


def _judge(by_graph: _Change, by_run: _Change) -> _Change:
    """Combine the changes by both kinds of counts.

    The graphs decide, because they hold for all inputs. If they leave the verdict open, the runs
    decide, unless the counts of the graphs are equal: then the values of the inputs made the
    difference.
    """
    if by_run.verdict is Verdict.INCONCLUSIVE:
        return by_graph
    if by_graph.verdict is Verdict.INCONCLUSIVE:
        if by_run.verdict is Verdict.PASSED or not by_graph.is_same_part:
            return by_run
    elif by_graph.verdict in {by_run.verdict, Verdict.REGRESSED} or (
        by_run.verdict is Verdict.PASSED
    ):
        return by_graph
    return replace(by_run, verdict=Verdict.INCONCLUSIVE)


def doubts_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return what leaves counts open."""
    found = (metric.reason for metric in metrics if metric.is_open)
    return tuple(dict.fromkeys(reason for reason in found if reason is not None))


def _are_whole(*counts: CountTotals | None) -> bool:
    return all(each is not None and each.coverage == 1.0 for each in counts)
