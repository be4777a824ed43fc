"""A request to sweep: every configuration of one model or two, and then the best one in detail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import ChangedModelError, ModelPerfError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import LONG_SECONDS
from pytest_modelperf.profiler.model_in_worker import Watch, unchanged
from pytest_modelperf.profiler.model_request import ModelRun, Parts, only_result
from pytest_modelperf.profiler.request import (
    ProfileRequest,
    model_facts,
    request_of_each,
    require_equal_batches,
    require_equal_phases,
)
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sweep.records import Configuration, Sweep
from pytest_modelperf.sweep.results import (
    LOAD_SHARE,
    BoundSide,
    at_best,
    look_closer,
    run_passes,
    sum_up,
)
from pytest_modelperf.text.units import format_seconds
from pytest_modelperf.text.words import count_of

# The seconds of each configuration, unless the user sets another number.
SWEEP_SECONDS = 5.0
# The precision of each median. A sweep looks for larger differences.
_PRECISION = 0.02


class SweepRequest(Struct, frozen=True):
    """A request to sweep one model, or an earlier and a current one.

    The best configuration has a median latency within `threshold_ms`. Its layers are timed, or with
    `all_layers` those of every case.
    """

    sides: tuple[ModelRun, ...]
    request: ProfileRequest
    streams: tuple[int, ...] = (1,)
    threshold_ms: float | None = None
    all_layers: bool = False

    def run(
        self,
        extensions: Extensions,
        watch: Watch = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Sweep:
        """Measure every configuration, and the best one in detail: its layers, or a comparison.

        With `all_layers` every case is measured in detail.

        A configuration that fails gets a reason, and the others continue. If the sweep may take
        long, `tell` receives the longest time before it begins.
        """
        begun = time.monotonic()
        files = [open_model(each.source) for each in self.sides]
        requests = request_of_each(self.request, files)
        require_equal_phases(files, requests)
        sides = [
            BoundSide.bind(index, file, _coarser(each.setup), own, extensions)
            for index, (file, each, own) in enumerate(zip(files, self.sides, requests, strict=True))
        ]
        require_equal_batches(
            files, [[model.bound.inputs.batch_size for model in side.models] for side in sides]
        )
        cases = [model.case(cores) for model in sides[-1].models for cores in self.request.cores]
        configurations = [Configuration(case, count) for case in cases for count in self.streams]
        details = len(cases) if self.all_layers else 1
        each_seconds = len(sides) * sides[-1].setup.policy.max_seconds
        most_seconds = (len(configurations) + details) * each_seconds
        if most_seconds >= LONG_SECONDS:
            tell(_describe_plan(sides, configurations, most_seconds, details))
        found = run_passes(sides, configurations, watch)
        swept = sum_up(found, sides, configurations, self.threshold_ms)
        try:
            with unchanged(*(side.models[0] for side in sides)):
                left_seconds = (most_seconds - found.seconds) / details
                asked = self.request if self.all_layers else at_best(swept, self.request)
                if asked is not None:
                    swept = look_closer(swept, self.sides, asked, left_seconds, extensions, watch)
        except ChangedModelError as error:
            # The results so far are still valid.
            swept = replace(
                swept, notes=(*swept.notes, f"the best was not measured in detail: {error}")
            )
        return replace(swept, seconds=time.monotonic() - begun)

    def split(self, extensions: Extensions) -> Parts[Sweep]:  # noqa: ARG002  # as in all requests
        """Return the whole sweep as one part: its configurations run in turn and are compared."""
        facts = [model_facts(open_model(each.source), reads_all=True) for each in self.sides]

        def join(found: Sequence[Sweep | ModelPerfError]) -> Sweep:
            """Return the sweep with the local model files, whose paths differ on the machine."""
            swept = only_result(found)
            profile, comparison = swept.profile, swept.comparison
            return replace(
                swept,
                sides=tuple(
                    replace(side, model=own) for side, own in zip(swept.sides, facts, strict=True)
                ),
                profile=None if profile is None else replace(profile, model=facts[-1]),
                comparison=None
                if comparison is None
                else replace(comparison, before=facts[0], after=facts[-1]),
            )

        return Parts(((f"sweep of {facts[-1].name}", self),), Sweep, join)


def _coarser(setup: Setup) -> Setup:
    policy = setup.policy
    precision = max(_PRECISION, policy.precision)
    return replace(setup, policy=replace(policy, precision=precision, load_share=LOAD_SHARE))


def _describe_plan(
    sides: Sequence[BoundSide],
    configurations: Sequence[Configuration],
    most_seconds: float,
    details: int,
) -> str:
    """Describe how long a sweep may take.

    The layers of each of the `details` cases take as long as a configuration.
    """
    seconds, count = sides[-1].setup.policy.max_seconds, len(configurations)
    both = " of both models" if len(sides) > 1 else ""
    detailed = "the best" if details == 1 else count_of(details, "case")
    return (
        f"{count_of(count, 'configuration')}{both}, up to {format_seconds(seconds)} each, and "
        f"{detailed} in detail: up to {format_seconds(most_seconds)}; more if "
        f"sessions take longer than {format_seconds(LOAD_SHARE * seconds)} to load"
    )
