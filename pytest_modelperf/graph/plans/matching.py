"""The kernels of two plans that are the same work, one to one; the others have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from pytest_modelperf.graph.common_order import in_common
from pytest_modelperf.graph.plans.plan import EnginePlan

# The types and shapes of the tensors of a plan, by their names.
TensorTypes = Mapping[str, str]
# What makes a kernel of one side and a kernel of the other side partners.
_Key = Callable[["_Side", int], object]


class Matching(Struct, frozen=True):
    """The partners of two plans, and the kernels of each side without one, in their order."""

    partners: Mapping[int, int]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def has_changes(self) -> bool:
        return bool(self.before or self.after)


class _Side:
    """A plan with the types of its tensors, as far as they are known."""

    def __init__(self, plan: EnginePlan, types: TensorTypes) -> None:
        self.plan = plan
        self._types = types

    def name(self, index: int) -> str:
        return self.plan.kernels[index].name

    def work(self, index: int) -> object:
        """The work of a kernel: its operator, and the types and shapes of its inputs.

        Two kernels of the same work take the same time, wherever they are. None if a type is not
        known.
        """
        identities = self.plan.weight_identities
        inputs = [
            identities.get(name) or self._types.get(name) if name else ""
            for name in self.plan.kernels[index].inputs
        ]
        return None if None in inputs else (self.plan.kinds[index], *inputs)


# The surest first: alike from both ends, from the inputs, from the outputs. Of equal ones, those
# with the same name are partners: query, key and value of a layer differ in nothing else.
_KEYS: tuple[_Key, ...] = (
    lambda side, k: (side.plan.forward[k], side.plan.backward[k], side.name(k)),
    lambda side, k: (side.plan.forward[k], side.plan.backward[k]),
    lambda side, k: (side.plan.forward[k], side.name(k)),
    lambda side, k: side.plan.forward[k],
    lambda side, k: (side.plan.backward[k], side.name(k)),
    lambda side, k: side.plan.backward[k],
)


def match_plans(
    before: EnginePlan,
    after: EnginePlan,
    before_types: TensorTypes | None = None,
    after_types: TensorTypes | None = None,
) -> Matching:
    """The partners of two plans.

    With the types of tensors, kernels of the same work between two changes are partners as well,
    which neither end of the plan tells.
    """
    sides = _Side(before, before_types or {}), _Side(after, after_types or {})
    left: tuple[dict[int, None], dict[int, None]] = (
        dict.fromkeys(range(len(before.kernels))),
        dict.fromkeys(range(len(after.kernels))),
    )
    partners: dict[int, int] = {}

    def join(one: int, other: int) -> None:
        partners[one] = other
        del left[0][one], left[1][other]

    for key in _KEYS:
        waiting = defaultdict(list)
        for index in left[0]:
            waiting[key(sides[0], index)].append(index)
        for index in list(left[1]):
            candidates = waiting[key(sides[1], index)]
            if candidates:
                join(candidates.pop(0), index)
    if before_types is not None and after_types is not None:
        for one, other in _aligned(sides, [list(side) for side in left]):
            join(one, other)
    return Matching(partners, tuple(left[0]), tuple(left[1]))


def _aligned(sides: tuple[_Side, _Side], left: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs of the same work in the same order on both sides.

    Kernels whose work is not known have no like. There are no pairs where too much differs.
    """
    here, there = (
        [side.work(index) or object() for index in indexes]
        for side, indexes in zip(sides, left, strict=True)
    )
    equal = in_common(here, there) or ()
    return [(left[0][one], left[1][other]) for one, other in equal]
