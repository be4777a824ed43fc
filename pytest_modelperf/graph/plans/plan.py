"""The plan of an engine: kernels connected by tensors, and which of them two plans share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from msgspec import Struct
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    numpy_helper,
)

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.common_order import in_common
from pytest_modelperf.graph.convert import ParsedGraph, read_graph
from pytest_modelperf.graph.data_dependence import DataDependence, ValueFlow, read_plan_flow
from pytest_modelperf.graph.model_bytes import INTEGER_TYPES, KEEP_BYTES, KEEP_INTEGER_BYTES
from pytest_modelperf.graph.model_file import dtype_name, external_entries, open_model, packed_bytes
from pytest_modelperf.graph.stored_tensors import clear_data, dense_weights, stored_names
from pytest_modelperf.graph.stored_weights import (
    Contents,
    digest_bytes,
    digest_nodes,
    digest_texts,
    identify_setting,
    identify_weight,
    is_float,
)
from pytest_modelperf.graph.structure import PlanDigest, PlanGraph, PlanNode

# A smaller share of subnormal numbers does not affect the time of a kernel.
_FEWEST_SUBNORMALS = 1e-6
_OUTSIDE = "outside"
# A kernel that reads a tensor, by its index, and the place of the tensor among its inputs.
Reader = tuple[int, int]


class StoredSpan(Struct, frozen=True):
    """The place of a weight's data in a file next to the plan, and the type of its numbers.

    `is_shape` is true for integers that may be a shape or the sizes of pieces.
    """

    location: str
    offset: int
    nbytes: int
    dtype: str
    is_shape: bool


class WeightFacts(Struct, frozen=True):
    """Facts about the data of a weight: its digest, and its share of subnormal numbers."""

    content: bytes
    subnormal_share: float = 0.0


class PlanKernel(Struct, frozen=True, eq=False):
    """One kernel of a plan. Tensors that its bodies read from outside are among its inputs."""

    node: NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        return next((name for name in self.outputs if name), str(self.node.name))

    @property
    def op_type(self) -> str:
        return str(self.node.op_type)


class EnginePlan:
    """The kernels of a plan in an order in which they can run, and the weights that they read.

    `inputs` describes the type and shape of each input of the model. `facts` describes the data of
    weights in the file next to the plan, by their offset in that file.
    """

    def __init__(
        self, data: bytes, inputs: Mapping[str, str], facts: Mapping[int, WeightFacts]
    ) -> None:
        self.proto = ModelProto.FromString(data)
        self.inputs = inputs
        self._facts = facts
        self.kernels = tuple(map(_kernel, self.proto.graph.node))
        self.outputs = tuple(str(value.name) for value in self.proto.graph.output)
        self.weights: Mapping[str, TensorProto] = {
            str(tensor.name): tensor for tensor in self.proto.graph.initializer
        }

    @cached_property
    def model_inputs(self) -> tuple[str, ...]:
        # The plan of a model of an early ONNX version lists its weights as inputs too, even some
        # that it removed.
        names = (str(value.name) for value in self.proto.graph.input)
        return tuple(name for name in names if name in self.inputs and name not in self.weights)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        return {
            output: index
            for index, kernel in enumerate(self.kernels)
            for output in kernel.outputs
            if output
        }

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Reader]]:
        """The kernels that read each tensor, with its place among their inputs."""
        found: dict[str, list[Reader]] = defaultdict(list)
        for index, kernel in enumerate(self.kernels):
            for place, name in enumerate(kernel.inputs):
                if name:
                    found[name].append((index, place))
        return found

    @cached_property
    def digest(self) -> PlanDigest:
        kernels, tensors = self._ahead
        outputs = [tensors.get(name, name) for name in self.outputs]
        parts = map(sorted, (kernels, outputs, self.equal_weights))
        return PlanDigest(digest_texts(*map(repr, parts)), len(self.kernels))

    @property
    def forward(self) -> tuple[str, ...]:
        """The digest of each kernel, from the inputs of the model on."""
        return self._ahead[0]

    @cached_property
    def _ahead(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The digests of kernels in their order, and of tensors by their names."""
        known = {"": "", **self.weight_identities}
        for place, name in enumerate(self.model_inputs):
            known[name] = f"input {place} {self.inputs[name]}"
        return self._digest_nodes(self.proto.graph.node, known, lambda _: _OUTSIDE), known

    def _digest_nodes(
        self, nodes: Iterable[NodeProto], known: dict[str, str], outer: Callable[[str], str]
    ) -> tuple[str, ...]:
        return digest_nodes(nodes, known, outer, lambda node, seen: (self._kind(node, seen),))

    @cached_property
    def backward(self) -> tuple[str, ...]:
        """The digest of each kernel, from the outputs of the model back."""
        identities = self.weight_identities
        readers: dict[str, list[str]] = defaultdict(list)
        for name in self.outputs:
            readers[name].append("output")
        found = [""] * len(self.kernels)
        for index in range(len(self.kernels) - 1, -1, -1):
            kernel = self.kernels[index]
            own = found[index] = digest_texts(
                self.kinds[index],
                *(repr(sorted(readers[name])) for name in kernel.outputs),
                *(identities.get(name, _OUTSIDE) for name in kernel.inputs),
            )
            for place, name in enumerate(kernel.inputs):
                if name and name not in identities:
                    readers[name].append(f"{own}/{place}")
        return tuple(found)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The operator of each kernel with its attributes, but without its inputs."""
        known = self.weight_identities
        return tuple(
            self._kind(kernel.node, lambda name: known.get(name, _OUTSIDE))
            for kernel in self.kernels
        )

    @cached_property
    def weight_identities(self) -> Mapping[str, str]:
        """The identity of each weight: its type and shape, and its values if these affect time."""
        return {
            name: self._identity(
                tensor, {self.kernels[index].op_type for index, _ in self.readers.get(name, ())}
            )
            for name, tensor in self.weights.items()
        } | {
            str(sparse.values.name): self._sparse_identity(sparse)
            for sparse in self.proto.graph.sparse_initializer
        }

    @cached_property
    def equal_weights(self) -> tuple[str, ...]:
        """The digests of the kernels that read weights which equal one another."""
        # An engine packs equal weights once in a session, so they take less of its caches.
        groups: dict[tuple[int, bytes], list[str]] = defaultdict(list)
        for name, tensor in self.weights.items():
            facts = self._facts_of(tensor)
            if facts is not None and len(tensor.dims) > 1 and packed_bytes(tensor) > KEEP_BYTES:
                groups[tensor.data_type, facts.content].append(name)
        return tuple(
            repr((len(names), sorted(f"{self.forward[k]}/{place}" for k, place in readers)))
            for names in groups.values()
            if len(readers := [each for name in names for each in self.readers.get(name, ())]) > 1
        )

    @cached_property
    def _flow(self) -> ValueFlow:
        return read_plan_flow(self.proto)

    def find_data(self, *, after_run: bool = False) -> DataDependence | None:
        """Return the first kernel whose work depends on data (see `ValueFlow.find_data`).

        The digest leaves out the values that decide how long it takes.
        """
        return self._flow.find_data(after_run=after_run)

    def _facts_of(self, tensor: TensorProto) -> WeightFacts | None:
        offset = stored_offset(tensor)
        return None if offset is None else self._facts.get(offset)

    def _identity(self, tensor: TensorProto, operators: set[str]) -> str:
        if tensor.name in self._flow.settings:
            return identify_setting(tensor, self._content_of_any(tensor))
        contents = Contents(numpy_helper.to_array, self._content)
        shown = identify_weight(tensor, operators, contents)
        if not is_float(tensor) or prod(tensor.dims) == 1:
            return shown
        facts = self._facts_of(tensor)
        share = 0.0 if facts is None else facts.subnormal_share
        return shown if share < _FEWEST_SUBNORMALS else f"{shown} subnormal {share:.0e}"

    def _sparse_identity(self, sparse: SparseTensorProto) -> str:
        stored = sparse.values.data_type, tuple(sparse.dims), tuple(sparse.values.dims)
        if sparse.values.name not in self._flow.settings:
            return f"sparse {stored}"
        parts = (_without_names(sparse.values), _without_names(sparse.indices))
        return f"sparse {stored} {digest_bytes(b''.join(parts)).hex()}"

    def _content(self, tensor: TensorProto) -> bytes:
        if tensor.data_type not in INTEGER_TYPES and packed_bytes(tensor) > KEEP_BYTES:
            # For example an 8-bit table of an embedding, whose values a twin draws.
            return b""
        return self._content_of_any(tensor)

    def _content_of_any(self, tensor: TensorProto) -> bytes:
        facts = self._facts_of(tensor)
        if facts is not None:
            return facts.content
        if stored_offset(tensor) is not None:
            return b""
        return digest_bytes(tensor.raw_data or _without_names(tensor))

    def _kind(self, node: NodeProto, outer: Callable[[str], str]) -> str:
        attributes = sorted(
            (
                str(attribute.name),
                self._body_digest(attribute.g, outer)
                if attribute.type == AttributeProto.GRAPH
                else _without_names(attribute).hex(),
            )
            for attribute in node.attribute
        )
        return digest_texts(str(node.op_type), str(node.domain), repr(attributes))

    def _body_digest(self, body: GraphProto, outer: Callable[[str], str]) -> str:
        operators: dict[str, set[str]] = defaultdict(set)
        for node in body.node:
            for name in node.input:
                operators[str(name)].add(str(node.op_type))
        known: dict[str, str] = {"": ""}
        for tensor in body.initializer:
            name = str(tensor.name)
            known[name] = self._identity(tensor, operators[name])
        for place, value in enumerate(body.input):
            known.setdefault(str(value.name), f"input {place}")

        digests = self._digest_nodes(body.node, known, outer)
        names = (str(value.name) for value in body.output)
        outputs = [known[name] if name in known else outer(name) for name in names]
        return digest_texts(repr(sorted(digests)), repr(outputs))


def stored_spans(data: bytes) -> tuple[StoredSpan, ...]:
    """Return the weights of a plan whose data is in the file next to it."""
    return tuple(
        StoredSpan(
            external_entries(stored.tensor)["location"],
            offset,
            packed_bytes(stored.tensor),
            dtype_name(stored.tensor.data_type) or "",
            stored.tensor.data_type in INTEGER_TYPES
            and packed_bytes(stored.tensor) <= KEEP_INTEGER_BYTES,
        )
        for stored in dense_weights(ModelProto.FromString(data).graph)
        if (offset := stored_offset(stored.tensor)) is not None
    )


def with_stored(data: bytes, contents: Mapping[int, bytes]) -> bytes:
    """Return the plan with this data in it, by its offset in the file next to the plan."""
    # Shape inference does not read a file, so ONNX Runtime refuses such a plan.
    model = ModelProto.FromString(data)
    for stored in dense_weights(model.graph):
        offset = stored_offset(stored.tensor)
        if offset is not None and offset in contents:
            clear_data(stored.tensor)
            stored.tensor.raw_data = contents[offset]
    return model.SerializeToString()


def find_plan_difference(first: EnginePlan, second: EnginePlan) -> str | None:
    """Describe how the second plan differs: `it runs 1 Relu less and 7 Mul more`."""
    if first.digest == second.digest:
        return None
    here, there = (Counter(kernel.op_type for kernel in plan.kernels) for plan in (first, second))
    changes = [
        f"{abs(there[op] - here[op]):,} {op} {'more' if there[op] > here[op] else 'less'}"
        for op in sorted({*here, *there}, key=lambda op: (-abs(there[op] - here[op]), op))
        if here[op] != there[op]
    ]
    if changes:
        rest = "" if len(changes) <= _MOST_TOLD else f" and {len(changes) - _MOST_TOLD} others"
        return f"it runs {', '.join(changes[:_MOST_TOLD])}{rest}"
    known = Counter(second.forward)
    for kernel, digest in zip(first.kernels, first.forward, strict=True):
        if not known[digest]:
            return _describe_other(first, second, kernel)
        known[digest] -= 1
    if sorted(first.equal_weights) != sorted(second.equal_weights):
        return "other weights equal one another, which an engine packs only once"
    return "it returns other tensors"


# At most this many operators are named in a difference.
_MOST_TOLD = 3


def _describe_other(first: EnginePlan, second: EnginePlan, kernel: PlanKernel) -> str:
    like = next((other for other in second.kernels if other.name == kernel.name), None)
    if like is not None:
        for mine, other in zip(kernel.inputs, like.inputs, strict=False):
            here = first.weight_identities.get(mine)
            there = second.weight_identities.get(other)
            if here is not None and there is not None and here != there:
                what = "other values or sizes"
                if "subnormal" in here or "subnormal" in there:
                    what = "another share of subnormal numbers"
                return f"a weight of its {kernel.op_type} {kernel.name!r} has {what}"
    return f"its {kernel.op_type} {kernel.name!r} works on other tensors or in another way"


def _kernel(node: NodeProto) -> PlanKernel:
    read = dict.fromkeys(
        name for attribute in node.attribute for name in _read_from_outside(attribute)
    )
    inputs = [str(name) for name in node.input]
    return PlanKernel(
        node,
        (*inputs, *(name for name in read if name not in inputs)),
        tuple(map(str, node.output)),
    )


def _read_from_outside(attribute: AttributeProto) -> Iterator[str]:
    if attribute.type != AttributeProto.GRAPH:
        return
    body = attribute.g
    own = {str(value.name) for value in body.input} | {str(t.name) for t in body.initializer}
    own |= {str(name) for node in body.node for name in node.output}
    for node in body.node:
        inner = [name for each in node.attribute for name in _read_from_outside(each)]
        yield from (str(name) for name in (*node.input, *inner) if name and name not in own)
    yield from (str(value.name) for value in body.output if value.name not in own)


def _without_names(message: AttributeProto | TensorProto) -> bytes:
    made = type(message).FromString(message.SerializeToString())
    if isinstance(made, TensorProto):
        made.ClearField("name")
    elif made.HasField("t"):
        made.t.ClearField("name")
    return made.SerializeToString(deterministic=True)


def stored_offset(tensor: TensorProto) -> int | None:
    """Return where the data begins in the file next to the plan, or None for data in the plan."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    try:
        return int(external_entries(tensor).get("offset", "0"))
    except ValueError as error:
        raise ModelError("the engine wrote a plan whose weights have no place") from error


# -- the plan of an engine


def read_plan(data: bytes) -> PlanGraph:
    """Read the plan in the bytes of an ONNX file. The data of its weights may be missing."""
    return _plan(read_graph(open_model(data).proto.graph, "the plan of the engine"))


def _plan(block: ParsedGraph) -> PlanGraph:
    constants = stored_names(block.proto)
    nodes = []
    for call in block.calls:
        if call.op_type == "Constant" and not call.domain:
            constants.update(call.outputs)
            continue
        bodies = {name: _plan(body) for name, body in call.bodies.items()}
        nodes.append(
            PlanNode(call.proto.name, call.op_type, call.domain, call.inputs, call.outputs, bodies)
        )
    return PlanGraph(tuple(nodes), frozenset(constants))


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
