"""Plans and parts of real models on the real engine: what they are, not how long they take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from msgspec.structs import replace
from onnx import numpy_helper

from pytest_modelperf.baselines.recording import rebuilt_twin
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.plans.parts import KernelTimes, find_parts, make_side, write_part
from pytest_modelperf.graph.plans.plan import find_plan_difference, match_plans, stored_offset
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import make_workload, start_on
from pytest_modelperf.profiler.pairs import plans as plans_module
from pytest_modelperf.profiler.pairs.plans import (
    SHORT_POLICY,
    SHORTEST_POLICY,
    SavedPlan,
    measure_shortly,
    place_parts,
    run_apart,
    run_once,
    save_plan,
    send_part,
)
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, set_up
from tests.support.known import known
from tests.support.small_models import parse

NETWORK = """g (float[1,8,16,16] x) => (float[1,8] y) {
    a = Conv <pads = [1,1,1,1]> (x, w0)
    b = Relu (a)
    left = Conv <pads = [1,1,1,1]> (b, w1)
    right = Conv <pads = [1,1,1,1]> (b, w2)
    p = Sigmoid (left)
    q = CHANGED
    s = Mul (p, q)
    t = Conv <pads = [1,1,1,1]> (s, w3)
    u = GlobalAveragePool (t)
    y = Flatten (u)
}"""


def network(changed: str = "Relu (right)", seed: int = 0, *, opset: int = 21) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    weights = {
        f"w{k}": random.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8 for k in range(4)
    }
    return parse(NETWORK.replace("CHANGED", changed), opset, weights=weights)


@contextmanager
def plans(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[tuple[SavedPlan, SavedPlan]]:
    """The plans of both models, in one worker."""
    setup = Setup()
    models = [Model.load(model, ProfileRequest(), Extensions()) for model in (before, after)]
    with start_on(setup, 1) as worker:
        rigs: list[Rig] = []
        for model, side in zip(models, (BEFORE, AFTER), strict=True):
            workload = make_workload(prepare(model), worker, side)
            rigs.append(set_up(worker, setup, 1, workload, side))
        saved = [save_plan(rig, 0) for rig in rigs]
        first, second = saved
        yield known(first), known(second)


def test_training_a_model_again_does_not_change_its_plan() -> None:
    with plans(network(), network(seed=1)) as (before, after):
        assert find_plan_difference(before.plan, after.plan) is None
        assert not place_parts(before, after).parts


def unrolled(changed: str, pieces: int = 24) -> onnx.ModelProto:
    """A split into as many pieces as an unrolled recurrence has steps."""
    steps = [f"s{k}" for k in range(pieces)]
    sizes = np.arange(1, pieces + 1)
    text = f"""g (float[1,{sizes.sum()}] x) => (float[1,4] y) {{
        {", ".join(steps)} = Split <axis = 1> (x, sizes)
        {" ".join(f"m{k} = ReduceSum ({step})" for k, step in enumerate(steps))}
        c = Concat <axis = 1> ({", ".join(f"m{k}" for k in range(pieces))})
        p = MatMul (c, w)
        a = {changed} (p)
        y = Neg (a)
    }}"""
    return parse(text, 21, weights={"sizes": sizes, "w": np.ones((pieces, 4), np.float32)})


def test_a_plan_runs_whose_sizes_of_pieces_are_many() -> None:
    with plans(unrolled("Exp"), unrolled("Sin")) as (before, after):
        placed = place_parts(before, after)
        assert placed.reason is None
        (part,) = placed.parts
        assert part.text == "1 Exp became 1 Sin"


# The engine multiplies the weights of the convolution by the scale of the normalization.
DEAD_NETWORK = """g (float[1,4,16,16] x) => (float[1,8,16,16] y) {
    a = Conv <pads = [1,1,1,1]> (x, w0)
    b = BatchNormalization (a, scale, bias, mean, variance)
    c = Relu (b)
    y = Conv (c, w1)
}"""


def dead_network() -> onnx.ModelProto:
    """A network of which training left 9 of 96 channels without any weight but subnormal ones."""
    random = np.random.default_rng(0)
    weights = {
        "w0": random.standard_normal((96, 4, 3, 3)),
        **{name: random.uniform(0.5, 1, 96) for name in ("scale", "bias", "mean", "variance")},
        "w1": random.standard_normal((8, 96, 1, 1)),
    }
    dead = random.permutation(96)[:9]
    for name, weight in weights.items():
        channels = weight.swapaxes(0, 1) if name == "w1" else weight
        channels[dead] = random.uniform(1e-41, 1e-40, channels[dead].shape)
    weights = {name: weight.astype(np.float32) for name, weight in weights.items()}
    return parse(DEAD_NETWORK, 21, weights=weights)


@pytest.mark.parametrize("model", [network(), dead_network()], ids=["alive", "dead channels"])
def test_the_plan_of_a_twin_is_that_of_its_model(tmp_path: Path, model: onnx.ModelProto) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with rebuilt_twin(open_model(path)) as twin:
        assert twin.file is not None
        rebuilt = onnx.load(known(twin.file.path))
    with plans(onnx.load(path), rebuilt) as (before, after):
        assert find_plan_difference(before.plan, after.plan) is None


def test_a_part_runs_on_the_tensors_that_it_has_in_its_model() -> None:
    with plans(network(), network("Tanh (right)")) as (before, after):
        placed = place_parts(before, after)
        assert placed.reason is None
        (part,) = placed.parts
        assert part.before.changed
        assert part.after.changed
        for saved, own in ((before, placed.before), (after, placed.after)):
            rig = saved.rig
            rig.open_part(own[0])
            (block,) = rig.blocks([own[0].name], 3, 10**9)
            assert len(block.times_ns) == 3


class DisturbedWorker:
    """A worker in whose first runs of a plan the Sin waits for a processor for a second."""

    def __init__(self, side: SavedPlan, runs: int) -> None:
        self._worker, self._kernels, self._runs = side.rig.worker, side.plan.kernels, runs

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as the worker's
        return getattr(self._worker, name)

    def ask(self, command: str, step: str, **arguments: Any) -> Any:  # noqa: ANN401  # as a worker's
        answer = self._worker.ask(command, step, **arguments)
        if command == "shapes":
            self._runs -= 1
            for kernel in answer:
                is_sin = self._kernels[int(kernel["name"])].op_type == "Sin"
                kernel["spent_ns"] = 10**9 if is_sin and self._runs >= 0 else 10**6
        return answer


def disturbed(side: SavedPlan, runs: int) -> SavedPlan:
    worker: Any = DisturbedWorker(side, runs)
    return replace(side, rig=replace(side.rig, worker=worker))


@pytest.mark.parametrize(("runs", "has_parts"), [(0, True), (1, True), (2, False)])
def test_a_kernel_that_waited_in_one_of_two_runs_is_not_large(runs: int, has_parts: bool) -> None:  # noqa: FBT001  # a parameter of the test
    with plans(network(), network("Sin (right)")) as (before, after):
        placed = place_parts(before, disturbed(after, runs))
        # How many parts there are depends on the layouts that this processor gets.
        assert bool(placed.parts) == has_parts
        assert placed.reason == (None if has_parts else "kernels that take 99 % of it changed")


def times(side: SavedPlan) -> KernelTimes:
    """Times of kernels as on a machine without noise."""
    kernels = side.plan.kernels
    return {k: 500 if each.op_type == "MatMul" else 1 for k, each in enumerate(kernels)}


def test_a_change_between_two_large_kernels_runs_without_them() -> None:
    graph = """g (float[256,256] x) => (float[256,256] y) {
        p = MatMul (x, w0)
        q = CHANGED
        y = MatMul (q, w1)
    }"""
    random = np.random.default_rng(0)
    weights = {f"w{k}": random.standard_normal((256, 256)).astype(np.float32) for k in range(2)}
    models = [
        parse(graph.replace("CHANGED", changed), weights=weights)
        for changed in ("Neg (p)", "Identity (p)")
    ]
    with plans(*models) as (before, after):
        matching = match_plans(before.plan, after.plan)
        parts = find_parts(before.plan, after.plan, matching, (times(before), times(after)))
        placed = run_apart(before, after, parts, [1.0])
        (part,) = placed.parts
        assert [before.plan.kernels[index].op_type for index in part.before.kernels] == ["Neg"]
        assert part.after.kernels == ()
        for saved, own in ((before, placed.before), (after, placed.after)):
            saved.rig.open_part(own[0])
            (block,) = saved.rig.blocks([own[0].name], 3, 10**9)
            assert len(block.times_ns) == 3


def test_parts_run_in_the_turns_of_a_block() -> None:
    with plans(network(), network("Tanh (right)")) as (before, after):
        placed = place_parts(before, after)
        before.rig.parts, after.rig.parts = placed.before, placed.after
        for rig in (before.rig, after.rig):
            rig.open()
        own = {rig.side: rig.parts for rig in (before.rig, after.rig)}
        blocks = before.rig.blocks([BEFORE, AFTER], 4, 10**9, parts=own)
        for block in blocks:
            (part,) = block.parts
            assert len(block.times_ns) == len(part.in_place.times_ns) == 4
            assert len(part.alone.times_ns) == 4
            assert part.in_place.switches is not None


def test_threads_are_woken_before_the_kernels_of_a_part(tmp_path: Path) -> None:
    with plans(network(), network(seed=1)) as (saved, _):
        everything = range(len(saved.plan.kernels))
        path = saved.rig.worker.folder / f"plan{BEFORE}" / "part.onnx"
        edges = {"x": ("float32", (1, 8, 16, 16))}
        write_part(
            saved.plan,
            make_side(saved.plan, everything, everything),
            edges,
            path,
            wakes_threads=True,
        )
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 2
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.run(None, {"x": np.ones((1, 8, 16, 16), np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
    names = [each["name"] for each in events if each["name"].endswith("_kernel_time")]
    woken = [name for name in names if name.startswith("wakes threads ")]
    assert woken
    assert woken == names[: len(woken)]
    assert len(names) == len(woken) + len(everything)


@pytest.mark.parametrize(
    ("cores", "waking_ns", "wakes"), [(2, 0, True), (2, 100_000, False), (1, 0, False)]
)
def test_threads_are_woken_on_several_cores_unless_the_model_is_too_small(
    *, cores: int, waking_ns: int, wakes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_modelperf.profiler.pairs.plans._WAKING_NS", waking_ns)
    with plans(network(), network("Tanh (right)")) as (before, after):
        before.rig.cores = after.rig.cores = cores
        placed = place_parts(before, after)
        assert placed.reason is None
        for part in (*placed.before, *placed.after):
            names = [node.name for node in onnx.load(part.path).graph.node]
            assert any(name.startswith("wakes threads ") for name in names) == wakes


def test_a_model_of_an_early_version_lists_its_weights_as_inputs() -> None:
    models = [network(changed, opset=8) for changed in ("Relu (right)", "Tanh (right)")]
    for model in models:
        model.ir_version = 3
        for tensor in model.graph.initializer:
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    with plans(*models) as (before, after):
        assert before.plan.model_inputs == ("x",)
        placed = place_parts(before, after)
        assert placed.reason is None
        assert len(placed.parts) == 1


def test_a_part_that_the_engine_refuses_causes_no_error() -> None:
    with plans(network(), network("Tanh (right)")) as (before, after):
        node = after.plan.kernels[-1].node
        node.op_type = "NoSuchOperator"
        placed = place_parts(before, after)
        assert not placed.parts
        assert known(placed.reason).startswith("what changed does not run by itself: ")


def test_a_plan_runs_whose_shapes_are_inferred_from_weights() -> None:
    """Shape inference reads the pads of four axes, which have 64 bytes."""
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    text = """g (float[1,2,4,4] x) => (float[1,2,6,6] y) {
        a = Sigmoid (x)
        y = Pad (a, pads)
    }"""
    model = parse(text, 21, weights={"pads": pads})
    with plans(model, model) as (side, _):
        assert run_once(side).types["y"] == "float32 (1, 2, 6, 6)"


def odd_sizes(changed: str) -> onnx.ModelProto:
    """A model whose second weight begins 16 bytes after where the engine's memory begins."""
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in (("w0", (3, 12)), ("w1", (12, 12)))
    }
    graph = f"""g (float[1,3] x) => (float[1,12] y) {{
        h = MatMul (x, w0)
        r = {changed} (h)
        y = MatMul (r, w1)
    }}"""
    return parse(graph, weights=weights)


def test_the_weights_of_a_part_begin_where_the_memory_of_the_engine_begins() -> None:
    with plans(odd_sizes("Tanh"), odd_sizes("Sigmoid")) as sides:
        offsets = [stored_offset(w) or 0 for side in sides for w in side.plan.weights.values()]
        assert any(offset % 64 for offset in offsets)
        for saved in sides:
            everything = range(len(saved.plan.kernels))
            part = make_side(saved.plan, everything, everything)
            path = Path(send_part(saved, "part", part, {"x": ("float32", (1, 3))}))
            model = onnx.load(path, load_external_data=False)
            assert len(model.graph.initializer) == 2
            assert all((stored_offset(w) or 0) % 64 == 0 for w in model.graph.initializer)
            read = {
                w.name: numpy_helper.to_array(w, str(path.parent)) for w in model.graph.initializer
            }
            for name, array in read.items():
                weight = saved.plan.weights[name]
                np.testing.assert_array_equal(
                    array, numpy_helper.to_array(weight, str(Path(saved.weights or "").parent))
                )


@pytest.mark.parametrize(
    ("steps", "is_usual", "policies"),
    [
        (None, True, [SHORTEST_POLICY]),
        (None, False, [SHORTEST_POLICY, SHORT_POLICY]),
        ("steps", True, [SHORT_POLICY]),
    ],
)
def test_only_a_usual_model_without_steps_ends_after_a_few_inferences(
    monkeypatch: pytest.MonkeyPatch, steps: str | None, *, is_usual: bool, policies: list[Any]
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(plans_module, "_measure_by", lambda policy, *_: taken.append(policy))
    rig: Any = SimpleNamespace(workload=SimpleNamespace(steps=steps))
    place: Any = None
    measure_shortly(rig, place, lambda _: is_usual)
    assert taken == policies
