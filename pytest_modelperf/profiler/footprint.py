"""The memory that a model takes: the peak of a fresh process, less what was there before it."""

from __future__ import annotations

from pytest_modelperf.profiler.model_in_worker import CasePlace, make_workload, start_on
from pytest_modelperf.profiler.prepare import PreparedModel
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.sampling.worker_bench import set_up

# Inferences after loading. Buffers are taken by the first, and a second one shows what is kept.
_INFERENCES = 2
# Less is not told from the pages that the runtime takes on its own.
LEAST_BYTES = 1 << 20
_FIND_OUT = "as its memory was asked for"


def measure_footprint(model: PreparedModel, setup: Setup, place: CasePlace) -> int:
    """The bytes that loading a model and some inferences take, in a process of their own.

    The interpreter, numpy, the engine and the inputs are there before the model is, and are left
    out.
    """
    with start_on(setup, place.case.cores) as worker:
        rig = set_up(worker, setup, place.case.cores, make_workload(model, worker))
        before = worker.ask("memory", _FIND_OUT)
        resting = before["rss_bytes"] or before["peak_rss_bytes"]
        rig.open()
        # The state of a generation is largest at its end.
        rig.go_to_step(-_INFERENCES)
        rig.step = _FIND_OUT
        for _ in range(_INFERENCES):
            rig.block(1, round(setup.limit_s * 1e9))
        peak = worker.ask("memory", _FIND_OUT)["peak_rss_bytes"]
    return max(int(peak) - int(resting), LEAST_BYTES)
