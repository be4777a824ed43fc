"""Units: the kernels of two plans that stand in the same place, the least that can be left out.

A kernel that both plans have is a unit with its partner. What changed is divided as finely as the
operators of both sides line up: a convolution between two casts is a unit beside them. One
activation that became four kernels is one unit, and each kernel that came or went is one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from pytest_modelperf.graph.plans.matching import Matching, TensorTypes
from pytest_modelperf.graph.plans.parts import Part, find_parts
from pytest_modelperf.graph.plans.plan import EnginePlan


class Unit(Struct, frozen=True):
    """Kernels of both plans in the same place, by their indexes; partners have not changed."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    is_changed: bool = True


def find_units(
    before: EnginePlan,
    after: EnginePlan,
    matching: Matching,
    types: tuple[TensorTypes, TensorTypes],
) -> tuple[Unit, ...]:
    """All kernels of both plans as units, each kernel in one, in the order of the plans."""
    plans = before, after
    changed = [
        unit for part in find_parts(before, after, matching) for unit in _divide(plans, part, types)
    ]
    same = [Unit((old,), (new,), is_changed=False) for old, new in matching.partners.items()]
    return tuple(sorted([*changed, *same], key=lambda unit: (unit.after or unit.before)[0]))


def kernels_of(units: Iterable[Unit], side: int) -> tuple[int, ...]:
    """The kernels of these units on one side, 0 before and 1 after, in the order of the plan."""
    return tuple(sorted(index for unit in units for index in (unit.before, unit.after)[side]))


def _divide(
    plans: tuple[EnginePlan, EnginePlan], part: Part, types: tuple[TensorTypes, TensorTypes]
) -> Iterator[Unit]:
    """The units of a part, whose kernels are lined up by operator and type of the result."""
    old, new = part.before.changed, part.after.changed
    here, there = (
        [_look(plan, index, own) for index in indexes]
        for plan, indexes, own in zip(plans, (old, new), types, strict=True)
    )
    matcher = difflib.SequenceMatcher(None, here, there, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[first:last], new[begin:end], strict=True)
            yield from (Unit((a,), (b,)) for a, b in pairs)
        elif tag == "replace":
            yield Unit(tuple(old[first:last]), tuple(new[begin:end]))
        else:
            yield from (Unit((index,), ()) for index in old[first:last])
            yield from (Unit((), (index,)) for index in new[begin:end])


def _look(plan: EnginePlan, index: int, types: TensorTypes) -> tuple[str, str | None]:
    kernel = plan.kernels[index]
    return kernel.op_type, types.get(kernel.name)
