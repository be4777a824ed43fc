"""The names of cases in reports, as short as possible but unique, and failed cases."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.obtaining.origins import ModelOrigin
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.shown.names import name_models, name_paths
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.testing.outcomes import CaseOutcome, Source
from pytest_modelperf.testing.startup import ALL_CASES
from pytest_modelperf.text.escaping import printable

# Between folders, files, classes and functions. Text in brackets belongs to the function.
_SEPARATOR = re.compile(r"::|/")


def name_outcomes(outcomes: Sequence[CaseOutcome]) -> tuple[str, ...]:
    """Return a unique name for each: the end of its test's id, and more if needed.

    `encoder.onnx::b8-c2`, or `b/encoder.onnx::b8-c2` if there is another file with that name. If
    the id of the test lacks the case, the case follows, and the model if needed.
    """
    file_of = {outcome.test: _file_of(outcome) for outcome in outcomes}
    named = zip(file_of, file_of.values(), name_paths([*file_of.values()]), strict=True)
    endings = {test: _endings(test, file, name) for test, file, name in named}
    shared = Counter(ending for found in endings.values() for ending in found)
    names = [_shortest(outcome, endings[outcome.test], shared) for outcome in outcomes]
    names = _distinguished(names, name_models([outcome.model for outcome in outcomes]))
    names = _distinguished(names, [outcome.engine for outcome in outcomes])
    return tuple(map(printable, names))


def _file_of(outcome: CaseOutcome) -> str:
    """Return the file of its test. The name of a model may contain `::`."""
    parts, path = outcome.test.split("::"), f"/{outcome.model.path or ''}"
    starts = ["::".join(parts[:count]) for count in range(1, len(parts))]
    return next((file for file in starts if path.endswith(f"/{file}")), parts[0])


def _distinguished(names: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Append the part to each name that occurs with several parts."""
    found: dict[str, set[str]] = {}
    for name, part in zip(names, parts, strict=True):
        found.setdefault(name, set()).add(part)
    return [
        f"{name} {part}" if len(found[name]) > 1 else name
        for name, part in zip(names, parts, strict=True)
    ]


def _endings(test: str, file: str, name: str) -> tuple[str, ...]:
    """Return each end of the id that begins with a whole name, the shortest first.

    An end that contains a part of the file's path contains at least the file's unique `name`.
    """
    function = test.partition("[")[0]
    starts = [0, *(found.end() for found in _SEPARATOR.finditer(function))]
    within = range(len(file) - len(name) + 1, len(file))
    return tuple(test[start:] for start in reversed(starts) if start not in within)


def _shortest(outcome: CaseOutcome, endings: Sequence[str], shared: Counter[str]) -> str:
    case_id = outcome.comparison.id
    # A case alone is not enough, because it does not name its model.
    cases = {case_id, ALL_CASES}
    own = (e for e in endings if shared[e] == 1 and e.partition("@")[0] not in cases)
    name = next(own, outcome.test)
    name = name if _names_case(name, case_id) else f"{name} {case_id}"
    return f"{name} upgrade" if outcome.is_upgrade else name


def _names_case(name: str, case_id: str) -> bool:
    found = f"({re.escape(case_id)}|{ALL_CASES})"
    return re.search(rf"::{found}(@|$)|[\[-]{found}(?=[\]@-])", name) is not None


def name_models_of_tests(outcomes: Sequence[CaseOutcome]) -> Iterator[tuple[str, CaseOutcome]]:
    """Yield each outcome of a model with a unique name that does not depend on other tests.

    An upgrade of the engine is left out, because its model is a twin.
    """
    models = [outcome for outcome in outcomes if not outcome.is_upgrade]
    shared = Counter(map(_name_with_case, models))
    known: Counter[str] = Counter()
    for outcome in models:
        name = _name_with_case(outcome)
        if shared[name] > 1:
            # One test checked several models.
            name = f"{name} {outcome.model.name}"
        known[name] += 1
        yield name if known[name] == 1 else f"{name} {known[name]}", outcome


def _name_with_case(outcome: CaseOutcome) -> str:
    """Return the id of the test, followed by the case if the id does not have it."""
    case_id = outcome.comparison.id
    parts = (f"::{case_id}", f"[{case_id}]", f"[{case_id}@")
    has_case = any(part in outcome.test for part in parts)
    return outcome.test if has_case else f"{outcome.test}[{case_id}]"


# -- a case that could not be judged, as reports show it


def failed_outcome(
    item: pytest.Item,
    model: TestedModel | ModelOrigin,
    message: str,
    case: Case | None = None,
    baseline: str | None = None,
) -> CaseOutcome:
    """Return the outcome of a test whose case failed before any result.

    A model that cannot be read has no `case`, and is shown at the smallest sizes.
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
    """Return the place that defines a test. A model has no lines."""
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
