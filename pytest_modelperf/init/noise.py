"""A short measure of how noisy this machine is, for somebody who has not measured yet."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.errors import Wording
from pytest_modelperf.profiler.doctor.checkup import check_machine
from pytest_modelperf.profiler.doctor.report import describe_checkup
from pytest_modelperf.profiler.model_in_worker import Watch
from pytest_modelperf.profiler.sampling.policy import DUET_POLICY
from pytest_modelperf.profiler.sampling.setup import Setup

# The rest of ten seconds goes to the start of the worker and its sessions.
_ROUND_SECONDS = 7.0


def measure_noise(
    wording: Wording, watch: Watch = lambda _: None, seconds: float = _ROUND_SECONDS
) -> tuple[str, ...]:
    """One sentence for each core count: which change could be seen here, and how soon."""
    setup = Setup(policy=replace(DUET_POLICY, max_seconds=seconds), wording=wording)
    return tuple(map(describe_checkup, check_machine(setup, watch=watch)))
