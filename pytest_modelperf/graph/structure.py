"""A graph as plain immutable records, and the phases of a generation in which it runs.

These records do not use protobuf, and counters, the memory model and reports use only them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from pytest_modelperf.files.documents import Count

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Value: TypeAlias = "npt.NDArray[np.generic]"
Shape: TypeAlias = tuple[int | None, ...]
Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"

# The bits of an element in memory. Strings are absent, because they have no fixed size.
BITS: Mapping[str, int] = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8,
    "float8e8m0": 8, "float4e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2,
    "bool": 8, "complex64": 64, "complex128": 128,
}  # fmt: skip


def byte_size(dtype: str, elements: int) -> int:
    """Return the bytes of this many packed elements, or 0 for strings, which have no fixed size."""
    return (elements * BITS.get(dtype, 0) + 7) // 8


class UnknownShapeError(Exception):
    """A count needs a dimension that only a run of the model can show."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"the shape of {tensor!r} is not known before the model runs")
        self.tensor = tensor


# The garbage collector skips these, and the layers counted from them. A large graph has thousands,
# and none is in a circle of references.
class Tensor(Struct, frozen=True, gc=False, eq=False):
    """One value in the graph, with everything that is known about it before a run.

    `shape` is None if even the rank is unknown. A None inside it is an unknown dimension. Only
    small constants have a `value`. `weights` names the stored weights that a constant tensor is
    computed from. It is empty for a tensor that depends on an input.
    """

    name: str
    dtype: str | None = None
    shape: Shape | None = None
    is_constant: bool = False
    value: Value | None = None
    weights: tuple[str, ...] = ()

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape. Raises UnknownShapeError if a dimension is unknown."""
        shape = self.shape
        if shape is None or None in shape:
            raise UnknownShapeError(self.name)
        return shape  # type: ignore[return-value]  # no None is left in it

    @property
    def rank(self) -> int:
        if self.shape is None:
            raise UnknownShapeError(self.name)
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements. Raises UnknownShapeError if a dimension is unknown."""
        return prod(self.dims)

    @property
    def nbytes(self) -> int | None:
        """The bytes in memory, or None if the shape or the element size is unknown."""
        return _bytes_in_memory(self.dtype, self.shape)

    @property
    def has_known_shape(self) -> bool:
        return self.shape is not None and None not in self.shape

    @property
    def is_complete(self) -> bool:
        """Whether the type and every dimension are known."""
        shape = self.shape
        return self.dtype is not None and shape is not None and None not in shape

    @property
    def is_float(self) -> bool:
        return self.dtype is not None and self.dtype.startswith(("float", "bfloat", "complex"))


# Many tensors of a graph have the same type and shape.
@lru_cache(maxsize=1024)
def _bytes_in_memory(dtype: str | None, shape: Shape | None) -> int | None:
    if dtype is None or dtype not in BITS or shape is None or None in shape:
        return None
    return byte_size(dtype, prod(shape))  # type: ignore[arg-type]  # no None is left in it


def is_open(tensor: Tensor | None) -> bool:
    """Whether a tensor is given and has an unknown dimension."""
    return tensor is not None and not tensor.has_known_shape


class Node(Struct, frozen=True, gc=False, eq=False):
    """One operator call.

    An absent optional input or output is None. `trips` is how often the bodies run: the count of a
    Loop or Scan, or None if only a run of the model can show it. An If with a constant condition
    has only the branch that is taken.
    """

    name: str
    op_type: str
    domain: str = ""
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor | None, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    bodies: Mapping[str, Graph] = field(default_factory=dict)
    trips: int | None = 1
    opset: int = 0

    @property
    def id(self) -> str:
        """The layer id: the name of the first output tensor, which is unique in a graph."""
        return next((t.name for t in self.outputs if t is not None), self.name)

    @property
    def qualified_op(self) -> str:
        """`domain::Op`, or plain `Op` in the standard domain."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def input(self, index: int) -> Tensor:
        """Return the input at `index`, or raise UnknownShapeError if it is absent."""
        tensor = self.optional_input(index)
        if tensor is None:
            raise UnknownShapeError(f"{self.name or self.id} input {index}")
        return tensor

    def optional_input(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Tensor:
        """Return the output at `index`, or raise UnknownShapeError if it is absent."""
        tensor = self.outputs[index] if index < len(self.outputs) else None
        if tensor is None:
            raise UnknownShapeError(f"{self.name or self.id} output {index}")
        return tensor

    def attr_int(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def attr_ints(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        value = self.attributes.get(name, default)
        return value if isinstance(value, tuple) else default  # type: ignore[return-value]  # by ONNX's types

    def attr_str(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else default

    def attr_float(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        return value if isinstance(value, (int, float)) else default


class ZeroPoint(Struct, frozen=True):
    """The zero point of a quantized weight: the name of a stored constant, and its layout."""

    weight: str
    axis: int | None = None
    block_size: int | None = None


class Weight(Struct, frozen=True, gc=False, eq=False):
    """One stored constant of the model: an initializer, a Constant node, or a generated one.

    `origin` is "initializer", "sparse", or the type of the node that makes it. `params` is its
    number of parameters, which is 0 for a setting of an operator (see `count_params`). `nonzeros`
    is the number of elements that a sparse weight stores, or None for any other.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    origin: str
    nbytes: int
    params: int = 0
    zero_point: ZeroPoint | None = None
    nonzeros: int | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)


class Graph(Struct, frozen=True, eq=False):
    """A model's graph, or the body of a Loop, Scan or If, in execution order.

    `nodes` are the nodes that run. Engines fold nodes that depend on constants alone, so these
    appear only as the constant tensors that they make.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, Weight]

    def walk(self) -> Iterator[Node]:
        """Yield every node. The nodes of a body follow the node that has the body."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.walk()


class PlanNode(Struct, frozen=True, eq=False):
    """One step of an engine's plan. An absent input or output has an empty name."""

    name: str
    op_type: str
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    bodies: Mapping[str, PlanGraph] = field(default_factory=dict)


class PlanGraph(Struct, frozen=True, eq=False):
    """The graph that an engine made from a model or a body, and the names of its stored tensors."""

    nodes: tuple[PlanNode, ...]
    constants: frozenset[str] = frozenset()


class PlanDigest(Struct, frozen=True):
    """The digest of a plan and its number of kernels. Equal plans have equal digests."""

    value: str
    kernels: int


# -- the observations of one run of a model


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


class Phase(enum.Enum):
    """A part of a generation, measured as a case of its own."""

    PREFILL = "prefill"
    STEP = "step"


class GenerationPhase(Struct, frozen=True):
    """A phase of a generation of `generate` tokens after a prompt of `prompt` tokens.

    A prefill is one inference on the prompt. A step is one inference for each generated token, and
    the first step has a past as long as the prompt.
    """

    phase: Phase
    prompt: Count
    generate: Count

    @property
    def id(self) -> str:
        """The part of a case's id that names the phase: `prompt128-generate64-step`."""
        generate = f"-generate{self.generate}" if self.phase is Phase.STEP else ""
        return f"prompt{self.prompt}{generate}-{self.phase.value}"

    @property
    def steps(self) -> int:
        """The number of inferences that differ in their length."""
        return self.generate if self.phase is Phase.STEP else 1

    @property
    def middle(self) -> int:
        """The step that represents all of them in a static profile."""
        return self.steps // 2

    def before(self, step: int, new: int) -> int:
        """Return the number of tokens before a step, if each step takes `new` tokens."""
        return self.prompt + step * new if self.phase is Phase.STEP else 0


class Generation(Struct, frozen=True):
    """A generation to profile. `state` maps inputs to outputs, for the pairs that the user names.

    A prompt of 0 has no prefill, and `generate=0` has no steps.
    """

    prompt: int
    generate: int
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[GenerationPhase, ...]:
        wanted = ((Phase.PREFILL, self.prompt), (Phase.STEP, self.generate))
        return tuple(
            GenerationPhase(phase, self.prompt, self.generate) for phase, tokens in wanted if tokens
        )


def phases_of_all(
    generations: Sequence[Generation], wanted: Sequence[Phase]
) -> tuple[tuple[Generation, GenerationPhase], ...]:
    """Return the wanted phases of all generations, with one prefill for each prompt."""
    # The prefill is that of the longest generation, which a cache of a fixed size must hold.
    longest = {each.prompt: each for each in sorted(generations, key=lambda each: each.generate)}
    return tuple(
        (each, phase)
        for each in generations
        for phase in each.phases
        if phase.phase in wanted
        and (phase.phase is not Phase.PREFILL or longest[each.prompt] == each)
    )
