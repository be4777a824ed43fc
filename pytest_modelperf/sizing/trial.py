"""One real inference of a model at sizes that fit by shapes."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.binding import Binding
from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.measurements import Progress
from pytest_modelperf.profiler.model_in_worker import CasePlace, Model, started_rig
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup

# The longest that a worker may be silent: the inference is a check, and not worth a long wait.
LIMIT_S = 10.0
_NS_PER_S = 1_000_000_000


def run_once(
    file: ModelFile, binding: Binding, setup: Setup, extensions: Extensions
) -> ModelPerfError | None:
    """Run one inference in a worker, on one core; returns the error if it failed."""

    def watch(_: Progress) -> None:
        """Nobody watches."""

    short = replace(setup, limit_s=min(setup.limit_s, LIMIT_S))
    try:
        model = Model.bind(file, binding, ProfileRequest(), extensions)
        with started_rig(model, short, CasePlace(model.case(1), 1, 1, watch)) as rig:
            rig.open()
            rig.block(1, _NS_PER_S)
    except ModelPerfError as error:
        return error
    return None
