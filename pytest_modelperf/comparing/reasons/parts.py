"""Reasons of parts that changed: each has its own difference, which was measured in place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.differences import Differences, Doubt, row_times
from pytest_modelperf.comparing.merged_kernels import KnownPlans
from pytest_modelperf.comparing.reasons.reason import Reason
from pytest_modelperf.comparing.records import TimeChange
from pytest_modelperf.profiler.measurements import RowKind
from pytest_modelperf.text.words import count_of

# At most this many facts of the graphs are named for a part.
_MOST_FACTS = 3


class MeasuredParts(Struct, frozen=True):
    """The parts that changed, by number: their words, how much longer each takes, and its doubt.

    A doubt more than there are parts is that of what the whole takes beyond them. `outputs` are the
    tensors that each part hands on. `plans` has the kernels that did not change.
    """

    texts: tuple[str, ...]
    outputs: tuple[frozenset[str], ...]
    shifts_ns: tuple[float, ...]
    doubts: tuple[Doubt, ...]
    plans: KnownPlans


def find_parts_of(fact: Reason, parts: MeasuredParts) -> Reason:
    """The fact with the parts that hand on the outputs that it is about."""
    about = (n for n, outputs in enumerate(parts.outputs) if outputs & fact.outputs)
    return replace(fact, parts=fact.parts | frozenset(about))


def part_reasons(
    found: Differences, facts: Sequence[Reason], parts: MeasuredParts
) -> tuple[Reason, ...]:
    """One reason for each part; for several if they are alike, or if one fact is about them."""
    texts, shifts_ns = parts.texts, parts.shifts_ns
    alike = [[part for part, own in enumerate(texts) if own == text] for text in set(texts)]
    groups = _joined(range(len(texts)), [*alike, *(fact.parts for fact in facts)])
    return tuple(
        reason
        for group in groups
        for reason in _reasons_of_group(
            group,
            [texts[part] for part in group],
            found.time_of_parts(group, math.fsum(shifts_ns[part] for part in group)),
            [fact for fact in facts if fact.parts & set(group)],
        )
    )


def _reasons_of_group(
    group: Iterable[int], texts: Sequence[str], time: TimeChange, facts: Sequence[Reason]
) -> Iterator[Reason]:
    """The reason of these parts, and by themselves the facts that cannot be a cause of its time."""
    causes = [fact for fact in facts if fact.can_explain(time)]
    yield Reason(
        _describe(texts, causes), time, parts=frozenset(group), measured="measured in place"
    )
    yield from (Reason(fact.text) for fact in facts if fact not in causes)


def elsewhere_reasons(found: Differences) -> tuple[Reason, ...]:
    """The reason for a difference beyond the parts, if it is more than noise."""
    row = found.after.others.get((RowKind.ELSEWHERE, ""))
    time = found.time((), row_times(row))
    if time is None or time.is_within_noise:
        return ()
    text = "elsewhere, in kernels that both plans have"
    return (Reason(text, time, measured="by the whole model"),)


def _joined(parts: Iterable[int], links: Iterable[Collection[int]]) -> list[list[int]]:
    """The parts in groups: two are in one group if a link has both."""
    group_of = {part: {part} for part in parts}
    for link in links:
        known = [part for part in link if part in group_of]
        joined = {each for part in known for each in group_of[part]}
        group_of.update(dict.fromkeys(joined, joined))
    return [list(group) for group in {tuple(sorted(group)) for group in group_of.values()}]


def _describe(texts: Sequence[str], facts: Sequence[Reason]) -> str:
    """`2 x 1 Relu became 3 kernels (Abs, Add, Mul); 2 Conv+Relu fusions lost (first: conv1)`.

    A fact that says the same of a part, and names a layer, stands for it.
    """
    named_facts = facts[:_MOST_FACTS]
    repeated = {fact.headline for fact in named_facts}
    edited = {fact.of_plans for fact in named_facts}
    named = [
        f"{count} x {text}" if count > 1 else text
        for text, count in Counter(texts).items()
        if text not in edited and (count > 1 or text not in repeated)
    ]
    named += [fact.text for fact in named_facts]
    more = len(facts) - _MOST_FACTS
    if more > 0:
        named.append(count_of(more, "more change"))
    return "; ".join(named)
