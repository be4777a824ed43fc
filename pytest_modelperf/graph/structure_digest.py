"""The digest of a model's structure, which is the same for its twin.

The structure is every operator with its attributes, its weights' types and shapes, and its
connections, starting at the inputs of the model. Names do not count, and neither do values that
training changes. Settings such as axes count by value. As in the digest of a plan, the digest of
each node includes those of its inputs, and the order of the nodes does not count.

Values count only if a twin always has them (`is_always_kept`, `is_kept_setting`). So large weights
are never read, and a model and its twin have one digest by construction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

from pytest_modelperf.graph.convert import unified_domain
from pytest_modelperf.graph.data_dependence import find_constant, find_settings
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.graph.stored_tensors import bodies_of
from pytest_modelperf.graph.stored_weights import (
    Contents,
    digest_bytes,
    digest_nodes,
    digest_texts,
    identify_setting,
    identify_weight,
)
from pytest_modelperf.graph.twin import is_always_kept, is_kept_setting, is_left_out

# The identity of a tensor that comes from no earlier node, weight or input.
_OUTSIDE = "outside"


def digest_structure(file: ModelFile) -> str:
    """Return the digest of a structure, which each opened file computes once, for all its cases."""
    return file.digest_once("structure", lambda: _digest_structure(file))


def _digest_structure(file: ModelFile) -> str:
    proto = file.proto
    opsets = sorted((unified_domain(each.domain), each.version) for each in proto.opset_import)
    functions = sorted(
        _Structure(file, find_settings(each)).digest_function(each) for each in proto.functions
    )
    structure = _Structure(file, find_settings(proto.graph, dict(opsets).get("")))
    return digest_texts(
        repr(opsets), *functions, structure.digest_graph(proto.graph, lambda _: _OUTSIDE)
    )


class _Structure:
    def __init__(self, file: ModelFile, settings: AbstractSet[str]) -> None:
        self._file = file
        self._settings = settings
        self._contents = Contents(file.read_tensor, self._content)

    def digest_function(self, function: FunctionProto) -> str:
        domain = unified_domain(function.domain)
        known = {str(name): f"input {place}" for place, name in enumerate(function.input)}
        opsets = sorted(
            (unified_domain(each.domain), each.version) for each in function.opset_import
        )
        return digest_texts(
            repr((domain, function.name, function.overload, opsets, list(function.attribute))),
            repr(self._attributes(function.attribute_proto, lambda _: _OUTSIDE)),
            self._digest_nodes(function.node, {}, known, lambda _: _OUTSIDE, function.output),
        )

    def digest_graph(self, graph: GraphProto, outer: Callable[[str], str]) -> str:
        weights: dict[str, TensorProto | SparseTensorProto] = {
            **{str(tensor.name): tensor for tensor in graph.initializer},
            **{str(sparse.values.name): sparse for sparse in graph.sparse_initializer},
        }
        # Models of early versions also list their weights as inputs.
        inputs = [value for value in graph.input if value.name not in weights]
        known = {
            str(value.name): f"input {place} {_type(value)}" for place, value in enumerate(inputs)
        }
        outputs = [str(value.name) for value in graph.output]
        return digest_texts(
            repr([*map(_type, inputs)]),
            repr([*map(_type, graph.output)]),
            self._digest_nodes(graph.node, weights, known, outer, outputs),
        )

    def _digest_nodes(
        self,
        nodes: Iterable[NodeProto],
        stored: Mapping[str, TensorProto | SparseTensorProto],
        inputs: Mapping[str, str],
        outer: Callable[[str], str],
        outputs: Iterable[str],
    ) -> str:
        weights, running = {**stored}, []
        operators: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            constant = find_constant(node)
            if constant is not None:
                weights[str(node.output[0])] = constant
                continue
            running.append(node)
            for name in node.input:
                operators[str(name)].add(str(node.op_type))
        identities = {
            name: self._identify_stored(name, tensor, operators[name])
            for name, tensor in weights.items()
        }
        known: dict[str, str] = {"": "", **inputs, **identities}
        digests = digest_nodes(running, known, outer, self._kind)
        readers: dict[str, list[str]] = {name: [] for name in weights}
        for node, own in zip(running, digests, strict=True):
            for place, name in enumerate(node.input):
                if name in readers:
                    readers[name].append(f"{own}/{place}")
        # One weight for two nodes takes less of a cache than two weights.
        shared = sorted((identities[name], sorted(found)) for name, found in readers.items())
        returned = [known[name] if name in known else outer(name) for name in map(str, outputs)]
        return digest_texts(repr(sorted(digests)), repr(shared), repr(returned))

    def _kind(self, node: NodeProto, lookup: Callable[[str], str]) -> tuple[str, str]:
        named = str(node.op_type), unified_domain(str(node.domain)), str(node.overload)
        return repr(named), repr(self._attributes(node.attribute, lookup))

    def _attributes(
        self, attributes: Iterable[AttributeProto], outer: Callable[[str], str]
    ) -> list[tuple[str, str]]:
        return sorted((str(each.name), self._digest_attribute(each, outer)) for each in attributes)

    def _digest_attribute(self, attribute: AttributeProto, outer: Callable[[str], str]) -> str:
        tensors = [attribute.t] if attribute.HasField("t") else []
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        parts = [
            *(self.digest_graph(body, outer) for body in bodies_of(attribute)),
            *(self._identify(each, set()) for each in (*tensors, *attribute.tensors)),
            *(self._identify(each, set()) for each in (*sparse, *attribute.sparse_tensors)),
        ]
        if parts:
            return repr(parts)
        if attribute.HasField("doc_string"):
            # A twin has no such text.
            plain = AttributeProto()
            plain.CopyFrom(attribute)
            plain.ClearField("doc_string")
            attribute = plain
        return digest_bytes(attribute.SerializeToString(deterministic=True)).hex()

    def _identify_stored(
        self, name: str, tensor: TensorProto | SparseTensorProto, operators: set[str]
    ) -> str:
        if isinstance(tensor, TensorProto) and name in self._settings:
            kept = self._digest_values(tensor) if is_kept_setting(tensor) else b""
            return identify_setting(tensor, kept)
        return self._identify(tensor, operators)

    def _identify(self, tensor: TensorProto | SparseTensorProto, operators: set[str]) -> str:
        if isinstance(tensor, TensorProto):
            return identify_weight(tensor, operators, self._contents)
        stored = tuple(tensor.values.dims), tuple(tensor.indices.dims)
        return f"sparse {tensor.values.data_type} {tuple(tensor.dims)} {stored}"

    def _content(self, tensor: TensorProto) -> bytes:
        return self._digest_values(tensor) if is_always_kept(tensor) else b""

    def _digest_values(self, tensor: TensorProto) -> bytes:
        if tensor.data_type == TensorProto.STRING:
            return b""
        if is_left_out(tensor):
            return b"left out"
        return digest_bytes(self._file.read_tensor(tensor).tobytes())


def _type(value: ValueInfoProto) -> str:
    return str(value.type.SerializeToString(deterministic=True).hex())
