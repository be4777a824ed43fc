"""Measures a sweep: every configuration of one model or two, and then the best one in detail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pytest_modelperf.errors import ChangedModelError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import LONG_SECONDS
from pytest_modelperf.profiler.model_in_worker import Watch, unchanged
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sweep.best import LOAD_SHARE, look_closer
from pytest_modelperf.sweep.passes import run_passes
from pytest_modelperf.sweep.records import Configuration, Sweep
from pytest_modelperf.sweep.results import sum_up
from pytest_modelperf.sweep.sides import BoundSide, SweepSource
from pytest_modelperf.text.units import format_seconds
from pytest_modelperf.text.words import count_of

# The seconds of each configuration, unless the user says.
SWEEP_SECONDS = 5.0
# The precision of each median. A sweep looks for larger differences.
_PRECISION = 0.02


def sweep_models(  # noqa: PLR0913, PLR0917  # the whole request
    sources: Sequence[SweepSource],
    request: ProfileRequest,
    streams: Sequence[int] = (1,),
    threshold_ms: float | None = None,
    extensions: Extensions | None = None,
    watch: Watch = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Measures every configuration of one model, or of two: the one before and the one now.

    A configuration that fails gets a reason, and the others go on. At the end the best one is
    measured in detail: the layers of one model, or a comparison of both. `tell` is told how long
    all of that may take, before it begins.
    """
    extensions = extensions or Extensions()
    begun = time.monotonic()
    files = [open_model(each.source) for each in sources]
    requests = request_of_each(request, files)
    require_equal_phases(files, requests)
    sides = [
        BoundSide.bind(index, file, _coarser(each.setup), own, extensions)
        for index, (file, each, own) in enumerate(zip(files, sources, requests, strict=True))
    ]
    require_equal_batches(
        files, [[model.bound.inputs.batch_size for model in side.models] for side in sides]
    )
    cases = [model.case(cores) for model in sides[-1].models for cores in request.cores]
    configurations = [Configuration(case, count) for case in cases for count in streams]
    most_seconds = (len(configurations) + 1) * len(sides) * sides[-1].setup.policy.max_seconds
    if most_seconds >= LONG_SECONDS:
        tell(_describe_plan(sides, configurations, most_seconds))
    found = run_passes(sides, configurations, watch)
    swept = sum_up(found, sides, configurations, threshold_ms)
    try:
        with unchanged(*(side.models[0] for side in sides)):
            left_seconds = most_seconds - found.seconds
            swept = look_closer(swept, sources, request, left_seconds, extensions, watch)
    except ChangedModelError as error:
        # The results so far are still true.
        swept = replace(
            swept, notes=(*swept.notes, f"the best was not measured in detail: {error}")
        )
    return replace(swept, seconds=time.monotonic() - begun)


def _coarser(setup: Setup) -> Setup:
    policy = setup.policy
    precision = max(_PRECISION, policy.precision)
    return replace(setup, policy=replace(policy, precision=precision, load_share=LOAD_SHARE))


def _describe_plan(
    sides: Sequence[BoundSide], configurations: Sequence[Configuration], most_seconds: float
) -> str:
    """How long a sweep may take. The detail of the best takes as long as a configuration."""
    seconds, count = sides[-1].setup.policy.max_seconds, len(configurations)
    both = " of both models" if len(sides) > 1 else ""
    return (
        f"{count_of(count, 'configuration')}{both}, up to {format_seconds(seconds)} each, and the "
        f"best in detail: up to {format_seconds(most_seconds)}; more where "
        f"sessions take longer than {format_seconds(LOAD_SHARE * seconds)} to load"
    )
