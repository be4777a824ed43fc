"""Where the inputs of a worker begin in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.sessions import FeedArrays, StepArrays, align, read_feed

Array = npt.NDArray[np.generic]


def place_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@given(arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)))
def test_align_copies_an_array_to_where_the_tensors_of_engines_begin(array: Array) -> None:
    copy = align(array)
    assert not copy.size or place_of(copy) % 64 == 0
    assert (copy.dtype, copy.shape, copy.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert copy.flags.writeable
    assert not np.shares_memory(copy, array)


def test_texts_stay_where_they_are() -> None:
    texts = np.array(["a", "b"], dtype=object)
    assert align(texts) is texts


@pytest.mark.parametrize("before", range(4))
def test_what_comes_over_the_channel_begins_there_whatever_was_freed_before(before: int) -> None:
    held = [bytearray(1000 + 16 * place) for place in range(before)]
    sent = np.arange(250, dtype=np.float32)
    fed = read_feed({"x": ("float32", "<f4", (1, 250), sent.tobytes())}, None)
    assert place_of(fed.arrays["x"]) % 64 == 0
    np.testing.assert_array_equal(fed.arrays["x"], sent.reshape(1, 250))
    assert len(held) == before


def test_a_state_that_has_grown_begins_there() -> None:
    past = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    steps = StepArrays({"past": past}, 4, [("past", "present", 1, 1)], {})
    for step in range(1, 4):
        assert place_of(steps.state_at(step)["past"]) % 64 == 0


class Watched:
    """An engine that tells one tensor, which begins 16 bytes beside an aligned place."""

    def read_tensors(self, *_: object) -> dict[str, Array]:
        memory = align(np.zeros(64, np.float32))
        return {"t": memory[4:36]}


def test_the_tensors_that_a_part_gets_begin_there() -> None:
    agent = Agent()
    agent._engine = Watched()  # type: ignore[assignment]  # this much of an engine
    agent._feeds[""] = FeedArrays({}, {})
    agent.do_tensors("m.onnx", 1, {}, "", ["t"], {"part": ["t"]})
    assert place_of(agent._feeds["part"].arrays["t"]) % 64 == 0


def test_texts_are_not_sent_as_the_inputs_of_a_part() -> None:
    """Their bits are addresses of this process."""
    agent = Agent()
    agent._engine = Watched()  # type: ignore[assignment]  # this much of an engine
    agent._feeds[""] = FeedArrays({"words": np.array(["a"], object)}, {"words": "string"})
    assert set(agent.do_tensors("m.onnx", 1, {}, "", ["t"], {}, ["t"])["sent"]) == {"t"}
    with pytest.raises(ValueError, match="'words' is text"):
        agent.do_tensors("m.onnx", 1, {}, "", ["t"], {}, ["words"])
