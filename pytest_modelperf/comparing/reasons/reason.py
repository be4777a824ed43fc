"""One reason for a difference, and functions that make reasons about layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from pytest_modelperf.comparing.changes import TimeChange
from pytest_modelperf.comparing.differences import Differences
from pytest_modelperf.comparing.figures import describe_change
from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import change_decimals, format_signed_count
from pytest_modelperf.text.words import cut_middle

# A smaller share of the difference is not worth mentioning.
LEAST_SHOWN = 0.01

# A name in a sentence is cut if it is longer than this.
_LONGEST_NAME = 300
# The indexes of one layer in both graphs.
LayerPair: TypeAlias = tuple[int, int]


class Reason(Struct, frozen=True):
    """A fact that explains a part of the difference between two cases.

    `time` is how much longer its layers take now, or None if none of them ran. `added_macs` and
    `added_params` are how many more MACs and parameters the layers have. `pairs` are the layers on
    both sides that it explains, and `kernel` is a kind of kernels that belong to no layer. `parts`
    are the numbers of the parts that it is about. `measured` says how its time was measured, if not
    by profiled layers. `outputs` are the names of outputs of a model that it is about.
    `is_of_whole` means that it is about the whole run, rather than some layers. `is_gain` is True
    if it makes a model faster, False if slower, and None if both are possible. `of_plans` is the
    text of a part whose plans show one place of the same change.
    """

    text: str
    time: TimeChange | None = None
    added_macs: int = 0
    pairs: frozenset[LayerPair] = frozenset()
    kernel: tuple[RowKind, str] | None = None
    parts: frozenset[int] = frozenset()
    measured: str | None = None
    outputs: frozenset[str] = frozenset()
    added_params: int = 0
    is_of_whole: bool = False
    is_gain: bool | None = None
    of_plans: str | None = None

    @property
    def headline(self) -> str:
        """The text without its place."""
        return self.text.partition(" (first: ")[0]

    def can_explain(self, time: TimeChange | None) -> bool:
        """Whether it may make its layers take that much longer. A gain only makes them faster."""
        if self.is_gain is None or time is None or not time.ns:
            return True
        return self.is_gain == (time.ns < 0.0)

    def in_words(self) -> str:
        if self.time is not None and self.measured is not None:
            how = "within the noise" if self.time.is_within_noise else self.measured
            return f"{self.text}: {describe_change(self.time)}, {how}"
        if self.time is None and self.added_macs:
            return f"{self.text}: {format_signed_count(self.added_macs)} MACs"
        share = None if self.time is None else self.time.share
        if self.time is None or share is None or abs(share) < LEAST_SHOWN:
            return self.text
        decimals = 2 if abs(self.time.ns) >= 1e6 else change_decimals(self.time.ns)
        time = f"{self.time.ns / 1e6:+.{decimals}f} ms"
        if self.time.is_within_noise:
            return f"{self.text}: {time}, within the noise"
        if share < 0:
            return f"{self.text}: {time}"
        return f"{self.text}: {time}, {100 * share:.0f} %"


def reason_about_pairs(found: Differences, text: str, pairs: Iterable[LayerPair]) -> Reason:
    """Return a reason about layers that are on both sides."""
    pairs = frozenset(pairs)
    before, after = {old for old, _ in pairs}, {new for _, new in pairs}
    return reason_about_layers(found, text, before, after, pairs)


def reason_about_change(
    found: Differences, op: str, pairs: Sequence[LayerPair], what: str, change: str
) -> Reason:
    """Return a reason about one operator: `3 of 12 Conv of another shape (first: c1, ...)`.

    `change` is the difference in the first pair.
    """
    after = found.after.layers
    whole = sum(layer.qualified_op == op for layer in after)
    count = f"all {whole}" if whole == len(pairs) > 1 else f"{len(pairs)} of {whole}"
    first = layer_name(after[pairs[0][1]])
    return reason_about_pairs(
        found, f"{count} {printable(op)} {what} (first: {first}, {change})", pairs
    )


def reason_about_layers(
    found: Differences,
    text: str,
    before: Iterable[int],
    after: Iterable[int],
    pairs: frozenset[LayerPair] = frozenset(),
) -> Reason:
    """Return a reason about layers of each side, by their indexes."""
    old, new = set(before), set(after)
    removed = [found.before.layers[index] for index in old]
    added = [found.after.layers[index] for index in new]
    return Reason(
        text,
        found.time_of_layers(old, new),
        sum(layer.macs or 0 for layer in added) - sum(layer.macs or 0 for layer in removed),
        pairs,
        parts=found.parts_of_layers(old, new),
        added_params=sum(layer.params for layer in added) - sum(layer.params for layer in removed),
    )


def pairs_in_order(found: Differences) -> list[LayerPair]:
    """Return all layers that are on both sides, in the order of the graph after."""
    return sorted(found.pairs.items(), key=lambda pair: pair[1])


def pairs_by_operator(found: Differences, pairs: Iterable[LayerPair]) -> dict[str, list[LayerPair]]:
    by_operator: dict[str, list[LayerPair]] = {}
    for pair in pairs:
        by_operator.setdefault(found.after.layers[pair[1]].qualified_op, []).append(pair)
    return by_operator


def layer_name(layer: StaticLayer) -> str:
    return printable(cut_middle(layer.name or layer.id, _LONGEST_NAME))
