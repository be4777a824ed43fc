"""OpenVINO as an engine.

Its source is sent to a worker; it needs numpy and the runtime.

Options are strings. `device` names where the model runs (`CPU` by default, `GPU.0`, `AUTO`). Any
other name is a property that the device compiles the model with (`INFERENCE_PRECISION_HINT=f32`).
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import openvino as ov

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Array, ModelRef, StepPlan

NAME = "openvino"

_DEVICE = "device"
_DEFAULT_DEVICE = "CPU"
_THREADS = "INFERENCE_NUM_THREADS"
# One request at a time is measured, so all threads work for it.
_STREAMS = "NUM_STREAMS"
_DEFAULTS = {_STREAMS: "1", "PERFORMANCE_HINT": "LATENCY"}
_PROFILING = "PERF_COUNT"
_PRECISION = "INFERENCE_PRECISION_HINT"
# The smallest share of zeros at which weights are packed.
_SPARSE_FROM = "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"
# Our names of precisions, and the runtime's.
_FLOATS = ("f32", "bf16", "f16")
# Devices that pass the model to others, and are not listed among the available ones.
_VIRTUAL_DEVICES = ("AUTO", "BATCH", "HETERO", "MULTI")

# A model that passes its input through.
_SMALLEST = b"""<net name="smallest" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1" element_type="f32"/>
<output><port id="0" precision="FP32"><dim>1</dim></port></output></layer>
<layer id="1" name="y" type="Result" version="opset1">
<input><port id="0" precision="FP32"><dim>1</dim></port></input></layer>
</layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>"""

# Types of inputs that numpy lacks.
_OV_TYPES = {"bfloat16": "bf16", "float8e4m3fn": "f8e4m3", "float8e5m2": "f8e5m2"}
# The runtime's names of the types that numpy has.
_PRECISIONS = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "boolean": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
_OUTPUT_NUMBER = re.compile(r"(\.\d+)+$")
# Entries of the plan that are not kernels.
_NO_KERNELS = ("Const", "Input", "Output")
_NO_STEPS = ("Constant", "Parameter", "Result")

# The wire format of ONNX files: wire types, and the numbers of the fields that are read.
_VARINT, _EIGHT_BYTES, _LENGTH_FIRST, _FOUR_BYTES = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_NODE = 7, 1
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE, _NODE_ATTRIBUTE = 1, 2, 3, 4, 5
_ATTRIBUTE_GRAPHS = (6, 11)
# Nodes that do not become a step of the plan. The step before them gets their name.
_PASSED_OVER = ("Dropout", "Identity")

_NS_PER_US = 1000


class OptionError(ValueError):
    """The device is missing, lacks the property, or refuses the value."""


def describe(options: Mapping[str, str]) -> dict[str, Any]:
    device = _find_device(options)
    return {
        "name": NAME,
        "version": _version(),
        "options": {**_defaults(device), **options},
        "providers": [device],
    }


def load(model: ModelRef, threads: int, options: Mapping[str, str]) -> _Session:
    device = _find_device(options)
    source = model.path if model.folder is None else _read(model)
    return _Session(_compile(source, device, threads, options))


def load_profiled(
    model: ModelRef,
    threads: int,
    options: Mapping[str, str],
    folder: str,  # noqa: ARG001  # the runtime keeps its times in memory
) -> _ProfiledSession:
    device = _find_device(options)
    source = _read(model)
    compiled = _compile(source, device, threads, {**options, _PROFILING: "YES"})
    return _ProfiledSession(compiled, source, _Nodes(model.path), device)


def stream_options(streams: int, options: Mapping[str, str]) -> dict[str, str]:
    wanted = {_STREAMS: str(streams)}
    return wanted if _STREAMS in _supported(_find_device(options)) else {}


def precision_options(precision: str, options: Mapping[str, str]) -> dict[str, str]:
    """See `Engine`. A device may silently compute in another precision. Compile a model to know."""
    device = _find_device(options)
    offered = [name for name in _FLOATS if _computes_in(device, name)]
    if precision not in offered:
        there_are = f"There are: {', '.join(offered)}." if offered else "It names none."
        raise OptionError(
            f"openvino {_version()} does not compute in {precision} on this {device}. {there_are}"
        )
    return {_PRECISION: precision}


def sparsity_options(share: float, options: Mapping[str, str]) -> dict[str, str]:
    """See `Engine`. Weights are packed only if the device can do so: INT8 matrices, with AMX."""
    # A little lower than the share, which is rounded in each weight.
    limit = {_SPARSE_FROM: f"{0.99 * share:.4g}"}
    return limit if _SPARSE_FROM in _supported(_find_device(options)) else {}


class _Session:
    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        # Values of types that numpy lacks use the memory of these arrays.
        self._kept: Mapping[str, Array] = {}

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        self._kept = inputs
        return _prepared(self._request, inputs, dtypes)

    def prepare_another(
        self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
    ) -> Callable[[], Any]:
        return _prepared(self._compiled.create_infer_request(), inputs, dtypes)

    def prepare_steps(self, plan: StepPlan, dtypes: Mapping[str, str]) -> _Steps:
        return _Steps(self._compiled, plan, dtypes)

    def read_outputs(self) -> Mapping[str, Array]:
        self._request.infer()
        # An output without a name is named by its index.
        return {
            next(iter(sorted(port.get_names())), str(place)): tensor.data.copy()
            for place, (port, tensor) in enumerate(
                zip(self._compiled.outputs, self._request.output_tensors)  # noqa: B905  # for 3.9
            )
        }

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        del self._request, self._compiled


class _Steps:
    """The steps of a generation, which two requests run in turn."""

    # The outputs of one are the inputs of the other. A single request would overwrite its inputs.

    def __init__(
        self, compiled: ov.CompiledModel, plan: StepPlan, dtypes: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._dtypes = dtypes
        self.requests = [compiled.create_infer_request() for _ in range(2 if plan.state else 1)]
        for request in self.requests:
            _set(request, _tensors(plan.fixed, dtypes))
        self._inputs = [_tensors(plan.inputs_at(step), dtypes) for step in range(plan.count)]
        self._first = _tensors(plan.state_at(0), dtypes)
        self._state = self._first
        self._next = self._turn = 0

    def __call__(self) -> Any:  # noqa: ANN401  # what the runtime returns
        request = self.requests[self._turn]
        _set(request, self._inputs[self._next])
        _set(request, self._state)
        outputs = request.infer(share_outputs=True)
        self._turn = (self._turn + 1) % len(self.requests)
        self._next += 1
        if self._next == len(self._inputs):
            self._next = 0
            self._state = self._first
            return outputs
        self._state = {past: request.get_tensor(present) for past, present in self._plan.state}
        return outputs

    def rewind(self, step: int) -> None:
        if step != self._next:
            self._state = _tensors(self._plan.state_at(step), self._dtypes) if step else self._first
            self._next = step


class _TimedSteps(_Steps):
    def __init__(
        self, compiled: ov.CompiledModel, plan: StepPlan, dtypes: Mapping[str, str]
    ) -> None:
        super().__init__(compiled, plan, dtypes)
        self.run_ns: list[int] = []

    def __call__(self) -> Any:  # noqa: ANN401  # what the runtime returns
        start = time.perf_counter_ns()
        outputs = super().__call__()
        self.run_ns.append(time.perf_counter_ns() - start)
        return outputs


def _prepared(
    request: ov.InferRequest, inputs: Mapping[str, Array], dtypes: Mapping[str, str]
) -> Callable[[], Any]:
    _set(request, _tensors(inputs, dtypes))
    # Shared, so that outputs are not copied.
    return functools.partial(request.infer, share_outputs=True)


def _tensors(arrays: Mapping[str, Array], dtypes: Mapping[str, str]) -> dict[str, ov.Tensor]:
    return {name: _tensor(array, dtypes[name]) for name, array in arrays.items()}


def _set(request: ov.InferRequest, tensors: Mapping[str, ov.Tensor]) -> None:
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)


class _ProfiledSession(_Session):
    """A compiled model that reports the times of its kernels.

    The CPU does not report the times of single runs, only the average of all runs since the model
    was compiled, in whole microseconds. So the first and coldest run is subtracted, and each other
    run gets the remaining average, or less if the sum of its kernels would exceed its whole time.
    """

    def __init__(
        self, compiled: ov.CompiledModel, model: ov.Model, nodes: _Nodes, device: str
    ) -> None:
        super().__init__(compiled)
        self._model = model
        self._nodes = nodes
        self._device = device
        self._first_us: dict[str, int] = {}
        self._run_ns: list[int] = []

    def prepare(self, inputs: Mapping[str, Array], dtypes: Mapping[str, str]) -> Callable[[], Any]:
        infer = super().prepare(inputs, dtypes)
        infer()
        self._first_us = self._kernel_us()

        def infer_timed() -> Any:  # noqa: ANN401  # what the runtime returns
            start = time.perf_counter_ns()
            outputs = infer()
            self._run_ns.append(time.perf_counter_ns() - start)
            return outputs

        return infer_timed

    def prepare_steps(self, plan: StepPlan, dtypes: Mapping[str, str]) -> _TimedSteps:
        """See `Session`. Kernels are counted for one request, the only one if there is no state."""
        steps = _TimedSteps(self._compiled, plan, dtypes)
        self._request = steps.requests[0]
        steps()
        self._first_us = self._kernel_us()
        self._run_ns = steps.run_ns
        steps.run_ns.clear()
        return steps

    def report(self, runs: int) -> dict[str, Any]:
        average_us = self._kernel_us()
        steps = self._compiled.get_runtime_model().get_ordered_ops()
        kinds = {op.friendly_name: _text(op, "layerType") for op in steps}
        ran = [op for op in steps if op.friendly_name in average_us]
        plan = [op for op in ran if kinds[op.friendly_name] not in _NO_KERNELS]
        names = {op.friendly_name: _text(op, "originalLayersNames").split(",") for op in plan}
        originals = _find_originals(self._model, self._nodes, names)
        steady_ns = {name: self._steady_us(name, average_us[name]) * _NS_PER_US for name in names}
        sum_ns = sum(steady_ns.values())
        scales = [min(1.0, ns / sum_ns) if sum_ns else 1.0 for ns in self._run_ns[-runs:]]
        kernels = []
        for op in plan:
            name = op.friendly_name
            precision = _text(op, "runtimePrecision")
            kernels.append(
                {
                    "name": name,
                    "op_type": kinds[name],
                    "provider": self._device,
                    "precision": _PRECISIONS.get(precision, precision or None),
                    "calls": 1,
                    "originals": originals[name] or None,
                    "self_ns": [steady_ns[name] * scale for scale in scales],
                }
            )
        return {"kernels": kernels, "plan": None, "peak_bytes": None}

    def _kernel_us(self) -> dict[str, int]:
        return {
            entry.node_name: round(entry.real_time.total_seconds() * 1e6)
            for entry in self._request.profiling_info
        }

    def _steady_us(self, name: str, average_us: int) -> float:
        """Return the average without the first run, which only the CPU includes."""
        if self._compiled.get_property("EXECUTION_DEVICES") != ["CPU"]:
            return average_us
        total_us = average_us * (1 + len(self._run_ns)) - self._first_us.get(name, 0)
        return max(0.0, total_us / len(self._run_ns))


@functools.cache
def _core() -> ov.Core:
    """Return the only runtime core of this process, so that a device's library is loaded once."""
    return ov.Core()


def _version() -> str:
    """Return the version: `2026.4.1`, or the full text of a build that is not a release."""
    text = str(ov.__version__)
    return text.partition("-")[0] if "-releases/" in text else text


def _read(model: ModelRef) -> ov.Model:
    with _readable():
        if model.folder is None:
            return _core().read_model(model.path)
        with open(model.path, "rb") as file:  # noqa: PTH123  # a path is a string on this side
            content = file.read()
        # The runtime looks for the external data of a model in memory in the working directory. A
        # folder of links would not work, because it refuses their targets.
        with _working_directory(model.folder):
            return _core().read_model(content, b"")


def _compile(
    source: str | ov.Model, device: str, threads: int, options: Mapping[str, str]
) -> ov.CompiledModel:
    chosen = {name: value for name, value in options.items() if name != _DEVICE}
    wanted = chosen.get(_THREADS, "1")
    if not (wanted.isdecimal() and 1 <= int(wanted) <= threads):
        raise OptionError(
            f"the option {_THREADS} cannot be {wanted!r}: give a number from 1 to the cores "
            f"of the case, here {threads}."
        )
    properties = {**_defaults(device, threads), **chosen}
    try:
        with _readable():
            return _core().compile_model(source, device, properties)
    except RuntimeError:
        _check_properties(device, chosen)
        raise


def _check_properties(device: str, properties: Mapping[str, str]) -> None:
    """Raise OptionError if one option alone keeps even the smallest model from being compiled."""
    smallest = _core().read_model(_SMALLEST, b"")
    for name, value in properties.items():
        try:
            with _readable():
                _core().compile_model(smallest, device, {name: value})
        except RuntimeError as error:  # noqa: PERF203  # it ends the loop
            known = sorted(n for n, access in _supported(device).items() if access != "RO")
            raise OptionError(
                f"openvino {_version()} does not take the option {name}={value} for {device}: "
                f"{error}. There are: {_DEVICE}, {', '.join(known)}."
            ) from error


def _computes_in(device: str, precision: str) -> bool:
    try:
        smallest = _core().read_model(_SMALLEST, b"")
        compiled = _core().compile_model(smallest, device, {_PRECISION: precision})
        got = compiled.get_property(_PRECISION)
    except RuntimeError:
        return False
    return bool(got == getattr(ov.Type, precision))


def _find_device(options: Mapping[str, str]) -> str:
    device = options.get(_DEVICE, _DEFAULT_DEVICE).upper()
    available = _core().available_devices
    kind = device.partition(":")[0]
    if kind not in (*available, *(name.partition(".")[0] for name in available), *_VIRTUAL_DEVICES):
        raise OptionError(
            f"openvino {_version()} finds no device {device!r} here. There are: "
            f"{', '.join(available)}, and {', '.join(_VIRTUAL_DEVICES)} over them."
        )
    return device


def _defaults(device: str, threads: int | None = None) -> dict[str, str]:
    wanted = dict(_DEFAULTS) if threads is None else {_THREADS: str(threads), **_DEFAULTS}
    supported = _supported(device)
    return {name: value for name, value in wanted.items() if name in supported}


def _supported(device: str) -> dict[str, str]:
    """Return the properties of a device, and whether they can be set (`RW`, `RO`)."""
    with _readable():
        kind = device.partition(":")[0]
        found: dict[str, str] = _core().get_property(kind, "SUPPORTED_PROPERTIES")
    return found


def _tensor(array: Array, dtype: str) -> ov.Tensor:
    """Return the values as a tensor of the runtime. Types that numpy lacks are not copied."""
    if dtype in _OV_TYPES:
        return ov.Tensor(array, ov.Shape(array.shape), getattr(ov.Type, _OV_TYPES[dtype]))
    if dtype == "string":
        return ov.Tensor(array.astype(str))
    if str(array.dtype) != dtype:
        raise ValueError(
            f"openvino {_version()} takes no inputs of type {dtype}. Measure the model with "
            "the engine onnxruntime, or export it with inputs of another type."
        )
    return ov.Tensor(array)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Raise errors of the runtime again without the places in its source that raised them."""
    try:
        yield
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        named = [line for line in lines if line and not line.startswith("Exception from ")]
        kept = [line for line in named if "' failed at " not in line]
        raise type(error)("\n".join(kept).rstrip(".") or str(error)) from error


@contextlib.contextmanager
def _working_directory(folder: str) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _find_originals(
    model: ov.Model, nodes: _Nodes, reported: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the names of the ONNX model's nodes by kernel.

    `reported` has the names that kernels give. A fusion often keeps only the name of its last step:
    a MatMul and its Add appear as the Add alone. A step that no kernel names belongs to the kernel
    of its consumer.
    """
    steps = [op for op in model.get_ordered_ops() if op.get_type_name() not in _NO_STEPS]
    owners = _find_owners(steps, nodes)
    found: dict[str, set[str]] = {kernel: set() for kernel in reported}
    kernels: dict[str, str] = {}

    def claim(name: str | None, kernel: str) -> None:
        if name is not None:
            found[kernel].add(name)
            kernels.setdefault(name, kernel)

    for kernel, texts in reported.items():
        for text in texts:
            claim(nodes.find(text) or owners.get(text), kernel)
    constants = _find_constants(steps)
    for op in reversed(steps):
        owner = owners.get(op.friendly_name)
        if owner is None or owner in kernels or op.friendly_name in constants:
            continue
        feeds = (owners.get(consumer.friendly_name) for consumer in _consumers(op))
        fed = next((kernels[f] for f in feeds if f in kernels), None)
        if fed is not None:
            claim(owner, fed)
    return {kernel: sorted(names, key=nodes.position) for kernel, names in found.items()}


def _find_owners(steps: Sequence[ov.Node], nodes: _Nodes) -> dict[str, str]:
    """Return the ONNX node that each step was made from.

    A node that becomes several steps gives its name to the last. The others got names from the
    runtime, and their consumers lead to that last one.
    """
    owners: dict[str, str] = {}
    for op in reversed(steps):
        feeds = (owners.get(consumer.friendly_name) for consumer in _consumers(op))
        owner = nodes.find(op.friendly_name) or next((f for f in feeds if f), None)
        if owner is not None:
            owners[op.friendly_name] = owner
    return owners


def _find_constants(steps: Sequence[ov.Node]) -> set[str]:
    """Return the steps whose outputs do not depend on the inputs. They are computed once."""
    constants: set[str] = set()
    for op in steps:
        sources = [value.get_node() for value in op.input_values()]
        if (op.get_type_name() == "ShapeOf" and op.input(0).get_partial_shape().is_static) or all(
            s.get_type_name() == "Constant" or s.friendly_name in constants for s in sources
        ):
            constants.add(op.friendly_name)
    return constants


def _consumers(op: ov.Node) -> list[ov.Node]:
    return [target.get_node() for output in op.outputs() for target in output.get_target_inputs()]


def _text(op: ov.Node, key: str) -> str:
    return str(op.rt_info[key].astype(str)) if key in op.rt_info else ""


class _Nodes:
    def __init__(self, path: str) -> None:
        self._positions: dict[str, int] = {}
        self._producers: dict[str, str] = {}
        # Nodes that do not become a step, with the name of the last node before them that does.
        self._passed_over: dict[str, str] = {}
        with (
            open(path, "rb") as file,  # noqa: PTH123  # a path is a string on this side
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            for field, start, end in _fields(content, 0, len(content)):
                if field == _MODEL_GRAPH:
                    self._read_graph(content, start, end)

    def position(self, name: str) -> int:
        return self._positions[name]

    def find(self, text: str) -> str | None:
        name = self._named(text)
        return None if name is None else self._passed_over.get(name, name)

    def _named(self, text: str) -> str | None:
        """Return the node that has this name, perhaps changed by the runtime.

        The runtime may have changed the name to `name/WithoutBiases`, `name.0` or `name_output`,
        and names the node before an output of the model after that output.
        """
        for name in (text, text.rpartition("/")[0], _OUTPUT_NUMBER.sub("", text)):
            if name in self._positions:
                return name
            if name in self._producers:
                return self._producers[name]
        for split in (index for index, character in enumerate(text) if character == "_"):
            name = text[:split]
            if name in self._positions and self._producers.get(text[split + 1 :]) == name:
                return name
        return None

    def _read_graph(self, content: mmap.mmap, start: int, end: int) -> None:
        for field, node_start, node_end in _fields(content, start, end):
            if field == _GRAPH_NODE:
                self._read_node(content, node_start, node_end)

    def _read_node(self, content: mmap.mmap, start: int, end: int) -> None:
        # Other fields may not be text: the metadata that torch writes is a message.
        read = (_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE)
        texts: dict[int, list[str]] = {field: [] for field in read}
        for field, at, until in _fields(content, start, end):
            if field == _NODE_ATTRIBUTE:
                for inner, graph_start, graph_end in _fields(content, at, until):
                    if inner in _ATTRIBUTE_GRAPHS:
                        self._read_graph(content, graph_start, graph_end)
            elif field in texts:
                texts[field].append(content[at:until].decode())
        name = "".join(texts[_NODE_NAME])
        if not name:
            return
        self._positions[name] = len(self._positions)
        self._producers.update((output, name) for output in texts[_NODE_OUTPUT] if output)
        if "".join(texts[_NODE_OP_TYPE]) in _PASSED_OVER:
            before = self._producers.get(texts[_NODE_INPUT][0])
            if before is not None:
                self._passed_over[name] = self._passed_over.get(before, before)


def _fields(content: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field of a message that has a length, unread."""
    while position < end:
        tag, position = _varint(content, position)
        wire_type = tag & 7
        if wire_type == _LENGTH_FIRST:
            length, position = _varint(content, position)
            yield tag >> 3, position, position + length
            position += length
        elif wire_type == _VARINT:
            _, position = _varint(content, position)
        else:
            position += {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}[wire_type]


def _varint(content: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
