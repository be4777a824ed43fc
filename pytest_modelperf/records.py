"""The records that cross layers: what is known of a model, a case, and each of its layers.

Stored facts are fields, derived ones are properties. None is a value that could not be had; it
is never written as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Shape: TypeAlias = tuple[int | None, ...]

# The parts of a machine's key: lower case, nothing that a file system could take amiss.
_SYSTEM_NAMES = {"darwin": "macos"}
_UNSAFE = re.compile(r"[^a-z0-9_]+")
_MAX_KEY_PART = 40


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Which file a profile is of."""

    name: str
    path: str | None
    sha256: str | None
    size_bytes: int
    opsets: Mapping[str, int] = field(default_factory=dict)
    producer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A machine as this process sees it. None is what could not be had.

    `physical_cores` and `logical_cores` are those of the machine, `usable_cores` those that this
    process may use at once. `memory_limit_bytes` is only there where it is less than the memory.
    """

    cpu: str | None = None
    microarchitecture: str | None = None
    instruction_sets: tuple[str, ...] | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    quota_cores: float | None = None
    caches: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    governor: str | None = None
    turbo: bool | None = None
    virtualization: str | None = None
    system: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    architecture: str | None = None
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What kind of machine it is: `linux-x86_64-icelake-2c`. It is safe as a file name.

        Nothing in it changes with a reboot or another Python. Where the microarchitecture is not
        known the name of the processor stands for it.
        """
        system = (self.system or "").lower()
        parts = [
            _SYSTEM_NAMES.get(system, system),
            self.architecture or "",
            self.microarchitecture or self.cpu or "",
        ]
        cores = [] if self.usable_cores is None else [f"{self.usable_cores}c"]
        return "-".join([*(_slug(part) or "unknown" for part in parts), *cores])


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The zeros of one weight.

    `pattern` is one of

    - `dense`: hardly any are zero, so no pattern was looked for;
    - `1x1`: the zeros are in no larger pattern (unstructured);
    - `1xN`, `Nx1`, `NxN`: the largest block, by its elements, that the zeros come in; N is a
      power of two, or for 1xN the number of elements of one convolution kernel, H*W;
    - `rows`, `columns`, `rows+columns`: whole rows or columns of the two-dimensional view; for a
      convolution, rows are output channels and columns belong to input channels;
    - `all`: nothing but zeros.

    `block_ratio` is the share of elements inside wholly zero blocks (or rows, or columns) of that
    pattern: `ratio` for `1x1` and 0 for `dense`.

    `n_of_m` is `(2, 4)` where each aligned group of 4 holds at most 2 nonzeros, and so on,
    in groups along the rows of the view, or along the first axis of a matrix or the
    second of a larger weight (the input channels). None where no grouping holds for all groups,
    or where the weight is far sparser than the grouping asks.
    """

    zeros: int
    size: int
    pattern: str
    block_ratio: float
    n_of_m: tuple[int, int] | None

    @property
    def ratio(self) -> float:
        """The share of elements that are zero; 0 for an empty weight."""
        return self.zeros / self.size if self.size else 0.0


@dataclass(frozen=True, slots=True)
class StaticLayer:
    """What one node of the graph costs in one inference.

    `id` is the name of its first output; `weight` names its largest parameter. Nodes in the body
    of a Loop or Scan count `repeats` times; their own figures already hold that factor.
    """

    id: str
    name: str
    op_type: str
    domain: str
    weight: str | None
    precision: str | None
    macs: int | None
    elementwise_ops: int | None
    backward_macs: int | None
    params: int
    weight_bytes: int
    output_bytes: int | None
    input_shape: Shape | None
    output_shape: Shape | None
    repeats: int | None = 1
    sparsity: Sparsity | None = None
    effective_macs: int | None = None

    @property
    def flops(self) -> int | None:
        if self.macs is None or self.elementwise_ops is None:
            return None
        return 2 * self.macs + self.elementwise_ops

    @property
    def total_ops(self) -> int | None:
        """MACs and elementwise operations together: what onnx_tool calls MACs."""
        if self.macs is None or self.elementwise_ops is None:
            return None
        return self.macs + self.elementwise_ops

    @property
    def memory_bytes(self) -> int | None:
        """Weights and outputs together: what onnx_tool calls memory."""
        return None if self.output_bytes is None else self.weight_bytes + self.output_bytes

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True)
class LayerType:
    """All layers of one operator together."""

    op_type: str
    domain: str
    count: int
    macs: int | None
    elementwise_ops: int | None
    backward_macs: int | None
    params: int
    weight_bytes: int
    output_bytes: int | None

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Layers of one operator that could not be counted, and why."""

    op_type: str
    domain: str
    count: int
    reason: str

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True, repr=False)
class StaticProfile:
    """What follows from the graph alone, at one set of input shapes.

    Sums leave out what could not be counted: `coverage` below 1 says that they are lower bounds,
    `uncounted` says of what. `params` and `weight_bytes` count a shared weight once, so they can
    be less than the sum over the layers.
    """

    layers: tuple[StaticLayer, ...]
    params: int
    weight_bytes: int
    peak_activation_bytes: int | None
    uncounted: tuple[Uncounted, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """A line, for the report of a failed assertion: the layers would fill pages."""
        return f"<static profile: {self.macs} MACs, {self.params} params>"

    @property
    def macs(self) -> int:
        return _sum(layer.macs for layer in self.layers)

    @property
    def elementwise_ops(self) -> int:
        return _sum(layer.elementwise_ops for layer in self.layers)

    @property
    def flops(self) -> int:
        return 2 * self.macs + self.elementwise_ops

    @property
    def backward_macs(self) -> int:
        return _sum(layer.backward_macs for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        return _sum(layer.output_bytes for layer in self.layers)

    @property
    def knows_activations(self) -> bool:
        """Whether the size of every output is known; if not, their sum is a lower bound."""
        return all(layer.output_bytes is not None for layer in self.layers)

    @property
    def effective_macs(self) -> int | None:
        """MACs that multiply a weight which is not zero; None where no weight was read."""
        if all(layer.effective_macs is None for layer in self.layers):
            return None
        return sum(
            layer.effective_macs if layer.effective_macs is not None else layer.macs or 0
            for layer in self.layers
        )

    @property
    def coverage(self) -> float:
        """The share of layers that could be counted."""
        missing = sum(uncounted.count for uncounted in self.uncounted)
        return 1.0 - missing / len(self.layers) if self.layers else 1.0

    @property
    def layer_types(self) -> Mapping[str, LayerType]:
        """The layers grouped by operator, in order of first appearance."""
        groups: dict[str, list[StaticLayer]] = {}
        for layer in self.layers:
            groups.setdefault(layer.qualified_op, []).append(layer)
        return {op: _layer_type(layers) for op, layers in groups.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """One model at one batch size and one core count, with its other dimensions bound."""

    batch_size: int
    cores: int
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def id(self) -> str:
        return "-".join(
            [f"b{self.batch_size}", f"c{self.cores}", *(f"{n}{s}" for n, s in self.dims)]
        )


@dataclass(frozen=True, slots=True, repr=False)
class CaseProfile:
    """Everything known about one case."""

    case: Case
    static: StaticProfile

    def __repr__(self) -> str:
        return f"<profile {self.case.id}: {self.static.macs} MACs, {self.static.params} params>"

    @property
    def layer_types(self) -> Mapping[str, LayerType]:
        return self.static.layer_types


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a model: its cases, in the order asked for.

    A static profile is the same on every machine, so it says which only where that is asked.
    """

    model: ModelFacts
    cases: tuple[CaseProfile, ...]
    machine: MachineFacts | None = None


def _layer_type(layers: list[StaticLayer]) -> LayerType:
    return LayerType(
        op_type=layers[0].op_type,
        domain=layers[0].domain,
        count=len(layers),
        macs=_known_sum(layer.macs for layer in layers),
        elementwise_ops=_known_sum(layer.elementwise_ops for layer in layers),
        backward_macs=_known_sum(layer.backward_macs for layer in layers),
        params=sum(layer.params for layer in layers),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        output_bytes=_known_sum(layer.output_bytes for layer in layers),
    )


def _sum(values: Iterable[int | None]) -> int:
    return sum(value for value in values if value is not None)


def _known_sum(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text.lower()).strip("-")[:_MAX_KEY_PART].strip("-")
