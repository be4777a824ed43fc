"""The measurement of one case in a worker: its rounds, its memory, the times of its kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import ExtensionError, MeasureError
from pytest_modelperf.files.documents import describe_misfit
from pytest_modelperf.profiler.engines.source import CALLABLE_ENGINE, EngineModule
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.inputs.mixture import ONE_STEP, StepFeeds
from pytest_modelperf.profiler.measurements import (
    Block,
    EngineFacts,
    Load,
    Measurement,
    Noise,
    Round,
)
from pytest_modelperf.profiler.sampling.loop import SamplingProgress, WatchSampling
from pytest_modelperf.profiler.sampling.rounds import IsEnough, sample
from pytest_modelperf.profiler.sampling.setup import Setup, worker_request
from pytest_modelperf.profiler.worker.client import ProcessWorker, Worker
from pytest_modelperf.profiler.worker.timing import FINE_NS
from pytest_modelperf.stats.estimates import summarize
from pytest_modelperf.stats.records import PartTurns, Turns
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_ms

# The fewest ticks of a coarse wall clock in an inference whose time it resolves.
_FEWEST_TICKS = 200

# A block is disturbed if others took this share of the time of its processors.
_DISTURBED_SHARE = 0.05

_NS_PER_S = 1_000_000_000
_STILL = " still"
# Its multiples fill the range from 0 to 1 evenly, however many there are.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_BYTES_OF_TIME = 8


class Workload(Struct, frozen=True, kw_only=True):
    """The work of a worker: a file or a function, at one batch size, with its inputs.

    `folder` has the external data, if it is not next to the file. With `steps` it is a phase of a
    generation, and `feeds` are the inputs of the one step that represents all of them. `is_plan`
    means that it has kernels of a plan, which run as they are.
    """

    model: str | Callable[..., Any]
    folder: str | None = None
    batch_size: int = 1
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    steps: StepFeeds | None = None
    is_plan: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on made inputs whose values decide how much is computed."""
        return tuple(feed.note for feed in self.feeds.values() if feed.note is not None)

    @property
    def pass_inferences(self) -> int:
        """The inferences of one pass of its members, or 1 if all have the same inputs."""
        is_mixed = self.steps is not None and self.steps.mix is not None
        return self.steps.count if is_mixed and self.steps is not None else 1


class PlacedPart(Struct, frozen=True):
    """A part of a plan as a file where the worker is. Its session and its inputs have its name."""

    name: str
    path: str
    cold_share: float = 1.0


class ClockTicks(Struct, frozen=True):
    """The ticks of the clocks of a worker, and whether single inferences have processor time."""

    wall_tick_ns: int
    process_tick_ns: int
    knows_processor_time: bool

    @property
    def note(self) -> str | None:
        """A note on the clocks for a reader of the times, or None if all is well."""
        if self.knows_processor_time:
            return None
        tick = format_ms(self.process_tick_ns)
        return (
            f"the process clock of the worker ticks every {tick} ms, so the wall clock alone was "
            "used: what other processes take from the model counts as its own time"
        )


class Rig(Struct):
    """A worker that is ready to measure, with its engine and the inputs of a workload.

    `side` names its session in the worker, and `feed` its inputs; `streams` is how many requests
    run at once. An inference arrives every `every_ns`; if that is None, it begins when the one
    before is over. `opened` sessions have been loaded so far; the next block of a generation begins
    at `next_step`. The `parts` run after each inference of a block that several sides share. With
    `watches` the disturbances of each inference are recorded, as they always are for sides that
    take turns. `clocks` is None for an engine that has a clock of its own. `function_file` is where
    a Python function was found, once it has been loaded.
    """

    worker: Worker
    setup: Setup
    cores: int
    workload: Workload
    facts: EngineFacts
    side: str = ""
    feed: str = ""
    step: str = "as it started"
    streams: int = 1
    every_ns: int | None = None
    opened: int = 0
    next_step: int = 0
    parts: tuple[PlacedPart, ...] = ()
    watches: bool = False
    clocks: ClockTicks | None = None
    function_file: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        why = self.worker.unpinned_because
        unpinned = None if why is None else f"not pinned to its processors: {why}"
        found = (unpinned, None if self.clocks is None else self.clocks.note)
        return tuple(note for note in found if note is not None)

    @property
    def tick_ns(self) -> int:
        """The tick of the clock that times inferences. Their times are whole nanoseconds."""
        return 1 if self.clocks is None else self.clocks.wall_tick_ns

    @property
    def still_feed(self) -> str:
        """The inputs of an inference that is repeated, or of one step of a generation."""
        steps = self.workload.steps
        return self.feed if steps is None or steps.count == 1 else f"{self.feed}{_STILL}"

    def open(self) -> tuple[Load]:
        """Load a fresh session, and return how long that took.

        A generation begins at another step each time, so that a few steps in each of some rounds
        cover all lengths. The same is true of the pass of a workload.
        """
        if self.workload.steps is not None:
            self.go_to_step(int(self.opened * _GOLDEN % 1.0 * self.workload.steps.count))
        self.opened += 1
        load = self.open_as(self.side, self.feed)
        for part in self.parts:
            self.open_part(part)
        return (load,)

    def open_part(self, part: PlacedPart) -> None:
        self.ask(
            "open",
            "as a part of the model was loaded",
            side=part.name,
            model=part.path,
            folder=None,
            feed=part.name,
            is_part=True,
        )

    def ask(self, command: str, step: str, **arguments: Any) -> Any:  # noqa: ANN401  # as in `Worker`
        """Return the worker's answer, with the cores and the options of this rig in the request."""
        return self.worker.ask(
            command, step, threads=self.cores, options=dict(self.setup.options), **arguments
        )

    def go_to_step(self, step: int) -> None:
        """Begin the next block of a generation at a step. The first step follows the last."""
        if self.workload.steps is not None:
            self.next_step = step % self.workload.steps.count

    def open_as(self, name: str, feed: str) -> Load:
        answer = self.ask(
            "open",
            "as the model was loaded",
            side=name,
            model=self.workload.model,
            folder=self.workload.folder,
            feed=feed,
            streams=self.streams,
            is_part=self.workload.is_plan,
        )
        self.function_file = answer.get("file")
        # A module is imported only once, and the function stays loaded.
        is_only = self.setup.engine.name == CALLABLE_ENGINE
        return Load(int(answer["load_ns"]), int(answer["begun_ns"]), is_only)

    def close(self) -> None:
        for part in self.parts:
            self.close_as(part.name)
        self.close_as(self.side)

    def close_as(self, name: str) -> None:
        self.worker.ask("close", "as a session was closed", side=name)

    def _is_disturbed(self, noise: Noise) -> bool:
        """Whether other processes ran on its processors, so that its threads waited for them."""
        others_ns = noise.others_ns
        if others_ns is None or self.worker.processors is None:
            return False
        return others_ns >= _DISTURBED_SHARE * noise.wall_ns * len(self.worker.processors)

    def _require_resolved(self, times: Mapping[str, bytes]) -> None:
        if self.tick_ns <= FINE_NS:
            return
        for data in times.values():
            typical_ns = float(np.median(np.frombuffer(data, np.int64)))
            if typical_ns < _FEWEST_TICKS * self.tick_ns:
                raise MeasureError(
                    f"the wall clock of the worker ticks every {format_ms(self.tick_ns)} ms, and "
                    f"an inference takes {format_ms(typical_ns)} ms by it {self.step}: it cannot "
                    f"time inferences below {format_ms(_FEWEST_TICKS * self.tick_ns)} ms. Measure "
                    "on a machine with a finer clock."
                )

    def take(self, count: int, max_ns: int) -> tuple[Block, ...]:
        return self.blocks((self.side,), count, max_ns)

    def blocks(
        self,
        sides: Sequence[str],
        count: int,
        max_ns: int,
        seed: int = 0,
        parts: Mapping[str, Sequence[PlacedPart]] | None = None,
    ) -> tuple[Block, ...]:
        """Return a block for each side. Several take turns in random order, each with its parts."""
        placed = parts or {}
        names = {side: [part.name for part in own] for side, own in placed.items()}
        steps, first = self.workload.steps, self.next_step
        answer = self.worker.ask(
            "block",
            self.step,
            limit_s=self.setup.limit_s + (max_ns + (self.every_ns or 0)) / _NS_PER_S,
            sides=list(sides),
            count=count,
            max_ns=max_ns,
            seed=seed,
            first_step=None if steps is None else first,
            parts=names,
            watches=self.watches,
            every_ns=self.every_ns,
        )
        self._require_resolved(answer["times"])
        noise = Noise(**answer["noise"])
        turns = answer["turns"] or {}
        done = len(answer["times"][sides[0]]) // _BYTES_OF_TIME
        self.go_to_step(first + done)
        mix = None if steps is None or self.streams > 1 else steps.mix_from(first, done)
        has_running = bool(turns) and (self.cores == 1 or self._is_disturbed(noise))

        def figures(own: Mapping[str, bytes]) -> dict[str, Any]:
            return {
                "times_ns": _numbers(own["times"]) or (),
                "switches": _numbers(own.get("switches", b"")),
                "running_ns": _numbers(own["running"]) if has_running else None,
                "unstalled_ns": _numbers(own["unstalled"]) if has_running else None,
                "tick_ns": self.tick_ns,
            }

        return tuple(
            Block(
                **figures({**turns.get(side, {}), "times": answer["times"][side]}),
                mix=mix,
                noise=noise,
                measured_per_second=answer["per_second"],
                starts_ns=_numbers(turns[side]["starts"])
                if turns
                else _starts_ns(answer, side, self.every_ns),
                first_step=None if steps is None or self.streams > 1 else first,
                parts=tuple(
                    PartTurns(
                        in_place=Turns(**figures(part["in_place"])),
                        alone=Turns(**figures(part["alone"])),
                        cold_share=own.cold_share,
                    )
                    for own, part in zip(
                        placed.get(side, ()), answer["parts"].get(side, ()), strict=True
                    )
                ),
            )
            for side in sides
        )


def _numbers(data: bytes) -> tuple[int, ...] | None:
    return tuple(np.frombuffer(data, np.int64).tolist()) if data else None


def _starts_ns(
    answer: Mapping[str, Any], side: str, every_ns: int | None
) -> tuple[int, ...] | None:
    """Return when each inference of the only side began or arrived. None if several ran at once."""
    if answer["per_second"] is not None:
        return None
    times_ns = np.frombuffer(answer["times"][side], np.int64)
    if every_ns is not None:
        return tuple((answer["begun_ns"] + every_ns * np.arange(len(times_ns))).tolist())
    # Inferences run back to back: the loop takes a tenth of a microsecond.
    spent_ns = np.cumsum(times_ns) - times_ns
    return tuple((answer["begun_ns"] + spent_ns).tolist())


def start_worker(setup: Setup, cores: int, cgroup_files: Sequence[str] = ()) -> ProcessWorker:
    """Make a worker in a process of its own, pinned to `cores` cores if they are given."""
    return ProcessWorker(worker_request(setup, cores, cgroup_files))


def set_up(worker: Worker, setup: Setup, cores: int, workload: Workload, side: str = "") -> Rig:
    """Send a worker its engine and the inputs of its inferences."""
    described = worker.use_engine(setup.engine, setup.options)
    steps = workload.steps
    if steps is None:
        _send(worker, workload.feeds, side)
    else:
        _send(worker, steps.feeds, side, steps.to_wire())
        if steps.count > 1:
            _send(worker, workload.feeds, f"{side}{_STILL}", ONE_STEP)
    facts = _facts_of(setup.engine, described, worker.python)
    clocks = worker.ask("clocks", "as its clocks were read")
    ticks = None if clocks is None else ClockTicks(**clocks)
    return Rig(worker, setup, cores, workload, facts, side, side, clocks=ticks)


def _facts_of(
    engine: EngineModule, described: Mapping[str, Any], python: str | None
) -> EngineFacts:
    facts = {
        "name": engine.name,
        "version": described.get("version"),
        "python": python,
        "options": described.get("options", {}),
        "providers": described.get("providers", ()),
    }
    try:
        return msgspec.convert(facts, EngineFacts)
    except msgspec.ValidationError as error:
        misfit = describe_misfit(str(error))
        raise ExtensionError(
            f"`describe` of the engine {engine.name!r} ({printable(engine.module)}) returned a "
            f"wrong value at {misfit.place}: {misfit.problem}. Its version, its providers and the "
            "values of its options are texts."
        ) from error


def _send(
    worker: Worker, feeds: Mapping[str, Feed], name: str, steps: Mapping[str, object] | None = None
) -> None:
    worker.ask(
        "inputs",
        "as the inputs were sent",
        inputs={each: feed.to_wire() for each, feed in feeds.items()},
        feed=name,
        steps=steps,
    )


def measure_rounds(
    rig: Rig, watch: WatchSampling, is_enough: IsEnough | None = None
) -> Measurement:
    """Measure all but layers: rounds until the policy or `is_enough` ends them, and memory."""
    begun = time.monotonic()

    def see(progress: SamplingProgress) -> None:
        rig.step = step_of(progress)
        watch(progress)

    policy = replace(rig.setup.policy, pass_inferences=rig.workload.pass_inferences)
    rounds = sample(rig, policy, time.perf_counter_ns, see, is_enough)
    return sum_up(rig, rounds, time.monotonic() - begun, is_alone=True)


def step_of(progress: SamplingProgress) -> str:
    return f"in round {progress.round} ({progress.step})"


def sum_up(rig: Rig, rounds: Sequence[Round], seconds: float, *, is_alone: bool) -> Measurement:
    """Return the measurement of these rounds, with peak memory if the model was alone."""
    memory = rig.worker.ask("memory", "as its memory was asked for") if is_alone else {}
    return Measurement(
        engine=rig.facts,
        rounds=tuple(rounds),
        latency=summarize(
            [r.times_ns for r in rounds], rig.workload.batch_size, rig.setup.policy.confidence
        ),
        seconds=seconds,
        processors=rig.worker.processors,
        machine=rig.worker.machine,
        peak_rss_bytes=memory.get("peak_rss_bytes") if rig.worker.is_own_process else None,
        engine_peak_bytes=memory.get("engine_peak_bytes"),
        notes=(*rig.workload.notes, *rig.notes),
        every_ns=rig.every_ns,
        streams=rig.streams,
    )
