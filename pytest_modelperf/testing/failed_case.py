"""A case that could not be judged, as reports show it: its model and the message of its test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.obtaining.records import ModelOrigin
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.testing.outcomes import CaseOutcome, Source


def failed_outcome(
    item: pytest.Item,
    model: TestedModel | ModelOrigin,
    message: str,
    case: Case | None = None,
    baseline: str | None = None,
) -> CaseOutcome:
    """Return the outcome of a test whose case failed before anything of it was known.

    A model that cannot be read has no `case`; it is shown at the smallest sizes.
    """
    known = case or Case(1, 1)
    return CaseOutcome(
        test=str(item.nodeid),
        source=source_of(item),
        model=_facts_of(model),
        cores=known.cores,
        batch_size=known.batch_size,
        comparison=CaseComparison(known, (), (), failure=message),
        baseline=baseline,
    )


def source_of(item: pytest.Item) -> Source:
    """The place that defines a test; a model has no lines."""
    path, line, _ = item.location
    has_line = isinstance(item, pytest.Function)
    return Source(path=path, line=line + 1 if has_line and line is not None else None)


def _facts_of(model: TestedModel | ModelOrigin) -> ModelFacts:
    if isinstance(model, ModelOrigin):
        return ModelFacts.named(model.name)
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        return ModelFacts.named(path.name, str(path))
    return ModelFacts.named(getattr(model, "__qualname__", type(model).__name__))
