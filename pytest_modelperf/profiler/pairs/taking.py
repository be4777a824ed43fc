"""Take the rounds of a duet until a rule has decided."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from pytest_modelperf.profiler.measurements import DuetRound
from pytest_modelperf.profiler.model_in_worker import CasePlace
from pytest_modelperf.profiler.sampling.duet import SharedDuet
from pytest_modelperf.profiler.sampling.loop import Bench, SamplingProgress
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY, filling_time
from pytest_modelperf.profiler.sampling.rounds import sample_duet
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig, step_of


class StopRule(Protocol):
    """The rule that decides when a duet has enough rounds."""

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""

    @property
    def samples_needed(self) -> tuple[int, ...]:
        """The samples of each side that each awaited percentile needs, in ascending order."""

    @property
    def has_limits(self) -> bool:
        """Whether the rule also waits for absolute limits, which more samples decide."""

    def is_decided(self, rounds: Sequence[DuetRound]) -> bool:
        """Whether no further round is needed."""


def take_shared_rounds(duet: SharedDuet, rule: StopRule, place: CasePlace) -> Sequence[DuetRound]:
    """Take rounds of two sides that share a worker and its setup."""
    setup, passes = duet.after.setup, duet.after.workload.pass_inferences
    rigs = duet.before, duet.after
    return take_rounds(duet, setup, rule, place, rigs, pass_inferences=passes)


def take_rounds(  # noqa: PLR0913  # of what, how, until when, for whom
    duet: Bench,
    setup: Setup,
    rule: StopRule,
    place: CasePlace,
    rigs: Sequence[Rig],
    *,
    pass_inferences: int = 1,
) -> Sequence[DuetRound]:
    """Take rounds until the rule has decided or the time is over."""
    fewest, *tail_samples = rule.samples_needed
    policy = replace(
        DUET_POLICY,
        max_seconds=setup.policy.max_seconds,
        min_warmup_seconds=setup.policy.min_warmup_seconds,
        stretch_seconds=setup.stretch_seconds,
        min_samples=fewest,
        tail_samples=tuple(tail_samples),
        max_rounds=rule.rounds,
        pass_inferences=pass_inferences,
    )
    if rule.has_limits:
        policy = filling_time(policy)

    def see(progress: SamplingProgress) -> None:
        for rig in rigs:
            rig.step = step_of(progress)
        place.tell_round(progress)

    return sample_duet(duet, policy, time.perf_counter_ns, see, rule.is_decided)
