"""Turn the duets of a what-if into levels on one scale, and make estimates between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import OutputChange
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.measurements import EngineFacts, RowKind
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.shown.facts import noise_of
from pytest_modelperf.stats.records import Ratio
from pytest_modelperf.whatif.records import (
    BASELINE,
    SHORTEST_MS,
    WAITING,
    Level,
    Variant,
    VariantKind,
)

_NS_PER_MS = 1e6
# A speedup below this would not justify pruning a model.
_NO_GAIN = 1.1
# The names of precisions in options, and as layers have them.
_PRECISIONS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_OVERHEAD = RowKind.OVERHEAD.value
_OUTSIDE_KERNELS = frozenset(kind.value for kind in RowKind if kind.is_outside_kernels)


class VariantResult(Struct, frozen=True, kw_only=True):
    """The duet of a variant with the unchanged model, or the reason for none."""

    variant: Variant
    before: CaseProfile | None = None
    after: CaseProfile | None = None
    # The variant's time divided by the unchanged model's time.
    ratio: Ratio | None = None
    size_bytes: int | None = None
    zeros: float | None = None
    outputs: tuple[OutputChange, ...] = ()
    rounds: int | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None


class CaseLevels(Struct, frozen=True):
    """The levels of a case, and the profile of the unchanged model from its most typical duet."""

    baseline: CaseProfile
    levels: tuple[Level, ...]


def check_variants(variants: Sequence[Variant], estimates: Sequence[float]) -> None:
    """Raise a UsageError if a level cannot be made, or an estimate is not between two."""
    if not variants:
        raise UsageError(
            "there is no variant to try: give shares of weights or channels to prune, a "
            "quantization or a precision."
        )
    for variant in variants:
        _check_share(variant)
    pruned = (v.level for v in variants if v.kind is VariantKind.PRUNED)
    measured = [share for share in pruned if share is not None]
    if estimates and not measured:
        raise UsageError(
            "an estimate needs measured levels of pruning: give some to prune, such as 0.5 and 0.9."
        )
    for share in estimates:
        if not 0.0 <= share <= max(measured):
            raise UsageError(
                f"an estimate at {share:g} would not be between two levels of pruning: they are "
                f"measured from 0 to {max(measured):g}. Add a pruning beyond it."
            )
        if share in {0.0, *measured}:
            raise UsageError(f"{share:g} is measured: leave it out of the estimates.")


def _check_share(variant: Variant) -> None:
    share = variant.level
    if share is None:
        return
    is_pruned = variant.kind is VariantKind.PRUNED
    if not 0.0 <= share < 1.0 or (share == 0.0 and not is_pruned):
        least = "0 or more" if is_pruned else "above 0"
        raise UsageError(
            f"{variant.title}: a share is {least} and below 1, such as 0.5; not {share:g}."
        )


def make_levels(
    baseline: CaseProfile,
    size_bytes: int | None,
    zeros: float | None,
    results: Sequence[VariantResult],
    estimates: Sequence[float] = (),
) -> CaseLevels:
    """Return the levels: the unchanged model, then variants and estimates, pruned ones by share.

    The time of the unchanged model is the median over all duets. The time of a variant is this
    median times the ratio in its own duet, so changes of the machine between duets cancel out.
    """
    measured = [each for each in results if each.before is not None and each.ratio is not None]
    ms = None
    if measured:
        ms = statistics.median(_median_ms(each.before) for each in measured)
        typical = min(measured, key=lambda each: abs(_median_ms(each.before) - ms))
        assert typical.before is not None  # noqa: S101  # for mypy
        baseline = typical.before
    first = _level_as_it_is(baseline, ms, size_bytes, zeros)
    levels = [_level_of(each, first) for each in results]
    pruned = [level for level in levels if _share_of(level) is not None]
    known = [first, *(level for level in pruned if level.ms is not None)]
    pruned += [estimate_level(known, share) for share in estimates]
    pruned.sort(key=lambda level: _share_of(level) or 0.0)
    others = [level for level in levels if _share_of(level) is None]
    return CaseLevels(baseline, (first, *pruned, *others))


def _share_of(level: Level) -> float | None:
    variant = level.variant
    is_pruned = variant is not None and variant.kind is VariantKind.PRUNED
    return variant.level if variant is not None and is_pruned else None


def _median_ms(profile: CaseProfile | None) -> float:
    return 0.0 if profile is None else profile.latency.median_ns / _NS_PER_MS


def _level_as_it_is(
    profile: CaseProfile, ms: float | None, size_bytes: int | None, zeros: float | None
) -> Level:
    counted = profile.counted
    level = Level(
        title=BASELINE,
        ms=ms,
        macs=None if counted is None else counted.macs,
        params=None if counted is None else counted.params,
        size_bytes=size_bytes,
        zeros=zeros,
    )
    if ms is None:
        return level
    scale = _scale_of(profile, ms)
    types = _times_by_type(profile, scale)
    if types.pop(WAITING, None) is not None:
        waited = ms - sum(types.values())
        types |= {WAITING: waited} if waited >= SHORTEST_MS else {}
    return replace(
        level,
        layer_types=types,
        layers={
            row.static.id: row.ms * scale
            for row in profile.layers
            if row.static is not None and row.ms is not None
        },
        half_widths={
            row.static.id: row.ms * scale * row.half_width
            for row in profile.layers
            if row.static is not None and row.ms is not None and row.half_width is not None
        },
        outside=tuple(_ran_outside(profile)),
    )


def _scale_of(profile: CaseProfile, ms: float) -> float:
    """Return the factor from the times of a duet to those of the levels."""
    # If other processes disturbed the duet, its layers keep their undisturbed times.
    types = _times_by_type(profile, 1.0)
    if types.pop(WAITING, None) is None:
        return ms / _median_ms(profile)
    return min(1.0, ms / sum(types.values()))


def _level_of(each: VariantResult, first: Level) -> Level:
    level = Level(
        title=each.variant.title,
        variant=each.variant,
        size_bytes=each.size_bytes,
        zeros=each.zeros,
        notes=each.notes,
        failure=each.failure,
    )
    before, after, ratio = each.before, each.after, each.ratio
    if before is None or after is None or ratio is None or first.ms is None:
        return level
    ms = first.ms * ratio.value
    differences = Differences.between(before, after)
    times = _times_on_scale(differences, first, ms)
    counted = after.counted
    return replace(
        level,
        ms=ms,
        speedup=inverted(ratio),
        macs=None if counted is None else counted.macs,
        params=None if counted is None else counted.params,
        layer_types=times.by_type,
        layers=times.by_layer,
        half_widths=times.half_widths,
        outside=_outside(differences),
        outputs=each.outputs,
        rounds=each.rounds,
    )


def inverted(ratio: Ratio) -> Ratio:
    low = None if not ratio.high else 1.0 / ratio.high
    high = None if not ratio.low else 1.0 / ratio.low
    return Ratio(1.0 / ratio.value, low, high)


def _times_by_type(profile: CaseProfile, scale: float) -> dict[str, float]:
    return {op: kind.ms * scale for op, kind in profile.layer_types.items() if kind.ms is not None}


class _Times(Struct, frozen=True):
    """The times of a variant in milliseconds, by operator and by layer of the unchanged model."""

    by_type: Mapping[str, float]
    # A layer that only the variant has is included under its own id.
    by_layer: Mapping[str, float]
    # The half widths of the layers' times.
    half_widths: Mapping[str, float]


def _times_on_scale(differences: Differences, first: Level, ms: float) -> _Times:
    """Return the layer times of a variant on the scale of `first`, which add up to `ms`."""
    # The layers of both sides were timed in turn, so the gain of a layer is the ratio of its two
    # times in the duet. A layer that only the variant has is scaled like all kernels together. The
    # remainder is the overhead of the runtime. If `first` has a time spent waiting for a processor,
    # the remainder is that time instead, and the overhead is scaled like the kernels.
    kernels = [row for row in differences.before.profile.layers if row.ms is not None]
    before = [row.ms or 0.0 for row in kernels if row.qualified_op not in _OUTSIDE_KERNELS]
    after = differences.after.profile
    own = {row.static.id: row.ms for row in differences.before.rows if row.static is not None}
    total = sum(spent for op, spent in first.layer_types.items() if op not in _OUTSIDE_KERNELS)
    usual = total / sum(before) if any(before) else 1.0
    rest = WAITING if WAITING in first.layer_types else _OVERHEAD
    owners = _owners(differences)
    types: dict[str, float] = {}
    layers: dict[str, float] = {}
    half_widths: dict[str, float] = {}
    for row in after.layers:
        if row.ms is None or row.qualified_op in {rest, WAITING}:
            continue
        owner = None if row.static is None else owners.get(row.static.id)
        spent = row.ms * usual
        if owner is not None:
            old, known = own.get(owner), first.layers.get(owner)
            spent = row.ms * known / old if old and known is not None else spent
        if row.static is not None:
            shown = owner or row.static.id
            layers[shown] = layers.get(shown, 0.0) + spent
            if row.half_width is not None:
                # The uncertainties of several kernels are added up, because they may depend on each
                # other.
                half_widths[shown] = half_widths.get(shown, 0.0) + spent * row.half_width
        types[row.qualified_op] = types.get(row.qualified_op, 0.0) + spent
    spent = sum(types.values())
    if (rest == WAITING or rest in after.layer_types) and spent <= ms:
        return _Times({**types, rest: ms - spent}, layers, half_widths)
    shrunk = ms / spent if spent else 1.0
    return _Times(*(_scaled(times, shrunk) for times in (types, layers, half_widths)))


def _owners(differences: Differences) -> dict[str, str]:
    """Map each layer of a variant to the layer of the unchanged model that its time belongs to."""
    # If a quantizer replaces one layer by several, the last of them has its output. Of layers that
    # share a kernel, the one that has its time counts. A layer that only the variant has belongs to
    # none: its purpose is unknown, and its time is not that of any neighbour.
    before = differences.before
    mates = {new: old for old, new in differences.pairs.items()}
    indexes = {layer.id: index for index, layer in enumerate(before.layers)}
    owners: dict[str, str] = {}
    for index, layer in enumerate(differences.after.layers):
        mate = mates.get(index, indexes.get(layer.id))
        if mate is not None:
            owners[layer.id] = before.layers[before.heads.get(mate, mate)].id
    return owners


def _ran_outside(profile: CaseProfile) -> Iterator[str]:
    measured = profile.measured
    if measured is None or not measured.engine.providers:
        return
    for row in profile.layers:
        provider = None if row.time is None else row.time.provider
        is_first = provider is None or provider == measured.engine.providers[0]
        if row.static is not None and not is_first:
            yield row.static.id


def _outside(differences: Differences) -> tuple[str, ...]:
    owners = _owners(differences)
    ran = _ran_outside(differences.after.profile)
    return tuple(dict.fromkeys(owners.get(layer_id, layer_id) for layer_id in ran))


def estimate_level(known: Sequence[Level], share: float) -> Level:
    """Return the level at a share of pruning between two measured levels.

    Sparsify's formula: est_time = T_base * est_prune / T_prune0, where est_prune = T_prune0 -
    sum(t_0 - t_s), with t_s of each layer interpolated between its times at both. The overhead of
    the runtime counts like a layer, so the times add up, and est_prune is between the times of the
    two levels. `known` begins with the unchanged model, which is the level 0 unless a variant was
    pruned by 0.
    """
    variant = Variant(VariantKind.PRUNED, share)
    base, *pruned = known
    title = f"{variant.title} (estimate)"
    points = {0.0: base} | {_share_of(level) or 0.0: level for level in pruned}
    shares = sorted(points)
    if base.ms is None or share > shares[-1]:
        failure = "no level of pruning at or above it was measured"
        return Level(title=title, variant=variant, is_estimate=True, failure=failure)
    low = max(at for at in shares if at <= share)
    high = min(at for at in shares if at >= share)
    weight = 0.0 if high == low else (share - low) / (high - low)
    between = _Between(points[low], points[high], weight)
    scale = base.ms / (points[0.0].ms or base.ms)
    ms = between.of(between.low.ms or 0.0, between.high.ms or 0.0) * scale
    return Level(
        title=title,
        variant=variant,
        is_estimate=True,
        ms=ms,
        speedup=Ratio(base.ms / ms, None, None) if ms > 0 else None,
        macs=base.macs,
        params=base.params,
        layer_types=_scaled(between.times(lambda level: level.layer_types), scale),
        layers=_scaled(between.times(lambda level: level.layers), scale),
        outside=tuple(dict.fromkeys((*between.low.outside, *between.high.outside))),
        notes=(f"between {between.low.title} and {between.high.title}",),
    )


class _Between(Struct, frozen=True):
    low: Level
    high: Level
    weight: float

    def of(self, low: float, high: float) -> float:
        return low + (high - low) * self.weight

    def times(self, read: Callable[[Level], Mapping[str, float]]) -> dict[str, float]:
        """Return interpolated times. A layer that runs in another layer's kernel has 0."""
        low, high = read(self.low), read(self.high)
        if not low or not high:
            return {}
        return {name: self.of(low.get(name, 0.0), high.get(name, 0.0)) for name in {**low, **high}}


def _scaled(times: Mapping[str, float], scale: float) -> dict[str, float]:
    return {name: spent * scale for name, spent in times.items()}


def describe_waiting(baseline: CaseProfile) -> str | None:
    """Return a note if other processes disturbed the unchanged model, or else None."""
    if WAITING not in baseline.layer_types or baseline.measured is None:
        return None
    found = noise_of(baseline.measured)
    remedies = ", ".join(dict.fromkeys(found.values()))
    return (
        f"{', '.join(found)}: layers have the times that they take undisturbed, and the rest of "
        f'each level is "{WAITING}"; {remedies}'
    )


def describe_precisions(results: Sequence[VariantResult]) -> Iterator[str]:
    """Yield a note for each precision that the unchanged model already ran in."""
    for each in results:
        wanted = _PRECISIONS.get(each.variant.form)
        if each.variant.kind is VariantKind.PRECISION and _precisions_of(each.before) == {wanted}:
            form = each.variant.form
            yield (
                f"the model as it is already ran in {form}, so {each.variant.title} is the same: "
                "the engine chose it for this processor"
            )


def _precisions_of(profile: CaseProfile | None) -> set[str | None]:
    if profile is None or profile.measured is None:
        return set()
    layers = profile.static.layers
    return {
        time.precision
        for time in profile.measured.layer_times or ()
        if time.layer is not None and layers[time.layer].macs
    }


def describe_zeros(levels: Sequence[Level], engine: EngineFacts) -> str | None:
    """Return a note if pruning ran but gained nothing on this engine, or else None."""
    speedups = [
        level.speedup
        for level in levels
        if _share_of(level) and not level.is_estimate and level.speedup is not None
    ]
    if not speedups or any(level.is_faster for level in levels if _share_of(level)):
        return None
    name = " ".join(part for part in (engine.name, engine.version) if part)
    if all(map(_is_none, speedups)):
        return (
            f"{name} ran sparse weights at dense speed: no gain. Zeros alone save time only if "
            "kernels skip them"
        )
    return (
        f"no gain from zeros was shown on {name}; "
        "a larger max-seconds makes time to see a smaller one"
    )


def _is_none(speedup: Ratio) -> bool:
    low, high = speedup.low, speedup.high
    return low is not None and high is not None and high / _NO_GAIN < 1.0 < low * _NO_GAIN
