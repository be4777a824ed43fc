"""A one-to-one matching of the kernels of two plans that do the same work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from msgspec import Struct

from pytest_modelperf.graph.common_order import in_common
from pytest_modelperf.graph.plans.plan import EnginePlan

# The types and shapes of the tensors of a plan, by their names.
TensorTypes = Mapping[str, str]
# Kernels of the two sides are partners if they have the same value of a key.
_Key = Callable[[EnginePlan, int], object]


class Matching(Struct, frozen=True):
    """The partners of two plans, and the kernels without one on each side, in their order."""

    partners: Mapping[int, int]
    before: tuple[int, ...]
    after: tuple[int, ...]


# The most reliable keys come first: alike from both ends, from the inputs, from the outputs. Among
# equal kernels, those with the same name are partners, because query, key and value of a layer
# differ only by name. Kernels that are alike from the outputs may still work on other sizes, after
# a size that changed.
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
    """Match the kernels of two plans.

    With the types of tensors, partners work on the same sizes. Kernels with the same work between
    two changes are then partners as well, although neither end of the plan shows it.
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
        # A kernel whose work is not known equals no other kernel.
        here = [_work(before, before_types, index) or object() for index in old]
        there = [_work(after, after_types, index) or object() for index in new]
        # If too much differs, no kernels are paired.
        for one, other in in_common(here, there) or ():
            join(old[one], new[other])
    return Matching(partners, tuple(left[0]), tuple(left[1]))


def find_other_work(
    before: EnginePlan, after: EnginePlan, before_types: TensorTypes, after_types: TensorTypes
) -> str | None:
    """Return the operator of a kernel of equal plans that works on tensors of other types or sizes.

    Kernels whose tensors have no known type are not compared.
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
    kernel = plan.kernels[index]
    return tuple(types.get(name) for name in (*kernel.inputs, *kernel.outputs))


def _work(plan: EnginePlan, types: TensorTypes, index: int) -> object:
    """Return the work of a kernel, or None if a type is not known."""
    # The work is the operator, and the types and shapes of its inputs. Two kernels with the same
    # work take the same time anywhere in a plan.
    identities = plan.weight_identities
    inputs = [
        identities.get(name) or types.get(name) if name else ""
        for name in plan.kernels[index].inputs
    ]
    return None if None in inputs else (plan.kinds[index], *inputs)
