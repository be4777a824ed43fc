"""The models of a sweep, bound at every size."""

from __future__ import annotations

from msgspec import Struct

from pytest_modelperf.graph.model_file import ModelFile
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.prepare import Model
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.request import ProfileRequest, model_facts
from pytest_modelperf.profiler.sampling.setup import Setup


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
