"""The differences between two cases: how much longer each layer and type takes, with intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.changes import LayerChange, LayerTypeChange, TimeChange
from pytest_modelperf.comparing.layer_pairs import match_layers
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import LayerTime, Measurement, RowKind
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.rows import LayerRow


class CaseLayers(Struct, frozen=True):
    """The layers of one of the two cases, with the times of the kernels that run them.

    A kernel may run several layers, and its time is shown at one of them. `heads` maps each layer
    to that one. `others` are the times that belong to no layer.
    """

    profile: CaseProfile
    layers: tuple[StaticLayer, ...]
    rows: tuple[LayerRow, ...]
    heads: Mapping[int, int]
    others: Mapping[tuple[RowKind, str], LayerRow]

    @classmethod
    def of(cls, profile: CaseProfile) -> CaseLayers:
        layers = () if profile.counted is None else profile.counted.layers
        rows, others = profile.layers[: len(layers)], profile.layers[len(layers) :]
        heads: dict[int, int] = {}
        for index, row in enumerate(rows):
            if row.time is not None:
                heads[index] = index
                heads.update(dict.fromkeys(row.time.fused, index))
        return cls(
            profile,
            layers,
            rows,
            heads,
            {(row.time.kind, row.time.kernel): row for row in others if row.time is not None},
        )

    @property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """The layers of each kernel, in graph order, by the layer at which its time is shown."""
        groups: dict[int, list[int]] = {}
        for index in sorted(self.heads):
            groups.setdefault(self.heads[index], []).append(index)
        return {head: tuple(members) for head, members in groups.items()}

    def times_at(self, indexes: Iterable[int]) -> list[LayerTime]:
        rows = (self.rows[index] for index in sorted(set(indexes)))
        return [row.time for row in rows if row.time is not None]

    def all_times(self) -> list[LayerTime]:
        rows = (*self.rows, *self.others.values())
        return [row.time for row in rows if row.time is not None]


class Doubt(Struct, frozen=True):
    """How far below and above the figure the true difference of a changed part can be."""

    below_ns: float
    above_ns: float


class Differences(Struct, frozen=True, dict=True):
    """Both sides, the pairs of layers, and the difference to explain.

    `pairs` maps indexes of layers from before to after. `total` has no share if it is within the
    noise, and then no change has one. `doubts`, by the number of a changed part, are set if the
    times follow from the parts. Everything outside the parts is then unchanged.
    """

    before: CaseLayers
    after: CaseLayers
    pairs: Mapping[int, int]
    total: TimeChange | None
    doubts: tuple[Doubt, ...] | None = None

    @classmethod
    def between(
        cls,
        before: CaseProfile,
        after: CaseProfile,
        ratio_interval: tuple[float, float] | None = None,
        doubts: tuple[Doubt, ...] | None = None,
    ) -> Differences:
        old, new = CaseLayers.of(before), CaseLayers.of(after)
        total = None
        if old.profile.has_layer_times and new.profile.has_layer_times:
            total = _difference(old.all_times(), new.all_times(), None, doubts)
            if _is_real(total, before.measured, after.measured, ratio_interval):
                total = replace(total, share=1.0)
        return cls(old, new, match_layers(old.layers, new.layers), total, doubts)

    @property
    def is_real(self) -> bool:
        """Whether the difference is more than noise."""
        return self.total is not None and self.total.share is not None

    @property
    def ratio(self) -> float | None:
        """The ratio of the sums of all times, after over before."""
        spent = sum(time.ns for time in self.before.all_times())
        return (spent + self.total.ns) / spent if self.total is not None and spent else None

    def time(self, before: Sequence[LayerTime], after: Sequence[LayerTime]) -> TimeChange | None:
        """Return how much longer `after` takes than `before`, or None if nothing ran."""
        if self.total is None or not (before or after):
            return None
        return _difference(before, after, self._whole_ns if self.is_real else None, self.doubts)

    @cached_property
    def _whole_ns(self) -> float:
        """The time that shares are parts of: the total, or more if some layers take less time now.

        So a layer never explains more than the whole difference.
        """
        total = 0.0 if self.total is None else self.total.ns
        changes = [
            _difference(row_times(before), row_times(after), None, self.doubts)
            for before, after in self._pairs_of_rows()
        ]
        same = math.fsum(c.ns for c in changes if c.ns * total > 0.0 and not c.is_within_noise)
        return max(total, same) if total > 0.0 else min(total, same)

    def time_of_layers(self, before: Iterable[int], after: Iterable[int]) -> TimeChange | None:
        """Return how much longer layers take now, by their indexes on each side."""
        return self.time(self.before.times_at(before), self.after.times_at(after))

    def time_of_parts(self, parts: Collection[int], ns: float) -> TimeChange:
        """Return the change of these parts, whose size is known, with its interval."""
        whole = self._whole_ns if self.is_real else None
        return _difference_of_parts(ns, parts, whole, self.doubts or ())

    def parts_of_layers(self, before: Iterable[int], after: Iterable[int]) -> frozenset[int]:
        """Return the numbers of the changed parts in the kernels of these layers."""
        return frozenset(
            part
            for side, indexes in ((self.before, before), (self.after, after))
            for time in side.times_at(side.heads[i] for i in indexes if i in side.heads)
            for part in time.parts
        )

    def rank(self, time: TimeChange | None) -> tuple[bool, float]:
        """Return a sort key: what explains more of the difference first, and noise last."""
        if time is None or self.total is None:
            return (True, 0.0)
        return (time.is_within_noise, -time.ns if self.total.ns >= 0 else time.ns)

    def of_layer_types(self) -> tuple[LayerTypeChange, ...]:
        """Return every operator of either side, and each kind of time that belongs to no layer."""
        old, new = self.before.profile.layer_types, self.after.profile.layer_types
        old_times, new_times = _times_by_type(self.before), _times_by_type(self.after)
        changes = [
            LayerTypeChange(
                op, old.get(op), new.get(op),
                self.time(old_times.get(op, ()), new_times.get(op, ())),
            )
            for op in {**old, **new}
        ]  # fmt: skip
        return tuple(
            sorted(changes, key=lambda c: (self.rank(c.time), -c.added_macs, -c.added_ops, c.op))
        )

    def of_layers(self) -> tuple[LayerChange, ...]:
        """Return each layer that has a time on either side, and the times of no layer."""
        if self.total is None:
            return ()
        old, new = self.before, self.after
        changes = [
            LayerChange(before, after, self.time(row_times(before), row_times(after)))
            for before, after in self._pairs_of_rows()
        ]
        positions = {id(row): index for index, row in enumerate((*new.rows, *old.rows))}
        return tuple(
            sorted(
                changes,
                key=lambda c: (self.rank(c.time), positions.get(id(c.after or c.before), 0)),
            )
        )

    def _pairs_of_rows(self) -> list[tuple[LayerRow | None, LayerRow | None]]:
        old, new = self.before, self.after
        groups = {frozenset(members): head for head, members in new.groups.items()}
        found: list[tuple[LayerRow | None, LayerRow | None]] = []
        done_old: set[int] = set()
        done_new: set[int] = set()
        # A kernel may run the same layers on both sides while its time is shown at different ones.
        for head, members in old.groups.items():
            other = groups.get(frozenset(self.pairs.get(member, -1) for member in members))
            if other is not None and self.pairs[head] != other:
                found.append((old.rows[head], new.rows[other]))
                done_old.add(head)
                done_new.add(other)
        for index, row in enumerate(old.rows):
            other = self.pairs.get(index)
            mate = None if other is None else new.rows[other]
            left = row if index not in done_old else _untimed(row)
            right = mate if mate is None or other not in done_new else _untimed(mate)
            found.append((left, right))
        matched = set(self.pairs.values())
        found += [(None, row) for i, row in enumerate(new.rows) if i not in matched]
        keys = {**old.others, **new.others}
        found += [(old.others.get(key), new.others.get(key)) for key in keys]
        return [pair for pair in found if any(map(row_times, pair))]


def summing_to(profile: CaseProfile, ns: float) -> CaseProfile:
    """Return the profile with its layer times scaled to this sum.

    Other processes disturb the two sides by different amounts, so the difference of their own times
    can differ from the judged one.
    """
    measured = profile.measured
    times = () if measured is None else measured.layer_times or ()
    spent = math.fsum(time.ns for time in times)
    if measured is None or not spent:
        return profile
    times = tuple(_scaled(time, ns / spent) for time in times)
    return replace(profile, measured=replace(measured, layer_times=times))


def _scaled(time: LayerTime, factor: float) -> LayerTime:
    doubts = tuple(factor * doubt for doubt in time.doubts_ns)
    return replace(time, ns=time.ns * factor, doubts_ns=doubts)


def row_times(row: LayerRow | None) -> list[LayerTime]:
    """Return the time of a row as a list, which is empty if there is none."""
    return [] if row is None or row.time is None else [row.time]


def _untimed(row: LayerRow) -> LayerRow:
    """Return the row of a layer without its time, which is already part of another change."""
    return LayerRow(row.static)


def _times_by_type(side: CaseLayers) -> dict[str, list[LayerTime]]:
    found: dict[str, list[LayerTime]] = {}
    for row in (*side.rows, *side.others.values()):
        if row.time is not None:
            found.setdefault(row.qualified_op, []).append(row.time)
    return found


def _difference(
    before: Sequence[LayerTime],
    after: Sequence[LayerTime],
    total_ns: float | None,
    doubts: Sequence[Doubt] | None = None,
) -> TimeChange:
    """Return how much longer `after` takes, with its interval.

    The interval is that of the parts, or else of the runs, in which both sides took turns.
    """
    ns = math.fsum(time.ns for time in after) - math.fsum(time.ns for time in before)
    if doubts is not None:
        return _difference_of_parts(
            ns, {p for t in (*before, *after) for p in t.parts}, total_ns, doubts
        )
    low = high = None
    if all(time.doubts_ns for time in (*before, *after)):
        new, old = (_sum_of_doubts(side) for side in (after, before))
        half_width = math.hypot(*(b - a for b, a in zip_longest(new, old, fillvalue=0.0)))
        low, high = ns - half_width, ns + half_width
    return TimeChange(ns=ns, low_ns=low, high_ns=high, share=_share(ns, total_ns))


def _difference_of_parts(
    ns: float, parts: Collection[int], total_ns: float | None, doubts: Sequence[Doubt]
) -> TimeChange:
    if not parts:
        # Without a changed part, both sides ran the same kernels, only summed up in another order.
        return TimeChange(ns=0.0, low_ns=0.0, high_ns=0.0, share=0.0 if total_ns else None)
    return TimeChange(
        ns=ns,
        # Noise affects each part independently.
        low_ns=ns - math.hypot(*(doubts[part].below_ns for part in parts)),
        high_ns=ns + math.hypot(*(doubts[part].above_ns for part in parts)),
        share=_share(ns, total_ns),
    )


def _share(ns: float, total_ns: float | None) -> float | None:
    return max(-1.0, min(1.0, ns / total_ns)) if total_ns else None


def _sum_of_doubts(times: Sequence[LayerTime]) -> list[float]:
    return list(map(math.fsum, zip_longest(*(t.doubts_ns for t in times), fillvalue=0.0)))


def _is_real(
    total: TimeChange,
    before: Measurement | None,
    after: Measurement | None,
    ratio_interval: tuple[float, float] | None,
) -> bool:
    if not total.ns:
        return False
    if ratio_interval is None and before is not None and after is not None:
        old, new = before.latency.percentile(50.0), after.latency.percentile(50.0)
        if old.low_ns and old.high_ns and new.low_ns is not None and new.high_ns is not None:
            ratio_interval = new.low_ns / old.high_ns, new.high_ns / old.low_ns
    if ratio_interval is not None:
        low, high = ratio_interval
        return not low <= 1.0 <= high
    return total.interval_ms is not None and not total.is_within_noise
