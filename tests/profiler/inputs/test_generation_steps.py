"""The steps of a generation: what a worker gets, and that they compute what one inference does."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from examples.generating.make_decoder import DecoderShape, make_decoder
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.copies import write_runnable
from pytest_modelperf.graph.inference_inputs import BoundPhase, TokenSpan, state_inputs
from pytest_modelperf.graph.load import BoundModel, load_model
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import GenerationPhase, Phase
from pytest_modelperf.profiler.inputs.made import make_input
from pytest_modelperf.profiler.inputs.mixture import StepFeeds, make_steps
from pytest_modelperf.profiler.worker.sessions import ModelLocation, StepArrays
from tests.support.small_models import parse

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine, Steps

PROMPT, GENERATE = 5, 6
GROWING = DecoderShape()
STATIC = DecoderShape(capacity=PROMPT + GENERATE)
# Hidden and cell state go in as h0 and c0 and come out as hn and cn.
LSTM = """
frames (float[batch, time, 3] x, float[1, batch, 4] h0, float[1, batch, 4] c0)
    => (float[time, 1, batch, 4] y, float[1, batch, 4] hn, float[1, batch, 4] cn)
{
    xt = Transpose<perm = [1, 0, 2]>(x)
    y, hn, cn = LSTM<hidden_size = 4>(xt, w, r, "", "", h0, c0)
}
"""


class Made:
    """A model in its step phase, and the plan of its steps as a worker has it."""

    def __init__(self, proto: onnx.ModelProto, folder: Path, batch_size: int = 1) -> None:
        path = folder / "model.onnx"
        onnx.save(proto, path)
        asked = GenerationPhase(Phase.STEP, PROMPT, GENERATE)
        self.path = str(path)
        self.bound: BoundModel = load_model(open_model(path), Binding(batch_size, phase=asked))
        if self.bound.inputs.rebound:
            self.path = str(folder / "copy.onnx")
            write_runnable(self.bound, Path(self.path))
        assert self.bound.phase is not None
        self.phase: BoundPhase = self.bound.phase
        self.feeds: StepFeeds = make_steps(self.bound, self.phase, 0, {}, "the model")
        self.arrays = {name: feed.array for name, feed in self.feeds.feeds.items()}
        self.dtypes = {name: feed.dtype for name, feed in self.feeds.feeds.items()}
        self.plan = StepArrays(self.arrays, **cast("dict[str, Any]", self.feeds.to_wire()))

    def steps(self, name: str) -> Steps:
        engine = load_engine(name)
        options = {"INFERENCE_PRECISION_HINT": "f32"} if name == "openvino" else {}
        session = engine.load(ModelLocation(self.path, None), 1, options)
        return session.prepare_steps(self.plan, self.dtypes)

    def at_once(self, count: int) -> Mapping[str, np.ndarray[Any, Any]]:
        """The outputs of one inference on the tokens of several steps, with the same past."""
        state, capacity = self.phase.state, PROMPT + GENERATE
        made = state_inputs(
            state,
            self.phase.inputs,
            TokenSpan(PROMPT, count, capacity),
            batch_size=self.phase.batch_size,
        )
        feeds = {**self.plan.fixed, **self.plan.state_at(0)}
        feeds |= {spec.name: make_input(spec).array for spec in made.values}
        for token in state.tokens:
            parts = [self.plan.inputs_at(step)[token.name] for step in range(count)]
            feeds[token.name] = np.concatenate(parts, token.axis)
        session = ort.InferenceSession(self.path)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))


def load_engine(name: str) -> Engine:
    if name == "openvino":
        pytest.importorskip("openvino", reason="needs the extra openvino")
    return cast("Engine", importlib.import_module(f"pytest_modelperf.profiler.engines.{name}"))


def outputs_of(name: str, returned: object, path: str) -> Mapping[str, np.ndarray[Any, Any]]:
    """The outputs of a step, however the engine returns them."""
    names = [output.name for output in ort.InferenceSession(path).get_outputs()]
    given = cast("Any", returned)
    if name == "openvino":
        return {each: np.array(given[each]) for each in names}
    return {each: value.numpy() for each, value in zip(names, given, strict=True)}


def lstm() -> onnx.ModelProto:
    return parse(LSTM, weights={"w": normal(1, 16, 3), "r": normal(1, 16, 4)})


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("kind", ["growing", "static", "lstm"])
def test_steps_end_where_one_inference_on_all_their_tokens_does(
    engine: str, batch_size: int, kind: str, tmp_path: Path
) -> None:
    proto = {
        "growing": lambda: make_decoder(GROWING),
        "static": lambda: make_decoder(STATIC),
        "lstm": lstm,
    }[kind]()
    made = Made(proto, tmp_path, batch_size)
    steps = made.steps(engine)
    for count in range(1, GENERATE):
        found = outputs_of(engine, steps(), made.path)
        wanted = made.at_once(count)
        for pair in made.phase.state.pairs:
            assert_near(found[pair.present], wanted[pair.present])
        for name in wanted.keys() - {pair.present for pair in made.phase.state.pairs}:
            axis = 0 if kind == "lstm" else 1
            assert_near(np.take(found[name], -1, axis), np.take(wanted[name], -1, axis))


def test_a_decoder_with_a_fixed_batch_runs_its_steps_at_another(tmp_path: Path) -> None:
    proto = make_decoder(GROWING)
    for info in (*proto.graph.input, *proto.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param == "batch_size":
                dim.dim_value = 1
    for name in ("fixed", "open"):
        (tmp_path / name).mkdir()
    fixed = Made(proto, tmp_path / "fixed", batch_size=3)
    is_open = Made(make_decoder(GROWING), tmp_path / "open", batch_size=3)
    steps, wanted = (made.steps("onnxruntime") for made in (fixed, is_open))
    for _ in range(3):
        found = outputs_of("onnxruntime", steps(), fixed.path)
        for name, value in outputs_of("onnxruntime", wanted(), is_open.path).items():
            assert_near(found[name], value)


def assert_near(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_after_the_last_step_the_first_one_runs_again(engine: str, tmp_path: Path) -> None:
    made = Made(make_decoder(GROWING), tmp_path)
    steps = made.steps(engine)
    first, *_ = [outputs_of(engine, steps(), made.path) for _ in range(GENERATE)]
    again = outputs_of(engine, steps(), made.path)
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("shape", [GROWING, STATIC])
def test_a_step_that_is_gone_to_has_the_length_that_it_would_have_reached(
    engine: str, shape: DecoderShape, tmp_path: Path
) -> None:
    made = Made(make_decoder(shape), tmp_path)
    in_order = made.steps(engine)
    reached = [outputs_of(engine, in_order(), made.path) for _ in range(GENERATE)]
    steps = made.steps(engine)
    for step in (4, 1, 0):
        steps.rewind(step)
        shapes = [
            {name: value.shape for name, value in outputs_of(engine, steps(), made.path).items()}
            for _ in range(2)
        ]
        assert shapes == [
            {name: value.shape for name, value in reached[at].items()} for at in (step, step + 1)
        ]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_first_step_is_the_same_after_another_was_gone_to(engine: str, tmp_path: Path) -> None:
    made = Made(make_decoder(GROWING), tmp_path)
    steps = made.steps(engine)
    first = outputs_of(engine, steps(), made.path)
    steps.rewind(3)
    steps()
    steps.rewind(0)
    for name, value in outputs_of(engine, steps(), made.path).items():
        np.testing.assert_array_equal(value, first[name])


def test_every_step_has_tokens_of_its_own(tmp_path: Path) -> None:
    plan = Made(make_decoder(GROWING), tmp_path).plan
    tokens = [int(plan.inputs_at(step)["input_ids"].item()) for step in range(GENERATE)]
    assert len(set(tokens)) > 1


def test_masks_of_all_steps_share_their_memory(tmp_path: Path) -> None:
    made = Made(make_decoder(GROWING), tmp_path, batch_size=2)
    assert made.arrays["attention_mask"].shape == (2 * (PROMPT + GENERATE),)
    assert made.plan.inputs_at(3)["attention_mask"].shape == (2, PROMPT + 4)
    assert made.plan.inputs_at(3)["position_ids"].tolist() == [[PROMPT + 3]] * 2


def test_a_past_that_was_not_computed_repeats_the_first_one(tmp_path: Path) -> None:
    plan = Made(make_decoder(GROWING), tmp_path).plan
    name = plan.state[0][0]
    first, later = (plan.state_at(step)[name] for step in (0, 4))
    assert later.shape[2] == PROMPT + 4
    np.testing.assert_array_equal(later[:, :, :PROMPT], first)
    np.testing.assert_array_equal(later[:, :, PROMPT:], first[:, :, :4])
