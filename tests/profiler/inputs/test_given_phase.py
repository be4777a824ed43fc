"""Inputs that a user gives for a generation: which inference gets what of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from examples.generating.make_decoder import make_decoder
from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.structure import Generation, Phase
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.inputs.given import GivenSource, read_given
from pytest_modelperf.profiler.inputs.mixture import PhaseGiven
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.request import ProfileRequest

PROMPT, GENERATE = 4, 6
PAST = "past_key_values.0.key"


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(make_decoder(), path)
    return path


def divided(decoder: Path, phase: Phase, given: GivenSource) -> PhaseGiven:
    request = ProfileRequest(
        given=read_given(given), generations=(Generation(PROMPT, GENERATE),), phases=(phase,)
    )
    file = open_model(decoder)
    (binding,) = request.bindings_of(file)
    return Model.bind(file, binding, request, Extensions()).given_feeds


def tokens(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.int64)[np.newaxis]


def test_tokens_of_the_whole_generation_are_divided_among_its_phases(decoder: Path) -> None:
    given = {"input_ids": tokens(PROMPT + GENERATE)}
    prefill = divided(decoder, Phase.PREFILL, given)
    assert prefill.steps["input_ids"].array.tolist() == [[0, 1, 2, 3]]
    assert prefill.still["input_ids"].array.tolist() == [[0, 1, 2, 3]]
    steps = divided(decoder, Phase.STEP, given)
    assert steps.steps["input_ids"].array.tolist() == [[4, 5, 6, 7, 8, 9]]
    # The middle step represents all of them.
    assert steps.still["input_ids"].array.tolist() == [[7]]


def test_tokens_of_the_prompt_do_not_count_as_tokens_of_steps(decoder: Path) -> None:
    given = {"input_ids": tokens(PROMPT)}
    assert set(divided(decoder, Phase.PREFILL, given).steps) == {"input_ids"}
    assert divided(decoder, Phase.STEP, given) == PhaseGiven({}, {})


def test_a_given_past_is_that_of_the_first_step(decoder: Path) -> None:
    past = np.ones((1, 2, PROMPT, 8), np.float32)
    found = divided(decoder, Phase.STEP, {PAST: past})
    assert set(found.steps) == {PAST}
    assert not found.still
    assert not divided(decoder, Phase.PREFILL, {PAST: past}).steps


def test_a_function_makes_the_tokens_of_all_steps(decoder: Path) -> None:
    asked: dict[str, Any] = {}

    def make(types: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        asked.update(types)
        return {"input_ids": tokens(types["input_ids"][1][1])}

    found = divided(decoder, Phase.STEP, make)
    assert asked["input_ids"] == ("int64", (1, GENERATE))
    assert "attention_mask" not in asked
    assert found.still["input_ids"].array.tolist() == [[3]]


def test_too_few_tokens_are_an_error_that_says_how_many_it_takes(decoder: Path) -> None:
    with pytest.raises(BindingError, match=r"has 7 tokens along axis 1.* takes 4,.* or 10,"):
        divided(decoder, Phase.STEP, {"input_ids": tokens(7)})


def test_a_function_that_makes_too_few_tokens_is_reported(decoder: Path) -> None:
    with pytest.raises(BindingError, match=r"is 1x6, but the function .* has 1x5\. Give an"):
        divided(decoder, Phase.STEP, lambda _: {"input_ids": tokens(5)})


def test_a_past_of_another_length_is_an_error(decoder: Path) -> None:
    with pytest.raises(BindingError, match=r"1x2x4x8, but .* has 1x2x5x8"):
        divided(decoder, Phase.STEP, {PAST: np.ones((1, 2, 5, 8), np.float32)})


def test_a_given_mask_is_an_error(decoder: Path) -> None:
    with pytest.raises(BindingError, match=r"'attention_mask' of .* follows from the lengths"):
        divided(decoder, Phase.STEP, {"attention_mask": np.ones((1, 5), np.int64)})


def test_an_error_about_an_input_with_braces_in_its_name_can_be_shown(tmp_path: Path) -> None:
    """A remedy has its settings in braces."""
    model, name = make_decoder(), "attention_mask{0}"
    for node in model.graph.node:
        node.input[:] = [name if each == "attention_mask" else each for each in node.input]
    for info in model.graph.input:
        info.name = name if info.name == "attention_mask" else info.name
    onnx.save(model, tmp_path / "decoder.onnx")

    with pytest.raises(BindingError) as caught:
        divided(tmp_path / "decoder.onnx", Phase.STEP, {name: np.ones((1, 5), np.int64)})
    assert "Leave it out of" in str(caught.value)
