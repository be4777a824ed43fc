"""Measures every configuration of the sides of a sweep in turn, pass by pass."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError, TooFewCoresError
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.machine.describe import describe_machine
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.measurements import Block, EngineFacts, Load, Progress, Round
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    adding_notes,
    alone_at,
    check_cores,
    make_workload,
    start_on,
    unchanged,
)
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.loop import SamplingProgress
from pytest_modelperf.profiler.sampling.rounds import sample_in_turn
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, set_up, step_of
from pytest_modelperf.profiler.worker.gateway import ProcessWorker
from pytest_modelperf.sweep.records import Configuration


class BoundSide(Struct, frozen=True):
    """One model, at every set of dimensions."""

    index: int
    file: ModelFile
    facts: ModelFacts
    setup: Setup
    models: tuple[Model, ...]

    @classmethod
    def bind(
        cls,
        index: int,
        file: ModelFile,
        setup: Setup,
        request: ProfileRequest,
        extensions: Extensions,
    ) -> BoundSide:
        facts = model_facts(file, reads_all=True)
        return cls(index, file, facts, setup, Model.of_request(file, request, extensions))

    def model_at(self, case: Case) -> Model:
        sizes = case.batch_size, case.dims, case.phase
        return next(
            model
            for model in self.models
            if (model.bound.inputs.batch_size, model.dims, model.binding.phase) == sizes
        )


# -- measures every configuration of the sides of a sweep in turn


class SideConfiguration(Struct, frozen=True):
    """One configuration of one side."""

    side: int
    configuration: Configuration


class PassResults(Struct, frozen=True):
    """The result of the passes: the rounds of each configuration, or why there are none.

    `seconds` is how long they took, without waiting for another measurement.
    """

    rounds: Mapping[SideConfiguration, tuple[Round, ...]]
    refused: Mapping[SideConfiguration, MeasureError]
    engines: Mapping[int, EngineFacts]
    machine: MachineFacts
    seconds: float


def run_passes(
    sides: Sequence[BoundSide], configurations: Sequence[Configuration], watch: Watch
) -> PassResults:
    keys = [SideConfiguration(side.index, each) for each in configurations for side in sides]
    refused: dict[SideConfiguration, MeasureError] = {}
    for key in keys:
        error = _too_few_cores(key.configuration.case, sides[key.side].setup)
        if error is not None:
            refused[key] = error
    numbers = {key: number for number, key in enumerate(keys, 1)}

    def tell(key: SideConfiguration, at: SamplingProgress) -> None:
        benches[key].step = step_of(at)
        label = f"{'AB'[key.side]} " if len(sides) > 1 else ""
        watch(
            Progress(
                case_id=f"{label}{key.configuration.id}",
                case_number=numbers[key],
                cases=len(keys),
                step=at.step,
                round=at.round,
                estimate_ns=at.estimate_ns,
                half_width=at.half_width,
                seconds_left=at.seconds_left,
            )
        )

    place = CasePlace(configurations[0].case, 1, len(keys), watch)
    with alone_at(place), _Workers(sides).open() as workers:
        begun = time.perf_counter()
        benches = {key: _Bench(workers, key) for key in keys if key not in refused}
        rounds, failed = sample_in_turn(
            benches,
            sides[-1].setup.policy,
            time.perf_counter_ns,
            tell,
            random.Random(0),  # noqa: S311  # only an order
            lambda key: key.configuration,
        )
        machine = workers.machine or describe_machine()
        seconds = time.perf_counter() - begun
        return PassResults(rounds, {**refused, **failed}, workers.engines, machine, seconds)


def _too_few_cores(case: Case, setup: Setup) -> TooFewCoresError | None:
    try:
        check_cores(case.cores, setup)
    except TooFewCoresError as error:
        return error
    return None


class _Workers(Struct):
    """The workers of a sweep: one for each number of cores and each way to run a model.

    An idle worker has no open session. A worker in which something failed is ended; the next
    configuration that needs it starts a new one.
    """

    sides: Sequence[BoundSide]
    engines: dict[int, EngineFacts] = field(default_factory=dict)
    machine: MachineFacts | None = None
    _workers: dict[tuple[int, int], tuple[ProcessWorker, ExitStack]] = field(default_factory=dict)
    _rigs: dict[tuple[int, Case], Rig] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[_Workers]:
        try:
            yield self
        finally:
            with ExitStack() as stack:
                for _, own in self._workers.values():
                    stack.push(own)

    def rig(self, key: SideConfiguration) -> Rig:
        case = key.configuration.case
        known = self._rigs.get((key.side, case))
        if known is None:
            side = self.sides[key.side]
            worker = self._worker(key)
            model = self.model(key)
            name = f"{'ab'[key.side]}{side.models.index(model)}"
            workload = make_workload(prepare(model), worker, name)
            with adding_notes(workload.notes):
                known = set_up(worker, side.setup, case.cores, workload, name)
            self._rigs[key.side, case] = known
            self.engines[key.side] = known.facts
            self.machine = self.machine or worker.machine
        return replace(known, streams=key.configuration.streams)

    def model(self, key: SideConfiguration) -> Model:
        return self.sides[key.side].model_at(key.configuration.case)

    def _worker(self, key: SideConfiguration) -> ProcessWorker:
        place = self._place(key)
        if place not in self._workers:
            stack = ExitStack()
            started = start_on(self.sides[place[0]].setup, place[1])
            self._workers[place] = stack.enter_context(started), stack
        return self._workers[place][0]

    def end(self, key: SideConfiguration) -> None:
        place = self._place(key)
        _, stack = self._workers.pop(place, (None, ExitStack()))
        stack.close()
        for side, case in list(self._rigs):
            if self._place(SideConfiguration(side, Configuration(case))) == place:
                del self._rigs[side, case]

    def _place(self, key: SideConfiguration) -> tuple[int, int]:
        """Return the key of the worker, which sides with the same setup share."""
        setup = self.sides[key.side].setup
        first = next(side.index for side in self.sides if side.setup == setup)
        return first, key.configuration.case.cores


class _Bench(Struct):
    """One configuration as a bench to sample, whose worker starts with its first round."""

    workers: _Workers
    key: SideConfiguration
    step: str = ""
    _rig: Rig | None = None

    def open(self) -> tuple[Load]:
        with self._ending_what_fails(), unchanged(self.workers.model(self.key)):
            self._rig = self.workers.rig(self.key)
            return self._rig.open()

    def take(self, count: int, max_ns: int) -> tuple[Block, ...]:
        assert self._rig is not None, "a round opens its session first"  # noqa: S101  # for mypy
        self._rig.step = self.step
        with self._ending_what_fails():
            return self._rig.take(count, max_ns)

    def close(self) -> None:
        if self._rig is not None:
            with self._ending_what_fails():
                self._rig.close()

    @contextmanager
    def _ending_what_fails(self) -> Iterator[None]:
        """End the worker after an error, so that the next configuration gets a new one."""
        try:
            yield
        except MeasureError:
            self.workers.end(self.key)
            raise
