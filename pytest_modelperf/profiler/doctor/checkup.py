"""How noisy this machine is: a model runs against itself, to see what could be detected."""

from __future__ import annotations

import time

from msgspec.structs import replace

from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.graph.sample_model import sample_model
from pytest_modelperf.profiler.doctor.growth import measure_growth
from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    check_cores,
    started_rig,
)
from pytest_modelperf.profiler.prepare import Model, PreparedModel, prepare
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, SharedDuet
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.stats.estimates import (
    describe_spread,
    detectable_change,
    duet_ratio,
    round_ratios,
    summarize,
)
from pytest_modelperf.stats.looks import LOOKS

# The levels of one gated comparison.
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
    """Run two sessions of one model in turn, for each core count, to judge this machine.

    The memory of a given model is watched as well.
    """
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
