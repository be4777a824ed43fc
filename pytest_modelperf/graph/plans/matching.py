"""The kernels of two plans that are the same work, one to one; the others have changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from msgspec import Struct

from pytest_modelperf.graph.common_order import in_common
from pytest_modelperf.graph.plans.plan import EnginePlan

# The types and shapes of the tensors of a plan, by their names.
TensorTypes = Mapping[str, str]
# What makes a kernel of one side and a kernel of the other side partners.
_Key = Callable[[EnginePlan, int], object]


class Matching(Struct, frozen=True):
    """The partners of two plans, and the kernels of each side without one, in their order."""

    partners: Mapping[int, int]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def has_changes(self) -> bool:
        return bool(self.before or self.after)


# The surest first: alike from both ends, from the inputs, from the outputs. Of equal ones, those
# with the same name are partners: query, key and value of a layer differ in nothing else. Kernels
# that are alike from the outputs may still work on other sizes, behind a size that changed.
_KEYS: tuple[_Key, ...] = (
    lambda plan, k: (plan.forward[k], plan.backward[k], plan.kernels[k].name),
    lambda plan, k: (plan.forward[k], plan.backward[k]),
    lambda plan, k: (plan.forward[k], plan.kernels[k].name),
    lambda plan, k: plan.forward[k],
    lambda plan, k: (plan.backward[k], plan.kernels[k].name),
    lambda plan, k: plan.backward[k],
)


def match_plans(
    before: EnginePlan,
    after: EnginePlan,
    before_types: TensorTypes | None = None,
    after_types: TensorTypes | None = None,
) -> Matching:
    """The partners of two plans.

    With the types of tensors, partners work on the same sizes, and kernels of the same work between
    two changes are partners as well, which neither end of the plan shows.
    """
    types = before_types or {}, after_types or {}
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
            waiting[key(before, index), _sizes(before, types[0], index)].append(index)
        for index in list(left[1]):
            candidates = waiting[key(after, index), _sizes(after, types[1], index)]
            if candidates:
                join(candidates.pop(0), index)
    if before_types is not None and after_types is not None:
        old, new = list(left[0]), list(left[1])
        # A kernel whose work is not known has no like.
        here = [_work(before, before_types, index) or object() for index in old]
        there = [_work(after, after_types, index) or object() for index in new]
        # Where too much differs, nothing is paired.
        for one, other in in_common(here, there) or ():
            join(old[one], new[other])
    return Matching(partners, tuple(left[0]), tuple(left[1]))


def find_other_work(
    before: EnginePlan, after: EnginePlan, before_types: TensorTypes, after_types: TensorTypes
) -> str | None:
    """Return the operator of a kernel of equal plans that works on tensors of other types or sizes.

    Nothing is found of kernels whose tensors have no known type.
    """
    old, new = (
        Counter(
            (digest, kernel.op_type, _sizes(plan, types, index))
            for index, (digest, kernel) in enumerate(zip(plan.forward, plan.kernels, strict=True))
        )
        for plan, types in ((before, before_types), (after, after_types))
    )
    return next((op_type for _, op_type, _ in (new - old).elements()), None)


def _sizes(plan: EnginePlan, types: TensorTypes, index: int) -> tuple[str | None, ...]:
    """The types and shapes of the tensors of a kernel, as far as they are known."""
    kernel = plan.kernels[index]
    return tuple(types.get(name) for name in (*kernel.inputs, *kernel.outputs))


def _work(plan: EnginePlan, types: TensorTypes, index: int) -> object:
    """The work of a kernel: its operator, and the types and shapes of its inputs.

    Two kernels of the same work take the same time, wherever they are. None if a type is not known.
    """
    identities = plan.weight_identities
    inputs = [
        identities.get(name) or types.get(name) if name else ""
        for name in plan.kernels[index].inputs
    ]
    return None if None in inputs else (plan.kinds[index], *inputs)
