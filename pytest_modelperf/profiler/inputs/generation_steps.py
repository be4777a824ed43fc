"""The inputs of all steps of a generation or a workload, as a worker takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.graph.binding import BoundInputs, InputSpec
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.phase_inputs import BoundPhase
from pytest_modelperf.graph.state import InputAxis, StatePair
from pytest_modelperf.profiler.inputs.made import Feed, make_input, make_inputs
from pytest_modelperf.stats.records import Mix

# Where the values of a step begin in the flat array of an input, and their shape.
Place: TypeAlias = "tuple[int, tuple[int, ...]]"

# The steps of an inference that is repeated as it is.
ONE_STEP: Mapping[str, object] = {"count": 1, "state": [], "changing": {}}


class HandedOn(Struct, frozen=True):
    """An input that takes over an output, and by how many entries it grows along an axis."""

    past: str
    present: str
    axis: int | None = None
    growth: int = 0


class StepFeeds(Struct, frozen=True, eq=False):
    """The inputs of so many steps.

    `feeds` has each input of the first step, and for an input of `changing` the values of all steps
    in a flat array, with the places of each step. The steps of a workload are the inferences of
    one pass, and `mix` has the member of each.
    """

    feeds: Mapping[str, Feed]
    count: int = 1
    state: tuple[HandedOn, ...] = ()
    changing: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    mix: Mix | None = None

    def mix_from(self, first: int, count: int) -> Mix | None:
        """The members of so many inferences, from this step on; None if this is not a workload."""
        return None if self.mix is None else self.mix.turned(first, count)

    def to_wire(self) -> dict[str, object]:
        """The arguments of the worker's `StepArrays`."""
        return {
            "count": self.count,
            "state": [(own.past, own.present, own.axis, own.growth) for own in self.state],
            "changing": {name: list(places) for name, places in self.changing.items()},
        }


def make_steps(
    bound: BoundModel, phase: BoundPhase, seed: int, given: Mapping[str, Feed], model: str
) -> StepFeeds:
    """The steps of a model; `given` are inputs of the first step, and tokens of all of them."""
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
    """The inputs of the first step, with the tokens of all steps one after the other."""
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
    """The tokens of all steps, those of each step together in memory."""
    parts = np.split(feed.array, count, token.axis)
    flat = np.concatenate([part.reshape(-1) for part in parts])
    size, shape = parts[0].size, parts[0].shape
    return replace(feed, array=flat), tuple((step * size, shape) for step in range(count))


def _in_a_row(specs: Sequence[InputSpec], model: str) -> tuple[Feed, tuple[Place, ...]]:
    """The values of an input at each step; steps that are filled with one value share it."""
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
