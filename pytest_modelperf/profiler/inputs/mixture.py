"""Make or divide the inputs of a workload or a generation, for each step that a worker runs."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import BindingError, UsageError
from pytest_modelperf.graph.binding import BoundInputs, InputSpec
from pytest_modelperf.graph.inference_inputs import BoundPhase
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.state import InputAxis, StatePair
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.profiler.inputs.given import GivenInputs, call_for_inputs, describe_given
from pytest_modelperf.profiler.inputs.made import Feed, input_types, make_input, make_inputs
from pytest_modelperf.profiler.records import StoredInputs
from pytest_modelperf.stats.records import Members, Mix
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of

# The index at which the values of a step begin in the flat array of an input, and their shape.
Place: TypeAlias = "tuple[int, tuple[int, ...]]"

# The steps if the same inference is repeated.
ONE_STEP: Mapping[str, object] = {"count": 1, "state": [], "changing": {}}


class HandedOn(Struct, frozen=True):
    """An input that takes the value of an output, and how much it grows along an axis."""

    past: str
    present: str
    axis: int | None = None
    growth: int = 0


class StepFeeds(Struct, frozen=True, eq=False):
    """The inputs of `count` steps.

    `feeds` has each input of the first step. An input in `changing` is instead a flat array with
    the values of all steps, and `changing` has the place of each step in it. The steps of a
    workload are the inferences of one pass, and `mix` has the member of each.
    """

    feeds: Mapping[str, Feed]
    count: int = 1
    state: tuple[HandedOn, ...] = ()
    changing: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    mix: Mix | None = None

    def mix_from(self, first: int, count: int) -> Mix | None:
        """Return the members of `count` inferences of a workload from step `first` on."""
        return None if self.mix is None else self.mix.turned(first, count)

    def to_wire(self) -> dict[str, object]:
        """Return the arguments of the worker's `StepArrays`."""
        return {
            "count": self.count,
            "state": [(own.past, own.present, own.axis, own.growth) for own in self.state],
            "changing": {name: list(places) for name, places in self.changing.items()},
        }


def make_steps(
    bound: BoundModel, phase: BoundPhase, seed: int, given: Mapping[str, Feed], model: str
) -> StepFeeds:
    """Return the steps of a model. `given` has inputs of the first, and the tokens of all steps."""
    count = phase.phase.steps
    first = phase.inputs_at(0)
    if count == 1:
        return StepFeeds(make_inputs(bound.graph, first, seed, given, model))
    feeds = make_inputs(bound.graph, with_all_tokens(first, phase), seed, given, model)
    changing: dict[str, tuple[Place, ...]] = {}
    for token in phase.state.tokens:
        feeds[token.name], changing[token.name] = _by_step(feeds[token.name], token, count)
    values = [phase.values_at(step) for step in range(count)]
    for name, spec in values[0].items():
        specs = [own.get(name, spec) for own in values]
        if any(each != spec for each in specs):
            feeds[name], changing[name] = _in_a_row(specs, model)
    second = phase.inputs_at(1)
    state = tuple(_handed_on(pair, first, second) for pair in phase.state.pairs)
    return StepFeeds(feeds, count, state, changing)


def with_all_tokens(first: BoundInputs, phase: BoundPhase) -> BoundInputs:
    """Return the inputs of the first step, with the tokens of all steps one after the other."""
    shapes = dict(first.shapes)
    for token in phase.state.tokens:
        shape = shapes[token.name]
        if shape is not None:
            longer = shape[token.axis] * phase.phase.steps
            shapes[token.name] = (*shape[: token.axis], longer, *shape[token.axis + 1 :])
    return replace(first, shapes=shapes)


def _handed_on(pair: StatePair, first: BoundInputs, second: BoundInputs) -> HandedOn:
    before, after = first.shapes[pair.past], second.shapes[pair.past]
    if pair.grows is None or before is None or after is None:
        return HandedOn(pair.past, pair.present)
    growth = after[pair.grows] - before[pair.grows]
    return HandedOn(pair.past, pair.present, pair.grows, growth)


def _by_step(feed: Feed, token: InputAxis, count: int) -> tuple[Feed, tuple[Place, ...]]:
    parts = np.split(feed.array, count, token.axis)
    flat = np.concatenate([part.reshape(-1) for part in parts])
    size, shape = parts[0].size, parts[0].shape
    return replace(feed, array=flat), tuple((step * size, shape) for step in range(count))


def _in_a_row(specs: Sequence[InputSpec], model: str) -> tuple[Feed, tuple[Place, ...]]:
    """Return the values of an input at each step. Steps filled with the same value share it."""
    value = specs[0].value
    if value is not None and len(value) == 1 and all(each.value == value for each in specs):
        longest = max(specs, key=lambda spec: prod(spec.shape))
        feed = make_input(longest, model=model)
        return replace(feed, array=feed.array.reshape(-1)), tuple((0, s.shape) for s in specs)
    feeds = [make_input(spec, model=model) for spec in specs]
    ends = accumulate((feed.array.size for feed in feeds), initial=0)
    places = tuple((start, spec.shape) for start, spec in zip(ends, specs, strict=False))
    flat = np.concatenate([feed.array.reshape(-1) for feed in feeds])
    return replace(feeds[0], array=flat), places


# A block holds at least one pass, and its limit of inferences would cut a longer pass.
_LONGEST_PASS = 200
# The inputs of a member start at multiples of this many elements, to be aligned in memory.
_STRIDE = 64


class Arrivals(Struct, frozen=True):
    """The times at which inferences arrive.

    One arrives every `every_ms` milliseconds, and up to `streams` of them run at once. Without
    `every_ms`, the next inference of a stream arrives when the previous one is over.
    """

    every_ms: float | None = None
    streams: int = 1


class WorkloadMember(Struct, frozen=True, kw_only=True):
    """One member of a workload: sizes of dimensions or given arrays, and how often it occurs."""

    name: str
    weight: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    given: GivenInputs | None = None

    @property
    def size(self) -> int:
        """The number of elements of its arrays, or the product of its dimensions."""
        if self.given is not None:
            return sum(array.size for array in self.given.arrays.values())
        return math.prod(self.dims.values())


class Mixture(Struct, frozen=True):
    """The members of a workload, with weights that have no common divisor."""

    members: tuple[WorkloadMember, ...]

    @classmethod
    def of(cls, members: Sequence[WorkloadMember]) -> Mixture:
        """Return the workload of these members. Raise UsageError if they do not make one."""
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
        return Members(
            tuple(member.name for member in self.members),
            tuple(member.weight for member in self.members),
        )

    @property
    def largest(self) -> WorkloadMember:
        """The member with the largest inputs, which runs if only one member can run."""
        return max(self.members, key=lambda member: member.size)


def draw_pass(members: Members) -> Mix:
    """Return one pass, with each member as often as its weight, always in the same random order."""
    places = [place for place, weight in enumerate(members.weights) for _ in range(weight)]
    random.Random(0).shuffle(places)  # noqa: S311  # an order, not a secret
    return Mix(members, tuple(places))


def mix_steps(feeds: Sequence[Mapping[str, Feed]], mixture: Mixture) -> StepFeeds:
    mix = draw_pass(mixture.facts)
    own: dict[str, Feed] = {}
    changing: dict[str, tuple[Place, ...]] = {}
    for name, first in feeds[0].items():
        each = [member[name] for member in feeds]
        if all(feed is first or feed.to_wire() == first.to_wire() for feed in each):
            own[name] = first
            continue
        own[name], places = _one_after_another(each)
        changing[name] = tuple(places[place] for place in mix.turns)
    return StepFeeds(own, len(mix.turns), changing=changing, mix=mix)


def _one_after_another(feeds: Sequence[Feed]) -> tuple[Feed, list[Place]]:
    parts, places, start = [], [], 0
    for feed in feeds:
        flat = feed.array.reshape(-1)
        # Texts need no alignment, and no text could fill a gap.
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
    """Return the weight and given inputs of each member by its name, and a digest of all values."""
    digest = hashlib.sha256()
    described = {}
    for member, own, given in zip(mixture.members, specs, feeds, strict=True):
        stored = describe_given(own, given, seed)
        shapes = f", {stored}" if stored.specs else ""
        described[member.name] = f"weight {member.weight}{shapes}"
        digest.update(repr((member.name, member.weight, sorted(member.dims.items()))).encode())
        digest.update(repr(stored.sha256).encode())
    return StoredInputs(specs=described, sha256=digest.hexdigest())


if TYPE_CHECKING:
    import numpy.typing as npt


class PhaseGiven(Struct, frozen=True):
    """The given inputs of a phase.

    `still` has those of the single inference that represents the phase, and `steps` those of all
    its steps. The tokens of the steps follow one another. The state is that of the first step.
    """

    still: Mapping[str, Feed]
    steps: Mapping[str, Feed]


def divide_given(
    given: GivenInputs, bound: BoundModel, phase: BoundPhase, model: str
) -> PhaseGiven:
    """Divide the given arrays among the inputs of a phase.

    The user gives the tokens of the prompt, or of the prompt and of all steps. Raises BindingError
    if an array does not fit the lengths of the generation.
    """
    all_steps = with_all_tokens(phase.inputs_at(0), phase)
    arrays = dict(given.arrays)
    if given.function is not None:
        exact = phase.values_at(0)
        types = input_types(bound.graph, all_steps, model)
        types = {name: kind for name, kind in types.items() if name not in exact}
        arrays = dict(call_for_inputs(given.function, types, given.source))
    tokens = {each.name: each for each in phase.state.tokens if each.name in arrays}
    if given.function is None:
        for name, token in tokens.items():
            own = _own_tokens(arrays.pop(name), token, phase, given.source, model)
            if own is not None:
                arrays[name] = own
    past = {pair.past for pair in phase.state.pairs}
    is_step = phase.phase.phase is Phase.STEP
    steps = {name: array for name, array in arrays.items() if is_step or name not in past}
    plain = replace(given, function=None)
    # This also checks the shapes, and the division of tokens below relies on them.
    of_steps = replace(plain, arrays=steps).feeds(bound.graph, all_steps, model)
    still = {name: array for name, array in steps.items() if name not in past}
    for name, token in tokens.items():
        if name in still:
            parts = np.split(still[name], phase.phase.steps, token.axis)
            still[name] = parts[phase.phase.middle]
    return PhaseGiven(
        replace(plain, arrays=still).feeds(bound.graph, bound.inputs, model), of_steps
    )


def _own_tokens(
    array: npt.NDArray[Any], token: InputAxis, phase: BoundPhase, source: str, model: str
) -> npt.NDArray[Any] | None:
    """Return the tokens of the phase, or None if only those of the other phase are given."""
    asked, axis = phase.phase, token.axis
    new = phase.state.chunk or 1
    whole = asked.prompt + asked.generate * new
    length = array.shape[axis] if axis < array.ndim else 0
    if length not in {asked.prompt, whole}:
        raise BindingError(
            f"the input {printable(token.name)!r} in {source} has {count_of(length, 'token')} "
            f"along axis {axis}. A generation of {model} takes {asked.prompt:,}, those of the "
            f"prompt, or {whole:,}, those of the prompt and of all steps: give one of these."
        )
    if asked.phase is Phase.PREFILL:
        return np.take(array, range(asked.prompt), axis)
    return None if length != whole else np.take(array, range(asked.prompt, whole), axis)
