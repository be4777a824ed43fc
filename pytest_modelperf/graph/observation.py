"""The observations of one run of a model: shapes, trip counts and taken branches of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.graph.structure import Shape

# The path to a node: the ids of the nodes around it, each with the name of its body, then the
# node's own id.
NodePlace: TypeAlias = "tuple[str, ...]"


class SeenNode(Struct, frozen=True):
    """How often a node ran, its constant output dimensions, and whether any differed."""

    calls: int
    outputs: tuple[Shape | None, ...]
    varies: bool = False


class Observation(Struct, frozen=True):
    """The observations of a run, by the place of the node.

    `trips` is how often the body of a node runs each time, if that is a whole number. `branches` is
    the body of an If that ran, if it was always the same one.
    """

    nodes: Mapping[NodePlace, SeenNode] = field(default_factory=dict)
    trips: Mapping[NodePlace, int] = field(default_factory=dict)
    branches: Mapping[NodePlace, str] = field(default_factory=dict)
