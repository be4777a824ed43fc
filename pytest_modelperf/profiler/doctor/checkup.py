"""Check how noisy this machine is, and whether the memory of a session grows.

For the noise, a model runs against itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from msgspec.structs import replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.graph.sample_models import sample_model
from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace, Watch, check_cores, started_rig
from pytest_modelperf.profiler.prepare import Model, PreparedModel, prepare
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.stats.decisions import LOOKS
from pytest_modelperf.stats.estimates import (
    describe_spread,
    detectable_change,
    duet_ratio,
    round_ratios,
    summarize,
)
from pytest_modelperf.stats.records import Growth
from pytest_modelperf.stats.robust import growth_of

# The first blocks fill the pools of the allocator. Only what later blocks add is growth.
_WARM_BLOCKS, _BLOCKS = 4, 12
# In such a block, a leak of 1 KB per inference adds two of the allocator's steps of 132 KB.
_FULL_BLOCK = 250
# The number of inferences from which the time of one is estimated.
_TRIAL = 3
# The error level of each bound of the reported growth.
GROWTH_LEVEL = 0.005
_NS_PER_S = 1e9


def measure_growth(
    model: PreparedModel, setup: Setup, place: CasePlace, level: float = GROWTH_LEVEL
) -> Growth:
    """Measure the growth of memory per inference, in a process of its own."""
    with started_rig(model, setup, place) as rig:
        return find_growth(rig, level, lambda: place.tell("watching its memory"))


def find_growth(rig: Rig, level: float, report: Callable[[], None] = lambda: None) -> Growth:
    """Measure the growth of memory of a worker's model, within the time of a case."""
    rig.open()
    report()
    rig.step = "as its memory was watched"
    limit_ns = round(rig.setup.limit_s * _NS_PER_S)
    turn_ns = median(rig.take(_TRIAL, limit_ns)[0].times_ns)
    blocks = _WARM_BLOCKS + _BLOCKS
    share_ns = rig.setup.policy.max_seconds * _NS_PER_S / blocks
    block = min(max(int(share_ns / max(turn_ns, 1.0)), 1), _FULL_BLOCK)
    sizes = []
    for number in range(blocks):
        # Every block has the same number of inferences, because the growth is divided by it.
        done = 0
        while done < block:
            done += len(rig.take(block - done, limit_ns)[0].times_ns)
        if number >= _WARM_BLOCKS - 1:
            sizes.append(_memory_of(rig))
    # Not in a `finally`: after an error, the worker may have ended or be too busy to answer.
    rig.close()
    return growth_of(sizes, block, level)


def _memory_of(rig: Rig) -> int:
    size_bytes = rig.worker.ask("memory", rig.step)["rss_bytes"]
    if size_bytes is None:
        raise MeasureError(
            "this platform does not report how much memory a process has now, so growth cannot be "
            "measured: measure it on Linux."
        )
    return int(size_bytes)


# The error level and the power of one comparison that can fail a test.
LEVEL = 0.01
POWER = 0.9
_CONFIDENCE = 0.95
_SAMPLE_NAME = "a small convolutional network"


def check_machine(
    setup: Setup,
    source: ModelSource | None = None,
    request: ProfileRequest | None = None,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
) -> tuple[Checkup, ...]:
    """Judge this machine by two sessions of one model that run in turn, for each core count."""
    request = request or ProfileRequest()
    model = prepare(Model.load(source or sample_model(), request, extensions or Extensions()))
    name = _SAMPLE_NAME if source is None else model_facts(model.file).name
    for cores in request.cores:
        check_cores(cores, setup)
    checkups = []
    for number, cores in enumerate(request.cores, 1):
        place = CasePlace(model.case(cores), number, len(request.cores), watch)
        checkup = _check(name, model, setup, place)
        if source is not None:
            checkup = replace(checkup, growth=measure_growth(model, setup, place))
        checkups.append(checkup)
    return tuple(checkups)


def _check(name: str, model: PreparedModel, setup: Setup, place: CasePlace) -> Checkup:
    with started_rig(model, setup, place) as rig:
        begun = time.monotonic()
        duet = SharedDuet(replace(rig, side=BEFORE), replace(rig, side=AFTER))
        rounds = sample_duet(
            duet, setup.policy, time.perf_counter_ns, place.tell_round, lambda _: False
        )
        seconds = time.monotonic() - begun
        facts, processors = rig.facts, rig.worker.processors
        notes = rig.notes
    pairs = [(each.before.block, each.after.block) for each in rounds]
    first = [before.times_ns for before, _ in pairs]
    return Checkup(
        model=name,
        engine=facts,
        cores=place.case.cores,
        processors=processors,
        seconds=seconds,
        median_ns=summarize(first, place.case.batch_size).median_ns,
        ratio=duet_ratio(pairs, _CONFIDENCE),
        spread=describe_spread(first),
        noise=tuple(each.before.block.noise for each in rounds),
        level=LEVEL,
        power=POWER,
        outlook=tuple(
            Outlook(
                rounds=count,
                seconds=count * seconds / len(rounds),
                change=detectable_change(pairs, LEVEL, POWER, count),
            )
            for count in LOOKS
        ),
        notes=notes,
        ratios=round_ratios(pairs),
    )
