"""Memory that grows with every inference: looked for over many inferences of one session."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.profiler.model_in_worker import CasePlace, started_rig
from pytest_modelperf.profiler.prepare import PreparedModel
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.stats.growth import growth_of
from pytest_modelperf.stats.records import Growth

# The first blocks fill the pools of the allocator; what later ones add is growth.
_WARM_BLOCKS, _BLOCKS = 4, 12
# A leak of a kilobyte an inference adds two of the allocator's steps of 132 KB in a block.
_FULL_BLOCK = 250
# The inferences that tell how long one takes.
_TRIAL = 3
# The error level of each bound of a growth that is shown.
LEVEL = 0.005
_NS_PER_S = 1e9


def measure_growth(
    model: PreparedModel, setup: Setup, place: CasePlace, level: float = LEVEL
) -> Growth:
    """The growth of memory with each inference, in a process of its own."""
    with started_rig(model, setup, place) as rig:
        return find_growth(rig, level, lambda: place.tell("watching its memory"))


def find_growth(rig: Rig, level: float, tell: Callable[[], None] = lambda: None) -> Growth:
    """The growth of a model that a worker has, within the time of a case."""
    rig.open()
    tell()
    rig.step = "as its memory was watched"
    limit_ns = round(rig.setup.limit_s * _NS_PER_S)
    turn_ns = median(rig.block(_TRIAL, limit_ns).times_ns)
    blocks = _WARM_BLOCKS + _BLOCKS
    share_ns = rig.setup.policy.max_seconds * _NS_PER_S / blocks
    block = min(max(int(share_ns / max(turn_ns, 1.0)), 1), _FULL_BLOCK)
    sizes = []
    for number in range(blocks):
        # Every block has as many inferences, for the figure is divided by their number.
        done = 0
        while done < block:
            done += len(rig.block(block - done, limit_ns).times_ns)
        if number >= _WARM_BLOCKS - 1:
            sizes.append(_memory_of(rig))
    # Not closed after an error or interrupt: a worker that has ended or is busy would not answer.
    rig.close()
    return growth_of(sizes, block, level)


def _memory_of(rig: Rig) -> int:
    told = rig.worker.ask("memory", rig.step)["rss_bytes"]
    if told is None:
        raise MeasureError(
            "this platform does not tell how much memory a process has now, so growth cannot be "
            "measured: measure it on Linux."
        )
    return int(told)
