"""A baseline of a model as a run records it, case after case."""

from __future__ import annotations

import datetime as dt

from pytest_modelperf.baselines.recording import merge_recordings, rebuilt_twin, record_case
from pytest_modelperf.baselines.records import BaselineRecording
from pytest_modelperf.graph.model_file import ModelSource, open_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.model_in_worker import CasePlace, read_facts
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.setup import Setup


def record_baseline(
    name: str,
    source: ModelSource,
    request: ProfileRequest,
    setup: Setup,
    date: dt.date,
) -> BaselineRecording:
    """Records every case of a model; MeasureError if one cannot be measured."""
    file = open_model(source)
    models = [
        Model.bind(file, binding, request, Extensions()) for binding in request.bindings_of(file)
    ]
    total = len(request.cores) * len(models)
    # Read before the twin is made, which must belong to the same bytes.
    read_facts(models[0], total, lambda _: None)
    parts: list[BaselineRecording] = []
    with rebuilt_twin(file) as twin:
        for model in models:
            known = prepare(model)
            for cores in request.cores:
                place = CasePlace(model.case(cores), len(parts) + 1, total, lambda _: None)
                recorded = record_case(name, known, twin, setup, date, place)
                parts.append(recorded.recording)
                known = recorded.model
    return merge_recordings(parts)
