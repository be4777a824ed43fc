"""The models of a worker: their inputs and steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.inputs.mixture import HandedOn, StepFeeds
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, Workload
from pytest_modelperf.profiler.worker.agent import Agent
from pytest_modelperf.profiler.worker.sessions import FeedArrays, StepArrays, align, read_feed
from tests.support.facts import make_engine

if TYPE_CHECKING:
    from pytest_modelperf.profiler.engines.contract import Engine, StepPlan
    from pytest_modelperf.profiler.worker.client import Worker


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
def test_arrays_from_the_channel_are_aligned_whatever_was_freed_before(before: int) -> None:
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
    """An engine that reports one tensor, which begins 16 bytes after an aligned place."""

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


COUNT = 10
FEED = Feed("float32", np.arange(6, dtype=np.float32).reshape(1, 3, 2))
STEPS = StepFeeds({"past": FEED}, COUNT, (HandedOn("past", "present", 1, 1),))


class Clock:
    """Time that passes only if something is done."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Stepping:
    """An engine whose inference takes a microsecond for each token before it, and none of 0."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.made: list[FakeSteps] = []

    def load(self, *_: object) -> Stepping:
        return self

    def prepare_steps(self, plan: StepPlan, _: Mapping[str, str]) -> FakeSteps:
        self.made.append(FakeSteps(self.clock, plan.count))
        return self.made[-1]

    def close(self) -> None:
        pass


class FakeSteps:
    """Steps without a state; `rewound` are those that were gone to."""

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count
        self.next = 0
        self.rewound: list[int] = []

    def __call__(self) -> None:
        self.clock.now_ns += 1000 * (self.next + 1)
        self.next = (self.next + 1) % self.count

    def rewind(self, step: int) -> None:
        if step != self.next:
            self.rewound.append(step)
            self.next = step


class Plain:
    """An engine that hands on no state."""

    def load(self, *_: object) -> Plain:
        return self

    def prepare(self, *_: object) -> Callable[[], Any]:
        return lambda: None

    def close(self) -> None:
        pass


class InlineWorker:
    """Asks an agent in this process."""

    processors: tuple[int, ...] | None = None

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def ask(self, command: str, _: str, **arguments: Any) -> Any:  # noqa: ANN401  # as a worker's
        arguments.pop("limit_s", None)
        answer = self.agent.handle({"command": command, **arguments})
        return answer.get("ok", answer)


def rig_of(engine: object, clock: Clock | None = None, streams: int = 1) -> Rig:
    agent = Agent(clock or Clock())
    agent.use_engine(cast("Engine", engine))
    worker = InlineWorker(agent)
    feeds = {name: feed.to_wire() for name, feed in STEPS.feeds.items()}
    worker.ask("inputs", "", inputs=feeds, feed="", steps=STEPS.to_wire())
    return Rig(
        cast("Worker", worker),
        Setup(),
        1,
        Workload(model="m", steps=STEPS),
        make_engine("e"),
        streams=streams,
    )


def stepping(streams: int = 1) -> tuple[Rig, Stepping]:
    clock = Clock()
    engine = Stepping(clock)
    return rig_of(engine, clock, streams), engine


def test_blocks_follow_each_other_and_steps_begin_again_after_the_last() -> None:
    rig, _ = stepping()
    rig.open()
    blocks = [rig.take(count, 10**9)[0] for count in (1, 7, 12)]
    assert [block.first_step for block in blocks] == [0, 1, 8]
    ran = [ns // 1000 - 1 for block in blocks for ns in block.times_ns]
    assert ran == list(itertools.islice(itertools.cycle(range(COUNT)), 20))


def test_sessions_begin_at_steps_that_fill_the_generation_evenly() -> None:
    rig, _ = stepping()
    begun = []
    for _ in range(COUNT):
        rig.open()
        begun.append(rig.take(1, 10**9)[0].first_step)
    assert begun[:5] == [0, 6, 2, 8, 4]
    assert len(set(begun)) >= COUNT - 2


def test_a_block_that_its_time_cuts_off_says_where_the_next_begins() -> None:
    rig, _ = stepping()
    rig.open()
    cut = rig.take(9, 3000)[0]
    assert len(cut.times_ns) < 9
    assert rig.take(1, 10**9)[0].first_step == len(cut.times_ns)


def test_going_on_takes_no_rewinding() -> None:
    rig, engine = stepping()
    rig.open()
    for _ in range(5):
        rig.take(7, 10**9)
    assert engine.made[-1].rewound == []


def test_several_streams_have_steps_of_their_own() -> None:
    rig, engine = stepping(streams=3)
    rig.open()
    assert len(engine.made) == 3
    block = rig.take(12, 10**9)[0]
    # Each is at another step by then, so a time belongs to no length.
    assert block.first_step is None


def test_an_engine_that_hands_on_no_state_says_what_it_lacks() -> None:
    rig = rig_of(Plain())
    answer = cast("Any", rig.worker).ask(
        "open", "", side="", model="m", folder=None, threads=1, options={}, feed=""
    )
    assert "`prepare_steps`" in answer["error"]["message"]


def test_a_state_without_tokens_is_zero_if_it_has_some() -> None:
    empty = np.zeros((1, 0, 2), np.float32)
    plan = StepArrays({"past": empty}, 3, [("past", "present", 1, 1)], {})
    assert plan.state_at(0)["past"].shape == (1, 0, 2)
    assert plan.state_at(2)["past"].tolist() == [[[0.0, 0.0], [0.0, 0.0]]]


def test_a_state_that_counts_has_the_value_of_its_step() -> None:
    counts = np.array([5, 6, 7], np.int64)
    changing = {"length": [(step, (1,)) for step in range(3)]}
    plan = StepArrays({"length": counts}, 3, [("length", "new_length", None, 0)], changing)
    assert [plan.state_at(step)["length"].tolist() for step in range(3)] == [[5], [6], [7]]
    assert plan.inputs_at(1) == {}
