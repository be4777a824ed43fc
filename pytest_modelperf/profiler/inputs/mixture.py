"""The inputs of a workload: its members, their order, when they arrive, and what a worker gets.

One pass is every member as often as its weight says. Its order is drawn once, from a fixed seed, so
that both sides of a comparison and every later run see the sizes change in the same way. A pass is
repeated in that order, so any run of its length holds each member just as often.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.profiler.inputs.generation_steps import Place, StepFeeds
from pytest_modelperf.profiler.inputs.given import GivenInputs, describe_given
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.records import StoredInputs
from pytest_modelperf.stats.records import Members, Mix
from pytest_modelperf.text.escaping import printable

# A block holds at least one pass, and a longer one would be cut by the most inferences of a block.
_LONGEST_PASS = 200
# The elements between which the inputs of a member may begin, so that all are aligned in memory.
_STRIDE = 64


class Arrivals(Struct, frozen=True):
    """When inferences arrive: every so many milliseconds, and up to `streams` of them run at once.

    Without `every_ms`, the next one of a stream arrives when the one before is over.
    """

    every_ms: float | None = None
    streams: int = 1


class WorkloadMember(Struct, frozen=True, kw_only=True):
    """One input of a workload: sizes of dimensions or given arrays, and how often it occurs."""

    name: str
    weight: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    given: GivenInputs | None = None

    @property
    def size(self) -> int:
        """The elements of its arrays, or the product of its dimensions."""
        if self.given is not None:
            return sum(array.size for array in self.given.arrays.values())
        return math.prod(self.dims.values())


class Mixture(Struct, frozen=True):
    """The members of a workload, with weights that have no common divisor."""

    members: tuple[WorkloadMember, ...]

    @classmethod
    def of(cls, members: Sequence[WorkloadMember]) -> Mixture:
        """The workload of these members; UsageError if they do not make one."""
        names = [member.name for member in members]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"the workload has the member {printable(name)} twice: give it once, with the "
                    "weight of both."
                )
        if len(members) < 2:
            raise UsageError(
                "a workload has two members or more, which run in turn: add one, or give its "
                "dimensions or its file to the model itself."
            )
        divisor = math.gcd(*(member.weight for member in members))
        found = tuple(replace(each, weight=each.weight // divisor) for each in members)
        length = sum(member.weight for member in found)
        if length > _LONGEST_PASS:
            raise UsageError(
                f"one pass of the workload has {length:,} inferences, the sum of its weights, and "
                f"may have {_LONGEST_PASS} at most: give smaller weights."
            )
        return cls(found)

    @property
    def facts(self) -> Members:
        """The names and weights."""
        return Members(
            tuple(member.name for member in self.members),
            tuple(member.weight for member in self.members),
        )

    @property
    def largest(self) -> WorkloadMember:
        """The member with the largest inputs, which runs if only a single one does."""
        return max(self.members, key=lambda member: member.size)


def draw_pass(members: Members) -> Mix:
    """One pass in its order."""
    places = [place for place, weight in enumerate(members.weights) for _ in range(weight)]
    random.Random(0).shuffle(places)  # noqa: S311  # an order, and no secret
    return Mix(members, tuple(places))


def mix_steps(feeds: Sequence[Mapping[str, Feed]], mixture: Mixture) -> StepFeeds:
    """The steps of one pass; `feeds` are the inputs of each member."""
    mix = draw_pass(mixture.facts)
    own: dict[str, Feed] = {}
    changing: dict[str, tuple[Place, ...]] = {}
    for name, first in feeds[0].items():
        each = [member[name] for member in feeds]
        if all(_is_equal(feed, first) for feed in each):
            own[name] = first
            continue
        own[name], places = _one_after_another(each)
        changing[name] = tuple(places[place] for place in mix.turns)
    return StepFeeds(own, len(mix.turns), changing=changing, mix=mix)


def _is_equal(feed: Feed, other: Feed) -> bool:
    return feed is other or feed.to_wire() == other.to_wire()


def _one_after_another(feeds: Sequence[Feed]) -> tuple[Feed, list[Place]]:
    """The values of all members in a flat array, and the place of each."""
    parts, places, start = [], [], 0
    for feed in feeds:
        flat = feed.array.reshape(-1)
        # Texts are not aligned, and have no element that fills a gap.
        gap = 0 if flat.dtype.hasobject else -flat.size % _STRIDE
        parts.append(np.concatenate([flat, np.zeros(gap, flat.dtype)]) if gap else flat)
        places.append((start, tuple(map(int, feed.array.shape))))
        start += flat.size + gap
    return replace(feeds[0], array=np.concatenate(parts)), places


def describe_mixture(
    mixture: Mixture,
    specs: Sequence[Sequence[InputSpec]],
    feeds: Sequence[Mapping[str, Feed]],
    seed: int,
) -> StoredInputs:
    """The stored form of a workload: the weight and the given inputs of each member by its name.

    The digest covers the values of all given arrays.
    """
    digest = hashlib.sha256()
    described = {}
    for member, own, given in zip(mixture.members, specs, feeds, strict=True):
        stored = describe_given(own, given, seed)
        shapes = f", {stored}" if stored.specs else ""
        described[member.name] = f"weight {member.weight}{shapes}"
        digest.update(repr((member.name, member.weight, sorted(member.dims.items()))).encode())
        digest.update(repr(stored.sha256).encode())
    return StoredInputs(specs=described, sha256=digest.hexdigest())
