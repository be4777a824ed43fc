"""The records of a static profile: its layers, and the sums over them.

Stored facts are fields, derived facts are properties. An unknown value is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from pytest_modelperf.files.documents import Count, Figure, Number, Positive, Sum
from pytest_modelperf.graph.shape_rules import product, total
from pytest_modelperf.graph.structure import Shape
from pytest_modelperf.report.codec import JsonObject

# Not quoted, because msgspec evaluates the types of fields.
Attribute: TypeAlias = int | float | str | tuple[int | float | str, ...]


class Sparsity(Struct, frozen=True):
    """The zeros of one weight.

    `pattern` is one of

    - `dense`: too few elements are zero to look for a pattern;
    - `1x1`: the zeros form no larger pattern (unstructured);
    - `1xN`, `Nx1`, `NxN`: the block with the most elements that the zeros come in; N is a power of
      two, or for 1xN the number of elements of one convolution kernel, H*W;
    - `rows`, `columns`, `rows+columns`: whole rows or columns of the two-dimensional view; for a
      convolution, rows are output channels and columns belong to input channels;
    - `all`: every element is zero.

    `block_ratio` is the share of elements that are inside all-zero blocks (or rows, or columns) of
    that pattern: `ratio` for `1x1` and 0 for `dense`.

    `n_of_m` is `(2, 4)` if each aligned group of 4 holds at most 2 nonzeros, and so on. The groups
    run along the rows of the view, or along the input channels: the first axis of a matrix, the
    second axis of a larger weight. It is None if no grouping holds for all groups, or if the weight
    is far sparser than the grouping requires.
    """

    zeros: Count
    size: Count
    pattern: str
    block_ratio: Number
    n_of_m: tuple[Count, Count] | None

    @property
    def ratio(self) -> float:
        """The share of elements that are zero, or 0 for an empty weight."""
        return self.zeros / self.size if self.size else 0.0


SPARSITY = JsonObject(Sparsity, "* ratio?", ratio=Figure | None)


class StaticLayer(Struct, frozen=True, gc=False):
    """The cost of one node of the graph in one inference.

    `id` is the name of the first output. `weight` names the largest parameter, and `weight_macs`
    are the MACs that multiply with this weight. A node in the body of a Loop or Scan runs `repeats`
    times, and all figures already include that factor. `attributes` are those that the node sets,
    without bodies. `reads` and `writes` are the bytes that the node has to move, by the names of
    tensors and weights, or None if they were not counted. `fed_by` has the indexes of the layers
    that make the inputs, or is None if they are not known.
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
    weight_macs: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    reads: Mapping[str, int | None] | None = None
    writes: Mapping[str, int | None] | None = None
    fed_by: tuple[int, ...] | None = None

    @property
    def flops(self) -> int | None:
        return total(product(2, self.macs), self.elementwise_ops)

    @property
    def total_ops(self) -> int | None:
        """The sum of MACs and elementwise operations, which onnx_tool calls MACs."""
        return total(self.macs, self.elementwise_ops)

    @property
    def memory_bytes(self) -> int | None:
        """The bytes of weights and outputs, which onnx_tool calls memory."""
        return total(self.weight_bytes, self.output_bytes)

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


class LayerTypeCounts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counts of all layers of one operator."""

    domain: str
    count: Count
    macs: Count | None
    elementwise_ops: Count | None
    backward_macs: Count | None
    params: Count
    weight_bytes: Count
    output_bytes: Count | None


class LayerType(LayerTypeCounts, frozen=True, kw_only=True):
    """All layers of one operator together; or a kind of time that belongs to no layer.

    `ns` is None if no time was measured for any of the layers, for example because they always run
    inside the kernel of another layer. `share` is the share of the latency.
    """

    op_type: str
    ns: float | None = None
    share: Figure | None = None

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def flops(self) -> int | None:
        return total(product(2, self.macs), self.elementwise_ops)

    @property
    def ms(self) -> Figure | None:
        return None if self.ns is None else self.ns / 1e6

    @property
    def counts(self) -> LayerTypeCounts | None:
        """The counts, or None for a time that belongs to no layer."""
        return self if self.count else None


LAYER_TYPE = JsonObject(
    LayerType,
    "op_type domain?=counts.domain count?=counts.count ms? share? macs?=counts.macs"
    " elementwise_ops?=counts.elementwise_ops backward_macs?=counts.backward_macs"
    " params?=counts.params weight_bytes?=counts.weight_bytes output_bytes?=counts.output_bytes",
    macs=Sum | None,
    elementwise_ops=Sum | None,
    backward_macs=Sum | None,
    params=Sum | None,
    weight_bytes=Sum | None,
    output_bytes=Sum | None,
)


class Uncounted(Struct, frozen=True):
    """The layers of one operator that could not be counted, and why."""

    op_type: str
    domain: str
    count: int
    reason: str

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


class GenerationCounts(Struct, frozen=True, kw_only=True):
    """The counts of a phase of a generation.

    `cache_bytes` is how much the state grows with each token of one item of the batch, and 0 if it
    does not grow. `first_macs` and `last_macs` are the MACs of the first and the last step, or None
    if they could not be counted. Between these the MACs of a step grow linearly.
    """

    cache_bytes: int | None
    first_macs: int | None
    last_macs: int | None


class MemberCounts(Struct, frozen=True, kw_only=True):
    """The counts of one member of a workload, and how often it occurs in a pass."""

    name: str
    weight: Positive
    macs: Count | None


class StaticProfile(Struct, frozen=True):
    """The counts that follow from the graph alone, at one set of input shapes.

    Sums leave out the layers that could not be counted, which `uncounted` lists. If `coverage` is
    below 1, the sums are lower bounds. `params` and `weight_bytes` count a shared weight once, so
    they can be less than the sum over the layers. `scalar_params` counts the params that are
    tensors of a single value, such as an epsilon, or is None if they were not counted. `undecided`
    counts the Ifs whose branch is known only at run time. For these the costlier branch counts, so
    the sums are upper bounds.

    If a run completed the profile, `graph_alone` is the profile before that run. `chance` names the
    operator whose random values decided what the run computed. `generation` is set for a phase of
    a generation, and the counts of a step are then those of the step in the middle. For a workload,
    `members` are its members, and all other counts are those of the member with the largest inputs.
    """

    layers: tuple[StaticLayer, ...]
    params: int
    weight_bytes: int
    peak_activation_bytes: int | None
    uncounted: tuple[Uncounted, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: int = 0
    graph_alone: StaticProfile | None = None
    chance: str | None = None
    scalar_params: int | None = None
    generation: GenerationCounts | None = None
    members: tuple[MemberCounts, ...] = ()

    def __repr__(self) -> str:
        """Return one line for a failed assertion, because all layers would fill pages."""
        return f"<static profile: {self.macs} MACs, {self.params} params>"

    @property
    def from_graph(self) -> StaticProfile:
        """The profile of the graph alone, whether or not the model also ran."""
        return self if self.graph_alone is None else self.graph_alone

    @property
    def observed(self) -> StaticProfile | None:
        """The counts of one run. None if nothing ran, or if random values decided the counts."""
        if self.graph_alone is not None:
            return self if self.chance is None else None
        # If the graph alone gives a complete profile, every run has the same one.
        return self if self.is_whole else None

    @property
    def is_whole(self) -> bool:
        """Whether the graph alone determines all counts."""
        return self.undecided == 0 and self.coverage == 1.0

    @property
    def macs(self) -> Sum:
        return _sum(layer.macs for layer in self.layers)

    @property
    def elementwise_ops(self) -> Sum:
        return _sum(layer.elementwise_ops for layer in self.layers)

    @property
    def flops(self) -> Sum:
        return 2 * self.macs + self.elementwise_ops

    @property
    def layer_params(self) -> int:
        """The sum of the params of all layers, in which a shared weight counts for each of them."""
        return sum(layer.params for layer in self.layers)

    @property
    def backward_macs(self) -> Sum:
        return _sum(layer.backward_macs for layer in self.layers)

    @property
    def activation_bytes(self) -> Sum:
        return _sum(layer.output_bytes for layer in self.layers)

    @property
    def knows_activations(self) -> bool:
        """Whether the size of every output is known. If not, their sum is a lower bound."""
        return all(layer.output_bytes is not None for layer in self.layers)

    @property
    def effective_macs(self) -> Sum | None:
        """The MACs that multiply with nonzero weights, or None if no weight was read."""
        if all(layer.effective_macs is None for layer in self.layers):
            return None
        return sum(
            layer.effective_macs if layer.effective_macs is not None else layer.macs or 0
            for layer in self.layers
        )

    @property
    def coverage(self) -> Figure:
        """The share of layers that could be counted."""
        missing = sum(uncounted.count for uncounted in self.uncounted)
        return 1.0 - missing / len(self.layers) if self.layers else 1.0

    @property
    def uncounted_ops(self) -> Mapping[str, int]:
        """The number of layers of each operator that could not be counted."""
        return _counts((entry.qualified_op, entry.count) for entry in self.uncounted)

    @property
    def uncounted_types(self) -> Mapping[str, Count]:
        """The uncounted layers by operator without its domain, for the document of a profile."""
        return _counts((entry.op_type, entry.count) for entry in self.uncounted)

    @property
    def layer_types(self) -> Mapping[str, LayerType]:
        """The layers grouped by operator, in order of first appearance."""
        groups: dict[str, list[StaticLayer]] = {}
        for layer in self.layers:
            groups.setdefault(layer.qualified_op, []).append(layer)
        return {op: layer_type(own[0].op_type, own[0].domain, own) for op, own in groups.items()}


TOTALS_KEYS = (
    "macs elementwise_ops? flops? backward_macs? effective_macs? params weight_bytes"
    " activation_bytes? peak_activation_bytes"
)
TOTALS = JsonObject(
    StaticProfile,
    TOTALS_KEYS,
    title="Totals",
    about="The totals of a static profile; all null without a graph.",
    params=Count,
    weight_bytes=Count,
    peak_activation_bytes=Count | None,
)
STATIC = JsonObject(
    StaticProfile,
    f"{TOTALS_KEYS} uncounted_ops=uncounted_types coverage? notes",
    about="The counts of a case.",
    **TOTALS.inner,
)


def layer_type(op_type: str, domain: str, layers: Sequence[StaticLayer]) -> LayerType:
    return LayerType(
        op_type=op_type,
        domain=domain,
        count=len(layers),
        macs=_known_sum(layer.macs for layer in layers),
        elementwise_ops=_known_sum(layer.elementwise_ops for layer in layers),
        backward_macs=_known_sum(layer.backward_macs for layer in layers),
        params=sum(layer.params for layer in layers),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        output_bytes=_known_sum(layer.output_bytes for layer in layers),
    )


def _counts(pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for name, count in pairs:
        counts[name] = counts.get(name, 0) + count
    return counts


def _sum(values: Iterable[int | None]) -> int:
    return sum(value for value in values if value is not None)


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
